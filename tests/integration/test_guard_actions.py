"""What guards do in real runs: completions are left out of the loss, the run is stopped."""

import copy
import importlib
import json
import math
import sys
from pathlib import Path

import pytest

from tests.integration.guard_runs import building, read_events, read_logs, training

pytestmark = pytest.mark.integration


@pytest.fixture
def train(run_stage, monkeypatch):
    return training(run_stage, monkeypatch)


@pytest.fixture
def built(train, monkeypatch):
    return building(train, monkeypatch)


def test_mask_leaves_completions_out_of_the_loss(train, monkeypatch, capsys):
    import torch

    from stages.trainer.guard_actions import GuardActions
    from stages.trainer.trainer import MathGRPOTrainer

    batches, num_compared, mask = [], 0, GuardActions._mask

    def spy(self, batch, scores, firings):
        masked = mask(self, batch, scores, firings)
        batches.append((batch, masked, scores["repetition"]))
        return masked

    monkeypatch.setattr(GuardActions, "_mask", spy)

    class Spy(MathGRPOTrainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            nonlocal num_compared
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            is_masked = inputs["completion_mask"].sum(dim=1) == 0
            metrics = copy.deepcopy(self._metrics["train"])
            for rows in (is_masked, ~is_masked):
                advantages = torch.where(rows, 1e3, inputs["advantages"])
                other = self._compute_loss(model, inputs | {"advantages": advantages})
                assert torch.equal(other, loss) == (not rows.any() or rows is is_masked)
                num_compared += bool(is_masked.any())
            self._metrics["train"].clear()
            self._metrics["train"].update(metrics)
            return loss

    # One token in twelve that comes twice is enough, in a tenth of the completions.
    limits = {"guard_max_repetition": 0.05, "guard_max_repetitive_share": 0.1, "guard_patience": 2}
    folder = train(Spy, guard_repetition="mask", max_steps=6, learning_rate=1e-5, **limits)
    printed, events, logs = capsys.readouterr().out, read_events(folder), read_logs(folder)
    assert len(batches) == 6 and num_compared
    counts, streak = [], 0
    for (batch, masked, scores), log in zip(batches, logs, strict=True):
        is_bad = scores > 0.05
        assert is_bad.tolist() == [len({*r}) < len(r) for r in batch["completion_ids"].tolist()]
        streak = streak + 1 if is_bad.float().mean() > 0.1 else 0
        is_out = is_bad & (streak >= 2)
        assert torch.equal(masked["completion_mask"].any(dim=1), ~is_out)
        assert torch.equal(masked["completion_mask"][~is_out], batch["completion_mask"][~is_out])
        assert masked["num_items_in_batch"] == masked["completion_mask"].sum()
        for key in batch.keys() - {"completion_mask", "num_items_in_batch"}:
            assert torch.equal(masked[key], batch[key]), key
        assert log["train/masked_completions"] == is_out.float().mean()
        counts.append(int(is_out.sum()))
    assert any(0 < count < 8 for count in counts)
    found = [(e["step"], e["num_masked"], e["guard"], e["action"]) for e in events]
    assert found == [(n, count, "repetition", "mask") for n, count in enumerate(counts) if count]
    # Every masked batch is a line in the file, every streak one on the terminal.
    assert printed.count("guard repetition: ") == len({event["since"] for event in events})
    assert "; completions are left out of the loss while it lasts\n" in printed


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


def test_which_completions_a_guard_objects_to(built):
    import torch

    from stages.trainer.guards import Firing

    trainer = built(guard_length="mask", guard_eos="mask", guard_alignment="mask").guard_actions
    tokenizer = trainer.trainer.processing_class
    pad, eos, word = tokenizer.pad_token_id, tokenizer.eos_token_id, 7
    rows = [[word] * 9, [word] * 8 + [eos], [word] * 7 + [eos, pad], [word, pad, eos] + [pad] * 6]
    mask = torch.tensor([[0] * 9, [1] * 9, [1] * 8 + [0], [1] * 3 + [0] * 6])
    batch = {"completion_ids": torch.tensor(rows), "completion_mask": mask}
    # The first was cut off and TRL has masked it.
    assert [len(ids) for ids in trainer._completions(batch)] == [9, 9, 8, 3]

    def is_bad(guard, value=0.0, **scores):
        firing = Firing(guard, 3, value, 0.0, "mask", 1, "")
        return trainer._is_bad(firing, batch, scores).tolist()

    assert is_bad("eos") == [True, False, False, False]
    scores = torch.tensor([math.inf, 1.06, 1.04, math.nan])
    assert is_bad("alignment", alignment=scores) == [True, True, False, False]
    # Lengths of 8, 12, 16 over a reference of 4: above 2 x 4 tokens is too long.
    state = trainer.guards.state_dict()
    state["length_trace"] = [[step, 4] for step in range(7)] + [[7, 8], [8, 12], [9, 16]]
    trainer.guards.load_state_dict(state)
    assert is_bad("length", value=3.0) == [True, True, False, False]

    firing = Firing("length", 3, 3.0, 2.0, "mask", 1, "length: too long")
    tokens = {"advantages": torch.ones(4), "num_items_in_batch": torch.tensor(20)}
    masked = trainer._mask(batch | tokens, {}, [firing])
    assert masked["completion_mask"].sum(dim=1).tolist() == [0, 0, 8, 3]
    assert masked["num_items_in_batch"] == 11
    (event,) = read_events(Path(trainer.trainer.args.output_dir))
    assert event["num_masked"] == 1  # not the one that was out already
    assert trainer._mask(masked, {}, [firing])["completion_mask"].sum() == 11
    assert len(read_events(Path(trainer.trainer.args.output_dir))) == 1


def test_a_step_that_uses_several_generations_is_judged_once(train, monkeypatch):
    from stages.trainer.guard_actions import GuardActions

    trainers, batches, mask = [], [], GuardActions._mask

    def spy(self, batch, scores, firings):
        trainers.append(self)
        batches.append([self.trainer.state.global_step, [firing.step for firing in firings]])
        return mask(self, batch, scores, firings)

    monkeypatch.setattr(GuardActions, "_mask", spy)
    limits = {"guard_max_repetition": 0.0, "guard_max_repetitive_share": 0.0, "guard_patience": 3}
    settings = {"guard_repetition": "mask", "guard_repetition_ngram": 1, "max_steps": 4}
    batch = {"gradient_accumulation_steps": 2, "steps_per_generation": 1}
    train(**settings, **limits, **batch, reward_weights=[1.0, 0.0])
    state = trainers[0].guards.state_dict()
    assert [step for step, _ in state["length_trace"]] == [0, 1, 2, 3]
    assert [step for step, _ in batches] == [0, 0, 1, 1, 2, 2, 3, 3]
    fired = [found for _, found in batches]
    assert fired[:4] == [[]] * 4  # not before the third step
    assert fired[4::2] == fired[5::2]  # the verdict of a step is that of all its generations


def test_what_cannot_work_is_refused_and_off_is_off(built):
    from data_prep.config import UserError
    from stages.trainer.guard_actions import GuardActions
    from stages.trainer.guards import GUARDS

    trainer = built(guard_length="rollback")
    trainer.args.save_only_model = True
    with pytest.raises(UserError, match=r"^guard_length: rollback needs complete checkpoints"):
        trainer.train()
    trainer.is_deepspeed_enabled = True
    with pytest.raises(UserError, match=r"^guard_length: rollback does not work with DeepSpeed"):
        trainer.train()

    trainer = built(**{f"guard_{name}": "off" for name in GUARDS})
    assert trainer.guard_actions is None and not trainer.extra_state
    assert not any(isinstance(found, GuardActions) for found in trainer.callback_handler.callbacks)


def test_stop_names_the_last_healthy_checkpoint(train, monkeypatch, capsys):
    """At the very last step too; the same command stops at the same place."""
    from data_prep.config import UserError, run_cli
    from stages.trainer.guard_actions import GuardActions

    measure = GuardActions._scores

    def measure_loops(self, batch):
        scores, is_loop = measure(self, batch), self.trainer.state.global_step >= 4
        return scores | {"repetition": scores["repetition"] + is_loop}

    monkeypatch.setattr(GuardActions, "_scores", measure_loops)
    settings = {"guard_repetition": "stop", "save_steps": 1, "max_steps": 7}
    with pytest.raises(UserError) as caught:
        train(**settings)
    folder = Path(json.loads(Path(sys.argv[-1]).read_text())["output_dir"])
    assert str(caught.value).startswith(f"{folder}: stopped by guard repetition: share of ")
    healthy = f"{folder}/checkpoint-3"
    assert str(caught.value).endswith(f"; the last healthy checkpoint is {healthy}")
    (event,) = read_events(folder)
    expected = {"guard": "repetition", "step": 6, "since": 4, "value": 1.0, "action": "stop"}
    assert expected.items() <= event.items() and event["checkpoint"] == healthy
    assert event["message"] in str(caught.value)
    assert not (folder / "manifest.json").exists()

    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        run_cli(importlib.import_module("stages.grpo").main)
    out, err = capsys.readouterr()
    assert left.value.code == 2 and f"error: {caught.value}\n" in err
    assert f"resuming from {folder}/checkpoint-6\n" in out
    assert read_events(folder) == [event, event] and not (folder / "manifest.json").exists()
