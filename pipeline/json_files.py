"""JSON that this project wrote, or a model's folder holds: read with the shape that is needed.

Files are edited, cut off, copied halfway, and written by other versions. What is wrong with one is
a `UserError` of one line here, and no `TypeError` where a value is used later.
"""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.errors import UserError

# A shape is one of:
#   str, int, bool          a text, a whole number, true or false
#   float                   a finite number, whole or not
#   None, object            null; anything
#   [shape]                 a list of such values
#   {str: shape}            a mapping to such values
#   {"a": shape, "b?": ...} a mapping with `a`, perhaps `b`, and perhaps further keys
#   (shape, shape)          one of these
Shape = Any
# What sweep and report read of a `trainer_state.json`; its numbers may be NaN.
TRAINER_STATE: Shape = {"log_history": [{"step": int}]}
_LARGEST = 2**63  # of whole numbers; arrays hold no larger ones
_WORDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    None: "null",
}


def read(path: str | Path, shape: Shape, remedy: str, is_own: bool = True) -> Any:
    """The content of a JSON file; an `OSError` passes.

    Args:
        shape: what the content must be, see above.
        remedy: the end of the error's line.
        is_own: of this project. Others' files may hold a key twice, of which libraries take the
            last.

    Raises:
        UserError: no JSON in UTF-8, or not of the shape.
    """
    try:
        return parse(Path(path).read_bytes(), shape, is_own)
    except ValueError as error:
        raise UserError(f"{path}: is damaged ({error}); {remedy}") from error


def read_log(path: Path, remedy: str = "run the stage again") -> list[dict[str, Any]]:
    """The logged steps of a `trainer_state.json`."""
    return read(path, TRAINER_STATE, remedy)["log_history"]


def parse(text: str | bytes, shape: Shape, is_own: bool = True) -> Any:
    """A JSON text's content; a `ValueError` says in one line what is wrong. See `read`."""
    hook = refuse_repeated if is_own else None
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")  # as Windows' editors save it
        value = json.loads(text, object_pairs_hook=hook)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if found := mismatch(value, shape):
        raise ValueError(found)
    return value


def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of these pairs; raises `ValueError` where a key comes twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key!r:.80} is there twice")
    return found


def mismatch(value: Any, shape: Shape, place: str = "") -> str:
    """Where a value has not the shape, and what belongs there; "" where it has."""
    if isinstance(shape, tuple):
        found = [mismatch(value, one, place) for one in shape]
        return "" if "" in found else found[0]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _wrong(place, "a list", value)
        items = (mismatch(item, shape[0], f"{place}[{at}]") for at, item in enumerate(value))
        return next(filter(None, items), "")
    if isinstance(shape, dict):
        return _mismatch_of_mapping(value, shape, place)
    if shape is object or _is_plain(value, shape):
        return ""
    return _wrong(place, _WORDS[shape], value)


def _mismatch_of_mapping(value: Any, shape: dict[Any, Shape], place: str) -> str:
    if not isinstance(value, dict):
        return _wrong(place, "a mapping", value)
    for name, inner in shape.items():
        keys = value if name is str else [name.removesuffix("?")]
        for key in keys:
            where = f"{place}.{key:.80}".lstrip(".")
            if key not in value:
                if not name.endswith("?"):
                    return f"{where} is missing"
            elif found := mismatch(value[key], inner, where):
                return found
    return ""


def is_number(value: Any) -> bool:
    """Whether a value of a log is a number, NaN included; not true or false."""
    return type(value) in (int, float)


def _is_plain(value: Any, kind: type | None) -> bool:
    if kind is None:
        return value is None
    if kind in (int, float) and type(value) is int:
        return abs(value) < _LARGEST
    if kind is float:
        return type(value) is float and math.isfinite(value)
    return type(value) is kind


def _wrong(place: str, wanted: str, value: Any) -> str:
    is_long = type(value) is int and abs(value) >= _LARGEST  # a longer one cannot even be shown
    shown = "a number of too many digits" if is_long else f"{value!r:.80}"
    return f"{place or 'the whole'}: must be {wanted}, found {shown}"
