"""Cleaning: which problems of a set are kept, and why the others are not.

Runs after a source has built its problems. Reasons, checked in this order: `empty_question`,
`no_solution` (SFT only), `gold_not_parseable`, `in_eval_set`, `duplicate_question`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable

from data_prep.answers import is_parseable
from data_prep.schema import Problem

_INVISIBLE = re.compile(r"[\u200b-\u200d\u2060\ufeff]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
# Signs that carry mathematics stay (3-2 is not 3+2, 1.5 is not 15, 5! is not 5); the rest goes.
_PUNCTUATION = re.compile(r"[,;:?$'\"`\u2018\u2019\u201c\u201d\u2026]|(?<![\d)])!|\.(?!\d)")
_AROUND_SIGN = re.compile(r"\s*([-+*/=<>^(){}\[\]|])\s*")


def normalise_question(question: str) -> str:
    """A question without what editions of one problem differ in: case, spacing, punctuation."""
    text = _INVISIBLE.sub("", question.casefold())
    text = _PUNCTUATION.sub(" ", _THOUSANDS.sub("", text))
    return " ".join(_AROUND_SIGN.sub(r"\1", text).split())


def clean(
    problems: Iterable[Problem],
    eval_questions: Collection[str] = frozenset(),
    needs_solution: bool = False,
) -> tuple[list[Problem], Counter[str]]:
    """Keep the first of each usable problem, in order.

    Args:
        problems: built problems of one output file.
        eval_questions: normalised questions that must not occur in it.
        needs_solution: drop problems without worked text, which would teach empty thoughts.

    Returns:
        The problems kept, and the number dropped by reason.
    """
    kept: list[Problem] = []
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    for problem in problems:
        key = normalise_question(problem.question)
        if not key:
            reason = "empty_question"
        elif needs_solution and not problem.solution:
            reason = "no_solution"
        elif not is_parseable(problem.answer):
            reason = "gold_not_parseable"
        elif key in eval_questions:
            reason = "in_eval_set"
        elif key in seen:
            reason = "duplicate_question"
        else:
            seen.add(key)
            kept.append(problem)
            continue
        dropped[reason] += 1
    return kept, dropped
