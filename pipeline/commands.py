"""The command line of each stage and tool, and which of them a request needs."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline import keys, strict_yaml
from pipeline.errors import UserError
from pipeline.freshness import looks_current, settings_of
from pipeline.models import smollm2
from pipeline.stages import (
    CHECKED_AHEAD,
    STAGES,
    TOOLS,
    TRAINED,
    config_name,
    is_for_scoring,
    order,
)
from pipeline.variables import Request, find_config, name_checkpoint


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
    check_keys(request)
    if request.is_scoring:  # two quick looks where nothing has changed
        words = [stage_words(request, stage, request.asks_for(stage)) for stage in request.stages]
        return list(map(Command, request.stages, words))
    is_forced = request.is_on("force")
    forces_all = is_forced and request.asks_for("demo")
    for stage in request.stages:
        is_asked = request.asks_for(stage) or forces_all
        command = Command(
            stage,
            stage_words(request, stage, request.asks_for(stage)),
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
    found += [Command(goal, tool_words(request, goal), is_forced=is_forced) for goal in tools]
    return found


def pending(request: Request) -> list[str]:
    """The stages of a request that are not up to date, or are forced, and those that need them."""
    if request.is_scoring:
        return request.stages
    found: list[str] = []
    for stage in request.stages:
        is_forced = request.is_on("force") and request.asks_for(stage, "demo")
        is_there = looks_current(request, stage, stage_words(request, stage, False))
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
    is_only_shown = request.dry_run or request.list_stages
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
            said = strict_yaml.read(path, "run")
        except UserError:  # the stage names the line
            continue
        if not isinstance(said, dict) or said.get("backend") == "openai":
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


def stage_command(request: Request, goal: str) -> Command:
    """The command of one stage or tool alone; flags of its own come last, and may name its YAML."""
    passed = resolve_paths(request.passed)
    words = tool_words(request, goal) if goal in TOOLS else stage_words(request, goal, True)
    if "--config" in passed:
        module = TOOLS[goal].module if goal in TOOLS else STAGES[goal].module
        words = (*launcher(request, goal), "-m", module)
    return Command(goal, (*words, *passed))


def result_folder(request: Request, command: Command) -> Path:
    """The folder that a stage alone writes to; its flags may name another recipe or run."""
    if command.stage == "audit" or "--help" in command.words:
        return Path(request.run, command.stage)
    key = "report_dir" if command.stage == "report" else "output_dir"
    return Path(getattr(settings_of(command.stage, command.words), key))


def resolve_paths(words: Sequence[str]) -> list[str]:
    """The words, with the package's recipe where a path behind one of these flags is not here."""
    found = list(words)
    of_recipes = ("--config", "--overlay")
    for at, word in enumerate(words[1:], start=1):
        if words[at - 1] in of_recipes and not Path(word).exists():
            found[at] = find_config(word.removeprefix("configs/"))
    return found


def launcher(request: Request, goal: str) -> tuple[str, ...]:
    """The words before a stage's `-m` that start it on several processes; none for one."""
    how = request.words.get("accelerate") or []
    if not how or (goal in STAGES and not STAGES[goal].is_launched):
        return ()
    words = ["-m", "stages.run.launch"]
    if how[0].startswith("--"):
        words += how
    else:
        words += ["--config_file", find_config(f"accelerate/{how[0]}.yaml"), *how[1:]]
    if request["num_processes"]:
        words += ["--num_processes", request["num_processes"]]
    return tuple(words)


def flags(request: Request, *names: str) -> list[str]:
    """The variables of these names that were given, as flags."""
    words = []
    for name in names:
        if request[name]:
            words += [f"--{name}", request[name]]
    return words


def launch_flags(request: Request) -> list[str]:
    """How the stages will be started, for a check before they are."""
    file, *own = request.words.get("accelerate") or [""]
    if own or file.startswith("--"):  # the user's own flags of accelerate
        return ["--launch_is_known", "false"]
    return ["--accelerate", file, *flags(request, "num_processes")] if file else []


def overlay_flags(request: Request) -> list[str]:
    """The YAML of LoRA, where it is asked for."""
    return ["--overlay", request.overlay] if request.overlay else []


def keys_of(request: Request, stage: str) -> list[str]:
    """The KEYS of a stage's YAML, as flags."""
    entries = request.words.get("keys")
    return keys.flags(entries, request.recipe, config_name(stage)) if entries else []


def check_keys(request: Request) -> None:
    """Refuse KEYS of the command line that none of its stages reads."""
    tools = {*request.goals} & TOOLS.keys()
    if "keys" not in request.given or tools or request.asks_for("audit"):
        return
    read = {config_name(stage) for stage in request.stages}
    for entry in request.words.get("keys", []):
        if not read & keys.split([entry], request.recipe).keys():
            goals = ", ".join(request.goals)
            raise UserError(f"keys: {entry}: {goals} reads no such YAML file; leave it out")


def key_flags(request: Request) -> list[str]:
    """KEYS for a command that reads the whole recipe."""
    entries = request.words.get("keys")
    return ["--keys", *entries] if entries else []


