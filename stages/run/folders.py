"""A training run on disk: the folder that it trains in, and the checkpoint that it resumes from.

`pipeline.folders` says how the runs of a stage lie beside each other. A run never writes to the
folder of another one, so no start overwrites a result. The hash in a name only tells runs apart:
what is compared are keys and inputs (`difference`).

A checkpoint is complete when `files.json` is there, written last (stages/run/saving.py). It has
the hash of each file and the `run.json` that the checkpoint belongs to. A start compares the hashes
once. A checkpoint that was changed since, or is another run's, is called `damaged-1-checkpoint-8`
from then on, and the run resumes from the one before (docs/reliability.md).
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import json_files, manifest
from pipeline.errors import UserError
from pipeline.folders import RUN_FILE, place_named, runs_of
from pipeline.models.checkpoints import reads
from stages.run import removal
from stages.run.launch import BATCH_KEYS, DATA_PARALLEL, FSDP

SEAL, STATE = "files.json", "trainer_state.json"
EIGHT_BIT = 1 + 4 / 256  # bytes of a state: 8 bits, and an fp32 scale for each block of 256
# What GRPO reads of its own run: the best model, with its names while another takes its place, and
# what the guards did.
BEST = "best"
OF_ONE_START = (BEST, f"{BEST}.partial", f"{BEST}.replaced", "events.jsonl")
RUN_SHAPE: json_files.Shape = {
    "config": {
        "per_device_train_batch_size?": int,
        "gradient_accumulation_steps?": int,
        "steps_per_generation?": (int, None),
    },
    "inputs": {str: str},
    "num_processes": int,
    "engine?": str,
}
SEAL_SHAPE = {"run": {str: object}, "files": {str: str}}


class Start(NamedTuple):
    """A run's folder, and the checkpoint that it resumes from; is_done: the result is there."""

    folder: Path
    checkpoint: Path | None = None
    is_done: bool = False


def choose(place: Path, run: Mapping[str, Any]) -> Start:
    """Find the folder of a run, among those of a stage's place.

    One process calls it, under the place's lock. It renames damaged checkpoints, and writes nothing
    else. With FORCE=1 a run that is whole does not count.

    Args:
        run: what becomes its `run.json`.

    Raises:
        UserError: a folder of an earlier version would be trained in, or the newest checkpoint
            has weights alone.
    """
    if place.is_dir() and not place.is_symlink() and any(place.iterdir()):
        return of_earlier_version(place, run)
    same = [one for one in runs_of(place) if not difference(read_run(one), run)]
    same.reverse()  # the newest first
    whole = [one for one in same if is_whole(one)]
    if whole and not manifest.is_forced():
        return Start(whole[0], is_done=True)
    if manifest.is_forced():
        same = [one for one in same[:1] if manifest.read(one) is None]
    for one in same:
        check_best(one)
        checkpoint = last_whole(one, run)
        if checkpoint and not (fault := lost_states(checkpoint, str(one))):
            return Start(one, checkpoint)
        if checkpoint and not manifest.is_forced():
            raise UserError(fault)
    free = [one for one in same if has_just_begun(one)]
    return Start(free[0] if free else new_folder(place, run))


def check_best(folder: Path) -> None:
    """Refuse a finished run whose best model was changed: its last checkpoint cannot make that."""
    for name in manifest.damaged_files(folder):
        if name.startswith(f"{BEST}/"):
            state = (
                "has changed since it was written" if (folder / name).is_file() else "is missing"
            )
            raise UserError(
                f"{folder / name}: {state}; put the file back, or "
                f"`FORCE=1 make {place_named(folder).name}` trains again, in another folder"
            )


