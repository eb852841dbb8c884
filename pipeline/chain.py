"""The chain of a recipe: which stages it has, and which of them come before a goal."""

import json

from pipeline.errors import UserError
from pipeline.recipe_files import read_yaml
from pipeline.stages import STAGES, TOOLS, config_name, has_file


def has_stage(stage: str, recipe: str, model: str = "") -> bool:
    """Whether a recipe has a stage; a model of the user's own takes the place of the base."""
    if stage == "base" and model:
        return False
    return not STAGES[stage].is_optional or has_file(stage, recipe)


def reads_folder(stage: str, of: str, recipe: str) -> bool:
    """Whether a value of a stage's YAML names the folder that another stage writes."""
    try:
        said = read_yaml(f"{recipe}/{config_name(stage)}.yaml")
    except UserError:  # the stage names the line
        return False
    return f"{{run}}/{of}" in json.dumps(said, default=str)


def order(goals: tuple[str, ...], recipe: str, model: str = "", audit: bool = True) -> list[str]:
    """The stages of a recipe that some goals need, the goals included, each after its needs."""
    ordered: list[str] = []
    begun: set[str] = set()

    def add(stage: str) -> None:
        if stage in begun:
            return
        begun.add(stage)
        row = STAGES[stage]
        read = [one for one in row.needs_if_read if reads_folder(stage, one, recipe)]
        add_needs((*row.needs, *read))
        ordered.append(stage)

    def add_needs(needs: tuple[str, ...]) -> None:
        for need in needs:
            if has_stage(need, recipe, model) and (need != "audit" or audit):
                add(need)

    for goal in goals:
        if goal in STAGES:
            add(goal)
        else:
            add_needs(("report",) if goal == "demo" else TOOLS[goal].needs)
    return ordered
