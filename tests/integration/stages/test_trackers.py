"""What a run tells the trackers, offline, under which names; and its completions on file."""

import contextlib
import importlib
import json
import shutil
import sqlite3

import pandas as pd
import pytest

from pipeline import manifest
from stages import run_folder
from tests.integration.stages.test_secrets import SECRET, files_with_it

for name in (
    "wandb",
    "trackio",
    "mlflow",
    "swanlab",
):  # before a stage of another test hides them from this process
    with contextlib.suppress(ImportError):
        importlib.import_module(name)

pytestmark = pytest.mark.integration
CURVES = {"rollout/rewards", "train/learning_rate", "train/grad_norm", "train/kl"}
CURVES |= {f"train/rewards/{name}/mean" for name in ("think_format_reward", "correctness_reward")}
REWARDS = ["correctness_reward", "think_format_reward", "soft_length_penalty"]
# Nothing but the tables' files; a terminal would be full of them.
COMPLETIONS = {"log_completions": True, "num_completions_to_print": 0}


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


def read_mlflow(folder):
    import mlflow

    (experiment,) = (one for one in mlflow.search_experiments() if one.name != "Default")
    (run,) = mlflow.search_runs([experiment.experiment_id], output_format="list")
    names = {key: f"train/{key}" for key in run.data.metrics} | {"reward": "rollout/rewards"}
    return experiment.name, run.info.run_name, {names[key] for key in run.data.metrics}


def read_swanlab(folder):
    import swanlab

    run = swanlab.get_run()
    found = run.public.project_name, run.config["run_name"], {*swanlab.logged}
    swanlab.finish()
    assert [path for path in (folder / "swanlog").rglob("*") if path.is_file()]
    return found


def read_trackio(folder):
    (path,) = (folder / "trackio").glob("*.db")
    with sqlite3.connect(path) as file:
        rows = file.execute("select run_name, metrics from metrics").fetchall()
        ((config,),) = file.execute("select config from configs").fetchall()
    assert json.loads(config)["_Group"] == "of a sweep"
    return path.stem, rows[0][0], {key for _, metrics in rows for key in json.loads(metrics)}


READERS = {
    "wandb": read_wandb,
    "trackio": read_trackio,
    "mlflow": read_mlflow,
    "swanlab": read_swanlab,
}


@pytest.mark.parametrize("tracker", READERS)
def test_a_tracked_run(run_stage, offline, tracker, monkeypatch, capsys):
    module = pytest.importorskip(tracker, reason=f"{tracker} is not installed")
    monkeypatch.chdir(offline)
    if tracker == "mlflow":
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        module.set_tracking_uri(f"file://{offline}/mlflow")
    if tracker == "swanlab":
        monkeypatch.setenv("SWANLAB_MODE", "offline")
        monkeypatch.setenv("SWANLAB_LOG_DIR", str(offline / "swanlog"))
        told, log = set(), module.log
        monkeypatch.setattr(module, "logged", told, raising=False)
        monkeypatch.setattr(
            module, "log", lambda data, **how: (told.update(data), log(data, **how))
        )
    if tracker == "trackio":
        monkeypatch.setenv("WANDB_RUN_GROUP", "of a sweep")
        for module in ("utils", "sqlite_storage"):
            monkeypatch.setattr(f"trackio.{module}.TRACKIO_DIR", offline / "trackio")
    keys = {"report_to": [tracker], "project": "mine", "beta": 0.04}
    folder = run_stage("grpo", **keys, **COMPLETIONS)
    project, name, logged = READERS[tracker](offline)
    assert (project, name) == ("mine", run_folder.read_run(folder)["run_name"])
    tables = {"completions"} if tracker in ("wandb", "trackio") else set()  # TRL's, for these two
    assert logged >= CURVES | tables
    out = capsys.readouterr().out.replace("[INFO] Running in WANDB offline mode\n", "")
    lines = [line for line in out.splitlines() if "swanlab" not in line]
    assert all(line.startswith("grpo: ") for line in lines)
    assert files_with_it(offline) == []


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
    name = run_folder.read_run(folder)["run_name"]
    for path in (folder / manifest.NAME, files[3]):
        path.unlink()
    shutil.rmtree(folder / "checkpoint-4")
    run_stage("grpo", **keys, report_to="tensorboard", run_name="other")
    assert f"resuming from {folder}/checkpoint-3" in capsys.readouterr().out
    pd.testing.assert_frame_equal(pd.read_parquet(files[3]), tables[3])
    assert run_folder.read_run(folder)["run_name"] == name and name.startswith(str(folder))
    run_stage("grpo", **keys, run_name="third")
    assert "up to date" in capsys.readouterr().out
