"""A run that is killed and started again ends as a straight one: data, weights, state, best model.

Every kill is one of real processes, followed by the same command, or by that of another launch,
which goes on with the same data or is refused in one line.
"""

import json
import random
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.fork_server import DIED
from tests.integration.stages.stage_processes import steps_on_disk
from tests.integration.trainer.fsdp_on_cpu import shard_on_cpu
from tests.integration.trainer.runs import (
    read_extra,
    read_history,
    read_logs,
    record_batches,
    record_micro_steps,
    weights_of,
    without,
)

pytestmark = pytest.mark.integration


def newest(folder):
    """The step of the newest whole checkpoint, 0 without one."""
    return max(steps_on_disk(folder), default=0)


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


# name: processes, settings, kills. A kill is a place where rank 0 (or the rank behind the colon)
# dies by its own hand, or "any <step>": from outside, soon after that checkpoint. The 12 problems
# make 6 generation batches of 2 or 3 of 4 an epoch.
CASES = {
    "one batch a step": (
        1,
        # 6 of the 12 prompts are read before step 1, 4 before step 2, 2 before step 3.
        {"max_steps": 13, "per_device_train_batch_size": 8, "curriculum": "predictive",
         "rest_batches": 1, "prompt_components": 1},
        # The last: it is done, lies at no epoch's end, and has no manifest.
        ["generating 4", "saving 6", "saved 13"],
    ),
    "one batch for four steps": (
        1,
        {"max_steps": 15, "per_device_train_batch_size": 4, "steps_per_generation": 4,
         "use_adaptive_entropy": True, "entropy_coef": 0.01, "entropy_target": 5.0},
        ["saved 2", "saving 7", "any 13"],  # 12 steps an epoch
    ),
    "two processes": (
        2,
        {"max_steps": 9, "per_device_train_batch_size": 4, "steps_per_generation": 2,
         "curriculum": "predictive+refill", "rest_batches": 1},
        ["saving 3:1", "saved 6:1", "any 7"],  # 6 steps an epoch
    ),
    "evaluations inside generation batches": (
        1,
        {"eval_strategy": "steps", "eval_steps": 3, "eval_on_start": True, "eval_problems": 3,
         "num_generations_eval": 2, "per_device_eval_batch_size": 4, "max_steps": 7,
         "per_device_train_batch_size": 4, "steps_per_generation": 4,
         "curriculum": "predictive", "rest_batches": 0},
        ["evaluating 3", "saving 6"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_killed_here_and_there(name, fork_server, write_recipe, tmp_path):
    num_processes, settings, kills = CASES[name]
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
    for kill in [*kills, None]:
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


# Another launch: (processes, file of configs/accelerate/, settings)

STEPS, DIE_AT = 8, 5
COMMON = {"max_steps": STEPS, "save_steps": DIE_AT, "gradient_accumulation_steps": 2}
BASE = {
    # 40 rows, 16 a step, and 12 problems, 4 a step: three steps an epoch, so it ends within one
    "sft": COMMON,
    "grpo": COMMON | {"curriculum": "predictive", "rest_batches": 1},
}
ONE = (1, None, {})
SAME_RECIPE = (1, None, {"per_device_train_batch_size": 4})
TWO = (2, "cpu", {"per_device_train_batch_size": 4})
ZERO2 = (2, "zero2", {"per_device_train_batch_size": 4})
ZERO2_ALONE = (1, "zero2", {})
FSDP2 = (2, "fsdp2", {"per_device_train_batch_size": 4})
FSDP2_ALONE = (1, "fsdp2", {})
FSDP2_OTHER_ROWS = (1, "fsdp2", {"per_device_train_batch_size": 4})

# What is killed; the launches that are refused; the one that goes on.
LAUNCHES = {
    "sft, two": ("sft", TWO, [SAME_RECIPE, ZERO2], ONE),
    "grpo, two": ("grpo", TWO, [SAME_RECIPE], ONE),
    "zero2": ("sft", ZERO2, [ZERO2_ALONE, TWO], ZERO2),
    "sft, fsdp2": ("sft", FSDP2_ALONE, [], FSDP2),
    "grpo, fsdp2": ("grpo", FSDP2, [FSDP2_OTHER_ROWS, TWO], FSDP2_ALONE),
}


@pytest.fixture(scope="module")
def straight():
    """Folder of an uninterrupted run of one process, by stage."""
    return {}


@pytest.fixture
def launch(fork_server, write_recipe, tmp_path):
    """Run a stage with a launch; returns exit codes, output and folder."""

    def call(stage, launch, name="resumed", die_at=0, **more):
        num_processes, config, settings = launch
        folder = tmp_path / name
        settings = BASE[stage] | {"per_device_train_batch_size": 8} | settings | more
        recipe = write_recipe(stage, output_dir=str(folder), **settings)
        setup = (shard_on_cpu, "record_batches") if config == "fsdp2" else record_batches
        order = {"stage": stage, "config": config, "die_at": die_at, "setup": setup}
        codes, logs = fork_server.run(recipe, num_processes, **order)
        return codes, logs, folder

    return call


@pytest.mark.parametrize("name", LAUNCHES)
def test_another_launch_goes_on_or_is_refused(launch, straight, name, tmp_path_factory):
    stage, before, refused, after = LAUNCHES[name]
    if "zero" in name and not find_spec("deepspeed"):
        pytest.skip("DeepSpeed not installed")
    if stage not in straight:
        codes, logs, straight[stage] = launch(stage, ONE, tmp_path_factory.mktemp("straight"))
        assert codes == [0], logs
    codes, logs, folder = launch(stage, before, die_at=DIE_AT)
    assert codes == [DIED] * before[0], logs
    files = sorted(path.name for path in folder.iterdir())
    for other in refused:
        if other == ZERO2 and not find_spec("deepspeed"):
            continue
        codes, logs, _ = launch(stage, other)
        assert codes == [2] * other[0], logs
        lines = [line for line in logs[0].splitlines() if line.startswith("error: ")]
        checkpoint = folder.resolve() / f"checkpoint-{DIE_AT}"
        assert len(lines) == 1 and f"{checkpoint}: was made with" in lines[0]
        # Nothing is lost: started as before it would go on.
        assert sorted(path.name for path in folder.iterdir()) == files
    codes, logs, _ = launch(stage, after)
    assert codes == [0] * after[0], logs
    assert f"resuming from {folder.resolve()}/checkpoint-{DIE_AT}\n" in logs[0]
    assert_close(folder, straight[stage], stage)


def assert_close(folder, expected, stage):
    """Losses within 1e-5, where other rows would be off in the second digit, and weights."""
    from safetensors.torch import load_file

    losses = [log["loss"] for log in read_logs(folder)]
    assert losses == pytest.approx([log["loss"] for log in read_logs(expected)], abs=1e-5)
    assert len(losses) == STEPS and len({f"{loss:.3f}" for loss in losses}) > 4
    found = load_file(folder / "model.safetensors")
    for key, value in load_file(expected / "model.safetensors").items():
        assert (found[key] - value).abs().max() < 1e-3, key
    if stage == "grpo":
        state, wanted = read_extra(folder, STEPS), read_extra(expected, STEPS)
        assert state["extra"]["curriculum"] == wanted["extra"]["curriculum"]
        assert state["num_completions"] == wanted["num_completions"]
