"""Hosts that do not share the run's folder, its inputs or its checkpoint are refused by name."""

import pytest

pytestmark = pytest.mark.integration


def view(host=0, **changes):
    seen = {"host": f"host {host} (node{host})", "sees_folder": True}
    return (
        seen | {"checkpoint": "runs/x/checkpoint-4", "inputs": {"a.jsonl": "1", "b": "2"}} | changes
    )


FAULTS = {  # what the other host sees, and how the refusal begins
    "same": ({}, ""),
    "disk of its own": ({"sees_folder": False}, "output_dir: runs/x of host 0 (node0) is not the"),
    "other data": ({"inputs": {"a.jsonl": "1", "b": "3"}}, "b: not the same on host 0 (node0) and"),
    "no data": ({"inputs": {"b": "2"}}, "a.jsonl: not the same on host 0 (node0) and host 1"),
    "other command": ({"checkpoint": None}, "output_dir: host 0 (node0) resumes from runs/x/check"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    from stages.launch import find_fault

    changes, fault = FAULTS[name]
    found = find_fault("runs/x", [view(0), view(0), view(1, **changes)]) or ""
    assert found.startswith(fault) and bool(found) is bool(fault)


SOURCE = """
import os, sys
from torch import distributed
from data_prep.config import UserError
from stages import host_loss, launch
from data_prep.quiet import quiet
quiet()
launch.VISIBLE_SECONDS = 0.5
rank = int(os.environ["RANK"])
os.environ |= {"GROUP_WORLD_SIZE": "2", "GROUP_RANK": str(rank)}
distributed.init_process_group("gloo")
shared, own = sys.argv[1], sys.argv[2 + rank]
for folder in (shared, own):
    try:
        launch.check_shared(folder, None, {"a.jsonl": "1"})
        print("shared", host_loss.find_checkpoint(), os.listdir(folder))
    except UserError as error:
        print(error)
distributed.destroy_process_group()
"""


def test_two_processes(run_two_processes, tmp_path):
    folders = [tmp_path / name for name in ("shared", "own-0", "own-1")]
    for folder in folders:
        folder.mkdir()
    checkpoint = folders[0] / "checkpoint-3"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text("{}")
    for lines in run_two_processes(SOURCE, *folders):
        shared, own = [line for line in lines if line.startswith(("shared", "output_dir"))]
        assert shared.startswith(f"shared {checkpoint} [")
        assert "is not the folder of that name on host 1 (" in own
    assert [path.name for path in folders[0].iterdir()] == ["checkpoint-3"]  # no mark is left
