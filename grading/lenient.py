"""Where a completion says an answer at all, in whatever form: a diagnosis, never a score or reward.

math-verify finds the text of the answer, in a killable process, as it also hands it to sympy.
Whether it is the gold says our own grader.
"""

import functools
import os
import re
from collections.abc import Iterable

from grading.compare import is_same_value
from grading.grade import Golds, as_list
from grading.worker import Workers, share_of_cpus
from pipeline.prompts import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN

SECONDS = 2.0  # of reading one completion
MEMORY_BYTES = 2 << 30
MAX_READ = 2_000  # characters at the end of a text without a box
_OPTION = re.compile(r"\s*\$?(?:\\text\s*\{)?\(?[A-K]\)?\}?\$?\s*")
_BRACKETED = re.compile(r"\(([A-K])\)")  # math-verify reads no brackets about a letter
_TAGS = re.compile("|".join((THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)))


def grade_leniently(completions: Iterable[str], golds: Iterable[Golds]) -> list[str | None]:
    """The verdict on what each completion seems to answer, in order.

    Returns:
        "right", "wrong" (also after a time-out), or None where no answer was found.
    """
    accepted = [as_list(gold) for gold in golds]
    calls = [
        (completion, any(map(_OPTION.fullmatch, some)))
        for completion, some in zip(completions, accepted, strict=True)
    ]
    verdicts: list[str | None] = []
    for outcome, some in zip(_workers().map(calls) if calls else [], accepted, strict=True):
        if outcome.status == "ok" and outcome.value is None:
            verdicts.append(None)
        elif outcome.status == "ok" and any(is_same_value(outcome.value, gold) for gold in some):
            verdicts.append("right")
        else:
            verdicts.append("wrong")
    return verdicts


def read_in_worker(completion: str, is_choice: bool) -> str | None:
    """What a worker runs: the text of the answer, behind the thought or else within it."""
    from math_verify import (
        ExprExtractionConfig,
        LatexExtractionConfig,
        StringExtractionConfig,
        parse,
    )

    forms = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    if is_choice:
        forms = [LatexExtractionConfig(boxed_match_priority=0), StringExtractionConfig()]
    after = completion.rpartition(THINK_CLOSE)[2]
    for text in dict.fromkeys((after, completion)):
        text = _TAGS.sub("\n", text)
        text = _BRACKETED.sub(r"\1", text) if is_choice else text
        text = text if "\\boxed" in text else text[-MAX_READ:]
        if found := parse(text, forms, parsing_timeout=0):
            return str(found[-1])  # the last is the text that the others were read from
    return None


@functools.cache
def _workers() -> Workers:
    os.register_at_fork(after_in_child=_workers.cache_clear)  # the workers are the parent's
    return Workers(f"{__name__}:read_in_worker", share_of_cpus(), SECONDS, MEMORY_BYTES)
