"""Earlier results that an evaluation takes the place of: `eval.1`, `eval.2`, …, as training does.

An evaluation with other settings, on other problems or of other weights keeps the results that were
there. One that adds tasks, problems or samples has all of theirs and keeps nothing. The stored
completions stay in their place, for both.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.paths import is_same_place

RESULTS = ("scores.json", "completions.parquet")  # of each checkpoint


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first thing in which an evaluation does not have all of an earlier one; "" if none.

    Args:
        old, new: fingerprints. Another version of the code scores the same evaluation again.
    """
    before, now = old["settings"], new["settings"]
    for key in before:
        if key in now and not covers(key, before[key], now[key]):
            return f"{key}: {before[key]}, not {now[key]}"
    if hashes(old) - hashes(new):
        return "other problems"
    return "" if old["checkpoint"] == new["checkpoint"] else "other weights"


def covers(key: str, old: Any, new: Any) -> bool:
    """Whether a setting's new value gives all results of the old one."""
    if key in ("tasks", "official"):
        return {*old} <= {*new}
    if key == "num_samples":
        return bool(old <= new)
    if key == "limit":
        return new is None or (old is not None and old <= new)
    return bool(old == new)


def hashes(fingerprint: dict[str, Any]) -> set[str]:
    """The problems of each task: of files their hash, as a run may be moved; of the hub its id."""
    data = fingerprint["data"] or {}
    return {name if data[name] == "hub" else data[name] for name in data}


def check_model(name: str, path: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse a model under the name that the results of another one have.

    The same path may hold other weights, after more training. A folder that is gone was renamed.

    Args:
        old: the `scores.json` under that name; new: the fingerprint of the model.
    """
    before, known = old.get("checkpoint", path), old["fingerprint"]["checkpoint"]
    is_there = known.startswith("hub:") or Path(before).exists()
    if known != new["checkpoint"] and is_there and not is_same_place(before, path):
        raise UserError(
            f"checkpoints: {name}={path}: the results under this name are of {before}; give it "
            "another name, or set another output_dir (or RUN)"
        )


def keep(output_dir: str, why: dict[str, str]) -> None:
    """Copy all results of a folder to a numbered one beside it, the manifest too, once.

    Args:
        why: `{name of a checkpoint whose results will be overwritten: difference}`.
    """
    folder = Path(output_dir)
    if folder.is_symlink() or not folder.name:
        folder = folder.resolve()  # the others are beside that, on the same disk
    lost = [file for name in why for file in results(folder / name)]
    if not lost or any(holds(place, folder, lost) for place in numbered(folder).values()):
        return
    place = folder.with_name(f"{folder.name}.{max(numbered(folder), default=0) + 1}")
    partial = place.with_name(place.name + manifest.PARTIAL)  # a kill may have left it
    shutil.rmtree(partial, ignore_errors=True)
    files = [file for one in sorted(folder.iterdir()) for file in results(one)]
    files += [file for file in [folder / manifest.NAME] if file.is_file()]
    for file in files:
        copy = partial / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    partial.rename(place)
    reasons = "; ".join(dict.fromkeys(why.values()))
    sys.stdout.write(f"eval: the earlier results are kept in {place}/ ({reasons})\n")


def results(folder: Path) -> list[Path]:
    """The files of a checkpoint's results that are there."""
    return [folder / name for name in RESULTS if (folder / name).is_file()]


def numbered(folder: Path) -> dict[int, Path]:
    """The folders of earlier results, and whatever else has such a name."""
    beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
    return {
        int(path.suffix[1:]): path
        for path in beside
        if path.stem == folder.name and path.suffix[1:].isdecimal()
    }


def holds(place: Path, folder: Path, files: list[Path]) -> bool:
    """Whether a folder of earlier results has these files of `folder`, unchanged."""
    return all(
        manifest.is_as(place / file.relative_to(folder), manifest.sha256(file)) for file in files
    )
