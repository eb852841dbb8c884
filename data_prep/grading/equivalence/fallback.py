"""Fallback: math-verify for what our own grammar cannot read. Only ever asked in a child process.

math-verify reads almost anything, and what it misreads it accepts: a list as a sum, a sentence as a
product. So it is asked only about texts made of mathematics, and not about those whose size alone
would cost the time limit.
"""

import re

from data_prep.grading.equivalence.tokens import FUNCTIONS, Token, is_balanced, tokenise
from data_prep.grading.equivalence.values import Opaque, Scalar, Words

_COMMANDS = {
    "frac", "sqrt", "cdot", "times", "div", "pi", "sum", "prod", "int", "lim", "infty", "to",
    "binom", "lfloor", "rfloor", "lceil", "rceil", "max", "min", "gcd", "lcm", "partial", "over",
    "alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "omega", "phi", "sigma", "arccot",
    "arcsec", "arccsc", "coth",
}  # fmt: skip
_GROWING = {"^", r"\sum", r"\prod", r"\int", r"\lim"}
# Characters of a number outside, and inside an exponent or the bound of a sum, where every further
# digit multiplies the work.
_LONGEST = {False: 100, True: 4}


# What our own grammar lacks; whatever else it refuses is malformed, and math-verify would guess.
_ITS_OWN = {r"\sum", r"\prod", r"\int", r"\lim", r"\max", r"\min", r"\gcd", r"\lcm"}


def _is_mathematics(tokens: list[Token]) -> bool:
    """Whether the tokens are numbers, single letters, known commands and operators only."""
    if not tokens or tokens[-1].text in "+-*/^_=(":
        return False
    previous = None
    for token in tokens:
        if token.kind == "text" or (
            token.kind == "word" and len(token.text) > 1 and not re.fullmatch("d[a-z]", token.text)
        ):
            return False  # words; but dx
        if token.kind == "cmd" and token.text[1:] not in _COMMANDS | FUNCTIONS:
            return False
        if token.kind == "op" and token.text not in "+-*/^_!=(){}[]|,'":
            return False
        if token.kind == "num" and (token.text[-1:] == ")" or "e" in token.text.lower()):
            return False  # repeating decimals are misread, 1e999999999 is a bomb
        if previous and previous.kind == token.kind == "num":
            return False  # 5 6 is read as 11
        previous = token
    # A lone bar divides 4 | 8, or separates candidates.
    return [token.text for token in tokens].count("|") % 2 == 0


def _is_bomb(tokens: list[Token]) -> bool:
    """Whether exponents or bounds hold a power or a further sum, or numbers are huge."""
    open_at: list[bool] = []  # for each open bracket: is it, or is it inside, an exponent or bound
    raised = False
    for token in tokens:
        inside = raised or any(open_at)
        if token.text in ("{", "(", "["):
            open_at.append(inside)
        elif token.text in ("}", ")", "]") and open_at:
            open_at.pop()
        is_long = token.kind == "num" and len(token.text) > _LONGEST[inside]
        if is_long or token.text == "!" or (inside and token.text in _GROWING):
            return True
        raised = token.text in ("^", "_")
    return False


def _parse(text: str) -> list:
    import math_verify  # late: it brings sympy, and only the child needs it

    # Bare golds are misread more often than dollar-wrapped ones: 48 more of 252 pairs.
    found = math_verify.parse(f"${text}$", parsing_timeout=None)
    return [value for value in found[:1] if not isinstance(value, str)]


# math-verify guesses at operators without their bounds or operands, so each must be complete.
_WHOLE = re.compile(
    r"\\(?:max|min|gcd|lcm)\((?=[^()])"
    r"|\\lim_\{[A-Za-z]\\to(?=[^{}=])"
    r"|\\(?:sum|prod)_\{[A-Za-z]=[^{}=]+\}\^(?:\{[^{}=]*\}|\\infty ?|[^{}\\])(?=[^\s=+)}*/^,-])"
    r"|\\int(?:_(?:\{[^{}=]*\}|[^{}\\])\^(?:\{[^{}=]*\}|\\infty|[^{}\\]))?(?=[^d].*d[a-z])"
)


def can_be_asked(value: Opaque | Scalar | Words) -> bool:
    """Whether a value may go to math-verify: complete mathematics of a sane size."""
    tokens = tokenise(value.text)
    num_operators = sum(token.text in _ITS_OWN for token in tokens)
    if not (num_operators or isinstance(value, Scalar)) or not is_balanced(tokens):
        return False
    found = [match[0] for match in _WHOLE.finditer(value.text)]
    is_whole = len(found) == num_operators and value.text.count("=") == "".join(found).count("=")
    return is_whole and _is_mathematics(tokens) and not _is_bomb(tokens)


def agree(ours: Opaque | Scalar | Words, theirs: Opaque | Scalar | Words) -> bool | None:
    """math-verify's verdict on two values, None where it must not or cannot read one."""
    if not (can_be_asked(ours) and can_be_asked(theirs)):
        return None
    import math_verify

    parsed = [_parse(value.text) for value in (ours, theirs)]
    if not all(parsed):
        return None
    # Gold first: verify is asymmetric. The pool's alarm covers the process.
    return math_verify.verify(parsed[1], parsed[0], timeout_seconds=None)