def stage_words(request: Request, stage: str, is_asked: bool) -> tuple[str, ...]:
    """The words of one stage; ARGS go to the one that is asked for by name."""
    row = STAGES[stage]
    args = request.args_of(stage) if is_asked else []
    words = [*launcher(request, stage), "-m", row.module]
    if stage == "audit":
        words += ["--recipe", request.recipe, "--run", request.run]
        words += flags(request, *row.flags, "completions") + key_flags(request)
        if args:
            words += ["--opens_gate", "false", *args]
        return tuple(words)
    words += ["--config", f"{request.recipe}/{config_name(stage)}.yaml", "--run_dir", request.run]
    words += flags(request, "seed")
    if request.is_scoring:
        words += scoring_flags(request, stage)
    elif "model" in row.flags:
        words += flags(request, "model")
    words += [*keys_of(request, stage), *args]
    if "data_root" in row.flags:
        words += flags(request, "data_root")
    if "overlay" in row.flags:
        words += overlay_flags(request)
    return tuple(words)


def scoring_flags(request: Request, stage: str) -> list[str]:
    """The flags by which one model is scored in place of a recipe's checkpoints."""
    words: list[str] = []
    tasks = request.words.get("tasks", [])
    if request["model"]:
        words += ["--checkpoints", f"{name_checkpoint(request['model'])}={request['model']}"]
        if not is_for_scoring(request.recipe):  # whose title is of its training
            words += ["--title", "Scores of {base}"]
    if stage == "eval":
        if tasks:
            words += ["--tasks", *tasks, "--official", "null"]
        if request["samples"]:
            words += ["--num_samples", request["samples"]]
        words += ["--samples_dir", request.samples_dir]
    return words


def sweep_entries(request: Request) -> list[str]:
    """What a sweep varies; for a control run also the rewards, and the seeds first."""
    entries = list(request.words.get("sweep", []))
    if request.asks_for("control"):
        seeds = request.words.get("seeds") or ["0", "1", "2"]
        return [f"seed={','.join(seeds)}", "rewards=own,random,format", *entries]
    return entries + ([f"seed={request['seed']}"] if request["seed"] else [])


def look_ahead(request: Request, planned: Sequence[Command] = ()) -> tuple[str, ...]:
    """The words of the check of all stages that a request needs; empty if none can be checked.

    Of the `planned` commands those that train are rehearsed.
    """
    found = [stage for stage in request.stages if stage in CHECKED_AHEAD]
    if request.asks_for("sweep", "control"):
        found.append("grpo")
    if request.is_scoring:
        return check_of_model(request)[0].words if request["model"] else ()
    if not found:
        return ()
    last = found[-1]
    words = ["-m", "stages.preflight.rehearsal", "--recipe", request.recipe, "--run", request.run]
    words += ["--goal", last]
    trained = [one.stage for one in planned if one.stage in TRAINED]
    if planned and request.asks_for("sweep", "control"):
        trained.append("grpo")
    if trained:
        words += ["--trained", *trained]
    words += overlay_flags(request) + flags(request, "model", "data_root")
    if request.asks_for("sweep", "control"):
        words += ["--sweep", *sweep_entries(request)]
    words += launch_flags(request)
    words += key_flags(request)
    words.append("--")
    if request.asks_for(last):
        words += request.args_of(last)
    return tuple(words)


def tool_words(request: Request, goal: str) -> tuple[str, ...]:
    """The words of a command beside the stages."""
    return ("-m", TOOLS[goal].module, *tool_flags(request, goal))


def tool_flags(request: Request, goal: str) -> list[str]:
    """The flags of a command beside the stages."""
    args = request.args_of(goal)
    recipe = ["--recipe", request.recipe, "--run", request.run]
    if goal in ("sweep", "control"):
        words = ["--grpo_config", f"{request.recipe}/grpo.yaml", "--run", request.run]
        words += ["--launcher", shlex.join([sys.executable, *launcher(request, "grpo"), "-m"])]
        words += overlay_flags(request) + flags(request, "model", "data_root")
        words += key_flags(request) + flags(request, "parallel", "num_processes")
        if goal == "control":
            words += ["--folder", "control"]
        return [*words, "--sweep", *sweep_entries(request)]
    if goal == "compare":
        return ["--runs", *request.words["runs"], *flags(request, "out")]
    if goal == "browse":
        return ["--run", request.run]
    if goal == "data-report":
        return ["--data", f"{request.run}/data", *flags(request, "tokenizer"), *args]
    if goal == "contamination-ledger":
        return ["--data", f"{request.run}/data", *args]
    if goal == "push":
        config = ["--config", f"{request.recipe}/eval.yaml", "--run_dir", request.run]
        return [*config, *flags(request, "seed", "model"), *args, *flags(request, "repo")]
    if goal == "doctor":
        return [*recipe, *args]
    if goal == "fetch":
        return [*recipe, *flags(request, "model", "data_root"), *key_flags(request), *args]
    # preflight and plan
    words = [*recipe, *overlay_flags(request), *flags(request, "gpus")]
    if goal == "plan":
        words += flags(request, "price")
    words += flags(request, "model", "data_root", "tokenizer") + key_flags(request)
    how = (request.words.get("accelerate") or ["--"])[0]
    if not how.startswith("--"):
        words += ["--accelerate", how]
    return [*words, *args]
