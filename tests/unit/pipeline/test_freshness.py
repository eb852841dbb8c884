"""What counts as up to date for a stage that others need."""

import json
import os
import subprocess
import sys

import pytest

from pipeline import commands, freshness, manifest
from pipeline.errors import UserError
from pipeline.freshness import check_finished, looks_current
from pipeline.request import read
from tests.unit.builder.helpers import run as build


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Whether a stage's result with this configuration is that of these variables."""
    monkeypatch.setattr(freshness, "matches_command", lambda *_: True)
    monkeypatch.chdir(tmp_path)

    def check(stage, config, *given):
        folder = tmp_path / "run" / stage
        folder.mkdir(parents=True, exist_ok=True)
        made = {"stage": stage, "config": config, "inputs": {}}
        (folder / manifest.NAME).write_text(json.dumps(made))
        request = read(["grpo", f"RUN={folder.parent}", *given], {})
        words = commands.stage_words(request, stage)
        return looks_current(request, stage, words)

    return check


@pytest.mark.parametrize(
    ("stage", "config", "given", "expected"),
    [
        ("base", {"seed": 1}, [], True),
        ("base", {"seed": 1}, ["SEED=1"], True),
        ("base", {"seed": 1}, ["SEED=2"], False),
        ("data", {"data_root": "a"}, [], True),  # what was given before does not count
        ("data", {"data_root": "a"}, ["DATA_ROOT=a"], True),
        ("data", {"data_root": "a"}, ["DATA_ROOT=./a/"], True),
        ("data", {"data_root": "a"}, ["DATA_ROOT=b"], False),
        ("data", {"data_root": None}, ["DATA_ROOT=b"], False),
        ("audit", {"model": "a", "keys": []}, ["MODEL=a"], True),
        ("audit", {"model": None, "keys": []}, ["MODEL=b"], False),
        ("audit", {"tokenizer": "a", "keys": []}, ["TOKENIZER=b"], False),
        ("audit", {"keys": []}, [], True),
        ("audit", {"keys": []}, ["grpo.curriculum=off"], False),
        ("audit", {"keys": ["grpo.curriculum=off"]}, ["grpo.curriculum=off"], True),
        ("audit", {"keys": ["grpo.curriculum=off"]}, [], False),  # another recipe was audited
    ],
)
def test_a_variable_that_is_given_now_counts(check, tmp_path, stage, config, given, expected):
    for name in "ab":
        (tmp_path / name).mkdir()
    assert check(stage, config, *given) is expected


def test_the_start_model_is_of_grpo_with_the_flags_of_its_server():
    def start(goal, *keys):
        command = [sys.executable, "-m", "pipeline", goal, "--start-model", "RECIPE=rlite", *keys]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert start("data").returncode == 2
    flags = ["--logprobs-mode", "processed_logprobs", "--dtype", "bfloat16"]
    assert start("grpo").stdout.splitlines() == ["Qwen/Qwen2.5-7B", *flags]
    flags = ["--logprobs-mode", "raw_logprobs", "--dtype", "float16"]
    other = ("grpo.fp16=true", "grpo.bf16=false", "grpo.top_p=0.9")
    assert start("grpo", *other).stdout.splitlines() == ["Qwen/Qwen2.5-7B", *flags]


@pytest.mark.parametrize("flags", [["--opens_gate", "false"], ["--completions", "x.jsonl"]])
def test_an_audit_that_only_looks_leaves_no_manifest(tmp_path, flags):
    check_finished(tmp_path, ["-m", "eval.audit", *flags], 0.0)
    with pytest.raises(UserError, match="before it was finished"):
        check_finished(tmp_path, ["-m", "eval.audit"], 0.0)


def test_a_benchmark_that_is_put_there_later_counts(tmp_path, capsys):
    """So the notice's own remedy helps: training problems that copy it are then left out."""

    def build_it():
        _, made = build(tmp_path, recipe)
        printed = capsys.readouterr().out
        return made, "up to date" not in printed

    rows = [{"question": f"What is {n} times {n + 1} plus {n}?", "answer": str(n * n + 2 * n)}
            for n in range(3, 23)]  # fmt: skip
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "grpo": [{"name": "generic", "file": "own.jsonl", "prompt_key": "question",
                  "answer_key": "answer"}],
        "decontaminate_if_found": ["aime25"],
    }  # fmt: skip
    made, is_built = build_it()
    assert is_built and made["counts"] == {"grpo_train": 20}
    assert not build_it()[1]
    place = tmp_path / "aime/aime25.jsonl"
    place.parent.mkdir()
    place.write_text("not a row\n")  # which is skipped, with a notice
    assert build_it()[1] and not build_it()[1]
    copies = [{"problem": row["question"], "answer": row["answer"]} for row in rows[:3]]
    place.write_text("".join(json.dumps(row) + "\n" for row in copies))
    made, is_built = build_it()
    assert is_built and made["counts"] == {"grpo_train": 17}
    assert not build_it()[1]


def test_so_does_a_file_that_a_folder_gets_later(check, tmp_path):
    (tmp_path / "parts").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "parts" / name).write_text("{}\n")
    source = {"name": "generic", "file": "parts", "prompt_key": "q", "answer_key": "a"}
    config = {"data_root": None, "grpo": [source]}
    folder = tmp_path / "run/data"
    assert not check("data", config)
    request = read(["grpo", f"RUN={folder.parent}"], {})
    words = commands.stage_words(request, "data")
    known = {os.path.join("parts", name): "hash" for name in ("a.jsonl", "b.jsonl")}
    for inputs, expected in ((known, True), (dict([*known.items()][:1]), False)):
        made = {"stage": "data", "config": config, "inputs": inputs}
        (folder / manifest.NAME).write_text(json.dumps(made))
        assert looks_current(request, "data", words) is expected
    (tmp_path / "parts").rename(tmp_path / "gone")  # and what no longer exists does not count
    assert looks_current(request, "data", words)
