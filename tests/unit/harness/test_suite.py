"""The benchmark suite as data: which tasks there are, and that their files say what they must."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from data_prep.config import UserError
from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.sources.builders import BUILDERS
from eval.harness.score import SOURCES
from eval.harness.suite import (
    FOLDER,
    HARNESS_FOLDERS,
    OFFICIAL_TASKS,
    THINK_TASKS,
    check_tasks,
    read_metadata,
    read_official_metadata,
)

HARNESS = Path(importlib.util.find_spec("lm_eval").origin).parent / "tasks"


def read(name):
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("!function ", ""))


def test_the_tasks_by_name():
    assert THINK_TASKS == [
        "aime24", "aime25", "arc_challenge", "gpqa_diamond", "gsm8k", "held_out", "math500",
    ]  # fmt: skip
    assert OFFICIAL_TASKS == ["arc_challenge", "gpqa_diamond", "gsm8k", "math500"]
    assert set(OFFICIAL_TASKS) <= set(THINK_TASKS), "they stand beside one of ours"
    assert set(SOURCES) == set(OFFICIAL_TASKS)


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


@pytest.mark.parametrize("task", OFFICIAL_TASKS)
def test_an_official_task_overrides_shots_and_data_only(task):
    found = read(f"official_{task}")
    assert set(found) == {"group", "task"}
    assert found["group"] == f"official_{task}"
    known = {path.stem for name in HARNESS_FOLDERS for path in (HARNESS / name).rglob("*.yaml")}
    allowed = {"task", "custom_dataset", "metadata", "num_fewshot"}
    if task == "gpqa_diamond":
        allowed.add("process_docs")  # its shuffle, seeded
    if task == "math500":
        allowed.add("fewshot_split")  # where the harness names none
    for one in found["task"]:
        assert one["task"] in known
        assert set(one) <= allowed
        assert one["custom_dataset"] == "eval.harness.datasets.load_official"
    for metadata in read_official_metadata(task).values():
        assert metadata["benchmark"] == task
        assert metadata["hub"] == read_metadata(task)["hub"]
        assert metadata.get("config") == read_metadata(task).get("config")
        assert metadata["main"].count(",") == 1
        assert all(metadata["files"].values())


def test_the_common_part_pins_what_a_checkpoint_or_the_harness_would_decide():
    common = read("think_common")
    assert "task" not in common
    assert common["num_fewshot"] == 0
    assert common["filter_list"] == [{"name": "none", "filter": []}]
    assert common["generation_kwargs"] == {"until": [], "rendered": True, "do_sample": False}


def test_check_tasks():
    check_tasks("tasks", ["b", "a"], ["a", "b"])
    check_tasks("tasks", [], ["a"])
    with pytest.raises(UserError, match="^tasks: must be of a, b"):
        check_tasks("tasks", ["a", "c"], ["a", "b"])
    with pytest.raises(UserError, match="official: 'a' occurs twice; remove one"):
        check_tasks("official", ["a", "b", "a"], ["a", "b"])
