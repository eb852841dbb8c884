"""Where a run trains, what it goes on from, and that nothing is lost."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import save_file
from torchao.optim import AdamW8bit
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.integrations import integration_utils

from pipeline import errors, manifest
from pipeline.errors import UserError
from stages.preflight import capacity
from stages.preflight.inputs import KEYS_OF
from stages.run import callbacks, folders, launch, training
from stages.run.saving import SavedRun
from tests.settings import settings_of

CONFIG, INPUTS = {"seed": 0, "betas": (0.9, 0.95)}, {"train.jsonl": "abc"}


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sft"


def add_checkpoint(folder, step, state="its own", is_sealed=True):
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    save_file({"weight": numpy.ones(4)}, checkpoint / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt"):
        torch.save(torch.ones(40), checkpoint / name)
    if state is not None:
        state = json.dumps({"global_step": step}) if state == "its own" else state
        (checkpoint / "trainer_state.json").write_text(state)
    if is_sealed:
        folders.seal(checkpoint)
    return checkpoint


def prepare(folder, config=CONFIG, inputs=INPUTS):
    return training.prepare("sft", str(folder), config, inputs)


def finish(run, weights="weights"):
    (Path(run.work) / "model.safetensors").write_text(weights)
    training.conclude(run, {})


def weights_of(folder):
    return (folder / "model.safetensors").read_text()


@pytest.mark.parametrize("state", [None, "", '{"global_step": 3, "log_his'])
def test_last_checkpoint_is_the_highest_with_a_state(folder, state):
    assert folders.last_checkpoint(folder) is None
    for step in (100, 20, 9, "best"):
        add_checkpoint(folder, step)
    add_checkpoint(folder, 200, state)
    assert folders.last_checkpoint(folder) == folder / "checkpoint-100"


def test_an_unfinished_run_of_the_same_work_is_resumed(folder, capsys):
    assert prepare(folder).checkpoint is None
    checkpoint = add_checkpoint(folder, 4)
    add_checkpoint(folder, 8, None)
    start = prepare(folder)
    assert (start.work, start.checkpoint) == (str(folder), str(checkpoint))
    assert capsys.readouterr().out == f"resuming from {checkpoint}\n"


@pytest.mark.parametrize("change", ["config", "inputs", "bad run file"])
def test_a_run_keeps_its_place_until_another_is_whole(folder, change):
    prepare(folder, inputs={} if change == "config" else INPUTS)
    add_checkpoint(folder, 4)
    if change == "bad run file":
        (folder / folders.RUN_FILE).write_text('{"config": ')
    config = CONFIG | ({"seed": 1} if change == "config" else {})
    inputs = {} if change == "config" else {"train.jsonl": "abd"}
    start = prepare(folder, config, inputs)
    following = folder.with_name("sft.next")
    assert (start.work, start.checkpoint) == (str(following), None)
    assert (folder / "checkpoint-4").is_dir()
    kept = add_checkpoint(following, 2)
    assert prepare(folder, config, inputs).checkpoint == str(kept)  # after a kill
    finish(start, "new")
    assert weights_of(folder) == "new" and not following.exists()
    assert (folder.with_name("sft.1") / "checkpoint-4" / "model.safetensors").is_file()


def test_finished_runs_are_up_to_date_numbered_and_come_back(folder, capsys, monkeypatch):
    other = {"seed": 1}
    finish(prepare(folder, inputs={}), weights="first")
    checkpoint = add_checkpoint(folder, 4)
    assert prepare(folder, inputs={}) is None and "up to date" in capsys.readouterr().out
    start = prepare(folder, other, {})
    assert weights_of(folder) == "first" and (checkpoint / "optimizer.pt").exists()
    finish(start, "second")
    old = folder.with_name("sft.1")
    assert weights_of(folder) == "second" and weights_of(old) == "first"
    assert not list(old.rglob("optimizer.pt"))
    capsys.readouterr()
    assert prepare(folder, inputs={}) is None and weights_of(folder) == "first"
    assert "rm -r" in capsys.readouterr().out
    monkeypatch.setenv("FORCE", "1")
    finish(prepare(folder, inputs={}), weights="third")
    names = sorted(path.name for path in folder.parent.iterdir())
    assert weights_of(folder) == "third" and names == ["sft", "sft.2", "sft.3"]


def test_a_third_configuration_keeps_what_the_second_has_trained(folder):
    for seed in (0, 1, 2):
        start = prepare(folder, {"seed": seed}, {})
        add_checkpoint(Path(start.work), 4)
    start = prepare(folder, {"seed": 1}, {})
    assert start.checkpoint == f"{folder}.next/checkpoint-4"
    assert folders.read_run(folder.with_name("sft.2"))["config"] == {"seed": 2}


def test_a_start_from_scratch_names_the_key_that_differs(folder, capsys):
    prepare(folder)
    add_checkpoint(folder, 4)
    following = Path(prepare(folder, CONFIG | {"seed": 1}).work)
    said = capsys.readouterr().out
    assert f"{folder} has checkpoint-4 of another configuration (seed: 0, not 1)" in said
    add_checkpoint(following, 2)
    prepare(folder, CONFIG | {"seed": 1})
    assert "another configuration" not in capsys.readouterr().out  # it resumes
    prepare(folder, CONFIG | {"seed": 2})
    said = capsys.readouterr().out
    assert "checkpoint-4" in said and f"{following} has checkpoint-2" in said
    finish(prepare(folder, CONFIG | {"seed": 2}))
    capsys.readouterr()
    prepare(folder, CONFIG | {"seed": 3})
    assert f"{folder} has a finished run" in capsys.readouterr().out


def files_below(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("missing", ["optimizer.pt", "scheduler.pt"])
def test_a_run_of_weights_alone_is_never_restarted_silently(folder, monkeypatch, missing, asked):
    """With `save_only_model`, or where another program wrote the checkpoint, or a user cut it."""
    config = CONFIG | {"save_only_model": asked}
    prepare(folder, config)
    checkpoint = add_checkpoint(folder, 4, is_sealed=False)
    (checkpoint / missing).unlink()
    folders.seal(checkpoint)
    before = files_below(folder)
    for _ in range(2):
        with pytest.raises(UserError, match="save_only_model" if asked else missing):
            prepare(folder, config)
    assert files_below(folder)[: len(before)] == before
    monkeypatch.setenv("FORCE", "1")
    start = prepare(folder, config)
    assert (start.work, start.checkpoint) == (f"{folder}.next", None)
    monkeypatch.delenv("FORCE")
    assert (checkpoint / "model.safetensors").is_file()
    add_checkpoint(Path(start.work), 4)  # that can be resumed
    with pytest.raises(UserError):
        prepare(folder, config)
    finish(start, "new")
    assert (folder.with_name("sft.1") / "checkpoint-4/model.safetensors").is_file()


def test_weights_alone_of_a_superseded_run_are_passed_over(folder):
    prepare(folder)
    checkpoint = add_checkpoint(folder, 4, is_sealed=False)
    (checkpoint / "optimizer.pt").unlink()
    folders.seal(checkpoint)
    finish(prepare(folder, {"seed": 1}), "other")
    old = folder.with_name("sft.1") / "checkpoint-4"
    start = prepare(folder)
    assert start.checkpoint is None and (old / "model.safetensors").is_file()


def test_hosts_may_not_differ_in_what_a_resumed_run_may():
    run = {"config": {"update_tokens": 1}, "inputs": {}, "num_processes": 1}
    other = run | {"config": {"update_tokens": 2}}
    assert not folders.difference(run, other)
    assert folders.difference(run, other, left_out=manifest.PLACES)


def test_two_spellings_of_a_path_are_one_model(tmp_path, monkeypatch):
    """A shell's completion adds a slash; the same run resumes."""
    monkeypatch.chdir(tmp_path)
    for name in ("weights", "others"):
        (tmp_path / name).mkdir()

    def made(model):
        return {
            "config": {"model_name_or_path": model, "run_name": model},
            "inputs": {model: "hash"}, "num_processes": 1,
        }  # fmt: skip

    old = made("weights")
    for model in ("weights/", "./weights", str(tmp_path / "weights")):
        new = made(model)
        new["config"]["run_name"] = "weights"
        assert not folders.difference(old, new)
    assert not folders.difference(old, made("others"))  # a copy of the same weights
    new = made("weights")
    new["inputs"]["weights"] = "another"
    assert folders.difference(old, new) == "model_name_or_path: weights has changed"


