"""A training run on disk: its folder, the checkpoint it resumes from, and superseded runs.

    sft/        the run that later stages read; the first one trains here
    sft.next/   a run of another configuration, until it has finished and takes that place
    sft.1/ ...  superseded runs: never removed, but without their optimizer's states

A checkpoint that cannot be used is set aside, with all that is in it (stages/run/removal.py).

A checkpoint is complete when `files.json` is there, written last (stages/run/saving.py). It has
the hash of each file and the `run.json` that the checkpoint belongs to. The next start finds a
checkpoint that was changed since, and resumes from the one before (docs/reliability.md).
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import json_files, manifest
from pipeline.errors import UserError
from pipeline.folders import next_of, without_next
from pipeline.models.checkpoints import reads
from stages.run import removal
from stages.run.launch import BATCH_KEYS, DATA_PARALLEL, FSDP

RUN_FILE = "run.json"  # what the checkpoints in a folder were made from, and by
SEAL, STATE = "files.json", "trainer_state.json"
EIGHT_BIT = 1 + 4 / 256  # bytes of a state: 8 bits, and an fp32 scale for each block of 256
# What GRPO reads of its own run: the best model, with its names while another takes its place, and
# what the guards did.
OF_ONE_START = ("best", "best.partial", "best.replaced", "events.jsonl")
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
STATE_SHAPE = {"global_step": int, "log_history?": [{"step": int}]}
# Of a superseded run's checkpoints, as torch, FSDP and DeepSpeed name them.
OPTIMIZER_FILES = (
    *("optimizer*", "scheduler.pt", "scaler.pt", "rng_state*"),
    "global_step*optim_states*",  # the weights are beside them
)


class Start(NamedTuple):
    """Where a run trains (`work`, and at its end `folder`), what it resumes from, and since when.

    Without `work` there is nothing to do: the folder has the result.
    """

    folder: str
    work: str | None
    checkpoint: str | None = None
    started: float = 0.0


def choose(folder: Path, run: dict[str, Any]) -> Start:
    """Find where a run (its `run.json`) trains; moves folders, so call it from one process only."""
    folder = behind_link(folder)
    following = next_of(folder)
    for one in (folder, following):  # never move or remove what is not ours
        files = [*one.iterdir()] if one.exists() else []
        files = [file for file in files if file.suffix != manifest.PARTIAL]  # left by a kill
        if files and not (one / RUN_FILE).is_file():
            raise UserError(
                f"output_dir: {one} holds files that no training stage wrote; choose another"
            )
    for old in (folder, following, *superseded(folder)):
        if difference(read_run(old), run):
            continue
        is_finished = (old / manifest.NAME).exists() and not manifest.is_damaged(old)
        if is_finished and not manifest.is_forced():
            put_in_place(old, folder)
            manifest.note_current(folder)
            return Start(str(folder), None)
        is_superseded = old not in (folder, following)
        checkpoint = resumable(old, run, may_skip=is_superseded or manifest.is_forced())
        if checkpoint is None:
            continue
        if is_superseded:
            make_room(following)
            old.rename(following)
            old = following
        return Start(str(folder), str(old), str(old / checkpoint.name))
    for place in (folder, following):
        if is_free(place, run):
            return Start(str(folder), str(place))
    make_room(following)
    return Start(str(folder), str(following))


def resumable(old: Path, run: Mapping[str, Any], may_skip: bool) -> Path | None:
    """The checkpoint that a run resumes from in a folder of its own; None to leave the folder.

    Args:
        run: the `run.json` of the run; `old` has the same.
        may_skip: leave weights without an optimizer's state where they are, else refuse them.

    Raises:
        UserError: the newest checkpoint has weights alone.
    """
    is_finished = (old / manifest.NAME).exists()
    if is_finished and not manifest.is_damaged(old):  # FORCE=1 asks for another from scratch
        return None
    checkpoint = last_checkpoint(old, is_whole=lambda path: is_whole(path, run))
    if checkpoint is None or (may_skip and missing_state(checkpoint)):
        return None
    if fault := lost_states(checkpoint, str(old)):
        raise UserError(fault)
    return checkpoint


def behind_link(folder: Path) -> Path:
    """What a run's folder names if it is a link: other runs are beside that, on the same disk."""
    return folder.resolve() if folder.is_symlink() else folder


