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

Options = dict[str, Any]  # what each says, by its label, or by its place from 0
# A word of a column's name: `answer_options`, `answerOptions`; not `adoption` or `spending`.
_NAME = re.compile(
    r"(?<![A-Za-z])(?i:option|choice|alternative|ending|opts?(?![a-z]))"
    r"|(?<=[a-z])(?:Option|Choice|Alternative|Ending)"
)
_LABELLED = re.compile(r"(.*?)[ _-]?([A-Ha-h]|\d)")
# "B", "(b)", "2)", "Option B", "option_2"
_POINTER = re.compile(
    r"(?:(?:option|choice|answer|ending|alternative)[\s_-]*)?[\s(\[#]*([a-h]|\d{1,2})[\s)\].:]*",
    re.IGNORECASE,
)
_IN_TEXT = [
    re.compile(rf"(?:^|[\s,;(\['\"])([{labels}])\s?[).:](?!\d)\s?") for labels in ("A-Ha-h", "1-9")
]
_BETWEEN = re.compile(r"[;|\n]|,\s")
_LABELS = ("abcdefgh", "012345678", "123456789")


def names_option(question: str, golds: Sequence[str], value: Any, row: dict[str, Any]) -> str:
    """The gold that is the label or the place of an option of the row, or "".

    Args:
        golds: as they are read from `value`, what the row has in its column. One that is an option
            itself, as text or as a number, is a value.
        row: without the columns of the question, the golds and the solution.
    """
    values = value if isinstance(value, list) else [value]
    for options in find_options(row):
        if any(_is_value(one, options) for one in values):
            continue
        is_shown = all(str(text) in question for text in options.values())
        for gold in golds:
            found = _POINTER.fullmatch(gold)
            pointer = found[1].lower() if found else ""
            is_place = pointer.isdecimal() and int(pointer) <= len(options)  # from 0 or from 1
            place = "abcdefgh".find(pointer) if pointer else -1
            is_label = 0 <= place < len(options) or gold in options
            # The letter of an option that the question shows is an answer there.
            if is_place or (is_label and not is_shown):
                return gold
    return ""


def _is_value(gold: Any, options: Options) -> bool:
    """Whether a gold is what an option says, and written as it is: 2 is an index into texts."""
    return any(type(one) is type(gold) and one == gold for one in options.values())


def find_options(row: dict[str, Any], depth: int = 3) -> Iterator[Options]:
    """The options of a row, two or more, and those of its structs down to a depth."""
    columns: dict[str, Options] = {}
    for name, value in row.items():
        if found := _LABELLED.fullmatch(name):
            columns.setdefault(found[1], {})[found[2]] = value
        if isinstance(value, dict):
            yield from _of_lists(value)
            if _NAME.search(name):
                yield from _if_labelled(value)
            elif depth:
                yield from find_options(value, depth - 1)
        elif _NAME.search(name) and isinstance(value, str):
            yield from _of_text(value)
        elif _NAME.search(name) and isinstance(value, list):
            yield from _if_several(value)
    for stem, options in columns.items():
        # A, B, C, D; but a, b, c may be sides, or coefficients.
        is_enough = len(options) > (2 if stem else 3) and not any(map(str.isdecimal, options))
        if _NAME.search(stem) or is_enough:
            yield from _if_labelled(options)


def _of_text(text: str) -> Iterator[Options]:
    """The options of a text: a list as JSON or Python write it, "a) 10, b) 11", or "10; 11"."""
    parts: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        parts = json.loads(text)
    parts = parts if isinstance(parts, list) else list_of_texts(text)
    if parts is not None:
        yield from _if_several(parts)
        return
    for labels in _IN_TEXT:
        _, *found = labels.split(text)
        texts = [part.strip(" ,;(\n") for part in found[1::2]]
        yield from _if_labelled(dict(zip(found[::2], texts, strict=True)))
    yield from _if_several([part.strip() for part in _BETWEEN.split(text) if part.strip()])


def _if_several(values: list[Any]) -> Iterator[Options]:
    """The options of a list; what a model wrote ({message: …}) are none."""
    parts = [part.values() if isinstance(part, dict) else [part] for part in values]
    if len(values) > 1 and not any(isinstance(one, dict) for part in parts for one in part):
        yield {str(place): value for place, value in enumerate(values)}


def _of_lists(value: dict[str, Any]) -> Iterator[Options]:
    """The options of `{text: […], label: […]}`."""
    labels = value.get("label", value.get("labels"))
    if not isinstance(labels, list) or len(labels) < 2:
        return
    for texts in value.values():
        if isinstance(texts, list) and texts is not labels and len(texts) == len(labels):
            yield dict(zip(map(str, labels), texts, strict=True))


def _if_labelled(options: Options) -> Iterator[Options]:
    """The options, if their labels are the first letters or numbers."""
    labels = "".join(sorted(options)).lower()
    if len(labels) > 1 and any(known.startswith(labels) for known in _LABELS):
        yield options


def list_of_texts(text: str) -> list[str] | None:
    """The texts of a list that begins with one, written as JSON or by Python; None for other text.

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
    is_texts = isinstance(found, list) and all(type(one) in (str, int, float) for one in found)
    return [str(one) for one in found] if is_texts else None
