"""A launch does not start again for the error that it has just met, unless it got further."""

import json

import pytest

from pipeline.launched import in_launch, note_for_launcher
from stages.run.restarts import cause, errors_of, same_error
from tests.tables import tables_beside

table = tables_beside(__file__)

torch_errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")


def failure(code, rank=0, **facts):
    """Torch elastic's own record of a process that has failed."""
    found = torch_errors.ProcessFailure(rank, 1, code, "none")
    found.error_file_data = facts
    return found


@table
def test_which_errors_count(code, facts, is_oom_kill, expected):
    expected, failures = {*expected}, [failure(code, **facts), failure(75, rank=1)]
    assert errors_of(failures, is_oom_kill) == expected
    assert same_error(expected, failures, is_oom_kill) == expected
    assert same_error({"another"}, failures, is_oom_kill) == set()
    further = failure(code, **facts, checkpoint="run/checkpoint-8")
    assert same_error(expected, [further], is_oom_kill) == set()


def test_a_process_leaves_its_facts_for_torch_elastic(tmp_path, monkeypatch):
    file = tmp_path / "error.json"
    note_for_launcher(checkpoint="nowhere")  # without a launcher
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    note_for_launcher(checkpoint="run/checkpoint-8")

    def fail():
        raise ValueError("17 is odd")

    with pytest.raises(ValueError, match="17 is odd"):
        in_launch(fail)()
    read = torch_errors.ProcessFailure(0, 1, 1, str(file))
    assert read.error_file_data["checkpoint"] == "run/checkpoint-8"
    (error,) = errors_of([read], is_oom_kill=False)
    assert "ValueError" in error and "test_restarts.py" in error and "17" not in error
    assert json.loads(file.read_text())["timestamp"] == read.timestamp > 0


@table
def test_the_cause_is_no_process_that_ended_for_another(codes, rank):
    failures = {n: failure(code, rank=n) for n, code in enumerate(codes)}
    for n, found in failures.items():
        found.timestamp = n  # the times of checkpoints would name rank 0
    assert cause(failures) == (rank, failures[rank])
