"""What a run tells the trackers, offline, under which names; and its completions on file."""

import contextlib
import importlib
import json
import shutil
import sqlite3
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest

from pipeline import manifest
from pipeline.errors import UserError
from stages.run import folders
from tests.integration.stages.test_secrets import SECRET, files_with_it
from tests.integration.trainer.runs import steps_of

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


class StandIn(ModuleType):
    """A tracker that remembers its calls; what transformers asks of it is as far as that goes."""

    __version__ = "3.0.0"
    utils = SimpleNamespace(validation=SimpleNamespace(MAX_PARAM_VAL_LENGTH=250,
                                                       MAX_PARAMS_TAGS_PER_BATCH=100))  # fmt: skip

    def __init__(self, name):
        super().__init__(name)
        self.__spec__, self.calls, self.config, self.run = ModuleSpec(name, None), [], {}, None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            if name in ("init", "start_run"):
                self.run = SimpleNamespace(info=SimpleNamespace(run_id="1"))
            return self.run if name in ("active_run", "get_run") else None

        return call

    def given(self, name):
        """What the calls of a name were given, by keyword or in dicts."""
        found = {}
        for called, args, kwargs in self.calls:
            if called == name:
                found |= kwargs | {key: value for one in args for key, value in one.items()}
        return found


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Put a tracker that is not installed into this process."""

    def call(name):
        info = tmp_path / f"site/{name}-3.0.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.0.0\n")
        monkeypatch.syspath_prepend(info.parent)
        made = StandIn(name)
        monkeypatch.setitem(sys.modules, name, made)
        # TRL takes it as it is imported, if it is there.
        monkeypatch.setattr(f"trl.extras.profiling.{name}", made, raising=False)
        for variable in ("MLFLOW_EXPERIMENT_NAME", "SWANLAB_PROJECT", "WANDB_PROJECT"):
            monkeypatch.setenv(variable, "theirs")  # the stage's to change
        return made

    return call


@pytest.mark.parametrize("tracker", ["mlflow", "swanlab"])
def test_a_run_told_to_a_tracker_that_is_no_package_of_ours(run_stage, stand_in, tracker):
    made = stand_in(tracker)
    folder = run_stage("grpo", report_to=[tracker], project="mine", beta=0.04)
    name = folders.read_run(folder)["run_name"]
    if tracker == "mlflow":
        assert ("set_experiment", ("mine",), {}) in made.calls
        assert made.given("start_run")["run_name"] == name
        metrics = {key for _, _, told in made.calls for key in told.get("metrics", ())}
        assert metrics >= {"reward", "kl", "grad_norm", "rewards/correctness_reward/mean"}
    else:
        init = made.given("init")
        assert (init["project"], init["experiment_name"]) == ("mine", name)
        assert {*made.given("log")} >= CURVES


def test_what_a_tracker_raises_is_one_line(run_stage, stand_in):
    made = stand_in("swanlab")
    error = type("KeyFileError", (Exception,), {"__module__": "swanlab.error"})

    def refuse(**_):
        raise error("no key")

    made.init = refuse
    with pytest.raises(UserError, match="report_to: swanlab: no key"):
        run_stage("grpo", report_to=["swanlab"])


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


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_tensorboard_has_one_curve_of_a_resumed_run(run_stage, stage):
    keys = {"max_steps": 5, "save_steps": 3, "report_to": "tensorboard"}
    folder = run_stage(stage, **keys)
    assert steps_of(folder) == [1, 2, 3, 4, 5]
    (folder / manifest.NAME).unlink()
    shutil.rmtree(folder / "checkpoint-5")
    run_stage(stage, **keys)  # steps 4 and 5 once more
    assert steps_of(folder) == [1, 2, 3, 4, 5]
