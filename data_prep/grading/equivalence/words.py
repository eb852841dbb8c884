"""Number words: `twenty-five` and `two thirds` as numbers."""

from fractions import Fraction

_SMALL = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen":
    14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6,
    "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10,
}  # fmt: skip


def read_number_words(text: str) -> Fraction | None:
    """The number that English words spell, None for any other words.

    Cardinals below 10^12, with `minus` or `negative` before and one kind of part behind
    (`three quarters`).
    """
    words = text.lower().replace("-", " ").split()
    sign = 1
    if words[:1] in (["minus"], ["negative"]):
        sign, words = -1, words[1:]
    bottom = 1
    if len(words) > 1 and (part := _PARTS.get(words[-1]) or _PARTS.get(words[-1][:-1])):
        bottom, words = part, words[:-1]
    number = _cardinal(words)
    return None if number is None else sign * Fraction(number, bottom)


def _cardinal(words: list[str]) -> int | None:
    total = group = 0
    last = None  # the size of the word before: words come in falling order within a group
    for word in words:
        if word == "and" and last == 100:
            continue
        if word in _SMALL and last in (None, 100, 1000, 10) and not (last == 10 and group % 10):
            if last == 10 and not 0 < _SMALL[word] < 10:
                return None
            group, last = group + _SMALL[word], 1
        elif word in _TENS and last in (None, 100, 1000):
            group, last = group + _TENS[word], 10
        elif word == "hundred" and last == 1 and 0 < group < 10:
            group, last = group * 100, 100
        elif word in _SCALES and 0 < group < 1000 and (not total or total > 1000 * _SCALES[word]):
            total, group, last = total + group * _SCALES[word], 0, 1000
        else:
            return None
    return total + group if words else None
