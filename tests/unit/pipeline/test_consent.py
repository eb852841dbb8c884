"""A YAML of somebody else runs no code, neither by variables nor by keys."""

import os
import pickle
from pathlib import Path

import pytest
import yaml

from eval.harness.settings import EvalArguments
from pipeline.errors import UserError
from pipeline.settings import read_settings
from stages.arguments import GRPO, SFT, GrpoArguments, SftArguments
from stages.distill import DistillArguments
from stages.rules import check_grpo_keys
from stages.run.launch import check_launch
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)

STAGES = {
    "sft": (SftArguments, SFT, {"train_file": "x", "model_name_or_path": "m"}),
    "grpo": (GrpoArguments, GRPO, {"train_file": "x", "model_name_or_path": "m"}),
    "eval": (EvalArguments, (), {"report_dir": "page", "checkpoints": ["a=b/c"]}),
    "distill": (DistillArguments, (), {"problems_file": "p", "backend": "openai"}),
}


@pytest.fixture(autouse=True)
def no_consent(monkeypatch):
    monkeypatch.delenv("ALLOW_CODE", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def read(tmp_path, stage, *words, **keys):
    path = tmp_path / f"{stage}.yaml"
    own, hf, needed = STAGES[stage]
    path.write_text(yaml.safe_dump({"output_dir": "out"} | needed | keys))
    return read_settings(own, hf, ["--config", str(path), *words])


@table
def test_a_variable_that_can_run_code_is_refused(tmp_path, name, monkeypatch):
    with pytest.raises(UserError, match="env: "):  # the console shows its line feed as a blank
        read(tmp_path, "sft", env={"OMP_NUM_THREADS": 1, name: "x"})
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert read(tmp_path, "sft", env={name: "x"}).env == {name: "x"}


def test_variables_of_speed_and_logging_are_taken(tmp_path):
    names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "HF_HUB_OFFLINE")
    env = dict.fromkeys((*names, "WANDB_RUN_ID", "VLLM_ATTENTION_BACKEND"), "1")
    assert read(tmp_path, "sft", env=env).env == env


@table
def test_a_key_that_runs_code_needs_consent(tmp_path, keys, monkeypatch):
    (key,) = keys
    refused(rf"grpo\.yaml: .*ALLOW_CODE.*type {key}", read, tmp_path, "grpo", **keys)
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(yaml.safe_dump(keys))
    told = r"overlay\.yaml: .*ALLOW_CODE"
    refused(told, read, tmp_path, "grpo", "--overlay", str(overlay))
    if isinstance(keys[key], str | bool):
        words = [f"--{key}", str(keys[key]).lower()]
        assert getattr(read(tmp_path, "grpo", *words, **keys), key)
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert key in read(tmp_path, "grpo", **keys)


@table
def test_a_key_that_runs_no_code_needs_none(tmp_path, keys):
    assert read(tmp_path, "sft", **keys).items() >= keys.items()


def test_nothing_is_uploaded_by_a_recipe(tmp_path):
    for key, value in (("push_to_hub", True), ("log_completions_hub_repo", "owner/name")):
        refused(key, check_grpo_keys, read(tmp_path, "grpo", **{key: value}))


def test_deepspeed_unpickles_no_checkpoint_that_only_a_yaml_names(tmp_path):
    env = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}
    keys = {"resume_from_checkpoint": "theirs/checkpoint-4"}
    settings = read(tmp_path, "sft", bf16=False, **keys)
    refused("resume_from_checkpoint", check_launch, settings, env, {})
    words = ["--resume_from_checkpoint", "mine/checkpoint-4"]
    check_launch(read(tmp_path, "sft", *words, bf16=False), env, {})


@table
def test_a_recipe_sends_no_api_key_to_another_host(tmp_path, monkeypatch, url, is_refused):
    keys = {"model_name_or_path": "m", "base_url": url}
    assert read(tmp_path, "distill", **keys).base_url == url  # there is no key to send
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    if is_refused:
        told = r"distill\.yaml: base_url: .*OPENAI_API_KEY"
        refused(told, read, tmp_path, "distill", **keys)
    if "@" not in url:  # a password is refused in a list of processes
        assert read(tmp_path, "distill", "--base_url", url, **keys).base_url == url
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert read(tmp_path, "distill", **keys).base_url == url


def test_a_teacher_of_a_list_is_sent_no_api_key_either(tmp_path, monkeypatch):
    model = {"backend": "openai", "base_url": "https://example.com/v1", "model_name_or_path": "m"}
    teachers = [{"name": "a"} | model]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    told = r"distill\.yaml: base_url: example\.com.*type teachers"
    refused(told, read, tmp_path, "distill", teachers=teachers)
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert read(tmp_path, "distill", teachers=teachers).teachers == teachers


class Evil:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("name", ["optimizer.pt", "pytorch_model.bin"])
def test_files_of_a_foreign_checkpoint_are_not_unpickled(tmp_path, name, monkeypatch):
    """As the Trainer reads them, and as a start looks at them; our buffers are read alike."""
    import torch

    from stages.run import folders

    monkeypatch.chdir(tmp_path)
    torch.save({"x": Evil()}, tmp_path / name)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / name, weights_only=True)
    assert not folders.damage(tmp_path) and not Path("ran").exists()