def of_earlier_version(place: Path, run: Mapping[str, Any]) -> Start:
    """The result of version 0.2.0 in a stage's place, if it is up to date; else it is refused."""
    made, old = manifest.read(place), read_run(place)
    remedy = "choose another RUN"
    if made is None and not old:
        why = "it holds files that no training stage wrote"
    elif made is None:
        why = "version 0.2.0 has not finished it"
        if checkpoint := last_checkpoint(place):
            remedy += f" with resume_from_checkpoint: {checkpoint} to go on from it"
    elif manifest.is_forced():
        why = "version 0.2.0 made it, FORCE=1 makes another"
    elif not (why := difference(old or made, run)):
        if is_whole(place):
            return Start(place, is_done=True)
        why = "its files have changed since they were written"
    raise UserError(f"output_dir: {place} stays as it is ({why}); {remedy}")


def has_just_begun(folder: Path) -> bool:
    """Whether a run has left nothing that another start from scratch would take for its own."""
    names = (manifest.NAME, *OF_ONE_START)
    return last_checkpoint(folder) is None and not any(
        os.path.lexists(folder / name) for name in names
    )


def new_folder(place: Path, run: Mapping[str, Any]) -> Path:
    """A folder for a run, which is not there or empty."""
    inputs = run["inputs"]
    config = manifest.by_hash(run["config"], inputs)
    said = {key: config[key] for key in config if key not in manifest.NOT_COMPARED}
    text = json.dumps([said, sorted(inputs.values())], sort_keys=True)
    name = f"{place.name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    folder, number = place.with_name(name), 1
    while os.path.lexists(folder) and not is_empty(folder):
        number += 1
        folder = place.with_name(f"{name}-{number}")
    return folder


def is_empty(folder: Path) -> bool:
    """Whether a kill may have left a folder: it holds nothing but a half-written file."""
    if not folder.is_dir():
        return False
    return all(file.suffix == manifest.PARTIAL for file in folder.iterdir())


def is_whole(folder: Path) -> bool:
    """Whether a run has its result, as it was written."""
    return manifest.read(folder) is not None and not manifest.damaged_files(folder)


def state_bytes(optim: str | None, number: float) -> float:
    """Bytes of AdamW's two states of a trained number, of 8 bits each where `optim` says so.

    Other optimizers are taken as AdamW.

    Args:
        number: bytes of the number that the optimizer updates.
    """
    return 2 * (EIGHT_BIT if "8bit" in (optim or "") else number)


def checkpoint_bytes(
    weights: float, trained: float, states: float, num_copied: int, has_lora: bool
) -> tuple[float, float]:
    """Bytes of a checkpoint that a run resumes from, and of a saved model, over all processes.

    Beside LoRA a checkpoint has the adapter alone, and a saved model has both: the adapter, and the
    weights that it is merged into.

    Args:
        weights: bytes of all weights, without the adapter; trained: of those with a gradient.
        states: bytes of the optimizer's states, by `state_bytes`.
        num_copied: numbers of which ZeRO has a float32 copy, besides.
    """
    kept = states + 4 * num_copied
    return (trained + kept, weights + trained) if has_lora else (weights + kept, weights)


def seal(checkpoint: Path) -> None:
    """Write `files.json`, when every process has written its part."""
    # A kill while this was written leaves `files.json.partial`, which is written again.
    ours = (SEAL, SEAL + manifest.PARTIAL)
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.name not in ours]
    names = [path.relative_to(checkpoint).as_posix() for path in files]
    with ThreadPoolExecutor() as pool:
        hashes = dict(sorted(zip(names, pool.map(manifest.read_sha256, files), strict=True)))
    manifest.write_json(checkpoint / SEAL, {"run": read_run(checkpoint.parent), "files": hashes})


def unseal(checkpoint: Path) -> None:
    """Take the mark of a complete checkpoint away; its other files stay.

    A run that goes on from an earlier one writes it again, and is not to find it until then.
    """
    (checkpoint / SEAL).unlink(missing_ok=True)


def read_seal(checkpoint: Path) -> dict[str, Any]:
    """`files.json`: {"run": ..., "files": {name: sha256}}; {} where it is missing or damaged."""
    try:
        found = json_files.read(checkpoint / SEAL, SEAL_SHAPE, "")
    except (FileNotFoundError, ValueError):  # other errors say nothing about the checkpoint
        return {}
    is_damaged = found["run"] and json_files.mismatch(found["run"], RUN_SHAPE)
    return {} if is_damaged else found


