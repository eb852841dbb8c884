r"""The end of a worked solution: the answer that it gives, and what is no part of the thought.

SFT writes the solution as a thought and the gold behind it, so the two must agree. A solution gives
its answer in a box, behind `####`, or in words: "So the answer is 37.", "Answer: 37", "17 + 19 = 37
apples." Words are read in the last sentences only, and one value only: competition prose ends in
notes, cases and checks. `strip_ending` removes what SFT would teach beside the thought.
"""

import functools
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from data_prep.sources.base import (
    MARK,
    MAX_STATED,
    behind_mark,
    is_option,
    statements,
    without_commands,
)
from grading.boxes import find_boxes
from grading.canonical import letters_of
from grading.compare import is_parseable, is_same_value, read

_LONGEST = 1500  # characters of the end of a solution in which sentences are looked for
_LONGEST_SIGNATURE = 200  # characters
_CALCULATION = re.compile(r"<<[^<>=\n]*=[^<>\n]*>>")  # <<48/2=24>>
# Who wrote it, at the end: "~user 12", "~[user](https://…)", and on lines of their own "-user",
# "-- A User", or what stands below "--", as in mails. A bullet has a blank and several words.
_SIGNATURE = re.compile(
    r"(?:(?:^|\s)~\s?\[?|\n\s*(?:-(?:\s(?=\S+$))?|--+\s?|[\u2013\u2014]\s?)(?=(?:\S+ ?){1,6}$))"
    r"[A-Za-z][^~$\\{}<>=\n]{2,150}~?\Z"
    r"|\n--+ ?\n[^$\\{}<>=]{2,190}\Z"
)
_SENTENCE = re.compile(r"(?<=[.!?])[\s*_)$\]]+(?=[A-Z*_(\\])|\n+")
_NUMBER = re.compile(
    r"[-\u2212]?\s?(?:\\?[$\u20ac\u00a3]\s?)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
    r"(?:\s?/\s?\d+)?(?:\s?\\?%)?"
)
# One number, with words behind it: "37 apples in all.", "$37$ apples". Behind a formula in the
# middle of a sentence there are more.
_COUNTED = re.compile(
    rf"[\s*_$~({{\[]*(?:\\[(\[]\s*)?({_NUMBER.pattern})(?![\w./:^,]\d|[\w/^:])"
    r"(?:[^\d=\\$]*|(?:\$|\\[)\]])\W*(?:[^\W\d]+\W*){0,2})",
    re.DOTALL,
)
# What stands before the equals sign in "x = 3, y = 4".
_ONE_OF_SEVERAL = re.compile(r"=[^=]*(?:[,;]|\b(?:and|or)\b)[\s$\\(]*[A-Za-z](?:_\w+)?\s*\Z")
# "So she has 37 apples.", "The number of apples is 37."
_CONCLUDES = re.compile(
    r"\W*(?:so|thus|hence|therefore|consequently|finally|altogether|overall|in (?:total|all))\b",
    re.IGNORECASE,
)
_UNFINISHED = re.compile(r"(?:\b(?:is|are|was|equals?|of|to)|[:=])\s*\Z")
_ENDS_WITH_NUMBER = re.compile(
    rf"\b(?:is|are|was|equals?|gives|makes|leaves|get|has|have)\s*[$\\(\[*]*{_NUMBER.pattern}[\s$\\)\]*.!]*\Z"
)
_DELIMITERS = re.compile(
    r"^[\s&$*_]*(?:\\[(\[])?\s*|[\s$*_.!]*(?:(?:\\[)\]]|\\end\{\w+\*?\})[\s$*_.!]*)*$"
)
_NUMERIC = re.compile(r"-?(?:[\s\d.,/{}]|\\(?:[dt]?frac|sqrt|pi|,|!)(?![A-Za-z]))+")
# Before the equals sign of "2x + 1 = 7", which is still to be solved; not of "2 x 3 = 6".
_UNSOLVED = re.compile(
    r"(?<![A-Za-z\\])[A-Za-z]\s*[-+*/^]|[-+*/^\d]\s*[A-Za-z](?![A-Za-z]|\s*[\d.$])|[a-z]_[a-z]"
)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


@functools.lru_cache(maxsize=1)  # the build asks twice
def judge_solution(solution: str, golds: tuple[str, ...]) -> tuple[str, bool] | None:
    """The answer that a solution gives, and whether it is a gold; None where none can be read.

    It is what a box holds, of which any may be the gold, or what the end of the text states, which
    counts beside the mark `####`, too: `strip_ending` takes that away.
    """
    said = [one for one in find_boxes(solution)[-MAX_STATED:] if is_parseable(one)]
    thought, marked = _at_mark(solution, golds)
    is_completed = marked and _UNFINISHED.search(thought)  # "… is\n#### 5"
    stated = None if said or is_completed else find_statement(thought, golds)
    if stated and not stated[1]:
        return stated
    said += [marked] if marked else []
    if right := [one for one in said if any(is_same_value(one, gold) for gold in golds)]:
        return right[0], True
    return (said[-1], False) if said else stated


def _at_mark(solution: str, golds: Sequence[str]) -> tuple[str, str]:
    """What stands before the mark `####`, and the value behind it; all and "" at a mere heading."""
    thought, mark, rest = solution.rpartition(MARK)
    line = _without_signature(behind_mark(solution)) if mark else ""
    if not line or len(rest) > _LONGEST_SIGNATURE:
        return solution, ""
    is_gold = any(is_same_value(line, gold) for gold in golds)
    return (thought, line) if is_gold or _read_value(line, is_stated=True) else (solution, "")


