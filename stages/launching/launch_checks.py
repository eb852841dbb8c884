"""A launch that would silently become another one is refused, before anything is paid for.

    parse(..., launched(check_sft))    before torch is imported: recipe, environment, launcher
    check_started(config)              torch is there: as many processes as were launched
    check_engine(trainer)              the trainer is there: it has the engine that was asked for

Everything below was seen to happen without a word: `accelerate launch --cpu --num_processes 2` runs
one process; FSDP on a CPU is plain data parallel; a launch for GPUs on a host without one trains N
times the same; FSDP from flags alone is the old version 1; ZeRO-3 ends with a folder that no other
stage can load; accelerate's mixed precision overrules a recipe that has none.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

from data_prep.config import UserError
from stages.launching.launch import (
    CONFIGS,
    DATA_PARALLEL,
    FSDP,
    asked_engine,
    distributed_type,
    is_given,
    is_on,
    launcher_settings,
    parent_command,
    zero_settings,
)

# Set by srun and by Open MPI's, MPICH's and Intel's mpirun, which set no WORLD_SIZE. SLURM_NTASKS
# would not do: a batch script has it, too, which runs once.
COPIES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def launched(check: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """The check of a recipe's keys, preceded by that of the launch."""

    def check_both(values: dict[str, Any]) -> None:
        check_launch(values, os.environ, launcher_settings(parent_command()))
        check(values)

    return check_both


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


def check_launch(
    values: Mapping[str, Any], env: Mapping[str, str], asked: Mapping[str, Any]
) -> None:
    """Refuse what recipe, environment and launcher together would not do as they say.

    Args:
        values: the flat recipe, command line included.
        env: `os.environ`.
        asked: of `launcher_settings`.

    Raises:
        UserError: names what was asked for, what would run, and the remedy.
    """
    _check_number(env, asked)
    _check_device(values, env, asked)
    _check_fsdp(values, env, asked)
    _check_deepspeed(values, env, asked)
    _check_precision(values, env, asked)


def _check_number(env: Mapping[str, str], asked: Mapping[str, Any]) -> None:
    if not env.get("WORLD_SIZE", "1").isdecimal():
        raise UserError(
            f"WORLD_SIZE: {env['WORLD_SIZE']!r} is no number of processes; unset it, or start the "
            "stage with `accelerate launch`"
        )
    if "WORLD_SIZE" not in env:
        for name in COPIES:
            if env.get(name, "1").isdecimal() and int(env.get(name, "1")) > 1:
                raise UserError(
                    f"{name}: {env[name]} copies of the stage that know nothing of each other; "
                    "start them with `accelerate launch` or torchrun (one for each host with srun: "
                    f"{CONFIGS}/slurm.sh)"
                )
    started = int(env.get("WORLD_SIZE", "1"))
    wishes = {
        "NUM_PROCESSES": env.get("NUM_PROCESSES"),
        "num_processes": asked.get("num_processes"),
    }
    for name, wish in wishes.items():
        if not wish:
            continue
        if not str(wish).isdecimal():
            raise UserError(f"{name}: {wish!r} is no number of processes")
        if int(wish) != started:
            raise UserError(
                f"{name}: {wish} asked for, the launch has started {started}; use "
                f"`accelerate launch --config_file {CONFIGS}/<cpu, ddp, ...>.yaml --num_processes "
                f"{wish}` without --cpu, or make with ACCELERATE=<that name>"
            )


def _check_device(
    values: Mapping[str, Any], env: Mapping[str, str], asked: Mapping[str, Any]
) -> None:
    is_cpu = is_on(values.get("use_cpu"))
    wants_cpu = is_on(asked.get("use_cpu")) and not is_on(env.get("ACCELERATE_USE_CPU"))
    if wants_cpu and not is_cpu:
        raise UserError(
            f"use_cpu: the launch ({asked['config_file']}) is for CPUs and the recipe is not; add "
            "--use_cpu true --bf16 false, or launch with a config for GPUs"
        )


