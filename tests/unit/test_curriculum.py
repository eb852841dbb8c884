"""The offline pass-rate filter, at its boundaries and on broken files."""

import json

import pytest

from data_prep.config import UserError
from stages.curriculum import keep_by_pass_rate, load_pass_rates

ROWS = [{"id": name} for name in "abcdefg"]
RATES = {"a": 0.0, "b": 0.25, "c": 0.375, "d": 0.5, "e": 0.75, "f": 1.0}  # g was not measured


@pytest.mark.parametrize(
    ("low", "high", "kept"),
    [
        (0.25, 0.5, "bcd"),  # both ends belong to the band
        (0.26, 0.49, "c"),
        (0.0, 1.0, "abcdef"),
        (0.0, 0.0, "a"),
        (1.0, 1.0, "f"),
        (0.8, 0.9, ""),
    ],
)
def test_keep_by_pass_rate(low, high, kept):
    assert keep_by_pass_rate(ROWS, RATES, low, high) == [{"id": name} for name in kept]


def test_load_pass_rates(tmp_path):
    path = tmp_path / "pass_rates.jsonl"
    rows = [{"id": "a", "num_right": 1, "num_samples": 4}]
    rows += [{"id": "b", "num_right": 3, "num_samples": 3}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert load_pass_rates(str(path)) == {"a": 0.25, "b": 1.0}


@pytest.mark.parametrize(
    "row",
    [
        {"num_right": 1, "num_samples": 4},
        {"id": "a", "num_samples": 4},
        {"id": "a", "num_right": 1},
        {"id": "a", "num_right": 0, "num_samples": 0},
        {"id": "a", "num_right": "1", "num_samples": 4},
        {"id": "a", "num_right": None, "num_samples": 4},
        {"id": ["a"], "num_right": 1, "num_samples": 4},
    ],
)
def test_malformed_rows_are_named_by_line(tmp_path, row):
    path = tmp_path / "pass_rates.jsonl"
    good = {"id": "z", "num_right": 1, "num_samples": 4}
    path.write_text(json.dumps(good) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(UserError, match=r"pass_rates\.jsonl:2: needs id, num_right"):
        load_pass_rates(str(path))


def test_a_file_cut_short_is_named_by_line(tmp_path):
    path = tmp_path / "pass_rates.jsonl"
    path.write_text('{"id": "a", "num_right": 1, "num_samples": 4}\n{"id": "b", "num_')
    with pytest.raises(UserError, match=r"pass_rates\.jsonl:2: malformed JSON"):
        load_pass_rates(str(path))
