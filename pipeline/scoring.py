"""Scoring a model as it is: `make eval MODEL=/ckpt TASKS=math500`. Nothing is trained before.

So it is with TASKS, and with a recipe that has no stage but the evaluation, as configs/evaluate.
"""

from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.folders import place_named
from pipeline.names import unknown
from pipeline.recipe_files import read_yaml
from pipeline.request import Request, name_model
from pipeline.stages import is_for_scoring, known_tasks

OF_PROBLEMS = {"held_out": "test_file", "transfer": "transfer_file"}  # the key of a task's file


def check_scoring(request: Request) -> None:
    """Refuse what the scoring of one model does not read, or lacks."""
    tasks, is_own = request["tasks"], not is_for_scoring(request.recipe)
    for task in tasks:
        if task not in known_tasks():
            raise UserError(unknown("TASKS", task, known_tasks()))
    if "samples" in request.values and not tasks and is_own:
        number = request["samples"]
        raise UserError(
            f"SAMPLES={number}: is read with TASKS; a recipe's own evaluation takes "
            f"eval.num_samples={number}"
        )
    if not request.is_scoring:
        return
    evaluation = read_evaluation(request.recipe)
    if not request["model"] and (is_own or not evaluation.get("checkpoints")):
        example = f'MODEL=folder-or-hub-id TASKS="{" ".join(tasks) or "math500 aime24"}"'
        more = f"; the evaluation of {request.recipe} takes eval.tasks=" if is_own else ""
        more += ",".join(tasks) if is_own else ""
        raise UserError(f"MODEL is missing: name the model to score: {example}{more}")
    for name in ("lora", "audit", "tokenizer"):
        if request[name]:
            raise UserError(f"{name.upper()}: has no effect where MODEL is scored as it is")
    given = request.keys.get("eval", {})
    for task, key in OF_PROBLEMS.items():
        # A file of the run is one that its training made.
        is_named = key in given or "{run}" not in str(evaluation.get(key) or "{run}")
        if task in tasks and not is_named:
            raise UserError(f"TASKS: {task} needs a file of problems: eval.{key}=FILE")


def read_evaluation(recipe: str) -> dict[str, Any]:
    """The keys of a recipe's eval.yaml; none where the stage will say what is wrong with it."""
    try:
        return read_yaml(f"{recipe}/eval.yaml")
    except UserError:
        return {}


def scoring_flags(request: Request, stage: str) -> list[str]:
    """The words by which one model is scored in place of a recipe's checkpoints."""
    found: list[str] = []
    if model := request["model"]:
        plain = name_model(model).rpartition("-")[0].strip("-") or "model"
        name = place_named(Path(plain)).name  # runs/x/grpo is a link to runs/x/grpo-3f9a12
        found += ["--checkpoints", f"{name}={model}"]
        if not is_for_scoring(request.recipe):  # whose title is of its training
            found += ["--title", "Scores of {base}"]
    if stage == "eval":
        if tasks := request["tasks"]:
            found += ["--tasks", *tasks, "--official", "null"]
        if "samples" in request.values:
            found += ["--num_samples", str(request["samples"])]
        found += ["--samples_dir", request.samples_dir]
    return found
