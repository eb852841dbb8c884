"""A launch or a resume that would silently become another one is refused.

    parse(..., launched(check_sft))    before torch is imported: recipe, environment, launcher
    check_started(config)              torch is there: as many processes as were launched
    check_resume(checkpoint, ...)      the checkpoint fits the number of processes and the engine
    check_shared(folder, ...)          all hosts see the same folder, checkpoint and inputs

Each was seen to happen silently: `accelerate launch --cpu --num_processes 2` runs one process; a
launch for GPUs on a host without one trains N times the same; FSDP from flags alone is version 1;
ZeRO-3 ends with a folder that no other stage can load.
"""

import contextlib
import importlib.util
import json
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.config import Settings, UserError
from stages import host_loss

CONFIGS = "configs/accelerate"
ZERO = "DeepSpeed ZeRO-{}"
FSDP = "FSDP"
DATA_PARALLEL = "data parallel"  # one process too
# Set by srun and by Open MPI's, MPICH's and Intel's mpirun, which set no WORLD_SIZE. SLURM_NTASKS
# would not do: a batch script has it, too, which runs once.
COPIES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LAUNCHER = re.compile(r"(accelerate|accelerate_cli\.py) launch$|accelerate(-|\.commands\.)launch$")


def is_on(value: Any) -> bool:
    """A switch as the launcher or the environment gives it."""
    return str(value).lower() in ("true", "1", "yes", "y", "on")


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def refuse_if(is_fault: Any, message: str) -> None:
    """Raise the message where the fault is there."""
    if is_fault:
        raise UserError(message)


def launched(check: Callable[[Settings], None]) -> Callable[[Settings], None]:
    """The check of a recipe's keys, preceded by that of the launch."""

    def check_both(settings: Settings) -> None:
        check_launch(settings, os.environ, asked_of_launcher(parent_command()))
        is_zero = asked_engine(settings) not in (DATA_PARALLEL, FSDP)
        refuse_if(
            is_zero and not is_installed("deepspeed"),
            "deepspeed: not installed; pip install -c constraints.txt -e '.[deepspeed]'",
        )
        check(settings)

    return check_both


def parent_command() -> list[str]:
    """The command line of the process that started this one; empty where none can be read."""
    try:
        text = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rstrip("\0").split("\0")


def asked_of_launcher(command: list[str]) -> dict[str, Any]:
    """What an `accelerate launch` was asked for, read by accelerate itself; else nothing.

    It tells the processes it starts only a part of it: the environment has no `--num_processes`.

    Returns:
        The keys of the config file, and over them the flags that were given.
    """
    heads = [n for n in range(len(command)) if LAUNCHER.search(" ".join(command[: n + 1]))]
    if not heads:
        return {}
    from accelerate.commands.config import config_args
    from accelerate.commands.launch import launch_command_parser

    args = launch_command_parser().parse_args(command[heads[0] + 1 :])
    has_default = Path(config_args.default_config_file).is_file() and not args.cpu
    config: dict[str, Any] = {}
    if args.config_file or has_default:
        config = vars(config_args.load_config_from_file(args.config_file))
        config["config_file"] = args.config_file or config_args.default_config_file
    return config | {name: getattr(args, name) for name in args.nondefault}


def check_launch(settings: Settings, env: Mapping[str, str], asked: Mapping[str, Any]) -> None:
    """Refuse what recipe, environment and launcher together would not do as they say.

    Args:
        env: `os.environ`.
        asked: of `asked_of_launcher`.
    """
    _check_number(env, asked)
    wants_cpu = is_on(asked.get("use_cpu")) and not is_on(env.get("ACCELERATE_USE_CPU"))
    refuse_if(
        wants_cpu and not settings.use_cpu,
        f"use_cpu: the launch ({asked.get('config_file')}) is for CPUs and the recipe is not; "
        "add --use_cpu true --bf16 false, or launch with a config for GPUs",
    )
    _check_engines(settings, env, asked)
    _check_precision(settings, env, asked)


