"""Equivalence: whether two answers are the same value. The half of the grader that knows maths.

`latex` unifies print, `tokens` and `syntax` read expressions, `structure` reads everything around
them (lists, intervals, relations, …), `numeric` decides whether two expressions are identical,
`comparison` whether two values are the same, and `compare` puts them together. `algebra` asks
math-verify about what is left, in a child process (`worker`).
"""

from data_prep.grading.equivalence.compare import MAX_CHARS, compare, is_readable
from data_prep.grading.equivalence.tokens import TooLarge
from data_prep.grading.equivalence.units import is_measure

__all__ = ["MAX_CHARS", "TooLarge", "compare", "is_measure", "is_readable"]
