"""Golds that only name an option which the row lists beside its question.

Of `{"question": …, "choices": ["10", "11", "12"], "answer": 1}` the question alone has no answer,
and 1 is not it. Options come as a list or the text of one, as `{text: […], label: […]}` or
`{A: …, B: …}`, or as columns that differ in a label: A, B, C; option_a; opb; choice1.
"""

import ast
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Options = dict[str, str]  # the text of each, by its label, or by its place from 0
_NAME = re.compile(r"option|choice|alternative|ending", re.IGNORECASE)
_LABELLED = re.compile(r"(.*?)[ _-]?([A-Ha-h]|\d)")
_LETTER = re.compile(r"[\s(\[]*([A-Ha-h])[\s)\].:]*")
_PLACE = re.compile(r"\d{1,2}")
_IN_TEXT = re.compile(r"(?:^|[\s,;(\['\"])([A-Ha-h1-9])\s?[).:]\s?([^,;\n]*)")
_LABELS = ("abcdefgh", "012345678", "123456789")


def names_option(question: str, golds: Sequence[str], row: dict[str, Any]) -> str:
    """The gold that is the label or the place of an option of the row, or "".

    A letter of an option that the question shows is "": there it is an answer.
    """
    for options in find_options(row):
        is_shown = all(text in question for text in options.values())
        for gold in golds:
            letter = _LETTER.fullmatch(gold)
            is_place = _PLACE.fullmatch(gold) and int(gold) <= len(options)  # from 0 or from 1
            is_label = letter and "abcdefgh".index(letter[1].lower()) < len(options)
            if is_place or ((is_label or _is_name(gold, options)) and not is_shown):
                return gold
    return ""


def _is_name(gold: str, options: Options) -> bool:
    """Whether a gold is an option's label, or the name of its column."""
    found = _LABELLED.fullmatch(gold)
    return gold in options or bool(found and _NAME.search(found[1]) and found[2] in options)


def find_options(row: dict[str, Any]) -> Iterator[Options]:
    """The options of a row, two or more, wherever they are in it."""
    columns: dict[str, Options] = {}
    for name, value in row.items():
        if found := _LABELLED.fullmatch(name):
            columns.setdefault(found[1], {})[found[2]] = str(value)
        if isinstance(value, dict):
            yield from _of_lists(value)
            yield from find_options(value)
        elif _NAME.search(name) and isinstance(value, list | str):
            texts = list_of_texts(value) if isinstance(value, str) else value
            if texts is None:
                yield from _if_labelled(
                    {one[1]: one[2].strip() for one in _IN_TEXT.finditer(value)}
                )
            elif len(texts) > 1 and all(isinstance(one, str | int | float) for one in texts):
                yield {str(place): str(text) for place, text in enumerate(texts)}
    for stem, options in columns.items():
        if _NAME.search(stem) or (len(options) > 2 and "c" in map(str.lower, options)):
            yield from _if_labelled(options)


def _of_lists(value: dict[str, Any]) -> Iterator[Options]:
    """The options of `{text: […], label: […]}`."""
    labels = value.get("label", value.get("labels"))
    if not isinstance(labels, list) or len(labels) < 2:
        return
    for texts in value.values():
        if isinstance(texts, list) and texts is not labels and len(texts) == len(labels):
            yield dict(zip(map(str, labels), map(str, texts), strict=True))


def _if_labelled(options: Options) -> Iterator[Options]:
    """The options, if their labels are the first letters or numbers."""
    labels = "".join(sorted(options)).lower()
    if len(labels) > 1 and any(known.startswith(labels) for known in _LABELS):
        yield options


def list_of_texts(text: str) -> list[str] | None:
    """The texts of a list of texts, written as JSON or by Python; None for other text.

    `[0, 1]` and `[5]` are mathematics: an interval, a matrix.
    """
    if not re.match(r"\s*\[\s*['\"]", text):
        return None
    found: Any = None
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        found = json.loads(text)
    if found is None:
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = ast.literal_eval(text.strip())
        if str(found) != text.strip():  # "['1' '2']", as numpy writes it, would be ['12']
            return None
    is_texts = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if is_texts else None
