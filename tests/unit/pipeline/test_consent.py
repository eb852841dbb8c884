"""A YAML of somebody else runs no code, neither by variables nor by keys."""

import os
import pickle
from pathlib import Path

import pytest
import yaml

from eval.harness.settings import EvalArguments
from pipeline import consent
from pipeline.errors import UserError
from pipeline.settings import read_settings
from stages.arguments import GRPO, SFT, GrpoArguments, SftArguments
from stages.distill import DistillArguments
from stages.rules import check_grpo_keys
from stages.run.launch import check_launch

ROOT = Path(__file__).resolve().parents[3]
STAGES = {"sft": (SftArguments, SFT), "grpo": (GrpoArguments, GRPO), "eval": (EvalArguments, ())}


@pytest.fixture(autouse=True)
def no_consent(monkeypatch):
    monkeypatch.delenv("ALLOW_CODE", raising=False)


def read(tmp_path, stage, *words, **keys):
    path = tmp_path / f"{stage}.yaml"
    keys = {"output_dir": "out", "report_dir": "page", "checkpoints": ["a=b/c"]} | keys
    own, hf = STAGES[stage]
    keys = {key: value for key, value in keys.items() if stage == "eval" or key in
            {"output_dir", "env", *keys} - {"report_dir", "checkpoints"}}  # fmt: skip
    if stage != "eval":
        keys = {"train_file": "x", "model_name_or_path": "m"} | keys
    path.write_text(yaml.safe_dump(keys))
    return read_settings(own, hf, ["--config", str(path), *words])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "name",
    [
        *("GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND", "PATH", "PYTHONPATH"),
        *("PYTHONSTARTUP", "PYTHONBREAKPOINT", "PYTHONHOME", "LD_PRELOAD", "LD_LIBRARY_PATH"),
        *("HF_ENDPOINT", "HF_HOME", "HF_MODULES_CACHE", "HOME", "ALLOW_CODE", "FORCE", "CC"),
        *("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_CONF_FILE", "VLLM_PLUGINS"),
        *("VLLM_ALLOW_INSECURE_SERIALIZATION", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
        *("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_LOGS_OUT", "TORCH_DEVICE_BACKEND_AUTOLOAD"),
        *("WANDB_BASE_URL", "OPENAI_BASE_URL", "HTTPS_PROXY", "SSL_CERT_FILE", "CUDA_HOME"),
        *("omp_num_threads", "OMP_NUM_THREADS\nPATH", "", "ACCELERATE_MIXED_PRECISION"),
    ],
)
def test_a_variable_that_can_run_code_is_refused(tmp_path, stage, name, monkeypatch):
    with pytest.raises(UserError, match="env: "):
        read(tmp_path, stage, env={"OMP_NUM_THREADS": 1, name: "x"})
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert read(tmp_path, stage, env={name: "x"}).env == {name: "x"}


def test_variables_of_speed_and_logging_are_taken(tmp_path):
    env = dict.fromkeys(
        (
            *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_DEBUG"),
            *("NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "TOKENIZERS_PARALLELISM", "WANDB_RUN_ID"),
            *("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "VLLM_ATTENTION_BACKEND", "WANDB_RESUME"),
        ),
        "1",
    )
    assert read(tmp_path, "sft", env=env).env == env


def test_the_projects_own_recipes_need_no_consent():
    for path in ROOT.glob("configs/*/*.yaml"):
        keys = yaml.safe_load(path.read_text(encoding="utf-8").replace("{run}", "run"))
        consent.check_env(keys.pop("env", {}), str(path))
        for key, value in keys.items():
            consent.check_value(key, value, str(path))


CODE = [
    {"trust_remote_code": True},
    {"trust_remote_code": "yes"},
    {"model_init_kwargs": {"trust_remote_code": True}},
    {"model_init_kwargs": '{"trust_remote_code": true}'},
    {"model_init_kwargs": {"use_kernels": True}},
    {"model_init_kwargs": {"allow_all_kernels": True}},
    {"model_init_kwargs": {"kernel_config": {"kernel_mapping": {"RMSNorm": "me/x:Norm"}}}},
    {"model_init_kwargs": {"weights_only": False}},
    {"model_init_kwargs": {"attn_implementation": {"text": "me/attention"}}},
    {"attn_implementation": "me/attention"},
    {"attn_implementation": "paged|me/attention"},
]


@pytest.mark.parametrize("keys", [*CODE, {"generation_kwargs": {"custom_generate": "me/x"}}])
@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_key_that_runs_code_needs_consent(tmp_path, stage, keys, monkeypatch):
    if stage == "sft" and "generation_kwargs" in keys:
        return
    (key,) = keys
    with pytest.raises(UserError, match=rf"{stage}\.yaml: .*ALLOW_CODE.*type {key}"):
        read(tmp_path, stage, **keys)
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(yaml.safe_dump(keys))
    with pytest.raises(UserError, match=r"overlay\.yaml: .*ALLOW_CODE"):
        read(tmp_path, stage, "--overlay", str(overlay))
    if isinstance(keys[key], str | bool):
        words = [f"--{key}", str(keys[key]).lower()]
        assert getattr(read(tmp_path, stage, *words), key)
        assert getattr(read(tmp_path, stage, *words, **keys), key)
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert key in read(tmp_path, stage, **keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"trust_remote_code": False},
        {"attn_implementation": "kernels-community/flash-attn2"},
        {"attn_implementation": "sdpa", "model_init_kwargs": {"weights_only": True}},
        {"model_init_kwargs": {"use_kernels": False}},
    ],
)
def test_a_key_that_runs_no_code_needs_none(tmp_path, keys):
    assert read(tmp_path, "sft", **keys).items() >= keys.items()


