"""The rows of one source: samples, counts, files of the hub."""

import pytest

from data_prep.build import rows
from data_prep.build.recipe import DataArguments, Source
from data_prep.build.rows import SourceRows, sample_rows
from data_prep.config import UserError
from data_prep.reading.rows import BadRow


def test_a_sample_is_uniform_enough_and_ordered():
    found = [(f"f:{n}", {"n": n}) for n in range(10)]
    hits = [0] * 10
    for seed in range(1000):
        positions = [position for position, _, _ in sample_rows(found, 3, str(seed))]
        assert len(set(positions)) == 3 and positions == sorted(positions)
        for position in positions:
            hits[position] += 1
    assert all(220 < n < 380 for n in hits)  # 300 expected, standard deviation 14


def test_a_file_of_the_hub_is_fetched_and_read_as_a_local_one(tmp_path, monkeypatch):
    path = tmp_path / "boba.jsonl"
    path.write_text('{"prompt": "q", "solutions": ["1"]}\n' * 3)
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download",
        lambda *args, **kinds: asked.append((args, kinds)) or path,
    )
    source = Source("areal_boba", hub="owner/set", hub_file="boba.jsonl")
    found = SourceRows(source, "train", "grpo", DataArguments("out"))
    assert [where for _, where, _ in found] == [f"{path}:{n}" for n in (1, 2, 3)]
    assert asked == [(("owner/set", "boba.jsonl"), {"repo_type": "dataset"})]
    assert found.num_read == found.num_taken == 3


def test_a_damaged_part_of_a_file_counts_all_of_its_rows(tmp_path, monkeypatch):
    damage = BadRow("f: row 3: 7 rows cannot be read", num_rows=7)
    read = [("f: row 1", {}), ("f: row 2", {}), ("f: row 3", damage), ("f: row 10", {})]
    monkeypatch.setattr(rows, "read_rows_and_faults", lambda path: iter(read))
    found = SourceRows(Source("math", file="f"), "train", "grpo", DataArguments("out"))
    assert [position for position, _, _ in found] == [0, 1, 2, 3]
    assert found.num_read == found.num_taken == 10
    sample = Source("math", file="f", sample=2)
    found = SourceRows(sample, "train", "grpo", DataArguments("out"))
    taken = [row for _, _, row in found]
    assert found.num_read == 10 and len(taken) == 2
    assert found.num_taken == (8 if damage in taken else 2)


def test_a_hub_that_cannot_be_asked_is_one_line(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no route to host\nand more")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    with pytest.raises(UserError, match="hub: a/b: hub_file: c: no route to host; check") as error:
        rows.fetch_hub_file("a/b", "c")
    assert "\n" not in str(error.value)
