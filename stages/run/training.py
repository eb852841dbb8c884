"""The steps that every training stage does around its algorithm, in the order of a run.

begin       settings and folder: up to date, resume, or a new run
train       with one progress bar
save        a checkpoint that every later stage can load
conclude    the manifest, last of all; the stage's link names the run
finish      all processes end together

A killed stage leaves no manifest. Started again with the same keys and inputs it resumes from its
last complete checkpoint, or is up to date. With others it trains in a folder beside that one
(stages/run/folders.py).
"""

import functools
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
from pipeline.folders import RUN_FILE, behind_link, link, place_named, place_of, runs_of, time_of
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
    folder: str  # the stage's place, a link to the run
    work: str  # the run's own folder
    checkpoint: str | None
    started: float


def begin(stage: str, files: Sequence[Any], args: Any, config: Any, model: Any) -> Run | None:
    """Begin a run in a folder of its own, or resume it; None if its result is there already.

    Args:
        files: files that the run reads; None is left out. A changed file makes it another run.
        args, config, model: the recipe's settings. `config.output_dir` is set to the run's folder,
            `model.model_name_or_path` to the run that a link names now.
    """
    settings = effective_config(args, config, model)
    base, _ = checkpoints.base_and_adapter(model.model_name_or_path)
    inputs = manifest.hash_inputs([file for file in (*files, base) if file])
    run = prepare(stage, config.output_dir, settings, inputs)
    if run is None:
        return None
    config.output_dir = run.work
    model.model_name_or_path = behind_link(model.model_name_or_path)
    return run._replace(config=settings | {"model_name_or_path": model.model_name_or_path})


def prepare(stage: str, folder: str, config: dict[str, Any], inputs: dict[str, str]) -> Run | None:
    """Choose between resuming and a new run, and prepare the folder.

    Returns None if the result is there.
    """
    check_started(bool(config.get("use_cpu")))
    num_processes, engine = int(os.environ.get("WORLD_SIZE", "1")), asked_engine()
    run = {"config": config, "inputs": inputs, "num_processes": num_processes, "engine": engine}
    run = manifest.as_written(run)
    start, fault, started, place = None, None, 0.0, place_of(folder)
    if is_main_process():
        try:
            start = folders.choose(place, run)
            started = start_run(place, start, run)
        except UserError as error:
            fault = str(error)
    start, fault, started, main = broadcast_object_list([start, fault, started, run])
    if fault:
        raise UserError(fault)
    check_hosts(start, started, main, run)
    if start.is_done:
        PartialState().destroy_process_group()
        return None
    checkpoint = str(start.checkpoint) if start.checkpoint else None
    return Run(stage, config, inputs, str(place), str(start.folder), checkpoint, started)


def check_hosts(
    start: folders.Start, started: float, main: dict[str, Any], mine: dict[str, Any]
) -> None:
    """Refuse a host whose run differs or that does not see the shared folder.

    Every process raises alike.
    """
    fault = folders.difference(main, mine, left_out=manifest.PLACES)
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not start.is_done and not fault:
        if time_of(start.folder, "started") == started:
            break
        if time.monotonic() > deadline:
            fault = f"output_dir: {start.folder} is not shared"
        time.sleep(0.1)
    views = gather_object([(f"host {os.environ.get('GROUP_RANK', 0)} ({gethostname()})", fault)])
    for host, fault in views:
        if fault:
            raise UserError(
                f"{fault} ({views[0][0]} and {host} differ); all hosts must share the run's folder "
                "(--run_dir) at the same path and the files it reads, and start the same command"
            )


def start_run(place: Path, start: folders.Start, run: dict[str, Any]) -> float:
    """Write the `run.json` of a chosen folder and link it, in the main process only.

    Returns when it was started. A link to a result stays until another run has one.
    """
    if start.is_done:
        link(place, start.folder)
        manifest.note_current(start.folder, may_write=start.folder != place)
        return 0.0
    source = start.checkpoint or run["config"].get("resume_from_checkpoint")
    if source and source is not True:
        folders.check_resume(Path(source), run)
    old = folders.read_run(start.folder)
    if start.checkpoint:
        say(f"resuming from {start.checkpoint}")
    elif old:
        say(f"{start.folder}: was ended before its first checkpoint; starting from scratch")
    elif others := folders.describe_newest(place, run):
        say(others)
    removal.remove_torn(start.folder)
    started = manifest.start(start.folder)
    made = {
        "made": old.get("made", started),
        "started": started,
        "run_name": old.get("run_name") or f"{place} {time.strftime('%Y-%m-%d %H:%M:%S')}",
    }
    manifest.write_json(start.folder / RUN_FILE, run | made)
    if manifest.read(place) is None:
        link(place, start.folder)
    return started


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
    check_space(folder, needed, what, functools.partial(say_where_to_free, Path(folder)))


def say_where_to_free(folder: Path) -> list[str]:
    """A line where other runs lie beside a run's folder."""
    num_others = len(runs_of(place_named(folder))) - 1
    return [f"`make clean` lists {num_others} other runs"] if num_others > 0 else []


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
    """Write the manifest of a run that is whole, and let the stage's link name it."""
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
    link(Path(run.folder), work)


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