def _check_fsdp(
    values: Mapping[str, Any], env: Mapping[str, str], asked: Mapping[str, Any]
) -> None:
    from_launch = is_on(env.get("ACCELERATE_USE_FSDP"))
    from_recipe = is_given(values.get("fsdp"))
    if distributed_type(asked) == "FSDP" and not from_launch:
        raise UserError("--cpu: takes FSDP out of the launch; launch without it, on GPUs")
    if not from_launch and not from_recipe:
        return
    if is_on(values.get("use_cpu")) or is_on(env.get("ACCELERATE_USE_CPU")):
        raise UserError(
            "use_cpu: FSDP runs on GPUs only, on a CPU it would be plain data parallel; launch "
            f"with {CONFIGS}/cpu.yaml, zero2.yaml or zero3.yaml"
        )
    if from_launch and from_recipe:
        raise UserError("fsdp: the recipe and the launch both ask for FSDP; take it out of one")
    if from_launch and env.get("FSDP_VERSION", "1") != "2":
        raise UserError(
            "fsdp_version: the launch would run FSDP 1, accelerate's default; add --fsdp_version 2 "
            f"or launch with {CONFIGS}/fsdp2.yaml"
        )
    if from_launch and env.get("FSDP_STATE_DICT_TYPE") != "FULL_STATE_DICT":
        raise UserError(
            f"fsdp_state_dict_type: {env.get('FSDP_STATE_DICT_TYPE', 'not set')}, which saves no "
            "model that another stage can load; set it to FULL_STATE_DICT in the launch's "
            "fsdp_config"
        )
    if from_recipe and "LOCAL_RANK" not in env:
        raise UserError(
            "fsdp: without a launcher it would do nothing; start the stage with `accelerate launch "
            f"--config_file {CONFIGS}/fsdp2.yaml` and remove the key"
        )


def _check_deepspeed(
    values: Mapping[str, Any], env: Mapping[str, str], asked: Mapping[str, Any]
) -> None:
    from_launch = is_on(env.get("ACCELERATE_USE_DEEPSPEED"))
    from_recipe = is_given(values.get("deepspeed"))
    if distributed_type(asked) == "DEEPSPEED" and not from_launch:
        raise UserError("--cpu: takes DeepSpeed out of the launch; launch without it")
    if not from_launch and not from_recipe:
        return
    if not is_installed("deepspeed"):
        raise UserError(
            "deepspeed: asked for and not installed; run `pip install -c constraints.txt -e "
            "'.[deepspeed]'`, or launch with another config"
        )
    if from_launch and from_recipe:
        raise UserError(
            "deepspeed: the recipe and the launch both ask for DeepSpeed; take it out of one"
        )
    if is_on(env.get("ACCELERATE_USE_FSDP")) or is_given(values.get("fsdp")):
        raise UserError("deepspeed: asked for together with FSDP; take one of them out")
    if "LOCAL_RANK" not in env:
        raise UserError(
            "deepspeed: without a launcher it would not start; start the stage with `accelerate "
            f"launch --config_file {CONFIGS}/zero2.yaml` and remove the key"
        )
    for name, key in (
        ("GRADIENT_ACCUMULATION_STEPS", "gradient_accumulation_steps"),
        ("GRADIENT_CLIPPING", "max_grad_norm"),
    ):
        if env.get(f"ACCELERATE_{name}", "auto") not in ("auto", "None"):
            raise UserError(
                f"{name.lower()}: is in the launch's deepspeed_config and the recipe's {key} says "
                "it too; take it out of the launch's"
            )
    zero = zero_settings(values, env)
    if zero["stage"] == 3 and not zero["gathers"]:
        raise UserError(
            "zero3_save_16bit_model: is off, and ZeRO-3 would save no model that another stage can "
            "load; set it to true in the launch's deepspeed_config (in a DeepSpeed file: "
            "stage3_gather_16bit_weights_on_model_save)"
        )


