"""The command line of each stage and tool, and which of them a request needs."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import keys
from pipeline.chain import order
from pipeline.errors import UserError
from pipeline.freshness import looks_current, settings_of
from pipeline.models import smollm2
from pipeline.recipe_files import find_config, read_yaml
from pipeline.request import Request
from pipeline.scoring import scoring_flags
from pipeline.stages import (
    CHECKED_AHEAD,
    STAGES,
    TOOLS,
    TRAINED,
    config_name,
)


@dataclass(frozen=True)
class Command:
    """What is started as `python WORDS`.

    Args:
        stage: its name in the table of stages, or that of a tool or check.
        is_needed_only: another one needs it; nobody asked for it by name.
        is_forced: it starts again although it is up to date.
    """

    stage: str
    words: tuple[str, ...]
    is_needed_only: bool = False
    is_forced: bool = False


def commands(request: Request) -> list[Command]:
    """The commands of a request, in their order, without stages that look up to date.

    A stage that is asked for by name is always included: it checks itself whether it is up to date.
    """
    found: list[Command] = []
    if request.is_scoring:  # two quick looks where nothing has changed
        return [Command(stage, stage_words(request, stage)) for stage in request.stages]
    is_forced = bool(request["force"])
    forces_all = is_forced and request.asks_for("demo")
    for stage in request.stages:
        is_asked = request.asks_for(stage) or forces_all
        command = Command(
            stage,
            stage_words(request, stage),
            is_needed_only=not is_asked,
            is_forced=is_asked and is_forced,
        )
        # What comes after such a stage is checked again when its turn comes.
        is_after = needs_one_of(request, stage, {one.stage for one in found})
        if is_asked or is_after or not looks_current(request, stage, command.words):
            if stage == "data":
                found += check_of_model(request)
            found.append(command)
    tools = [goal for goal in request.goals if goal in TOOLS and TOOLS[goal].module]
    added = [Command(goal, tool_words(request, goal), is_forced=is_forced) for goal in tools]
    first = [one for one in added if one.stage == request.goals[0] and not TOOLS[one.stage].needs]
    return [*first, *found, *(one for one in added if one not in first)]


def pending(request: Request) -> list[str]:
    """The stages of a request that are not up to date, or are forced, and those that need them."""
    if request.is_scoring:
        return request.stages
    found: list[str] = []
    for stage in request.stages:
        is_forced = request["force"] and request.asks_for(stage, "demo")
        is_there = looks_current(request, stage, stage_words(request, stage))
        if is_forced or not is_there or needs_one_of(request, stage, {*found}):
            found.append(stage)
    return found


def needs_one_of(request: Request, stage: str, others: set[str]) -> bool:
    """Whether a stage comes after one of these because it needs it, directly or through others."""
    return not others.isdisjoint(order((stage,), request.recipe, request["model"]))


LOOK_AT_MODELS = ("preflight", "plan", "sweep", "control", "fetch")


def resolve_models(request: Request) -> None:
    """Put the folder or hub id of a short name in place, made before any stage starts.

    Where nothing will run, only what is there already counts.
    """
    reads_recipe = request.asks_for(*LOOK_AT_MODELS) or any(
        "model" in STAGES[stage].flags for stage in request.stages
    )
    uses_models = reads_recipe or request.asks_for("data")  # which MODEL is checked before
    is_only_shown = bool(request.options & {"dry-run", "list"})
    if request["model"]:
        if uses_models and not is_only_shown:
            request.values["model"] = smollm2.resolve(request["model"], "MODEL")
        else:
            request.values["model"] = smollm2.find(request["model"])
    elif reads_recipe and not is_only_shown:
        for place, name in named_in(request.recipe):
            smollm2.resolve(name, place)  # the stages find it


def named_in(recipe: str) -> list[tuple[str, str]]:
    """The models that a recipe's YAML files start from: `(file and key, model)`."""
    found = []
    key = "model_name_or_path"
    for path in sorted(Path(recipe).glob("*.yaml")):
        try:
            said = read_yaml(str(path), "run")
        except UserError:  # the stage names the line
            continue
        if said.get("backend") == "openai":
            continue
        if key in said:
            found.append((f"{path}: {key}", str(said[key])))
        checkpoints, teachers = said.get("checkpoints"), said.get("teachers")
        for entry in checkpoints if isinstance(checkpoints, list) else []:
            found.append((f"{path}: checkpoints", str(entry).partition("=")[2]))
        for entry in teachers if isinstance(teachers, list) else []:
            if isinstance(entry, dict) and key in entry:
                found.append((f"{path}: teachers: {key}", str(entry[key])))
    return found


def check_of_model(request: Request) -> list[Command]:
    """The check of a user's own model, before data is built for it."""
    if not request["model"]:
        return []
    return [Command("model", ("-m", "pipeline.models.checkpoints", request["model"]))]


