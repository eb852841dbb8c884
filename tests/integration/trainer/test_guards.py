"""Guards in real runs: what they measure and what fires; stop and roll-back do what they say."""

import json
import math
from pathlib import Path

import pytest
from safetensors.torch import load_file

from pipeline.errors import UserError
from stages import grpo, rewards
from stages.trainer import grpo_trainer
from stages.trainer.guard_actions import GuardActions
from stages.trainer.guards import Guards
from tests.integration.trainer.runs import (
    PAYS_FOR_LOOPS,
    grade_by_checksum,
    read_events,
    read_extra,
    read_logs,
    reporting,
    reports_of,
    steps_of,
    weights_of,
    whole_checkpoints,
    without,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def train(run_stage, graded_by_chance):
    """Run the stage; returns the output folder."""

    def call(**settings):
        return run_stage("grpo", **PAYS_FOR_LOOPS | settings)

    return call


@pytest.fixture
def ends(tiny_model_dir):
    """Settings with which the random model ends some of its completions."""
    from transformers import AutoTokenizer

    eos = AutoTokenizer.from_pretrained(tiny_model_dir).eos_token_id
    return {"generation_kwargs": {"sequence_bias": [[[eos], 4.0]]}}


# What a guard measures


@pytest.fixture
def observed(monkeypatch):
    """Step and statistics of each call of `Guards.observe`."""
    found, observe = [], Guards.observe

    def spy(self, step, statistics):
        found.append((step, dict(statistics)))
        return observe(self, step, statistics)

    monkeypatch.setattr(Guards, "observe", spy)
    return found


METRICS = {
    "length": "completions/mean_length", "cut_off_rate": "rollout/cut_off_rate",
    "reward": "reward", "entropy": "entropy", "no_answer": "rollout/verdict/no_answer",
}  # fmt: skip


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_the_statistics_are_those_of_the_log(train, ends, observed, weight):
    """Informative groups are those of the rewards that are paid."""
    weights = {"reward_weights": [weight, -1.0], "guard_no_signal": "warn"}
    logs = read_logs(train(max_steps=3, mask_truncated_completions=True, **weights, **ends))
    assert [step for step, _ in observed] == [0, 1, 2]
    for (_, found), log in zip(observed, logs, strict=True):
        for name, metric in METRICS.items():
            assert found[name] == pytest.approx(log[metric]), name
        uniform = log["rollout/uniform_groups" if weight else "frac_reward_zero_std"]
        assert found["signal"] == pytest.approx(1 - uniform)
        assert found.get("correctness") == (log["rollout/correctness"] if weight else None)
        assert (found["max_length"], found["num_groups"]) == (12, 2)
        if not math.isnan(found["moved_share"]):  # of a step with a gradient
            assert found["moved_share"] == log["guard/weights"] > 0.9
        assert log["train/masked_completions"] == log["rollout/cut_off_rate"]
    assert 0 < max(found["cut_off_rate"] for _, found in observed) < 1
    assert any(log["frac_reward_zero_std"] != log["rollout/uniform_groups"] for log in logs)


def test_a_batch_that_is_masked_has_repetition_and_no_entropy(train):
    settings = {"mask_truncated_completions": True, "guard_entropy": "stop", "guard_patience": 1}
    settings |= {"guard_max_repetition": 0.0, "guard_max_repetitive_share": 0.0}
    logs = read_logs(train(max_steps=3, **settings))
    assert any(log["train/masked_completions"] == 1 for log in logs)
    for log in logs:
        assert ("guard/entropy" in log) == (log["train/masked_completions"] < 1)
    assert max(log["guard/repetition"] for log in logs) > 0


def test_a_step_that_uses_several_generations_is_judged_by_the_first(
    train, ends, observed, monkeypatch
):
    lengths, measure = [], GuardActions.measure_batch

    def spy(self, batch, num_logged):
        lengths.append(self.trainer._metrics["train"]["completions/mean_length"][-1])
        return measure(self, batch, num_logged)

    monkeypatch.setattr(GuardActions, "measure_batch", spy)
    train(max_steps=3, gradient_accumulation_steps=2, steps_per_generation=1, **ends)
    assert lengths[::2] != lengths[1::2]
    assert [found["length"] for _, found in observed] == lengths[::2]


# What a guard does


def test_a_reward_that_pays_for_repetition_is_told_of(train, capsys):
    """And in the end one token over and over, without a doubt: the entropy is gone too.

    With the default limits. Whether so short a run drifts so far depends on its samples; these do.
    """
    folder = train(
        reward_funcs=["repetition_penalty"], reward_weights=[-1.0], guard_repetition_ngram=8,
        guard_max_repetition=0.5, max_completion_length=24, max_steps=22, learning_rate=3e-2,
        save_strategy="no", fast_generation=False,
    )  # fmt: skip
    printed, logs, events = capsys.readouterr().out, read_logs(folder), read_events(folder)
    assert logs[0]["guard/repetition"] == 0 and logs[0]["guard/entropy"] > 2
    assert logs[-1]["guard/repetition"] == 1
    assert [*dict.fromkeys(event["guard"] for event in events)] == ["repetition", "entropy"]
    for event in events:
        assert event["action"] == "warn" and event["message"].startswith(f"{event['guard']}: ")
        assert printed.count(f"guard {event['message']}\n") == 1
        assert event["since"] <= event["step"] - 2  # the third violating step in a row
        # A log carries the number of steps taken, an event the step that it is about, from 0.
        (log,) = (log for log in logs if log["step"] == event["step"] + 1)
        assert log[f"guard/{event['guard']}"] == event["value"]


def test_stop_names_the_last_healthy_checkpoint(train, monkeypatch, capsys, tmp_path):
    """At the very last step too; the same command stops at the same place."""
    measure = GuardActions._repetition

    def measure_loops(self, batch):
        return measure(self, batch) + (self.trainer.state.global_step >= 4)

    monkeypatch.setattr(GuardActions, "_repetition", measure_loops)
    settings = {"guard_repetition": "stop", "save_steps": 1, "max_steps": 7}
    with pytest.raises(UserError) as caught:
        train(**settings)
    folder = (tmp_path / "grpo").resolve()
    assert str(caught.value).startswith(f"{folder}: stopped by guard repetition: share of ")
    healthy = f"{folder}/checkpoint-3"
    assert str(caught.value).endswith(f"; the last healthy checkpoint is {healthy}")
    (event,) = read_events(folder)
    expected = {"guard": "repetition", "step": 6, "since": 4, "value": 1.0, "action": "stop"}
    assert expected.items() <= event.items() and event["checkpoint"] == healthy
    assert event["message"] in str(caught.value)
    assert not (folder / "manifest.json").exists()

    with pytest.raises(UserError, match="stopped by guard repetition"):
        grpo.main()
    assert f"resuming from {folder}/checkpoint-6\n" in capsys.readouterr().out
    assert read_events(folder) == [event, event] and not (folder / "manifest.json").exists()


class Killed(Exception):
    """In place of a signal."""


def faulty(highest_rate, first=5):
    """Guards for which completions are loops from a step on while the learning rate is too high.

    Set `die` to `(place, step)`, and it goes down there.
    """

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
    returns = [(4, 1e-3), (4, 5e-4), (4, 2.5e-4), (8, 2.5e-4)]
    assert guards.returns == returns
    assert [event["num_rollbacks"] for event in read_events(killed)] == [1, 2]

    def outcome(folder):
        logs = [without(log, "loss", "step_time") for log in read_logs(folder)]
        return weights_of(folder), read_extra(folder, 10)["extra"], logs

    for found, expected in zip(outcome(killed), outcome(straight), strict=True):
        assert found == expected
    assert outcome(straight)[1]["curriculum"]
    assert steps_of(straight) == steps_of(killed) == [*range(1, 11)]


def test_roll_back_to_the_start_and_no_more_than_allowed(train, monkeypatch, tmp_path):
    """With a factor of 1 the fault comes back; at the second time, or with nothing older, stop."""
    settings = {"guard_repetition": "rollback", "guard_rollback_lr_factor": 1.0, "save_steps": 50}
    settings |= {"max_steps": 6, "guard_max_rollbacks": 1, "guard_patience": 2}
    guards = faulty(highest_rate=0, first=1)
    monkeypatch.setattr("stages.trainer.grpo_trainer.GuardActions", guards)
    with pytest.raises(UserError, match=r"guard_max_rollbacks is 1; .* is .*/checkpoint-0$"):
        train(**settings)
    assert guards.returns == [(0, 1e-3)]
    folder = tmp_path / "grpo"
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

    class Faulty(grpo_trainer.GuardActions):
        def _repetition(self, batch):
            own = self.trainer
            is_loop = own.state.global_step >= 3 and own.optimizer.param_groups[0]["lr"] > 1e-4
            return super()._repetition(batch) + (is_loop and own.accelerator.process_index == 1)

    rewards.grade_rollouts = grade_by_checksum
    grpo_trainer.GuardActions = Faulty
    keys = "learning_rate", "guard/repetition"
    grpo_trainer.MathGRPOTrainer = reporting(grpo_trainer.MathGRPOTrainer, *keys)


def test_two_processes_roll_back_together(write_recipe, fork_server):
    settings = {"guard_repetition": "rollback", "guard_rollback_lr_factor": 0.1, "save_steps": 2}
    settings |= {"guard_patience": 2, "max_steps": 6, "curriculum": "predictive"}
    settings |= {"rest_batches": 1, "max_completion_length": 8}
    recipe = write_recipe("grpo", **PAYS_FOR_LOOPS | settings)
    reports = reports_of(fork_server.finish(recipe, 2, setup=see_loops_on_rank_1))
    assert reports[0] == reports[1]  # the weights too
    steps, _, rates, shares = zip(*reports[0], strict=True)
    # Violations at 3 and 4, found at the end of the fifth step, since 3: back to checkpoint-2.
    assert steps == (1, 2, 3, 4, 5, 3, 4, 5, 6)
    assert [*rates] == [1e-3] * 5 + [pytest.approx(1e-4)] * 4
    assert shares == (0, 0, 0, 0.5, 0.5, 0, 0, 0, 0)
    folder = recipe.with_name("grpo")
    (event,) = read_events(folder)
    assert (event["action"], event["step"], event["since"]) == ("rollback", 4, 3)
    assert (folder / "manifest.json").is_file()