@pytest.mark.parametrize(
    "keys", [{"push_to_hub": True}, {"log_completions_hub_repo": "owner/name"}]
)
def test_nothing_is_uploaded_by_a_recipe(tmp_path, keys):
    with pytest.raises(UserError, match=next(iter(keys))):
        check_grpo_keys(read(tmp_path, "grpo", **keys))


def test_deepspeed_unpickles_no_checkpoint_that_only_a_yaml_names(tmp_path):
    env = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}
    keys = {"resume_from_checkpoint": "theirs/checkpoint-4"}
    with pytest.raises(UserError, match="resume_from_checkpoint"):
        check_launch(read(tmp_path, "sft", bf16=False, **keys), env, {})
    words = ["--resume_from_checkpoint", "mine/checkpoint-4"]
    check_launch(read(tmp_path, "sft", *words, bf16=False), env, {})


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("http://example.com/v1", True),
        ("https://api.openai.com.example.com/v1", True),
        ("https://api.openai.com@example.com/v1", True),
        ("http://10.0.0.7:8000/v1", True),
        ("http://localhost:8000/v1", False),
        ("http://[::1]:8000/v1", False),
        ("https://api.openai.com/v1", False),
    ],
)
def test_a_recipe_sends_no_api_key_to_another_host(tmp_path, monkeypatch, url, is_refused):
    path = tmp_path / "distill.yaml"
    path.write_text(yaml.safe_dump({
        "problems_file": "p", "output_dir": "o", "model_name_or_path": "m", "backend": "openai",
        "base_url": url,
    }))  # fmt: skip

    def read(*words):
        return read_settings(DistillArguments, (), ["--config", str(path), *words])

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert read().base_url == url  # there is no key to send
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    if is_refused:
        with pytest.raises(UserError, match=r"distill\.yaml: base_url: .*OPENAI_API_KEY"):
            read()
    if "@" not in url:  # a password is refused in a list of processes
        assert read("--base_url", url).base_url == url
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert read().base_url == url


def test_a_teacher_of_a_list_is_sent_no_api_key_either(tmp_path, monkeypatch):
    path, url = tmp_path / "distill.yaml", "https://example.com/v1"
    teachers = [{"name": "a", "backend": "openai", "base_url": url, "model_name_or_path": "m"}]
    path.write_text(yaml.safe_dump({"problems_file": "p", "output_dir": "o", "teachers": teachers}))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    monkeypatch.delenv("ALLOW_CODE", raising=False)
    with pytest.raises(UserError, match=r"distill\.yaml: base_url: example\.com.*type teachers"):
        read_settings(DistillArguments, (), ["--config", str(path)])
    monkeypatch.setenv("ALLOW_CODE", "1")
    assert read_settings(DistillArguments, (), ["--config", str(path)]).teachers == teachers


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [touch ran]", "!function x.y"])
def test_tags_of_yaml_run_nothing(tmp_path, tag, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sft.yaml").write_text(f"output_dir: {tag}\n")
    with pytest.raises(UserError, match=r"sft\.yaml"):
        read_settings(SftArguments, SFT, ["--config", "sft.yaml"])
    assert not Path("ran").exists()


class Evil:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "pytorch_model.bin"])
def test_files_of_a_foreign_checkpoint_are_not_unpickled(tmp_path, name, monkeypatch):
    """As the Trainer reads them, and as a start looks at them; our buffers are read alike."""
    import torch

    from stages.run import folders

    monkeypatch.chdir(tmp_path)
    torch.save({"x": Evil()}, tmp_path / name)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / name, weights_only=True)
    assert not folders.damage(tmp_path) and not Path("ran").exists()


def test_a_chat_template_runs_in_a_sandbox():
    import jinja2
    from transformers.utils.chat_template_utils import render_jinja_template

    template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(jinja2.exceptions.SecurityError):
        render_jinja_template([[{"role": "user", "content": "x"}]], chat_template=template)
