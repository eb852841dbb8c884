"""Answers: find the one in a completion and grade it. The only grader of the project.

    python -m data_prep.grading.answers --pairs outputs.jsonl --form completion --out verdicts.jsonl

Data cleaning, GRPO's rewards and the evaluation all call this module: `extraction` looks
at structure (one thought, then one answer), `equivalence` compares the values. What those
cannot decide goes to math-verify, in child processes with a time and a memory limit
(`data_prep.grading.grading_pool`). Nothing evaluates model text as code.

Verdicts: no_think, unclosed_think, no_answer, several_answers (see `extract`), unparseable (the
prediction cannot be read, or is too large to compute with), timeout (over the limit of time or
memory), wrong, right.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from data_prep.grading import extraction
from data_prep.grading.equivalence import TooLarge, compare, is_readable
from data_prep.grading.extraction import Extraction, find_boxes, is_well_formed, last_boxed
from data_prep.grading.grading_pool import shared_pool

__all__ = [
    "VERDICTS", "Extraction", "Grade", "extract", "find_boxes", "grade", "grade_all",
    "grade_short_all", "is_parseable", "is_same_value", "is_well_formed", "judge_all", "last_boxed",
]  # fmt: skip

VERDICTS = (
    "no_think", "unclosed_think", "no_answer", "several_answers", "unparseable", "timeout",
    "wrong", "right",
)  # fmt: skip
Golds = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Grade:
    """One of `VERDICTS`, what was compared, and the seconds of work that grading took."""

    verdict: str
    prediction: str | None
    seconds: float = 0.0


def is_same_value(first: str, second: str) -> bool:
    """Whether two answers are one value as far as we can tell without math-verify."""
    try:
        return compare(first, second) is True
    except TooLarge:
        return False


def is_parseable(answer: str) -> bool:
    """Whether `answer` can serve as a gold: a value of a kind that the grader can compare."""
    return is_readable(answer)


def extract(
    completion: str,
    think_prefilled: bool = False,
    answer_tags: bool = False,
    final_number: bool = False,
) -> Extraction:
    """Find the answer that follows the thought; see `data_prep.grading.extraction.extract`."""
    return extraction.extract(completion, is_same_value, think_prefilled, answer_tags, final_number)


def grade(completion: str, golds: Golds, **form: bool) -> Grade:
    """Grade one completion; see `grade_all`."""
    return grade_all([completion], [golds], **form)[0]


def grade_all(
    completions: Iterable[str],
    golds: Iterable[Golds],
    *,
    think_prefilled: bool = False,
    answer_tags: bool = False,
    final_number: bool = False,
) -> list[Grade]:
    """Grade completions in order, those that need math-verify side by side.

    Args:
        completions: what the model wrote, without the prompts.
        golds: for each, one gold answer or several of which any may match.
        think_prefilled: the prompts already ended with `<think>`, so the completions lack it.
        answer_tags: the answer stands between `<answer>` and `</answer>`, not in a box.
        final_number: where there is no box, the number that the text ends with will do.
    """
    return _grade_all(
        completions, golds, lambda c: extract(c, think_prefilled, answer_tags, final_number)
    )


def grade_short_all(texts: Iterable[str], golds: Iterable[Golds]) -> list[Grade]:
    """Grade bare answers or short texts without a thought, in order; see `grade_all`."""
    return _grade_all(texts, golds, lambda text: extraction.extract_short(text, is_same_value))


def _grade_all(
    texts: Iterable[str], golds: Iterable[Golds], find: Callable[[str], Extraction]
) -> list[Grade]:
    started = [time.perf_counter()]
    found = []
    for text in texts:
        found.append(find(text))
        started.append(time.perf_counter())
    pairs = [
        (one.prediction, [gold] if isinstance(gold, str) else list(gold))
        for one, gold in zip(found, golds, strict=True)
    ]
    judged = iter(judge_all([pair for pair in pairs if pair[0] is not None]))
    grades = []
    for at, one in enumerate(found):
        seconds = started[at + 1] - started[at]
        if one.prediction is None:
            grades.append(Grade(one.status, None, seconds))
        else:
            verdict, more = next(judged)
            grades.append(Grade(verdict, one.prediction, seconds + more))
    return grades


def judge_all(pairs: Sequence[tuple[str, list[str]]]) -> list[tuple[str, float]]:
    """(verdict, seconds of work) for each prediction with its golds, of which any may match."""
    verdicts: list[list[str | None]] = []
    seconds = []
    for prediction, golds in pairs:
        start = time.perf_counter()
        verdicts.append(_judge_here(prediction, golds))
        seconds.append(time.perf_counter() - start)
    open_calls = {
        (row, at): (pairs[row][0], pairs[row][1][at])
        for row, each in enumerate(verdicts)
        for at, verdict in enumerate(each)
        if verdict is None
    }
    outcomes = shared_pool().map(list(open_calls.values())) if open_calls else []
    for (row, at), outcome in zip(open_calls, outcomes, strict=True):
        # An error is math-verify's own on a text it half understands.
        verdicts[row][at] = {"ok": outcome.value, "error": "unparseable"}.get(
            outcome.status, outcome.status
        )
        seconds[row] += outcome.seconds
    return [(_best(each), spent) for each, spent in zip(verdicts, seconds, strict=True)]


def _judge_here(prediction: str, golds: list[str]) -> list[str | None]:
    """A verdict for each gold up to the first that is right; None where only algebra can tell."""
    verdicts: list[str | None] = []
    for gold in golds:
        try:
            same = compare(prediction, gold)
            verdicts.append({True: "right", False: "wrong", None: None}[same])
        except TooLarge:
            verdicts.append("unparseable")
        if verdicts[-1] == "right":
            return ["right"]
    return verdicts


def _best(verdicts: list[str | None]) -> str:
    """The verdict over several golds."""
    order = ("right", "timeout", "wrong", "unparseable")
    return min((v or "unparseable" for v in verdicts), key=order.index, default="wrong")


if __name__ == "__main__":
    from data_prep.config import run_cli
    from data_prep.grading.grade_file import main

    run_cli(main)