def test_deepspeed_has_its_states_in_a_folder(folder):
    checkpoint = add_checkpoint(folder, 4, is_sealed=False)
    for name in ("optimizer.pt", "scheduler.pt"):
        (checkpoint / name).unlink()
    assert folders.missing_state(checkpoint)
    (checkpoint / "global_step4").mkdir()
    assert not folders.missing_state(checkpoint)


def test_a_start_without_a_checkpoint_says_that_it_begins_again(folder, capsys):
    prepare(folder)
    assert capsys.readouterr().out == ""
    assert prepare(folder).checkpoint is None
    assert "from scratch" in capsys.readouterr().out
    add_checkpoint(folder, 4)
    prepare(folder)
    assert "from scratch" not in capsys.readouterr().out
    start = prepare(folder, {"seed": 1})
    assert "from scratch" not in capsys.readouterr().out  # another run, beside it
    prepare(folder, {"seed": 1})
    assert f"{start.work}: " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["sft", "sft.next"])
def test_a_folder_that_no_stage_wrote_is_not_touched(folder, name):
    add_checkpoint(Path(prepare(folder).work), 4)
    prepare(folder, {"seed": 1})  # both folders exist now
    theirs = folder.with_name(name)
    (theirs / folders.RUN_FILE).rename(theirs / "thesis.tex")
    with pytest.raises(UserError, match=f"output_dir: .*{name} holds files that no training stage"):
        prepare(folder, {"seed": 2})
    assert (theirs / "thesis.tex").is_file()


