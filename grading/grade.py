"""Grade completions against golds. The only grader of the project, but for a user's own one.

Data cleaning, GRPO's rewards and the evaluation all call this module, so they agree about every
completion. `extract` finds the answer, `equivalence` compares the values. A pair that they cannot
decide goes to math-verify, in child processes with a time and a memory limit (`pool`). Nothing
evaluates model text as code. `python -m grading FILE` grades a file.
"""

import functools
import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from grading.asked import contradicts, golds_as_asked, is_plain
from grading.equivalence.compare import (
    Pair,
    TooLarge,
    all_pairs,
    find_equal,
    num_listed,
)
from grading.equivalence.numeric import limited_work
from grading.equivalence.tokens import is_simple
from grading.extract import Extraction, extract, extract_short, read_leniently
from grading.own_grader import Case, judge, text_behind_thought
from grading.pool import shared_pool
from grading.restated import find_tasks, is_restated
from grading.unfinished import is_half_done, is_operation_left, is_unevaluated

# The first four: see `extract`. unparseable: the prediction cannot be read, or is too large to
# compute with. timeout: over the limit of time or memory. unevaluated: equal, but left to work out.
VERDICTS = (
    "no_think",
    "unclosed_think",
    "no_answer",
    "several_answers",
    "unparseable",
    "timeout",
    "unevaluated",
    "wrong",
    "right",
)
MAX_QUESTION = 5_000  # characters at the end of a question that are read
Golds = str | float | Sequence[str | float]  # one gold answer, or several of which any may match
F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger(__name__)


