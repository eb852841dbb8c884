"""Refuses, before training, hosts that do not share the run's folder or do not do the same.

The main process alone writes a stage's folder; the others read checkpoints from it. On hosts with
disks of their own the first resume would go on from a checkpoint on one host and from the start on
the others. On one host there is nothing to check.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import distributed

from data_prep.config import UserError
from stages.launching import host_loss
from stages.launching.resume_checks import last_checkpoint

VISIBLE_SECONDS = 60  # NFS may remember for a minute that a file was not there


def find_fault(folder: str, views: Sequence[dict[str, Any]]) -> str | None:
    """The first thing in which the processes' views differ, as a line for the user; None: nothing.

    Args:
        views: one per rank, of `{"host", "sees_folder", "checkpoint", "inputs"}`.
    """
    main = views[0]
    for view in views:
        if not view["sees_folder"]:
            return (
                f"output_dir: {folder} of {main['host']} is not the folder of that name on "
                f"{view['host']}; all hosts must share it: put the run (--run_dir) on a file "
                "system that every host mounts at the same path"
            )
        for path, digest in main["inputs"].items():
            if view["inputs"].get(path) != digest:
                return (
                    f"{path}: not the same on {main['host']} and {view['host']}; copy or share it"
                )
        if view["checkpoint"] != main["checkpoint"]:
            return (
                f"output_dir: {main['host']} resumes from {main['checkpoint'] or 'the start'}, "
                f"{view['host']} from {view['checkpoint'] or 'the start'}; give every host the "
                "same command"
            )
    return None


def is_visible(path: Path, seconds: float) -> bool:
    """Whether a file is there, now or within some seconds."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def check(folder: str, checkpoint: str | None, inputs: dict[str, str]) -> None:
    """Compare all processes' views of the run's folder; call it after `run.prepare`.

    Args:
        checkpoint: what this process resumes from; inputs: `{path: sha256}` of what it reads.

    Raises:
        UserError: on every process alike, if one of them differs.
    """
    if int(os.environ.get("GROUP_WORLD_SIZE", "1")) < 2:
        return
    host_loss.find_checkpoint = lambda: last_checkpoint(Path(folder))
    rank = distributed.get_rank()
    names = [f".shared-{secrets.token_hex(8)}"]
    distributed.broadcast_object_list(names, src=0)
    mark = Path(folder) / names[0]
    if rank == 0:
        mark.touch()
    distributed.barrier()
    view = {
        "host": f"host {os.environ['GROUP_RANK']} ({socket.gethostname()})",
        "sees_folder": is_visible(mark, VISIBLE_SECONDS),
        "checkpoint": checkpoint,
        "inputs": inputs,
    }
    views: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(views, view)
    if rank == 0:
        with contextlib.suppress(OSError):
            mark.unlink()
    if fault := find_fault(folder, views):
        raise UserError(fault)
