"""Worked solutions that a reasoning model wrote: what it thought, apart from tags and answer."""

from data_prep.grading.answers import is_same_value, last_boxed
from data_prep.prompts import THINK_CLOSE, THINK_OPEN


def thought_of(text: str) -> str:
    """The text of the thought: between the tags, or before `</think>`; all of it without tags.

    R1's template prefills `<think>`, so that its completions have the closing tag alone.
    """
    thought = text.partition(THINK_CLOSE)[0]
    return thought.rpartition(THINK_OPEN)[2].strip()


def right_thought(text: str, golds: list[str]) -> str:
    """The thought of a completion whose last box is one of the golds, else ""."""
    prediction = last_boxed(text.rpartition(THINK_CLOSE)[2])
    if prediction is None or not any(is_same_value(prediction, gold) for gold in golds):
        return ""
    return thought_of(text)
