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
from data_prep.schema import read_problems


@dataclass
class EvalArguments:
    """Settings of `eval.run` and `eval.report`; the same for every checkpoint."""

    checkpoints: list[str] = field(
        metadata={"help": "name=path (or name=owner/model on the hub), in the order of the stages"}
    )
    test_file: str = field(
        metadata={"help": "held-out problems, JSON lines in the shape of GRPO rows"}
    )
    output_dir: str = field(metadata={"help": "one sub-folder per checkpoint is written here"})
    report_dir: str = field(metadata={"help": "where eval.report writes"})
    title: str = field(default="SFT, then GRPO", metadata={"help": "heading of the report"})
    num_samples: int = field(default=4, metadata={"help": "k of avg@k: samples per problem"})
    temperature: float = field(default=0.7, metadata={"help": "of the sampled task"})
    top_p: float = field(default=0.95, metadata={"help": "of the sampled task"})
    max_new_tokens: int = field(default=2048, metadata={"help": "a longer completion is cut off"})
    batch_size: int = field(default=64, metadata={"help": "completions generated at once"})
    final_number: bool = field(
        default=False,
        metadata={"help": "where there is no box, the plain number at the end is the answer"},
    )
    dtype: str = field(default="bfloat16", metadata={"help": "float32, bfloat16 or float16"})
    seed: int = field(default=0, metadata={"help": "of the sampled task"})
    limit: int | None = field(default=None, metadata={"help": "only the first so many problems"})

    def __post_init__(self):
        split_checkpoints(self.checkpoints)
        for key in ("num_samples", "max_new_tokens", "batch_size", "temperature", "top_p"):
            if getattr(self, key) <= 0:
                raise UserError(f"{key}: {getattr(self, key)!r} must be above 0")
        if self.top_p > 1:
            raise UserError(f"top_p: {self.top_p!r} must be at most 1")
        if self.limit is not None and self.limit < 1:
            raise UserError(
                f"limit: {self.limit!r} must be at least 1; leave it out for all problems"
            )
        if self.dtype not in ("float32", "bfloat16", "float16"):
            raise UserError(f"dtype: {self.dtype!r} is not float32, bfloat16 or float16")


def split_checkpoints(entries: list[str]) -> dict[str, str]:
    """`["sft=runs/x/sft"]` as `{"sft": "runs/x/sft"}`; raises `UserError` on a bad entry."""
    checkpoints: dict[str, str] = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        if not equals or not path or not re.fullmatch(r"[\w.-]+", name):
            raise UserError(f"checkpoints: {entry!r} is not name=path, such as sft=runs/my-run/sft")
        if name in checkpoints:
            raise UserError(f"checkpoints: the name {name!r} occurs twice; results would collide")
        checkpoints[name] = path
    if not checkpoints:
        raise UserError("checkpoints: [] is empty; list at least one name=path")
    return checkpoints


def check_inputs(values: dict[str, Any]) -> None:
    """Check that test file and local checkpoints exist, before anything heavy is imported.

    Args:
        values: YAML and command line merged, as `data_prep.config.parse` hands them over.

    Raises:
        UserError: naming the missing path and the make target that makes it.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("evaluation runs in one process; start it as `python -m eval.run`")
    test_file = Path(values["test_file"])
    if not test_file.is_file():
        raise UserError(f"test_file: {test_file} does not exist; `make data` builds it")
    for _ in read_problems(str(test_file)):
        pass  # raises at the first row that could not be scored
    entries = values["checkpoints"]
    checkpoints = split_checkpoints([entries] if isinstance(entries, str) else entries)
    for name, path in checkpoints.items():
        check_checkpoint(path, f"checkpoints: {name}", Path(path).name)
    if not any(is_hub_id(path) for path in checkpoints.values()):
        # Read by huggingface_hub when it is imported, so it must be set before that.
        os.environ["HF_HUB_OFFLINE"] = "1"
