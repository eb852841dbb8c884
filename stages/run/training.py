"""The steps that every training stage does around its algorithm, in the order of a run.

begin       settings and folder: up to date, resume, or a new run
train       with one progress bar
save        a checkpoint that every later stage can load
conclude    the manifest, last of all; the run takes its place
finish      all processes end together

A killed stage leaves no manifest. Started again with the same inputs it resumes from its last
complete checkpoint (stages/run/folders.py). Once finished with the same inputs it is up to date.
With other inputs it trains in `<folder>.next`, and takes the folder's place when it has finished.
"""

import functools
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoConfig, Trainer

from pipeline import manifest
from pipeline.console import is_main_process, quiet_trackers, say
from pipeline.errors import UserError, check_space
from pipeline.memory import memory_fault
from pipeline.models import card, checkpoints, dropout, generation, weights
from pipeline.models import tokenizer as tokenizers
from pipeline.models.dropout import Value
from stages import adapters, trial
from stages.arguments import row_limits
from stages.precision import TOO_SMALL
from stages.rules import TRACKERS
from stages.run import folders, removal
from stages.run.callbacks import AlreadyTrainedError, add_callbacks, stopped
from stages.run.launch import FSDP, asked_engine, check_started
from stages.run.out_of_memory import out_of_memory

VISIBLE_SECONDS = 60  # NFS may remember for a minute that a file was not there


class Run(NamedTuple):
    """A stage's run: what it is made from, where it trains and what it resumes from."""

    stage: str
    config: dict[str, Any]
    inputs: dict[str, str]  # path -> hash
    folder: str  # of the result
    work: str  # where it trains: `folder`, or next to it while that has another run
    checkpoint: str | None
    started: float


def begin(stage: str, files: Sequence[Any], args: Any, config: Any, model: Any) -> Run | None:
    """Begin a run in its folder; None if the run is there already.

    Args:
        files: files that the run reads; None is left out. A changed file makes it another run.
        args, config, model: the recipe's settings; `config.output_dir` is set to the folder
            where the run trains.
    """
    settings = effective_config(args, config, model)
    base, _ = checkpoints.base_and_adapter(model.model_name_or_path)
    inputs = manifest.hash_inputs([file for file in (*files, base) if file])
    run = prepare(stage, config.output_dir, settings, inputs)
    if run is not None:
        config.output_dir = run.work
    return run


def prepare(stage: str, folder: str, config: dict[str, Any], inputs: dict[str, str]) -> Run | None:
    """Choose between resuming and a new run, and prepare the folder.

    Returns None if the result is there.
    """
    check_started(bool(config.get("use_cpu")))
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    identity = {
        "config": config,
        "inputs": inputs,
        "num_processes": num_processes,
        "engine": asked_engine(),
    }
    # As `run.json` will give it back, with which it is compared: tuples are lists there.
    identity = json.loads(json.dumps(identity, default=str))
    start, fault = None, None
    if is_main_process():
        try:
            start = start_run(folder, identity)
        except UserError as error:
            fault = str(error)
    start, fault, main = broadcast_object_list([start, fault, identity])
    if fault:
        raise UserError(fault)
    check_hosts(start, main, identity)
    if start.work is None:
        PartialState().destroy_process_group()
        return None
    return Run(
        stage=stage,
        config=config,
        inputs=inputs,
        folder=start.folder,
        work=start.work,
        checkpoint=start.checkpoint,
        started=start.started,
    )


def check_hosts(start: folders.Start, main: dict[str, Any], mine: dict[str, Any]) -> None:
    """Refuse a host whose run differs or that does not see the shared folder.

    Every process raises alike.
    """
    fault, deadline = (
        folders.difference(main, mine, left_out=()),
        time.monotonic() + VISIBLE_SECONDS,
    )
    while start.work and not fault:
        if folders.read_run(Path(start.work)).get("started") == start.started:
            break
        if time.monotonic() > deadline:
            fault = f"output_dir: {start.work} is not shared"
        time.sleep(0.1)
    views = gather_object([(f"host {os.environ.get('GROUP_RANK', 0)} ({gethostname()})", fault)])
    for host, fault in views:
        if fault:
            raise UserError(
                f"{fault} ({views[0][0]} and {host} differ); all hosts must share the run's folder "
                "(--run_dir) at the same path and the files it reads, and start the same command"
            )