def _check_number(env: Mapping[str, str], asked: Mapping[str, Any]) -> None:
    size = env.get("WORLD_SIZE", "1")
    for name in COPIES if "WORLD_SIZE" not in env else ():
        copies = env.get(name, "1")
        refuse_if(
            copies.isdecimal() and int(copies) > 1,
            f"{name}: {copies} copies of the stage that know nothing of each other; start them "
            f"with `accelerate launch` or torchrun (one for each host with srun: {CONFIGS}/"
            "slurm.sh)",
        )
    for name, wish in (
        ("WORLD_SIZE", size),
        ("NUM_PROCESSES", env.get("NUM_PROCESSES") or size),
        ("num_processes", asked.get("num_processes") or size),
    ):
        if wish == -1:  # accelerate's word for all
            continue
        is_number = str(wish).isdecimal()
        refuse_if(not is_number, f"{name}: {wish!r} is no number of processes; unset it")
        refuse_if(
            int(wish) != int(size),
            f"{name}: {wish} asked for, the launch has started {size}; use `accelerate launch "
            f"--config_file {CONFIGS}/<cpu, ddp, ...>.yaml --num_processes {wish}` without --cpu",
        )


def _check_engines(settings: Settings, env: Mapping[str, str], asked: Mapping[str, Any]) -> None:
    kind = str(getattr(asked.get("distributed_type"), "value", asked.get("distributed_type")))
    if asked.get("multi_gpu"):  # over the config file's type
        kind = "MULTI_GPU"
    is_used = {}
    for name, file in (("FSDP", "fsdp2"), ("DeepSpeed", "zero2")):
        key = name.lower()
        from_launch = is_on(env.get(f"ACCELERATE_USE_{name.upper()}"))
        from_recipe = bool(getattr(settings, key))
        is_asked = asked.get(f"use_{key}") or kind == name.upper()
        is_used[name] = from_launch or from_recipe
        refuse_if(
            is_asked and not from_launch,
            f"--cpu: takes {name} out of the launch; launch without it",
        )
        refuse_if(
            from_launch and from_recipe,
            f"{key}: the recipe and the launch both ask for {name}; take it out of one",
        )
        refuse_if(
            from_recipe and "LOCAL_RANK" not in env,
            f"{key}: without a launcher it would do nothing; remove the key, and start the stage "
            f"with `accelerate launch --config_file {CONFIGS}/{file}.yaml`",
        )
    refuse_if(all(is_used.values()), "deepspeed: asked for together with FSDP; take one out")
    if is_used["FSDP"]:
        _check_fsdp(settings, env)
    if is_used["DeepSpeed"]:
        _check_deepspeed(settings, env)


def _check_fsdp(settings: Settings, env: Mapping[str, str]) -> None:
    refuse_if(
        settings.use_cpu or is_on(env.get("ACCELERATE_USE_CPU")),
        "use_cpu: FSDP runs on GPUs only, on a CPU it would be plain data parallel; launch with "
        f"{CONFIGS}/cpu.yaml, zero2.yaml or zero3.yaml",
    )
    if settings.fsdp:
        return
    kind, remedy = env.get("FSDP_STATE_DICT_TYPE", "not set"), f"launch with {CONFIGS}/fsdp2.yaml"
    refuse_if(
        env.get("FSDP_VERSION", "1") != "2",
        f"fsdp_version: the launch would run FSDP 1, accelerate's default; {remedy}",
    )
    refuse_if(
        kind != "FULL_STATE_DICT",
        f"fsdp_state_dict_type: {kind} saves no model that another stage can load; {remedy}",
    )


