"""Where a checkpoint's results are, what they depend on, and which evaluation may write there.

    runs/x/eval/sft          a link to the results of the last weights
    runs/x/eval/sft-3f9a12/  scores.json, completions.parquet and samples/, named by the weights

Other weights get a folder of their own, and other problems another one of theirs, `sft-3f9a12-2`.
Results of the same weights and problems are written again by an evaluation that has all of theirs;
one with other settings is refused before it begins.
"""

import os
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from data_prep.decontamination.benchmarks import find_benchmark
from data_prep.sampling.hashes import hash_checkpoint, hash_engine, installed, shorten
from data_prep.schema import grader_files, read_problems
from eval.harness import suite
from eval.harness.score import SCORES
from eval.harness.settings import EvalArguments
from pipeline import json_files, manifest
from pipeline.errors import UserError
from pipeline.folders import place_of
from pipeline.stages import ROOT, STAGES

FILES = ("scores.json", "completions.parquet")
# A change in these changes scores: old results are stale, the stored completions are not.
SCORING_CODE = [ROOT / name for name in STAGES["eval"].code]
SCORING_LIBRARIES = ("lm-eval", "math-verify")
# The keys that decide no score: places, titles, and how much is done at once.
NOT_DECIDING = {
    "checkpoints", "only_checkpoints", "output_dir", "report_dir", "samples_dir", "title",
    "test_file", "transfer_file", "data_root", "batch_size", "fast_generation",
    "vllm_gpu_memory_utilization",
}  # fmt: skip


def place(name: str, args: EvalArguments) -> Path:
    """The link to a checkpoint's results; a user's own link is followed."""
    return place_of(Path(args.output_dir, name))


def find(name: str, path: str, args: EvalArguments) -> tuple[str, dict[str, Any], bool]:
    """The folder of a checkpoint's results, its fingerprint, and whether they are there already.

    Raises:
        UserError: the folder has results of other settings, or version 0.2.0 made it.
    """
    wanted, link = fingerprint(path, args), place(name, args)
    is_old = link.is_dir() and not link.is_symlink() and any(link.iterdir())
    folder = link if is_old else folder_of(link, wanted)
    if is_current(folder, wanted):
        return str(folder), wanted, True
    why = other_settings(read_fingerprint(folder), wanted)
    if is_old or why:
        free = next(f for n in count(2) if not os.path.lexists(f := f"{Path(args.output_dir)}-{n}"))
        raise UserError(
            f"{why or 'output_dir: version 0.2.0 made it'}: the results in {folder} stay as they "
            f"are; choose another folder, such as eval.output_dir={free}"
        )
    return str(folder), wanted, False


def folder_of(link: Path, wanted: dict[str, Any]) -> Path:
    """The first folder of these weights that has no results of other problems."""
    folder = own = link.with_name(f"{link.name}-{shorten(wanted['checkpoint'])[:6]}")
    numbers = count(2)
    while not is_of(read_fingerprint(folder), wanted):
        folder = own.with_name(f"{own.name}-{next(numbers)}")
    return folder


def fingerprint(path: str, args: EvalArguments) -> dict[str, Any]:
    """Everything a checkpoint's scores depend on; equal fingerprints mean equal results."""
    return {
        "checkpoint": hash_checkpoint(path, "checkpoints"),
        "engine": hash_engine(args.backend, args.dtype),
        "data": hash_data(args),
        "code": f"{manifest.hash_code(*SCORING_CODE)} {installed(SCORING_LIBRARIES)}",
        "settings": deciding_settings(args),
    }


def deciding_settings(args: EvalArguments) -> dict[str, Any]:
    """The settings that scores depend on; the context is one only where it may cut a prompt."""
    found = {key: value for key, value in asdict(args).items() if key not in NOT_DECIDING}
    if args.backend != "vllm" or not args.official:
        found["vllm_max_model_length"] = None
    return found


def hash_data(args: EvalArguments) -> dict[str, str]:
    """For each task its problems' origin: `{file: hash}`, and hub ids as they are."""
    found: list[str | Path] = []
    for task in args.tasks:
        key = suite.OWN.get(task)
        origin = getattr(args, key) if key else find_benchmark(task, args.data_root)
        if origin:
            found.append(origin)
        if key:
            found += grader_files(read_problems(getattr(args, key)))
    for task in args.official:
        for metadata in suite.read_official_metadata(task).values():
            hub = metadata["hub"]
            if args.data_root:
                found += suite.find_official(hub, metadata["files"], args.data_root).values()
            else:
                found.append(hub)
    return manifest.hash_inputs(found)


def is_current(folder: Path, wanted: dict[str, Any]) -> bool:
    """Whether the folder holds complete results of exactly these inputs."""
    try:
        is_same = read_scores(folder)["fingerprint"] == wanted
        manifest.hash_inputs([folder / file for file in FILES])
    except (FileNotFoundError, ValueError):  # damaged: the samples are there, scoring is cheap
        return False
    return is_same and (folder / "completions.parquet").is_file()


def read_scores(folder: Path) -> dict[str, Any]:
    return json_files.read(folder / "scores.json", SCORES, "run `make eval` again")


def read_fingerprint(folder: Path) -> dict[str, Any]:
    """That of the results in a folder; {} where there are none, or they are damaged."""
    try:
        return read_scores(folder)["fingerprint"]
    except (FileNotFoundError, ValueError):
        return {}


def is_of(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether results, by their fingerprint, are of the same weights and problems, or fewer.

    Problems of a task that is left out now are the settings' matter.
    """
    if not old:
        return True
    data, known = new["data"], old["data"] or {}
    there = {hash_of(data, name) for name in data}
    gone = [name for name in known if hash_of(known, name) not in there]
    is_left_out = bool(other_settings(old, new))
    return old["checkpoint"] == new["checkpoint"] and (is_left_out or not gone)


def other_settings(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first setting with which an evaluation does not have all of an earlier one; "" if none.

    Args:
        old, new: fingerprints; an empty one has nothing. Another version of the code scores the
            same evaluation again.
    """
    for key, before in old.get("settings", {}).items():
        if key in new["settings"] and not covers(key, before, new["settings"][key]):
            return f"{key}: {new['settings'][key]}, not {before}"
    return ""


def covers(key: str, old: Any, new: Any) -> bool:
    """Whether a setting's new value gives all results of the old one."""
    if key in ("tasks", "official"):
        return {*old} <= {*new}
    if key == "num_samples":
        return bool(old <= new)
    if key == "limit":
        return new is None or (old is not None and old <= new)
    return bool(old == new)


def hash_of(data: dict[str, str], name: str) -> str:
    """What tells problems apart: of a file its hash, as a run may be moved; of the hub the id."""
    return name if data[name] == "hub" else data[name]