def sealed(folder: Path, before: float = math.inf) -> Iterator[Path]:
    """The checkpoints below a step that were saved to their end, the newest first."""
    for step, path in sorted(removal.checkpoints(folder).items(), reverse=True):
        if step < before and (path / SEAL).exists() and (path / STATE).exists():
            yield path


def last_checkpoint(folder: Path, before: float = math.inf) -> Path | None:
    """The newest checkpoint below a step that was saved to its end."""
    return next(sealed(folder, before), None)


def last_whole(folder: Path, run: Mapping[str, Any]) -> Path | None:
    """The newest undamaged checkpoint of a run; those behind it get another name, with a line."""
    for path in sealed(folder):
        fault = damage(path)
        made_by = read_seal(path).get("run")
        if not fault and made_by and (other := difference(made_by, run)):
            fault = f"is another run's ({other})"
        if not fault:
            return path
        removal.set_aside(path, removal.DAMAGED, f"{fault}; the checkpoint before is taken")
    return None


def damage(checkpoint: Path) -> str:
    """What is not as it was saved; without `files.json`, as far as the files' formats tell."""
    if not (checkpoint / SEAL).exists():
        files = (path for path in sorted(checkpoint.rglob("*")) if not reads(path))
        return next((f"{path.relative_to(checkpoint)} is damaged" for path in files), "")
    known = read_seal(checkpoint).get("files", {SEAL: ""})
    for name, digest in known.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        if manifest.read_sha256(file) != digest:
            return f"{name} is damaged"
    try:
        step = json_files.read(checkpoint / STATE, {"global_step": int}, "")["global_step"]
    except (FileNotFoundError, ValueError):
        return f"{STATE} is damaged"
    is_renamed = removal.CHECKPOINT.fullmatch(checkpoint.name) and step != step_of(checkpoint)
    return f"is of step {step}" if is_renamed else ""


def step_of(checkpoint: Path) -> int:
    """The step in a checkpoint's name."""
    return int(checkpoint.name.rpartition("-")[2])


def rotate(folder: Path, limit: int | None) -> None:
    """Remove the oldest checkpoints of a folder's run, so that `limit` of them stay.

    Other checkpoints do not count. Files in a checkpoint that the run did not write stay there.
    """
    if not limit or limit < 0:
        return
    run, found = read_run(folder), removal.checkpoints(folder)
    seals = {found[step]: read_seal(found[step]) for step in sorted(found)}
    own = [path for path in seals if is_made_by(seals[path].get("run"), run)]
    for checkpoint in own[:-limit]:
        names = [name for name in seals[checkpoint]["files"] if name != STATE]
        # A kill on the way leaves no checkpoint that looks whole, but one to be removed.
        removal.remove_files(checkpoint, [STATE, *names])
        removal.remove_files(checkpoint, [SEAL])


def is_made_by(made: Mapping[str, Any] | None, run: Mapping[str, Any]) -> bool:
    """Whether the run of a checkpoint is this one; one of a script has none, {}."""
    return made == run or bool(made and run and not difference(made, run))


def read_run(folder: Path) -> dict[str, Any]:
    """A folder's `run.json`: config, inputs, num_processes, engine; {} where there is none."""
    try:
        return json_files.read(folder / RUN_FILE, RUN_SHAPE, "")
    except (FileNotFoundError, NotADirectoryError):  # other errors say nothing about the run
        return {}
    except ValueError:  # damaged; its checkpoints have copies
        newest = last_checkpoint(folder)
        return read_seal(newest).get("run", {}) if newest else {}


def rows_of(run: Mapping[str, Any]) -> dict[str, int]:
    """Rows that one optimizer step, and in GRPO one generation batch, take from all processes."""
    config = run["config"]
    per_device = config.get("per_device_train_batch_size", 1) * run["num_processes"]
    rows = {"step": per_device * config.get("gradient_accumulation_steps", 1)}
    if steps := config.get("steps_per_generation"):
        rows["generation batch"] = per_device * steps
    return rows


