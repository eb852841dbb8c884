"""A recipe may come from somebody else: its YAML runs no code and sends no key without consent.

Consent is the key on the user's own command line, or ALLOW_CODE=1 in the user's environment.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from pipeline.errors import UserError

KEY_VARIABLE = "OPENAI_API_KEY"
# Variables that change how fast or how talkative a stage is. What names a file, a folder, a module,
# a host or an account is none, such as PATH, LD_PRELOAD, HF_HOME or NCCL_NET_PLUGIN.
_ENV = re.compile(
    r"(OMP|MKL|OPENBLAS|NUMEXPR|RAYON)_NUM_THREADS|TOKENIZERS_PARALLELISM"
    r"|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING)|PYTORCH_(CUDA_)?ALLOC_CONF"
    r"|NCCL_(DEBUG|IB_DISABLE|P2P_DISABLE|SOCKET_IFNAME)|GLOO_SOCKET_IFNAME"
    r"|(HF_HUB|HF_DATASETS|TRANSFORMERS)_OFFLINE|VLLM_(ATTENTION_BACKEND|LOGGING_LEVEL)"
    r"|WANDB_(RUN_ID|RESUME|MODE|NAME|NOTES|TAGS|RUN_GROUP)|MLFLOW_RUN_ID|SWANLAB_(RUN_ID|RESUME)"
)
# Keys at any depth that make a library import code of the hub, or start a program, if they are on.
_RUNS_CODE = {"trust_remote_code", "use_kernels", "allow_all_kernels", "kernel_config",
              "custom_generate", "launcher"}  # fmt: skip
# Kernels of the hub from others than transformers' own publisher.
_KERNEL = re.compile(r"(paged\|)?(?!kernels-community/)[^|]*/.*", re.DOTALL)
# Hosts that may have the user's key: this one, and the key's issuer.
_KEY_HOSTS = ("localhost", "127.0.0.1", "::1", "api.openai.com")


def is_given() -> bool:
    """Whether the user's environment has ALLOW_CODE=1."""
    return os.environ.get("ALLOW_CODE", "0") not in ("", "0")


def is_harmless(variable: str) -> bool:
    """Whether a variable of the environment changes no more than speed and logging."""
    return bool(_ENV.fullmatch(variable))


def check_env(names: Iterable[Any], where: str) -> None:
    """Refuse variables of a YAML's `env` by which a program could be run or data be sent."""
    for name in names:
        if not is_harmless(str(name)) and not is_given():
            raise UserError(
                f"{where}: env: {name} is no variable that a recipe may set, as it could run code; "
                "set it in your own environment, or read the recipe and set ALLOW_CODE=1"
            )


def check_value(key: str, value: Any, where: str) -> None:
    """Refuse a key of a YAML, or one within it, that makes a library run code from elsewhere."""
    for names, found in _leaves((key,), value):
        if _runs_code(names, found) and not is_given():
            raise UserError(
                f"{where}: {'.'.join(names)}: {found} is code that would run; read it, then set "
                f"ALLOW_CODE=1, or type {key} on the command line"
            )


def check_address(key: str, value: Any, where: str) -> None:
    """Refuse a server named by a YAML, or within it, that would be sent the user's own API key."""
    if is_given() or not os.environ.get(KEY_VARIABLE):
        return
    for names, found in _leaves((key,), value):
        host = urlsplit(str(found)).hostname or ""
        if names[-1] == "base_url" and host not in _KEY_HOSTS:
            raise UserError(
                f"{where}: base_url: {host} would be sent your {KEY_VARIABLE}; if you trust it, "
                f"type {key} on the command line, else unset the variable"
            )


def _leaves(names: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value that is no list or mapping, with the names of the keys that lead to it."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves((*names, str(name)), part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(names, part)
    else:
        yield names, value


def _runs_code(names: tuple[str, ...], value: Any) -> bool:
    """Whether a value, at the end of these keys, makes a library run code from elsewhere."""
    text = str(value).lower()
    if names[-1] == "weights_only":
        return text in ("false", "0", "no")
    if _RUNS_CODE & {*names}:
        return text not in ("false", "0", "no", "none", "")
    is_kernel = any(name.endswith("_implementation") for name in names)  # of a part of the model
    return is_kernel and bool(_KERNEL.fullmatch(str(value)))