def start_run(folder: str, identity: dict[str, Any]) -> folders.Start:
    """Choose where a run trains and write its `run.json`; in the main process only."""
    restarted = folders.describe_restart(Path(folder), identity)
    others = folders.describe_others(Path(folder), identity)
    start = folders.choose(Path(folder), identity)
    if restarted and not start.checkpoint:
        say(restarted)
    for line in folders.describe_kept(folder):
        say(line)
    if start.work is None:
        return start
    removal.remove_torn(Path(start.work))
    source = start.checkpoint or identity["config"].get("resume_from_checkpoint")
    if isinstance(source, str):
        folders.check_resume(Path(source), identity)
    name = f"{folder} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    if start.checkpoint:
        say(f"resuming from {start.checkpoint}")
        name = folders.read_run(Path(start.work)).get("run_name") or name
    elif others and not source:
        say(f"{'; '.join(others)}; starting a new run")
    if start.work != start.folder:
        say(f"training in {start.work}; {folder} keeps its run until this one has finished")
    start = start._replace(started=manifest.start(start.work))
    made = {"started": start.started, "run_name": name}
    manifest.write_json(Path(start.work, folders.RUN_FILE), identity | made)
    return start


def effective_config(*parts: Any) -> dict[str, Any]:
    """One flat mapping of all the stage's keys: ours and Hugging Face's."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part.to_dict() if hasattr(part, "to_dict") else vars(part)
    return {k: v for k, v in merged.items() if k not in manifest.NOT_RECORDED}


def load_tokenizer(model: Any, config: Any, template: str | None = None, **kwargs: Any) -> Any:
    """The tokenizer of the checkpoint that a stage trains, with a chat template and an EOS."""
    tokenizer = tokenizers.load_tokenizer(
        model.model_name_or_path,
        "model_name_or_path",
        ("eos_token",) if template else ("chat_template", "eos_token"),
        revision=model.model_revision,
        trust_remote_code=config.trust_remote_code,
        **kwargs,
    )
    tokenizer.chat_template = template or tokenizer.chat_template
    return tokenizer


def check_start(args: Any, config: Any, model: Any, tokenizer: Any) -> None:
    """Refuse a model whose weights, embedding or positions do not fit: `weights.check_start`.

    Args:
        args, config, model: the recipe's settings. tokenizer: with the template of the training.
    """
    with adapters.loaded_whole(config):
        weights.check_start(
            model.model_name_or_path,
            "model_name_or_path",
            tokenizer,
            row_limits(config, args),
            revision=model.model_revision,
            trust_remote_code=config.trust_remote_code,
        )


def trainer_kwargs(model: Any, config: Any) -> dict[str, Any]:
    """Arguments of both trainers: the model's path, and how to load and adapt it."""
    from trl import get_peft_config, get_quantization_config

    config.model_init_kwargs = {
        "dtype": model.dtype,
        "attn_implementation": model.attn_implementation,
        "revision": model.model_revision,
        "trust_remote_code": config.trust_remote_code,
    } | (config.model_init_kwargs or {})
    repaired, changes = generation.read_repaired(model.model_name_or_path, model.model_revision)
    if repaired is not None:
        where = f"model_name_or_path: {model.model_name_or_path}: {generation.NAME}"
        say(f"{where} is repaired, or no save would take it: {changes}")
        config.model_init_kwargs["generation_config"] = repaired
    if asked_engine() == FSDP and (config.bf16 or config.fp16):
        # accelerate's own policy rounds gradients before their sum over the processes, as well as
        # what every forward returns: losses and log-probs.
        dtype = torch.bfloat16 if config.bf16 else torch.float16
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        config.fsdp_plugin_args = {"mixed_precision_policy": policy}
    name_tracked_run(config)
    check_router(model, config)
    return {
        "model": adapters.merged_start(model.model_name_or_path, config),
        "args": config,
        "peft_config": get_peft_config(model),
        "quantization_config": get_quantization_config(model),
    }


def load_config(model: Any, config: Any) -> Any:
    """The configuration, of its text part, of the model that a stage starts from."""
    base, adapter = checkpoints.base_and_adapter(model.model_name_or_path, "model_name_or_path")
    with checkpoints.loading("config", model.model_name_or_path, "model_name_or_path"):
        loaded = AutoConfig.from_pretrained(
            base,
            revision=None if adapter else model.model_revision,
            trust_remote_code=config.trust_remote_code,
        )
    return loaded.get_text_config()


