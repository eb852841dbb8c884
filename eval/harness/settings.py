"""The one set of settings that evaluation and report share: `configs/<recipe>/eval.yaml`.

Nothing heavy is imported here: `check_inputs` runs before torch, so that a missing checkpoint or
test file costs a second and not a minute.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.checkpoints import check_checkpoint, is_hub_id
from data_prep.config import UserError
from data_prep.prompts import ANSWER_FORMS, SYSTEM_PROMPTS
from data_prep.sampling import SamplingArguments
from eval.harness.suite import OFFICIAL_TASKS, THINK_TASKS, check_tasks


@dataclass(kw_only=True)
class EvalArguments(SamplingArguments):
    """Settings of `eval.run`, `eval.audit` and `eval.report`; the same for every checkpoint."""

    checkpoints: list[str] = field(
        metadata={"help": "name=path (or name=owner/model on the hub), in the order of the stages"}
    )
    output_dir: str = field(metadata={"help": "one sub-folder per checkpoint is written here"})
    report_dir: str = field(metadata={"help": "where eval.report writes"})
    title: str = field(default="SFT, then GRPO", metadata={"help": "heading of the report"})
    tasks: list[str] = field(
        default_factory=lambda: ["held_out"],
        metadata={"help": f"think-aware tasks: {', '.join(THINK_TASKS)}"},
    )
    official: list[str] = field(
        default_factory=list,
        metadata={"help": f"the harness's own tasks on the same: {', '.join(OFFICIAL_TASKS)}"},
    )
    official_chat_template: bool = field(
        default=False, metadata={"help": "put the official tasks' prompts through the template"}
    )
    test_file: str | None = field(
        default=None,
        metadata={"help": "problems of held_out: JSON lines, the shape of GRPO rows"},
    )
    data_root: str | None = field(
        default=None, metadata={"help": "folder of the other tasks' local files; else the hub"}
    )
    system_prompt: str = field(
        default="none",
        metadata={"help": f"of all tasks but held_out: {', '.join(SYSTEM_PROMPTS)}"},
    )
    answer_form: str | None = field(
        default=None,
        metadata={
            "help": f"of the same: {' or '.join(ANSWER_FORMS)}; unset: what their system prompt "
            "asks for"
        },
    )
    num_samples: int = field(default=4, metadata={"help": "k of avg@k: samples per problem"})
    temperature: float = field(default=0.7, metadata={"help": "of the samples"})
    top_p: float = field(default=0.95, metadata={"help": "of the samples"})
    limit: int | None = field(
        default=None, metadata={"help": "only the first so many problems of each task"}
    )

    def __post_init__(self):
        split_checkpoints(self.checkpoints)
        super().__post_init__()
        self.check_one_of("system_prompt", tuple(SYSTEM_PROMPTS))
        if self.answer_form is not None:
            self.check_one_of("answer_form", ANSWER_FORMS)
        check_tasks("tasks", self.tasks, THINK_TASKS)
        check_tasks("official", self.official, OFFICIAL_TASKS)
        if not self.tasks and not self.official:
            raise UserError("tasks: [] is empty, and so is official; list at least one task")
        if "held_out" in self.tasks and not self.test_file:
            raise UserError("test_file: missing; the task held_out reads it")
        if self.backend == "vllm" and {"arc_challenge", "gpqa_diamond"}.intersection(self.official):
            raise UserError(
                "backend: vllm gives no log-likelihoods, which official arc_challenge and "
                "gpqa_diamond need; set backend: hf"
            )
        if self.official_chat_template and not self.official:
            raise UserError("official_chat_template: there is no official task; remove the key")


def split_checkpoints(entries: list[str]) -> dict[str, str]:
    """`["sft=runs/x/sft"]` as `{"sft": "runs/x/sft"}`; raises `UserError` on a bad entry."""
    checkpoints: dict[str, str] = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        is_name = re.fullmatch(r"\w[\w.-]*", name) and name != "manifest.json"
        if not equals or not path or not is_name:
            raise UserError(f"checkpoints: {entry!r} is not name=path, such as sft=runs/my-run/sft")
        if name in checkpoints:
            raise UserError(f"checkpoints: the name {name!r} occurs twice; results would collide")
        checkpoints[name] = path
    if not checkpoints:
        raise UserError("checkpoints: [] is empty; list at least one name=path")
    return checkpoints


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def check_data(values: dict[str, Any]) -> None:
    """Check that the tasks' local problems can be read, before anything heavy is imported.

    Args:
        values: YAML and command line merged, as `data_prep.config.parse` hands them over.

    Raises:
        UserError: naming the missing file and the remedy, or the first row that could not be
            scored.
    """
    from eval.harness.datasets import find_official, read_problem_rows
    from eval.harness.suite import read_metadata, read_official_metadata

    tasks, official = _list(values.get("tasks", ["held_out"])), _list(values.get("official"))
    check_tasks("tasks", tasks, THINK_TASKS)
    check_tasks("official", official, OFFICIAL_TASKS)
    root, test_file = values.get("data_root"), values.get("test_file")
    if root is not None and not Path(root).is_dir():
        raise UserError(f"data_root: {root} is not a folder; set it to the folder of the data")
    if "held_out" in tasks and test_file and not Path(test_file).is_file():
        raise UserError(f"test_file: {test_file} does not exist; `make data` builds it")
    for task in tasks:
        if root is not None or (task == "held_out" and test_file):
            read_problem_rows(
                **read_metadata(task), test_file=test_file, data_root=root, system_prompt="none"
            )
    if root is not None:
        for task in official:
            for metadata in read_official_metadata(task).values():
                find_official(metadata["hub"], metadata["files"], root)


def check_inputs(values: dict[str, Any]) -> None:
    """`check_data`, and that the local checkpoints exist; raises `UserError`."""
    check_data(values)
    checkpoints = split_checkpoints(_list(values["checkpoints"]))
    for name, path in checkpoints.items():
        check_checkpoint(path, f"checkpoints: {name}", Path(path).name)
    needs_hub = [t for t in _list(values.get("tasks")) if t != "held_out"] + _list(
        values.get("official")
    )
    if not any(map(is_hub_id, checkpoints.values())) and (values.get("data_root") or not needs_hub):
        # Read by huggingface_hub when it is imported, so it must be set before that.
        os.environ["HF_HUB_OFFLINE"] = "1"
