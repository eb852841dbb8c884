"""What every training stage does around its algorithm: names, sizes, checks."""

import json
import os
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torchao.optim import AdamW8bit
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.integrations import integration_utils

from pipeline import errors
from stages.arguments import completion_room
from stages.preflight import capacity
from stages.preflight.inputs import KEYS_OF
from stages.run import callbacks, launch, training
from stages.run.out_of_memory import what_to_lower
from tests.refused import refused
from tests.settings import settings_of
from tests.tables import tables_beside

table = tables_beside(__file__)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sft"


def test_metric_names(monkeypatch):
    monkeypatch.setattr(integration_utils, "rewrite_logs", integration_utils.rewrite_logs)
    for _ in range(2):  # a second call changes nothing
        callbacks.keep_metric_names()
        logs = {"loss": 1, "rollout/rewards": 2, "train/entropy_loss": 3, "rewards/x/mean": 4}
        logs["guard/eos"] = 5
        named = logs | {"train/loss": 1, "train/rewards/x/mean": 4}
        del named["loss"], named["rewards/x/mean"]
        assert integration_utils.rewrite_logs(logs) == named
    assert integration_utils.rewrite_logs({"eval_loss": 1}) == {"eval/loss": 1}


def test_trackers_get_the_recipe_s_project(tmp_path, monkeypatch):
    names = ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "SWANLAB_PROJECT")
    for name in names:
        monkeypatch.setenv(name, "theirs")
    config = SimpleNamespace(run_name="r", report_to=[], output_dir=str(tmp_path))
    for project, found in (("huggingface", "theirs"), ("mine", "mine")):  # the first: no project
        config.project = project
        training.name_tracked_run(config)
        assert {os.environ[name] for name in names} == {found}


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_fsdp_sums_gradients_in_float32_and_rounds_no_output(monkeypatch, precision, dtype):
    model = SimpleNamespace(
        model_name_or_path="m", dtype="float32", attn_implementation=None, model_revision="main",
        use_peft=False, load_in_4bit=False, load_in_8bit=False,
    )  # fmt: skip
    for engine in (launch.DATA_PARALLEL, launch.FSDP):
        monkeypatch.setattr(training, "asked_engine", lambda engine=engine: engine)
        config = SimpleNamespace(
            model_init_kwargs=None, trust_remote_code=False, run_name="r", project="huggingface",
            output_dir="out", report_to=[], bf16=precision == "bf16", fp16=precision == "fp16",
            fsdp_plugin_args=None, router_aux_loss_coef=None,
        )  # fmt: skip
        training.trainer_kwargs(model, config)
        if engine == launch.DATA_PARALLEL:
            assert config.fsdp_plugin_args is None
    policy = config.fsdp_plugin_args["mixed_precision_policy"]
    found = policy.param_dtype, policy.reduce_dtype, policy.output_dtype
    assert found == (dtype, torch.float32, None)


@pytest.mark.parametrize("kind", ["qwen2", "qwen2_moe"])
def test_a_loss_of_the_router_needs_one(tmp_path, kind):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    model = SimpleNamespace(model_name_or_path=str(tmp_path), model_revision="main")
    config = SimpleNamespace(router_aux_loss_coef=0.1, trust_remote_code=False)
    if kind == "qwen2":
        refused(r"^router_aux_loss_coef: 0\.1", training.check_router, model, config)
    else:
        training.check_router(model, config)


def trainer_of(model, optim="adamw_torch", is_zero=False):
    """What the size of a checkpoint is read from."""
    args = SimpleNamespace(optim=optim)
    return SimpleNamespace(model=model, args=args, is_deepspeed_enabled=is_zero)


@pytest.mark.parametrize(
    ("dtype", "optim", "optimizer", "is_frozen"),
    [
        (torch.float32, "adamw_torch", torch.optim.AdamW, True),
        (torch.bfloat16, "adamw_torch_fused", torch.optim.AdamW, False),
        (torch.bfloat16, "adamw_torch_8bit", AdamW8bit, False),
    ],
)
def test_a_checkpoint_has_the_size_that_torch_writes(tmp_path, dtype, optim, optimizer, is_frozen):
    layers = [torch.nn.Linear(512, 512, bias=False) for _ in range(3)]
    model = torch.nn.Sequential(*layers).to(dtype)
    model[0].requires_grad_(not is_frozen)
    optimizer = optimizer([p for p in model.parameters() if p.requires_grad])
    model(torch.ones(1, 512, dtype=dtype)).sum().backward()
    with torch.compiler.set_stance("force_eager"):
        optimizer.step()
    sizes = []
    for name, part in {"model": model, "optimizer": optimizer}.items():
        torch.save(part.state_dict(), tmp_path / name)
        sizes.append((tmp_path / name).stat().st_size)
    found = training.saved_bytes(trainer_of(model, optim))
    assert found == pytest.approx((sum(sizes), sizes[0]), rel=0.01)


TINY = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "tie_word_embeddings": True,
}  # fmt: skip


@table
def test_preflight_and_the_start_of_a_run_name_one_size(values, engine, number):
    own, hf, _ = KEYS_OF["sft"]
    settings = settings_of(values, own, hf)
    step = capacity.build_step("sft", TINY | {"model_type": "qwen2"}, settings, None, engine)
    model = Qwen2ForCausalLM(Qwen2Config(**TINY)).to(getattr(torch, values["dtype"]))
    if settings.use_peft:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    found = training.saved_bytes(trainer_of(model, settings.get("optim"), engine == "zero2"))
    assert found == capacity.saved_bytes(step)
    assert found[0] == number * sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("strategy", "has_lora", "what", "number"),
    [
        ("steps", False, "one more checkpoint", 12),
        ("no", False, "the model", 4),
        ("steps", True, "the model", 4),
    ],
)
def test_a_disk_is_full_below_the_most_that_a_run_writes_at_once(
    folder, monkeypatch, strategy, has_lora, what, number
):
    """The guard takes a disk with just enough bytes, and none with one byte less."""
    model = Qwen2ForCausalLM(Qwen2Config(**TINY))
    num_bytes = number * sum(parameter.numel() for parameter in model.parameters())
    if has_lora:
        model = get_peft_model(model, LoraConfig(r=1, target_modules=["q_proj"]))
        num_bytes += 4 * sum(p.numel() for p in model.parameters() if p.requires_grad)
    trainer = trainer_of(model)
    trainer.args.save_strategy, trainer.args.output_dir = strategy, str(folder)
    folder.mkdir()
    for free in (num_bytes, num_bytes - 1):
        monkeypatch.setattr(
            errors.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free)
        )
        if free == num_bytes:
            training.check_disk(trainer)
        else:
            refused(f"{what} needs .* free", training.check_disk, trainer)


@table
def test_a_run_out_of_memory_names_the_keys_that_are_set_in_their_order(args, update_tokens, line):
    assert what_to_lower(SimpleNamespace(**args), update_tokens) == line


@table
def test_without_a_limit_a_completion_may_fill_the_context(limit, engine, positions, room):
    keys = SimpleNamespace(max_completion_length=limit, vllm_max_model_length=engine)
    assert completion_room(keys, positions, prompt=10) == room
