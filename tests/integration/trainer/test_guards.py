"""Guards in real runs: each fires at its fault alone; stop and roll-back do what they say."""

import importlib
import json
import math
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stages.run import training
from tests.integration.trainer.recorders import grade_by_checksum, tell, weights_checksum
from tests.integration.trainer.runs import (
    PAYS_FOR_LOOPS,
    read_events,
    read_extra,
    read_logs,
    steps_of,
    weights_of,
    whole_checkpoints,
    without,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def train(run_stage, monkeypatch):
    """Run the stage with a subclass of its trainer; returns the output folder."""
    from stages.trainer import grpo_trainer as module

    monkeypatch.setattr("stages.rewards.grade_rollouts", grade_by_checksum)

    def call(trainer=module.MathGRPOTrainer, **settings):
        monkeypatch.setattr(module, "MathGRPOTrainer", trainer)
        return run_stage("grpo", **PAYS_FOR_LOOPS | settings)

    return call


@pytest.fixture
def built(train, monkeypatch):
    """The stage's trainer, built and not trained."""

    def call(**settings):
        found = []
        monkeypatch.setattr(training, "train", lambda trainer, *_: found.append(trainer))
        train(**settings)
        return found[0]

    return call


# Which fault fires which guard. The limits are the defaults. What is asserted holds for other
# seeds too; the exact steps do not.

PAYS_FOR_REPETITION = {
    "reward_funcs": ["repetition_penalty"], "reward_weights": [-1.0], "repetition_ngram_size": 1,
    "max_completion_length": 24, "max_steps": 22, "guard_no_signal": "off",
}  # fmt: skip
LENGTH = f"{__name__}:pays_for_length"
NEVER_ENDS = {
    "reward_funcs": [LENGTH], "reward_weights": [1.0], "max_completion_length": 64,
    "max_steps": 14, "per_device_train_batch_size": 24, "num_generations": 12,
    "guard_no_signal": "off",
}  # fmt: skip
# A small learning rate that moves all of float32 and next to nothing of bfloat16.
TINY_STEPS = PAYS_FOR_REPETITION | {"learning_rate": 5e-7, "max_steps": 4}
# Two steps share a generation, so that TRL keeps its own log-probs of the sampled tokens.
TWO_STEPS = PAYS_FOR_REPETITION | {
    "learning_rate": 3e-2, "max_steps": 10, "per_device_train_batch_size": 4,
    "steps_per_generation": 2, "gradient_accumulation_steps": 1,
}  # fmt: skip


def pays_for_length(completion_ids, trainer_state, **_):
    """Longer is better in every group, and every step is worse than the one before."""
    return [len(ids) / 64 - trainer_state.global_step for ids in completion_ids]


@pytest.fixture
def watch(run_stage, monkeypatch, tiny_model_dir, capsys):
    """Run the stage; returns events, logs by step and printed lines."""
    from transformers import AutoTokenizer

    monkeypatch.setenv("ALLOW_CODE", "1")
    eos = AutoTokenizer.from_pretrained(tiny_model_dir).eos_token_id

    def call(settings, **changes):
        # Whether so short a run drifts far enough depends on its samples; these do.
        always = {"lr_scheduler_type": "constant", "save_strategy": "no", "fast_generation": False}
        settings = always | settings | changes
        if settings["reward_funcs"] == [LENGTH]:
            # The random model hardly ever ends; sampled like this it does, after ten tokens or so.
            settings["generation_kwargs"] = {"sequence_bias": [[[eos], 4.0]]}
        folder = run_stage("grpo", **settings)
        logs = {log["step"]: log for log in read_logs(folder)}
        assert len(logs) == settings["max_steps"]
        return read_events(folder), logs, capsys.readouterr().out.splitlines()

    return call


def assert_fired(guard, events, logs, printed, is_low=False):
    """The first line of a guard is complete, was printed and is what was logged."""
    event = next(event for event in events if event["guard"] == guard)
    assert event["action"] == "warn"
    assert (event["value"] < event["limit"]) == is_low and event["value"] != event["limit"]
    assert event["since"] <= event["step"] - 2  # the third violating step in a row
    assert event["message"].startswith(f"{guard}: ")
    assert f"guard {event['message']}" in printed
    # A log carries the number of steps taken, an event the step that it is about, from 0.
    assert logs[event["step"] + 1][f"guard/{guard}"] == event["value"]
    return event


def test_a_reward_that_pays_for_repetition(watch):
    """And in the end for one token over and over, without a doubt: the entropy is gone too."""
    events, logs, printed = watch(PAYS_FOR_REPETITION, learning_rate=3e-2)
    loops = assert_fired("repetition", events, logs, printed)
    sure = assert_fired("entropy", events, logs, printed, is_low=True)
    assert 2 <= loops["step"] < sure["step"]
    assert logs[1]["guard/repetition"] == 0 and logs[1]["guard/entropy"] > 2
    assert logs[22]["guard/repetition"] == 1
    assert {event["guard"] for event in events} == {"repetition", "entropy"}
    # Every streak is one line, printed once.
    assert len({(event["guard"], event["since"]) for event in events}) == len(events)
    assert sum(line.startswith("guard ") for line in printed) == len(events)
    # A random model never ends, from the first step on.
    events, logs, printed = watch(
        PAYS_FOR_REPETITION, max_steps=4, max_completion_length=2, guard_no_signal="warn"
    )
    dead = assert_fired("no_signal", events, logs, printed, is_low=True)
    assert [dead] == events and dead["step"] == 2 and "every completion hit 2 " in dead["message"]


def test_a_reward_that_pays_for_length_while_it_falls(watch):
    events, logs, printed = watch(NEVER_ENDS, learning_rate=2e-2)
    assert_fired("length", events, logs, printed)
    assert_fired("eos", events, logs, printed)
    assert "guard/length" not in logs[5] and "guard/eos" not in logs[5]  # the baseline
    assert logs[6]["guard/length"] < 3 and logs[14]["completions/clipped_ratio"] > 0.5
    assert logs[14]["reward"] < logs[1]["reward"]


def test_the_same_rewards_with_a_hundredth_of_the_learning_rate(watch):
    for settings, rate in ((PAYS_FOR_REPETITION, 3e-4), (NEVER_ENDS, 2e-4)):
        events, logs, printed = watch(settings, learning_rate=rate)
        assert not events and not any(line.startswith("guard ") for line in printed)
        last = logs[settings["max_steps"]]
        expected = {"repetition", "entropy", "length", "eos", "weights"}
        assert {key[6:] for key in last if key.startswith("guard/")} == expected
        assert last["guard/weights"] > 0.9 and last["train/masked_completions"] == 0


def test_bfloat16_weights_that_do_not_move(watch):
    events, logs, printed = watch(TINY_STEPS, dtype="bfloat16")
    event = assert_fired("weights", events, logs, printed, is_low=True)
    assert [event] == events and (event["step"], event["since"]) == (2, 0)
    assert 0 < event["value"] < 0.05
    events, logs, _ = watch(TINY_STEPS, dtype="float32")
    assert not events and logs[4]["guard/weights"] > 0.9
    # Weights that are rounded at random keep what they are given: nothing to judge.
    rounded = {"dtype": "bfloat16", "stochastic_rounding": True, "guard_patience": 1}
    events, logs, _ = watch(TINY_STEPS, **rounded)
    assert "weights" not in {event["guard"] for event in events}
    assert all("guard/weights" not in log for log in logs.values())


def test_an_engine_with_stale_weights(watch, monkeypatch):
    from stages.trainer import grpo_trainer as module
    from tests.integration.trainer.own_engine import Engine

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setenv("FORCE", "1")  # the recipe is the same
    trainer, found = module.MathGRPOTrainer, {}
    for is_stale in (True, False):
        engine = partial(trainer, rollout_func=Engine(is_stale))
        monkeypatch.setattr(module, "MathGRPOTrainer", engine)
        found[is_stale] = watch(TWO_STEPS)
    events, logs, printed = found[True]
    event = assert_fired("alignment", events, logs, printed)
    # Right at first, then two steps older at each generation, of which the third in a row fires.
    assert logs[1]["guard/alignment"] == pytest.approx(1, abs=1e-4)
    assert event["since"] in (2, 4) and event["step"] == event["since"] + 4
    events, logs, _ = found[False]
    assert not events
    assert all(log["guard/alignment"] == pytest.approx(1, abs=1e-4) for log in logs.values())


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 1.0),
        ({"rate": 0.0}, None),
        ({"gradient": None}, None),
        ({"gradient": 0.0}, None),
        ({"is_skipped": True}, None),  # by fp16's loss scaling
        ({"is_deepspeed": True}, None),
        ({"actions": {"entropy": "warn"}}, None),
        # Too little to change a weight is not the same as nothing to change it by.
        ({"gradient": 1e-12}, 0.0),
    ],
)
def test_only_a_step_that_should_move_weights_is_judged(changes, share):
    from stages.trainer.guard_actions import GuardActions
    from stages.trainer.guards import GUARDS, GuardSettings

    case = {"rate": 1.0, "gradient": 1.0, "is_skipped": False, "is_deepspeed": False}
    case |= {"actions": {"weights": "warn"}} | changes
    model, seen = torch.nn.Linear(3, 2), []
    trainer = SimpleNamespace(model=model, is_deepspeed_enabled=case["is_deepspeed"])
    settings = dict.fromkeys(GUARDS, "off") | case["actions"]
    watch = GuardActions(trainer, GuardSettings(**settings))
    optimizer = torch.optim.SGD(model.parameters(), lr=case["rate"])
    optimizer.step_was_skipped = case["is_skipped"]
    for _ in range(2):
        if case["gradient"] is not None:
            for weight in model.parameters():
                weight.grad = torch.full_like(weight, case["gradient"])
        watch.on_pre_optimizer_step(None, None, None, model=model, optimizer=optimizer)
        if not case["is_skipped"]:
            optimizer.step()
        watch.on_optimizer_step(None, None, None, model=model, optimizer=optimizer)
        seen.append(watch._moved)
    assert len(seen) == 2
    assert all(math.isnan(moved) if share is None else moved == share for moved in seen)