def difference(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    left_out: Iterable[str] = manifest.NOT_COMPARED,
) -> str:
    """`manifest.difference` of two runs; other processes may share the same rows out differently.

    An `old` without a configuration is not a run.
    """
    if old.get("num_processes", new["num_processes"]) != new["num_processes"]:
        is_shared_out = rows_of(old) == rows_of(new)
        left_out = {*left_out, *(BATCH_KEYS if is_shared_out else ["generation_batch_size"])}
    return manifest.difference(old, new, left_out)


def missing_state(checkpoint: Path) -> str:
    """The state without which a resumed run would silently start its schedule or Adam again."""
    if any(checkpoint.glob("global_step*")):  # DeepSpeed's, with the schedule if that is its own
        return ""
    if not any(checkpoint.glob("optimizer*")):
        return "optimizer.pt"
    return "" if (checkpoint / "scheduler.pt").is_file() else "scheduler.pt"


def lost_states(checkpoint: Path, where: str) -> str:
    """Why a checkpoint cannot be resumed from, as an error's line; empty where it has all states.

    Args:
        where: the key or folder that led to the checkpoint, for the message.
    """
    missing = missing_state(checkpoint)
    if not missing:
        return ""
    is_asked = read_run(checkpoint.parent).get("config", {}).get("save_only_model")
    why = "save_only_model: true" if is_asked else f"it has no {missing}"
    return (
        f"{where}: {checkpoint} cannot be resumed from: {why}; FORCE=1 trains from scratch and "
        f"keeps it, model_name_or_path: {checkpoint} begins with its weights"
    )


def describe_newest(place: Path, run: Mapping[str, Any]) -> str:
    """What the newest of a place's runs has, and the first key that differs; "" if it is empty."""
    for other in reversed(runs_of(place)):
        checkpoint = last_checkpoint(other)
        if checkpoint or manifest.read(other):
            what = checkpoint.name if checkpoint and not manifest.read(other) else "a finished run"
            why = difference(read_run(other), run) or "and FORCE=1 asks for one from scratch"
            return f"{other} has {what} of another configuration ({why}); starting a new run"
    return ""


def check_resume(checkpoint: Path, run: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that this launch, of which `run` is the `run.json`, cannot resume from.

    Data parallel and FSDP have complete checkpoints, so the number of processes may change. A step
    (and a generation batch) must take as many rows as before, or the Trainer silently skips the
    wrong rows. DeepSpeed loads the optimizer only with the same processes and stage. Without
    DeepSpeed the Trainer would silently start with an empty optimizer.
    """
    old = read_seal(checkpoint).get("run") or read_run(checkpoint.parent)
    fault = damage(checkpoint)
    if fault:
        raise UserError(f"resume_from_checkpoint: {checkpoint}: {fault}; take an earlier one")
    if fault := lost_states(checkpoint, "resume_from_checkpoint"):
        raise UserError(fault)
    if not old:
        return
    made = f"{checkpoint}: was made with"
    remedy = "launch as before, or start a new run in another folder"
    number, engine = run["num_processes"], run["engine"]
    if old.get("engine", engine) != engine:
        raise UserError(f"{made} {old['engine']}, this launch has {engine}; {remedy}")
    other = difference(old, run)
    if other:
        raise UserError(
            f"{made} {other}; {remedy} (model_name_or_path: {checkpoint} takes its weights alone)"
        )
    if old["num_processes"] == number:
        return
    made = f"{made} {old['num_processes']} processes and"
    if engine not in (DATA_PARALLEL, FSDP):
        raise UserError(
            f"{made} {engine}, which needs as many to load it; this launch has {number}; {remedy}"
        )
    rows = rows_of(run)
    for unit, count in rows_of(old).items():
        if rows.get(unit) != count:
            raise UserError(
                f"{made} {count} rows a {unit}, this launch has {number} and {rows.get(unit)}; "
                "change per_device_train_batch_size or gradient_accumulation_steps so that they "
                f"are {count} again, or {remedy}"
            )
