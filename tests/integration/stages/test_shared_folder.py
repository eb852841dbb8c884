"""Hosts that do not share the run's folder, its inputs or its command are refused by name."""

import pytest

pytestmark = pytest.mark.integration
SOURCE = """
import os, sys
from pathlib import Path
from pipeline.errors import UserError
from pipeline.console import quiet
quiet()
from stages import training
training.VISIBLE_SECONDS = 0.5
rank = int(os.environ["RANK"])
os.environ["GROUP_RANK"] = str(rank)
read = training.run_folder.RUN_FILE
cases = (read, 0, "1"), (f"{rank}.json", 0, "1"), (read, rank, "1"), (read, 0, rank)
for number, (seen, beta, digest) in enumerate(cases):
    work = Path(sys.argv[1], str(number))
    training.run_folder.RUN_FILE = seen
    values = {"use_cpu": True, "beta": beta, "output_dir": f"own-{rank}"}
    try:
        start = training.prepare("sft", str(work), values, {"a.jsonl": str(digest)})
        print("FOUND shared", start.work == str(work))
    except UserError as error:
        print("FOUND", error)
training.PartialState().destroy_process_group()
"""


def test_two_processes(run_two_processes, tmp_path):
    for lines in run_two_processes(SOURCE, tmp_path):
        shared, *faults = [line[6:] for line in lines if line.startswith("FOUND")]
        assert shared == "shared True"
        for fault, key in zip(faults, ("output_dir", "beta", "a.jsonl"), strict=True):
            assert fault.startswith(f"{key}: ") and "all hosts must share" in fault
            assert "(host 0 (" in fault and " and host 1 (" in fault
