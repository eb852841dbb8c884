"""Which loop generates without vLLM where `fast_generation` is unset.

On a CPU it is ours (`generate`), the fastest wherever it was measured, and so on all but CUDA. On a
GPU it is the one that `make gpu-check` found faster on such a GPU with these versions;
transformers' own where nothing was measured. The finding is a file of the user's cache for each GPU
and versions.
"""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from pipeline import manifest
from pipeline.console import say
from pipeline.models.hub import user_cache

THEIRS, OURS, BATCHED = LOOPS = ("transformers", "ours", "generate_batch")


def device_name(device: Any) -> str:
    """The name of a torch device: that of the GPU, or "cpu"."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def finding_file(name: str) -> Path:
    """The file of a device's finding with the installed versions."""
    text = json.dumps([name, manifest.versions(("torch", "transformers"))])
    digest = hashlib.sha256(text.encode()).hexdigest()
    return user_cache() / "sft-grpo-math/generation" / f"{digest}.json"


def keep_finding(name: str, speeds: dict[str, float]) -> Path:
    """Write the tokens a second of some of `LOOPS` on a device; returns the file."""
    path = finding_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_json(path, {"device": name, "tokens_per_second": speeds})
    return path


def choose(name: str) -> tuple[bool, str]:
    """Whether a GPU generates faster by our loop than by transformers', and why."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # none, or a damaged one
        speeds = json.loads(finding_file(name).read_text(encoding="utf-8"))["tokens_per_second"]
        ours, theirs = float(speeds[OURS]), float(speeds[THEIRS])
        if ours > 0 and theirs > 0:
            return ours > theirs, f"gpu-check found {ours / theirs:.2f} of transformers' speed"
    return False, "nothing was measured on this GPU with these versions; `make gpu-check` does"


def uses_ours(asked: bool | None, device: Any, key: str) -> bool:
    """Whether our loop generates: as asked, or as found, with one line on a GPU.

    Args:
        asked: `fast_generation`; device: of torch; key: how the line begins.
    """
    if asked is not None or device.type != "cuda":
        return asked is not False
    is_ours, why = choose(device_name(device))
    say(f"{key}: fast_generation: {str(is_ours).lower()}, since {why}")
    return is_ours
