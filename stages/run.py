"""What every training stage does around its algorithm, written once.

Start or resume, quiet logging with one progress bar, save, manifest. A stage that is killed leaves
no manifest; started again with the same inputs it goes on from its last whole checkpoint. Started
with other inputs, or when it had finished, it begins anew and the old run is moved to
`<folder>.previous`, so that no checkpoint ever continues on the wrong data.
"""

import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.integrations import integration_utils, is_deepspeed_zero3_enabled
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from data_prep import checkpoints, manifest
from data_prep.config import UserError
from data_prep.progress import Bar
from stages.launch import (
    RUN_FILE,
    asked_engine,
    check_resume,
    check_started,
    is_same_work,
    last_checkpoint,
    read_run,
)

# Where several processes share a CPU accelerate calls it cpu:0, and `torch.load`, told by the
# Trainer to read the optimizer's state onto that, knows no such place: no run could be resumed.
torch.serialization.register_package(
    0, lambda storage: None, lambda storage, place: storage if place == "cpu:0" else None
)


def is_main_process() -> bool:
    """Whether this is the one process that touches files and prints (rank 0)."""
    return os.environ.get("RANK", "0") == "0"


def say(line: str) -> None:
    """One line to the user, from the main process only."""
    if is_main_process():
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def prepare(
    folder: str, config: dict[str, Any], inputs: dict[str, str]
) -> tuple[float, str | None]:
    """Decide between resume and fresh start, and make the stage's folder ready.

    Returns:
        Start time for the manifest, and the checkpoint to resume from (None: from the start).
    """
    check_started(bool(config.get("use_cpu")))
    path, num_processes = Path(folder), int(os.environ.get("WORLD_SIZE", "1"))
    run = {"config": config, "inputs": inputs, "num_processes": num_processes}
    run = json.loads(json.dumps(run | {"engine": asked_engine()}, default=str))
    is_same = is_same_work(read_run(path), run) and not (path / manifest.NAME).exists()
    checkpoint = last_checkpoint(path) if is_same else None
    source = checkpoint or config.get("resume_from_checkpoint")
    if isinstance(source, str | Path):
        check_resume(Path(source), run)
    if not is_main_process():
        return 0.0, str(checkpoint) if checkpoint else None
    if checkpoint:
        say(f"resuming from {checkpoint}")
    elif path.exists() and any(path.iterdir()):
        previous = path.with_name(path.name + ".previous")
        for folder in (path, previous):  # never move or remove what is not ours
            if folder.exists() and not (folder / RUN_FILE).is_file():
                raise UserError(
                    f"output_dir: {folder} holds files that no training stage wrote; choose another"
                )
        shutil.rmtree(previous, ignore_errors=True)
        path.rename(previous)
        say(f"starting anew; the earlier run is kept in {previous}")
    started = manifest.start(path)
    manifest.write_json(path / RUN_FILE, run)
    return started, str(checkpoint) if checkpoint else None


def effective_config(*parts: Any) -> dict[str, Any]:
    """One flat mapping of all the stage's keys: ours and Hugging Face's."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part.to_dict() if hasattr(part, "to_dict") else vars(part)
    # Folders named after the host or the hour would make equal runs look different.
    return {k: v for k, v in merged.items() if k not in ("logging_dir", "run_name", "hub_token")}


def load_tokenizer(model: Any, config: Any, template: str | None = None, **kwargs: Any) -> Any:
    """The tokenizer of the checkpoint that a stage trains, with a chat template and an EOS."""
    tokenizer = checkpoints.load_tokenizer(
        model.model_name_or_path,
        "model_name_or_path",
        ("eos_token",) if template else ("chat_template", "eos_token"),
        revision=model.model_revision,
        trust_remote_code=config.trust_remote_code,
        **kwargs,
    )
    tokenizer.chat_template = template or tokenizer.chat_template
    return tokenizer


def trainer_kwargs(model: Any, config: Any) -> dict[str, Any]:
    """What both trainers take from the recipe: the model's path and how to load and adapt it."""
    from trl import get_peft_config, get_quantization_config

    config.model_init_kwargs = {
        "dtype": model.dtype,
        "attn_implementation": model.attn_implementation,
        "revision": model.model_revision,
        "trust_remote_code": config.trust_remote_code,
    } | (config.model_init_kwargs or {})
    return {
        "model": model.model_name_or_path,
        "args": config,
        "peft_config": get_peft_config(model),
        "quantization_config": get_quantization_config(model),
    }


