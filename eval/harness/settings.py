"""The one set of settings that evaluation and report share: `configs/<recipe>/eval.yaml`.

`check_inputs` runs before torch is imported: a missing checkpoint or test file costs a second.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from data_prep.decontamination.benchmarks import find_benchmark
from data_prep.sampling import SamplingArguments
from eval.harness import suite
from eval.harness.suite import OFFICIAL_TASKS, OWN, THINK_TASKS
from pipeline.errors import UserError
from pipeline.models.checkpoints import check_checkpoint
from pipeline.models.hub import is_hub_id
from pipeline.prompts import ANSWER_FORMS, PROMPTS, AnswerForm, PromptName
from pipeline.settings import setting
from pipeline.values import Natural, OneOf


@dataclass(kw_only=True)
class EvalArguments(SamplingArguments):
    """Settings of `eval.run`, `eval.audit` and `eval.report`; the same for every checkpoint."""

    checkpoints: list[str] = field(
        metadata={"help": "name=path (or name=owner/model on the hub), in the order of the stages"}
    )
    only_checkpoints: list[str] = setting(
        [], "names of those to evaluate now; the others are left to a later evaluation"
    )
    output_dir: str = field(metadata={"help": "one sub-folder per checkpoint is written here"})
    report_dir: str = field(metadata={"help": "where eval.report writes"})
    samples_dir: str | None = setting(None, "where completions are kept; else beside the scores")
    title: str = setting("SFT, then GRPO", "heading of the report; {base}: first checkpoint")
    tasks: list[Annotated[str, OneOf(tuple(THINK_TASKS))]] = setting(
        ["held_out"], f"think-aware tasks: {', '.join(THINK_TASKS)}"
    )
    official: list[Annotated[str, OneOf(tuple(OFFICIAL_TASKS))]] = setting(
        [], f"the harness's own tasks on the same: {', '.join(OFFICIAL_TASKS)}"
    )
    test_file: str | None = setting(None, "problems of held_out, in the shape of GRPO rows")
    transfer_file: str | None = setting(None, "of transfer: problems unlike the trained ones")
    data_root: str | None = setting(None, "folder of the other tasks' local files; else the hub")
    prompt: PromptName = setting("none", f"of the other tasks: {', '.join(PROMPTS)}")
    answer_form: AnswerForm | None = setting(
        None, f"{' or '.join(ANSWER_FORMS)}; else the prompt's"
    )
    num_samples: Natural = setting(4, "samples of each problem, beside a greedy one; 0: that alone")
    temperature: float = setting(0.7, "of the samples")
    top_p: float = setting(0.95, "of the samples")

    def __post_init__(self):
        known = split_checkpoints(self.checkpoints)
        for name in self.only_checkpoints:
            if name not in known:
                raise UserError(f"only_checkpoints: {name!r} is none of {', '.join(known)}")
        for key in ("tasks", "official"):
            names = getattr(self, key)
            for name in names:
                if names.count(name) > 1:
                    raise UserError(f"{key}: {name!r} occurs twice; remove one")
        if not self.tasks and not self.official:
            raise UserError("tasks: [] is empty, and so is official; list at least one task")
        for task, key in OWN.items():
            if task in self.tasks and not getattr(self, key):
                raise UserError(f"{key}: missing; the task {task} reads it")

    def to_evaluate(self) -> dict[str, str]:
        """`{name: path}` of the checkpoints of this evaluation."""
        found = split_checkpoints(self.checkpoints)
        return {name: found[name] for name in found if name in (self.only_checkpoints or found)}

    def problem_keys(self) -> dict:
        """What `eval.harness.suite` takes from a recipe to load the tasks."""
        keys = (*OWN.values(), "data_root", "prompt", "answer_form", "final_number")
        return {key: getattr(self, key) for key in keys}


def split_checkpoints(entries: list[str]) -> dict[str, str]:
    """`["sft=runs/x/sft"]` as `{"sft": "runs/x/sft"}`; raises `UserError` on a bad entry."""
    checkpoints: dict[str, str] = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        is_name = re.fullmatch(r"\w[\w.-]*", name) and name != "manifest.json"
        if not equals or not path or not is_name:
            raise UserError(f"checkpoints: {entry!r} is not name=path, such as sft=runs/my-run/sft")
        if name.lower() in map(str.lower, checkpoints):  # one folder on macOS and Windows
            raise UserError(f"checkpoints: the name {name!r} occurs twice; results would collide")
        checkpoints[name] = path
    if not checkpoints:
        raise UserError("checkpoints: [] is empty; list at least one name=path")
    return checkpoints


def check_data(args: EvalArguments, tasks: list[str], official: list[str]) -> None:
    """Check that the tasks' local problems can be read, before anything heavy is imported.

    Raises:
        UserError: naming the missing file, or the first row that could not be scored.
    """
    root = args.data_root
    if root is not None and not Path(root).is_dir():
        raise UserError(f"data_root: {root} is not a folder; set it to the folder of the data")
    for task in tasks:
        key = OWN.get(task)
        if key and not Path(getattr(args, key)).is_file():
            raise UserError(f"{key}: {getattr(args, key)} does not exist; `make data` builds it")
        # A set that is on no hub is refused without a folder of local data.
        if key or root is not None or find_benchmark(task, root) is None:
            suite.read_problem_rows(task, **args.problem_keys())
    if root is not None:
        for task in official:
            for metadata in suite.read_official_metadata(task).values():
                suite.find_official(metadata["hub"], metadata["files"], root)


def check_inputs(args: EvalArguments) -> None:
    """`check_data`, and that the local checkpoints exist; raises `UserError`."""
    check_data(args, args.tasks, args.official)
    checkpoints = args.to_evaluate()
    for name, path in checkpoints.items():
        check_checkpoint(path, f"checkpoints: {name}")
    asks_hub = not args.data_root and not {*args.tasks, *args.official} <= OWN.keys()
    if not asks_hub and not any(map(is_hub_id, checkpoints.values())):
        # Read by huggingface_hub when it is imported, so it must be set before that.
        os.environ["HF_HUB_OFFLINE"] = "1"