def is_free(folder: Path, run: Mapping[str, Any]) -> bool:
    """Whether a run can train in a folder from scratch: an earlier start of it, or just logs."""
    if not (folder / RUN_FILE).exists() or removal.remove_logs(folder):
        return True
    if (folder / manifest.NAME).exists() or difference(read_run(folder), run):
        return False
    if last_checkpoint(folder):  # weights alone
        return False
    for name in OF_ONE_START:
        if os.path.lexists(folder / name):
            why = "is of an earlier start, and this one begins from scratch"
            removal.set_aside(folder / name, removal.EARLIER, why)
    return True


def superseded(folder: Path) -> list[Path]:
    """The runs that others have taken the place of, the oldest first."""
    beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
    found = {
        int(path.suffix[1:]): path
        for path in beside
        if path.stem == folder.name and path.suffix[1:].isdecimal() and (path / RUN_FILE).is_file()
    }
    return [found[number] for number in sorted(found)]


def make_room(folder: Path) -> Path | None:
    """Give a run's folder the next number, or remove one that has just logs; its new place."""
    if not os.path.lexists(folder) or removal.remove_logs(folder):
        return None
    place = without_next(folder)
    number = max((int(path.suffix[1:]) for path in superseded(place)), default=0) + 1
    while os.path.lexists(numbered := place.with_name(f"{place.name}.{number}")):
        number += 1
    return folder.rename(numbered)


def put_in_place(work: Path, folder: Path) -> None:
    """Let a finished run take the place of the one before, which loses its optimizer's states."""
    if work == folder:
        return
    old = make_room(folder)
    work.rename(folder)
    if old and (old / manifest.NAME).exists():
        for checkpoint in written_checkpoints(old):
            names = sealed(checkpoint)["files"]
            found = [name for name in names if any(fnmatch(name, kind) for kind in OPTIMIZER_FILES)]
            removal.remove_files(checkpoint, found)


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


def describe_kept(folder: str | Path) -> list[str]:
    """Lines on the superseded runs, and on what was set aside, with the command that frees them."""
    place = without_next(behind_link(Path(folder)))
    aside = [*removal.listed_aside(place), *removal.listed_aside(next_of(place))]
    found = {"superseded runs": superseded(place), "set aside": aside}
    lines = (removal.describe(what, places) for what, places in found.items())
    return [line for line in lines if line]


def seal(checkpoint: Path) -> None:
    """Write `files.json`, when every process has written its part."""
    # A kill while this was written leaves `files.json.partial`, which is written again.
    ours = (SEAL, SEAL + manifest.PARTIAL)
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.name not in ours]
    names = [path.relative_to(checkpoint).as_posix() for path in files]
    with ThreadPoolExecutor() as pool:
        hashes = dict(sorted(zip(names, pool.map(manifest.sha256, files), strict=True)))
    manifest.write_json(checkpoint / SEAL, {"run": read_run(checkpoint.parent), "files": hashes})


def unseal(checkpoint: Path) -> None:
    """Take the mark of a complete checkpoint away; its other files stay.

    A run that goes on from an earlier one writes it again, and is not to find it until then.
    """
    (checkpoint / SEAL).unlink(missing_ok=True)


def written_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that a folder's own run has written and finished, the oldest first."""
    run, found = read_run(folder), removal.checkpoints(folder)
    made_by = {step: sealed(path).get("run") for step, path in found.items()}
    return [
        found[step]
        for step, made in sorted(made_by.items())
        if made == run or (made and run and not difference(made, run))
    ]


def rotate(folder: Path, limit: int | None) -> None:
    """Remove the oldest checkpoints of a folder's run, so that `limit` of them stay.

    Other checkpoints do not count. Files in a checkpoint that the run did not write stay there.
    """
    if not limit or limit < 0:
        return
    found = written_checkpoints(folder)
    for checkpoint in found[:-limit]:
        names = [name for name in sealed(checkpoint)["files"] if name != STATE]
        # A kill on the way leaves no checkpoint that looks whole, but one to be removed.
        removal.remove_files(checkpoint, [STATE, *names])
        removal.remove_files(checkpoint, [SEAL])


def step_of(checkpoint: Path) -> int:
    """The step of a checkpoint's `trainer_state.json`, whatever its folder is called."""
    return int(json_files.read(checkpoint / STATE, STATE_SHAPE, "")["global_step"])


