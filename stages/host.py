"""What a training stage needs on this host: its files, its packages, its model, its engine."""

import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from data_prep.sampling import NO_VLLM
from pipeline import json_files, manifest
from pipeline.console import is_main_process, notice
from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint
from pipeline.settings import Settings
from stages.held_out import check_held_out, check_sft_held_out
from stages.precision import sampler_dtype
from stages.rules import TRACKERS, check_rules
from stages.run.launch import is_installed
from stages.trainer.logprobs import logprobs_mode

# What a key, or its value, needs one of; transformers takes `kernels` in place of FlashAttention.
PACKAGES = {name: (name,) for name in TRACKERS} | {
    "mlflow": ("mlflow", "mlflow-skinny"),
    "flash_attention_2": ("flash-attn", "kernels"),
    "flash_attention_3": ("flash-attn-3", "kernels"),
    "flash_attention_4": ("flash-attn-4", "kernels"),
    "use_liger_kernel": ("liger-kernel",),
    "load_in_4bit": ("bitsandbytes",),
    "load_in_8bit": ("bitsandbytes",),
}
SERVER_INFO = {  # what is read of vLLM's answer
    "vllm_config": {
        "weight_transfer_config?": ({"backend?": object}, None),
        "model_config": {"logprobs_mode": str, "dtype?": (object, None)},
    }
}
SERVE = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out "
    '--weight-transfer-config \'{"backend": "nccl"}\''
)


def check_sft(
    settings: Settings, processes: int | None = None, engine: str | None = None
) -> Settings:
    """Refuse mistakes of an SFT run that show before torch is imported.

    Args:
        processes, engine: of the launch, as `check_rules` takes them.

    Returns:
        The settings without keys that an override made pointless; the others do so, too.
    """
    settings = check_rules("sft", settings, processes, engine)
    check_packages(settings)
    check_file(settings, "train_file", "data")
    check_file(settings, "eval_file", "data")
    check_sft_held_out(settings)
    check_checkpoint(settings.model_name_or_path, "model_name_or_path")
    return settings


def check_grpo(
    settings: Settings, processes: int | None = None, engine: str | None = None
) -> Settings:
    """Refuse mistakes of a GRPO run that show before torch is imported."""
    settings = check_rules("grpo", settings, processes, engine)
    check_packages(settings)
    check_file(settings, "train_file", "data")
    check_file(settings, "pass_rates", "difficulty")
    check_file(settings, "eval_file", "data")
    check_held_out(settings)
    check_checkpoint(settings.model_name_or_path, "model_name_or_path")
    check_vllm(settings)
    return settings


def check_packages(settings: Settings) -> None:
    """Refuse what needs a package that is not installed."""
    attention = settings.attn_implementation or ""
    is_of_hub = "/" in attention  # kernels-community/flash-attn2
    needed = [("attn_implementation", ("kernels",) if is_of_hub else PACKAGES.get(attention))]
    needed += [("report_to", PACKAGES[name]) for name in TRACKERS if name in settings.report_to]
    needed += [(key, PACKAGES[key]) for key in PACKAGES if settings.get(key)]
    missing = [
        f"{key}: {settings[key]} needs the package {' or '.join(packages)}; "
        f"pip install {packages[0]}"
        for key, packages in needed
        if packages and not manifest.versions(packages)
    ]
    if missing:
        raise UserError(*missing)


def check_file(settings: Settings, key: str, target: str) -> None:
    """Refuse a missing input file, naming the make target that writes it."""
    path = settings.get(key)
    if path and not Path(path).is_file():
        raise UserError(f"{key}: {path} does not exist; run `make {target}` first")


def engine_keys(settings: Any, dtype: str | None) -> dict[str, str]:
    """What a recipe asks of `vllm.LLM` that TRL has no key for; `dtype`: the recipe's."""
    asked = {"logprobs_mode": logprobs_mode(settings), "dtype": sampler_dtype(settings, dtype)[0]}
    return {key: value for key, value in asked.items() if value}


def server_flags(settings: Settings) -> list[str]:
    """The same as words of a server's command."""
    words: list[str] = []
    for key, value in engine_keys(settings, settings.dtype).items():
        words += [f"--{key.replace('_', '-')}", value]
    return words


