"""A recipe may come from somebody else: its YAML runs no code and sends no key without consent.

Consent is the key on the user's own command line, or ALLOW_CODE=1 in the user's environment.
"""

import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from pipeline.errors import UserError

KEY_VARIABLE = "OPENAI_API_KEY"
# Variables that change how fast or how talkative a stage is. Left out is what names a file, a
# folder, a module, a host or an account, such as PATH, PYTHONPATH, LD_PRELOAD, GIT_CONFIG_COUNT,
# HF_HOME, HF_ENDPOINT, NCCL_NET_PLUGIN, VLLM_PLUGINS or TORCHINDUCTOR_CACHE_DIR.
_ENV = re.compile(
    r"(OMP|MKL|OPENBLAS|NUMEXPR|RAYON|VECLIB_MAXIMUM)_NUM_THREADS|OMP_PROC_BIND|OMP_PLACES"
    r"|KMP_AFFINITY|KMP_BLOCKTIME|TOKENIZERS_PARALLELISM"
    r"|(CUDA|HIP|ROCR)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_DEVICE_MAX_CONNECTIONS"
    r"|CUDA_LAUNCH_BLOCKING|CUBLAS_WORKSPACE_CONFIG|NVIDIA_TF32_OVERRIDE"
    r"|PYTORCH_((CUDA|HIP)_)?ALLOC_CONF|TORCH_DISTRIBUTED_DEBUG|TORCH_CPP_LOG_LEVEL"
    r"|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|TORCH(DYNAMO|_COMPILE)_DISABLE"
    r"|TORCH_NCCL_(ASYNC_ERROR_HANDLING|BLOCKING_WAIT|HEARTBEAT_TIMEOUT_SEC|ENABLE_MONITORING"
    r"|DUMP_ON_TIMEOUT|TRACE_BUFFER_SIZE|AVOID_RECORD_STREAMS|HIGH_PRIORITY)"
    r"|NCCL_(DEBUG|DEBUG_SUBSYS|SOCKET_\w+|NSOCKS_PERTHREAD|IB_\w+|P2P_\w+|SHM_\w+|ALGO|PROTO"
    r"|NVLS_ENABLE|CUMEM_ENABLE|CROSS_NIC|NET_GDR_LEVEL|NET_GDR_READ|BUFFSIZE|NTHREADS"
    r"|(MIN|MAX)_(NCHANNELS|CTAS)|TIMEOUT|ASYNC_ERROR_HANDLING|BLOCKING_WAIT)|GLOO_SOCKET_IFNAME"
    r"|(HF_HUB|HF_DATASETS|TRANSFORMERS)_OFFLINE|HF_HUB_DISABLE_\w+|HF_HUB_ENABLE_HF_TRANSFER"
    r"|HF_HUB_(DOWNLOAD|ETAG)_TIMEOUT|HF_XET_HIGH_PERFORMANCE|DO_NOT_TRACK"
    r"|WANDB_(RUN_ID|RESUME|MODE|NAME|NOTES|TAGS|RUN_GROUP|JOB_TYPE|SILENT)"
    r"|MLFLOW_(RUN_ID|TAGS|NESTED_RUN|FLATTEN_PARAMS|MAX_LOG_PARAMS)|SWANLAB_(RUN_ID|RESUME|MODE)"
    r"|VLLM_(ATTENTION_BACKEND|USE_V1|USE_FLASHINFER_SAMPLER|FLASH_ATTN_VERSION|LOGGING_LEVEL"
    r"|WORKER_MULTIPROC_METHOD|ENABLE_V1_MULTIPROCESSING|ALLOW_LONG_MAX_MODEL_LEN|SKIP_P2P_CHECK"
    r"|CPU_KVCACHE_SPACE|CPU_OMP_THREADS_BIND|ENGINE_ITERATION_TIMEOUT_S|NO_USAGE_STATS"
    r"|DO_NOT_TRACK)"
)
# Keys at any depth that make a library import code of the hub, or start a program, if they are on.
_RUNS_CODE = ("trust_remote_code", "use_kernels", "allow_all_kernels", "kernel_config",
              "custom_generate", "launcher")  # fmt: skip
# Kernels of the hub from others than transformers' own publisher.
_KERNEL = re.compile(r"(paged\|)?(?!kernels-community/)[^|]*/.*", re.DOTALL)


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
    found = _code_in(key, value)
    if found and not is_given():
        raise UserError(
            f"{where}: {found} is code that would run; read it, then set ALLOW_CODE=1, or give "
            f"--{key} on the command line"
        )


def check_address(key: str, value: Any, where: str, within: str = "") -> None:
    """Refuse a server named by a YAML that would be sent the user's own API key.

    Servers of this host and of the key's issuer may have it. A server may also be named within a
    list of mappings.
    """
    if isinstance(value, list | dict):
        parts = value.items() if isinstance(value, dict) else [(key, part) for part in value]
        for name, part in parts:
            check_address(str(name), part, where, within or key)
        return
    if key != "base_url" or is_given() or not os.environ.get(KEY_VARIABLE):
        return
    host = urlsplit(str(value)).hostname or ""
    if host not in ("localhost", "127.0.0.1", "::1", "api.openai.com"):
        raise UserError(
            f"{where}: {key}: {host} would be sent your {KEY_VARIABLE}; if you trust it, give "
            f"--{within or key} on the command line, else unset the variable"
        )


def _code_in(key: str, value: Any) -> str | None:
    """The key and value that run code; None where none does."""
    if isinstance(value, list | dict):
        parts = value.items() if isinstance(value, dict) else [(key, part) for part in value]
        named = key in _RUNS_CODE or key.endswith("_implementation")
        for name, part in parts:
            # Attention may be a mapping, from parts of the model to names.
            if found := _code_in(key if named else str(name), part):
                return found
        return f"{key}: {value}" if key == "kernel_config" else None
    is_switched = key in _RUNS_CODE and str(value).lower() not in ("false", "0", "no", "none", "")
    is_pickle = key == "weights_only" and str(value).lower() in ("false", "0", "no")
    is_kernel = key.endswith("_implementation") and _KERNEL.fullmatch(str(value))
    return f"{key}: {value}" if is_switched or is_pickle or is_kernel else None
