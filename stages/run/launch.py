"""Refuse a launch that would silently become another one (docs/scale.md).

parse(..., launched(check_sft))    before torch is imported: recipe, environment, launcher
as_launched(check, asked, 8)       the same before anything is started
check_started(is_cpu)              torch is there: as many processes as were launched

python -m stages.run.launch ...        `accelerate launch`, without a traceback of its own
"""

import importlib.util
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline import consent, strict_yaml
from pipeline.console import is_main_process, notice, quiet_launcher
from pipeline.errors import UserError, killed, run_cli
from pipeline.memory import num_oom_kills
from pipeline.recipe_files import read_yaml
from pipeline.settings import Settings
from pipeline.stages import RECIPES
from stages.run import restarts

CONFIGS = "configs/accelerate"
ACCELERATE = RECIPES / "accelerate"
FSDP = "FSDP"
DATA_PARALLEL = "data parallel"  # one process too
# Set by srun and by Open MPI's, MPICH's and Intel's mpirun, which set no WORLD_SIZE. SLURM_NTASKS
# would not do: a batch script has it, too, which runs once.
COPIES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LAUNCHER = re.compile(
    r"(accelerate|accelerate_cli\.py) launch$|accelerate(-|\.commands\.)launch$|stages.run.launch$"
)
# What may differ between two numbers of processes.
BATCH_KEYS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
)
ACCUMULATED = ("gradient_accumulation_steps", "steps_per_generation")


def is_on(value: Any) -> bool:
    """Whether a switch of the launcher or of the environment is on."""
    return str(value).lower() in ("true", "1", "yes", "y", "on")


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def asked_engine(env: Mapping[str, str] = os.environ) -> str:
    """What holds the weights in a launch: `DATA_PARALLEL`, `FSDP` or "DeepSpeed ZeRO-<stage>"."""
    if is_on(env.get("ACCELERATE_USE_DEEPSPEED")):
        return f"DeepSpeed ZeRO-{env.get('ACCELERATE_DEEPSPEED_ZERO_STAGE', '2')}"
    return FSDP if is_on(env.get("ACCELERATE_USE_FSDP")) else DATA_PARALLEL


def keep_batch(settings: Settings, processes: int) -> Settings:
    """The settings with as many rows a step as the recipe has on its `batch_for_gpus`.

    Keys of the batch on the command line count as they are.
    """
    planned = settings.batch_for_gpus
    if planned is None or settings.typed & {*BATCH_KEYS}:
        return settings
    changes = {}
    for key in ACCUMULATED:
        if value := getattr(settings, key, None):
            changes[key], rest = divmod(value * planned, processes)
            if rest:
                sizes = [n for n in range(1, value * planned + 1) if value * planned % n == 0]
                fault = f"{key}: {value} on {planned} GPUs has no whole number on {processes}"
                fitting = ", ".join(map(str, sizes[-8:]))
                raise UserError(f"batch_for_gpus: {fault}; use {fitting} processes, or give {key}")
    return settings.replaced(**changes)


def launched(check: Callable[[Settings], Settings | None]) -> Callable[[Settings], Settings]:
    """A check that checks the launch first, then the recipe's keys.

    Both see the settings with the batch fitted to the number of processes.
    """

    def check_both(settings: Settings) -> Settings:
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        before, settings = settings, keep_batch(settings, processes)
        check_launch(settings, os.environ, asked_of_launcher(parent_command()))
        settings = check(settings) or settings
        changed = {
            key: settings[key] for key in ACCUMULATED if settings.get(key) != before.get(key)
        }
        if changed and is_main_process():
            changes = ", ".join(f"{key}: {value}" for key, value in changed.items())
            notice(f"{changes} on {processes} GPUs, so that a step keeps its rows")
        return settings

    return check_both


def read_launch(name: str | None, processes: int) -> dict[str, Any]:
    """Read the keys of a file of configs/accelerate; none for one process without a file."""
    if name is None and processes == 1:
        return {}
    path = ACCELERATE / f"{name or 'ddp'}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in ACCELERATE.glob("*.yaml")))
        fault = f"{name!r} is not a file of configs/accelerate"
        raise UserError(f"accelerate: {fault}; choose one of {known}")
    return read_yaml(str(path)) | {"config_file": path.name}


def launch_environment(asked: Mapping[str, Any], processes: int) -> dict[str, str]:
    """What `accelerate launch` with these keys sets for the processes that it starts."""
    kind = asked.get("distributed_type")
    kind = str(getattr(kind, "value", kind))  # a text of the file, or accelerate's enum
    env = {"WORLD_SIZE": "1" if kind == "NO" else str(processes), "LOCAL_RANK": "0"}
    if kind in ("FSDP", "DEEPSPEED"):
        env[f"ACCELERATE_USE_{kind}"] = "true"
    env |= {key.upper(): str(value) for key, value in asked.get("fsdp_config", {}).items()}
    for key, value in asked.get("deepspeed_config", {}).items():
        env[f"ACCELERATE_DEEPSPEED_{key.upper()}"] = str(value)
    return env


