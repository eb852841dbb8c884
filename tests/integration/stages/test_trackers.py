"""What a run tells the trackers, under which names, and on file; a secret is in none of it."""

import base64
import contextlib
import importlib
import json
import shutil
import sqlite3
import sys

import pandas as pd
import pytest

from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.prompts import build_prompt
from stages import distill
from stages.run import folders
from tests.integration.sampling.test_openai_engine import answer, serve
from tests.integration.trainer.runs import steps_of

for name in ("wandb", "trackio"):  # before a stage of another test hides them from this process
    with contextlib.suppress(ImportError):
        importlib.import_module(name)

pytestmark = pytest.mark.integration
SECRET = "pl4nted"
CURVES = {"rollout/rewards", "train/learning_rate", "train/grad_norm", "train/kl"}
CURVES |= {f"train/rewards/{name}/mean" for name in ("think_format_reward", "correctness_reward")}
REWARDS = ["correctness_reward", "think_format_reward", "soft_length_penalty"]
# Nothing but the tables' files; a terminal would be full of them.
COMPLETIONS = {"log_completions": True, "num_completions_to_print": 0}


def files_with_it(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert paths
    return [path for path in paths if SECRET.encode() in path.read_bytes()]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """All that the trackers keep is in tmp_path, and there are secrets to give away."""
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
        (tmp_path / name).mkdir()
    for name in ("HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, SECRET.ljust(40, "0"))
    # The last two are the stage's to change.
    for name, value in (("MODE", "offline"), ("PROJECT", "theirs"), ("SILENT", "true")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    return tmp_path


def read_wandb(folder):
    """Project, name and logged keys of the run, which this process still has open."""
    import wandb

    found = wandb.run.project, wandb.run.name, {*wandb.run.summary.keys()}
    wandb.finish()
    assert list(folder.glob("WANDB_DIR/wandb/offline-run-*/run-*.wandb"))
    return found


def read_trackio(folder):
    (path,) = (folder / "trackio").glob("*.db")
    with sqlite3.connect(path) as file:
        rows = file.execute("select run_name, metrics from metrics").fetchall()
        ((config,),) = file.execute("select config from configs").fetchall()
    assert json.loads(config)["_Group"] == "of a sweep"
    return path.stem, rows[0][0], {key for _, metrics in rows for key in json.loads(metrics)}


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_tracked_run(run_stage, offline, tracker, monkeypatch, capsys):
    module = pytest.importorskip(tracker, reason="the extra of this name has it")
    if tracker == "trackio":
        monkeypatch.setenv("WANDB_RUN_GROUP", "of a sweep")
        monkeypatch.setattr(module, "init", module.init)  # the stage puts its own there
        for part in ("utils", "sqlite_storage"):
            monkeypatch.setattr(f"trackio.{part}.TRACKIO_DIR", offline / "trackio")
    keys = {"report_to": [tracker], "project": "mine", "beta": 0.04}
    folder = run_stage("grpo", **keys, **COMPLETIONS)
    project, name, logged = (read_wandb if tracker == "wandb" else read_trackio)(offline)
    assert (project, name) == ("mine", folders.read_run(folder)["run_name"])
    assert logged >= CURVES | {"completions"}
    out = capsys.readouterr().out.replace("[INFO] Running in WANDB offline mode\n", "")
    assert all(line.startswith("grpo: ") for line in out.splitlines())
    assert files_with_it(offline) == []


def test_what_a_tracker_raises_is_one_line(run_stage, monkeypatch):
    module = pytest.importorskip("trackio", reason="the extra of this name has it")
    error = type("KeyFileError", (Exception,), {"__module__": "trackio.error"})

    def refuse(**_):
        raise error("no key")

    monkeypatch.setattr(module, "init", refuse)
    with pytest.raises(UserError, match="report_to: trackio: no key"):
        run_stage("grpo", report_to=["trackio"])


def test_the_password_of_a_server(tmp_path, capsys, monkeypatch):
    pytest.importorskip("openai", reason="the extra `distill` has the client")
    problem = {"id": "a", "prompt": build_prompt("2+2?"), "question": "2+2?", "answers": ["4"]}
    path, recipe, out = (tmp_path / name for name in ("problems.jsonl", "distill.yaml", "out"))
    path.write_text(json.dumps(problem | {"answer_form": "box", "source": "x"}) + "\n")
    values = {"backend": "openai", "base_url": f"http://user:{SECRET}@server.test/v1", "seed": 0}
    values |= {"model_name_or_path": "m", "problems_file": str(path), "output_dir": str(out)}
    recipe.write_text(json.dumps(values))
    basic = base64.b64encode(f"user:{SECRET}".encode()).decode()
    monkeypatch.setattr(sys, "argv", ["distill", "--config", str(recipe)])
    with serve(lambda *_: answer("\\boxed{4}")) as server:
        distill.main()
        assert {headers["authorization"] for headers in server.headers} == {f"Basic {basic}"}
    recipe.write_text(json.dumps(values | {"seed": 1}))
    with serve(lambda *_: (404, {})), pytest.raises(SystemExit):
        run_cli(distill.main)
    assert SECRET not in "".join(capsys.readouterr())
    assert files_with_it(out) == []


@pytest.mark.usefixtures("graded_by_chance")
def test_completions_of_each_logged_step_also_after_a_kill(run_stage, tmp_path, capsys):
    """The checkpoint lies inside a generation; who is told of a run makes no other one of it."""
    keys = {"max_steps": 4, "steps_per_generation": 2, "save_steps": 3} | COMPLETIONS
    keys["disable_tqdm"] = True  # else by the level of a logger, which the first run in here sets
    folder = run_stage("grpo", **keys)
    files = [folder / f"completions/completions_{step:05}.parquet" for step in (1, 2, 3, 4)]
    tables = [pd.read_parquet(file) for file in files]
    for step, table in enumerate(tables, start=1):
        assert (table["step"] == step).all() and len(table) == 16
        assert {"prompt", "completion", "advantage", *REWARDS} <= {*table.columns}
        assert table["advantage"].groupby(table["prompt"].astype(str)).sum().abs().max() < 1e-3
        assert table["completion"][0][0]["role"] == "assistant"
    name = folders.read_run(folder)["run_name"]
    for path in (folder / manifest.NAME, files[3]):
        path.unlink()
    shutil.rmtree(folder / "checkpoint-4")
    run_stage("grpo", **keys, report_to="tensorboard", run_name="other")
    assert f"resuming from {folder.resolve()}/checkpoint-3" in capsys.readouterr().out
    pd.testing.assert_frame_equal(pd.read_parquet(files[3]), tables[3])
    assert folders.read_run(folder)["run_name"] == name and name.startswith(str(folder))
    run_stage("grpo", **keys, run_name="third")
    assert "up to date" in capsys.readouterr().out


def test_tensorboard_has_one_curve_of_a_resumed_run(run_stage):
    keys = {"max_steps": 5, "save_steps": 3, "report_to": "tensorboard"}
    folder = run_stage("sft", **keys)
    assert steps_of(folder) == [1, 2, 3, 4, 5]
    (folder / manifest.NAME).unlink()
    shutil.rmtree(folder / "checkpoint-5")
    run_stage("sft", **keys)  # steps 4 and 5 once more
    assert steps_of(folder) == [1, 2, 3, 4, 5]
