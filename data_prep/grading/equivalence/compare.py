"""Compare: two answers as text, reading by reading; and whether a text can be a gold at all."""

import functools
import re
from fractions import Fraction
from itertools import chain, product

from data_prep.grading.equivalence import numeric
from data_prep.grading.equivalence.algebra import can_be_asked
from data_prep.grading.equivalence.comparison import Algebra, Comparison, any_of
from data_prep.grading.equivalence.readings import read, read_bare
from data_prep.grading.equivalence.tokens import TooLarge, Unreadable
from data_prep.grading.equivalence.values import (
    Based,
    Choice,
    Opaque,
    Relation,
    Scalar,
    Sequence,
    Value,
    Words,
)

MAX_CHARS = 500  # longest value compared; the longest gold of MATH has 159 characters
MAX_WORDS = 4  # a name or a short phrase can be a gold, a sentence cannot


@functools.lru_cache(maxsize=4096)  # a gold is compared with every completion of its group
def _readings(text: str, is_gold: bool) -> tuple[Value, ...]:
    return tuple(read(text, is_gold))


@functools.lru_cache(maxsize=4096)
def _bare(text: str) -> tuple[Value, ...]:
    return tuple(read_bare(text))


_PLAIN_NUMBER = re.compile(
    r"\s*(?:\\?\$)?\s*([+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?)\s*\.?\s*\$?\s*\.?\s*",
    re.ASCII,
)


def _plain_number(text: str) -> str | None:
    """The digits of an integer or decimal, for the short way: most golds are no more than that.

    Dollars may be around it: `$18$`, `\\$18`, but no unit that could disagree.
    """
    match = _PLAIN_NUMBER.fullmatch(text)
    return match[1].replace(",", "") if match else None


def compare(prediction: str, gold: str, algebra: Algebra | None = None) -> bool | None:
    """Whether two values are the same; None where that takes algebra that was not given.

    Args:
        prediction: the extracted value; untrusted.
        gold: the reference value, with or without `$…$` or `\\boxed{…}` around it.
        algebra: decides pairs of which one is outside our grammar.

    Raises:
        TooLarge: the two differ as text and one is too large to compute with.
    """
    if max(len(prediction), len(gold)) > MAX_CHARS:
        return prediction.strip() == gold.strip()
    if (ours := _plain_number(prediction)) and (theirs := _plain_number(gold)):
        return ours == theirs or Fraction(ours) == Fraction(theirs)
    comparison = Comparison(algebra)
    results: list[bool | None] = []
    ours, theirs = _readings(prediction, False), _readings(gold, True)
    bare = product(_bare(prediction), theirs), product(ours, _bare(gold))
    for one, other in chain(product(ours, theirs), *bare):
        if not one.text or not other.text:
            return False
        results.append(comparison.same(one, other))
        if results[-1]:
            return True
    return any_of(results)


def is_readable(text: str) -> bool:
    """Whether a text is a value of a kind that can be compared with others, by us or by algebra."""
    if len(text) > MAX_CHARS:
        return False
    try:
        return any(map(_is_known, _readings(text, True)))
    except TooLarge:
        return False


def _is_known(value: Value) -> bool:
    if isinstance(value, Scalar):
        try:
            return numeric.is_defined(value.tree)
        except TooLarge:
            raise
        except Unreadable:
            return False
    if isinstance(value, Words):
        words = value.text.split()
        is_statement = len(words) > 1 and any(len(word) == 1 and word not in "aA" for word in words)
        return len(words) <= MAX_WORDS and not is_statement
    if isinstance(value, Choice):
        return value.value is None or _is_known(value.value)
    if isinstance(value, Sequence | Relation):
        return all(map(_is_known, value.items if isinstance(value, Sequence) else value.parts))
    return isinstance(value, Based) or (isinstance(value, Opaque) and can_be_asked(value))
