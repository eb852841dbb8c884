"""SFT with the real trainer: what the loss sees, and what a run leaves on disk."""

import itertools
import json
import re
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from pipeline import manifest
from pipeline.errors import UserError
from stages import sft_rows
from stages.packed_rows import check_rows_apart
from stages.run import training
from tests.files import read_rows, write_rows
from tests.integration import varlen_on_cpu
from tests.integration.conftest import change_json
from tests.integration.flash_on_cpu import NAME as FLASH
from tests.integration.trainer.runs import read_logs

pytestmark = pytest.mark.integration


class TrainerBuilt(Exception):
    """Raised in place of training, with the trainer that would have trained."""


@pytest.fixture
def build_trainer(run_stage, monkeypatch):
    """The trainer as `stages.sft` builds it, not trained."""

    def stop(trainer, name, checkpoint):
        raise TrainerBuilt(trainer)

    def build(**settings):
        with monkeypatch.context() as patch, pytest.raises(TrainerBuilt) as built:
            patch.setattr(training, "train", stop)
            run_stage("sft", **settings)
        return built.value.args[0]

    return build


def spans_in_loss(trainer):
    """Every run of tokens inside the loss, and every one outside, as texts, over an epoch."""
    spans = {True: [], False: []}
    for batch in trainer.get_train_dataloader():
        ids, labels = batch["input_ids"], batch["labels"]  # (B, P + C)
        mask = batch["attention_mask"] if "attention_mask" in batch else torch.ones_like(ids)
        assert ((labels == ids) | (labels == -100)).all() and (labels[mask == 0] == -100).all()
        for row, taught, real in zip(ids, labels != -100, mask.bool(), strict=True):
            tokens = zip(taught[real].tolist(), row[real].tolist(), strict=True)
            for is_taught, span in itertools.groupby(tokens, key=lambda one: one[0]):
                text = trainer.processing_class.decode([token for _, token in span])
                spans[is_taught].append(text)
    return spans[True], spans[False]


@pytest.mark.parametrize(("packing", "opened"), [(False, ""), (True, ""), (False, "<think>\n")])
def test_the_loss_is_on_the_completion_and_its_end(
    build_trainer, data_dir, tiny_model_dir, tmp_path, packing, opened
):
    """Also where the template opens the thought, which is a part of the prompt then."""
    model = shutil.copytree(tiny_model_dir, tmp_path / "model")
    template = (model / "chat_template.jinja").read_text()
    changed = template.replace("assistant\n{% endif %}", f"assistant\n{opened}{{% endif %}}")
    assert (changed != template) is bool(opened)
    (model / "chat_template.jinja").write_text(changed)
    keys = {"model_name_or_path": str(model), "packing": packing}
    trainer = build_trainer(**keys, num_train_epochs=1, max_steps=-1)
    inside, outside = spans_in_loss(trainer)
    rows = read_rows(data_dir / "sft_train.jsonl")
    taught = [row["completion"].removeprefix(opened) + "<|im_end|>" for row in rows]
    assert sorted(inside) == sorted(taught)
    assert all("</think>" in text and "\\boxed{" in text for text in inside)
    start, turn = "<|im_start|>user\n", f"<|im_end|>\n<|im_start|>assistant\n{opened}"
    assert sorted(outside) == sorted(start + row["question"] + turn for row in rows)
    assert (len(trainer.train_dataset) < len(rows)) is packing


@pytest.mark.parametrize("way", ["flash packing", "padding_free", "padding_free varlen"])
def test_rows_without_padding_train_as_padded_ones(
    run_stage, flash_calls, tmp_path, monkeypatch, way
):
    """With the mask that `sdpa` gets, and with one call a layer for all rows of a step."""
    calls, settings = [], {"padding_free": True}
    if way == "flash packing":
        calls, settings = flash_calls, {"packing": True, "attn_implementation": FLASH}
    elif way == "padding_free varlen":
        calls = varlen_on_cpu.install(monkeypatch)
    logs = []
    for name, keys in (("padded", {}), ("tight", settings)):
        folder = str(tmp_path / name)
        run_stage("sft", per_device_train_batch_size=40, output_dir=folder, **keys)  # all rows
        logs.append(read_logs(tmp_path / name))
    lengths = {*map(len, calls)}
    assert (40 in lengths) is (way != "padding_free")
    assert way != "flash packing" or lengths == {3, 40}  # three rows show that they are apart
    for wanted, found in zip(*logs, strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-4)
        rel = 1e-4 if way == "flash packing" else 1e-3
        assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=rel)