def test_informative_groups_are_those_of_the_rewards_that_are_paid(train, tiny_model_dir):
    from transformers import AutoTokenizer

    eos = AutoTokenizer.from_pretrained(tiny_model_dir).eos_token_id
    settings = {"max_steps": 3, "guard_no_signal": "warn"}
    settings["generation_kwargs"] = {"sequence_bias": [[[eos], 4.0]]}
    for weight, key in ((1.0, "rollout/uniform_groups"), (0.0, "frac_reward_zero_std")):
        logs = read_logs(train(reward_weights=[weight, weight - 1], **settings))
        found = [log["guard/no_signal"] for log in logs]  # means of all steps so far
        assert found == pytest.approx(
            [1 - sum(log[key] for log in logs[:n]) / n for n in (1, 2, 3)]
        )
        assert weight or any(
            log["frac_reward_zero_std"] != log["rollout/uniform_groups"] for log in logs
        )


# What a guard does


def test_truncated_completions_are_masked_and_counted(train, tiny_model_dir):
    """Not an empty batch's entropy of 0 is low, and what is masked is looked at all the same."""
    from transformers import AutoTokenizer

    eos = AutoTokenizer.from_pretrained(tiny_model_dir).eos_token_id
    settings = {"mask_truncated_completions": True, "guard_entropy": "stop", "guard_patience": 1}
    ends = {"generation_kwargs": {"sequence_bias": [[[eos], 4.0]]}}
    logs = read_logs(train(max_steps=2, **settings, **ends))
    shares = [log["train/masked_completions"] for log in logs]
    assert shares == [log["rollout/cut_off_rate"] for log in logs] and 0 < max(shares) < 1
    assert all(log["guard/entropy"] > 1 for log in logs)

    limits = {"guard_max_repetition": 0.0, "guard_max_repetitive_share": 0.0}
    logs = read_logs(train(max_steps=3, **settings, **limits))
    assert any(log["train/masked_completions"] == 1 for log in logs)
    for log in logs:
        assert ("guard/entropy" in log) == (log["train/masked_completions"] < 1)
    assert max(log["guard/repetition"] for log in logs) > 0


