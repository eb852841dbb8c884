"""Runs of the GRPO stage for the tests of what guards do, and what such runs leave behind."""

import json

from tests.integration.recorders import grade_by_checksum

# Pays for repetition, so that every step moves the weights; the guard looks at single tokens.
BASE = {
    "reward_funcs": ["correctness_reward", "repetition_penalty"], "reward_weights": [0.0, -1.0],
    "repetition_ngram_size": 1, "guard_repetition_ngram": 1, "lr_scheduler_type": "constant",
    "guard_max_repetition": 0.9,
}  # fmt: skip


def read_events(folder):
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def read_logs(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [log for log in history if "loss" in log]


def whole_checkpoints(folder):
    return sorted(int(p.parent.name[11:]) for p in folder.glob("checkpoint-*/trainer_state.json"))


def training(run_stage, monkeypatch):
    """A function that runs the stage with a subclass of its trainer; returns the output folder."""
    from stages.trainer import trainer as module

    monkeypatch.setattr("stages.rewards.grade_rollouts", grade_by_checksum)

    def call(trainer=module.MathGRPOTrainer, **settings):
        monkeypatch.setattr(module, "MathGRPOTrainer", trainer)
        return run_stage("grpo", **BASE | settings)

    return call


def building(train, monkeypatch):
    """A function that returns the stage's trainer, built and not trained."""
    from stages import run

    def call(**settings):
        found = []
        monkeypatch.setattr(run, "train", lambda trainer, *_: found.append(trainer))
        train(**settings)
        return found[0]

    return call
