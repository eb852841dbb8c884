"""What every training stage does around its algorithm, written once.

Start or resume, quiet logging with one progress bar, save, manifest. A stage that is killed leaves
no manifest; started again with the same inputs it goes on from its last whole checkpoint
(`stages.run_folder`), and finished with the same inputs it is up to date. Started with others it
trains in `<folder>.next`, and takes its place when it is whole.
"""

import functools
import json
import math
import os
import shlex
import sys
import time
from pathlib import Path
from socket import gethostname
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import Trainer, TrainerCallback
from transformers.integrations import integration_utils, is_deepspeed_zero3_enabled
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_utils import rotate_checkpoints

from pipeline import card, checkpoints, manifest
from pipeline.console import Bar, is_main_process, quiet_trackers, say
from pipeline.errors import UserError, check_space
from stages import run_folder
from stages.launch import FSDP, asked_engine, check_started, refuse_if

# Who is told of a run, and under which name, makes it no other run.
NOT_COMPARED = (
    "hub_token", "logging_dir", "run_name", "project", "report_to", "trackio_space_id",
    "trackio_bucket_id", "trackio_static_space_id", "num_completions_to_print",
    "vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout",
    "vllm_group_port", "vllm_call_timeout",
)  # fmt: skip
VISIBLE_SECONDS = 60  # NFS may remember for a minute that a file was not there


@functools.cache  # it adds to a list
def let_torch_load_onto_cpu_0() -> None:
    """Let `torch.load` know the place cpu:0, as accelerate calls a CPU that processes share.

    The Trainer reads the optimizer's state onto it: without this no such run could be resumed.
    """
    torch.serialization.register_package(
        0, lambda storage: None, lambda storage, place: storage if place == "cpu:0" else None
    )


def prepare(folder: str, config: dict[str, Any], inputs: dict[str, str]) -> run_folder.Start | None:
    """Decide between resume and fresh start, and make the folder ready; None: nothing to do."""
    check_started(bool(config.get("use_cpu")))
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    run = {"config": config, "inputs": inputs, "num_processes": num_processes}
    run = json.loads(json.dumps(run | {"engine": asked_engine()}, default=str))
    start, fault = None, None
    if is_main_process():
        try:
            start = start_run(folder, run)
        except UserError as error:
            fault = str(error)
    start, fault, main = broadcast_object_list([start, fault, run])
    refuse_if(fault, fault)
    check_hosts(start, main, run)
    if start.work is None:
        PartialState().destroy_process_group()
        return None
    return start


def check_hosts(start: run_folder.Start, main: dict[str, Any], run: dict[str, Any]) -> None:
    """Refuse, on every process alike, a host with another run or without the main host's folder."""
    fault, deadline = run_folder.difference(main, run), time.monotonic() + VISIBLE_SECONDS
    while start.work and not fault:
        if run_folder.read_run(Path(start.work)).get("started") == start.started:
            break
        if time.monotonic() > deadline:
            fault = f"output_dir: {start.work} is not shared"
        time.sleep(0.1)
    views = gather_object([(f"host {os.environ.get('GROUP_RANK', 0)} ({gethostname()})", fault)])
    for host, fault in views:
        refuse_if(
            fault,
            f"{fault} ({views[0][0]} and {host} differ); all hosts must share the run's folder "
            "(--run_dir) at the same path and the files it reads, and start the same command",
        )


def start_run(folder: str, run: dict[str, Any]) -> run_folder.Start:
    """`prepare` in the main process."""
    start = run_folder.choose(Path(folder), run)
    if line := run_folder.describe_superseded(folder):
        say(line)
    if start.work is None:
        return start
    source = start.checkpoint or run["config"].get("resume_from_checkpoint")
    if isinstance(source, str):
        run_folder.check_resume(Path(source), run)
    if start.checkpoint:
        say(f"resuming from {start.checkpoint}")
    old = run_folder.read_run(Path(start.work)) if start.checkpoint else {}
    name = old.get("run_name") or f"{folder} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    if start.work != folder:
        say(f"training in {start.work}; {folder} keeps its run until this one is whole")
    start = start._replace(started=manifest.start(start.work))
    made = {"started": start.started, "run_name": name}
    manifest.write_json(Path(start.work, run_folder.RUN_FILE), run | made)
    return start


def conclude(
    start: run_folder.Start, stage: str, config: dict, inputs: dict, counts: dict, **numbers: Any
) -> None:
    """Write the manifest of a run that is whole, and put it in its place; the main process only."""
    work = Path(start.work)
    models = [*manifest.model_files(work), *manifest.model_files(work / "best")]
    files = [file.relative_to(work).as_posix() for file in models]
    numbers["command"] = shlex.join(["python", "-m", f"stages.{stage}", *sys.argv[1:]])
    manifest.write(work, stage, config, inputs, counts, start.started, files, **numbers)
    for folder in {(work / file).parent for file in files}:
        card.write(folder)  # in place of TRL's draft
    run_folder.put_in_place(work, Path(start.folder))