def strip_ending(solution: str, golds: Sequence[str]) -> str:
    """A solution without calculator marks, the line that marks its gold, and signatures."""
    text = _without_signature(_CALCULATION.sub("", solution))
    thought, marked = _at_mark(text, golds)
    is_gold = marked and any(is_same_value(marked, gold) for gold in golds)
    return _without_signature(thought) if is_gold and thought.strip() else text


def find_statement(solution: str, golds: Sequence[str]) -> tuple[str, bool] | None:
    """The answer that the end of a solution states, and whether it is a gold; None without one.

    A number is compared with a number only. One that differs by a rounding or by a factor of 100
    (dollars and cents, percent) is None as well: the text may say it in another unit.
    """
    text = _without_signature(_CALCULATION.sub("", solution))[-_LONGEST:]
    sentences = [one for one in _SENTENCE.split(text) if one.strip()]
    while sentences and _says_nothing(sentences[-1]):
        sentences.pop()
    last = sentences[-1] if sentences else ""
    stated = [(rest, one) for one in sentences[-2:] for rest in statements(one) if rest.strip()]
    if stated and ("=" not in last or last.endswith(stated[-1][0])):
        rest, sentence = stated[-1]
    elif "=" in last:
        rest = sentence = last
    else:
        return _read_numbers(sentences, golds)
    before, _, value = rest.rpartition("=")
    if _ONE_OF_SEVERAL.search(before) or _UNSOLVED.search(before.rpartition("=")[2]):
        return None
    said = _read_value(value, is_stated=rest is not sentence)
    return _compare(said, rest, sentence, golds) if said else None


def _says_nothing(sentence: str) -> bool:
    """Whether a last sentence has no value: "(Note that …)", "I hope this helps!"."""
    is_remark = not re.search(r"[\d$\\=]", sentence) and not any(statements(sentence))
    return sentence.startswith("(") or is_remark


def _read_numbers(sentences: list[str], golds: Sequence[str]) -> tuple[str, bool] | None:
    """What a last sentence without an equation says: "So she has 37 apples.", "It is 37."

    A single number is also the answer if the sentence before has just found it: "…= 37".
    """
    *before, last = sentences or [""]
    numbers = [found.strip() for found in _NUMBER.findall(last)]
    if not numbers:
        return None
    is_result = before and re.search(rf"=\s*\\?\$?\s?{re.escape(numbers[0])}(?!\d)", before[-1])
    is_one = len(numbers) == 1 and (is_result or _CONCLUDES.match(last))
    found = _compare(numbers[-1], last, last, golds)
    # Another sentence may be about something else, unless it says the gold.
    return found if found and (found[1] or is_one or _ENDS_WITH_NUMBER.search(last)) else None


def _without_signature(text: str) -> str:
    """A text without the names of a forum's users at its end."""
    text = text.rstrip()
    while found := _SIGNATURE.search(text, max(0, len(text) - _LONGEST_SIGNATURE)):
        text = text[: found.start()].rstrip()
    return text


def _read_value(text: str, is_stated: bool) -> str | None:
    """The number that begins a text with words behind it, or the formula that the text is.

    `is_stated`: by words; behind an equals sign alone only numbers count.
    """
    if counted := _COUNTED.fullmatch(text):
        return counted[1].strip()
    text = _DELIMITERS.sub("", text)
    if not (is_stated or _NUMERIC.fullmatch(text)) or "$" in text or is_option(text):
        return None
    return text if not _WORD.search(without_commands(text)) and is_parseable(text) else None


def _compare(said: str, rest: str, sentence: str, golds: Sequence[str]) -> tuple[str, bool] | None:
    """What `find_statement` returns of a value, the text that ends with it, and its sentence."""
    others = {_to_fraction(found) for found in _NUMBER.findall(rest)} - {None}
    formulas, is_other = re.sub(r"\s", "", sentence), False
    for gold in golds:
        value, wanted = _to_fraction(said), _to_fraction(gold)
        # "70 / 7 = 10 hours to earn 70", "the minimum is -5/4, which occurs at y = 1"
        is_there = wanted in others if wanted is not None else re.sub(r"\s", "", gold) in formulas
        if is_there or is_same_value(said, gold):
            return said, True
        if value is not None and wanted is not None:
            is_other = is_other or not _is_near(value, wanted)
        elif _NUMERIC.fullmatch(gold) or not _NUMERIC.fullmatch(said):
            is_other = is_other or _kind(said) == _kind(gold)
    return (said, False) if is_other else None


def _to_fraction(text: str) -> Fraction | None:
    """The value of a plain number, its unit, currency and percent sign left out."""
    text = re.sub(r"\\text\s*\{[^{}]*\}|\\[,!]", "", text).strip(" $")
    if not _NUMBER.fullmatch(text):
        return None
    plain = re.sub(r"[\\\s,$%\u20ac\u00a3]", "", text).replace("\u2212", "-")
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        return None


def _is_near(one: Fraction, other: Fraction) -> bool:
    """Whether one is the other rounded, or in another unit."""
    is_rounded = abs(one - other) < 1 and not one.denominator == other.denominator == 1
    return is_rounded or one * 100 == other or other * 100 == one


def _kind(text: str) -> tuple[Any, ...]:
    """The kind of value that a text is, and its variables."""
    value = read(text)
    return type(value), *sorted(letters_of(value))
