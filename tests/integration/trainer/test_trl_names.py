"""Contract: every private name of TRL and transformers that we use, and what we take it for.

A release may change any of them. Where one of these tests fails, look at what leans on the name
before the ceiling in pyproject.toml is raised. `test_trl_runs` holds real runs against them.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from pathlib import Path

import pytest
from transformers import Trainer
from transformers.integrations import integration_utils
from transformers.trainer_callback import DefaultFlowCallback
from transformers.trainer_utils import EvalLoopOutput
from trl import GRPOConfig, GRPOTrainer, SFTTrainer
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import RepeatSampler

from data_prep.config import HF_SOURCES, Settings, UserError, hf_keys
from stages.arguments import GRPO, SCALES, GrpoArguments
from stages.checks import CHOICES, check_batch
from stages.trainer.trainer import MathGRPOTrainer

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]

# Every private name of theirs that our sources use; each is looked at below or in `test_trl_runs`.
PINNED = {
    "_buffered_inputs", "_calculate_rewards", "_generate_and_score_completions", "_get_grad_norm",
    "_get_per_token_logps_and_entropies", "_get_train_sampler", "_init_vllm", "_iter_named_params",
    "_last_loaded_step", "_logs", "_metrics", "_prepare_inputs",
    "_save_checkpoint", "_save_rng_state", "_step", "_tokenize_prompts", "_tokenizer",
}  # fmt: skip


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
    for folder in ("data_prep", "stages", "eval", "benchmarks"):
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
    "_generate_and_score_completions": ["inputs"],
    "_get_grad_norm": ["model", "grad_norm"],
    "_get_per_token_logps_and_entropies": [
        "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size",
    ],
    "_get_train_sampler": ["dataset"],
    "_save_rng_state": ["output_dir"],
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
    "our files are written before the mark of a checkpoint": (
        Trainer._save_checkpoint,
        ["self.save_model(", "_save_optimizer_and_scheduler(", "self._save_rng_state(",
         "self.state.save_to_json("],
    ),
    "a run is restored before it begins": (
        Trainer._inner_training_loop,
        ["self._init_training_state(", "self._prepare_for_training(", "on_train_begin(",
         "if args.eval_on_start:", "self._run_epoch("],
    ),
    "without batches an epoch takes no step": (
        Trainer._run_epoch,
        ["in range(num_update_steps_trained, num_update_steps_per_epoch)",
         "self.get_batch_samples(epoch_iterator", "in enumerate(batch_samples)",
         "self._get_grad_norm(model, grad_norm=grad_norm)", "on_pre_optimizer_step(",
         "self.optimizer.step()", "on_optimizer_step("],
    ),
    "evaluation is between log and save": (
        Trainer._maybe_log_save_evaluate,
        ["self.log(logs", "self._evaluate(", "self._save_checkpoint("],
    ),
    "and once more after the last step": (
        DefaultFlowCallback.on_step_end,
        ["should_training_stop = True", "state.global_step % state.eval_steps != 0"],
    ),
    "its metrics are logged and returned": (
        Trainer.evaluate,
        ["self.evaluation_loop(", "self.log(output.metrics)", "return output.metrics"],
    ),
    "it runs in the model's mode": (
        Trainer.evaluation_loop, ["model.eval()", "self.prediction_step("],
    ),
    "a model can be saved without going to the hub": (
        Trainer.save_model, ["if self.args.push_to_hub and not _internal_call:"],
    ),
    "the table is written from `_logs`": (
        GRPOTrainer.log,
        ["logs.update(metrics)", "self._metrics[mode].clear()", "and self.log_completions:",
         "to_parquet("],
    ),
    "the counter decides when to generate, the buffer is a list of micro-batches": (
        GRPOTrainer._prepare_inputs,
        ["generate_every = self.args.steps_per_generation * self.num_iterations",
         "if self._step % generate_every == 0 or self._buffered_inputs is None:",
         "self._buffered_inputs = [",
         "inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]",
         "else:", "self._generate_and_score_completions(", "return inputs"],
    ),
    "vLLM is given weights of another step only": (
        GRPOTrainer._generate_single_turn,
        ["if self.state.global_step != self._last_loaded_step:",
         "self.vllm_generation.sync_weights()"],
    ),
    "log-probs are asked of the model that is given": (
        GRPOTrainer._get_per_token_logps_and_entropies,
        ["batch_size = batch_size or input_ids.size(0)",
         "outputs = model(**model_inputs, labels=labels, fused_lm_head=True)",
         "outputs.log_probs", "outputs.entropy", "outputs.aux_loss"],
    ),
    "the tools' mask is an output": (
        GRPOTrainer._generate_and_score_completions, ['output["tool_mask"] = tool_mask'],
    ),
    "and an input": (GRPOTrainer._compute_loss, ['completion_mask * inputs["tool_mask"]']),
    "the order of problems is a permutation of the generator": (
        RepeatSampler.__iter__, ["randperm(self.num_samples, generator=self.generator)"],
    ),
    "the entropy bonus is on where one of two keys is": (
        GRPOTrainer.__init__,
        ["self._entropy_bonus_enabled = self.entropy_coef != 0.0 or self.use_adaptive_entropy",
         "self._last_loaded_step = -1"],
    ),
    "reports take the names of metrics from a function that can be replaced": (
        integration_utils.TensorBoardCallback.on_log, ["rewrite_logs("],
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


def test_only_the_models_mode_tells_an_evaluation_from_the_training():
    mode = 'mode = "train" if self.model.training else "eval"'
    for name in ("_prepare_inputs", "_generate", "_generate_and_score_completions", "log"):
        assert mode in inspect.getsource(getattr(GRPOTrainer, name)), name
    # A step without loss, logits and labels leaves no trace.
    loop = inspect.getsource(Trainer.evaluation_loop)
    assert all(f"if {name} is not None:" in loop for name in ("losses", "logits", "labels"))
    assert "metrics" in EvalLoopOutput._fields


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


def test_reports_keep_their_names():
    renamed = {"train/loss": 1, "eval/loss": 2}
    assert integration_utils.rewrite_logs({"loss": 1, "eval_loss": 2}) == renamed


# Values and defaults that are checked before TRL is imported


@pytest.mark.parametrize("name", sorted(HF_SOURCES))
def test_hf_keys_equal_the_installed_dataclass(name):
    """The fields read from TRL's source are those of the class it defines."""
    import trl

    defined = {f.name for f in dataclasses.fields(getattr(trl, name)) if f.init}
    assert set(hf_keys(name)) == {name for name in defined if not name.startswith("_")}


def test_choices_are_those_trl_computes():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    compared = re.findall(r"self\.loss_type (?:==|in) (\[[^\]]*\]|\"\w+\")", source)
    names = {name for text in compared for name in re.findall(r"\w+", text)}
    assert names == {*CHOICES["loss_type"]}
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert "Must be one of 'batch', 'group', or 'none'" in source and {*SCALES} == {
        "batch", "group", "none",
    }  # fmt: skip


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
    def refused(build):
        try:
            build()
        except (UserError, ValueError):
            return True
        return False

    ours = refused(lambda: check_batch(Settings.of(values, GrpoArguments, GRPO), 1))
    assert ours == refused(
        lambda: GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **values)
    )