def check_router(model: Any, config: Any) -> None:
    """Refuse a loss of the router for a model that has none, before its weights are loaded."""
    if not config.router_aux_loss_coef:
        return
    if not hasattr(load_config(model, config), "output_router_logits"):
        raise UserError(
            f"router_aux_loss_coef: {config.router_aux_loss_coef}, but {model.model_name_or_path} "
            "is no mixture of experts; remove it"
        )


def name_tracked_run(config: Any) -> None:
    """Give the trackers the recipe's names; a resumed run keeps the one that it had.

    trackio takes the project from its own argument, the others from the environment alone. Like
    W&B it groups the runs of a sweep.
    """
    if not config.run_name:
        config.run_name = folders.read_run(Path(config.output_dir)).get("run_name")
    if config.project != "huggingface":  # the default
        for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "SWANLAB_PROJECT"):
            os.environ[name] = config.project
    if "trackio" in config.report_to:
        import trackio

        trackio.init = functools.partial(trackio.init, group=os.environ.get("WANDB_RUN_GROUP"))
    quiet_trackers(config.report_to)


def train(trainer: Trainer, name: str, checkpoint: str | None) -> None:
    """Train with one progress bar, from `checkpoint` or the recipe's `resume_from_checkpoint`."""
    let_torch_load_onto_cpu_0()
    adapters.check_adapted(trainer.model, getattr(trainer.args, "use_vllm", False))
    check_trained_dtype(trainer)
    args, progress = trainer.args, add_callbacks(trainer, name)
    trainer.base_values = base_values(trainer)
    trainer.keep, args.save_total_limit = args.save_total_limit, None
    trial.repair_defaults(trainer)
    check_disk(trainer)
    try:
        trainer.train(resume_from_checkpoint=checkpoint or args.resume_from_checkpoint)
    except AlreadyTrainedError:
        pass
    except Exception as error:
        if why := memory_fault(error):
            raise out_of_memory(trainer, why) from error
        tracker = type(error).__module__.partition(".")[0]
        if tracker in TRACKERS:  # no key, no network
            raise UserError(f"report_to: {tracker}: {error}") from error
        if "probability tensor contains" not in str(error):  # torch, of a sample to be drawn
            raise
        raise stopped(trainer, "the model's probabilities") from error
    finally:
        progress.on_train_end(None, None, None)  # an error's line would be glued to the bar
    check_ended(trainer)
    args.save_total_limit = trainer.keep
    if args.should_save:  # a kill may have come before the last one was
        folders.rotate(Path(args.output_dir), trainer.keep)


def check_trained_dtype(trainer: Trainer) -> None:
    """Refuse float16 weights that are trained themselves, whatever the files and the recipe say."""
    if trainer.is_deepspeed_enabled:  # it updates float32 copies
        return
    for name, weight in trainer.model.named_parameters():
        if weight.requires_grad and weight.dtype == torch.float16:
            raise UserError(f"dtype: {name} is trained in float16: {TOO_SMALL}")


def check_full_batch(trainer: Trainer) -> None:
    """Refuse rows that make no whole batch where others are dropped: no step would be taken."""
    args, num_rows = trainer.args, len(trainer.train_dataset)
    batch = args.train_batch_size * args.world_size
    if args.dataloader_drop_last and num_rows < batch:
        raise UserError(
            f"dataloader_drop_last: true drops all {num_rows} rows, as a batch of all processes "
            f"takes {batch}; set it to false, lower per_device_train_batch_size or add rows"
        )


def check_ended(trainer: Trainer) -> None:
    """Refuse a run that ended before its last step; guards and MAX_HOURS raise their own lines."""
    state, folder = trainer.state, trainer.args.output_dir
    if state.global_step < state.max_steps:
        raise UserError(
            f"{folder}: training ended at step {state.global_step} of {state.max_steps}, as the "
            "data had no more batches; add rows, or lower per_device_train_batch_size"
        )


