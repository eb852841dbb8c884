"""What a command asks for: its goals, the recipe, the run's folder and the keys of each stage.

A mistake is refused here in one line, before anything heavy is imported.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipeline import words
from pipeline.chain import order, reads_folder
from pipeline.errors import UserError
from pipeline.keys import Keys, all_keys, assign
from pipeline.names import nearest, targets, unknown
from pipeline.paths import check_links, plain
from pipeline.recipe_files import find_config, find_recipe
from pipeline.renamed import find_key
from pipeline.stages import (
    COMMANDS,
    GOALS,
    PASSED_ON,
    SCORING,
    STAGES,
    TRAINED,
    config_name,
    has_file,
    is_for_scoring,
)
from pipeline.words import VARIABLES

NAME_THE_RUN = ("recipe", "model", "run", "lora", "seed")


@dataclass
class Request:
    """What a command line asks for.

    request["run"] is the variable RUN, "" if not given; request.run is the folder that it was
    resolved to. The same holds for "recipe".

    Args:
        goals: names of stages and tools, in their order.
        values: value of each variable that was given, as its type has it.
        keys: of each stage and tool, as text.
        options: of `words.OPTIONS`.
        recipe, run: folders of the recipe and of the run.
        overlay: the YAML of LoRA, or "".
        samples_dir: the folder of the completions of a model that is scored alone, whatever the
            tasks.
        shown: the stages whose keys `show` prints; all where none is named.
    """

    goals: tuple[str, ...]
    values: dict[str, Any]
    keys: Keys = field(default_factory=dict)
    options: set[str] = field(default_factory=set)
    recipe: str = ""
    run: str = ""
    overlay: str = ""
    samples_dir: str = ""
    shown: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name, "")

    @property
    def is_scoring(self) -> bool:
        """Whether a model is scored as it is: nothing is built or trained before."""
        is_alone = bool(self["tasks"]) or is_for_scoring(self.recipe)
        return is_alone and self.asks_for(*SCORING)

    @property
    def stages(self) -> list[str]:
        """The stages that the goals need, in their order."""
        return self.stages_of(self.goals)

    def stages_of(self, goals: Sequence[str]) -> list[str]:
        """The stages that some goals need, in their order."""
        if self.is_scoring:
            return [*SCORING]
        if "audit" in goals and self["completions"]:
            return ["audit"]
        if is_for_scoring(self.recipe) and not STAGES.keys() & {*goals}:
            return []  # such as fetch: there is no data to build
        return order(tuple(goals), self.recipe, self["model"], self["audit"] != "off")

    def asks_for(self, *goals: str) -> bool:
        """Whether one of these goals is among those that are asked for."""
        return any(goal in self.goals for goal in goals)


def read(argv: Sequence[str], env: Mapping[str, str]) -> Request:
    """Read a command line and the environment.

    Raises:
        UserError: an unknown goal or word, or a variable or key that the goals do not read.
    """
    said = words.read(argv, env)
    refuse_unknown(said.unknown)
    os.environ.update(said.handed_on)
    shown: tuple[str, ...] = ()
    if said.goals[:1] == ("show",):
        shown = name_shown(said)
    for goal in said.goals:
        if re.search(r"""[\[\]{}'",]""", goal):
            raise UserError(f"{goal}: is no goal; quote a value with blanks, as 'key=[a, b]'")
        if goal not in GOALS:
            raise UserError(unknown("goal", goal, [*GOALS, *PASSED_ON]))
    of_make = env.get("MAKE_GOALS", "").split()  # all of one command; each is a process
    for target in of_make:
        if re.fullmatch(r"[a-z-]+", target) and target not in targets():
            raise UserError(unknown("target", target, targets()))
    goals = tuple(goal for goal in of_make if goal in GOALS) or said.goals
    readable = {*NAME_THE_RUN, *(name for goal in goals for name in reads(goal))}
    if not said.options & {"help"}:
        check_reads(said, readable, goals)
    taken = {name: said.variables[name] for name in said.variables if name in readable}
    request = Request(said.goals, taken, options=said.options, shown=shown)
    for name in ("recipe", "model", "run", "data_root", "tokenizer", "completions", "out"):
        if name in taken:  # completion in a shell may have added a slash
            taken[name] = plain(name, taken[name], "command line").rstrip("/") or "/"
    for name in ("runs", "tasks", "accelerate"):
        if name in taken:
            taken[name] = [os.path.expanduser(one) for one in taken[name]]
    if request["tasks"]:  # blanks or commas part them
        taken["tasks"] = list(dict.fromkeys(" ".join(taken["tasks"]).replace(",", " ").split()))
        if not taken["tasks"]:
            raise UserError("TASKS: names no benchmark; name one, such as math500")
    locate(request)
    request.keys = assign(said.keys, shown or goals, request.recipe)
    if "only" not in said.options:  # whose words may be those of a whole job
        check_keys(request, goals)
    return request


def name_shown(said: words.Words) -> tuple[str, ...]:
    """Of `show RECIPE [STAGE]`: make the recipe a variable, and return the stages."""
    named, said.goals = said.goals[1:], said.goals[:1]
    if named and named[0] not in STAGES and "recipe" not in said.typed:
        said.variables["recipe"], *rest = named
        named = tuple(rest)
    for stage in named:
        if stage not in STAGES:
            raise UserError(unknown("stage", stage, [*STAGES]))
    return named


def refuse_unknown(variables: Mapping[str, str]) -> None:
    """Refuse a NAME=value that nothing reads: a key of a recipe, or a typo."""
    for name, value in variables.items():
        if key := find_key(name.lower(), all_keys()):
            raise UserError(f"{name}={value}: no variable; the key is written {key}={value}")
        line = unknown("variable", name, [one.upper() for one in VARIABLES])
        raise UserError(f"{line} (what other programs read stands before the command)")


def check_reads(said: words.Words, readable: set[str], goals: Sequence[str]) -> None:
    """Refuse a variable that was typed for goals that do not read it."""
    remedies = {
        "runs": "it is for compare; to name one run, use RUN",
        "gpus": "it is for preflight and plan; to train on several GPUs, use NUM_PROCESSES and "
        "ACCELERATE",
    }
    for name in sorted(said.typed - readable):
        readers = ", ".join(goal for goal in GOALS if name in reads(goal))
        remedy = remedies.get(name, f"it is for {readers}")
        value = words.text_of(said.variables[name])
        raise UserError(f"{name.upper()}={value}: {', '.join(goals)} does not read it; {remedy}")


def reads(goal: str) -> set[str]:
    """The variables that a goal or a stage before it reads, beside those that name the run."""
    stages = {*may_need(goal)}
    found = {name for one in stages for name in {*STAGES[one].flags} - {*STAGES[one].reads}}
    if row := COMMANDS.get(goal):
        found |= {*row.flags, *row.reads}
    if stages:
        found.add("force")
    if any(STAGES[stage].is_launched for stage in stages):
        found |= {"accelerate", "num_processes"}
    if stages & {*TRAINED}:
        found |= {"max_hours", "rehearse"}
    if "audit" in stages:
        found.add("audit")
    return found & VARIABLES.keys()


def may_need(goal: str) -> list[str]:
    """The stages that a goal comes to in some recipe, itself included."""
    if goal == "demo":
        return may_need("report")
    row = COMMANDS[goal]
    found = [one for need in row.needs for one in may_need(need)]
    return [*found, goal] if goal in STAGES else found


def check_keys(request: Request, goals: Sequence[str]) -> None:
    """Refuse keys of a stage that no goal needs."""
    reads_recipe = any("keys" in COMMANDS[goal].flags for goal in goals if goal in COMMANDS)
    known = {*goals, *request.stages_of(goals)}
    for owner, given in request.keys.items():
        if owner not in known and not (reads_recipe and owner in STAGES):
            entry = f"{owner}.{next(iter(given))}"
            raise UserError(f"{entry}: nothing reads it, as {owner} does not run; leave it out")


def locate(request: Request) -> None:
    """Find the recipe, and name the run after recipe, model, LoRA and seed."""
    name = request["recipe"] or ("evaluate" if request["tasks"] else "tiny-cpu")
    if name.endswith("-lora"):
        raise UserError(f"RECIPE: no {name}; use RECIPE={name.removesuffix('-lora')} LORA=1")
    request.recipe = find_recipe(name)
    if request["lora"]:
        request.overlay = find_config("lora.yaml")
    model = f"-{name_model(request['model'])}" if request["model"] else ""
    lora = "-lora" if request.overlay else ""
    seed = f"/seed-{request['seed']}" if "seed" in request.values else ""
    home = request["run"] or f"runs/{Path(request.recipe).name}{model}{lora}{seed}"
    # Each list of tasks has its own scores; the completions are shared.
    is_named = request["run"] or not request["tasks"]
    run = home if is_named else f"{home}/{'-'.join(request['tasks'])}"
    request.run = os.path.normpath(run)  # one name, however it is written
    request.samples_dir = os.path.normpath(f"{home}/samples")
    check_links(request.run, "RUN")
    if Path(request.run).is_file():
        raise UserError(f"RUN: {request.run} is a file; name a folder")


def name_model(model: str) -> str:
    """The last part of a model's path as a folder name, with a hash that tells equal names apart.

    A folder or file has the same name however its path is written.
    """
    path = os.path.realpath(model) if os.path.exists(model) else model
    plain = re.sub(r"[^\w-]+", ".", os.path.basename(path), flags=re.ASCII).strip(".")
    return f"{plain}-{sha256(os.fsencode(path)).hexdigest()[:6]}"


def check_goals(request: Request) -> None:
    """Refuse goals and variables that contradict each other or the recipe."""
    of_models = (*SCORING, "browse", "compare", "clean", "doctor", "fetch", "show")
    wrong = [goal for goal in request.goals if goal not in of_models]
    if wrong and is_for_scoring(request.recipe):
        raise UserError(
            f"{request.recipe} only scores models: {wrong[0]} needs a recipe that trains, such as "
            "RECIPE=grpo7b"
        )
    for stage in {*request.stages, *STAGES.keys() & {*request.goals}}:
        if not has_file(stage, request.recipe):
            file = f"{config_name(stage)}.yaml"
            raise UserError(f"{request.recipe}: has no stage {stage}; write {file} to add it")
    if reads_folder("sft", "distill", request.recipe) and reads_folder(
        "distill", "sft", request.recipe
    ):
        files = "sft.yaml and distill.yaml read each other's results"
        raise UserError(f"{request.recipe}: {files}; change one of them")
    for goal in ("clean", "show"):
        if request.asks_for(goal) and len(request.goals) > 1:
            raise UserError(f"{goal}: give it alone, without another goal")
    if request["model"] and request.asks_for("base"):
        fault = "takes the place of the model that base builds"
        raise UserError(f"MODEL={request['model']}: {fault}; leave one out")
    for goal, name, example in (
        ("sweep", "sweep", "learning_rate=1e-7,1e-6 seed=0,1"),
        ("compare", "runs", "runs/a runs/b"),
        ("push", "repo", "owner/name"),
    ):
        if request.asks_for(goal) and not request[name]:
            raise UserError(f'{name.upper()}: missing; set it, such as {name.upper()}="{example}"')
    if request.asks_for("sweep", "control"):
        for entry in request["sweep"]:
            key, equals, value = entry.partition("=")
            if not key or not equals or not all(value.split(",")):
                raise UserError(f"SWEEP: {entry} has a key without a value; write key=value,value")
    check_launch(request)


def check_launch(request: Request) -> None:
    """Refuse an ACCELERATE that names no configuration, and NUM_PROCESSES without ACCELERATE."""
    folder = Path(find_config("accelerate"))
    known = sorted({path.stem for path in folder.glob("*.yaml")} - {"multi_node"})
    how = (request["accelerate"] or [""])[0]
    if how and not how.startswith("--") and how not in known:
        near = nearest(how, known)
        remedy = f"did you mean {near}?" if near else f"choose one of {', '.join(known)}"
        raise UserError(
            f"ACCELERATE={how}: unknown (for several hosts see docs/scale.md); {remedy}"
        )
    needs_how = any(STAGES[stage].is_launched for stage in request.stages)
    if needs_how and not how and (request["num_processes"] or 1) > 1:
        raise UserError(
            f"NUM_PROCESSES={request['num_processes']}: needs ACCELERATE too, one of "
            f"{', '.join(known)}"
        )
