"""Answers: find the one in a completion and grade it. The only grader of the project.

Data cleaning, GRPO's rewards and the evaluation all call this module: `extract` looks at structure
(one thought, then one answer), `equivalent` from `data_prep.equivalence` compares the values, and
`grade` does both. Nothing here evaluates model text as code.
"""

import re
from dataclasses import dataclass

from data_prep.equivalence import equivalent, is_parseable, is_same_text
from data_prep.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

__all__ = [
    "Extraction", "Grade", "equivalent", "extract", "find_boxes", "grade", "is_parseable",
    "is_well_formed", "last_boxed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a completion offers: status no_think, unclosed_think, no_answer, several_answers, ok."""

    prediction: str | None
    status: str


@dataclass(frozen=True, slots=True)
class Grade:
    """Verdict: an `Extraction` status other than ok, or wrong, or right."""

    verdict: str
    prediction: str | None


def find_boxes(text: str) -> list[str]:
    """Contents of every balanced outermost `\\boxed{…}`, in order; unclosed ones do not count."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    # One pass: matching each box on its own takes quadratic time on "\\boxed{" repeated.
    # An escaped \{ or \} is a printed brace and does not count.
    for token in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            closes[opened.pop()] = token.start()
    contents, end = [], 0
    for box in re.finditer(r"\\boxed\s*\{", text):
        close = closes.get(box.end() - 1)
        if close is not None and box.start() >= end:
            contents.append(text[box.end() : close])
            end = close
    return contents


def last_boxed(text: str) -> str | None:
    """Content of the last balanced `\\boxed{…}`, or None where there is none."""
    boxes = find_boxes(text)
    return boxes[-1] if boxes else None


def _split_thought(completion: str, think_prefilled: bool) -> tuple[str, str]:
    """(status, text after the thought); status is ok, no_think or unclosed_think."""
    text = THINK_OPEN + completion if think_prefilled else completion
    if text.rfind(THINK_OPEN) > text.rfind(THINK_CLOSE):
        return "unclosed_think", ""
    if text.count(THINK_OPEN) != 1 or text.count(THINK_CLOSE) != 1:
        return "no_think", ""  # absent, doubled or re-opened: no thought that can be told apart
    thought, _, rest = text.partition(THINK_OPEN)[2].partition(THINK_CLOSE)
    return ("ok", rest) if thought.strip() else ("no_think", "")


def is_well_formed(completion: str, think_prefilled: bool = False) -> bool:
    """Whether the completion is one non-empty `<think>…</think>` followed by non-empty text.

    Args:
        think_prefilled: the prompt already ended with `<think>`, so the completion lacks it.
    """
    status, rest = _split_thought(completion, think_prefilled)
    return status == "ok" and bool(rest.strip())


def extract(
    completion: str, think_prefilled: bool = False, answer_tags: bool = False
) -> Extraction:
    """Find the answer that follows the thought; what stands inside the thought never counts.

    Args:
        think_prefilled: the prompt already ended with `<think>`, so the completion lacks it.
        answer_tags: the answer stands between `<answer>` and `</answer>`, not in a box.
    """
    status, rest = _split_thought(completion, think_prefilled)
    if status != "ok":
        return Extraction(None, status)
    if answer_tags:
        between = re.findall(f"{ANSWER_OPEN}(.*?){ANSWER_CLOSE}", rest, re.DOTALL)
        found = [last_boxed(answer) or answer for answer in between]
    else:
        found = find_boxes(rest)
    if not any(answer.strip() for answer in found):
        return Extraction(None, "no_answer")
    if any(not is_same_text(answer, found[-1]) for answer in found):
        return Extraction(None, "several_answers")  # hedging must not pay
    return Extraction(found[-1].strip(), "ok")


def grade(
    completion: str,
    golds: str | list[str],
    think_prefilled: bool = False,
    answer_tags: bool = False,
) -> Grade:
    """Grade one completion against its gold, or against several of which any may match.

    Args:
        completion: what the model wrote, without the prompt.
        golds: one gold answer or a list of acceptable ones.
        think_prefilled, answer_tags: as for `extract`.
    """
    found = extract(completion, think_prefilled, answer_tags)
    if found.prediction is None:
        return Grade(found.status, None)
    golds = [golds] if isinstance(golds, str) else golds
    right = any(equivalent(found.prediction, gold) for gold in golds)
    return Grade("right" if right else "wrong", found.prediction)
