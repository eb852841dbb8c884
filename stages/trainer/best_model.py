"""The folder `<output_dir>/best`: the model with the highest avg@k so far, whole at any moment.

The new one is written beside it and then takes its place by renaming. Killed between two renames a
run leaves none under the name; the resumed run puts the finished one there. `best.json` is written
last into the folder, and is all that is remembered: it goes where the folder goes.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_prep import manifest

NAME = "best"
FILE = "best.json"


def read_best(output_dir: str | Path) -> dict[str, Any] | None:
    """`{metric, value, stderr, step}` of the best model so far, None without one.

    Puts in order what a kill may have left: call it from one process only.
    """
    folder, written, replaced = _folders(output_dir)
    if not folder.exists() and (written / FILE).is_file():
        written.rename(folder)
    shutil.rmtree(written, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)
    file = folder / FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def is_better(value: float, step: int, best: dict[str, Any] | None) -> bool:
    """Whether a value takes the place of the best one; of equal ones the earlier stays."""
    return best is None or (value, -step) > (best["value"], -best["step"])


def write_best(
    output_dir: str | Path,
    record: dict[str, Any],
    save_model: Callable[[str], None],
    writes: bool,
    wait: Callable[[], None],
) -> None:
    """Put a model into the place of the best one.

    Args:
        record: for `best.json`.
        save_model: writes a model to a folder; called on every process.
        writes: whether this process writes files.
        wait: returns when every process has called it.
    """
    folder, written, replaced = _folders(output_dir)
    save_model(str(written))
    wait()  # the other processes may write parts of a sharded model
    if writes:
        manifest.write_json(written / FILE, record)
        if folder.exists():
            folder.rename(replaced)
        written.rename(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    wait()


def _folders(output_dir: str | Path) -> tuple[Path, Path, Path]:
    """The best model's folder, where the next is written, where the last one goes for a moment."""
    folder = Path(output_dir) / NAME
    return folder, folder.with_name(f"{NAME}.partial"), folder.with_name(f"{NAME}.replaced")
