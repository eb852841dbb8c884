"""A run that evaluates, killed again and again, ends as a straight one, the best model too."""

import json
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
# The Trainer averages its loss over the steps since the resume, and a guard shows the value of a
# generation again only at the next one.
UNEQUAL = (
    "eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "step_time", "loss",
    "guard/repetition",
)  # fmt: skip
SETTINGS = {
    "eval_strategy": "steps", "eval_steps": 3, "eval_on_start": True, "eval_problems": 3,
    "num_generations_eval": 2, "per_device_eval_batch_size": 4, "max_steps": 7, "save_steps": 2,
    # Every checkpoint, and two of three evaluations, lie inside a generation batch.
    "per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": 1,
    "curriculum": "predictive", "rest_batches": 0,
}  # fmt: skip


def outcome(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    logs = [
        {key: value for key, value in log.items() if key not in UNEQUAL} for log in history[:-1]
    ]
    steps = folder.with_name(f"{folder.name}.rank0.jsonl").read_text().splitlines()
    return {
        "best": [(folder / "best" / name).read_bytes() for name in ("best.json", "config.json")],
        "best weights": (folder / "best/model.safetensors").read_bytes(),
        "weights": (folder / "model.safetensors").read_bytes(),
        "evaluations": [log for log in logs if "eval_avg@2" in log],
        "logs": [log for log in logs if "eval_avg@2" not in log],
        "state": json.loads((folder / "checkpoint-7/extra_state.json").read_text())["extra"],
        "steps": set(steps),  # what was done twice was done the same way
    }


def test_killed_here_and_there(fork_server, write_recipe, tmp_path):
    straight, folder = tmp_path / "straight", tmp_path / "killed"
    recipe = write_recipe("grpo", **SETTINGS, output_dir=str(straight))
    log = Path(f"{recipe}.0.log")
    (pid,) = fork_server.start(recipe, grader="checksum")
    assert fork_server.wait(pid) == 0, log.read_text()
    expected = outcome(straight)
    assert [entry["step"] for entry in expected["evaluations"]] == [0, 3, 6, 7]
    assert len({entry["eval_avg@2"] for entry in expected["evaluations"]}) > 1

    recipe = write_recipe("grpo", **SETTINGS, output_dir=str(folder), save_total_limit=1)
    # In an evaluation, in the next one, in the save that follows it.
    for kill in ("generating 3", "generating 6", "saving 6"):
        (pid,) = fork_server.start(recipe, grader="checksum", envs={0: {"DIE": kill}})
        assert fork_server.wait(pid) == -signal.SIGKILL, log.read_text()
    (pid,) = fork_server.start(recipe, grader="checksum")
    assert fork_server.wait(pid) == 0, log.read_text()
    assert f"resuming from {folder}/checkpoint-4\n" in log.read_text()
    found = outcome(folder)
    for key, value in expected.items():
        assert found[key] == value, key