def _check_deepspeed(settings: Settings, env: Mapping[str, str]) -> None:
    for name, key in (
        ("GRADIENT_ACCUMULATION_STEPS", "gradient_accumulation_steps"),
        ("GRADIENT_CLIPPING", "max_grad_norm"),
    ):
        refuse_if(
            env.get(f"ACCELERATE_{name}", "auto") not in ("auto", "None"),
            f"{name.lower()}: is in the launch's deepspeed_config and the recipe's {key} says it "
            "too; take it out of the launch's",
        )
    zero = zero_settings(settings.deepspeed, env)
    refuse_if(
        zero["stage"] == 3 and not zero["gathers"],
        "zero3_save_16bit_model: is off, and ZeRO-3 would save no model that another stage can "
        "load; set it to true in the launch's deepspeed_config (in a DeepSpeed file: "
        "stage3_gather_16bit_weights_on_model_save)",
    )


def _check_precision(settings: Settings, env: Mapping[str, str], asked: Mapping[str, Any]) -> None:
    wanted = asked.get("mixed_precision")
    if "config_file" in asked and str(wanted) in ("no", "False"):
        wanted = None  # accelerate's own config files always say so, and no recipe is meant
    if wanted is None:
        wanted = env.get("ACCELERATE_MIXED_PRECISION", "no")
        if wanted == "no":
            return
    # TRL's default is bf16 where fp16 is off.
    is_bf16 = not settings.fp16 if settings.bf16 is None else settings.bf16
    recipe = "fp16" if settings.fp16 else "bf16" if is_bf16 else "no"
    refuse_if(
        str(wanted) != recipe,
        f"mixed_precision: {wanted} in the launch, {recipe} in the recipe (bf16, fp16); take it "
        "out of the launch",
    )


def zero_settings(config: Any, env: Mapping[str, str]) -> dict[str, Any]:
    """The `stage` of ZeRO, and whether a save `gathers` the weights of all processes.

    Args:
        config: the recipe's `deepspeed`, a file's path or a mapping; None where the launch has it.
    """
    config = config or env.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if config == "none":
        stage = env.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
        gathers = env.get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL")
    else:
        if isinstance(config, str):
            try:
                config = json.loads(Path(config).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise UserError(f"deepspeed: {config}: not readable as JSON ({error})") from error
        zero = config.get("zero_optimization", {})
        stage = zero.get("stage", 0)
        gathers = zero.get("stage3_gather_16bit_weights_on_model_save")
    if str(stage) not in ("0", "1", "2", "3"):
        raise UserError(
            f"zero_stage: must be one of 0, 1, 2, 3 (got {stage!r}); set it in the launch's "
            "deepspeed_config (in a DeepSpeed file: zero_optimization.stage)"
        )
    return {"stage": int(stage), "gathers": is_on(gathers)}


def asked_engine(config: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> str:
    """What holds the weights, by recipe and launch: `DATA_PARALLEL`, `FSDP` or one of `ZERO`."""
    if is_on(env.get("ACCELERATE_USE_DEEPSPEED")) or config.get("deepspeed"):
        return ZERO.format(zero_settings(config.get("deepspeed"), env)["stage"])
    if is_on(env.get("ACCELERATE_USE_FSDP")) or config.get("fsdp"):
        return FSDP
    return DATA_PARALLEL


def check_started(config: Mapping[str, Any]) -> None:
    """Refuse processes that would not work together, and let those on a CPU meet.

    Args:
        config: the flat recipe with Hugging Face's defaults, once its objects are built.
    """
    import torch
    from accelerate import PartialState

    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    engine = asked_engine(config)
    is_zero = engine not in (DATA_PARALLEL, FSDP)
    is_cpu, num_gpus = bool(config.get("use_cpu")), torch.cuda.device_count()
    is_alone = num_processes == 1 and engine == DATA_PARALLEL
    refuse_if(
        is_cpu and num_gpus and (is_zero or num_processes > 1),
        f"use_cpu: true, and this host has {num_gpus} GPUs that the launch would use or leave "
        "idle; remove the key, or hide them with CUDA_VISIBLE_DEVICES=''",
    )
    refuse_if(
        not is_cpu and 0 < num_gpus < num_local,
        f"num_processes: {num_local} on this host, which has {num_gpus} GPUs; start one for each",
    )
    refuse_if(
        not is_cpu and num_gpus > 1 and "LOCAL_RANK" not in os.environ,
        f"num_processes: 1, and it sees {num_gpus} GPUs, which the Trainer would use with torch's "
        f"old DataParallel; launch with {CONFIGS}/ddp.yaml or single_gpu.yaml",
    )
    refuse_if(
        not is_alone and not is_cpu and not num_gpus,
        f"use_cpu: false, and no GPU was found for {num_processes} processes with {engine}; look "
        "at CUDA_VISIBLE_DEVICES and the driver, or train with --use_cpu true --bf16 false",
    )
    if is_alone:
        return
    running = PartialState(cpu=is_cpu).num_processes
    refuse_if(
        running != num_processes,
        f"num_processes: {num_processes} started, {running} work together; launch with a file of "
        f"{CONFIGS}/",
    )
    if is_zero and is_cpu:
        from deepspeed import comm

        # accelerate leaves it to DeepSpeed, which asks for the number of processes before it has
        # met them, and takes it for 1.
        comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)


RUN_FILE = "run.json"  # what the checkpoints in a folder were made from
# What may differ between two numbers of processes.
BATCH_KEYS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation",
    "generation_batch_size",
)  # fmt: skip


