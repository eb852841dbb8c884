"""Real processes, killed: no manifest, and the same command goes on where they stopped."""

import json
import re
import signal

import pytest

from data_prep import manifest
from tests.integration.stages.stage_processes import finish, start, steps_on_disk, stop_when

pytestmark = pytest.mark.integration


def read_losses(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {log["step"]: log["loss"] for log in history if "loss" in log}


def last_process_steps(folder):
    """Steps that the process which wrote the newest event file trained and logged."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = folder.glob("**/events.out.tfevents*")
    events = EventAccumulator(str(max(files, key=lambda path: path.stat().st_mtime_ns))).Reload()
    return [event.step for event in events.Scalars("train/loss")]


def resumed_step(out):
    return int(re.search(r"^resuming from .*checkpoint-(\d+)$", out, re.MULTILINE)[1])


def test_sft_interrupted_then_killed_then_finished(write_recipe, run_stage, tmp_path):
    settings = {"max_steps": 40, "save_steps": 4, "save_total_limit": 2}
    settings["report_to"] = "tensorboard"
    command = ["-m", "stages.sft", "--config", write_recipe("sft", **settings)]
    folder = tmp_path / "sft"

    code, _, err = stop_when(start(*command), lambda: steps_on_disk(folder), signal.SIGINT)
    assert code == 130 and "interrupted" in err and "Traceback" not in err
    assert manifest.read(folder) is None
    first = steps_on_disk(folder)[-1]

    def went_on():
        return max(steps_on_disk(folder), default=0) > first

    code, out, _ = stop_when(start(*command), went_on, signal.SIGKILL)
    assert code == -signal.SIGKILL and resumed_step(out) == first
    assert manifest.read(folder) is None
    second = steps_on_disk(folder)[-1]
    assert first < second < 40

    out = finish(start(*command))
    assert resumed_step(out) == second
    assert last_process_steps(folder) == list(range(second + 1, 41))
    assert manifest.read(folder)["counts"]["steps"] == 40
    assert not folder.with_name("sft.previous").exists()

    straight = run_stage("sft", **settings, output_dir=str(tmp_path / "straight"))
    losses, expected = read_losses(folder), read_losses(straight)
    assert sorted(losses) == list(range(1, 41))
    assert losses == pytest.approx(expected, rel=1e-3)
    assert expected[40] < expected[1]


def test_grpo_killed_then_finished(write_recipe, tmp_path):
    settings = {"max_steps": 12, "save_steps": 1, "save_total_limit": 2}
    settings["report_to"] = "tensorboard"
    command = ["-m", "stages.grpo", "--config", write_recipe("grpo", **settings)]
    folder = tmp_path / "grpo"
    code, _, _ = stop_when(start(*command), lambda: steps_on_disk(folder), signal.SIGKILL)
    assert code == -signal.SIGKILL and manifest.read(folder) is None
    reached = steps_on_disk(folder)[-1]
    assert reached < 12
    out = finish(start(*command))
    assert resumed_step(out) == reached
    assert last_process_steps(folder) == list(range(reached + 1, 13))
    assert manifest.read(folder)["counts"]["steps"] == 12
    assert sorted(read_losses(folder)) == list(range(1, 13))