def is_whole(checkpoint: Path, run: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is undamaged and of this run; any other is set aside, with a line."""
    fault, made_by = damage(checkpoint), sealed(checkpoint).get("run")
    if not fault and not has_state(checkpoint):
        fault = f"{STATE} is damaged"
    if not fault and (step := step_of(checkpoint)) != int(checkpoint.name.rpartition("-")[2]):
        fault = f"it is of step {step}: rename it to checkpoint-{step}"
    other = difference(made_by, run) if made_by else ""
    if not fault and not other:
        return True
    why = fault or f"belongs to another run ({other})"
    removal.set_aside(checkpoint, removal.DAMAGED if fault else removal.FOREIGN, why)
    return False


def damage(checkpoint: Path) -> str:
    """What is not as it was saved; without `files.json`, as far as the files' formats tell."""
    if not (checkpoint / SEAL).exists():
        files = (path for path in sorted(checkpoint.rglob("*")) if not reads(path))
        return next((f"{path.relative_to(checkpoint)} is damaged" for path in files), "")
    for name, known in sealed(checkpoint).get("files", {}).items():
        file = checkpoint / name
        if not manifest.is_as(file, known):
            return f"{name} is {'damaged' if file.is_file() else 'missing'}"
    return ""


def sealed(checkpoint: Path) -> dict[str, Any]:
    """`files.json`: {"run": ..., "files": {name: sha256}}; one that cannot be read names itself."""
    try:
        found = json_files.read(checkpoint / SEAL, SEAL_SHAPE, "")
    except FileNotFoundError:  # of an earlier version
        return {}
    except ValueError:
        return {"files": {SEAL: ""}}
    is_damaged = found["run"] and json_files.mismatch(found["run"], RUN_SHAPE)
    return {"files": {SEAL: ""}} if is_damaged else found


def has_state(checkpoint: Path) -> bool:
    """Whether a checkpoint's `trainer_state.json` can be read."""
    # Other errors of the system are raised: they say nothing about the checkpoint.
    with contextlib.suppress(FileNotFoundError, ValueError):
        json_files.read(checkpoint / STATE, STATE_SHAPE, "")
        return True
    return False


def last_checkpoint(
    folder: Path, before: float = math.inf, is_whole: Callable[[Path], bool] = has_state
) -> Path | None:
    """The newest whole checkpoint below a step: one with hashes and a `trainer_state.json`."""
    for step, path in sorted(removal.checkpoints(folder).items(), reverse=True):
        is_complete = (path / SEAL).exists() and (path / STATE).exists()
        if step < before and is_complete and is_whole(path):
            return path
    return None


def read_run(folder: Path) -> dict[str, Any]:
    """A folder's `run.json`: config, inputs, num_processes, engine; {} where there is none."""
    try:
        return json_files.read(folder / RUN_FILE, RUN_SHAPE, "")
    except (FileNotFoundError, NotADirectoryError):  # other errors say nothing about the run
        return {}
    except ValueError:  # damaged; its checkpoints have copies
        newest = last_checkpoint(folder)
        return sealed(newest).get("run", {}) if newest else {}


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
    defaults: Mapping[str, Any] | None = None,
    left_out: Iterable[str] = manifest.NOT_COMPARED,
) -> str:
    """`manifest.difference` of two runs; other processes may share the same rows out differently.

    An `old` without a configuration is not a run.
    """
    is_shared_out = "config" in old and old["num_processes"] != new["num_processes"]
    if is_shared_out and rows_of(old) == rows_of(new):
        left_out = {*left_out, *BATCH_KEYS}
    return manifest.difference(old, new, defaults, left_out)


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


def describe_restart(folder: Path, run: Mapping[str, Any]) -> str:
    """One line where this run was started before and has left no checkpoint; empty elsewhere."""
    for one in (folder, next_of(folder)):
        is_same = not difference(read_run(one), run) and not (one / manifest.NAME).exists()
        if is_same and last_checkpoint(one) is None:
            return f"{one}: was ended before its first checkpoint; starting from scratch"
    return ""


def describe_others(folder: Path, run: Mapping[str, Any]) -> list[str]:
    """What was trained in a run's places by other runs, each with the first key that differs."""
    found = []
    for one in (folder, folder.with_name(f"{folder.name}.next")):
        old, checkpoint = read_run(one), last_checkpoint(one)
        is_finished = (one / manifest.NAME).exists()
        if old and (is_finished or checkpoint) and (why := difference(old, run)):
            what = "a finished run" if is_finished or checkpoint is None else checkpoint.name
            found.append(f"{one} has {what} of another configuration ({why})")
    return found


def check_resume(checkpoint: Path, run: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that this launch, of which `run` is the `run.json`, cannot resume from.

    Data parallel and FSDP have complete checkpoints, so the number of processes may change. A step
    (and a generation batch) must take as many rows as before, or the Trainer silently skips the
    wrong rows. DeepSpeed loads the optimizer only with the same processes and stage. Without
    DeepSpeed the Trainer would silently start with an empty optimizer.
    """
    old = sealed(checkpoint).get("run") or read_run(checkpoint.parent)
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
