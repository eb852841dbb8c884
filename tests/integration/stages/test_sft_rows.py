"""SFT's token ids: made once, kept beside the data, shared, and never used when damaged."""

import json
import os
import re
import shutil
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.prompts import render_prompt
from stages import sft_rows
from tests.files import read_rows, write_rows
from tests.integration.trainer.runs import tell

pytestmark = pytest.mark.integration


@pytest.fixture
def tokenizer(tiny_model_dir):
    return AutoTokenizer.from_pretrained(tiny_model_dir)


@pytest.fixture
def file(data_dir, tmp_path):
    """A user's own file of 40 rows."""
    return shutil.copy(data_dir / "sft_train.jsonl", tmp_path / "own.jsonl")


def limits(output_dir, max_length=256, completion_only_loss=True):
    """What `load` reads of a recipe's `SFTConfig`."""
    given = {"max_length": max_length, "completion_only_loss": completion_only_loss}
    return SimpleNamespace(output_dir=str(output_dir), **given)


@pytest.fixture
def load(file, tokenizer, tmp_path):
    def call(**given):
        return sft_rows.load(str(file), tokenizer, limits(tmp_path / "sft", **given))

    return call


@pytest.fixture
def num_made(monkeypatch):
    """The times that a file was tokenized."""
    times, write = [], sft_rows.write

    def count(*args):
        times.append(args)
        return write(*args)

    monkeypatch.setattr(sft_rows, "write", count)
    return times


@pytest.mark.parametrize(
    ("completion", "fault"),
    [
        ("", "missing"),
        (" \n", "is blank"),
        ("\\boxed{5}<|im_end|>", "has the text '<|im_end|>'"),
        ("a<|endoftext|>b", "has the text '<|endoftext|>'"),
    ],
)
def test_a_completion_that_teaches_nothing_or_another_end_is_refused(
    load, file, tmp_path, completion, fault
):
    rows = read_rows(file)
    rows[3]["completion"] = completion
    write_rows(file, rows)
    with pytest.raises(UserError, match=rf"own\.jsonl:4: completion: {re.escape(fault)}"):
        load()
    assert not places(tmp_path)


def places(tmp_path):
    return sorted((tmp_path / "sft.tokens").iterdir())


def test_ids_are_those_of_each_row_by_itself(load, file, tokenizer, monkeypatch, num_made):
    """A second start reads what the first has made."""
    monkeypatch.setattr(sft_rows, "BATCH_CHARS", 200)  # several batches
    found = load(max_length=None)
    assert found.dataset.column_names == ["input_ids", "labels"]
    for row, made in zip(read_rows(file), found.dataset, strict=True):
        prompt = tokenizer(render_prompt(row["prompt"], tokenizer), add_special_tokens=False)
        rest = tokenizer(row["completion"], add_special_tokens=False)["input_ids"]
        rest.append(tokenizer.eos_token_id)
        assert made["input_ids"] == prompt["input_ids"] + rest
        assert made["labels"] == [-100] * len(prompt["input_ids"]) + rest
    assert found.num_tokens == sum(len(row["input_ids"]) for row in found.dataset)
    assert found.dataset.cache_files  # mapped, not in memory
    again = load(max_length=None)
    assert len(num_made) == 1
    assert again.dataset[:] == found.dataset[:] and again[1:] == found[1:]
    whole = load(max_length=None, completion_only_loss=False).dataset
    assert whole["labels"] == whole["input_ids"] == found.dataset["input_ids"]


def test_the_runs_of_a_sweep_share_the_ids_of_a_stages_data(
    tokenizer, data_dir, tmp_path, num_made
):
    data = tmp_path / "run" / "data"
    shutil.copytree(data_dir, data)
    manifest.write(data, "data", {}, {}, {}, 0.0)
    for name in ("a", "b"):
        output = tmp_path / "run" / "sweep" / name / "sft"
        sft_rows.load(str(data / "sft_train.jsonl"), tokenizer, limits(output))
    assert len(num_made) == 1
    assert [*(tmp_path / "run" / "data.tokens").glob("*/rows.arrow")]