def base_values(trainer: Trainer) -> list[Value]:
    """What a saved configuration has of the model that a trainer was started from.

    The Trainer turns `use_cache` off for itself: saved so, other programs would generate without a
    cache. GRPO turns dropout off.
    """
    config, given = trial.own_model(trainer).config, trainer.args.model_init_kwargs or {}
    base = AutoConfig.from_pretrained(
        config.name_or_path,
        revision=given.get("revision"),
        trust_remote_code=given.get("trust_remote_code", False),
    )
    use_cache = base.to_dict().get("use_cache", trainer.args.use_cache)
    turned_off = dropout.of_configs(getattr(trainer, "turned_off", ()))
    return [Value(config, "use_cache", use_cache), *turned_off]


def check_disk(trainer: Trainer) -> None:
    """Refuse a disk without room for the most that a run writes at once."""
    folder, (checkpoint, saved) = trainer.args.output_dir, saved_bytes(trainer)
    is_model = trainer.args.save_strategy == "no" or saved > checkpoint
    needed, what = (saved, "the model") if is_model else (checkpoint, "one more checkpoint")
    check_space(folder, needed, what, functools.partial(folders.describe_kept, folder))


def saved_bytes(trainer: Trainer) -> tuple[float, float]:
    """Bytes of a checkpoint and of a saved model of a trainer, over all processes."""
    from peft import PeftModel

    weights = trained = states = num_trained = 0
    is_zero = trainer.is_deepspeed_enabled
    for parameter in trainer.model.parameters():
        number, size = getattr(parameter, "ds_numel", parameter.numel()), parameter.element_size()
        weights += number * size
        if parameter.requires_grad:
            trained += number * size
            states += number * folders.state_bytes(trainer.args.optim, 4 if is_zero else size)
            num_trained += number
    has_lora = isinstance(trainer.model, PeftModel)
    base = weights - trained if has_lora else weights
    num_copied = num_trained if is_zero else 0
    return folders.checkpoint_bytes(base, trained, states, num_copied, has_lora)


@functools.cache
def let_torch_load_onto_cpu_0() -> None:
    """Let `torch.load` put tensors on "cpu:0".

    That is accelerate's name of the CPU where several processes share it. The Trainer hands it to
    `torch.load` for the optimizer's state, and torch knows no such place: no run could resume.
    """

    def restore(storage: Any, place: str) -> Any:
        return storage if place == "cpu:0" else None

    torch.serialization.register_package(0, lambda storage: None, restore)


def save(trainer: Trainer) -> None:
    """Save a checkpoint that every later stage can load as a plain model, with LoRA merged in."""
    from peft import PeftModel

    model = trainer.accelerator.unwrap_model(trainer.model)
    if isinstance(model, PeftModel):
        dropout.put(base_values(trainer))
        adapters.save_merged(trainer, model)
    else:
        trainer.save_model(trainer.args.output_dir)
    trainer.save_state()
    if trainer.args.should_save:
        trial.say_who_differs(trainer)


def conclude(run: Run, counts: dict[str, Any], **numbers: Any) -> None:
    """Write the manifest of a run that is whole, and put it in its place."""
    if not is_main_process():
        return
    work = Path(run.work)
    models = {folder: manifest.model_files(folder) for folder in (work, work / "best")}
    files = [file.relative_to(work).as_posix() for found in models.values() for file in found]
    numbers["resumed"] = bool(run.checkpoint)
    numbers["command"] = shlex.join(["python", "-m", f"stages.{run.stage}", *sys.argv[1:]])
    manifest.write(work, run.stage, run.config, run.inputs, counts, run.started, files, **numbers)
    for folder in [folder for folder, found in models.items() if found]:
        card.write(folder)  # in place of TRL's draft
    folders.put_in_place(work, Path(run.folder))


def finish(trainer: Trainer) -> None:
    """End all processes together: one that just leaves can abort another's open connection.

    The data-parallel wrapper is freed first. Freed after the process group, it would end that group
    while it holds the interpreter's lock. Gloo's thread waits for the lock: the process would hang.
    """
    trainer.accelerator.wait_for_everyone()
    trainer.model_wrapped = None
    trainer.accelerator.free_memory()
    if vllm := getattr(getattr(trainer, "vllm_generation", None), "llm", None):
        vllm.llm_engine.engine_core.shutdown()  # its own groups lie within the one that ends now
    trainer.accelerator.end_training()


def last_logged(trainer: Trainer, *keys: str) -> float:
    """The last value of the first of these metrics that was logged; NaN if none was."""
    for key in keys:
        for entry in reversed(trainer.state.log_history):
            if entry.get(key) is not None:
                return entry[key]
    return math.nan
