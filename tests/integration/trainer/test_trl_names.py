"""Contract: every private name of TRL and transformers that we use, and what we take it for.

A release may change any of them. Where one of these tests fails, look at what leans on the name
before the ceiling in pyproject.toml is raised. The last tests hold real runs against them.
"""

import ast
import dataclasses
import inspect
import os
import re
import textwrap
from pathlib import Path
from unittest import mock

import pytest
import torch
from transformers import GenerationMixin, Trainer
from trl import GRPOConfig, GRPOTrainer, SFTTrainer
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import RepeatSampler

from pipeline.errors import UserError
from pipeline.key_types import HF_SOURCES, UNSET, hf_keys
from stages.arguments import GRPO, GrpoArguments
from stages.rules import CLIP, check_grpo_keys
from stages.trainer.grpo_trainer import MathGRPOTrainer
from stages.trainer.rollouts import advantages, sum_rewards
from tests.settings import settings_of

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]

# Every private name of theirs that our sources use; each is looked at below or by a run.
PINNED = {
    "_buffered_inputs", "_calculate_rewards", "_generate", "_generate_and_score_completions",
    "_get_grad_norm",
    "_get_per_token_logps_and_entropies", "_get_train_sampler", "_init_vllm",
    "_last_loaded_step", "_logs", "_metrics", "_prepare_inputs",
    "_save_checkpoint", "_step", "_tokenize_prompts", "_tokenizer",
    "_total_train_tokens", "_tr_loss",
}  # fmt: skip


class Asked(Exception):
    """What `vllm.LLM` would be built with."""


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ({"fp16": True}, {"dtype": "float16"}),
        ({"bf16": True}, {"dtype": "bfloat16"}),
        ({"bf16": None}, {"dtype": "bfloat16"}),  # TRL's default
        ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        ({}, {}),  # trained in float32: TRL leaves the dtype to vLLM
        ({"fp16": True, "top_p": 0.9}, {"dtype": "float16", "logprobs_mode": "raw_logprobs"}),
    ],
    ids=str,
)
def test_what_trl_asks_its_engine_for(run_stage, monkeypatch, keys, asked):
    """TRL has no key for the dtype, which would be that of config.json, nor for the log-probs.

    `asking_for` sets both in the stage; all else here is TRL's own start of a colocated engine.
    """
    from trl.generation import vllm_generation

    def build(**given):
        raise Asked(given)

    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr(vllm_generation, "LLM", build, raising=False)
    monkeypatch.setattr("stages.host.check_vllm", lambda settings: None)  # this host has no GPU
    monkeypatch.setattr("stages.rules.of_device", lambda settings: ())
    with mock.patch.dict(os.environ), pytest.raises(Asked) as error:
        run_stage("grpo", use_vllm=True, vllm_mode="colocate", **keys)
    (given,) = error.value.args
    assert {"model", "gpu_memory_utilization", "enable_sleep_mode"} <= given.keys()
    found = {key: given[key] for key in ("dtype", "logprobs_mode") if key in given}
    assert found == {"logprobs_mode": "processed_logprobs"} | asked
    assert vllm_generation.LLM is build


def names_in(tree, only_self):
    """Methods and attributes of Python source; with `only_self` the attributes of `self` alone."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.Attribute):
            is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            found |= {node.attr} if is_self or not only_self else set()
    return found


def is_about_training(tree):
    """Whether a file imports TRL, transformers or our trainer."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    roots = ("trl", "transformers", "stages.trainer", "stages.grpo")
    return any(name == root or name.startswith(f"{root}.") for name in modules for root in roots)