def as_launched(
    check: Callable[[Settings, int, str], Settings], asked: Mapping[str, Any], processes: int
) -> Callable[[Settings], Settings]:
    """The check of a stage, as each of its `processes` makes it, before anything is started.

    Args:
        check: of the stage's keys; it takes the number of processes and the engine, too.
        asked: the keys of the launch file, of `read_launch` or `asked_of_launcher`.
        processes: of all hosts together.
    """
    env = launch_environment(asked, processes)

    def check_both(settings: Settings) -> Settings:
        settings = keep_batch(settings, processes)
        check_launch(settings, env, {**asked, "num_processes": processes})
        return check(settings, int(env["WORLD_SIZE"]), asked_engine(env))

    return check_both


def parent_command() -> list[str]:
    """The command line of the process that started this one; empty where none can be read."""
    try:
        text = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # not on macOS; a path need not be text
        return []
    return text.rstrip("\0").split("\0")


def asked_of_launcher(command: list[str]) -> dict[str, Any]:
    """The config file's keys, and over them the flags, that an `accelerate launch` was given."""
    heads = [n for n in range(len(command)) if LAUNCHER.search(" ".join(command[: n + 1]))]
    if not heads:
        return {}
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    args = launch_command_parser().parse_args(command[heads[0] + 1 :])
    if args.config_file and Path(args.config_file).suffix in (".yaml", ".yml"):
        strict_yaml.read(args.config_file)  # accelerate takes the last of two equal keys
    config = vars(load_config_from_file(args.config_file)) if args.config_file else {}
    return config | {name: getattr(args, name) for name in ("config_file", *args.nondefault)}


def check_launch(settings: Settings, env: Mapping[str, str], asked: Mapping[str, Any]) -> None:
    """Refuse what recipe, environment and launcher (`asked`) would not do as they say."""
    check_number(env, asked)
    engine, is_cpu_launch = asked_engine(env), is_on(env.get("ACCELERATE_USE_CPU"))
    if is_on(asked.get("use_cpu")) and not settings.use_cpu and not is_cpu_launch:
        raise UserError(
            f"use_cpu: the launch ({asked.get('config_file')}) is for CPUs, the recipe for GPUs; "
            "add --use_cpu true --bf16 false, or launch with a config for GPUs"
        )
    for key, file in (("fsdp", "fsdp2"), ("deepspeed", "zero2")):
        if getattr(settings, key):
            raise UserError(
                f"{key}: belongs to the launch; remove the key, and start the stage with "
                f"`accelerate launch --config_file {CONFIGS}/{file}.yaml`"
            )
    if engine == FSDP:
        check_fsdp_device(settings.use_cpu or is_cpu_launch)
        check_fsdp(env)
    if "DeepSpeed" in engine:
        check_deepspeed(engine, env)
        check_own_checkpoint(settings)
    precision, wanted = mixed_precision(settings), env.get("ACCELERATE_MIXED_PRECISION", "no")
    if wanted not in ("no", precision):
        raise UserError(
            f"mixed_precision: {wanted} in the launch, {precision} in the recipe (bf16, fp16); "
            "remove it from the launch"
        )


def check_number(env: Mapping[str, str], asked: Mapping[str, Any]) -> None:
    """Refuse copies that would not work together, and another number than was asked for."""
    for name in COPIES:
        if "WORLD_SIZE" not in env and env.get(name, "1") != "1":
            raise UserError(
                f"{name}: {env.get(name)} copies of the stage would not work together; start them "
                "with `accelerate launch` or torchrun (with srun: one for each host, see "
                f"{CONFIGS}/slurm.sh)"
            )
    size = env.get("WORLD_SIZE", "1")
    for name, given in (("NUM_PROCESSES", env), ("num_processes", asked)):
        wish = given.get(name)
        if wish not in (None, "", -1) and str(wish) != size:  # -1: accelerate's word for all
            raise UserError(
                f"{name}: {wish} wanted, but the launch has started {size}; use `accelerate launch "
                f"--config_file {CONFIGS}/<cpu, ddp, ...>.yaml --num_processes {wish}` without "
                "--cpu"
            )


def check_fsdp_device(is_cpu: bool) -> None:
    """Refuse FSDP on CPUs, which silently is plain data parallel."""
    if is_cpu:
        raise UserError(
            "use_cpu: FSDP needs GPUs, on a CPU it would be plain data parallel; launch "
            f"with {CONFIGS}/cpu.yaml, zero2.yaml or zero3.yaml"
        )