def test_a_file_half_written_by_a_kill_is_nobodys(folder):
    folder.mkdir()
    (folder / f"{folders.RUN_FILE}.partial").write_text('{"config"')
    assert prepare(folder).work == str(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "trainer_state.json", "files.json"])
@pytest.mark.parametrize("change", ["cut", "overwritten", "removed"])
def test_a_damaged_checkpoint_is_set_aside(folder, capsys, name, change):
    prepare(folder)
    for step in (4, 8):
        add_checkpoint(folder, step)
    file = folder / "checkpoint-8" / name
    if change == "removed":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-3] if change == "cut" else b"{}")
    assert prepare(folder).checkpoint == str(folder / "checkpoint-4")


def test_a_checkpoint_killed_before_it_had_its_hashes_is_passed_over_and_stays(folder):
    prepare(folder)
    for step in (4, 8):
        last = add_checkpoint(folder, step, is_sealed=step == 4)
    assert prepare(folder).checkpoint == str(folder / "checkpoint-4")
    assert (last / "trainer_state.json").is_file()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_foreign_checkpoint_without_hashes_is_judged_by_its_formats(tmp_path, name, share):
    checkpoint = add_checkpoint(tmp_path, 4, is_sealed=False)
    assert not folders.damage(checkpoint)
    content = (checkpoint / name).read_bytes()
    (checkpoint / name).write_bytes(content[: int(share * len(content))])
    assert folders.damage(checkpoint) == f"{name} is damaged"


def test_a_changed_byte_of_an_optimizer_without_a_hash_is_found(tmp_path):
    file = add_checkpoint(tmp_path, 8, is_sealed=False) / "optimizer.pt"
    content = bytearray(file.read_bytes())
    content[content.index(torch.ones(40).numpy().tobytes()) + 8] ^= 1
    file.write_bytes(content)
    assert folders.damage(file.parent) == "optimizer.pt is damaged"


