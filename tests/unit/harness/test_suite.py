"""The benchmark suite as data: which tasks there are, and that their files say what they must."""

import pytest
import yaml

from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.sources.registry import BUILDERS
from eval.harness.suite import (
    FOLDER,
    OFFICIAL_TASKS,
    THINK_TASKS,
    read_metadata,
)


def read(name):
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("!function ", ""))


def test_the_tasks_by_name():
    assert THINK_TASKS == [
        "aime24", "aime25", "arc_challenge", "gpqa_diamond", "gsm8k", "held_out", "math500",
    ]  # fmt: skip
    assert OFFICIAL_TASKS == ["arc_challenge", "gpqa_diamond", "gsm8k", "math500"]
    assert set(OFFICIAL_TASKS) <= set(THINK_TASKS), "they stand beside one of ours"


@pytest.mark.parametrize("task", THINK_TASKS)
def test_a_think_aware_task_says_where_its_problems_are_and_nothing_else(task):
    found = read(task)
    assert set(found) == {"include", "task", "metadata"}
    assert (found["include"], found["task"]) == ("think_common.yaml", f"{task}_think")
    metadata = read_metadata(task)
    if task == "held_out":
        assert metadata == found["metadata"] == {"source": "held_out"}
    else:
        assert found["metadata"] == {"benchmark": task} and metadata == BENCHMARKS[task]
        assert metadata["source"] in BUILDERS
        assert metadata["hub"] and metadata["split"] and metadata["files"]
