"""Why the data builder leaves rows out, in the order in which it finds out, and in plain words.

The builder's modules document their reasons; a test holds this list against them.
"""

from collections.abc import Iterable

BEFORE = {
    "not_sampled": "the source's `sample` did not draw it",
    "bad_row": "cannot be read, or lacks a column; skipped by `on_bad_row: skip`",
}
SOURCES = {  # reasons of single sources, and whatever others a new one has
    "invalid_problem": "its source says that the problem is not valid",
    "unknown_template": "the prompt holds tokens of a chat template that is not known",
    "not_math": "its source says that it is another task",
    "no_answer": "its source has no gold for it",
    "no_boxed_answer": "the solution boxes nothing",
    "unbalanced_box": "the solution's last box never closes",
    "empty_box": "the solution's last box is empty",
    "text_answer": "the gold is words, which no algebra can compare",
}
AFTER = {
    "empty_question": "nothing is asked",
    "no_solution": "no worked text, which would teach empty thoughts",
    "sentinel_answer": "the gold says that there is none",
    "image": "the question points to a picture that is not in the row",
    "proof": "it asks for a proof: a right final line proves nothing",
    "multiple_choice": "the gold is an option, or the question shows options: guesses would pay",
    "shows_answer": "the question ends with its own answer",
    "gold_not_parseable": "the grader cannot read the gold, so nothing could ever match it",
    "level": "the level is out of the source's bounds, or unknown",
    "pass_rate": "the pass rate is out of the source's bounds, or unknown",
    "foreign_language": "the question is in none of the recipe's `languages`",
    "long_question": "more tokens than `max_question_tokens`",
    "long_solution": "more tokens than `max_solution_tokens`",
    "in_eval_set": "it stands in an evaluation set, in the same or in other words",
    "duplicate_question": "the same question apart from case, spacing and punctuation",
    "conflicting_gold": "the same question has another gold elsewhere, and one of them is wrong",
    "near_duplicate": "another edition of a question, with the same numbers and the same gold",
    "unknown_difficulty": "the mix needs its difficulty, and it has none",
    "not_in_mix": "more than the mix takes of its difficulty",
}
# Rows that are good but not wanted: what is left without them is no loss.
ON_PURPOSE = ("not_sampled", "not_in_mix")
_MEANINGS = BEFORE | SOURCES | AFTER


def meaning(reason: str) -> str:
    """What a reason says in a few words, or nothing where the list does not have it."""
    return _MEANINGS.get(reason, "")


def in_order(reasons: Iterable[str]) -> list[str]:
    """Reasons in the order of the builder's steps; unknown ones are some source's own."""
    found = sorted(set(reasons))
    known = [*BEFORE, *SOURCES, *(r for r in found if r not in _MEANINGS), *AFTER]
    return [reason for reason in known if reason in found]
