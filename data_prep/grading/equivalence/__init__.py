"""Equivalence: whether two answers are the same value. The half of the grader that knows maths.

In the order of a comparison: `tokens` unifies print and cuts a text up, `structure` reads what kind
of thing it is and `parse` the scalars in it (`values` defines both, `units` knows metres),
`compare` decides kind by kind, with `numeric` for expressions and `relations` for equations and
inequalities. `fallback` asks math-verify about what is left, in a child process (`worker`).
"""

from data_prep.grading.equivalence.compare import MAX_CHARS, compare, is_parseable, is_same_value
from data_prep.grading.equivalence.tokens import TooLarge
from data_prep.grading.equivalence.units import is_measure

__all__ = ["MAX_CHARS", "TooLarge", "compare", "is_measure", "is_parseable", "is_same_value"]
