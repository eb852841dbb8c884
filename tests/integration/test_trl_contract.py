"""Contract: every name of TRL and transformers that we lean on and that a release may change."""

import dataclasses
import inspect

import pytest

from data_prep.config import HF_SOURCES, UserError, hf_fields
from stages.settings.arguments import BATCH_DEFAULTS, check_batch
from stages.settings.reward_arguments import MAX_COMPLETION_LENGTH

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", sorted(HF_SOURCES))
def test_hf_fields_equal_the_installed_dataclass(name):
    """The fields read from TRL's source are those of the class it defines."""
    import trl

    defined = {f.name for f in dataclasses.fields(getattr(trl, name)) if f.init}
    assert set(hf_fields(name)) == {name for name in defined if not name.startswith("_")}


def names_of(function):
    return list(inspect.signature(function).parameters)


def test_overridden_methods_keep_their_signatures():
    from trl import GRPOTrainer

    from stages.trainer.grpo_trainer import MathGRPOTrainer

    arguments = {
        "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
        "_generate_and_score_completions": ["inputs"],
        "log": ["logs", "start_time"],
    }
    for name, known in arguments.items():
        assert names_of(getattr(GRPOTrainer, name)) == ["self", *known]
        assert names_of(getattr(MathGRPOTrainer, name)) == ["self", *known]


def test_what_the_grpo_trainer_is_given_and_logs(run_stage, monkeypatch):
    """One step: shapes of rewards, structure of `_metrics`, and the keys we rename."""
    import torch
    from trl import GRPOTrainer as base

    from stages.trainer import grpo_trainer

    seen = {"rewards": [], "logs": []}
    calculate, log = base._calculate_rewards, base.log

    def spy_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = calculate(self, inputs, prompts, completions, completion_ids_list)
        seen["rewards"].append((rewards.shape, len(prompts), self.model.training))
        seen["names"], seen["group"] = self.reward_func_names, self.num_generations
        # The rows of one group follow one another.
        ids = [row["id"] for row in inputs]
        assert all(len(set(ids[n : n + 4])) == 1 for n in range(0, len(ids), 4))
        assert isinstance(completions[0][-1]["content"], str)
        assert isinstance(completion_ids_list[0][0], int)
        return rewards

    def spy_log(self, logs, start_time=None):
        metrics = self._metrics["train"]
        assert set(self._metrics) == {"train", "eval"}
        seen["logs"].append({key: list(values) for key, values in metrics.items()})
        log(self, logs, start_time)
        assert not metrics  # TRL clears them: ours must not pile up

    monkeypatch.setattr(base, "_calculate_rewards", spy_rewards)
    monkeypatch.setattr(base, "log", spy_log)
    run_stage("grpo", max_steps=1, max_completion_length=4)
    assert seen["rewards"] == [(torch.Size([8, 3]), 8, True)]
    names = ["correctness_reward", "think_format_reward", "soft_length_penalty"]
    assert seen["names"] == names and seen["group"] == 4
    first = seen["logs"][0]
    assert all(isinstance(v, int | float) for values in first.values() for v in values)
    for ours, theirs in grpo_trainer.METRIC_NAMES.items():
        assert len(first[theirs]) == 1 and first[ours] == first[theirs]
    assert len(first["rollout/correctness"]) == len(first["rollout/uniform_groups"]) == 1


def test_tensorboard_and_wandb_look_rewrite_logs_up_in_their_module():
    from transformers.integrations import integration_utils as module

    assert module.rewrite_logs({"loss": 1, "eval_loss": 2}) == {"train/loss": 1, "eval/loss": 2}
    for callback in (module.TensorBoardCallback, module.WandbCallback):
        assert "rewrite_logs" in callback.on_log.__code__.co_names


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


def test_the_trainer_writes_its_state_last():
    """`last_checkpoint` takes a readable trainer_state.json for a whole checkpoint."""
    from transformers import Trainer

    source = inspect.getsource(Trainer._save_checkpoint)
    steps = ["save_model(", "_save_optimizer_and_scheduler(", "_save_rng_state(", "save_to_json("]
    found = [source.index(step) for step in steps]
    assert found == sorted(found)


def test_batch_defaults_are_trls():
    from trl import GRPOConfig

    defaults = {f.name: f.default for f in dataclasses.fields(GRPOConfig)}
    assert {key: defaults[key] for key in BATCH_DEFAULTS} == BATCH_DEFAULTS
    assert defaults["max_completion_length"] == MAX_COMPLETION_LENGTH


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"per_device_train_batch_size": 2, "steps_per_generation": 4},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "num_generations": 4},
        {"per_device_train_batch_size": 4, "generation_batch_size": 16},
        {"per_device_train_batch_size": 4},
        {"per_device_train_batch_size": 4, "generation_batch_size": 12},
        {"per_device_train_batch_size": 8, "generation_batch_size": 20},
        {"num_generations": 1},
    ],
)
def test_on_one_process_check_batch_and_trl_agree(values, tmp_path):
    from trl import GRPOConfig

    def refused(build):
        try:
            build()
        except (UserError, ValueError):
            return True
        return False

    ours = refused(lambda: check_batch(values, 1))
    assert ours == refused(
        lambda: GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **values)
    )


TWO_PROCESSES = """
import gc, torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel
from trl import GRPOTrainer
from stages import grpo
from data_prep.config import run_cli

calculate = GRPOTrainer._calculate_rewards
def spy(self, inputs, prompts, completions, completion_ids_list):
    rewards = calculate(self, inputs, prompts, completions, completion_ids_list)
    other = rewards.clone()
    torch.distributed.broadcast(other, src=0)
    print(f"rewards {len(prompts)} {tuple(rewards.shape)} {bool((rewards == other).all())}")
    return rewards
GRPOTrainer._calculate_rewards = spy

end = Accelerator.end_training
def spy_end(self):
    wrappers = [x for x in gc.get_objects() if isinstance(x, DistributedDataParallel)]
    print(f"wrappers {len(wrappers)}")
    end(self)
Accelerator.end_training = spy_end
run_cli(grpo.main)
"""


def test_two_processes_gather_rewards_and_write_once(write_recipe, run_two_processes, tmp_path):
    """Rewards come back gathered on every rank; rank 0 alone prints and writes."""
    recipe = write_recipe("grpo", max_steps=1, max_completion_length=4)
    lines = run_two_processes(TWO_PROCESSES, "--config", recipe)
    assert all("rewards 8 (16, 3) True" in found for found in lines)
    assert all("wrappers 0" in found for found in lines)  # else the end may hang, see run.finish
    assert any(line.startswith("grpo: 1 steps") for line in lines[0])
    assert not any(line.startswith(("grpo:", "starting")) for line in lines[1])
    assert (tmp_path / "grpo/manifest.json").is_file()
    assert not (tmp_path / "grpo.previous").exists()


def test_loss_types_of_the_early_check_are_those_trl_computes():
    import inspect
    import re

    from trl import GRPOTrainer

    from stages.settings.arguments import CHOICES

    source = inspect.getsource(GRPOTrainer._compute_loss)
    compared = re.findall(r"self\.loss_type (?:==|in) (\[[^\]]*\]|\"\w+\")", source)
    assert {name for text in compared for name in re.findall(r"\w+", text)} == {
        *CHOICES["loss_type"]
    }