def served(settings: Settings) -> list[str]:
    """The model that GRPO's server has at first, and the flags by which it follows the recipe."""
    return [str(settings.model_name_or_path), *server_flags(settings)]


def check_vllm(settings: Settings) -> None:
    """Refuse a run that this machine, or its server, has no engine for; waits for a server."""
    if not settings.use_vllm:
        return
    if not is_installed("vllm"):
        raise UserError(f"use_vllm: {NO_VLLM}")
    if settings.use_cpu:
        raise UserError("use_cpu: true, but vLLM needs a CUDA device in GRPO; set use_vllm: false")
    if not has_gpu():
        raise UserError("use_vllm: true needs a CUDA device, this host has none; set it to false")
    if settings.vllm_mode == "server" and is_main_process():
        check_server(settings)


def has_gpu() -> bool:
    """Whether a CUDA device is visible to this process."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def check_server(settings: Settings) -> None:
    """Wait until the vLLM server answers, and refuse one that cannot take the trainer's weights.

    One of another dtype works, but worse: a notice says so.
    """
    key, url = address(settings)
    command = " ".join([SERVE, *server_flags(settings)])
    _wait_for_server(key, url, settings.vllm_server_timeout, command)
    try:
        config = read_server(url, 30)
    except (OSError, ValueError) as error:
        fault: str | None = f"does not show its settings ({error}), so it takes no weights either"
    else:
        fault = _fault_of_server(config, logprobs_mode(settings))
    if fault:
        raise UserError(f"{key}: the server at {url} {fault}; start it with {command}")
    if differs := other_dtype(settings, config):
        notice(f"{key}: the server at {url} {differs}; start it with {command}")


def address(settings: Settings) -> tuple[str, str]:
    """The key that names the server, and its URL."""
    if settings.vllm_server_base_url:
        return "vllm_server_base_url", settings.vllm_server_base_url.rstrip("/")
    url = f"http://{settings.vllm_server_host}:{settings.vllm_server_port}"
    return "vllm_server_host", url


def read_server(url: str, seconds: float) -> dict[str, Any]:
    """The settings that a server says it has.

    Raises:
        OSError: it does not answer within `seconds`, or not in development mode.
        ValueError: it answers something else.
    """
    with urllib.request.urlopen(f"{url}/server_info?config_format=json", timeout=seconds) as answer:
        return json_files.parse(answer.read(), SERVER_INFO, is_own=False)["vllm_config"]


def other_dtype(settings: Settings, config: dict[str, Any]) -> str:
    """How a server samples in another dtype than the trainer's; empty where it does not."""
    wanted, said = sampler_dtype(settings, settings.dtype)
    found = str(config["model_config"].get("dtype") or wanted).removeprefix("torch.")
    if not wanted or found == wanted:
        return ""
    return f"samples in {found}, but with {said} the trainer computes in {wanted}"


def _fault_of_server(config: dict[str, Any], wanted: str) -> str | None:
    """Why a server cannot work with the trainer, which wants such log-probs; None where it can."""
    if (config.get("weight_transfer_config") or {}).get("backend") != "nccl":
        return "takes no weights by NCCL"
    mode = config["model_config"]["logprobs_mode"]
    if mode != wanted:
        return f"gives {mode}, not {wanted}: it biases the comparison with the trainer's log-probs"
    return None


def _wait_for_server(key: str, url: str, seconds: float, command: str) -> None:
    """Ask for the server's health until it answers; a line on stderr says that this waits."""
    deadline, is_first = time.monotonic() + seconds, True
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=10):
                return
        except (OSError, ValueError) as error:  # a ValueError: no URL
            if isinstance(error, ValueError) or time.monotonic() >= deadline:
                raise UserError(
                    f"{key}: no vLLM server answers at {url} within {seconds:g} s "
                    f"(vllm_server_timeout): {error}; start one with {command}"
                ) from error
        if is_first:
            sys.stderr.write(f"waiting up to {seconds:g} s for the vLLM server at {url}\n")
        is_first = False
        time.sleep(min(2.0, max(0.1, deadline - time.monotonic())))