def test_a_step_that_uses_several_generations_is_judged_once(train, monkeypatch):
    """By the first of them."""
    from stages.trainer.guards import Guards

    steps, observe = [], Guards.observe

    def spy(self, step, statistics):
        steps.append([step, statistics["length"]])
        return observe(self, step, statistics)

    monkeypatch.setattr(Guards, "observe", spy)
    batch = {"gradient_accumulation_steps": 2, "steps_per_generation": 1}
    logs = read_logs(train(max_steps=3, **batch))
    assert [step for step, _ in steps] == [0, 1, 2] and len(logs) == 3


def test_what_cannot_work_is_refused_and_off_is_off(built):
    from pipeline.errors import UserError
    from stages.trainer.guard_actions import GuardActions
    from stages.trainer.guards import GUARDS

    trainer = built(guard_length="rollback")
    trainer.args.save_only_model = True
    with pytest.raises(UserError, match=r"^guard_length: .*save_only_model"):
        trainer.train()
    trainer.is_deepspeed_enabled = True
    with pytest.raises(UserError, match=r"^guard_length: .* with DeepSpeed"):
        trainer.train()

    off = {f"guard_{name}": "off" for name in GUARDS}
    trainer = built(**off, guard_repetition_ngram=None, guard_max_repetition=None)
    assert trainer.guard_actions is None and not trainer.extra_state
    assert not any(isinstance(found, GuardActions) for found in trainer.callback_handler.callbacks)