@pytest.mark.parametrize(
    ("limit", "kept"),
    [(None, [4, 8, 9, 12]), (0, [4, 8, 9, 12]), (1, [12]), (2, [9, 12])],
)
def test_an_older_checkpoint_goes_when_the_newer_one_is_sealed(tmp_path, limit, kept):
    for step in (4, 8, 9, 12):
        add_checkpoint(tmp_path, step, is_sealed=step != 12)
        os.utime(tmp_path / f"checkpoint-{step}", (1e9 - step, 1e9 - step))  # the clock goes back
    last, written = tmp_path / "checkpoint-12", []

    class Saves:
        """Stands for the Trainer; it writes a file late."""

        def _save_checkpoint(self, model, trial):
            written.append((last / "files.json").exists())
            (last / "late.json").write_text("{}")

    class Trainer(SavedRun, Saves):
        args = SimpleNamespace(output_dir=str(tmp_path), should_save=True, save_only_model=False)
        state, keep = SimpleNamespace(global_step=12), limit
        accelerator = SimpleNamespace(wait_for_everyone=lambda: None)

        def save_more(self, checkpoint):
            (checkpoint / "more.json").write_text("{}")

    for _ in range(2):
        Trainer()._save_checkpoint(None, None)
    assert written == [False, False]
    files = {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"}
    assert folders.sealed(last)["files"].keys() == files | {"late.json", "more.json"}
    # A kill while the hashes were written leaves their partial file; it is not one to look for.
    (last / "files.json.partial").write_text("{")
    (last / "more.txt").write_text("")
    folders.seal(last)
    assert "more.txt" in folders.sealed(last)["files"] and not folders.damage(last)
    assert sorted(int(p.name[11:]) for p in tmp_path.glob("checkpoint-*")) == kept
    assert not folders.damage(tmp_path / "checkpoint-12")


def test_a_checkpoint_of_another_run_is_set_aside_and_not_removed(folder, capsys):
    prepare(folder)
    add_checkpoint(folder, 4)
    other = folder.with_name("other")
    prepare(other, {"learning_rate": 1, "betas": [0.9, 0.95], "seed": 3})
    foreign = add_checkpoint(other, 8)
    foreign.rename(folder / "checkpoint-8")
    assert prepare(folder).checkpoint == str(folder / "checkpoint-4")
    assert "seed: 3, not 0" in capsys.readouterr().out
    assert (folder / "foreign-1-checkpoint-8" / "model.safetensors").is_file()
    with pytest.raises(UserError, match="seed: 3, not 0"):
        source = str(folder / "foreign-1-checkpoint-8")
        prepare(folder.with_name("third"), CONFIG | {"resume_from_checkpoint": source})


def test_a_checkpoint_under_another_step_s_name_is_set_aside(folder, capsys):
    prepare(folder)
    add_checkpoint(folder, 4)
    add_checkpoint(folder, 8).rename(folder / "checkpoint-80")
    assert prepare(folder).checkpoint == str(folder / "checkpoint-4")
    assert "rename it to checkpoint-8" in capsys.readouterr().out
    assert (folder / "damaged-1-checkpoint-80" / "model.safetensors").is_file()


def test_a_damaged_result_is_saved_again_from_its_last_checkpoint(folder):
    finish(prepare(folder, inputs={}))
    checkpoint = add_checkpoint(folder, 4)
    (folder / "model.safetensors").write_text("weigh")
    assert prepare(folder, inputs={}).checkpoint == str(checkpoint)


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


@pytest.mark.parametrize(("kind", "refused"), [("qwen2", True), ("qwen2_moe", False)])
def test_a_loss_of_the_router_needs_one(tmp_path, kind, refused):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    model = SimpleNamespace(model_name_or_path=str(tmp_path), model_revision="main")
    config = SimpleNamespace(router_aux_loss_coef=0.1, trust_remote_code=False)
    if not refused:
        training.check_router(model, config)
        return
    with pytest.raises(UserError, match=r"^router_aux_loss_coef: 0\.1"):
        training.check_router(model, config)


def trainer_of(model, optim="adamw_torch", is_zero=False):
    """What the size of a checkpoint is read from."""
    args = SimpleNamespace(optim=optim)
    return SimpleNamespace(model=model, args=args, is_deepspeed_enabled=is_zero)


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(
    ("dtype", "optim", "optimizer"),
    [
        (torch.float32, "adamw_torch", torch.optim.AdamW),
        (torch.bfloat16, "adamw_torch_fused", torch.optim.AdamW),
        (torch.bfloat16, "adamw_torch_8bit", AdamW8bit),
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
LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear"}


@pytest.mark.parametrize(
    ("values", "engine", "number"),
    [  # bytes of each trained number: itself, two states, ZeRO's copy in float32
        ({"dtype": "float32"}, "none", 4 + 8),
        ({"dtype": "bfloat16"}, "none", 2 + 4),
        ({"dtype": "bfloat16"}, "zero2", 2 + 8 + 4),
        ({"dtype": "bfloat16", "optim": "adamw_bnb_8bit"}, "none", 2 + 2 * 260 / 256),
        ({"dtype": "bfloat16", **LORA}, "none", 4 + 8),
        ({"dtype": "bfloat16", **LORA}, "zero2", 4 + 8 + 4),
    ],
)
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
            with pytest.raises(UserError, match=f"{what} needs .* free"):
                training.check_disk(trainer)
