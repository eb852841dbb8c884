"""LoRA: what is trained, merged and saved is one model; any stage starts from an adapter folder."""

import json
import os
import shutil

import pytest
import torch

from data_prep.sampling.hf import load_checkpoint
from pipeline.errors import UserError
from pipeline.models import adapters as merging
from stages import adapters

pytestmark = pytest.mark.integration
LORA = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": ["all-linear"]}
EMBEDDING = {"lora_target_modules": ["q_proj", "embed_tokens"]}


def adapted(folder, dtype, std, targets=("q_proj", "up_proj"), **more):
    """The tiny model in peft, with LoRA's B drawn at random."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model = get_peft_model(model, LoraConfig(target_modules=targets, **more))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=std)
    return model


def test_a_merge_into_another_model_is_no_checkpoint(run_stage, tmp_path, monkeypatch):
    """The adapter stays, and evaluation does not score what its merge would be."""
    # Without the checks before a training, as for a cause that nobody knows yet.
    monkeypatch.setattr(adapters, "check_adapted", lambda model, uses_vllm: None)
    with pytest.raises(UserError, match="another model"):
        run_stage("sft", **LORA | EMBEDDING)
    found = {path.name for path in (tmp_path / "sft").iterdir()}
    assert {"adapter", "checkpoint-2"} <= found
    assert not {"manifest.json", "model.safetensors", "config.json"} & found
    for name in ("adapter", "checkpoint-2"):
        with pytest.raises(UserError, match="another model"):
            load_checkpoint(str(tmp_path / "sft" / name), "float32", "checkpoints")
        assert (tmp_path / "sft" / name / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("more", [{}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}])
def test_rounding_is_no_other_model(tiny_model_dir, dtype, more):
    torch.manual_seed(0)
    model = adapted(tiny_model_dir, dtype, std=0.05, **more)
    before = merging.probe(model)
    merged = merging.merge(model, "adapter")
    assert 0 < merging.distance(merging.probe(merged), before) < merging.TOLERANCE_16


@pytest.mark.parametrize(
    ("dtype", "std", "is_lost"),
    [(torch.bfloat16, 1e-6, True), (torch.bfloat16, 1e-1, False), (torch.float32, 1e-6, False)],
)
def test_what_rounding_takes_away_is_said(tiny_model_dir, capsys, dtype, std, is_lost):
    merging.merge(adapted(tiny_model_dir, dtype, std), "adapter")
    assert ("adapter: merged" in capsys.readouterr().out) is is_lost


def test_a_weight_sync_leaves_the_frozen_weights_alone(tiny_model_dir, monkeypatch):
    """TRL merges the adapters into them, sends the sum, and subtracts again."""
    from trl.generation.vllm_generation import VLLMGeneration

    from stages.trainer.vllm import Watched

    def sync(self):
        self.model.merge_adapter()
        self.model.unmerge_adapter()

    monkeypatch.setattr(VLLMGeneration, "sync_weights", sync)
    watched = Watched.__new__(Watched)
    watched.model = adapted(tiny_model_dir, torch.bfloat16, 0.05, targets="all-linear")
    watched.mode, watched._frozen, watched._first_instance = "colocate", {}, None
    before = {name: weight.clone() for name, weight in watched.model.named_parameters()}
    for _ in range(3):
        watched.sync_weights()
    for name, weight in watched.model.named_parameters():
        assert torch.equal(weight, before[name]), name


def test_training_starts_from_an_adapter(run_stage, tmp_path, graded_by_chance):
    """Of SFT: GRPO trains another one on the merged weights, which its reference model has too."""
    sft = run_stage("sft", **LORA)
    settings = {"model_name_or_path": str(sft / "adapter"), "beta": 0.1, "max_steps": 1}
    grpo = run_stage("grpo", **settings, **LORA)
    config = json.loads((grpo / "adapter/adapter_config.json").read_text())
    copy = tmp_path / "merged"
    assert config["base_model_name_or_path"].startswith(f"{copy}/adapter-")
    models = {}
    for name in (sft, config["base_model_name_or_path"], grpo, grpo / "adapter"):
        _, model = load_checkpoint(str(name), "float32", "checkpoints")
        models[name] = merging.probe(model)
    start, trained = models[sft], models[grpo]
    assert merging.distance(models[config["base_model_name_or_path"]], start) == 0
    assert merging.distance(models[grpo / "adapter"], trained) < merging.TOLERANCE
    assert merging.distance(trained, start) > 0

    inputs = json.loads((grpo / "manifest.json").read_text())["inputs"]
    assert {settings["model_name_or_path"], *inputs} == {*inputs} and len(inputs) == 3
    full = run_stage("grpo", **settings, output_dir=str(tmp_path / "full"))
    _, model = load_checkpoint(str(full), "float32", "checkpoints")
    assert merging.distance(merging.probe(model), start) > 0
    assert len([*copy.iterdir()]) == 1  # made once


def change_adapter(folder, kind):
    """Make an adapter folder one whose files do not belong together, or that cannot be merged."""
    from safetensors.torch import load_file, save_file

    file, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    weights, said = load_file(file), json.loads(config.read_text())
    if kind == "renamed":
        weights = {f"x.{name}": weight for name, weight in weights.items()}
    elif kind == "half":
        weights = {name: weight for name, weight in weights.items() if "lora_A" in name}
    elif kind == "more":
        weights |= {name.replace("q_proj", "o_proj"): weights[name].clone() for name in weights}
    elif kind == "prefix":
        said = {"peft_type": "PREFIX_TUNING", "task_type": "CAUSAL_LM", "num_virtual_tokens": 4,
                "base_model_name_or_path": said["base_model_name_or_path"]}  # fmt: skip
    else:
        said["layer_replication"] = [[0, 2], [1, 2]]
    save_file(weights, file)
    config.write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("renamed", "lacks"),
        ("half", "lacks"),
        ("more", "no place for"),
        ("prefix", "PREFIX_TUNING"),
        ("replicated", "layer_replication"),
    ],
)
def test_an_adapter_that_peft_would_leave_out_is_refused(tiny_model_dir, tmp_path, kind, says):
    model = adapted(tiny_model_dir, torch.float32, 0.05, targets=["q_proj"])
    model.save_pretrained(tmp_path / "adapter")
    merging.load_merged(str(tmp_path / "adapter"), "key")
    change_adapter(tmp_path / "adapter", kind)
    with pytest.raises(UserError, match=says):
        merging.load_merged(str(tmp_path / "adapter"), "key")


def test_a_merge_that_fails_leaves_nothing(run_stage, tmp_path, monkeypatch):
    sft = run_stage("sft", **LORA)
    grpo = {"model_name_or_path": str(sft / "adapter"), "max_steps": 1}
    write = adapters.write_model

    def fail(model, tokenizer, folder):
        write(model, tokenizer, folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(adapters, "write_model", fail)
    with pytest.raises(OSError, match="No space"):
        run_stage("grpo", **grpo)
    assert not list((tmp_path / "merged").glob("*"))
    monkeypatch.setattr(adapters, "write_model", write)
    run_stage("grpo", **grpo)
    (merged,) = (tmp_path / "merged").iterdir()
    shutil.rmtree(merged)
    old, new = (merged.with_name(f"{merged.name}.{number}.partial") for number in (1, 2))
    for left in (old, new):
        left.mkdir()
    os.utime(old, (0, 0))
    run_stage("grpo", **grpo, output_dir=str(tmp_path / "again"))
    assert new.is_dir() and not old.exists()  # another process may be writing