def check_fsdp(env: Mapping[str, str]) -> None:
    """Refuse FSDP 1, accelerate's default, and saves of shards, which no other stage can load."""
    if env.get("FSDP_VERSION", "1") != "2":
        raise UserError(
            "fsdp_version: the launch would run FSDP 1, accelerate's default; use "
            f"{CONFIGS}/fsdp2.yaml"
        )
    if (kind := env.get("FSDP_STATE_DICT_TYPE", "not set")) != "FULL_STATE_DICT":
        raise UserError(
            f"fsdp_state_dict_type: {kind} saves no model for other stages; use "
            f"{CONFIGS}/fsdp2.yaml"
        )


def check_deepspeed(engine: str, env: Mapping[str, str]) -> None:
    """Refuse a file of DeepSpeed's own, and a ZeRO-3 that saves no model."""
    if env.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none") != "none":
        raise UserError(
            "deepspeed_config_file: its ZeRO stage cannot be checked; use deepspeed_config "
            f"instead, as in {CONFIGS}/zero3.yaml"
        )
    is_saved = is_on(env.get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"))
    if engine.endswith("3") and not is_saved:
        raise UserError(
            "zero3_save_16bit_model: false would save no model that another stage can load; set it "
            "to true in the launch's deepspeed_config"
        )


def mixed_precision(settings: Any) -> str:
    """What a recipe computes in, as accelerate names it: fp16, bf16 or no."""
    if settings.fp16:
        return "fp16"
    return "no" if settings.bf16 is False else "bf16"  # TRL's default


def check_own_checkpoint(settings: Settings) -> None:
    """Refuse a checkpoint named by a YAML that DeepSpeed would unpickle, without consent."""
    key = "resume_from_checkpoint"
    if settings.get(key) and key not in settings.typed and not consent.is_given():
        raise UserError(
            f"{settings.path}: {key}: {settings[key]}: DeepSpeed would run code that somebody "
            f"put into its files; if you trust it, type {key} on the command line"
        )


def check_started(is_cpu: bool) -> None:
    """Refuse processes that would not work together, and let those on a CPU (`use_cpu`) meet."""
    import torch
    from accelerate import PartialState

    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    engine, num_gpus = asked_engine(), torch.cuda.device_count()
    is_alone = num_processes == 1 and engine == DATA_PARALLEL
    if is_cpu and num_gpus and not is_alone:
        raise UserError(
            f"use_cpu: true, but this host has {num_gpus} GPUs; remove the key to use them, or "
            "hide them with CUDA_VISIBLE_DEVICES=''"
        )
    if not is_cpu and num_gpus > 1 and "LOCAL_RANK" not in os.environ:
        raise UserError(
            f"num_processes: 1 process sees {num_gpus} GPUs, and the Trainer would use torch's old "
            f"DataParallel; launch with {CONFIGS}/ddp.yaml or single_gpu.yaml"
        )
    if is_alone:
        return
    running = PartialState(cpu=is_cpu).num_processes
    if running != num_processes:
        raise UserError(
            f"num_processes: {num_processes} started, but only {running} work together; launch "
            f"with a file of {CONFIGS}/"
        )
    if is_cpu and "DeepSpeed" in engine:
        from deepspeed import comm

        # accelerate leaves it to DeepSpeed, which asks for the number of processes before it has
        # met them, and takes it for 1.
        comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)


def main() -> None:
    """`accelerate launch` with restarts (stages/run/restarts.py); a stage's error line stays last.

    By itself it adds a traceback of its own, a table and torch's log lines after that line.
    """
    quiet_launcher()
    from accelerate.commands import launch
    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousTimeoutError

    restarts.install(asked_of_launcher(["stages.run.launch", *sys.argv[1:]]))
    num_kills = num_oom_kills()
    try:
        launch.main()
    except SignalException as end:
        sys.exit(128 + end.sigval)
    except ChildFailedError as error:
        rank, failure = restarts.cause(error.failures)
        code = failure.exitcode
        if code == -signal.SIGKILL:  # it had no time to tell why
            raise killed(f"rank {rank}", num_kills) from error
        if code < 0:
            sys.stderr.write(f"error: rank {rank} was ended by {failure.signal_name()}\n")
        sys.exit(code if code > 0 else 128 - code)
    except RendezvousTimeoutError:
        sys.stderr.write(f"error: not all hosts have joined in time; {restarts.REMEDY}\n")
        sys.exit(restarts.LOST)
    except (ConnectionError, socket.gaierror) as error:  # a port in use, an unknown host
        raise UserError(f"main_process_ip, main_process_port: {error}") from error
    except (RendezvousError, DistError) as error:
        restarts.end_without_main_host(str(error).splitlines()[0])


if __name__ == "__main__":
    run_cli(main, is_first=False)
