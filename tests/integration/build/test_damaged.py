"""Real files, damaged as downloads are: named by file and row, and the rest kept only on demand."""

import json

import pytest

from data_prep.config import UserError
from tests.unit.build.helpers import run

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


def build(tmp_path, name, file, on_bad_row):
    recipe = {"grpo": [{"name": name, "file": str(file)}], "near_duplicates": "keep"}
    return run(tmp_path, recipe | {"on_bad_row": on_bad_row})[1]


@pytest.mark.parametrize(
    ("file", "name", "damage", "rows", "words"),
    [
        ("gsm8k/test.jsonl", "gsm8k", cut, None, "truncated"),
        ("gsm8k/test.jsonl", "gsm8k", break_encoding, 1319, "not UTF-8"),
        ("gsm8k/test.jsonl", "gsm8k", zero_the_middle, None, "zero bytes"),
        ("math/math500_orz.json", "math", break_encoding, 500, "not UTF-8"),
        ("math/test_minus_math500_4500.jsonl.gz", "math", cut, None, "lost"),
        ("dapo/dapo_math_17k.parquet", "dapo", zero_the_middle, 17_917, "cannot be read"),
    ],
)
def test_the_rest_is_kept_only_on_demand(
    tmp_path, shared_data, capsys, file, name, damage, rows, words
):
    path = tmp_path / file.replace("/", "-")
    path.write_bytes(damage((shared_data / file).read_bytes()))
    with pytest.raises(UserError, match=rf"{path.name}.*(:| row ?)\d+.*--on_bad_row skip") as error:
        build(tmp_path, name, path, "stop")
    assert words in str(error.value) and "\n" not in str(error.value)
    assert list((tmp_path / "run/data").iterdir()) == []
    written = build(tmp_path, name, path, "skip")
    assert written["rows_in"] == written["rows_out"] + sum(written["dropped"].values())
    assert written["dropped"]["bad_row"] >= 1 and written["rows_out"] > 100
    if rows:
        assert written["rows_in"] == rows
    lines = (tmp_path / "run/data/dropped.jsonl").read_text().splitlines()
    logged = [row for row in map(json.loads, lines) if row["reason"] == "bad_row"]
    assert logged and all(row["where"].startswith(str(path)) for row in logged)
    err = capsys.readouterr().err
    assert f"notice: grpo: {name}: {written['dropped']['bad_row']:,} rows cannot be used" in err


def test_a_parquet_file_without_its_end_holds_no_rows(tmp_path, shared_data):
    path = tmp_path / "dapo.parquet"
    path.write_bytes(cut((shared_data / "dapo/dapo_math_17k.parquet").read_bytes()))
    for on_bad_row in ("stop", "skip"):
        with pytest.raises(UserError, match=r"dapo\.parquet: "):
            build(tmp_path, "dapo", path, on_bad_row)
    assert list((tmp_path / "run/data").iterdir()) == []


@pytest.mark.parametrize("on_bad_row", ["stop", "skip"])
def test_a_list_cut_short_stops_the_build(tmp_path, shared_data, on_bad_row):
    path = tmp_path / "math500_orz.json"
    path.write_bytes(cut((shared_data / "math/math500_orz.json").read_bytes()))
    with pytest.raises(UserError, match=r"math500_orz\.json: row \d+: truncated"):
        build(tmp_path, "math", path, on_bad_row)
    assert list((tmp_path / "run/data").iterdir()) == []