@pytest.mark.parametrize("change", ["max_length", "loss", "template", "tokenizer", "eos"])
def test_what_decides_the_ids_decides_their_place(load, tokenizer, num_made, tmp_path, change):
    load()
    given = {"max_length": {"max_length": 200}, "loss": {"completion_only_loss": False}}
    if change == "template":
        tokenizer.chat_template = f"Chat: {tokenizer.chat_template}"
    elif change == "tokenizer":
        tokenizer.add_tokens(["pens"])
    elif change == "eos":
        tokenizer.eos_token = "<|im_start|>"
    load(**given.get(change, {}))
    assert len(num_made) == 2 and len(places(tmp_path)) == 2  # both may be in use


def test_ids_of_earlier_contents_are_removed(load, file, num_made, tmp_path):
    load()
    (before,) = places(tmp_path)
    write_rows(file, read_rows(file)[:30])
    assert len(load().dataset) == 30 and before.exists()  # a run may have it mapped
    day = 2 * sft_rows.LEFT_SECONDS
    os.utime(before / sft_rows.ABOUT, (time.time() - day, time.time() - day))
    write_rows(file, read_rows(file)[:20])
    assert len(load().dataset) == 20
    assert len(num_made) == 3 and not before.exists() and len(places(tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows.arrow", "cut"),
        ("rows.arrow", "overwritten"),
        ("about.json", "cut"),
        ("about.json", "removed"),
    ],
)
def test_damaged_ids_are_made_again(load, num_made, tmp_path, name, change):
    wanted = load().dataset[:]
    damaged = places(tmp_path)[0] / name
    content = damaged.read_bytes()
    damaged.unlink()  # of a mapped file the pages stay as they are
    if change == "cut":
        damaged.write_bytes(content[:-9])
    elif change == "overwritten":
        middle = len(content) // 2
        damaged.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    assert load().dataset[:] == wanted
    assert len(num_made) == 2 and len(places(tmp_path)) == 1


def test_what_a_kill_has_left_goes_after_a_day(load, tmp_path):
    for name, age in (("old", 2), ("of another start", 0)):
        left = tmp_path / "sft.tokens" / f"{name}.partial"
        left.mkdir(parents=True)
        then = time.time() - age * 24 * 3600
        os.utime(left, (then, then))
    load()
    names = [one.name for one in places(tmp_path)]
    assert "of another start.partial" in names and len(names) == 2


def test_two_starts_at_once_end_with_the_same_ids(load, tmp_path, num_made):
    found = []
    threads = [threading.Thread(target=lambda: found.append(load().dataset[:])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] and len(places(tmp_path)) == 1


def load_twice(model, file, folder):
    """The whole of a process: it loads the rows, then by a limit that all of them exceed."""
    from accelerate import PartialState

    PartialState(cpu=True)
    times, write = [], sft_rows.write
    sft_rows.write = lambda *args: times.append(args) or write(*args)
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = sft_rows.load(file, tokenizer, limits(folder))
    with pytest.raises(UserError) as error:
        sft_rows.load(file, tokenizer, limits(folder, max_length=3))
    tell("FOUND", json.dumps([len(times), rows.num_tokens, len(rows.dataset), str(error.value)]))
    sys.exit()


def test_of_two_processes_the_main_one_tokenizes(fork_server, tiny_model_dir, file, tmp_path):
    setup = (load_twice, str(tiny_model_dir), str(file), str(tmp_path / "sft"))
    found = []
    for lines in fork_server.finish(tmp_path / "process", 2, setup=setup):
        (line,) = [line for line in lines if line.startswith("FOUND ")]
        found.append(json.loads(line[6:]))
    (times, *main), (none, *other) = found
    assert (times, none) == (2, 0)
    assert main == other and main[1] == 40 and "max_length: 3" in main[2]