def test_stop_names_the_last_healthy_checkpoint(train, monkeypatch, capsys):
    """At the very last step too; the same command stops at the same place."""
    from pipeline.errors import UserError
    from stages.trainer.guard_actions import GuardActions

    measure = GuardActions._repetition

    def measure_loops(self, batch):
        return measure(self, batch) + (self.trainer.state.global_step >= 4)

    monkeypatch.setattr(GuardActions, "_repetition", measure_loops)
    settings = {"guard_repetition": "stop", "save_steps": 1, "max_steps": 7}
    with pytest.raises(UserError) as caught:
        train(**settings)
    folder = Path(json.loads(Path(sys.argv[-1]).read_text())["output_dir"]).resolve()
    assert str(caught.value).startswith(f"{folder}: stopped by guard repetition: share of ")
    healthy = f"{folder}/checkpoint-3"
    assert str(caught.value).endswith(f"; the last healthy checkpoint is {healthy}")
    (event,) = read_events(folder)
    expected = {"guard": "repetition", "step": 6, "since": 4, "value": 1.0, "action": "stop"}
    assert expected.items() <= event.items() and event["checkpoint"] == healthy
    assert event["message"] in str(caught.value)
    assert not (folder / "manifest.json").exists()

    with pytest.raises(UserError, match="stopped by guard repetition"):
        importlib.import_module("stages.grpo").main()
    assert f"resuming from {folder}/checkpoint-6\n" in capsys.readouterr().out
    assert read_events(folder) == [event, event] and not (folder / "manifest.json").exists()


class Killed(Exception):
    """In place of a signal."""


