"""Each guard fires in a real run that is built to break, and not in the same run without the fault.

The limits are the defaults. What is asserted holds for other seeds too; the exact steps do not.
"""

import json
import math
from functools import partial
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.integration

PAYS_FOR_REPETITION = {
    "reward_funcs": ["repetition_penalty"], "reward_weights": [-1.0], "repetition_ngram_size": 1,
    "max_completion_length": 24, "max_steps": 22,
}  # fmt: skip
NEVER_ENDS = {
    "reward_funcs": ["pays_for_length"], "reward_weights": [1.0], "max_completion_length": 64,
    "max_steps": 14, "per_device_train_batch_size": 24, "num_generations": 12,
}  # fmt: skip
# A small learning rate that moves all of float32 and next to nothing of bfloat16.
TINY_STEPS = PAYS_FOR_REPETITION | {"learning_rate": 5e-7, "max_steps": 4}
# Two steps share a generation, so that TRL keeps its own log-probs of the sampled tokens.
TWO_STEPS = PAYS_FOR_REPETITION | {
    "learning_rate": 3e-2, "max_steps": 12, "per_device_train_batch_size": 4,
    "steps_per_generation": 2, "gradient_accumulation_steps": 1,
}  # fmt: skip


def pays_for_length(completion_ids, trainer_state, **_):
    """Longer is better in every group, and every step is worse than the one before."""
    return [len(ids) / 64 - trainer_state.global_step for ids in completion_ids]


@pytest.fixture
def train(run_stage, monkeypatch, tiny_model_dir, capsys):
    """Run the stage; returns events, logs by step and printed lines."""
    from transformers import AutoTokenizer

    from stages import arguments as reward_arguments
    from stages import rewards

    monkeypatch.setitem(rewards.REWARDS, "pays_for_length", pays_for_length)
    known = (*reward_arguments.REWARD_FUNCS, "pays_for_length")
    monkeypatch.setattr(reward_arguments, "REWARD_FUNCS", known)
    eos = AutoTokenizer.from_pretrained(tiny_model_dir).eos_token_id

    def call(settings, **changes):
        settings = {"lr_scheduler_type": "constant", "save_strategy": "no"} | settings | changes
        if settings["reward_funcs"] == ["pays_for_length"]:
            # The random model hardly ever ends; sampled like this it does, after ten tokens or so.
            settings["generation_kwargs"] = {"sequence_bias": [[[eos], 4.0]]}
        folder = run_stage("grpo", **settings)
        path = folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.is_file() else []
        history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
        logs = {log["step"]: log for log in history if "loss" in log}
        assert len(logs) == settings["max_steps"]
        return [json.loads(line) for line in lines], logs, capsys.readouterr().out.splitlines()

    return call


def assert_fired(guard, events, logs, printed, is_low=False):
    """The first line of a guard is complete, was printed and is what was logged."""
    event = next(event for event in events if event["guard"] == guard)
    keys = ["guard", "step", "value", "limit", "action", "since", "message"]
    assert list(event) == keys and event["action"] == "warn"
    assert (event["value"] < event["limit"]) == is_low and event["value"] != event["limit"]
    assert event["since"] <= event["step"] - 2  # the third violating step in a row
    assert event["message"].startswith(f"{guard}: ")
    assert f"guard {event['message']}" in printed
    # A log carries the number of steps taken, an event the step that it is about, from 0.
    assert logs[event["step"] + 1][f"guard/{guard}"] == event["value"]
    return event


def test_a_reward_that_pays_for_repetition(train):
    """And in the end for one token over and over, without a doubt: the entropy is gone too."""
    events, logs, printed = train(PAYS_FOR_REPETITION, learning_rate=3e-2)
    loops = assert_fired("repetition", events, logs, printed)
    sure = assert_fired("entropy", events, logs, printed, is_low=True)
    assert 2 <= loops["step"] < sure["step"]
    assert logs[1]["guard/repetition"] == 0 and logs[1]["guard/entropy"] > 2
    assert logs[22]["guard/repetition"] == 1
    assert {event["guard"] for event in events} == {"repetition", "entropy"}
    # Every streak is one line, printed once.
    assert len({(event["guard"], event["since"]) for event in events}) == len(events)
    assert sum(line.startswith("guard ") for line in printed) == len(events)


def test_a_reward_that_pays_for_length_while_it_falls(train):
    events, logs, printed = train(NEVER_ENDS, learning_rate=2e-2)
    assert_fired("length", events, logs, printed)
    assert_fired("eos", events, logs, printed)
    assert "guard/length" not in logs[5] and "guard/eos" not in logs[5]  # the baseline
    assert logs[6]["guard/length"] < 3 and logs[14]["completions/clipped_ratio"] > 0.5
    assert logs[14]["reward"] < logs[1]["reward"]


def test_the_same_rewards_with_a_hundredth_of_the_learning_rate(train):
    for settings, rate in ((PAYS_FOR_REPETITION, 3e-4), (NEVER_ENDS, 2e-4)):
        events, logs, printed = train(settings, learning_rate=rate)
        assert not events and not any(line.startswith("guard ") for line in printed)
        last = logs[settings["max_steps"]]
        expected = {"repetition", "entropy", "length", "eos", "weights"}
        assert {key[6:] for key in last if key.startswith("guard/")} == expected
        assert last["guard/weights"] > 0.9 and last["train/masked_completions"] == 0


def test_bfloat16_weights_that_do_not_move(train):
    events, logs, printed = train(TINY_STEPS, dtype="bfloat16")
    event = assert_fired("weights", events, logs, printed, is_low=True)
    assert [event] == events and (event["step"], event["since"]) == (2, 0)
    assert 0 < event["value"] < 0.05
    events, logs, _ = train(TINY_STEPS, dtype="float32")
    assert not events and logs[4]["guard/weights"] > 0.9


def test_an_engine_with_stale_weights(train, monkeypatch):
    from benchmarks.engine import Engine
    from stages.trainer import trainer as module

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trainer, found = module.MathGRPOTrainer, {}
    for is_stale in (True, False):
        engine = partial(trainer, rollout_func=Engine(is_stale))
        monkeypatch.setattr(module, "MathGRPOTrainer", engine)
        found[is_stale] = train(TWO_STEPS)
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
    import torch

    from stages.trainer.guard_actions import GuardActions
    from stages.trainer.guards import GUARDS, Guards, GuardSettings

    case = {"rate": 1.0, "gradient": 1.0, "is_skipped": False, "is_deepspeed": False}
    case |= {"actions": {"weights": "warn"}} | changes
    model, seen = torch.nn.Linear(3, 2), []
    trainer = SimpleNamespace(
        model=model,
        is_deepspeed_enabled=case["is_deepspeed"],
        accelerator=SimpleNamespace(optimizer_step_was_skipped=case["is_skipped"]),
    )
    settings = dict.fromkeys(GUARDS, "off") | case["actions"]
    watch = GuardActions(trainer, Guards(GuardSettings(**settings)), 0.5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=case["rate"])
    watch.on_train_begin(None, None, None)
    for _ in range(2):
        if case["gradient"] is not None:
            for weight in model.parameters():
                weight.grad = torch.full_like(weight, case["gradient"])
        watch.on_pre_optimizer_step(None, None, None, optimizer=optimizer)
        if not case["is_skipped"]:
            optimizer.step()
        watch.on_optimizer_step(None, None, None, model=model)
        seen.append(watch._moved)
    assert len(seen) == 2
    assert all(math.isnan(moved) if share is None else moved == share for moved in seen)
