"""What a launch asks for: read from the recipe, the environment and the launcher's command line.

`accelerate launch` tells the processes it starts only a part of what it was asked for, and what it
leaves out goes without a word. `launch_checks` compares the two; no torch is needed.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from data_prep.config import UserError

CONFIGS = "configs/accelerate"
ZERO = "DeepSpeed ZeRO-{}"
FSDP = "FSDP"
DATA_PARALLEL = "data parallel"  # one process too

# Flags of `accelerate launch` that no value follows.
SWITCHES = {
    "cpu", "debug", "downcast_bf16", "dynamo_use_dynamic", "dynamo_use_fullgraph",
    "dynamo_use_regional_compilation", "enable_cpu_affinity", "fp8_use_autocast_during_eval", "h",
    "help", "m", "module", "multi_gpu", "no_python", "no_tpu_cluster", "q", "quiet",
    "same_network", "tpu", "tpu_cluster", "tpu_use_sudo", "use_deepspeed", "use_fsdp",
    "use_megatron_lm", "use_parallelism_config",
}  # fmt: skip
LAUNCHER = re.compile(r"(accelerate|accelerate_cli\.py) launch$|accelerate(-|\.commands\.)launch$")


def is_on(value: Any) -> bool:
    """A switch as YAML, the command line or an environment variable gives it."""
    return str(value).lower() in ("true", "1", "yes", "y", "on")


def is_given(value: Any) -> bool:
    """Whether a key such as `fsdp` or `deepspeed` asks for anything."""
    return bool(value) and str(value).lower() not in ("false", "no", "off", "none", "0")


def parent_command() -> list[str]:
    """The command line of the process that started this one; empty where none can be read."""
    try:
        text = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rstrip("\0").split("\0")


def launcher_settings(command: list[str]) -> dict[str, Any]:
    """What a command line of `accelerate launch` asks for; empty for any other command.

    Returns:
        The config file's keys, its path as `config_file`, and over them the flags (`True` for one
        without a value), up to the script. Where none is named, accelerate's default file if it
        is there.
    """
    heads = [n for n, word in enumerate(command) if LAUNCHER.search(" ".join(command[: n + 1]))]
    if not heads:
        return {}
    flags: dict[str, Any] = {}
    words = command[heads[0] + 1 :]
    while words and words[0].startswith("-"):
        name, has_value, value = words.pop(0).partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not has_value and words and not words[0].startswith("-"):
            # `--cpu train.py`: the word behind a switch is the script
            value = words.pop(0) if name not in SWITCHES else ""
        if name not in ("m", "module"):  # what the script is, not how it is started
            flags[name] = value or True
    default = default_config_file(os.environ)
    if "config_file" not in flags and "cpu" not in flags and default.is_file():
        flags["config_file"] = str(default)
    path = flags.get("config_file")
    return (_read_config(Path(str(path))) if path else {}) | flags


def default_config_file(env: Mapping[str, str]) -> Path:
    """What `accelerate config` writes and `accelerate launch` reads unless told otherwise."""
    cache = env.get("HF_HOME", os.path.join(env.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    return Path(os.path.expanduser(cache), "accelerate", "default_config.yaml")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}  # accelerate has read it, or there would be no process here
    return config if isinstance(config, dict) else {}


def distributed_type(asked: Mapping[str, Any]) -> str:
    """accelerate's `distributed_type` that the launcher was asked for."""
    if is_on(asked.get("use_deepspeed")):
        return "DEEPSPEED"
    if is_on(asked.get("multi_gpu")):  # over the config file's type
        return "MULTI_GPU"
    return "FSDP" if is_on(asked.get("use_fsdp")) else str(asked.get("distributed_type", ""))


def zero_settings(values: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """The `stage` of ZeRO, and whether a save `gathers` the weights of all processes.

    Raises:
        UserError: the DeepSpeed file cannot be read, or the stage is no number.
    """
    config = values.get("deepspeed") or env.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if config == "none":
        return {
            "stage": _read_stage(env.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")),
            "gathers": is_on(env.get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL")),
        }
    if isinstance(config, str):
        try:
            config = json.loads(Path(config).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"deepspeed: {config}: not readable as JSON ({error})") from error
    zero = config.get("zero_optimization", {})
    return {
        "stage": _read_stage(zero.get("stage", 0)),
        "gathers": is_on(zero.get("stage3_gather_16bit_weights_on_model_save")),
    }


def _read_stage(stage: Any) -> int:
    if str(stage) not in ("0", "1", "2", "3"):
        raise UserError(
            f"zero_stage: {stage!r} is none of 0, 1, 2, 3; set one of them in the launch's "
            "deepspeed_config (in a DeepSpeed file: zero_optimization.stage)"
        )
    return int(stage)


def asked_engine(values: Mapping[str, Any], env: Mapping[str, str] = os.environ) -> str:
    """What holds the weights, by recipe and launch: `DATA_PARALLEL`, `FSDP` or one of `ZERO`."""
    if is_on(env.get("ACCELERATE_USE_DEEPSPEED")) or is_given(values.get("deepspeed")):
        return ZERO.format(zero_settings(values, env)["stage"])
    if is_on(env.get("ACCELERATE_USE_FSDP")) or is_given(values.get("fsdp")):
        return FSDP
    return DATA_PARALLEL
