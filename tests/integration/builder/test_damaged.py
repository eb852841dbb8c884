"""Real files, damaged as downloads are: named by file and row; bad rows are left out on demand."""

import pytest

from pipeline.errors import UserError
from tests.files import read_rows
from tests.unit.builder.helpers import run

pytestmark = pytest.mark.integration


def cut(content):
    """Half-downloaded."""
    return content[: len(content) // 2]


def zero_the_middle(content):
    """A block that never arrived."""
    at = len(content) // 2
    return content[:at] + bytes(1000) + content[at + 1000 :]


def break_encoding(content):
    """One letter in Latin-1."""
    at = content.index(b"e", len(content) // 2)
    return content[:at] + b"\xe9" + content[at + 1 :]


@pytest.mark.parametrize(
    ("file", "name", "damage", "words"),
    [
        ("gsm8k/test.jsonl", "gsm8k", cut, r":\d+: malformed JSON"),
        ("gsm8k/test.jsonl", "gsm8k", break_encoding, r":\d+: not UTF-8"),
        ("gsm8k/test.jsonl", "gsm8k", zero_the_middle, r":\d+: malformed JSON"),
        ("math/math500_orz.json", "math", break_encoding, r": row \d+: not UTF-8"),
        # What is behind the damage cannot be read.
        ("math/math500_orz.json", "math", cut, None),
        ("math/test_minus_math500_4500.jsonl.gz", "math", cut, None),
        ("dapo/dapo_math_17k.parquet", "dapo", zero_the_middle, None),
        ("dapo/dapo_math_17k.parquet", "dapo", cut, None),
    ],
)
def test_bad_rows_are_left_out_on_demand(tmp_path, shared_data, file, name, damage, words):
    path = tmp_path / file.replace("/", "-")
    path.write_bytes(damage((shared_data / file).read_bytes()))
    recipe = {"grpo": [{"name": name, "file": str(path)}]}
    with pytest.raises(UserError, match=words or rf"{path.name}:.* fetch the file again") as error:
        run(tmp_path, recipe)
    assert "\n" not in str(error.value) and list((tmp_path / "run/data").iterdir()) == []
    if words is None:
        with pytest.raises(UserError, match=rf"{path.name}:"):
            run(tmp_path, recipe | {"on_bad_row": "skip"})
        assert list((tmp_path / "run/data").iterdir()) == []
        return
    assert "--on_bad_row skip" in str(error.value)
    folder, written = run(tmp_path, recipe | {"on_bad_row": "skip"})
    assert written["rows_in"] == written["rows_out"] + sum(written["dropped"].values())
    logged = [row for row in read_rows(folder / "dropped.jsonl") if row["reason"] == "bad_row"]
    assert len(logged) == written["dropped"]["bad_row"] and written["rows_out"] > 100
