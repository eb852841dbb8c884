"""Preflight: the launch, and whether recipe and launch contradict each other.

`launch_checks` refuses the same when a stage has been started; here nothing has been yet.
"""

from pathlib import Path
from typing import Any

from data_prep.config import UserError, read_yaml
from stages.preflight.memory_recipe import is_on
from stages.preflight.preflight_findings import ERROR, WARNING, Finding, Recipe, whole

ACCELERATE = Path(__file__).parents[2] / "configs" / "accelerate"


def read_launch(name: str | None, processes: int) -> dict[str, Any]:
    """The keys of a file of configs/accelerate; none for flags, or one process without a file.

    Raises:
        UserError: there is no such file.
    """
    if name is None and processes > 1:
        name = "ddp"
    if name is None or name.startswith("-"):
        return {}
    path = ACCELERATE / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in ACCELERATE.glob("*.yaml")))
        raise UserError(f"accelerate: {name!r} is no file of configs/accelerate; choose {known}")
    return read_yaml(str(path))


def find_engine(values: dict[str, Any], processes: int) -> str:
    """The engine (of `memory_model.ENGINES`) that an accelerate file starts."""
    kind, zero = str(values.get("distributed_type", "NO")), values.get("deepspeed_config") or {}
    if kind == "FSDP":
        return "fsdp2"
    if kind == "DEEPSPEED":
        offloads = str(zero.get("offload_optimizer_device", "none")) != "none"
        return f"zero{zero.get('zero_stage', 2)}" + ("_offload" if offloads else "")
    return "ddp" if processes > 1 else "none"


def check_launch(recipe: Recipe) -> list[Finding]:
    """What recipe and launch together would not do as they say."""
    launch, processes = recipe.accelerate, recipe.launch.processes
    found = []
    if str(launch.get("distributed_type", "")) == "NO" and processes > 1:
        text = f"{processes} processes with a launch of one (distributed_type: NO)"
        found.append(Finding(ERROR, "launch", text, "--accelerate ddp, or --gpus 1"))
    for stage in recipe.stages():
        file, values = f"{stage}.yaml", recipe.values[f"{stage}.yaml"]
        is_cpu = is_on(values.get("use_cpu"))
        if is_on(launch.get("use_cpu")) and not is_cpu:
            text = "the launch is for CPUs (use_cpu: true), the recipe is not"
            remedy = "launch with ddp, or use_cpu: true and bf16: false"
            found.append(Finding(ERROR, file, text, remedy))
        if is_cpu and recipe.launch.engine == "fsdp2":
            text = "use_cpu: true under FSDP, which on a CPU is plain data parallel"
            found.append(Finding(ERROR, file, text, "launch with cpu, zero2 or zero3"))
        if is_on(values.get("fp16")) and is_on(values.get("bf16")):
            text = "fp16: true and bf16: true exclude each other"
            found.append(Finding(ERROR, file, text, "fp16: false"))
    return found + _vllm(recipe.values.get("grpo.yaml", {}), processes)


def _vllm(values: dict[str, Any], processes: int) -> list[Finding]:
    """The engines of a run against its processes."""
    if not is_on(values.get("use_vllm")):
        return []
    if str(values.get("vllm_mode") or "colocate") == "server":
        if not is_on(values.get("vllm_enable_sleep_mode")):
            return []
        text = "vllm_enable_sleep_mode: true puts no server to sleep, only a colocated engine"
        return [Finding(WARNING, "grpo.yaml", text, "vllm_enable_sleep_mode: false")]
    parallel = whole(values.get("vllm_tensor_parallel_size"), 1)
    if parallel < 1 or processes % parallel:
        text = f"vllm_tensor_parallel_size: {parallel} does not divide {processes} processes"
        remedy = "vllm_tensor_parallel_size: 1, or --gpus with a multiple of it"
        return [Finding(ERROR, "grpo.yaml", text, remedy)]
    return []
