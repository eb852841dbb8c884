"""A guard that rolls back: to which weights, with which learning rate, after kills, together.

The fault that it finds is scripted, so that steps and figures are known.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.integration.guard_runs import (
    BASE,
    building,
    read_events,
    read_logs,
    training,
    whole_checkpoints,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def train(run_stage, monkeypatch):
    return training(run_stage, monkeypatch)


@pytest.fixture
def built(train, monkeypatch):
    return building(train, monkeypatch)


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

        def _scores(self, batch):
            self._die_at("generating")
            scores = super()._scores(batch)
            step = self.trainer.state.global_step
            self.trainer._last_loaded_step = step  # as with vLLM
            is_loop = step >= first and self._rate() > highest_rate
            return scores | {"repetition": scores["repetition"] + is_loop}

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


def use(monkeypatch, actions):
    """Let the trainer have these guards; returns what it had."""
    from stages.trainer import trainer

    had = trainer.GuardActions
    monkeypatch.setattr(trainer, "GuardActions", actions)
    return had


def test_roll_back_lowers_the_learning_rate_and_goes_on(train, capsys, monkeypatch):
    """Twice, without a kill and with kills at the worst places, to the same weights."""
    guards = faulty(highest_rate=3e-4)  # 1e-3, 5e-4, 2.5e-4
    original = use(monkeypatch, guards)
    settings = {"guard_repetition": "rollback", "save_steps": 2, "max_steps": 10}
    settings |= {"curriculum": "predictive", "rest_batches": 1}
    straight = train(**settings)
    printed = capsys.readouterr().out
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

    killed = straight.with_name("killed")
    guards.returns.clear()
    for place, newest in (
        (("generating", 7), 6),
        (("before the line", 8), 4),  # and later checkpoints do not count any more
        (("after the line", 8), 4),  # in the next run, which takes the same roll-back
        (("after the line", 8), 4),  # the second roll-back
        (("generating", 7), 6),
        (("generating", 9), 8),
    ):
        guards.die = place
        with pytest.raises(Killed):
            train(**settings, output_dir=str(killed))
        assert whole_checkpoints(killed)[-1] == newest and not (killed / "manifest.json").exists()
    train(**settings, output_dir=str(killed))
    high, low, lowest = 1e-3, 5e-4, 2.5e-4
    returns = [(6, high), (4, high), (4, low), (4, lowest), (6, lowest), (8, lowest)]
    assert guards.returns == returns
    assert [event["num_rollbacks"] for event in read_events(killed)] == [1, 2]

    def outcome(folder):
        extra = json.loads((folder / "checkpoint-10/extra_state.json").read_text())["extra"]
        logs = [
            {key: log[key] for key in log if key not in ("loss", "step_time")}
            for log in read_logs(folder)
        ]
        return (folder / "model.safetensors").read_bytes(), extra, logs

    for found, expected in zip(outcome(killed), outcome(straight), strict=True):
        assert found == expected
    assert outcome(straight)[1]["curriculum"]
    use(monkeypatch, original)
    healthy = train(**settings, output_dir=str(straight.with_name("healthy")))
    assert outcome(healthy)[0] != outcome(straight)[0] and not read_events(healthy)


def test_roll_back_to_the_start_and_no_more_than_allowed(train, monkeypatch):
    """With a factor of 1 the fault comes back; at the second time, or with nothing older, stop."""
    from data_prep.config import UserError

    settings = {"guard_repetition": "rollback", "guard_rollback_lr_factor": 1.0, "save_steps": 50}
    settings |= {"max_steps": 6, "guard_max_rollbacks": 1, "guard_patience": 2}
    guards = faulty(highest_rate=0, first=1)
    use(monkeypatch, guards)
    with pytest.raises(UserError, match=r"guard_max_rollbacks is 1; .* is .*/checkpoint-0$"):
        train(**settings)
    assert guards.returns == [(0, 1e-3)]
    folder = Path(json.loads(Path(sys.argv[-1]).read_text())["output_dir"])
    found = [(e["action"], e["step"], Path(e["checkpoint"]).name) for e in read_events(folder)]
    assert found == [("rollback", 2, "checkpoint-0"), ("stop", 2, "checkpoint-0")]
    assert whole_checkpoints(folder) == [0] and not (folder / "manifest.json").exists()

    use(monkeypatch, faulty(highest_rate=0, first=0))
    with pytest.raises(UserError, match=r"stopped by guard repetition: .*no healthy checkpoint"):
        train(**settings, seed=1)
    (event,) = read_events(folder)
    assert (event["action"], event["since"], event["checkpoint"]) == ("stop", 0, None)


def test_of_several_the_one_that_looks_back_furthest(built):
    from stages.trainer.guards import Firing

    trainer = built(guard_length="rollback", guard_eos="rollback", guard_entropy="stop")
    guards, folder = trainer.guard_actions, Path(trainer.args.output_dir)
    for step in (3, 6):
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir()
        (checkpoint / "trainer_state.json").write_text("{}")

    def end(*pending):
        control = SimpleNamespace(should_training_stop=True, should_save=True)  # the last step
        guards._pending = [Firing(n, 9, 1.0, 0.0, does, since, "") for n, does, since in pending]
        guards.on_step_end(None, None, control)
        return control

    control = end(("eos", "rollback", 7), ("length", "rollback", 5), ("entropy", "warn", 2))
    assert control.should_training_stop and not control.should_save
    assert guards.rollback_to == f"{folder}/checkpoint-3"
    found = [(event["guard"], event["action"]) for event in read_events(folder)]
    assert found == [("entropy", "warn"), ("length", "rollback")]
    assert whole_checkpoints(folder) == [3]


TWO_PROCESSES = """
import os, torch
from data_prep.config import run_cli
from tests.integration.recorders import grade_by_checksum
from stages import grpo, rewards
from stages.trainer import trainer

class Faulty(trainer.GuardActions):
    def _scores(self, batch):
        scores, own = super()._scores(batch), self.trainer
        # Only the other process sees loops, in all of its completions.
        is_loop = own.state.global_step >= 3 and own.optimizer.param_groups[0]["lr"] > 1e-4
        if is_loop and own.accelerator.process_index == 1:
            scores["repetition"] = scores["repetition"] + 1
        return scores

trainer.GuardActions = Faulty

class Reporting(trainer.MathGRPOTrainer):
    def log(self, logs, *args):
        super().log(logs, *args)
        if "loss" in logs:
            weights = torch.cat([p.detach().flatten() for p in self.model.parameters()])
            checksum = weights.view(torch.int32).to(torch.int64)
            checksum = (checksum * torch.arange(1, len(checksum) + 1)).sum().item()
            print("step", self.state.global_step, checksum, logs["learning_rate"],
                  logs["guard/repetition"], flush=True)

rewards.grade_rollouts = grade_by_checksum
trainer.MathGRPOTrainer = Reporting
run_cli(grpo.main)
"""


def test_two_processes_roll_back_together(write_recipe, run_two_processes):
    settings = {"guard_repetition": "rollback", "guard_rollback_lr_factor": 0.1, "save_steps": 2}
    settings |= {"guard_patience": 2, "max_steps": 6, "curriculum": "predictive"}
    settings |= {"rest_batches": 1, "max_completion_length": 8}
    recipe = write_recipe("grpo", **BASE | settings)
    reports = [
        [line.split()[1:] for line in lines if line.startswith("step ")]
        for lines in run_two_processes(TWO_PROCESSES, "--config", recipe)
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
