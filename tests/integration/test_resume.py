"""Real processes, killed: no manifest, and the same command goes on where they stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from data_prep import manifest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


def start(*command):
    """Start a Python process whose SIGINT works as in a terminal."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        env={key: value for key, value in env.items() if key not in ("RANK", "WORLD_SIZE")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def stop_when(process, ready, number):
    """Send the signal as soon as `ready()`; returns (exit code, stdout, stderr)."""
    deadline = time.monotonic() + 120
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"ended or hung before it could be stopped: {process.communicate()}")
        time.sleep(0.005)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


def steps_on_disk(folder):
    """Steps of the whole checkpoints in a folder, ascending."""
    found = []
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            found.append(json.loads(path.read_text())["global_step"])
        except (OSError, ValueError):
            continue
    return sorted(found)


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


# The model writes noise: grade it by a checksum, or every pass rate would be zero. A question with
# an odd checksum is never solved, so that a rate at the wrong problem shows.
DIFFICULTY = """
import zlib
from data_prep import difficulty
from data_prep.answers import Grade
from data_prep.config import run_cli

def checksum(text):
    return zlib.crc32(text.encode()) % 2

def grade_rollouts(prompts, completions, golds, *, think_prefilled, final_number):
    assert final_number and not think_prefilled
    rows = zip([prompt[-1]["content"] for prompt in prompts], completions, golds, strict=True)
    is_right = [not checksum(question) and checksum(text) for question, text, _ in rows]
    return [Grade("right" if right else "wrong", None) for right in is_right]

difficulty.grade_rollouts = grade_rollouts
run_cli(difficulty.main)
"""


def test_difficulty_killed_then_finished(tmp_path, tiny_model_dir):
    from data_prep import synthetic
    from data_prep.schema import grpo_row

    rows = [grpo_row(p, "none") for p in synthetic.load("rl", 61, 0, max_level=2)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "measure.py").write_text(DIFFICULTY)

    def command(name):
        values = {
            "model_name_or_path": tiny_model_dir, "problems_file": tmp_path / "problems.jsonl",
            "output_dir": tmp_path / name, "num_samples": 4, "max_new_tokens": 24,
            "batch_size": 2, "dtype": "float32", "final_number": True,
        }  # fmt: skip
        flags = [part for key, value in values.items() for part in (f"--{key}", value)]
        return [tmp_path / "measure.py", *flags]

    partial = tmp_path / "killed" / "pass_rates.jsonl.partial"

    def measured():
        return partial.is_file() and partial.read_text().count("\n") >= 4

    code, _, _ = stop_when(start(*command("killed")), measured, signal.SIGKILL)
    assert code == -signal.SIGKILL and manifest.read(tmp_path / "killed") is None
    before = partial.read_text()
    num_done = before.count("\n")
    assert num_done < 61
    # What a crash in the middle of a write leaves.
    partial.write_text(before[: before.rfind("\n") + 1] + '{"id": "synth')

    out = finish(start(*command("killed")))
    assert f"resuming, {num_done} problems are measured already" in out
    assert "resuming" not in finish(start(*command("straight")))
    result = (tmp_path / "killed" / "pass_rates.jsonl").read_text()
    assert result == (tmp_path / "straight" / "pass_rates.jsonl").read_text()
    assert result.startswith(before) and not partial.exists()

    found = [json.loads(line) for line in result.splitlines()]
    assert [row["id"] for row in found] == [row["id"] for row in rows]
    assert len({row["num_right"] for row in found}) > 2
    unsolved = [zlib.crc32(row["question"].encode()) % 2 for row in rows]
    assert not any(row["num_right"] for row, odd in zip(found, unsolved, strict=True) if odd)
    counts = manifest.read(tmp_path / "killed")["counts"]
    assert counts["problems"] == 61 == sum(counts["num_right_histogram"].values())