def test_long_rows_are_dropped_and_counted_never_cut(run_stage, data_dir, tiny_model_dir, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    rows = read_rows(data_dir / "sft_train.jsonl")
    lengths = sorted(sum(map(len, pair)) for pair in sft_rows.tokenize(rows, tokenizer))
    limit = lengths[20]
    num_kept = sum(length <= limit for length in lengths)
    assert 20 < num_kept < 40
    written = manifest.read(run_stage("sft", max_length=limit, max_steps=1))
    assert (written["rows_in"], written["rows_out"]) == (40, num_kept)
    assert written["dropped"] == {"over_max_length": 40 - num_kept}
    assert written["counts"]["tokens"] == sum(lengths[:num_kept])
    with pytest.raises(UserError, match=r"max_length: 3 is shorter than every row"):
        run_stage("sft", max_length=3)
    assert manifest.read(tmp_path / "sft") == written  # refused before the old run was touched


def test_a_run_shorter_than_its_logging_interval_ends_well(run_stage, capsys):
    folder = run_stage("sft", max_steps=1, logging_steps=50)
    assert manifest.read(folder)["counts"]["steps"] == 1
    # The mean of the run, which is all that was logged.
    assert re.search(r"sft: 1 steps, loss \d+\.\d{4}, ", capsys.readouterr().out)


@pytest.fixture
def held_out(tmp_path):
    """A file with ten rows that are not in the training file."""
    from data_prep.schema import sft_row
    from data_prep.sources import synthetic

    rows = [
        sft_row(problem, "none") for problem in synthetic.load("validation", 10, 0, max_level=2)
    ]
    write_rows(tmp_path / "held_out.jsonl", rows)
    return tmp_path / "held_out.jsonl"


EVALUATE = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 10}


@pytest.mark.parametrize("packing", [False, True])
def test_the_held_out_loss_is_that_of_its_rows(run_stage, held_out, tmp_path, packing, capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = run_stage("sft", eval_file=str(held_out), packing=packing, **EVALUATE)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    losses = []
    for prompt, completion in sft_rows.tokenize(read_rows(held_out), tokenizer):
        ids = torch.tensor([[*prompt, *completion]])
        with torch.no_grad():
            logps = model(ids).logits[0, :-1].log_softmax(-1)
        taken = -logps[range(len(ids[0]) - 1), ids[0, 1:]]  # (C,)
        losses.append(taken[-len(completion) :])
    wanted = torch.cat(losses).mean().item()
    written, state = manifest.read(folder), json.loads((folder / "trainer_state.json").read_text())
    logged = [log["eval_loss"] for log in state["log_history"] if "eval_loss" in log]
    assert len(logged) == 2 and written["eval_loss"] == logged[-1]
    if not packing:  # packed rows are evaluated in batches of their own
        assert logged[-1] == pytest.approx(wanted, rel=1e-4)
    assert logged[-1] == pytest.approx(wanted, rel=0.05)
    assert written["counts"]["held_out_rows"] == 10 and str(held_out) in written["inputs"]
    assert "held-out loss" in capsys.readouterr().out


def test_rows_that_make_no_batch_are_refused(run_stage):
    batch = {"dataloader_drop_last": True, "per_device_train_batch_size": 500}
    with pytest.raises(UserError, match=r"^dataloader_drop_last: true drops all \d+ rows, .* 500;"):
        run_stage("sft", **batch)


def test_a_run_that_ends_before_its_last_step_is_no_result(run_stage, monkeypatch, tmp_path):
    class Early(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = True

    train = training.train

    def train_one_step(trainer, *args):
        trainer.add_callback(Early())
        train(trainer, *args)

    monkeypatch.setattr(training, "train", train_one_step)
    with pytest.raises(UserError, match=r"training ended at step 1 of 3"):
        run_stage("sft", max_steps=3)
    assert not list(tmp_path.rglob(manifest.NAME))


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize("way", ["packing", "padding_free"])
@pytest.mark.parametrize(
    ("kind", "is_apart"), [("gpt_neox", True), ("bloom", False), ("falcon", False)]
)
def test_a_model_that_does_not_keep_packed_rows_apart_is_refused(
    build_trainer, tiny_model_dir, tmp_path, kind, is_apart, way
):
    """By what it computes."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    sizes = {"n_layer": 2, "n_head": 4} if kind == "bloom" else {}
    sizes |= {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    sizes |= {"bos_token_id": None, "pad_token_id": tokenizer.pad_token_id}
    config = AutoConfig.for_model(kind, **SIZES, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / kind)
    tokenizer.save_pretrained(tmp_path / kind)
    refused = pytest.raises(UserError, match=r"^packing: .* not keep packed rows apart")
    with nullcontext() if is_apart else refused:
        build_trainer(model_name_or_path=str(tmp_path / kind), **{way: True})


@pytest.mark.parametrize(("kind", "is_apart"), [("falcon", False), ("llama", True)])
def test_rows_are_measured_where_the_weights_still_lie_on_a_cpu(kind, is_apart):
    """As with FSDP and DeepSpeed, which move them to the GPUs later."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, vocab_size=64, **SIZES)
    model = AutoModelForCausalLM.from_config(config)
    accelerator = SimpleNamespace(unwrap_model=lambda wrapped: wrapped, autocast=nullcontext)
    args = SimpleNamespace(device=torch.device("cuda"))
    refused = pytest.raises(UserError, match=r"^packing: .* not keep packed rows apart")
    with nullcontext() if is_apart else refused:
        check_rows_apart(SimpleNamespace(model=model, accelerator=accelerator, args=args))


@pytest.mark.parametrize(
    ("use_cache", "lora"),
    [(True, {}), (False, {}), (False, {"use_peft": True, "lora_target_modules": "all-linear"})],
)
def test_the_cache_of_the_base_model_is_kept(run_stage, tiny_model_dir, tmp_path, lora, use_cache):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "base")
    change_json(folder / "config.json", use_cache=use_cache)
    made = run_stage("sft", model_name_or_path=str(folder), max_steps=2, save_steps=2, **lora)
    places = [made] if lora else [made, made / "checkpoint-2"]
    for place in places:
        assert json.loads((place / "config.json").read_text())["use_cache"] is use_cache
