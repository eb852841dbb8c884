"""Grade completions against golds. The only grader of the project, but for a user's own one.

Data cleaning, GRPO's rewards and the evaluation all call this module, so they agree about every
completion. `extract` finds the answer, `compare` says whether it is the value of a gold, `question`
whether it is an answer to the question. Nothing evaluates model text as code.
`python -m grading FILE` grades a file.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grading.compare import is_parseable, match, num_listed
from grading.extract import Extraction, extract, extract_short
from grading.own_grader import Case, judge, text_behind_thought
from grading.question import golds_as_asked, is_refused, with_points

# The first four: see `extract`. unparseable: the prediction cannot be read, or is too large to
# compute with. unevaluated: equal, but left to work out.
VERDICTS = (
    "no_think",
    "unclosed_think",
    "no_answer",
    "several_answers",
    "unparseable",
    "unevaluated",
    "wrong",
    "right",
)
MAX_QUESTION = 5_000  # characters at the end of a question that are read
Golds = str | float | Sequence[str | float]  # one gold answer, or several of which any may match
_log = logging.getLogger(__name__)


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
    """Grade completions in order.

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
    completions = list(completions)
    asked = [""] * len(completions) if questions is None else questions
    form = {
        "think_prefilled": think_prefilled,
        "answer_form": answer_form,
        "final_number": final_number,
    }
    rows = zip(completions, golds, asked, strict=True)
    return [_grade_one(extract, text, gold, question, form) for text, gold, question in rows]


def grade_short_all(
    texts: Iterable[str], golds: Iterable[Golds], questions: Iterable[str] | None = None
) -> list[Grade]:
    """Grade bare answers or short texts without a thought, in order; see `grade_all`."""
    texts = list(texts)
    asked = [""] * len(texts) if questions is None else questions
    rows = zip(texts, golds, asked, strict=True)
    return [_grade_one(extract_short, text, gold, question, {}) for text, gold, question in rows]


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
    asked = questions or [""] * len(completions)
    named = own_graders or [None] * len(completions)
    grades: dict[int, Grade] = {}
    cases: dict[int, Case] = {}
    rows = zip(completions, golds, forms, asked, named, strict=True)
    for at, (completion, gold, form, question, name) in enumerate(rows):
        if not name:
            form_flags = {"answer_form": form, **flags}
            grades[at] = _grade_one(extract, completion, gold, question, form_flags)
            continue
        text = text_behind_thought(completion, flags.get("think_prefilled"))
        if text is None:
            grades[at] = Grade("unclosed_think", None)
        else:
            cases[at] = name, text, as_list(gold)
    for at, (is_correct, seconds) in zip(cases, judge(list(cases.values())), strict=True):
        verdict = "right" if is_correct else "wrong"
        grades[at] = Grade(verdict, cases[at][1].strip(), seconds)
    return [grades[at] for at in range(len(grades))]


def as_list(golds: Golds) -> list[str]:
    """Golds as a list of texts."""
    if isinstance(golds, list | tuple):
        return [str(gold) for gold in golds]
    return [str(golds)]


def _grade_one(find: Any, text: str, golds: Golds, question: str, form: dict[str, Any]) -> Grade:
    """The grade of one text, in which `find` finds the answer."""
    start = time.perf_counter()
    prediction = None
    try:
        found = find(text, question=question[-MAX_QUESTION:], **form)  # what is asked comes last
        prediction = found.prediction
        verdict = _verdict(found, as_list(golds), question[-MAX_QUESTION:])
    except Exception as error:  # one completion must not end a run of many thousands
        _log.warning("grading %.300r raised %r", text, error)
        verdict = "unparseable"
    return Grade(verdict, prediction, time.perf_counter() - start)


def _verdict(found: Extraction, golds: list[str], question: str) -> str:
    """The verdict on what was found; several answers may be the list that a gold is."""
    prediction = found.prediction
    if found.several:
        golds = [gold for gold in golds if num_listed(gold) == len(found.several)]
        prediction = ", ".join(found.several) if golds else None
    if prediction is None:
        return found.status
    if prediction.strip() in [gold.strip() for gold in golds if gold.strip()]:
        return "right"  # as it is written
    for text in dict.fromkeys((prediction, with_points(prediction, question))):
        for gold in golds_as_asked(golds, question, text):
            if (equal := match(text, gold)) is not None:
                return is_refused(*equal, text, golds, question, gold) or "right"
    if found.several:
        return found.status
    return "wrong" if is_parseable(prediction) else "unparseable"
