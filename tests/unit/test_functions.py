"""Functions of plain values: each folder's `functions.yaml` has their arguments and results.

A group is named by its rule. It has a function, `module:name`, and rows: the arguments of a call,
and behind them its result. Further keys of a group:

- `result`: that of all rows, which are arguments alone; a row that is no list is the only one;
- `options`: keyword arguments of all its calls;
- `fields`: the attributes of the result that count, in this order;
- `both_ways`: the first two arguments change places, too, and the result is the same;
- `settled`: of the result the function makes the same result;
- `within`: the relative error that a figure may have;
- `quiet`: nothing is logged;
- `seconds`: of the processor, the most that a call may take.

The result `{error: words}` is an error of one line with these words; the argument
`{repeat: [text, number, ...]}` is a long text. `shared` has values that rows refer to.
"""

import importlib
import time
from pathlib import Path

import pytest
import yaml

from data_prep.sources.base import Drop
from pipeline.errors import UserError

NO_RESULT = object()
KEYS = {
    "function", "rows", "result", "options", "fields", "both_ways", "settled", "quiet", "within",
    "seconds",
}  # fmt: skip


def read_rows():
    """(group, row) of all tables."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*/functions.yaml")):
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))
        groups.pop("shared", None)
        for rule, group in groups.items():
            assert group.keys() <= KEYS, rule
            for number, row in enumerate(group["rows"], 1):
                name = f"{path.parent.name}: {rule}: {number}"
                found.append(pytest.param(group, row, id=name))
    return found


def argument(value):
    """The value that a table writes."""
    if isinstance(value, list):
        return [argument(one) for one in value]
    if isinstance(value, dict) and value.keys() == {"repeat"}:
        texts, numbers = value["repeat"][::2], value["repeat"][1::2]
        return "".join(text * number for text, number in zip(texts, numbers, strict=True))
    return value


def plain(value):
    """The value as a table writes it."""
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value


def find(place):
    """The function `module:name`."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("group", "row"), read_rows())
def test_a_call_has_its_result(group, row, caplog):
    function, options = find(group["function"]), group.get("options", {})
    expected = group.get("result", NO_RESULT)
    given = row if isinstance(row, list) else [row]
    if expected is NO_RESULT:
        *given, expected = given
    given = argument(given)
    if isinstance(expected, dict) and expected.keys() == {"error"}:
        with pytest.raises((UserError, Drop, ValueError), match=expected["error"]) as error:
            function(*given, **options)
        assert "\n" not in str(error.value)
        return
    start = time.process_time()
    found = function(*given, **options)
    assert time.process_time() - start < group.get("seconds", 60)
    assert "quiet" not in group or caplog.records == []
    if "fields" in group:
        found = [getattr(found, name) for name in group["fields"]]
    found = plain(found)
    if "within" in group:
        expected = pytest.approx(expected, rel=group["within"])
    assert found == expected
    assert isinstance(found, bool) is isinstance(expected, bool)
    if "both_ways" in group:
        first, second, *others = given
        assert plain(function(second, first, *others, **options)) == expected
    if "settled" in group:
        assert plain(function(found, **options)) == found
