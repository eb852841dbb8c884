"""Resume or start anew: which checkpoint counts, and when it may be used."""

import json

import pytest
from transformers.integrations import integration_utils

from data_prep import manifest
from data_prep.config import UserError
from stages import run
from stages.launch import last_checkpoint

CONFIG, INPUTS = {"seed": 0, "betas": (0.9, 0.95)}, {"train.jsonl": "abc"}


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sft"


def add_checkpoint(folder, step, state='{"global_step": 1}'):
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_text("weights")
    if state is not None:
        (checkpoint / "trainer_state.json").write_text(state)
    return checkpoint


def prepare(folder, config=CONFIG, inputs=INPUTS):
    return run.prepare(str(folder), config, inputs)


@pytest.mark.parametrize("state", [None, "", '{"global_step": 3, "log_his'])
def test_last_checkpoint_is_the_highest_whole_one(folder, state):
    assert last_checkpoint(folder) is None
    for step in (100, 20, 9, "best"):
        add_checkpoint(folder, step)
    add_checkpoint(folder, 200, state)
    assert last_checkpoint(folder) == folder / "checkpoint-100"


def test_an_unfinished_run_of_the_same_work_is_resumed(folder, capsys):
    prepare(folder)
    checkpoint = add_checkpoint(folder, 4)
    add_checkpoint(folder, 8, None)
    _, found = prepare(folder)
    assert found == str(checkpoint)
    assert capsys.readouterr().out == f"resuming from {checkpoint}\n"
    assert not folder.with_name("sft.previous").exists()


@pytest.mark.parametrize(
    "change", ["config", "inputs", "finished", "bad run file", "no checkpoint"]
)
def test_anything_else_begins_anew_and_keeps_the_old_run(folder, capsys, change):
    prepare(folder)
    checkpoint = add_checkpoint(folder, 4)
    config, inputs = CONFIG, INPUTS
    if change == "config":
        config = CONFIG | {"seed": 1}
    elif change == "inputs":
        inputs = {"train.jsonl": "abd"}
    elif change == "finished":
        (folder / manifest.NAME).write_text("{}")
    elif change == "no checkpoint":
        (checkpoint / "trainer_state.json").unlink()
    else:
        (folder / run.RUN_FILE).write_text('{"config": ')
    before = sorted(p.name for p in folder.iterdir())
    _, checkpoint = prepare(folder, config, inputs)
    previous = folder.with_name("sft.previous")
    assert checkpoint is None
    assert [p.name for p in folder.iterdir()] == [run.RUN_FILE]
    assert sorted(p.name for p in previous.iterdir()) == before
    written = json.loads((folder / run.RUN_FILE).read_text())
    assert written["config"]["seed"] == config["seed"] and written["inputs"] == inputs
    assert capsys.readouterr().out == f"starting anew; the earlier run is kept in {previous}\n"


@pytest.mark.parametrize("name", ["sft", "sft.previous"])
def test_a_folder_that_no_stage_wrote_is_not_touched(folder, name):
    prepare(folder)
    prepare(folder, {"seed": 1})  # both folders exist now
    theirs = folder.with_name(name)
    (theirs / run.RUN_FILE).rename(theirs / "thesis.tex")
    with pytest.raises(UserError, match=f"output_dir: .*{name} holds files that no training stage"):
        prepare(folder, {"seed": 2})
    assert (theirs / "thesis.tex").is_file()


def test_other_processes_touch_no_file(folder, monkeypatch):
    prepare(folder)
    checkpoint = add_checkpoint(folder, 4)
    monkeypatch.setenv("RANK", "1")
    assert prepare(folder) == (0.0, str(checkpoint))
    assert prepare(folder, {"seed": 1}) == (0.0, None)
    assert (folder / "checkpoint-4").is_dir()
    assert not folder.with_name("sft.previous").exists()


def test_metric_names(monkeypatch):
    monkeypatch.setattr(integration_utils, "rewrite_logs", integration_utils.rewrite_logs)
    for _ in range(2):  # a second call changes nothing
        run.keep_metric_names()
        logs = {"loss": 1, "rollout/rewards": 2, "train/entropy_loss": 3, "rewards/x/mean": 4}
        logs["guard/eos"] = 5
        named = logs | {"train/loss": 1, "train/rewards/x/mean": 4}
        del named["loss"], named["rewards/x/mean"]
        assert integration_utils.rewrite_logs(logs) == named
    assert integration_utils.rewrite_logs({"eval_loss": 1}) == {"eval/loss": 1}