def test_every_private_name_is_pinned():
    """In the product and the benchmarks."""
    theirs = set()
    for part in {*GRPOTrainer.__mro__, *SFTTrainer.__mro__, RepeatSampler, VLLMGeneration}:
        if part.__module__.partition(".")[0] in ("trl", "transformers"):
            source = ast.parse(textwrap.dedent(inspect.getsource(part)))
            theirs |= vars(part).keys() | names_in(source, only_self=True)
    used = set()
    for folder in ("pipeline", "grading", "data_prep", "stages", "eval", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if is_about_training(tree):
                used |= names_in(tree, only_self=False)
    used -= {"_name"}  # a function of ours, in no trainer
    assert {name for name in used & theirs if name[0] == "_" != name[1]} == PINNED


def parameters(function):
    return list(inspect.signature(function).parameters)


SIGNATURES = {
    "train": ["resume_from_checkpoint", "trial", "ignore_keys_for_eval"],
    "get_batch_samples": ["epoch_iterator", "num_batches", "device"],
    "evaluate": ["eval_dataset", "ignore_keys", "metric_key_prefix"],
    "evaluation_loop": [
        "dataloader", "description", "prediction_loss_only", "ignore_keys", "metric_key_prefix",
    ],
    "prediction_step": ["model", "inputs", "prediction_loss_only", "ignore_keys"],
    "log": ["logs", "start_time"],
    "compute_loss": ["model", "inputs", "return_outputs", "num_items_in_batch"],
    "_prepare_inputs": ["generation_batch"],
    "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    "_generate": ["prompts"],
    "_generate_and_score_completions": ["inputs"],
    "_get_grad_norm": ["model", "grad_norm"],
    "_get_per_token_logps_and_entropies": [
        "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size",
    ],
    "_get_train_sampler": ["dataset"],
}  # fmt: skip


def test_overridden_methods_keep_their_signatures():
    own = {name for name in vars(MathGRPOTrainer) if not name.startswith("__")}
    assert {name for name in own if hasattr(GRPOTrainer, name)} == SIGNATURES.keys()
    for name, known in SIGNATURES.items():
        assert parameters(getattr(GRPOTrainer, name))[1 : 1 + len(known)] == known, name
    assert parameters(Trainer._save_checkpoint) == ["self", "model", "trial"]
    assert parameters(Trainer.save_model) == ["self", "output_dir", "_internal_call"]
    assert {"num_samples", "generator", "shuffle", "seed"} <= vars(RepeatSampler([0], 1)).keys()


# What is written in a method, in this order.
WRITTEN = {
    "no file of a checkpoint is written behind its hashes": (
        Trainer._maybe_log_save_evaluate, ["self._save_checkpoint(", "on_save("],
    ),
    "TRL keeps the coefficient of adaptive entropy itself": (
        GRPOTrainer._load_optimizer_and_scheduler,
        ["entropy_ctrl_state.json", "self.entropy_coef = ", "self._last_world_entropy = "],
    ),
    "a run is restored before it begins": (
        Trainer._inner_training_loop,
        ["self._init_training_state(", "self._prepare_for_training(", "on_train_begin(",
         "if args.eval_on_start:", "self._run_epoch("],
    ),
    "rollouts are generated in one method": (
        GRPOTrainer._generate_and_score_completions, ["= self._generate(prompts)"],
    ),
    "without vLLM TRL calls `generate` of the model, with keys alone": (
        GRPOTrainer._generate_single_turn,
        ["prompt_completion_ids = unwrapped_model.generate(",
         "**generate_inputs, generation_config=self.generation_config"],
    ),
    "a loop of ours gets what transformers' own gets": (
        GenerationMixin.generate,
        ["decoding_method = custom_generate", "self._prepare_cache_for_generation(",
         "result = decoding_method(", "logits_processor=prepared_logits_processor",
         "stopping_criteria=prepared_stopping_criteria", "**model_kwargs"],
    ),
    "without batches an epoch takes no step": (
        Trainer._run_epoch,
        ["in range(num_update_steps_trained, num_update_steps_per_epoch)",
         "self.get_batch_samples(epoch_iterator", "in enumerate(batch_samples)",
         "self._get_grad_norm(model, grad_norm=grad_norm)", "on_pre_optimizer_step(",
         "self.optimizer.step()", "on_optimizer_step("],
    ),
    "the counter decides when to generate, the buffer is a list of micro-batches": (
        GRPOTrainer._prepare_inputs,
        ["generate_every = self.args.steps_per_generation * self.num_iterations",
         "if self._step % generate_every == 0 or self._buffered_inputs is None:",
         "self._buffered_inputs = [",
         "inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]",
         "else:", "self._generate_and_score_completions(", "return inputs"],
    ),
    "size of a group and table of completions are looked up in every call": (
        GRPOTrainer._generate_and_score_completions,
        ['num_generations = self.num_generations if mode == "train"',
         "rewards.view(-1, num_generations)", 'self._logs["prompt"].extend(',
         'self._logs["rewards"][name].extend(', 'self._logs["extra"][column].extend('],
    ),
    "vLLM is given weights of another step only": (
        GRPOTrainer._generate_single_turn,
        ["if self.state.global_step != self._last_loaded_step:",
         "self.vllm_generation.sync_weights()"],
    ),
    "an engine that sleeps is given the weights before it writes": (
        VLLMGeneration.generate,
        ["self.enable_sleep_mode and self._llm_weights_sleeping:", "self.sync_weights()",
         'self.llm.wake_up(tags=["kv_cache"])', "self.llm.generate(", "self.llm.sleep(level=2)"],
    ),
    "its weights are awake before they are loaded": (
        VLLMGeneration.sync_weights,
        ['self.llm.wake_up(tags=["weights"])', "self.vllm_client.update_named_params(",
         "model.load_weights([(name, param)])", "self.llm.reset_prefix_cache()"],
    ),
    "a server's refusal is an Exception that begins with its status": (
        VLLMClient._post,
        ['raise Exception(f"Request failed: {response.status_code}, {response.text}")'],
    ),
    "what a server is comes from its configuration": (
        VLLMClient.get_server_info,
        ['/server_info", params={"config_format": "json"}', "raise RuntimeError(",
         'return response.json()["vllm_config"]'],
    ),
    "the entropy bonus is on where one of two keys is": (
        GRPOTrainer.__init__,
        ["self._entropy_bonus_enabled = self.entropy_coef != 0.0 or self.use_adaptive_entropy",
         "self._last_loaded_step = -1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRITTEN)
def test_what_is_written(what):
    method, steps = WRITTEN[what]
    source, at = inspect.getsource(method), 0
    for step in steps:
        at = source.find(step, at)
        assert at >= 0, step


def test_trl_still_forgets():
    """Where this fails TRL has learned something, and less of `resume` is needed."""
    for method in (GRPOTrainer._save_checkpoint, GRPOTrainer._load_optimizer_and_scheduler):
        source = inspect.getsource(method)
        assert not any(name in source for name in ("self._step", "_buffered_inputs", "_metrics"))
    assert not hasattr(RepeatSampler, "set_epoch")
    assert ">= self.state.max_steps" not in inspect.getsource(Trainer._run_epoch)
    source = inspect.getsource(GRPOTrainer)  # what is restored before the first step stays
    assert source.count("self._step = ") == source.count("self._step += ") == 1
    assert source.count("self._buffered_inputs = ") == 2


def test_what_makes_a_row_without_advantage_matter():
    """KL, entropy bonus and the experts' balance; every other term is a multiple of it."""
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    added = [line.strip() for line in loss.splitlines() if "loss = loss " in line]
    assert sorted(added) == [
        "loss = loss + self.router_aux_loss_coef * aux_loss / normalizer",
        "loss = loss - apply_coef * entropy_loss",
        *["loss = loss / normalizer"] * 4,
    ]
    assert loss.count("per_token_loss = per_token_loss + ") == 1
    assert "per_token_loss = per_token_loss + self.beta * per_token_kl" in loss
    multiples = ("advantages", "min(per_token_loss1, per_token_loss2)")
    for line in map(str.strip, loss.splitlines()):
        if line.startswith(("per_token_loss1 = ", "per_token_loss2 = ", "per_token_loss = -")):
            assert any(text in line for text in multiples), line


# Values and defaults that are checked before TRL is imported


@pytest.mark.parametrize("name", sorted(HF_SOURCES))
def test_hf_keys_equal_the_installed_dataclass(name):
    """Names and defaults read from TRL's source are those of the class it defines."""
    import trl

    defined = {f.name: f for f in dataclasses.fields(getattr(trl, name)) if f.init}
    keys = hf_keys(name)
    assert keys.keys() == {name for name in defined if not name.startswith("_")}
    for key, found in keys.items():
        field = defined[key]
        is_made = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if is_made else field.default
        assert found.default == default or found.default is UNSET, key
    assert {key for key, found in keys.items() if found.default is UNSET} <= {"optim"}


def test_choices_are_those_trl_computes():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    compared = re.findall(r"self\.loss_type (?:==|in) (\[[^\]]*\]|\"\w+\")", source)
    names = {name for text in compared for name in re.findall(r"\w+", text)}
    assert names == {*CLIP, "cispo", "sapo", "vespo"}
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert "Must be one of 'batch', 'group', or 'none'" in source


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"per_device_train_batch_size": 2, "steps_per_generation": 4},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "num_generations": 4},
        {"per_device_train_batch_size": 4, "generation_batch_size": 16},
        {"per_device_train_batch_size": 4},
        {"per_device_train_batch_size": 4, "generation_batch_size": 12},
        {"num_generations": 1},
    ],
)
def test_on_one_process_whole_groups_are_those_of_trl(values, tmp_path):
    def refused(build):
        try:
            build()
        except (UserError, ValueError):
            return True
        return False

    ours = refused(lambda: check_grpo_keys(settings_of(values, GrpoArguments, GRPO)))
    assert ours == refused(
        lambda: GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **values)
    )


# What TRL does, in real runs of it


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
