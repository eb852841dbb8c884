"""`manifest.json`: what a stage read, did and wrote. Written last and atomically.

No manifest, no result: `start` removes an old one before the work begins, `write` puts the new one
in place when everything else is on disk. The Makefile's stage targets are these files.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from data_prep.values import redact

NAME = "manifest.json"
PARTIAL = ".partial"  # the end of a file's name until it is complete
PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "peft", "datasets", "math-verify", "lm-eval",
)  # fmt: skip


def sha256(path: str | Path) -> str:
    """SHA-256 of a file in hex; of a folder, that of its manifest, else of its configuration."""
    path = Path(path)
    if path.is_dir():
        names = (NAME, "config.json", "adapter_config.json")
        path = next((path / name for name in names if (path / name).is_file()), path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_inputs(paths: list[str | Path]) -> dict[str, str]:
    """`{path: sha256}` of the paths that exist; a hub id is recorded as `hub`."""
    return {str(p): sha256(p) if Path(p).exists() else "hub" for p in paths}


def versions(names: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Installed versions of packages, by default of those that decide a result."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def git_commit() -> str | None:
    """HEAD's hash, with `-dirty` when tracked files differ; None outside a git checkout."""
    folder = str(Path(__file__).parent)
    command = ["git", "-C", folder, "describe", "--always", "--abbrev=40", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not know (NaN, infinity)."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def open_whole(path: str | Path, mode: str = "w", keep_partial: bool = False) -> Iterator[IO[Any]]:
    """Open a file for writing so that a reader sees the old one or the new one, never a part.

    It is called `<path>.partial` until the block ends; an error in the block removes it, but for
    `keep_partial`. The mode is "w" (UTF-8) or "wb".
    """
    path = Path(path)
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        if not keep_partial:
            partial.unlink(missing_ok=True)
        raise


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON, indented, by `open_whole`; a URL loses its password."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    with open_whole(path) as file:
        file.write(redact(text))


def encodable(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which models write and UTF-8 lacks."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def start(folder: str | Path) -> float:
    """Make the stage's folder, remove its old manifest, and return the start time for `write`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / NAME).unlink(missing_ok=True)
    return time.time()


def write(
    folder: str | Path,
    stage: str,
    config: dict[str, Any],
    inputs: dict[str, str],
    counts: dict[str, Any],
    started: float,
    **extra: Any,
) -> Path:
    """Write the folder's manifest.

    Args:
        inputs: of `hash_inputs`; started: of `start`.
        counts: whole numbers worth knowing (rows, steps, tokens).
        extra: further keys, such as `rows_in`, `rows_out`, `dropped` of a data build.
    """
    value = {
        "stage": stage,
        "config": config,
        "git_commit": git_commit(),
        "inputs": inputs,
        "counts": counts,
        **extra,
        "versions": versions(),
        "wall_time_s": round(time.time() - started, 1),
    }
    path = Path(folder) / NAME
    write_json(path, value)
    return path


def read(folder: str | Path) -> dict[str, Any] | None:
    """The folder's manifest, or None where the stage has not finished."""
    path = Path(folder) / NAME
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
