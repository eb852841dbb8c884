"""Hosts that do not share the run's folder, its inputs or its command are refused by name."""

import os
import sys
from pathlib import Path

import pytest

from tests.integration.trainer.runs import tell

pytestmark = pytest.mark.integration


def prepare_runs(folder):
    """The whole of a process: it prepares runs in which the other host sees something else."""
    from pipeline import folders as places
    from pipeline.errors import UserError
    from stages.run import training

    training.VISIBLE_SECONDS = 0.5
    rank = int(os.environ["RANK"])
    os.environ["GROUP_RANK"] = str(rank)
    file = training.RUN_FILE
    cases = (file, 0, "1"), (f"{rank}.json", 0, "1"), (file, rank, "1"), (file, 0, str(rank))
    for number, (seen, beta, digest) in enumerate(cases):
        work = Path(folder, str(number))
        places.RUN_FILE = training.RUN_FILE = seen
        values = {"use_cpu": True, "beta": beta, "output_dir": f"own-{rank}"}
        try:
            start = training.prepare("sft", str(work), values, {"a.jsonl": digest})
            tell("FOUND shared", start.folder == str(work))
        except UserError as error:
            tell("FOUND", error)
    sys.exit()


def test_two_processes(fork_server, tmp_path):
    setup = (prepare_runs, str(tmp_path))
    for lines in fork_server.finish(tmp_path / "process", 2, setup=setup):
        shared, *faults = [line[6:] for line in lines if line.startswith("FOUND")]
        assert shared == "shared True"
        for fault, key in zip(faults, ("output_dir", "beta", "a.jsonl"), strict=True):
            assert fault.startswith(f"{key}: ") and "all hosts must share" in fault
            assert "(host 0 (" in fault and " and host 1 (" in fault
