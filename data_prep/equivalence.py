"""Equivalence: whether two answers are the same value. The half of the grader that knows maths.

Text and exact arithmetic come first: they decide integers, decimals and fractions in microseconds
and without an import. Only what they leave open goes to math-verify, behind `_is_unreadable`.

math-verify's time-out is SIGALRM, so it works in the main thread only. Elsewhere it is switched
off, and what stands between a hostile expression and a hung process is `_is_unreadable` alone.
"""

import functools
import math
import re
import threading
from fractions import Fraction

MAX_CHARS = 300  # longest value compared; the longest checkable NuminaMath gold seen has 160
MAX_EXPONENT = 9_999  # 2^{2005} is a real gold; a number raised to it still computes at once
MAX_SYMBOLIC_EXPONENT = 20  # (x+y+z+w)^20 expands to 1,771 terms; at 100 it would be 176,851
TIMEOUT_SECONDS = 5

_TEXT = r"\\(?:text|textbf|mathrm|mathbf|mbox)"
_UNIT = r"(?![^{}]*\b(?:is|are|not|if|for|when)\b)[^{}\d]{1,25}"  # no clause, no value
_REWRITES = [
    (re.compile(pattern), new)
    for pattern, new in [
        (r"[\u200b-\u200d\u2060\ufeff]", ""),  # zero-width characters
        (r"[\u2212\u2013]", "-"),  # minus sign, en dash
        (r"(?<!\\)\\[()\[\]]|\\?\$|[€£]", ""),  # math delimiters, currency
        (r"\\(?:left|right)(?![A-Za-z])", ""),
        (r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(leq|geq)slant", r"\\\1"),
        (r"\{,\}|\\!,", ","),
        (r"\\!", ""),
        (r"(?<!\\)\\[,;: ]|\\q?quad(?![A-Za-z])|~", " "),
        (r"\\%", "%"),
        (r"\^\s*(?:\\circ|\{\s*\\circ\s*\})|°", ""),
        (_TEXT + r"\{\s*(?:and|or)\s*\}|\b(?:and|or)\b", ","),
        (r"\\math(?:rm|bf)\{([A-Za-z])\}", r"\1"),
        # A unit at the very end: text after a value, perhaps with a power, or one plain word.
        (rf"(?<=[\w)}}])\s*{_TEXT}\{{{_UNIT}\}}(?:\^\{{?\d\}}?)?[.\s]*$", ""),
        (r"(?<=\d) [a-z]{3,}[.\s]*$", ""),
        (rf"^\s*{_TEXT}\{{([^{{}}]*)\}}\s*$", r"\1"),
        (r"\s+", " "),
        (r"^ | ?\.? ?$", ""),
        (r"^\(([A-Z])\)$", r"\1"),  # a multiple-choice letter
    ]
]


def _normalise(value: str) -> str:
    """One spelling for what differs in print only: boxes, delimiters, currency, spacing, units."""
    boxed = re.fullmatch(r"\s*\$*\s*\\boxed\s*\{(.*)\}\s*\$*\s*", value, re.DOTALL)
    text = boxed[1] if boxed else value
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    return text


_DECIMAL = re.compile(
    r"(?P<digits>\d{1,3}(?:[ ,]\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)"
    r"(?:e(?P<e>[+-]?\d{1,2})"  # two digits: a longer exponent would be a memory bomb
    r"|\s*(?:\\times|\\cdot|\*)\s*10\^\{?(?P<power>-?\d{1,2})\}?)?"
)
_FRACTION = re.compile(
    r"(?:(?P<whole>\d+)\s*(?=\\)|(?P<whole2>\d+)\s+(?=\d))?"
    r"(?:(?P<top>\d+)\s*/\s*(?P<bottom>\d+)"
    r"|\\frac\s*(?:\{\s*(?P<top2>-?\d+)\s*\}|(?P<top3>\d))"
    r"\s*(?:\{\s*(?P<bottom2>-?\d+)\s*\}|(?P<bottom3>\d)))"
)


def _to_number(text: str) -> Fraction | None:
    """The exact value of a normalised plain number (integer, decimal, fraction, mixed), or None."""
    sign, digits = re.fullmatch(r"([+-]?)\s*(.*)", text, re.DOTALL).groups()
    value = None
    if match := _DECIMAL.fullmatch(digits):
        power = int(match["e"] or match["power"] or 0)
        value = Fraction(re.sub("[ ,]", "", match["digits"])) * Fraction(10) ** power
    elif match := _FRACTION.fullmatch(digits):
        top = int(match["top"] or match["top2"] or match["top3"])
        bottom = int(match["bottom"] or match["bottom2"] or match["bottom3"])
        if bottom:
            value = int(match["whole"] or match["whole2"] or 0) + Fraction(top, bottom)
    return -value if value is not None and sign == "-" else value


def _values(text: str) -> tuple[Fraction, ...]:
    """The values a plain number may stand for: `50%` is 50 (as the question says) or 1/2."""
    number = _to_number(text.removesuffix("%").strip())
    if number is None:
        return ()
    return (number, number / 100) if text.endswith("%") else (number,)


_BASE = re.compile(r"\(?(\d+)\)?_\{?(\d+)\}?")


def _compare_exactly(prediction: str, gold: str) -> bool | None:
    """Compare two normalised values without algebra; None where only algebra can tell."""
    if not prediction or not gold:
        return False
    # Space between digits means something ("1 1/2"); any other does not.
    prediction, gold = (re.sub(r"(?<!\d) | (?!\d)", "", text) for text in (prediction, gold))
    if prediction == gold:
        return True
    ours, theirs = _values(prediction), _values(gold)
    if ours and theirs:  # two percentages compare as such, or 0.5% would equal 50%
        return ours[0] == theirs[0] if len(ours) == len(theirs) else bool({*ours} & {*theirs})
    if _BASE.fullmatch(prediction):
        return False  # math-verify would ignore the base; one that is not the gold's own is wrong
    if base := _BASE.fullmatch(gold):
        return prediction == base[1]  # the question names the base, so it may be left out
    if prediction.isalpha() and gold.isalpha():
        return False  # words and letters; math-verify reads BA and AB as the same product
    return None


def is_same_text(first: str, second: str) -> bool:
    """Whether two answers are equal by text or exact arithmetic; cheap on any input."""
    if max(len(first), len(second)) > MAX_CHARS:
        return first.strip() == second.strip()
    first, second = _normalise(first), _normalise(second)
    return first == second or _compare_exactly(first, second) is True


_RELATION = re.compile(r"\\(?:leq?|geq?|neq?|approx|in|equiv|sim|cong)(?![A-Za-z])|[=<>≤≥≠≈∈]")
_ASSIGNMENT = re.compile(r"\s*[A-Za-z](?:_\{?\w+\}?)?(?:\(\w\))?\s*(?:=|\\in(?![A-Za-z]))\s*")


def _align_relations(prediction: str, gold: str) -> tuple[str, str] | None:
    """Drop `x =` where the other side has none; None where the two relations cannot agree.

    math-verify reads `4=5` and `\\leq 5` as 5, and `x=3=5` as x=5.
    """
    ours, theirs = len(_RELATION.findall(prediction)), len(_RELATION.findall(gold))
    if ours == 1 and not theirs and (name := _ASSIGNMENT.match(prediction)):
        return prediction[name.end() :], gold
    if theirs == 1 and not ours and (name := _ASSIGNMENT.match(gold)):
        return prediction, gold[name.end() :]
    if theirs and not ours and prediction[0] in "([":
        return prediction, gold  # an interval for an inequality
    return (prediction, gold) if ours == theirs else None


_MISREAD = re.compile(
    r"\d \d"  # 5 6 is read as 11
    r"|\\overline|\\dot(?![A-Za-z])"  # 0.\overline{3} is read as 0
    r"|\\?\{[^{}]*(?:\||\\mid|:)"  # {x | 0 < x < 1} is read as 1
    rf"|{_TEXT}\{{"  # 1 hour, 5 minutes is read as 1
    r"|(?<![\\A-Za-z])[A-Za-z]{2,} [A-Za-z]{2,}"  # a sentence is read as a product of letters
    r"|\d\)?_"  # a number base is ignored
)
_BOMB = re.compile(
    r"\\(?:sum|prod|int|lim|[lc]?dots)(?![A-Za-z])"
    r"|(?<!\d)\s*!|\d{4,}\s*!"  # a factorial of anything but a number below 1,000
    r"|\\[dt]?binom(?!\{\w{1,4}\}\{\w{1,4}\})"
)


_GROWING = ("^", "**", "!", "*", r"\cdot", r"\times")


def _has_tower(text: str) -> bool | None:
    """Whether an exponent itself holds a power, factorial or product; None: unbalanced braces."""
    groups: list[tuple[str, bool]] = []  # open groups: sign, and whether it is an exponent
    raised = False  # the token before was ^ or **
    for token in re.findall(r"\*\*|\\[A-Za-z]+|\\.|\S", text):
        if token in ("{", "(", "["):
            groups.append((token, raised))
        elif token in (")", "]") and groups and groups[-1][0] != "{":
            groups.pop()  # either closes either: (0, 1] is an interval
        elif token == "}":
            while groups and groups[-1][0] != "{":
                groups.pop()
            if not groups:
                return None
            groups.pop()
        elif token in _GROWING and (raised or any(is_exponent for _, is_exponent in groups)):
            return True
        raised = token in ("^", "**") or (raised and token.startswith("\\"))
    return None if any(sign == "{" for sign, _ in groups) else False


def _is_unreadable(text: str) -> bool:
    """Whether math-verify would misread a normalised value, or never come back from it."""
    if _has_tower(text) is not False or _MISREAD.search(text) or _BOMB.search(text):
        return True
    powers = re.findall(r"([)}]?)\s*(?:\^|\*\*)\s*[({]?\s*[+-]?\s*(\d+)", text)
    if any(len(exponent) > 4 for _, exponent in powers):
        return True
    # Powers of groups may be nested and then multiply: ((9^{99})^{99})^{99}.
    total = math.prod(int(exponent) for group, exponent in powers if group)
    total *= max((int(exponent) for group, exponent in powers if not group), default=1)
    is_symbolic = re.search(r"(?<![\\A-Za-z])[A-Za-z]", text)
    return total > (MAX_SYMBOLIC_EXPONENT if is_symbolic else MAX_EXPONENT)


def _timeout() -> int | None:
    """math-verify's limit in seconds: signal.alarm raises outside the main thread."""
    return TIMEOUT_SECONDS if threading.current_thread() is threading.main_thread() else None


def _parse(text: str) -> list:
    """[expression] as math-verify reads a normalised value, [] where it cannot."""
    import math_verify  # late: it brings sympy, which plain numbers never need

    # Bare golds are misread more often than dollar-wrapped ones: 48 more of 252 pairs.
    found = math_verify.parse(f"${text}$", parsing_timeout=_timeout())
    return [value for value in found[:1] if not isinstance(value, str)]


@functools.lru_cache(maxsize=4096)  # sources and cleaning ask about the same gold
def is_parseable(answer: str) -> bool:
    """Whether `answer` can serve as a gold: a number or an expression that the grader can read."""
    if len(answer) > MAX_CHARS:
        return False
    text = _normalise(answer)
    if not text:
        return False
    return bool(_values(text)) or (not _is_unreadable(text) and bool(_parse(text)))


def equivalent(prediction: str, gold: str) -> bool:
    """Whether two values are the same: as text, as exact numbers, or by algebra.

    Args:
        prediction: the extracted value; untrusted.
        gold: the reference value, with or without `$…$` or `\\boxed{…}` around it.
    """
    if max(len(prediction), len(gold)) > MAX_CHARS:
        return False
    prediction, gold = _normalise(prediction), _normalise(gold)
    decided = _compare_exactly(prediction, gold)
    if decided is not None:
        return decided
    aligned = _align_relations(prediction, gold)
    if aligned is None:
        return False
    decided = _compare_exactly(*aligned)
    if decided is not None:
        return decided
    if any(map(_is_unreadable, aligned)):
        return False
    import math_verify

    ours, theirs = map(_parse, aligned)
    if not ours or not theirs:
        return False
    return math_verify.verify(theirs, ours, timeout_seconds=_timeout())  # gold first: asymmetric