def faulty(highest_rate, first=5):
    """Guards for which completions are loops from a step on while the learning rate is too high.

    Set `die` to `(place, step)`, and it goes down there.
    """
    from safetensors.torch import load_file

    from stages.trainer.guard_actions import GuardActions

    class Faulty(GuardActions):
        die, returns = None, []

        def _die_at(self, place):
            if Faulty.die == (place, self.trainer.state.global_step):
                Faulty.die = None
                raise Killed

        def _repetition(self, batch):
            self._die_at("generating")
            step = self.trainer.state.global_step
            self.trainer._last_loaded_step = step  # as with vLLM
            is_loop = step >= first and self._rate() > highest_rate
            return super()._repetition(batch) + is_loop

        def _rate(self):
            (rate,) = {group["lr"] for group in self.trainer.optimizer.param_groups}
            return rate

        def _record(self, firing, **details):
            self._die_at("before the line")
            super()._record(firing, **details)
            self._die_at("after the line")

        def load_state_dict(self, state):
            super().load_state_dict(state)  # the last part of a checkpoint to be loaded
            trainer, step = self.trainer, self.trainer.state.global_step
            folder = Path(trainer.args.output_dir) / f"checkpoint-{step}"
            saved, weights = load_file(folder / "model.safetensors"), trainer.model.state_dict()
            assert saved and all((weights[name] == saved[name]).all() for name in saved)
            # vLLM takes new weights where the step is not the one that it has.
            assert getattr(trainer, "_last_loaded_step", -1) == -1
            Faulty.returns.append((step, self._rate()))

    return Faulty


def test_roll_back_lowers_the_learning_rate_and_goes_on(train, capsys, monkeypatch):
    """Twice, without a kill and with kills at the worst places, to the same weights."""
    guards = faulty(highest_rate=3e-4)  # 1e-3, 5e-4, 2.5e-4
    monkeypatch.setattr("stages.trainer.grpo_trainer.GuardActions", guards)
    settings = {"guard_repetition": "rollback", "save_steps": 2, "max_steps": 10}
    settings |= {"curriculum": "predictive", "rest_batches": 1, "report_to": "tensorboard"}
    place = train(**settings)
    straight, printed = place.resolve(), capsys.readouterr().out
    assert guards.returns == [(4, 5e-4), (4, 2.5e-4)]
    events, logs = read_events(straight), read_logs(straight)
    expected = {"guard": "repetition", "step": 7, "since": 5, "value": 1.0, "action": "rollback"}
    expected |= {"checkpoint": f"{straight}/checkpoint-4", "learning_rate_factor": 0.5}
    assert len(events) == 2
    for number, event in enumerate(events, 1):
        assert expected.items() <= event.items() and event["num_rollbacks"] == number
        line = f"guard {event['message']}; back to {straight}/checkpoint-4, learning_rate x 0.5\n"
        assert printed.count(line) == 2
    assert [log["step"] for log in logs] == [*range(1, 11)]
    assert [log["learning_rate"] for log in logs] == [1e-3] * 4 + [2.5e-4] * 6
    assert json.loads((straight / "manifest.json").read_text())["counts"]["steps"] == 10
    assert whole_checkpoints(straight) == [0, 2, 4, 6, 8, 10]
    states = [json.loads(file.read_text()) for file in sorted(straight.glob("*/extra_state.json"))]
    counts = {state["step"]: state["extra"]["guards"]["num_rollbacks"] for state in states}
    assert counts == {0: 0, 2: 0, 4: 0, 6: 2, 8: 2, 10: 2}  # the healthy one is not touched

    killed = place.with_name("killed")
    guards.returns.clear()
    for place, newest in (
        (("generating", 7), 6),
        (("before the line", 8), 4),  # and later checkpoints do not count any more
        (("after the line", 8), 4),  # in the next run, which takes the same roll-back
        (("after the line", 8), 4),  # the second roll-back
        (("generating", 9), 8),
    ):
        guards.die = place
        with pytest.raises(Killed):
            train(**settings, output_dir=str(killed))
        assert whole_checkpoints(killed)[-1] == newest and not (killed / "manifest.json").exists()
    train(**settings, output_dir=str(killed))
    high, low, lowest = 1e-3, 5e-4, 2.5e-4
    returns = [(6, high), (4, high), (4, low), (4, lowest), (8, lowest)]
    assert guards.returns == returns
    assert [event["num_rollbacks"] for event in read_events(killed)] == [1, 2]

    def outcome(folder):
        logs = [without(log, "loss", "step_time") for log in read_logs(folder)]
        return weights_of(folder), read_extra(folder, 10)["extra"], logs

    for found, expected in zip(outcome(killed), outcome(straight), strict=True):
        assert found == expected
    assert outcome(straight)[1]["curriculum"]
    assert steps_of(straight) == steps_of(killed) == [*range(1, 11)]


