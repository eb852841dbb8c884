"""A run that is killed and started again ends as a straight one: data, weights, state, best model.

Every kill is one of real processes, followed by the same command; that of another launch is in
`test_parallel`.
"""

import json
import random
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.integration.trainer.runs import (
    read_extra,
    read_history,
    record_micro_steps,
    weights_of,
    whole_checkpoints,
    without,
)

pytestmark = pytest.mark.integration


def newest(folder):
    """The step of the newest whole checkpoint, 0 without one."""
    return max(whole_checkpoints(folder), default=0)


# The Trainer averages its loss over the steps since the resume.
UNEQUAL = (
    "loss", "step_time", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
)  # fmt: skip


def outcome(folder, num_processes=1):
    """What two runs must have in common: weights, extra state, logged metrics, micro-steps."""
    logs = read_history(folder)
    best = folder / "best"
    return {
        "weights": weights_of(folder),
        "best": [path.read_bytes() for path in (best / "best.json", best / "model.safetensors")]
        if best.is_dir()
        else None,
        "extra": read_extra(folder, newest(folder))["extra"],
        "logs": [without(log, *UNEQUAL) for log in logs if "train_runtime" not in log],
        # Of all attempts together: what was done twice was done the same way.
        "steps": [
            set(folder.with_name(f"{folder.name}.rank{rank}.jsonl").read_text().splitlines())
            for rank in range(num_processes)
        ],
    }


def assert_equal(found, expected):
    for key, value in expected.items():
        assert found[key] == value, key


CASES = yaml.safe_load(Path(__file__).with_name("resume.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_killed_here_and_there(name, fork_server, write_recipe, tmp_path):
    num_processes, settings = CASES[name]["processes"], CASES[name]["settings"]
    settings = {"gradient_accumulation_steps": 1, "logging_steps": 5, "save_steps": 1} | settings
    folder, straight = tmp_path / "killed", tmp_path / "straight"

    def read_log(rank=0):
        return Path(f"{recipe}.{rank}.log").read_text()

    recipe = write_recipe("grpo", **settings, output_dir=str(straight))
    fork_server.finish(recipe, num_processes, setup=record_micro_steps)
    expected = outcome(straight, num_processes)
    losses = [json.loads(line)[-1] for line in expected["steps"][0]]
    assert sum(map(bool, losses)) > len(losses) / 2  # else the weights could not differ
    found = {log["step"]: log["eval_avg@2"] for log in expected["logs"] if "eval_avg@2" in log}
    assert [*found] == ([0, 3, 6, 7] if "eval_steps" in settings else [])
    assert not found or len({*found.values()}) > 1

    recipe = write_recipe("grpo", **settings, output_dir=str(folder), save_total_limit=2)
    delay = random.Random(name)
    for kill in [*CASES[name]["kills"], None]:
        before = newest(folder)
        if kill is None:
            fork_server.finish(recipe, num_processes, setup=record_micro_steps)
        else:
            die, _, rank = kill.partition(":")
            place, step = die.split()
            pids = fork_server.start(
                recipe, num_processes, setup=record_micro_steps, envs={int(rank or 0): {"DIE": die}}
            )
            if place == "any":
                while newest(folder) < int(step):
                    assert fork_server.wait(pids[0], seconds=0.02) is None, read_log()
                time.sleep(delay.uniform(0, 0.2))
            else:
                assert fork_server.wait(pids[int(rank or 0)]) == -signal.SIGKILL, read_log()
                for pid in fork_server.alive.intersection(pids):
                    fork_server.wait(pid, seconds=1)  # time to write what it should not
                # A torn checkpoint is there and does not count; evaluations come before it.
                assert newest(folder) == int(step) - (place in ("saving", "evaluating"))
                assert (folder / f"checkpoint-{step}").is_dir() == (place != "evaluating")
            fork_server.kill(pids)
            # A run may be faster than a kill from outside: then as if it had come a moment before.
            (folder / "manifest.json").unlink(missing_ok=True)
        if before:
            assert f"resuming from {folder.resolve()}/checkpoint-{before}\n" in read_log()
    assert_equal(outcome(folder, num_processes), expected)
