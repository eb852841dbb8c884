"""The manifest of a data build, checked, and in the shape that `data_report` shows it."""

from collections import Counter
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.build.recipe import FILES, TRAINING
from data_prep.config import UserError
from data_prep.decontamination.benchmarks import BENCHMARKS
from eval.report.drop_reasons import in_order

KEYS = ("config", "rows_in", "rows_out", "dropped", "outputs", "decontamination", "seconds")
NOT_LISTED = "not listed"
ORDER = [FILES[key] for key in ("sft", "grpo", "validation", "test")]
COUNTS = ("rows_in", "rows_out", "dropped")


def read_build(folder: Path) -> dict[str, Any]:
    """The manifest of the data build in `folder`.

    Raises:
        UserError: no build has finished there, another stage has, or one too old to be shown.
    """
    if not folder.is_dir():
        raise UserError(f"data: {folder} is not a folder; run `make data`, or set --data to one")
    path = folder / manifest.NAME
    try:
        found = manifest.read(folder)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); run `make data` again") from error
    if found is None:
        raise UserError(f"data: {folder} has no {manifest.NAME}: no build has finished there; run "
                        "`make data`")  # fmt: skip
    stage = found.get("stage") if isinstance(found, dict) else None
    if stage != "data":
        raise UserError(
            f"{path}: stage: {stage!r} is not 'data'; set --data to the folder of a data build"
        )
    files = found.get("outputs", {}).values()
    missing = [key for key in KEYS if key not in found]
    missing += [name for name in found.get("outputs", {}) if name not in ORDER]
    missing += [key for file in files for key in (*COUNTS, "sources") if key not in file]
    if missing or not files:
        raise UserError(
            f"{path}: {missing[0] if missing else 'outputs'}: missing or unknown, as in builds of "
            "another version; run `make data` again"
        )
    return found


def describe_files(build: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The counts of every data file, and of each of its sources, drops in the builder's order.

    Returns:
        `{file: {key, is_training, rows_in, rows_out, dropped, sources, adds_up, bands, shares,
        size}}`; a source has `label`, unique in its file, and the manifest's keys.
    """
    keys = {name: key for key, name in FILES.items()}
    files = {}
    for name, found in sorted(build["outputs"].items(), key=lambda item: ORDER.index(item[0])):
        key = keys[name]
        mix = (build["config"].get("mix") or {}).get(key) or {}
        sources = [
            one | {"label": label, "dropped": _sorted(one["dropped"])}
            for one, label in zip(found["sources"], labels(found["sources"]), strict=True)
        ]
        files[name] = {
            "key": key,
            "is_training": key in TRAINING,
            **{count: found[count] for count in COUNTS[:2]},
            "dropped": _sorted(found["dropped"]),
            "sources": sources,
            "adds_up": all(map(_adds_up, [found, *sources])) and _is_sum(found, sources),
            "bands": found.get("bands") or {},
            "shares": {band: share for band, share in mix.items() if band != "size"},
            "size": mix.get("size"),
        }
    return files


def totals_add_up(build: dict[str, Any]) -> bool:
    """Whether the manifest's totals are the sums over its files."""
    return _adds_up(build) and _is_sum(build, list(build["outputs"].values()))


def _adds_up(counts: dict[str, Any]) -> bool:
    return counts["rows_in"] == counts["rows_out"] + sum(counts["dropped"].values())


def _is_sum(whole: dict[str, Any], parts: list[dict[str, Any]]) -> bool:
    dropped = sum((Counter(part["dropped"]) for part in parts), Counter())
    return dropped == Counter(whole["dropped"]) and all(
        whole[key] == sum(part[key] for part in parts) for key in COUNTS[:2]
    )


def _sorted(dropped: dict[str, int]) -> dict[str, int]:
    return {reason: dropped[reason] for reason in in_order(dropped)}


def labels(sources: list[dict[str, Any]]) -> list[str]:
    """A name for each source of one file: as much of name, split and place as tells them apart."""
    kinds = [
        [one["name"] for one in sources],
        [f"{one['name']} {one['split']}" for one in sources],
        [f"{one['name']} {one['split']} {one['place']}" for one in sources],
        [f"{one['name']} {number}" for number, one in enumerate(sources, 1)],
    ]
    return next(names for names in kinds if len(set(names)) == len(names))


def describe_benchmarks(build: dict[str, Any]) -> dict[str, Any]:
    """`{benchmark: its number of questions, or why it was not compared}`, own sets included."""
    found = dict(build["decontamination"])
    keys = {key for key, name in FILES.items() if name in build["outputs"]}
    for key in ("test", "validation"):
        if key in keys:
            found[key] = build["outputs"][FILES[key]]["rows_out"]
    return found | {name: NOT_LISTED for name in BENCHMARKS if name not in found}
