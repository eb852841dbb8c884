"""Contract: every private name of TRL and transformers that we use, and what we take it for.

A release may change any of them. Where one of these tests fails, look at what leans on the name
before the ceiling in pyproject.toml is raised. The last tests hold real runs against them.
"""

import dataclasses
import inspect
import os
import re
import shlex
from pathlib import Path
from pydoc import locate
from unittest import mock

import pytest
import yaml
from transformers import Trainer
from trl import GRPOConfig, GRPOTrainer, SFTTrainer
from trl.generation import vllm_generation
from trl.scripts import vllm_serve
from trl.trainer.utils import RepeatSampler

from pipeline.errors import UserError
from pipeline.key_types import HF_SOURCES, UNSET, hf_keys
from stages.arguments import GRPO, GrpoArguments
from stages.host import SERVE, server_flags
from stages.rules import CLIP, check_grpo_keys
from stages.trainer.grpo_trainer import MathGRPOTrainer
from tests.settings import settings_of
from tests.unit.stages.helpers import grpo

pytestmark = pytest.mark.integration
TABLE = yaml.safe_load(Path(__file__).with_name("trl_names.yaml").read_text(encoding="utf-8"))


def test_pinned_names_are_theirs():
    theirs = set()
    parts = {*GRPOTrainer.__mro__, *SFTTrainer.__mro__, vllm_generation.VLLMGeneration}
    for part in parts - {object}:
        attributes = re.findall(r"\bself\.(\w+)", inspect.getsource(part))
        theirs |= vars(part).keys() | {*attributes}
    assert {*TABLE["pinned"]} <= theirs


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_overridden_methods_keep_their_signatures():
    own = {name for name in vars(MathGRPOTrainer) if not name.startswith("__")}
    assert {name for name in own if hasattr(GRPOTrainer, name)} == TABLE["signatures"].keys()
    for name, known in TABLE["signatures"].items():
        assert parameters(getattr(GRPOTrainer, name))[1 : 1 + len(known)] == known, name
    assert parameters(Trainer._save_checkpoint) == ["self", "model", "trial"]
    assert parameters(Trainer.save_model) == ["self", "output_dir", "_internal_call"]
    assert {"num_samples", "generator", "shuffle", "seed"} <= vars(RepeatSampler([0], 1)).keys()


@pytest.mark.parametrize("what", TABLE["written"])
def test_what_is_written(what):
    row = TABLE["written"][what]
    source, at = inspect.getsource(locate(row["method"])), 0
    for step in row["steps"]:
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
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "num_generations": 4},
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


@pytest.fixture
def build_engine(run_stage, monkeypatch):
    """Run the stage as far as TRL's start of a colocated engine, in whose place `build` is called.

    TRL has no key for the dtype, which would be that of config.json, nor for the log-probs.
    `asking_for` sets both in the stage; all else here is TRL's own.
    """
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr("stages.host.check_vllm", lambda settings: None)  # this host has no GPU
    monkeypatch.setattr("stages.rules.of_device", lambda settings: ())

    def call(build, **keys):
        monkeypatch.setattr(vllm_generation, "LLM", build, raising=False)
        with mock.patch.dict(os.environ):
            run_stage("grpo", use_vllm=True, vllm_mode="colocate", **keys)

    return call


class Asked(Exception):
    """What `vllm.LLM` would be built with."""


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ({"fp16": True}, {"dtype": "float16"}),
        ({"bf16": None}, {"dtype": "bfloat16"}),  # TRL's default
        ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        ({}, {}),  # trained in float32: TRL leaves the dtype to vLLM
        ({"fp16": True, "top_p": 0.9}, {"dtype": "float16", "logprobs_mode": "raw_logprobs"}),
    ],
    ids=str,
)
def test_what_trl_asks_its_engine_for(build_engine, keys, asked):
    def build(**given):
        raise Asked(given)

    with pytest.raises(Asked) as error:
        build_engine(build, **keys)
    assert vllm_generation.LLM is build
    (given,) = error.value.args
    assert {"model", "gpu_memory_utilization", "enable_sleep_mode"} <= given.keys()
    found = {key: given[key] for key in ("dtype", "logprobs_mode") if key in given}
    assert found == {"logprobs_mode": "processed_logprobs"} | asked


def test_an_engine_that_does_not_start_is_one_line(build_engine):
    def refuse(**given):
        raise ValueError("Available memory (1/2)\n  is less")

    with pytest.raises(UserError) as error:
        build_engine(refuse, vllm_gpu_memory_utilization=0.3)
    assert str(error.value).startswith("use_vllm: vLLM does not start with ")
    assert str(error.value).endswith("_utilization: 0.3): Available memory (1/2) is less")


def test_how_a_server_is_started(monkeypatch):
    """TRL's own start adds what a trainer needs; ours leaves out a limit beyond GRPO."""
    monkeypatch.setattr(vllm_serve, "is_vllm_available", lambda min_version: True)
    theirs = vllm_serve.build_command(vllm_serve.ScriptArguments(model="MODEL", dtype="float16"))
    ours = shlex.split(SERVE)[4:] + server_flags(grpo({"fp16": True, "bf16": False}))
    assert {*ours} <= {*theirs}


def test_sft_trainer_reads_tokenized_rows_with_a_mask(tiny_model_dir, tmp_path):
    """`completion_mask` counts only when the loss is told to be on the completion."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = [{"input_ids": [5, 6, 7, 8], "completion_mask": [0, 0, 1, 1]}]

    def labels(completion_only_loss):
        keys = {"use_cpu": True, "bf16": False, "report_to": "none"}
        config = SFTConfig(str(tmp_path), completion_only_loss=completion_only_loss, **keys)
        trainer = SFTTrainer(str(tiny_model_dir), config, train_dataset=Dataset.from_list(rows))
        return trainer.train_dataset[0]["labels"]

    assert labels(True) == [-100, -100, 7, 8]
    assert labels(None) == [5, 6, 7, 8]  # why stages.sft sets it
