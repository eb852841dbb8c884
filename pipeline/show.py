"""What a recipe's stages are given: each key, under the file that it comes from.

    python -m pipeline show grpo7b-published grpo
    python -m pipeline show grpo7b LORA=1 grpo.learning_rate=1e-6

What is printed for a stage is YAML. Keys that are not there have their default.
"""

import sys
from collections.abc import Iterator
from typing import Any

import yaml

from pipeline.commands import stage_words
from pipeline.errors import UserError
from pipeline.freshness import settings_of
from pipeline.request import Request
from pipeline.settings import Settings
from pipeline.stages import STAGES, config_name, has_file


def show_keys(request: Request) -> None:
    """Print the keys of the stages that are asked for, or of all that the recipe has."""
    for stage in request.shown or stages_of(request.recipe):
        if stage == "audit":
            raise UserError("show: audit has no YAML; it reads those of sft, grpo and eval")
        settings = settings_of(stage, stage_words(request, stage))
        sys.stdout.write("\n".join([f"## {config_name(stage)}", *lines(settings), "\n"]))


def stages_of(recipe: str) -> list[str]:
    """The stages whose YAML a recipe has; evaluation and report share one."""
    with_yaml = [stage for stage in STAGES if stage not in ("audit", "report")]
    return [stage for stage in with_yaml if has_file(stage, recipe)]


def lines(settings: Settings) -> Iterator[str]:
    """The keys, grouped by where they come from; what decides stands first."""
    given = settings.given()
    if settings.env:
        given["env"] = settings.env
    places = dict.fromkeys(map(settings.place_of, given))
    for place in sorted(places, key=settings.places().index):
        yield f"# {place}"
        for key, value in given.items():
            if settings.place_of(key) == place:
                yield f"{key}: {text_of(value)}"


def text_of(value: Any) -> str:
    """A value as YAML on one line."""
    return yaml.safe_dump(
        [value], sort_keys=False, default_flow_style=True, width=sys.maxsize
    ).strip()[1:-1]
