"""Contract: every private name of TRL and transformers that we use, and what we take it for.

A release may change any of them. Where one of these tests fails, look at what leans on the name
before the ceiling in pyproject.toml is raised. The last tests hold real runs against them.
"""

import ast
import dataclasses
import inspect
import os
import re
import shlex
import textwrap
from pathlib import Path
from pydoc import locate
from unittest import mock

import pytest
import yaml
from transformers import Trainer
from trl import GRPOTrainer, SFTTrainer
from trl.generation import vllm_generation
from trl.scripts import vllm_serve
from trl.trainer.utils import RepeatSampler

from pipeline.errors import UserError
from pipeline.key_types import HF_SOURCES, UNSET, hf_keys
from stages.host import SERVE, server_flags
from stages.rules import CLIP
from stages.trainer.grpo_trainer import MathGRPOTrainer
from tests.unit.stages.helpers import grpo

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]

TABLE = yaml.safe_load(Path(__file__).with_name("trl_names.yaml").read_text(encoding="utf-8"))


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
    for part in {
        *GRPOTrainer.__mro__,
        *SFTTrainer.__mro__,
        RepeatSampler,
        vllm_generation.VLLMGeneration,
    }:
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
    assert {name for name in used & theirs if name[0] == "_" != name[1]} == {*TABLE["pinned"]}


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


@pytest.mark.parametrize("where", TABLE["counted"])
def test_how_often_it_is_written(where):
    source, wanted = inspect.getsource(locate(where)), TABLE["counted"][where]
    assert {text: source.count(text) for text in wanted} == wanted


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


@pytest.mark.parametrize(("keys", "asked"), TABLE["engines"], ids=str)
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