def last_checkpoint(folder: Path, before: float = math.inf) -> Path | None:
    """The newest whole checkpoint of a step below `before`; one cut short is skipped.

    The Trainer writes `trainer_state.json` after weights, optimizer and random state.
    """
    found = {int(p.name.rpartition("-")[2]): p for p in folder.glob("checkpoint-*[0-9]")}
    for step in sorted((step for step in found if step < before), reverse=True):
        checkpoint = found[step]
        try:
            json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return checkpoint
    return None


def read_run(folder: Path) -> tuple[dict[str, Any], int | None]:
    """The `config` and `inputs` of a folder's checkpoints, {} if unknown; and their processes."""
    run: dict[str, Any] = {"config": {}, "inputs": {}}
    with contextlib.suppress(OSError, ValueError):
        run |= json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    return run, run.pop("num_processes", None)


def made_by(checkpoint: Path) -> tuple[int | None, str | None]:
    """Number of processes and engine that wrote a checkpoint; None where its files do not say."""
    number: int | None = len(list(checkpoint.glob("rng_state_*.pth"))) or None
    if (checkpoint / "rng_state.pth").is_file():
        number = 1
    if list(checkpoint.glob("global_step*")):
        is_sharded = list(checkpoint.glob("global_step*/zero_pp_rank_*_model_states.pt"))
        return number, ZERO.format(3 if is_sharded else 2)
    if (checkpoint / "optimizer.pt").is_file():
        return number, DATA_PARALLEL
    if (checkpoint / "optimizer_0").is_dir() or (checkpoint / "optimizer.bin").is_file():
        return number, FSDP
    return number, None


def rows_of(config: Mapping[str, Any], num_processes: int) -> dict[str, int]:
    """Rows that one optimizer step, and in GRPO one generation batch, take from all processes."""
    per_device = (config.get("per_device_train_batch_size") or 8) * num_processes
    rows = {"step": per_device * (config.get("gradient_accumulation_steps") or 1)}
    if steps := config.get("steps_per_generation"):
        rows["generation batch"] = per_device * steps
    return rows


