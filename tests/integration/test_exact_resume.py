"""A GRPO run killed again and again ends with the weights, prompts and state of a straight one.

Every kill is a SIGKILL of real processes, followed by the same command.
"""

import inspect
import json
import random
import signal
import time
from pathlib import Path

import pytest

from tests.integration.recorders import grade_by_checksum, micro_steps

pytestmark = pytest.mark.integration


def newest(folder):
    """The step of the newest whole checkpoint, 0 without one."""
    steps = [0]
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            steps.append(json.loads(path.read_text())["global_step"])
        except (OSError, ValueError):
            continue
    return max(steps)


UNEQUAL = ("loss", "step_time")  # the Trainer averages its loss over the steps since the resume


def outcome(folder, num_processes=1):
    """What two runs must have in common: weights, extra state, logged metrics, micro-steps."""
    state = json.loads((folder / "trainer_state.json").read_text())
    last = folder / f"checkpoint-{state['global_step']}"
    return {
        "weights": (folder / "model.safetensors").read_bytes(),
        "extra": json.loads((last / "extra_state.json").read_text())["extra"],
        "logs": [
            {key: value for key, value in log.items() if key not in UNEQUAL}
            for log in state["log_history"]
            if "loss" in log
        ],
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
        {"max_steps": 13, "per_device_train_batch_size": 8},  # 6 steps an epoch
        # The last: it is done, lies at no epoch's end, and has no manifest.
        ["saved 1", "generating 4", "saving 6", "saved 6", "saved 8", "saved 13"],
    ),
    "one batch for four steps": (
        1,
        {"max_steps": 19, "per_device_train_batch_size": 4, "steps_per_generation": 4},
        ["saved 2", "saving 7", "generating 12", "any 14"],  # 12 steps an epoch
    ),
    "one batch twice, steps across batches": (
        1,
        {"max_steps": 9, "per_device_train_batch_size": 4, "steps_per_generation": 2,
         "num_iterations": 2, "gradient_accumulation_steps": 5},
        ["saved 2", "saved 5", "saved 6"],  # 24 micro-steps an epoch: 4 steps of 5, one of 4
    ),
    "two processes": (
        2,
        {"max_steps": 10, "per_device_train_batch_size": 4, "steps_per_generation": 2,
         "curriculum": "predictive+refill", "rest_batches": 1},
        ["saved 1", "saving 3:1", "saved 6:1", "any 7"],  # 6 steps an epoch
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
    for pid in fork_server.start(recipe, num_processes, grader="checksum"):
        assert fork_server.wait(pid) == 0, read_log()
    expected = outcome(straight, num_processes)
    losses = [json.loads(line)[-1] for line in expected["steps"][0]]
    assert sum(map(bool, losses)) > len(losses) / 2  # else the weights could not differ

    recipe = write_recipe("grpo", **settings, output_dir=str(folder), save_total_limit=2)
    delay = random.Random(name)
    for kill in [*kills, None]:
        before = newest(folder)
        if kill is None:
            pids = fork_server.start(recipe, num_processes, grader="checksum")
            assert [fork_server.wait(pid) for pid in pids] == [0] * num_processes, read_log()
        else:
            die, _, rank = kill.partition(":")
            place, step = die.split()
            pids = fork_server.start(
                recipe, num_processes, grader="checksum", envs={int(rank or 0): {"DIE": die}}
            )
            if place == "any":
                while newest(folder) < int(step):
                    assert fork_server.wait(pids[0], seconds=0.02) is None, read_log()
                time.sleep(delay.uniform(0, 0.2))
            else:
                assert fork_server.wait(pids[int(rank or 0)]) == -signal.SIGKILL, read_log()
                for pid in fork_server.alive.intersection(pids):
                    fork_server.wait(pid, seconds=1)  # time to write what it should not
                # A torn checkpoint is there and does not count.
                assert newest(folder) == int(step) - (place == "saving")
                assert (folder / f"checkpoint-{step}").is_dir()
            fork_server.kill(pids)
            # A run may be faster than a kill from outside: then as if it had come a moment before.
            (folder / "manifest.json").unlink(missing_ok=True)
        if before:
            assert f"resuming from {folder}/checkpoint-{before}\n" in read_log()
    assert_equal(outcome(folder, num_processes), expected)


def test_uninterrupted_it_is_trls_own(run_stage, monkeypatch, tmp_path):
    """Prompts, completions, losses and weights of three epochs, step for step."""
    from trl import GRPOTrainer

    from stages.trainer import trainer as module

    ours, known = micro_steps(module.MathGRPOTrainer), inspect.signature(GRPOTrainer)

    def build_stock(**kwargs):
        kwargs = {key: value for key, value in kwargs.items() if key in known.parameters}
        trainer = micro_steps(GRPOTrainer)(**kwargs)
        trainer.num_completions = 0  # the stage's manifest asks for it
        return trainer

    monkeypatch.setattr("stages.rewards.grade_rollouts", grade_by_checksum)
    runs = []
    for name, build in (("ours", ours), ("stock", build_stock)):
        monkeypatch.setattr(module, "MathGRPOTrainer", build)
        folder = run_stage("grpo", max_steps=13, output_dir=str(tmp_path / name))
        weights = (folder / "model.safetensors").read_bytes()
        runs.append((weights, (tmp_path / f"{name}.rank0.jsonl").read_text().splitlines()))
    assert runs[0] == runs[1]
    ids = [json.loads(line)[1] for line in runs[0][1]]
    assert ids[:6] != ids[6:12] and len(ids) == 13


@pytest.fixture
def train_as(monkeypatch, run_stage):
    """Run the stage with `train(trainer)` in place of its training; settings as for `run_stage`."""
    from stages import run
    from stages.trainer import trainer as module

    def call(train, **settings):
        recorder = micro_steps(module.MathGRPOTrainer)
        with monkeypatch.context() as patch:
            patch.setattr(module, "MathGRPOTrainer", recorder)
            patch.setattr("stages.rewards.grade_rollouts", grade_by_checksum)
            patch.setattr(run, "train", lambda trainer, *_: (train(trainer), run.save(trainer)))
            return run_stage("grpo", save_steps=1, gradient_accumulation_steps=1, **settings)

    return call


def train_until(trainer, step, checkpoint=None):
    """Train until a step; returns what was there when the training began."""
    from transformers import TrainerCallback

    seen = []

    class Stop(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            is_empty, num_ids = trainer._buffered_inputs is None, len(trainer.seen.ids)
            seen.extend([trainer._step, is_empty, num_ids, newest(Path(args.output_dir))])

        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step >= step

    trainer.add_callback(Stop)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.remove_callback(Stop)
    return seen


def test_rolled_back_in_the_same_process(train_as, tmp_path):
    settings = {"per_device_train_batch_size": 4, "steps_per_generation": 4, "max_steps": 15}
    settings |= {"use_adaptive_entropy": True, "entropy_coef": 0.01, "entropy_target": 5.0}
    settings |= {"logging_steps": 3}
    folder = tmp_path / "rolled-back"

    def train(trainer):
        assert train_until(trainer, 7) == [0, True, 0, 0]
        # What a kill between the mark and this file leaves.
        (folder / "checkpoint-2/entropy_ctrl_state.json").unlink()
        # Steps 3 to 7 are abandoned: killed now, the run would come back to step 2.
        assert train_until(trainer, 10, str(folder / "checkpoint-2")) == [2, False, 4, 2]
        assert train_until(trainer, 13, str(folder / "checkpoint-8")) == [8, True, 8, 8]
        assert train_until(trainer, 15, str(folder / "checkpoint-12")) == [12, True, 12, 12]

    train_as(train, **settings, output_dir=str(folder))
    straight = tmp_path / "straight"
    train_as(lambda trainer: trainer.train(), **settings, output_dir=str(straight))
    assert_equal(outcome(folder), outcome(straight))


def test_what_is_not_there_is_named(train_as):
    from data_prep.config import UserError

    def train(trainer):
        train_until(trainer, 2)
        folder = Path(trainer.args.output_dir) / "checkpoint-1"
        file = folder / "extra_state.json"
        state = json.loads(file.read_text())

        def refused(**changes):
            file.write_text(json.dumps(state | changes))
            with pytest.raises(UserError) as caught:
                trainer.train(resume_from_checkpoint=str(folder))
            return str(caught.value)

        names = ", ".join(sorted(trainer.extra_state))
        assert "generation batch of 2 processes, this run has 1" in refused(num_buffers=2)
        assert f"holds the state of nothing, this recipe needs that of {names};" in refused(
            extra={}
        )
        trainer.extra_state.clear()
        assert f"holds the state of {names}, this recipe needs that of nothing;" in refused()
        file.unlink()
        with pytest.raises(UserError, match="is missing; resume from a checkpoint that"):
            trainer.train(resume_from_checkpoint=str(folder))

    train_as(train, per_device_train_batch_size=4, steps_per_generation=4)