def _unless_it_fails(otherwise: Any) -> Callable[[F], F]:
    """A decorator: `otherwise` where reading a text raises, which is a fault of ours.

    One completion must not end a run of many thousands. The fault is logged as a warning.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def attempt(*args: Any) -> Any:
            try:
                with limited_work():
                    return function(*args)
            except Exception as error:  # whatever a text leads to
                _log.warning("%s of %.300r raised %r", function.__name__, args, error)
                return otherwise

        return cast(F, attempt)

    return decorate


@dataclass(frozen=True, slots=True)
class Grade:
    """One of `VERDICTS`, what was compared, and the seconds of work that grading took."""

    verdict: str
    prediction: str | None
    seconds: float = 0.0


def grade(completion: str, golds: Golds, question: str = "", **form: Any) -> Grade:
    """Grade one completion; see `grade_all`."""
    return grade_all([completion], [golds], [question], **form)[0]


def grade_all(
    completions: Iterable[str],
    golds: Iterable[Golds],
    questions: Iterable[str] | None = None,
    *,
    think_prefilled: bool | None = False,
    answer_form: str = "box",
    final_number: bool = False,
) -> list[Grade]:
    """Grade completions in order, those that need math-verify in parallel.

    Args:
        completions: texts that the model wrote, without the prompts.
        golds: one or several gold answers for each completion.
        questions: one for each completion; a formula that is copied from it is incorrect, and an
            option is its letter or its value.
        think_prefilled: True if the prompts ended with `<think>`, so that the completions do not
            open it; None if a completion may have no thought.
        answer_form: one of `pipeline.prompts.ANSWER_FORMS`.
        final_number: where there is no box, the number at the end of the text is the answer.
    """
    flags = think_prefilled, answer_form, final_number

    def find(text: str, question: str) -> Extraction:
        return extract(text, *flags, question=question)

    return _grade_all(completions, golds, find, questions)


def grade_short_all(
    texts: Iterable[str], golds: Iterable[Golds], questions: Iterable[str] | None = None
) -> list[Grade]:
    """Grade bare answers or short texts without a thought, in order; see `grade_all`."""
    return _grade_all(texts, golds, extract_short, questions)


def grade_rollouts(
    completions: Sequence[str],
    golds: Sequence[Golds],
    forms: Sequence[str],
    questions: Sequence[str] | None = None,
    own_graders: Sequence[str | None] | None = None,
    **flags: Any,
) -> list[Grade]:
    """Grade completions in order, each with its own one of `ANSWER_FORMS`; see `grade_all`.

    `own_graders`: for each completion the name of the user's own grader, or None for ours.
    """
    if own_graders is not None and any(own_graders):
        columns = completions, golds, forms, questions or [""] * len(completions)
        return _grade_by_own(columns, own_graders, **flags)
    rows = zip(completions, forms, strict=True)

    def find(row: tuple[str, str], question: str) -> Extraction:
        return extract(row[0], answer_form=row[1], question=question, **flags)

    return _grade_all(rows, golds, find, questions)


def _grade_by_own(
    columns: tuple[Sequence[Any], ...], own_graders: Sequence[str | None], **flags: Any
) -> list[Grade]:
    """Grades by each row's own grader; by ours where it has none.

    `columns` are the completions, golds, forms and questions. A thought that is left open has no
    answer.
    """
    grades: dict[int, Grade] = {}
    ours = [at for at, name in enumerate(own_graders) if not name]
    if ours:
        some = ([column[at] for at in ours] for column in columns)
        grades |= zip(ours, grade_rollouts(*some, **flags), strict=True)
    asked: dict[int, Case] = {}
    for at, name in enumerate(own_graders):
        text = text_behind_thought(columns[0][at], flags.get("think_prefilled"))
        if name and text is not None:
            asked[at] = name, text, _as_list(columns[1][at])
        elif name:
            grades[at] = Grade("unclosed_think", None)
    for at, (is_correct, seconds) in zip(asked, judge(list(asked.values())), strict=True):
        prediction = asked[at][1].strip()
        grades[at] = Grade("right" if is_correct else "wrong", prediction, seconds)
    return [grades[at] for at in range(len(own_graders))]


_OPTION = re.compile(r"\s*\$?(?:\\text\s*\{)?\(?[A-J]\)?\}?\$?\s*")


def grade_leniently(completions: Iterable[str], golds: Iterable[Golds]) -> list[str | None]:
    """The verdict on each completion's lenient reading, in order; never a score or a reward.

    "right", "wrong" (also after a time-out), or None if no answer was found.
    """
    pairs: list[tuple[str | None, list[str]]] = []
    read = _unless_it_fails(None)(read_leniently)
    for completion, gold in zip(completions, golds, strict=True):
        accepted = _as_list(gold)
        is_choice = any(map(_OPTION.fullmatch, accepted))
        pairs.append((read(completion, is_choice), accepted))
    judged = iter(judge_all([(text, golds) for text, golds in pairs if text is not None]))
    found: list[str | None] = []
    for text, _ in pairs:
        verdict = "unparseable" if text is None else next(judged)[0]
        if verdict == "unparseable":
            found.append(None)
        else:
            found.append("right" if verdict == "right" else "wrong")
    return found


def _as_list(golds: Golds) -> list[str]:
    if isinstance(golds, list | tuple):
        return [str(gold) for gold in golds]
    return [str(golds)]


class _Case(NamedTuple):
    """One completion: what was found, what is compared with which golds, and the seconds so far."""

    found: Extraction
    prediction: str | None
    golds: list[str]
    question: str
    seconds: float


def _grade_all(
    texts: Iterable[Any],
    golds: Iterable[Golds],
    find: Callable[[Any, str], Extraction],
    questions: Iterable[str] | None = None,
) -> list[Grade]:
    texts = list(texts)
    asked = [""] * len(texts) if questions is None else questions
    cases = []
    for text, gold, asked_for in zip(texts, golds, asked, strict=True):
        start = time.perf_counter()
        question = asked_for[-MAX_QUESTION:]  # what is asked comes last
        found, prediction, accepted = _read_case(find, text, _as_list(gold), question)
        spent = time.perf_counter() - start
        cases.append(_Case(found, prediction, accepted, question, spent))
    judged = iter(_judge([(case.prediction, case.golds) for case in cases if case.prediction]))
    return [_to_grade(case, next(judged) if case.prediction else None) for case in cases]


@_unless_it_fails((Extraction(None, "unparseable"), None, []))
def _read_case(
    find: Callable[[Any, str], Extraction], text: Any, golds: list[str], question: str
) -> tuple[Extraction, str | None, list[str]]:
    """What was found in a text, the prediction to compare, and the golds as the question says."""
    found = find(text, question)
    prediction, golds = _to_judge(found, golds_as_asked(golds, question, found.prediction or ""))
    if prediction is not None and is_operation_left(prediction, golds):
        return Extraction(prediction, "unevaluated"), None, golds
    return found, prediction, golds


def _to_grade(case: _Case, judged: "_Judged | None") -> Grade:
    if not case.prediction or judged is None:
        return Grade(case.found.status, case.found.prediction, case.seconds)
    start = time.perf_counter()
    verdict = judged.verdict
    if verdict == "right":
        verdict = _verdict_on_equal(case.prediction, case.question, case.golds, judged.equal)
    seconds = case.seconds + judged.seconds + time.perf_counter() - start
    if case.found.several and verdict != "right":
        return Grade(case.found.status, None, seconds)
    return Grade(verdict, case.prediction, seconds)


@_unless_it_fails("unparseable")
def _verdict_on_equal(prediction: str, question: str, golds: list[str], equal: Pair | None) -> str:
    """The verdict on a prediction that equals a gold: right only where the work is done.

    `equal` are the readings of both that are equal; None where plain numbers were compared, or
    where only algebra found them equal.
    """
    is_number = is_simple(prediction) or is_plain(prediction)
    is_printed = prediction.strip() in [gold.strip() for gold in golds]
    if is_printed or (is_number and not find_tasks(question)):
        return "right"
    pairs = [equal] if equal else [one for gold in golds for one in all_pairs(prediction, gold)]
    case = [ours for ours, _ in pairs], question, golds
    if question and (
        is_restated(*case) or is_half_done(*case) or contradicts(prediction, pairs, question, golds)
    ):
        return "wrong"
    if not is_unevaluated(pairs, question):
        return "right"
    others = (find_equal(prediction, gold)[1] for gold in golds)
    pairs += [one for one in others if one]  # another gold may leave as much to do
    return "unevaluated" if is_unevaluated(pairs, question) else "right"


def _to_judge(one: Extraction, golds: list[str]) -> tuple[str | None, list[str]]:
    """The prediction and its golds; of several answers their list and golds that list as many."""
    if one.several:
        lists = [gold for gold in golds if num_listed(gold) == len(one.several)]
        if lists:
            return ", ".join(one.several), lists
    return one.prediction, golds


def judge_all(pairs: Sequence[tuple[str, list[str]]]) -> list[tuple[str, float]]:
    """(verdict, seconds of work) for each prediction with its golds, of which any may match."""
    return [(one.verdict, one.seconds) for one in _judge(pairs)]


class _Judged(NamedTuple):
    """A verdict on the values alone, the seconds it took, and the readings that are equal."""

    verdict: str
    seconds: float
    equal: Pair | None


def _judge(pairs: Sequence[tuple[str, list[str]]]) -> list[_Judged]:
    verdicts: list[list[str | None]] = []
    equals: list[Pair | None] = []
    seconds = []
    for prediction, golds in pairs:
        start = time.perf_counter()
        found, equal = _judge_here(prediction, golds)
        verdicts.append([*found])
        equals.append(equal)
        seconds.append(time.perf_counter() - start)
    unknown, calls = [], []
    for row, (prediction, golds) in enumerate(pairs):
        for at, verdict in enumerate(verdicts[row]):
            if verdict is None:
                unknown.append((row, at))
                calls.append((prediction, golds[at]))
    outcomes = shared_pool().map(calls) if calls else []
    for (row, at), outcome in zip(unknown, outcomes, strict=True):
        # An error is math-verify's own on a text it half understands.
        ends = {"ok": outcome.value, "error": "unparseable", "timeout": "timeout"}
        verdicts[row][at] = ends[outcome.status]
        seconds[row] += outcome.seconds
    return [_Judged(*one) for one in zip(map(_best, verdicts), seconds, equals, strict=True)]


@_unless_it_fails((("unparseable",), None))
def _judge_here(prediction: str, golds: list[str]) -> tuple[Sequence[str | None], Pair | None]:
    """A verdict for each gold up to the first match, and the readings of both that are equal.

    None is the verdict where only algebra can decide.
    """
    verdicts: list[str | None] = []
    for gold in golds:
        try:
            is_same, equal = find_equal(prediction, gold)
        except TooLarge:
            verdicts.append("unparseable")
            continue
        if is_same:
            return ["right"], equal
        verdicts.append(None if is_same is None else "wrong")
    return verdicts, None


def _best(verdicts: list[str | None]) -> str:
    """The verdict over several golds."""
    order = ("right", "timeout", "wrong", "unparseable")
    return min((v or "unparseable" for v in verdicts), key=order.index, default="wrong")