def _check_precision(
    values: Mapping[str, Any], env: Mapping[str, str], asked: Mapping[str, Any]
) -> None:
    wanted = asked.get("mixed_precision") if "mixed_precision" in asked else None
    if "config_file" in asked and wanted in ("no", False):
        wanted = None  # accelerate's own config files always say so, and no recipe is meant
    if wanted is None and env.get("ACCELERATE_MIXED_PRECISION", "no") != "no":
        wanted = env["ACCELERATE_MIXED_PRECISION"]
    if wanted is None:
        return
    wanted = "no" if wanted is False else str(wanted)  # YAML reads a bare `no` as false
    is_fp16 = is_on(values.get("fp16"))
    bf16 = values.get("bf16")
    is_bf16 = not is_fp16 if bf16 is None else is_on(bf16)  # TRL's default
    recipe = "fp16" if is_fp16 else "bf16" if is_bf16 else "no"
    if wanted != recipe:
        raise UserError(
            f"mixed_precision: {wanted} in the launch, {recipe} in the recipe (bf16, fp16); take "
            "it out of the launch: the recipe's keys say it"
        )


def check_started(config: Mapping[str, Any]) -> None:
    """Refuse processes that would not work together, and let those on a CPU meet.

    Args:
        config: the flat recipe with Hugging Face's defaults, once its objects are built.

    Raises:
        UserError: as `check_launch`.
    """
    import torch
    from accelerate import PartialState

    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    engine = asked_engine(config)
    is_zero = engine not in (DATA_PARALLEL, FSDP)
    is_cpu, num_gpus = is_on(config.get("use_cpu")), torch.cuda.device_count()
    if is_cpu and num_gpus and (is_zero or num_processes > 1):
        raise UserError(
            f"use_cpu: true, and this host has {num_gpus} GPUs that the launch would use or leave "
            "idle; remove the key, or hide them with CUDA_VISIBLE_DEVICES=''"
        )
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if not is_cpu and 0 < num_gpus < num_local:
        raise UserError(
            f"num_processes: {num_local} on this host, which has {num_gpus} GPUs; start one for "
            "each GPU"
        )
    if not is_cpu and num_gpus > 1 and "LOCAL_RANK" not in os.environ:
        raise UserError(
            f"num_processes: 1, and it sees {num_gpus} GPUs, which the Trainer would use with "
            f"torch's old DataParallel; launch with {CONFIGS}/ddp.yaml or single_gpu.yaml"
        )
    if num_processes == 1 and engine == DATA_PARALLEL:
        return
    if not is_cpu and not num_gpus:
        raise UserError(
            f"use_cpu: false, and no GPU was found: neither would {num_processes} processes train "
            f"together nor {engine} work; look at CUDA_VISIBLE_DEVICES and the driver, or train "
            "on the CPU with --use_cpu true --bf16 false"
        )
    running = PartialState(cpu=is_cpu).num_processes
    if running != num_processes:
        raise UserError(
            f"num_processes: {num_processes} started, {running} work together; launch with a file "
            f"of {CONFIGS}/"
        )
    if is_zero and is_cpu:
        from deepspeed import comm

        # accelerate leaves it to DeepSpeed, which asks for the number of processes before it has
        # met them, and takes it for 1.
        comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)


def check_engine(trainer: Any) -> None:
    """Refuse a trainer without the engine that was asked for.

    Raises:
        UserError: as `check_launch`.
    """
    asked = asked_engine(trainer.args.to_dict())
    is_there = {
        FSDP: trainer.is_fsdp_enabled,
        DATA_PARALLEL: not trainer.is_fsdp_enabled and not trainer.is_deepspeed_enabled,
    }.get(asked, trainer.is_deepspeed_enabled)
    if not is_there:
        raise UserError(
            f"{asked} was asked for and {trainer.accelerator.distributed_type.value} would run; "
            "look at the launch, the recipe's use_cpu and whether the host has GPUs"
        )
