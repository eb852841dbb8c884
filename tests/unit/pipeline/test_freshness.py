"""What counts as up to date for a stage that others need."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from eval.audit.__main__ import AuditArguments
from pipeline import commands, freshness, manifest
from pipeline.__main__ import show_start_model
from pipeline.freshness import check_finished, looks_current
from pipeline.request import read
from pipeline.stages import ROOT, STAGES
from stages.tiny_model import ModelArguments
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)

RECIPE = "output_dir: '{run}/base'\ntrain_file: rows.jsonl\nhidden_size: 64\n"


class Result:
    """A base model's result of a recipe, and whether it looks current for a command line."""

    def __init__(self, folder):
        self.folder, self.yaml = folder, folder / "own/model.yaml"
        self.yaml.parent.mkdir()
        self.yaml.write_text(RECIPE)
        (folder / "own/data.yaml").write_text("")
        (folder / "rows.jsonl").write_text("1")

    def command(self, *given):
        words = ["grpo", "RECIPE=own", f"RUN={self.folder}/run", *given]
        request = read(words, {})
        return request, "base", commands.stage_words(request, "base")

    def make(self, *given):
        settings = freshness.settings_of(*self.command(*given)[1:])
        manifest._request.clear()  # as in another process
        manifest.note_request(settings, settings.typed)
        inputs = manifest.hash_inputs(["rows.jsonl"])
        folder = manifest.start(self.folder / "run/base") and self.folder / "run/base"
        manifest.write(folder, "base", vars(ModelArguments(**settings)), inputs, {}, 0.0)

    def looks_current(self, *given):
        return looks_current(*self.command(*given))


@pytest.fixture
def result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(manifest, "_request", {})
    return Result(tmp_path)


@table
def test_a_result_looks_current_by_what_is_written(result, then, size, more, now, expected):
    result.make(*then)
    assert result.looks_current(*then)
    result.yaml.write_text(RECIPE.replace("64", str(size)) + more)
    assert result.looks_current(*now) is expected


def test_the_order_of_keys_and_comments_say_nothing(result):
    result.make()
    result.yaml.write_text("# why\n" + "\n".join(reversed(RECIPE.splitlines())))
    assert result.looks_current()


def test_so_do_inputs_and_the_stage(result):
    assert not result.looks_current()
    result.make()
    rows = result.folder / "rows.jsonl"
    rows.write_text("2")
    assert not result.looks_current()
    rows.unlink()  # it cannot be read again
    assert result.looks_current()
    file = result.folder / "run/base" / manifest.NAME
    made = json.loads(file.read_text())
    for changes in ({"stage": "sft"}, {"request": {"config": "a hash of an earlier version"}}):
        file.write_text(json.dumps(made | changes))
        assert not result.looks_current()


def test_what_the_stage_found_to_be_the_same_is_then_known(result):
    result.make()
    result.yaml.write_text(RECIPE + "num_layers: 3\n")  # the default
    assert not result.looks_current()
    settings = freshness.settings_of(*result.command()[1:])
    manifest._request.clear()
    manifest.note_request(settings, settings.typed)
    assert manifest.is_current(result.folder / "run/base", vars(ModelArguments(**settings)))
    assert result.looks_current()


def audited(folder, *given, **config):
    """Whether an audit with this configuration is that of a command line."""
    place = folder / "run/audit"
    place.mkdir(parents=True, exist_ok=True)
    code = manifest.hash_code(*(ROOT / part for part in STAGES["audit"].code))
    config = asdict(AuditArguments("configs/tiny-cpu", str(place.parent), **config))
    inputs = manifest.hash_inputs([*Path("configs/tiny-cpu").glob("*.yaml")])
    made = {"stage": "audit", "config": config, "inputs": inputs, "code": code}
    made["request"] = {"written": {}, "typed": []}
    (place / manifest.NAME).write_text(json.dumps(made))
    request = read(["grpo", f"RUN={place.parent}", *given], {})
    return looks_current(request, "audit", commands.stage_words(request, "audit"))


@table
def test_an_audit_is_of_all_that_was_typed(tmp_path, monkeypatch, config, given, expected):
    for name in ("a", "b", "configs"):
        (tmp_path / name).mkdir()
    (tmp_path / "configs/tiny-cpu").symlink_to(ROOT / "configs/tiny-cpu")
    monkeypatch.chdir(tmp_path)
    assert audited(tmp_path, *given, **config) is expected


def test_an_audit_reads_each_yaml_of_its_recipe(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "configs/tiny-cpu", tmp_path / "configs/tiny-cpu")
    monkeypatch.chdir(tmp_path)
    assert audited(tmp_path)
    request = read(["grpo", f"RUN={tmp_path}/run"], {})
    words = commands.stage_words(request, "audit")
    (tmp_path / "configs/tiny-cpu/more.yaml").write_text("")
    assert not looks_current(request, "audit", words)


@pytest.mark.parametrize(
    ("keys", "logprobs", "dtype"),
    [
        ([], "processed_logprobs", "bfloat16"),
        (["grpo.fp16=true", "grpo.bf16=false", "grpo.top_p=0.9"], "raw_logprobs", "float16"),
    ],
)
def test_the_start_model_is_of_grpo_with_the_flags_of_its_server(keys, logprobs, dtype, capsys):
    show_start_model(read(["grpo", "--start-model", "RECIPE=rlite", *keys], {}))
    flags = ["--logprobs-mode", logprobs, "--dtype", dtype]
    assert capsys.readouterr().out.splitlines() == ["Qwen/Qwen2.5-7B", *flags]
    refused("is of grpo", show_start_model, read(["data", "--start-model", "RECIPE=rlite"], {}))


@pytest.mark.parametrize("flags", [["--opens_gate", "false"], ["--completions", "x.jsonl"]])
def test_an_audit_that_only_looks_leaves_no_manifest(tmp_path, flags):
    check_finished(tmp_path, ["-m", "eval.audit", *flags], 0.0)
    refused("before it was finished", check_finished, tmp_path, ["-m", "eval.audit"], 0.0)


def test_a_benchmark_that_is_put_there_later_counts(tmp_path, monkeypatch):
    """So the notice's own remedy helps: training problems that copy it are then left out."""
    monkeypatch.chdir(tmp_path)
    config = {"data_root": str(tmp_path), "grpo": [{"name": "synthetic", "sample": 5}]}
    config["decontaminate_if_found"] = ["aime25"]
    assert not freshness.finds_more("data", config, {})
    place = tmp_path / "aime/aime25.jsonl"
    place.parent.mkdir()
    place.write_text("not a row\n")  # which is skipped, with a notice
    assert freshness.finds_more("data", config, {})


def test_so_does_a_file_that_a_folder_gets_later(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "parts" / name).write_text("{}\n")
    source = {"name": "generic", "file": "parts", "prompt_key": "q", "answer_key": "a"}
    config = {"data_root": None, "grpo": [source]}
    known = {f"parts/{name}": "hash" for name in ("a.jsonl", "b.jsonl")}
    assert not freshness.finds_more("data", config, known)
    assert freshness.finds_more("data", config, {"parts/a.jsonl": "hash"})
    (tmp_path / "parts").rename(tmp_path / "gone")  # and what no longer exists does not count
    assert not freshness.finds_more("data", config, {})
