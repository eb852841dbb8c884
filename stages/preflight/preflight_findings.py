"""What preflight works with and what it finds."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from stages.preflight.memory_recipe import Launch

ERROR, WARNING, UNCHECKED, OK = "error", "warning", "not checked", "ok"
LEVELS = (ERROR, WARNING, UNCHECKED, OK)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        level: one of `LEVELS`.
        topic: the file or the subject, such as `grpo.yaml` or `memory`.
        text: what was found, with its numbers.
        remedy: what to change; empty where nothing has to be.
    """

    level: str
    topic: str
    text: str
    remedy: str = ""


def from_error(topic: str, error: UserError) -> Finding:
    """The finding of a refusal: `UserError`s end with their remedy, after the last semicolon."""
    text, _, remedy = str(error).rpartition("; ")
    return Finding(ERROR, topic, text or remedy, remedy if text else "")


@dataclass
class Recipe:
    """A recipe's files as read and as parsed.

    Args:
        values: `{file: flat mapping}` of the YAML, `{run}` filled in; a broken file is missing.
        parsed: `{file: objects}` of the files that parse without a fault.
        run: the folder of the stages' output.
        accelerate: keys of the file that the launch is by.
        tokenizer: folder that stands in for the model's tokenizer, or None.
        data_root: folder of the raw data, or None.
    """

    folder: Path
    run: str
    launch: Launch
    accelerate: dict[str, Any] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    parsed: dict[str, tuple] = field(default_factory=dict)
    tokenizer: str | None = None
    data_root: str | None = None

    def stages(self) -> list[str]:
        """The training stages that the recipe has."""
        return [name for name in ("sft", "grpo") if f"{name}.yaml" in self.values]

    def model(self, stage: str) -> str | None:
        """The model that a stage's weights come from at first: through `{run}/…` to its origin."""
        name = self.values.get(f"{stage}.yaml", {}).get("model_name_or_path")
        made = self.values.get("sft.yaml", {}).get("output_dir")
        if stage != "sft" and name and name == made:
            return self.model("sft")
        return name


def whole(value: Any, default: int) -> int:
    """A number of the YAML, or the default where it is absent."""
    return default if value is None else int(float(value))


def fill(values: dict[str, Any], run: str) -> dict[str, Any]:
    """The mapping with `{run}` in its texts, and in lists of them, as the run's folder."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(item) for item in value]
        return value.replace("{run}", run) if isinstance(value, str) else value

    return {key: one(value) for key, value in values.items()}