def test_roll_back_to_the_start_and_no_more_than_allowed(train, monkeypatch):
    """With a factor of 1 the fault comes back; at the second time, or with nothing older, stop."""
    from pipeline.errors import UserError

    settings = {"guard_repetition": "rollback", "guard_rollback_lr_factor": 1.0, "save_steps": 50}
    settings |= {"max_steps": 6, "guard_max_rollbacks": 1, "guard_patience": 2}
    guards = faulty(highest_rate=0, first=1)
    monkeypatch.setattr("stages.trainer.grpo_trainer.GuardActions", guards)
    with pytest.raises(UserError, match=r"guard_max_rollbacks is 1; .* is .*/checkpoint-0$"):
        train(**settings)
    assert guards.returns == [(0, 1e-3)]
    folder = Path(json.loads(Path(sys.argv[-1]).read_text())["output_dir"])
    found = [(e["action"], e["step"], Path(e["checkpoint"]).name) for e in read_events(folder)]
    assert found == [("rollback", 2, "checkpoint-0"), ("stop", 2, "checkpoint-0")]
    assert whole_checkpoints(folder) == [0] and not (folder / "manifest.json").exists()

    guards = faulty(highest_rate=0, first=0)
    monkeypatch.setattr("stages.trainer.grpo_trainer.GuardActions", guards)
    with pytest.raises(UserError, match=r"stopped by guard repetition: .*no healthy checkpoint"):
        train(**settings, seed=1)
    (event,) = read_events(folder)
    assert (event["action"], event["since"], event["checkpoint"]) == ("stop", 0, None)


def see_loops_on_rank_1():
    """Only the second process sees loops, in all of its completions; weights are reported."""
    from stages import rewards
    from stages.trainer import grpo_trainer

    class Faulty(grpo_trainer.GuardActions):
        def _repetition(self, batch):
            own = self.trainer
            is_loop = own.state.global_step >= 3 and own.optimizer.param_groups[0]["lr"] > 1e-4
            return super()._repetition(batch) + (is_loop and own.accelerator.process_index == 1)

    class Reporting(grpo_trainer.MathGRPOTrainer):
        def log(self, logs, *args):
            super().log(logs, *args)
            if "loss" in logs:
                values = [logs["learning_rate"], logs["guard/repetition"]]
                tell("step", self.state.global_step, weights_checksum(self.model), *values)

    rewards.grade_rollouts = grade_by_checksum
    grpo_trainer.GuardActions, grpo_trainer.MathGRPOTrainer = Faulty, Reporting


def test_two_processes_roll_back_together(write_recipe, fork_server):
    settings = {"guard_repetition": "rollback", "guard_rollback_lr_factor": 0.1, "save_steps": 2}
    settings |= {"guard_patience": 2, "max_steps": 6, "curriculum": "predictive"}
    settings |= {"rest_batches": 1, "max_completion_length": 8}
    recipe = write_recipe("grpo", **PAYS_FOR_LOOPS | settings)
    reports = [
        [line.split()[1:] for line in lines if line.startswith("step ")]
        for lines in fork_server.finish(recipe, 2, setup=see_loops_on_rank_1)
    ]
    assert reports[0] == reports[1]  # the weights too
    steps, _, rates, shares = zip(*reports[0], strict=True)
    # Violations at 3 and 4, found at the end of the fifth step, since 3: back to checkpoint-2.
    assert [*map(int, steps)] == [1, 2, 3, 4, 5, 3, 4, 5, 6]
    assert [*map(float, rates)] == [1e-3] * 5 + [pytest.approx(1e-4)] * 4
    assert [*map(float, shares)] == [0, 0, 0, 0.5, 0.5, 0, 0, 0, 0]
    folder = Path(json.loads(Path(recipe).read_text())["output_dir"])
    (event,) = read_events(folder)
    assert (event["action"], event["step"], event["since"]) == ("rollback", 4, 3)
    assert (folder / "manifest.json").is_file()