def effective_config(*parts: Any) -> dict[str, Any]:
    """One flat mapping of all the stage's keys: ours and Hugging Face's."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part.to_dict() if hasattr(part, "to_dict") else vars(part)
    return {k: v for k, v in merged.items() if k not in NOT_COMPARED}


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
    if asked_engine() == FSDP and (config.bf16 or config.fp16):
        # accelerate's own policy rounds gradients before their sum over the processes, as well as
        # what every forward returns: losses and log-probs.
        dtype = torch.bfloat16 if config.bf16 else torch.float16
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        config.fsdp_plugin_args = {"mixed_precision_policy": policy}
    name_tracked_run(config)
    return {
        "model": model.model_name_or_path,
        "args": config,
        "peft_config": get_peft_config(model),
        "quantization_config": get_quantization_config(model),
    }


def name_tracked_run(config: Any) -> None:
    """Give the trackers the recipe's names; a resumed run keeps the one that it had."""
    config.run_name = config.run_name or run_folder.read_run(Path(config.output_dir)).get(
        "run_name"
    )
    if config.project != "huggingface":  # the default; W&B takes it from the environment alone
        os.environ["WANDB_PROJECT"] = config.project
    quiet_trackers(config.report_to)


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
    let_torch_load_onto_cpu_0()
    keep_metric_names()
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    progress = StageProgress(name)
    trainer.add_callback(progress)
    trainer.add_callback(FiniteNumbers(trainer))
    limit, trainer.args.save_total_limit = trainer.args.save_total_limit, None
    trainer.add_callback(SealCheckpoints(trainer, limit))
    trainer.add_callback(StopAtEnd())
    if hasattr(trainer, "_total_train_tokens"):
        trainer.add_callback(TokenCount(trainer))
    if trainer.args.save_strategy != "no":
        check_space(trainer.args.output_dir, checkpoint_bytes(trainer.model), "one more checkpoint")
    try:
        trainer.train(resume_from_checkpoint=checkpoint or trainer.args.resume_from_checkpoint)
    except AlreadyTrainedError:
        pass
    except Exception as error:
        if type(error).__module__.startswith("wandb"):  # no key, no network
            raise UserError(f"report_to: wandb: {error}") from error
        if "probability tensor contains" not in str(error):  # torch, of a sample to be drawn
            raise
        raise stopped(trainer, "the model's probabilities") from error
    finally:
        progress.on_train_end(None, None, None)  # an error's line would be glued to the bar
    trainer.args.save_total_limit = limit
    save(trainer)
    if trainer.args.should_save:  # a kill may have come before the last one was
        rotate_checkpoints(trainer.args.output_dir, limit)


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


class AlreadyTrainedError(Exception):
    """The checkpoint that training would go on from is the last one."""


class StopAtEnd(TrainerCallback):
    """Ends a run that resumes at its last step; the Trainer would take one more."""

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            raise AlreadyTrainedError


class TokenCount(TrainerCallback):
    """Keeps TRL's count of SFT's tokens in the checkpoints; after a resume it would start at 0."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.trainer._total_train_tokens = state.stateful_callbacks.get("num_tokens", 0)

    def on_step_end(self, args, state, control, **kwargs):
        state.stateful_callbacks["num_tokens"] = self.trainer._total_train_tokens


class SealCheckpoints(TrainerCallback):
    """Writes `files.json` before `trainer_state.json`, which makes a checkpoint one to go on from.

    That is when all processes have written their part. Older checkpoints go only after it, by their
    number (the Trainer would go by the clock), so that a kill at any moment leaves a whole one.
    """

    def __init__(self, trainer: Trainer, save_total_limit: int | None) -> None:
        self.save_total_limit = save_total_limit
        save_last_files = trainer._save_rng_state

        def save_and_seal(output_dir: str) -> None:
            save_last_files(output_dir)
            self.seal(trainer.args, output_dir)

        trainer._save_rng_state = save_and_seal

    @staticmethod
    def seal(args: Any, checkpoint: str) -> None:
        PartialState().wait_for_everyone()
        if args.should_save:
            run_folder.seal(Path(checkpoint))

    def on_save(self, args, state, control, **kwargs):
        self.seal(args, f"{args.output_dir}/checkpoint-{state.global_step}")
        if args.should_save:
            rotate_checkpoints(args.output_dir, self.save_total_limit)


def checkpoint_bytes(model: torch.nn.Module) -> int:
    """About the size of a checkpoint: weights, and twice those that are trained, for Adam."""
    return sum(
        getattr(p, "ds_numel", p.numel()) * p.element_size() * (3 if p.requires_grad else 1)
        for p in model.parameters()
    )


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


def stopped(trainer: Trainer, what: str) -> UserError:
    """That a run has ended because something is NaN or infinite, what helps, and what is left."""
    folder, step = trainer.args.output_dir, trainer.state.global_step
    checkpoint = run_folder.last_checkpoint(Path(folder))
    return UserError(
        f"{folder}: stopped at step {step}: {what} became NaN or infinite; lower learning_rate or "
        f"max_grad_norm; the last checkpoint is {checkpoint or 'none'}"
    )


class FiniteNumbers(TrainerCallback):
    """Ends all processes at the step whose loss or weights are NaN or infinite, before it is saved.

    A gradient that is makes the weights so, but for those that fp16's loss scaling leaves out.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        trainer.args.logging_nan_inf_filter = False  # it shows the mean of earlier losses instead

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **kwargs):
        # Of a sharded weight the part that is here: DeepSpeed's, FSDP2's.
        parts = [getattr(p, "ds_tensor", p) for p in model.parameters() if p.requires_grad]
        parts = [p.to_local() if hasattr(p, "to_local") else p for p in parts]
        largest = torch.nn.utils.get_total_norm([p for p in parts if p.numel()], math.inf)
        loss = self.trainer._tr_loss
        is_bad = torch.stack([~loss.isfinite(), ~largest.to(loss.device).isfinite()]).float()
        bad_loss, bad_weights = self.trainer.accelerator.reduce(is_bad, reduction="sum").tolist()
        if bad_loss or bad_weights:
            raise stopped(self.trainer, "the loss" if bad_loss else "the weights")


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
