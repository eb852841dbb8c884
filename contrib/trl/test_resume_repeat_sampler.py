"""The first class goes into tests/test_utils.py, the second into tests/test_grpo_trainer.py."""

import pytest
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.trainer.utils import RepeatSampler

from tiny import LETTERS, build_model, build_tokenizer


class TestRepeatSamplerEpoch:
    def test_order_of_an_epoch_is_that_of_an_uninterrupted_run(self):
        stock = RepeatSampler(range(20), mini_repeat_count=2, batch_size=4, seed=3)
        epochs = [list(stock) for _ in range(3)]  # a permutation after the other
        assert epochs[0] != epochs[1] != epochs[2]
        for epoch, expected in enumerate(epochs):
            resumed = RepeatSampler(
                range(20), mini_repeat_count=2, batch_size=4, seed=3, get_epoch=lambda epoch=epoch: epoch
            )
            assert list(resumed) == list(resumed) == expected

    def test_without_a_seed(self):
        sampler = RepeatSampler(range(20), mini_repeat_count=2, get_epoch=lambda: 1)
        assert list(sampler) == list(sampler)


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


class TestResumeInLaterEpoch:
    """8 prompts, 2 a step: epochs of 4 steps."""

    def train(self, kind, folder, stop_at=None, resume=None):
        """Train; returns the prompts of each step."""
        tokenizer = build_tokenizer()
        model = str(folder / "model")
        build_model(tokenizer).save_pretrained(model)
        seen = []

        def reward(prompts, completions, **kwargs):
            seen.append(sorted(set(prompts)))
            return [float(len(set(completion))) for completion in completions]

        config, trainer = {"grpo": (GRPOConfig, GRPOTrainer), "rloo": (RLOOConfig, RLOOTrainer)}[kind]
        training_args = config(
            output_dir=str(folder),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=4,
            num_train_epochs=3,
            save_steps=1,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
        )
        trainer = trainer(
            model=model,
            reward_funcs=reward,
            args=training_args,
            train_dataset=Dataset.from_dict({"prompt": [letter * 3 for letter in LETTERS[:8]]}),
            processing_class=tokenizer,
            callbacks=[StopAt(stop_at)],
        )
        trainer.train(resume_from_checkpoint=resume)
        return seen

    @pytest.mark.parametrize("kind", ["grpo", "rloo"])
    @pytest.mark.parametrize("step", [2, 6, 8])  # inside epoch 0, inside epoch 1, behind it
    def test_resumed_run_sees_the_prompts_of_an_uninterrupted_one(self, kind, step, tmp_path):
        expected = self.train(kind, tmp_path / "whole")
        assert len(expected) == 12 and expected[:4] != expected[4:8] != expected[8:]
        first = self.train(kind, tmp_path / "cut", stop_at=step)
        rest = self.train(kind, tmp_path / "cut", resume=str(tmp_path / f"cut/checkpoint-{step}"))
        assert first + rest == expected