def save(trainer: Trainer) -> None:
    """Save a checkpoint that every later stage can load as a plain model.

    LoRA weights are merged into it, and kept by themselves in `adapter/`. Where the weights are
    sharded (FSDP, ZeRO-3) they cannot be merged in place: the folder then holds the adapter only.
    """
    from peft import PeftModel

    folder = Path(trainer.args.output_dir)
    model = trainer.accelerator.unwrap_model(trainer.model)
    is_sharded = trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled()
    if isinstance(model, PeftModel) and not is_sharded:
        trainer.save_model(str(folder / "adapter"))
        if is_main_process():
            model.merge_and_unload().save_pretrained(folder)
            trainer.processing_class.save_pretrained(folder)
    else:
        trainer.save_model(str(folder))
    trainer.save_state()


def train(trainer: Trainer, name: str, checkpoint: str | None) -> None:
    """Train with one progress bar, from `checkpoint` or the recipe's `resume_from_checkpoint`."""
    keep_metric_names()
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    progress = StageProgress(name)
    trainer.add_callback(progress)
    try:
        trainer.train(resume_from_checkpoint=checkpoint or trainer.args.resume_from_checkpoint)
    finally:
        progress.on_train_end(None, None, None)  # an error's line would be glued to the bar
    save(trainer)


def finish(trainer: Trainer) -> None:
    """End all processes together: one that just leaves can abort another's open connection.

    The data-parallel wrapper goes first. Freed after the process group it would be the one to end
    it, holding the interpreter's lock that gloo's thread waits for, and the process would hang.
    """
    trainer.accelerator.wait_for_everyone()
    trainer.model_wrapped = None
    trainer.accelerator.free_memory()
    if vllm := getattr(getattr(trainer, "vllm_generation", None), "llm", None):
        vllm.llm_engine.engine_core.shutdown()  # its own groups lie within the one that ends now
    trainer.accelerator.end_training()


class StageProgress(TrainerCallback):
    """One bar per stage with a few live metrics, in place of a printed dict per logging step."""

    SHOWN = {  # noqa: RUF012 - never changed
        "loss": "loss",
        "mean_token_accuracy": "accuracy",
        "rollout/rewards": "reward",
        "rollout/correctness": "correct",
        "rollout/response_length": "tokens",
        "rollout/uniform_groups": "uniform",
    }

    def __init__(self, name: str) -> None:
        self.name = name
        self.bar: Bar | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.bar = Bar(
                total=state.max_steps,
                initial=state.global_step,
                desc=self.name,
                bar_format="{desc} {n_fmt}/{total_fmt} {remaining} left{postfix}",
            )

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args, state, control, logs=None, **kwargs):
        shown = [f"{s} {float(logs[k]):.2g}" for k, s in self.SHOWN.items() if k in (logs or {})]
        if self.bar is not None and shown:
            self.bar.set_postfix_str(", ".join(shown), refresh=False)

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def keep_metric_names() -> None:
    """Log `rollout/…`, `train/…` and `guard/…` under just these names in TensorBoard and W&B.

    Both callbacks push every key through `rewrite_logs`, which would put `train/` before it.
    """
    rewrite = integration_utils.rewrite_logs
    if getattr(rewrite, "keeps_names", False):
        return

    def rewrite_logs(logs: dict[str, Any]) -> dict[str, Any]:
        named = {k: v for k, v in logs.items() if k.startswith(("rollout/", "train/", "guard/"))}
        return rewrite({k: v for k, v in logs.items() if k not in named}) | named

    rewrite_logs.keeps_names = True
    integration_utils.rewrite_logs = rewrite_logs


def last_logged(trainer: Trainer, *keys: str) -> float:
    """The last value of the first of these metrics that was logged; NaN if none was."""
    history = trainer.state.log_history
    values = [entry[key] for key in keys[::-1] for entry in history if entry.get(key) is not None]
    return values[-1] if values else math.nan
