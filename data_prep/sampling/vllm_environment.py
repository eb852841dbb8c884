"""What vLLM may see and say: an environment of its own, a quiet terminal, errors of one line.

`data_prep.sampling.vllm` imports and builds vLLM inside these; nothing here outlives the building.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from data_prep.config import UserError

# What launchers tell their processes. vLLM would take each of them for a part of one engine.
LAUNCHER = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip
QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
    "TQDM_DISABLE": "1",  # read by the engine's child process
}


def import_vllm() -> Any:
    """Import vLLM.

    Returns:
        Its `current_platform`, which knows whether it runs on a CPU.

    Raises:
        UserError: it is missing, or one of the packages that it needs.
    """
    try:
        import vllm  # noqa: F401
        from vllm.platforms import current_platform
    except ImportError as error:
        raise UserError(
            f"backend: vllm is not installed ({error}); run `make .venv/ready "
            "EXTRAS=eval,vllm,dev` on a GPU host, or set backend: hf"
        ) from error
    return current_platform


@contextmanager
def own_environment(device_index: int | None) -> Iterator[None]:
    """Environment variables of one process that has one device and no launcher; put back after.

    Args:
        device_index: which of the visible GPUs; None leaves all of them.

    Raises:
        UserError: there is no such GPU.
    """
    before = dict(os.environ)
    for name in LAUNCHER:
        os.environ.pop(name, None)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        if device_index is not None and torch.version.cuda is not None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            os.environ["CUDA_VISIBLE_DEVICES"] = choose_device(visible, device_index)
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def choose_device(visible: str | None, index: int) -> str:
    """The `index`-th of the devices that `CUDA_VISIBLE_DEVICES` names; None stands for all."""
    if visible is None:
        return str(index)
    devices = [name.strip() for name in visible.split(",") if name.strip()]
    if index >= len(devices):
        raise UserError(
            f"CUDA_VISIBLE_DEVICES: {visible!r} has no GPU for process {index} of this host; "
            "start as many processes as there are GPUs"
        )
    return devices[index]


@contextmanager
def hushed(is_on: bool = True) -> Iterator[None]:
    """Hold back stderr, that of C++ too; it comes out after all when an unexpected error does."""
    if not is_on:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        stderr = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except UserError:
            raise  # says it all
        except BaseException:
            held.seek(0)
            os.write(stderr, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)


@contextmanager
def refusals(checkpoint: str) -> Iterator[None]:
    """Turn vLLM's refusals of a checkpoint or a setting into a `UserError` of one line."""
    from pydantic import ValidationError

    try:
        yield
    except ValueError as error:
        text = str(error)
        if isinstance(error, ValidationError):  # whose text would repeat all settings
            first = error.errors()[0]
            text = ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])
        raise UserError(
            f"backend: vllm refuses {checkpoint}: {' '.join(text.split())} (or set backend: hf)"
        ) from error
