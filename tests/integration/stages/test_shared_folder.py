"""Hosts that do not share the run's folder, its inputs or its checkpoint are refused by name."""

import pytest

pytestmark = pytest.mark.integration
SOURCE = """
import os, sys
from torch import distributed
from data_prep.config import UserError
from stages import launch
from data_prep.quiet import quiet
quiet()
launch.VISIBLE_SECONDS = 0.5
rank = int(os.environ["RANK"])
os.environ |= {"GROUP_WORLD_SIZE": "2", "GROUP_RANK": str(rank)}
distributed.init_process_group("gloo")
shared, own = sys.argv[1], sys.argv[2 + rank]
for folder, checkpoint, digest in (
    (shared, None, "1"), (own, None, "1"), (shared, f"checkpoint-{rank}", "1"), (shared, None, rank)
):
    try:
        launch.check_shared(folder, checkpoint, {"a.jsonl": digest})
        print("FOUND shared", os.listdir(folder))
    except UserError as error:
        print("FOUND", error)
distributed.destroy_process_group()
"""


def test_two_processes(run_two_processes, tmp_path):
    folders = [tmp_path / name for name in ("shared", "own-0", "own-1")]
    for folder in folders:
        folder.mkdir()
    for lines in run_two_processes(SOURCE, *folders):
        shared, *faults = [line[6:] for line in lines if line.startswith("FOUND")]
        assert shared.startswith("shared [")
        for fault, key in zip(faults, ("output_dir", "checkpoint", "a.jsonl"), strict=True):
            assert fault.startswith(f"{key}: ") and "all hosts must share" in fault
            assert " on host 0 (" in fault and " on host 1 (" in fault
    assert list(folders[0].iterdir()) == []  # no mark is left