def differ_in_batch_only(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two flat recipes say the same but for how a batch is divided."""
    keys = (old.keys() | new.keys()) - set(BATCH_KEYS)
    return all(old.get(key) == new.get(key) for key in keys)


def check_resume(
    checkpoint: Path, config: Mapping[str, Any], num_processes: int, engine: str
) -> None:
    """Refuse a checkpoint that this launch cannot resume from.

    With another number of processes only data parallel resumes, where a step (and a generation
    batch) takes as many rows as before; else the Trainer silently skips the wrong rows. DeepSpeed
    loads the optimizer only with the same processes and stage; without DeepSpeed the Trainer starts
    with an empty optimizer, silently.

    Args:
        checkpoint: in its folder lies the `run.json` of the launch that wrote it.
        engine: of this launch, as `asked_engine` gives it.

    Raises:
        UserError: names both numbers, or both engines, and the remedy.
    """
    number, wrote = made_by(checkpoint)
    remedy = "start as before, or train anew in another output_dir"
    # Their files do not tell 1 from 2, and the state is the same.
    is_alike = {wrote, engine} == {ZERO.format(stage) for stage in (1, 2)}
    refuse_if(
        wrote is not None and wrote != engine and not is_alike,
        f"{checkpoint}: was made with {wrote}, this launch has {engine}; {remedy}",
    )
    refuse_if(
        engine != DATA_PARALLEL and number not in (None, num_processes),
        f"{checkpoint}: was made with {number} processes and {engine}, which loads it with as many "
        f"only; this launch has {num_processes}; {remedy}",
    )
    run, old_number = read_run(checkpoint.parent)
    old_number = old_number or number
    if old_number in (None, num_processes):
        return
    rows = rows_of(config, num_processes)
    for unit, count in rows_of(run["config"] or config, old_number).items():
        refuse_if(
            rows.get(unit) != count,
            f"{checkpoint}: was made with {old_number} processes and {count} rows a {unit}, this "
            f"launch has {num_processes} and {rows.get(unit)}; change per_device_train_batch_size "
            f"or gradient_accumulation_steps so that they are {count} again, or {remedy}",
        )


VISIBLE_SECONDS = 60  # NFS may remember for a minute that a file was not there


def find_fault(folder: str, views: Sequence[dict[str, Any]]) -> str | None:
    """The first thing in which the processes' views differ, as a line for the user; None: nothing.

    Args:
        views: one per rank, of `{"host", "sees_folder", "checkpoint", "inputs"}`.
    """
    main = views[0]
    for view in views:
        if not view["sees_folder"]:
            return (
                f"output_dir: {folder} of {main['host']} is not the folder of that name on "
                f"{view['host']}; all hosts must share it: put the run (--run_dir) on a file "
                "system that every host mounts at the same path"
            )
        for path, digest in main["inputs"].items():
            if view["inputs"].get(path) != digest:
                return (
                    f"{path}: not the same on {main['host']} and {view['host']}; copy or share it"
                )
        if view["checkpoint"] != main["checkpoint"]:
            return (
                f"output_dir: {main['host']} resumes from {main['checkpoint'] or 'the start'}, "
                f"{view['host']} from {view['checkpoint'] or 'the start'}; give every host the "
                "same command"
            )
    return None


def _is_visible(path: Path) -> bool:
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def check_shared(folder: str, checkpoint: str | None, inputs: dict[str, str]) -> None:
    """Refuse hosts that do not share the run's folder or do not do the same.

    The main process alone writes a stage's folder; the others read checkpoints from it: with disks
    of their own, one host would resume and the others start again.

    Args:
        checkpoint: what this process resumes from; inputs: `{path: sha256}` of what it reads.

    Raises:
        UserError: on every process alike, if one of them differs.
    """
    if int(os.environ.get("GROUP_WORLD_SIZE", "1")) < 2:
        return
    from torch import distributed

    host_loss.find_checkpoint = lambda: last_checkpoint(Path(folder))
    rank = distributed.get_rank()
    names = [f".shared-{secrets.token_hex(8)}"]
    distributed.broadcast_object_list(names, src=0)
    mark = Path(folder) / names[0]
    if rank == 0:
        mark.touch()
    distributed.barrier()
    view = {
        "host": f"host {os.environ['GROUP_RANK']} ({socket.gethostname()})",
        "sees_folder": _is_visible(mark),
        "checkpoint": checkpoint,
        "inputs": inputs,
    }
    views: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(views, view)
    if rank == 0:
        with contextlib.suppress(OSError):
            mark.unlink()
    if fault := find_fault(folder, views):
        raise UserError(fault)