def evaluation_of_base(request: Request, evaluation: Command) -> Command | None:
    """The part of an evaluation that needs no training: that of the base which the recipe makes.

    None where there is no such base, and with FORCE=1, by which the evaluation would do it again.
    """
    entries = settings_of("eval", evaluation.words).get("checkpoints") or ()
    base = f"={request.run}/base"
    names = [entry.removesuffix(base) for entry in entries if entry.endswith(base)]
    if not names or evaluation.is_forced:
        return None
    return Command("base's evaluation", (*evaluation.words, "--only_checkpoints", *names))


def only_command(request: Request) -> Command:
    """The command of one stage or tool alone."""
    (goal,) = request.goals
    words = tool_words(request, goal) if goal in TOOLS else stage_words(request, goal)
    return Command(goal, words, is_forced=bool(request["force"]))


def launcher(request: Request, goal: str) -> tuple[str, ...]:
    """The words before a stage's `-m` that start it on several processes; none for one."""
    how = request["accelerate"]
    if not how or (goal in STAGES and not STAGES[goal].is_launched):
        return ()
    words = ["-m", "stages.run.launch"]
    if how[0].startswith("--"):
        words += how
    else:
        words += ["--config_file", find_config(f"accelerate/{how[0]}.yaml"), *how[1:]]
    if "num_processes" in request.values:
        words += ["--num_processes", str(request["num_processes"])]
    return tuple(words)


def values_of(request: Request) -> dict[str, list[str]]:
    """The words behind each flag that a stage or tool may be given; none where nothing is."""
    found = {name: words_of(value) for name, value in request.values.items()}
    how = request["accelerate"]
    is_own = bool(how) and how[0].startswith("--")  # the user's own flags of accelerate
    return found | {
        "recipe": [request.recipe],
        "run": [request.run],
        "config": [f"{request.recipe}/eval.yaml"],
        "run_dir": [request.run],
        "data": [f"{request.run}/data"],
        "overlay": [request.overlay] if request.overlay else [],
        "keys": keys.as_entries(request.keys),
        "accelerate": [] if is_own else how[:1],
        "launch_is_known": ["false"] if is_own else [],
        "grpo_config": [f"{request.recipe}/grpo.yaml"],
        "launcher": [shlex.join([sys.executable, *launcher(request, "grpo"), "-m"])],
        "folder": ["control"],
        "sweep": sweep_entries(request),
    }


def sweep_entries(request: Request) -> list[str]:
    """What a sweep varies; for a control run also the rewards, and the seeds first."""
    entries = words_of(request["sweep"])
    if request.asks_for("control"):
        seeds = ",".join(request["seeds"] or ["0", "1", "2"])
        return [f"seed={seeds}", "rewards=own,random,format", *entries]
    return entries + ([f"seed={request['seed']}"] if "seed" in request.values else [])


def words_of(value: Any) -> list[str]:
    """A variable's value as words of a command line."""
    if isinstance(value, list):
        return value
    return [] if value == "" else [str(value)]


def flags(request: Request, *names: str) -> list[str]:
    """Flags with the words behind them, without those that are not given."""
    values = values_of(request)
    return keys.as_flags({name: values[name] for name in names if values.get(name)})


def stage_words(request: Request, stage: str) -> tuple[str, ...]:
    """The words of one stage."""
    row = STAGES[stage]
    words = [*launcher(request, stage), "-m", row.module]
    own = keys.flags(request.keys, keys.OF_FILE.get(config_name(stage), stage))
    if stage == "audit":
        words += flags(request, "recipe", "run", *row.flags)
        # With keys of its own it audits something else than what will be trained.
        return (*words, *(["--opens_gate", "false", *own] if own else []))
    words += ["--config", f"{request.recipe}/{config_name(stage)}.yaml"]
    words += flags(request, "run_dir", "seed")
    flagged = [name for name in row.flags if name != "model"]
    if request.is_scoring:
        words += scoring_flags(request, stage)
    elif "model" in row.flags:
        words += flags(request, "model")
    return (*words, *own, *flags(request, *flagged))


def look_ahead(request: Request, planned: Sequence[Command] = ()) -> tuple[str, ...]:
    """The words of the check of all stages that a request needs; empty if none can be checked.

    Of the `planned` commands those that train are rehearsed.
    """
    if request.is_scoring:
        return check_of_model(request)[0].words if request["model"] else ()
    is_sweep = request.asks_for("sweep", "control")
    found = [stage for stage in request.stages if stage in CHECKED_AHEAD]
    found += ["grpo"] if is_sweep else []
    if not found:
        return ()
    words = ["-m", "stages.preflight.rehearsal", *flags(request, "recipe", "run")]
    words += ["--goal", found[-1]]
    trained = [one.stage for one in planned if one.stage in TRAINED]
    trained += ["grpo"] if planned and is_sweep else []
    words += ["--trained", *trained] if trained else []
    words += flags(request, "overlay", "model", "data_root")
    words += flags(request, "sweep") if is_sweep else []
    return (*words, *flags(request, "launch_is_known", "accelerate", "num_processes", "keys"))


def tool_words(request: Request, goal: str) -> tuple[str, ...]:
    """The words of a command beside the stages."""
    row = TOOLS[goal]
    own = keys.flags(request.keys, goal)
    return ("-m", row.module, *flags(request, *row.flags), *own)
