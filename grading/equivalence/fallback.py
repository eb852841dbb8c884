"""math-verify, for what our own grammar cannot read; only the children of the pool run it."""

import math_verify
import sympy

from grading.equivalence.compare import TooLarge, can_be_asked, compare
from grading.equivalence.values import Opaque, Scalar, Words
from pipeline.console import quiet_loggers


def warm_up() -> None:
    """Load what math-verify loads at its first call, before the clock of a call starts."""
    # It warns at every call that its alarm is off; the pool's covers the process.
    quiet_loggers("math_verify")
    math_verify.verify(math_verify.parse("$x^2$"), math_verify.parse("$x+1$"))


def _parse(text: str) -> list:
    # Bare golds are misread more often than dollar-wrapped ones: 48 more of 252 pairs.
    found = math_verify.parse(f"${text}$", parsing_timeout=None)
    return [
        value.replace(sympy.Limit, lambda *of: sympy.Limit(*of[:3], "+-"))  # from both sides
        for value in found[:1]
        if not isinstance(value, str)
    ]


def agree(ours: Opaque | Scalar | Words, theirs: Opaque | Scalar | Words) -> bool | None:
    """math-verify's verdict on two values, None where it must not or cannot read one."""
    if not (can_be_asked(ours) and can_be_asked(theirs)):
        return None
    prediction, gold = _parse(ours.text), _parse(theirs.text)
    if not prediction or not gold:
        return None
    # Gold first: verify is asymmetric. The pool's alarm covers the process.
    if not math_verify.verify(gold, prediction, timeout_seconds=None):
        return False
    values = [one[0].doit() for one in (gold, prediction) if isinstance(one[0], sympy.Expr)]
    are_exact = len(values) == 2 and all(value.is_Rational for value in values)
    return values[0] == values[1] if are_exact else True  # it takes 1/2^98 for 0


def compare_in_worker(prediction: str, gold: str) -> str:
    """`right`, `wrong` or `unparseable`."""
    try:
        result = compare(prediction, gold, agree)
    except TooLarge:
        result = None
    return {True: "right", False: "wrong", None: "unparseable"}[result]
