"""Contract: what TRL's trainer is given, generates, keeps and calls, in real runs of it."""

import inspect

import pytest
import torch
from trl import GRPOTrainer

from stages.trainer import trainer as module
from stages.trainer.rollouts import advantages, sum_rewards

pytestmark = pytest.mark.integration


def test_sft_trainer_reads_tokenized_rows_with_a_mask(tiny_model_dir, tmp_path):
    """`completion_mask` counts only when the loss is told to be on the completion."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = [{"input_ids": [5, 6, 7, 8], "completion_mask": [0, 0, 1, 1]}]

    def labels(completion_only_loss):
        config = SFTConfig(
            output_dir=str(tmp_path),
            completion_only_loss=completion_only_loss,
            use_cpu=True,
            bf16=False,
            report_to="none",
        )
        trainer = SFTTrainer(str(tiny_model_dir), config, train_dataset=Dataset.from_list(rows))
        return trainer.train_dataset[0]["labels"]

    assert labels(True) == [-100, -100, 7, 8]
    assert labels(None) == [5, 6, 7, 8]  # why stages.sft sets it


@pytest.mark.parametrize("kind", ["group", "none", "batch"])
def test_advantages_equal_trls_to_the_last_bit(run_stage, monkeypatch, kind):
    """What TRL computes with `scale_rewards`, for groups of every sort and unscored completions."""
    seen = {}
    calculate = GRPOTrainer._calculate_rewards
    generate_and_score = GRPOTrainer._generate_and_score_completions

    def draw_rewards(self, *args):
        shape = calculate(self, *args).shape  # (24, 3)
        generator = torch.Generator().manual_seed(0)
        rewards = torch.randn(shape, generator=generator)
        rewards[4:8] = 0.7  # a group without variance
        rewards[[8, 9, 13, 14, 15, 16, 17, 18, 19]] = torch.nan  # two scored, one, none
        rewards[20, 1:] = torch.nan
        seen["rewards"] = sum_rewards(rewards, self.reward_weights)
        return rewards

    def keep_output(self, inputs):
        output = generate_and_score(self, inputs)
        seen["advantages"] = output["advantages"]
        return output

    monkeypatch.setattr(GRPOTrainer, "_calculate_rewards", draw_rewards)
    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", keep_output)
    settings = {"per_device_train_batch_size": 24, "max_steps": 1, "max_completion_length": 2}
    run_stage("grpo", scale_rewards=kind, **settings)
    found = advantages(kind, seen["rewards"], 4)
    assert torch.equal(found, seen["advantages"])
    assert found.count_nonzero() == 10


def stock(**kwargs):
    """TRL's own trainer, from what the stage gives ours."""
    known = inspect.signature(GRPOTrainer).parameters
    trainer = GRPOTrainer(**{key: value for key, value in kwargs.items() if key in known})
    trainer.num_completions = None  # for the stage's manifest
    return trainer


ALWAYS = {
    "prompt_ids": ("int64", "BP"), "prompt_mask": ("int64", "BP"),
    "completion_ids": ("int64", "BC"), "completion_mask": ("int64", "BC"),
    "advantages": ("float32", "B"), "num_items_in_batch": ("int64", ""),
}  # fmt: skip
OLD, REFERENCE = ({f"{name}_per_token_logps": ("float32", "BC")} for name in ("old", "ref"))


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({"scale_rewards": "none"}, {}),
        ({"beta": 0.1, "gradient_accumulation_steps": 2}, REFERENCE),
        ({"beta": 0.1, "steps_per_generation": 2}, OLD | REFERENCE),
        ({"num_iterations": 2, "scale_rewards": "batch"}, OLD),
    ],
)
def test_a_generation_batch(run_stage, monkeypatch, settings, more):
    """Keys, types and shapes; the table of completions; one value for each metric."""
    score, seen = GRPOTrainer._generate_and_score_completions, []

    def spy(self, inputs):
        before = {name: len(values) for name, values in self._metrics["train"].items()}
        output = score(self, inputs)
        added = {
            name: len(values) - before.get(name, 0)
            for name, values in self._metrics["train"].items()
        }
        seen.append((self, inputs, output, added))
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    monkeypatch.setattr(module, "MathGRPOTrainer", stock)
    run_stage("grpo", **settings, max_completion_length=8, log_completions=True,
              num_completions_to_print=0)  # fmt: skip
    for trainer, inputs, output, added in seen:
        assert trainer.model.training and type(inputs) is list and type(inputs[0]) is dict
        assert {*inputs[0]} == {"id", "prompt", "answers", "answer_form"}
        assert trainer.train_dataset["id"][:3] == [f"synthetic-rl-{n}" for n in range(3)]
        args = trainer.args
        num = args.per_device_train_batch_size * args.steps_per_generation
        sizes = {"B": num, "P": output["prompt_ids"].size(1)}
        sizes["C"] = output["completion_ids"].size(1)
        shapes = {key: (str(x.dtype)[6:], [*x.shape]) for key, x in output.items()}
        known = ALWAYS | more
        assert shapes == {key: (t, [sizes[axis] for axis in s]) for key, (t, s) in known.items()}
        assert output["num_items_in_batch"] == output["completion_mask"].sum()

        tokenizer = trainer._tokenizer
        prompts, *_ = trainer._tokenize_prompts([row["prompt"] for row in inputs])
        for n, ids in enumerate(prompts):
            pad = [tokenizer.pad_token_id] * (sizes["P"] - len(ids))
            assert output["prompt_ids"][n].tolist() == pad + ids
            assert output["prompt_mask"][n].tolist() == [0] * len(pad) + [1] * len(ids)
            mask = output["completion_mask"][n].bool()
            assert not (mask[1:] & ~mask[:-1]).any() and mask[0]
            assert (output["completion_ids"][n][~mask] == tokenizer.pad_token_id).all()
        assert tokenizer.eos_token_id in trainer.eos_token_ids
        assert trainer.num_generations == trainer.num_generations_eval == 4
        assert trainer.reward_weights.tolist() == [1.0, 0.5, 1.0]
        assert trainer.reward_func_names == [
            "correctness_reward", "think_format_reward", "soft_length_penalty",
        ]  # fmt: skip
        assert trainer.scale_rewards == settings.get("scale_rewards", "group")
        assert args.generation_batch_size == num * args.world_size
        for name in (
            "reward", "frac_reward_zero_std", "completions/mean_length",
            "completions/clipped_ratio", "rewards/correctness_reward/mean",
            "rollout/verdict/wrong",
        ):  # fmt: skip
            assert added[name] == 1, name
        assert len(trainer._metrics["train"].get("num_tokens", [0])) == 1

    # The table is that of the last batch, which has pushed the one before out.
    trainer, inputs, output, _ = seen[-1]
    logs = trainer._logs
    assert {*logs} == {"images", "prompt", "completion", "rewards", "advantages", "extra"}
    assert list(logs["prompt"]) == [row["prompt"] for row in inputs]
    texts = trainer._tokenizer.batch_decode(output["completion_ids"], skip_special_tokens=True)
    assert [completion[-1]["content"] for completion in logs["completion"]] == texts
    assert [*logs["rewards"]] == trainer.reward_func_names and [*logs["extra"]] == ["verdict"]
    assert list(logs["advantages"]) == output["advantages"].tolist()
    columns = [logs["prompt"], logs["completion"], logs["advantages"]]
    for column in (*columns, *logs["rewards"].values(), *logs["extra"].values()):
        assert column.maxlen == len(column) == len(inputs)
    assert not logs["images"]
