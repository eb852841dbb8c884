"""To go into tests/test_grpo_trainer.py."""

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tiny import LETTERS, build_model, build_tokenizer

PROMPT, SHORT, LONG = 5, 6, 48  # tokens


class TestPadPerMinibatch:
    """A generation batch of 4 prompts x 4 completions, of which one is long."""

    def train(self, tmp_path, monkeypatch, never_ends=(), **kwargs):
        """Train one step; returns its log, and input_ids and attention mask of every forward pass."""
        monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        tokenizer = build_tokenizer()
        build_model(tokenizer).save_pretrained(tmp_path / "model")
        forwards = []

        def record(module, args, kwargs):
            forwards.append((kwargs["input_ids"], kwargs["attention_mask"]))

        def rollout_func(prompts, trainer):
            lengths = [LONG if row == 3 else SHORT + row % 3 for row in range(len(prompts))]
            ids = [[(7 * row + 3 * at) % len(LETTERS) for at in range(length)] for row, length in enumerate(lengths)]
            for row, completion in enumerate(ids):
                if row not in never_ends:
                    completion[-1] = tokenizer.eos_token_id
            return {
                "prompt_ids": tokenizer(prompts, add_special_tokens=False)["input_ids"],
                "completion_ids": ids,
                "logprobs": None,
            }

        defaults = dict(
            output_dir=str(tmp_path),
            learning_rate=0.1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            num_generations=4,
            max_completion_length=LONG,
            max_steps=1,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
        )
        training_args = GRPOConfig(**{**defaults, **kwargs})
        trainer = GRPOTrainer(
            model=str(tmp_path / "model"),
            reward_funcs=lambda completion_ids, **kwargs: [float(sum(x) % 7) for x in completion_ids],
            args=training_args,
            train_dataset=Dataset.from_dict({"prompt": ["abcde", "fghij", "klmno", "pqrst"]}),
            processing_class=tokenizer,
            rollout_func=rollout_func,
        )
        for model in (trainer.model, trainer.ref_model):
            if model is not None:
                model.register_forward_pre_hook(record, with_kwargs=True)
        trainer.train()
        return trainer.state.log_history[0], forwards

    @pytest.mark.parametrize("beta", [0.0, 0.1])
    def test_minibatch_is_as_wide_as_its_longest_completion(self, tmp_path, monkeypatch, beta):
        _, forwards = self.train(tmp_path, monkeypatch, beta=beta)
        # Of each forward pass the last column holds a token of some row
        assert all(mask[:, -1].any() for _, mask in forwards)
        widths = [ids.size(1) for ids, _ in forwards]
        assert widths.count(PROMPT + LONG) == (2 if beta else 1)  # the reference model's too
        assert {*widths} - {PROMPT + LONG} <= {PROMPT + SHORT + more for more in range(3)}

    def test_old_logps_are_scored_at_their_own_width(self, tmp_path, monkeypatch):
        # Two optimizer steps on a generation batch: its log-probs are taken before the first
        _, forwards = self.train(
            tmp_path, monkeypatch, gradient_accumulation_steps=4, steps_per_generation=8, max_steps=2
        )
        assert len(forwards) == 16
        assert sum(ids.size(1) == PROMPT + LONG for ids, _ in forwards) == 2

    @pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
    def test_padding_does_not_change_the_step(self, tmp_path, monkeypatch, loss_type):
        kwargs = {"loss_type": loss_type, "beta": 0.1}
        log, _ = self.train(tmp_path, monkeypatch, **kwargs)
        # As wide as ever: a multiple of the longest
        wide, forwards = self.train(tmp_path, monkeypatch, pad_to_multiple_of=64, **kwargs)
        assert {ids.size(1) for ids, _ in forwards} == {2 * 64}
        for key in ("loss", "grad_norm", "kl", "entropy"):
            assert log[key] == pytest.approx(wide[key], rel=1e-4, abs=1e-6), key

    def test_pad_to_multiple_of(self, tmp_path, monkeypatch):
        _, forwards = self.train(tmp_path, monkeypatch, pad_to_multiple_of=8)
        widths = {ids.size(1) for ids, _ in forwards}
        assert widths == {8 + 8, 8 + LONG}  # the short completions have 8 tokens at most

    def test_mask_truncated_completions(self, tmp_path, monkeypatch):
        # The long completion does not end: it is masked, and costs nothing
        log, forwards = self.train(tmp_path, monkeypatch, never_ends=(3,), mask_truncated_completions=True)
        assert max(ids.size(1) for ids, _ in forwards) <= PROMPT + SHORT + 2
        assert torch.isfinite(torch.tensor(log["grad_norm"]))

    def test_all_completions_truncated(self, tmp_path, monkeypatch):
        log, forwards = self.train(tmp_path, monkeypatch, never_ends=range(16), mask_truncated_completions=True)
        assert {ids.size(1) for ids, _ in forwards} == {PROMPT + 1}
        assert log["loss"] == 0.0
