"""The variables of a command: `--recipe grpo7b`, RECIPE=grpo7b of make or of the environment.

make passes its variables through the environment; MAKEFLAGS names those of its command line.
A mistake is refused here in one line, before anything heavy is imported.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from pipeline import consent
from pipeline.errors import UserError
from pipeline.names import nearest, targets, unknown
from pipeline.paths import check_links, plain
from pipeline.renamed import find_key
from pipeline.stages import (
    CHAIN,
    GOALS,
    PASSED_ON,
    RECIPES,
    SCORING,
    STAGES,
    TOOLS,
    TRAINED,
    config_name,
    has_file,
    is_for_scoring,
    known_tasks,
    order,
    reads_folder,
)

# Kind of each variable: a plain name or path, 1 or 0, a line of text, words as a shell parts them.
PLAIN, SWITCH, TEXT, WORDS = "plain", "switch", "text", "words"
VARIABLES = {
    "recipe": (PLAIN, "a folder of configs/, tiny-cpu by default"),
    "model": (TEXT, "folder or hub id to start from, or smollm2, not the recipe's"),
    "run": (PLAIN, "folder of the run, runs/<recipe> by default"),
    "lora": (SWITCH, "1: train LoRA adapters, with configs/lora.yaml"),
    "seed": (PLAIN, "seed of every stage"),
    "data_root": (TEXT, "folder of local data files, in place of the hub"),
    "tokenizer": (TEXT, "folder or hub id of the tokenizer, if the model is not on this machine"),
    "accelerate": (WORDS, "a file of configs/accelerate, or flags of `accelerate launch`"),
    "num_processes": (PLAIN, "how many processes accelerate starts"),
    "max_hours": (PLAIN, "end training after so many hours, with a checkpoint to go on from"),
    "force": (SWITCH, "1: run the named stages again although they are up to date"),
    "audit": (PLAIN, "off: train although the audit fails"),
    "rehearse": (PLAIN, "off: train without a rehearsal of the training stages before"),
    "args": (WORDS, "keys of the stage's YAML, as `--learning_rate 1e-4`; here after `--`"),
    "keys": (WORDS, "keys of any stage, as grpo.top_p=0.8 sft.max_length=1024 learning_rate=1e-5"),
    "tasks": (WORDS, "eval: score MODEL alone on these and train nothing, as math500 aime24"),
    "samples": (PLAIN, "eval, with TASKS: sampled completions a problem, beside a greedy one"),
    "completions": (TEXT, "audit: show how each parser reads this file"),
    "sweep": (WORDS, "sweep: key=value,value for each key to vary"),
    "parallel": (PLAIN, "sweep, control: runs at a time, each on GPUs of its own"),
    "seeds": (WORDS, "control: the seeds, 0 1 2 by default"),
    "gpus": (PLAIN, "preflight, plan: training processes, one for each GPU"),
    "price": (PLAIN, "plan: price of a GPU-hour"),
    "runs": (WORDS, "compare: folders of runs"),
    "out": (TEXT, "compare: the page to write"),
    "repo": (PLAIN, "push: owner/name on the hub"),
    "yes": (PLAIN, "clean: 1 removes the files, states the optimizers' states of earlier runs"),
}  # fmt: skip
# What a value that is given must look like, and the words of the message if it does not.
FORMS = {
    "audit": (r"on|off", "off; leave it out to keep the audit on"),
    "rehearse": (r"on|off", "off; leave it out to rehearse"),
    "num_processes": (r"[1-9]\d*", "a whole number of processes, 1 or more"),
    "parallel": (r"[1-9]\d*", "a whole number of runs, 1 or more"),
    "yes": (r"[01]|states", "1 or states"),
    "max_hours": (r"\d+\.?\d*|\.\d+", "a number of hours, such as 23.5"),
    "samples": (r"\d+", "a whole number; 0 leaves the greedy completions alone"),
}
PATHS = {"recipe", "model", "run", "data_root", "tokenizer", "completions", "out"}
NAME_THE_RUN = ("recipe", "model", "run", "lora", "seed")
OPTIONS = {
    "dry-run": "print the commands that would run, and run none",
    "only": "run this one stage alone, with the flags that follow: --config F --key value",
    "list": "print the run's folder and the stages that are not up to date",
    "start-model": "print the model that GRPO starts from, then the flags of its vLLM server",
}
# Read by the Makefile itself, or by a target that is no goal of this command.
OF_MAKE = ("PYTHON", "PY", "VENV", "VLLM", "SHAPE", "MODES", "SMALL", "CPU_STANDIN")
# Of make's command line, what make, compilers and libraries read. Beside these are the variables
# that a recipe may set, too.
HANDED_ON = re.compile(
    r"(CUDA|HF|NCCL|WANDB|VLLM|OMP|PYTORCH|TORCH|SLURM|OPENAI|TENSORBOARD|MLFLOW|SWANLAB)_\w+"
    r"|ALLOW_CODE|SHELL|HOME|PATH|TMPDIR|CC|CXX|(C|CXX|LD)FLAGS|V"
)
NOT_PLAIN = re.compile(r"""[\s$`'";&|<>(){}\[\]*?!\\#%^]""")


@dataclass
class Request:
    """What a command line asks for.

    request["run"] is the text as the user gave it, "" if not given; request.run is the folder that
    it was resolved to. The same holds for "recipe".

    Args:
        goals: names of stages and tools, in their order.
        values: text of each variable that was given; words: those of kind WORDS, split.
        given: the names that were given on the command line, by flag or to make.
        recipe, run: folders of the recipe and of the run.
        overlay: the YAML of LoRA, or "".
        samples_dir: the folder of the completions of a model that is scored alone, whatever the
            tasks.
        is_make: whether make started this, for messages.
    """

    goals: tuple[str, ...]
    values: dict[str, str]
    given: set[str]
    words: dict[str, list[str]] = field(default_factory=dict)
    recipe: str = ""
    run: str = ""
    overlay: str = ""
    samples_dir: str = ""
    only: bool = False
    dry_run: bool = False
    list_stages: bool = False
    start_model: bool = False
    passed: tuple[str, ...] = ()  # with --only: flags of the stage
    is_make: bool = False

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def is_on(self, name: str) -> bool:
        """Whether a switch, such as FORCE=1, is given and not 0."""
        return self[name] not in ("", "0")

    def args_of(self, goal: str) -> list[str]:
        """The keys that a goal is given: `check_args` allows one goal that takes them."""
        return self.words.get("args", []) if takes_args(goal) else []

    def show(self, name: str) -> str:
        """A variable as its user wrote it: `--gpus 8` or GPUS=8."""
        value = " ".join(self[name].split())
        return f"{name.upper()}={value}" if self.is_make else f"--{name} {value}"

    @property
    def is_scoring(self) -> bool:
        """Whether a model is scored as it is: nothing is built or trained before."""
        is_alone = bool(self["tasks"]) or is_for_scoring(self.recipe)
        return is_alone and self.asks_for(*SCORING)

    @property
    def stages(self) -> list[str]:
        """The stages that the goals need, in their order."""
        if self.is_scoring:
            return [*SCORING]
        audit = self["audit"] != "off"
        if self.asks_for("audit") and self["completions"]:
            return ["audit"]
        if is_for_scoring(self.recipe) and not self.asks_for(*STAGES):
            return []  # such as fetch: there is no data to build
        return order(self.goals, self.recipe, self["model"], audit)

    def asks_for(self, *goals: str) -> bool:
        """Whether one of these goals is among those that are asked for."""
        return any(goal in self.goals for goal in goals)


def given_to_make(flags: str) -> dict[str, str]:
    """The variables of make's command line, by MAKEFLAGS: flags, ` -- `, then NAME=value."""
    _, _, definitions = f" {flags}".partition(" -- ")
    found = {}
    for word in re.findall(r"(?:\\.|\S)+", definitions, re.DOTALL):
        name, equals, value = re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL).partition("=")
        if equals:
            found[name.rstrip(":?+!")] = value.replace("$$", "$")
    return found


def read(words: Sequence[str], env: Mapping[str, str]) -> Request:
    """Read a command line and the environment.

    Raises:
        UserError: an unknown goal, flag or variable, or one that the goals do not read.
    """
    request = read_flags(words)
    request.is_make = "MAKE_GOALS" in env
    of_make = given_to_make(env.get("MAKEFLAGS", "")) if request.is_make else {}
    check_names(of_make)
    for goal in request.goals:
        if goal not in GOALS:
            raise UserError(unknown("goal", goal, [*GOALS, *PASSED_ON]))
    for target in env.get("MAKE_GOALS", "").split():
        if re.fullmatch(r"[a-z-]+", target) and target not in targets():
            raise UserError(unknown("target", target, targets()))
    goals = [goal for goal in env.get("MAKE_GOALS", "").split() if goal in GOALS]
    readers = (*request.goals, *goals)
    readable = {*NAME_THE_RUN, *(name for goal in readers for name in reads(goal))}
    for name in VARIABLES:
        text = env.get(name.upper(), "")
        if name not in request.values and (name.upper() in of_make or (name in readable and text)):
            request.values[name] = text
    take_values(request)
    request.given |= {name for name in VARIABLES if name.upper() in of_make}
    check_reads(request, readable)
    request.values = {name: value for name, value in request.values.items() if value}
    for name in PATHS & request.values.keys():
        path = plain(name, request.values[name], "command line")
        request.values[name] = path.rstrip("/") or "/"  # as completion in a shell may add
    locate(request)
    check_scoring(request, readers)
    check_args(request, env.get("MAKE_GOALS", "").split())
    return request


def read_flags(words: Sequence[str]) -> Request:
    """The goals, flags and variables of a command line, not yet checked against each other."""
    goals: list[str] = []
    values: dict[str, str] = {}
    switches = {name.replace("-", "_"): False for name in OPTIONS}
    switches["only"] = bool({"--config", "--help", "-h"} & {*words})  # which one stage alone reads
    of_stage = ("tasks", "samples") if switches["only"] or "--only" in words else ()
    passed: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if re.match(r"\w+=", word):  # as make takes it
            of_make, _, value = word.partition("=")
            if not of_make.isupper() or of_make.lower() not in VARIABLES:
                raise unknown_variable(of_make, value)
            word = f"--{of_make.lower()}={value}"
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if word == "--":
            values["args"] = shlex.join(rest)
            break
        if word == "-h":
            passed.append("--help")
        elif not word.startswith("--"):
            goals.append(word)
        elif name in switches:
            switches[name] = True
        elif name in VARIABLES and name not in of_stage:
            kind = VARIABLES[name][0]
            taken = [value] if equals else take(rest, many=kind == WORDS)
            if not taken:
                raise UserError(f"--{name}: takes a value; see --help")
            values[name] = shlex.join(taken) if kind == WORDS and len(taken) > 1 else taken[0]
        elif switches["only"] or "--only" in words:
            passed += [word, *take(rest, many=True)]
        else:
            names = [*switches, *VARIABLES]
            near = nearest(name, names)
            remedy = f"did you mean --{near}?" if near else "see --help"
            raise UserError(f"{word}: unknown flag (keys of a stage go after --); {remedy}")
    return Request(
        tuple(dict.fromkeys(goals)),
        values,
        set(values),
        only=switches["only"],
        dry_run=switches["dry_run"],
        list_stages=switches["list"],
        start_model=switches["start_model"],
        passed=tuple(passed),
    )


def take(rest: list[str], many: bool) -> list[str]:
    """Take from a command line the value of a flag, or all its values, up to the next flag."""
    taken = []
    while rest and not rest[0].startswith("--") and (many or not taken):
        taken.append(rest.pop(0))
    return taken


def check_names(of_make: Mapping[str, str]) -> None:
    """Refuse a variable of make's command line that nothing would read."""
    for name, value in ignored(of_make).items():
        raise unknown_variable(name, value)


def ignored(of_make: Mapping[str, str]) -> dict[str, str]:
    """The variables of make's command line that neither we nor a library would read."""
    ours = {*map(str.upper, VARIABLES), *OF_MAKE}
    return {
        name: value
        for name, value in of_make.items()
        if name not in ours and not HANDED_ON.fullmatch(name) and not consent.is_harmless(name)
    }


def unknown_variable(name: str, value: str) -> UserError:
    """The error of a NAME=value that nothing reads: a key of a recipe, or a typo of a variable."""
    ours = [*map(str.upper, VARIABLES), *OF_MAKE]
    is_key = name.upper() not in ours and not HANDED_ON.fullmatch(name)
    key = find_key(name.lower(), keys_of_stages()) if is_key else ""
    near = nearest(name, ours)
    if key:
        remedy = f'for the key of a recipe write KEYS="{key}={value}"'
    elif near:
        remedy = f"{near}= was probably meant"
    else:
        remedy = 'write a recipe\'s key as KEYS="key=value", and the environment before the command'
    return UserError(f"{name}={value}: not a variable, so it would be ignored; {remedy}")


def keys_of_stages() -> list[str]:
    """The keys of all stages' YAML files; of the trained ones first."""
    from pipeline.key_types import known_keys
    from pipeline.stages import load_keys

    stages = sorted(
        (row for row in STAGES if STAGES[row].arguments), key=lambda s: s not in TRAINED
    )
    return [key for stage in stages for key in known_keys(*load_keys(stage)[:2])]


def take_values(request: Request) -> None:
    """Check each value alone, and split those of several words into `request.words`."""
    for name, value in request.values.items():
        kind = VARIABLES[name][0]
        check_value(name, value, kind, request.show(name))
        if kind == WORDS:
            request.words[name] = split_words(name, value)
        is_empty = not value or (name == "tasks" and not request.words[name])
        if name in ("recipe", "model", "run", "tasks") and is_empty:
            raise UserError(f"{name.upper()}: is empty; give it a value, or leave it out")


def check_value(name: str, value: str, kind: str, shown: str) -> None:
    """Refuse a value with signs of a shell or of several lines, or of another form than its own.

    Args:
        kind: of the variable, as in `VARIABLES`.
        shown: the variable as its user wrote it, for messages.
    """
    if kind in (PLAIN, SWITCH) and NOT_PLAIN.search(value):
        raise UserError(
            f"{shown}: must be a name or path without spaces, quotes or signs of a shell"
        )
    if name in ("recipe", "run", "seed") and ".." in value:
        raise UserError(f"{shown}: must be a name or path without ..")
    if kind == TEXT and ("\n" in value or value != value.strip() or "  " in value):
        raise UserError(f"{shown}: must be one line without two spaces in a row")
    if kind == SWITCH and value not in ("", "0", "1"):
        raise UserError(f"{shown}: must be 1 or 0")
    if name in FORMS:
        form, wanted = FORMS[name]
        if value and not re.fullmatch(form, value):
            raise UserError(f"{shown}: must be {wanted}")


def split_words(name: str, value: str) -> list[str]:
    """The words of a value, as a shell parts them; those of TASKS may be parted by commas, too."""
    try:
        words = [os.path.expanduser(word) for word in shlex.split(value)]
    except ValueError as error:
        raise UserError(f"{name.upper()}: a quote is not closed; close it") from error
    if name != "tasks":
        return words
    tasks = [task for word in words for task in word.split(",") if task]
    return list(dict.fromkeys(tasks))


def check_reads(request: Request, readable: set[str]) -> None:
    """Refuse what was given on the command line to goals that do not read it."""
    for name in sorted(request.given - readable):
        if not request[name]:
            continue
        if name == "runs":
            remedy = "it is for compare; to name one run, use RUN"
        elif name == "gpus":
            remedy = "it is for preflight and plan; to train on several GPUs, use NUM_PROCESSES"
            remedy += " and ACCELERATE"
        else:
            remedy = f"it is for {', '.join(goal for goal in GOALS if name in reads(goal))}"
        goals = ", ".join(request.goals)
        raise UserError(f"{request.show(name)}: {goals} does not read it; {remedy}")


def reads(goal: str) -> tuple[str, ...]:
    """The variables that a goal reads, beside those that name the run."""
    if goal in TOOLS:
        return TOOLS[goal].reads
    more = {"audit": ("completions",)} | dict.fromkeys(SCORING, ("tasks", "samples"))
    return (*CHAIN, *more.get(goal, ()))


def check_args(request: Request, make_goals: list[str]) -> None:
    """Refuse keys of a stage where several goals take them, or none."""
    if not request["args"]:
        return
    takers = [goal for goal in GOALS if takes_args(goal)]
    if len([goal for goal in make_goals or request.goals if goal in takers]) != 1:
        raise UserError(f"ARGS needs one goal that takes it: one of {', '.join(takers)}")


def takes_args(goal: str) -> bool:
    """Whether a goal takes keys of a YAML; a goal of several stages takes none."""
    return "args" in reads(goal) and goal not in ("demo", "report", "sweep", "control")


def locate(request: Request) -> None:
    """Find the recipe, and name the run after recipe, model, LoRA and seed."""
    tasks = request.words.get("tasks", [])
    name = request["recipe"] or ("evaluate" if tasks else "tiny-cpu")
    if name.endswith("-lora"):
        raise UserError(f"RECIPE: no {name}; use RECIPE={name.removesuffix('-lora')} LORA=1")
    request.recipe = find_recipe(name)
    if request.is_on("lora"):
        request.overlay = find_config("lora.yaml")
    model = f"-{name_model(request['model'])}" if request["model"] else ""
    lora = "-lora" if request.overlay else ""
    seed = f"/seed-{request['seed']}" if request["seed"] else ""
    home = request["run"] or f"runs/{Path(request.recipe).name}{model}{lora}{seed}"
    # Each list of tasks has its own scores; the completions are shared.
    run = f"{home}/{'-'.join(tasks)}" if tasks and not request["run"] else home
    request.run = os.path.normpath(run)  # one name, however it is written
    request.samples_dir = os.path.normpath(f"{home}/samples")
    check_links(request.run, "RUN")
    if Path(request.run).is_file():
        raise UserError(f"RUN: {request.run} is a file; name a folder")


def find_config(name: str) -> str:
    """A file or folder of configs/ here, or of the installed package where it is not here."""
    here = Path("configs", name)
    return str(here if here.exists() or not (RECIPES / name).exists() else RECIPES / name)


def find_recipe(name: str) -> str:
    """The folder of a recipe: one of configs/, one of the package's, or any folder.

    Raises:
        UserError: no recipe of this name, with the nearest one.
    """
    short = name.rstrip("/").removeprefix("configs/")
    for place in (find_config(short), name.rstrip("/")):
        if has_file("data", place) or is_for_scoring(place):
            return place
    known = known_recipes()
    near = nearest(short, known)
    remedy = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
    raise UserError(f"RECIPE: no recipe in configs/{short}; {remedy}")


def known_recipes() -> list[str]:
    """The recipes of configs/ here, and those of the package."""
    found = [path.parent for one in (Path("configs"), RECIPES) for path in one.glob("*/*.yaml")]
    return sorted(
        {one.name for one in found if has_file("data", str(one)) or is_for_scoring(str(one))}
    )


def name_model(model: str) -> str:
    """The last part of a model's path as a folder name, with a hash that tells equal names apart.

    A folder or file has the same name however its path is written.
    """
    path = os.path.realpath(model) if os.path.exists(model) else model
    plain = re.sub(r"[^\w-]+", ".", os.path.basename(path), flags=re.ASCII).strip(".")
    return f"{plain}-{sha256(os.fsencode(path)).hexdigest()[:6]}"


def name_checkpoint(model: str) -> str:
    """A model's last name, as a report calls a model that is scored alone."""
    return name_model(model).rpartition("-")[0].strip("-") or "model"


def check_scoring(request: Request, goals: Sequence[str]) -> None:
    """Refuse what the scoring of one model does not read, or lacks.

    Args:
        goals: all that make was given, too.
    """
    tasks = request.words.get("tasks", [])
    for task in tasks:
        if task not in known_tasks():
            raise UserError(unknown("TASKS", task, known_tasks()))
    is_own = not is_for_scoring(request.recipe)
    if request["samples"] and not tasks and is_own:
        raise UserError(
            f"{request.show('samples')}: is read with TASKS; a recipe's own evaluation takes "
            f'ARGS="--num_samples {request["samples"]}"'
        )
    others = [goal for goal in goals if "tasks" not in reads(goal)]
    if tasks and others:
        raise UserError(f"{request.show('tasks')}: {others[0]} does not read it; leave one out")
    if not request.is_scoring or request.only:
        return
    file = Path(request.recipe, "eval.yaml")
    evaluation = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    if not request["model"] and (is_own or not re.search("(?m)^checkpoints:", evaluation)):
        example = f'MODEL=folder-or-hub-id TASKS="{" ".join(tasks) or "math500 aime24"}"'
        message = f"MODEL is missing: name the model to score: {example}"
        if is_own:
            message += f'; the evaluation of {request.recipe} takes ARGS="--tasks {tasks[0]}"'
        raise UserError(message)
    for name in ("lora", "audit", "tokenizer"):
        if request[name]:
            raise UserError(f"{request.show(name)}: has no effect where MODEL is scored as it is")
    args = [word.partition("=")[0] for word in request.words.get("args", [])]
    for task, key in (("held_out", "test_file"), ("transfer", "transfer_file")):
        # A file of the run is one that its training made.
        is_named = re.search(rf"(?m)^{key}:(?!.*{{run}})", evaluation) or f"--{key}" in args
        if task in tasks and not is_named:
            raise UserError(f'TASKS: {task} needs a file of problems: ARGS="--{key} FILE"')


def check_goals(request: Request) -> None:
    """Refuse goals and variables that contradict each other or the recipe."""
    of_models = (*SCORING, "browse", "compare", "clean", "doctor", "fetch")
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
    if request.asks_for("clean") and len(request.goals) > 1:
        raise UserError("clean: give it alone, without another goal")
    if request["model"] and request.asks_for("base"):
        model = request.show("model")
        raise UserError(f"{model} takes the place of the model that base builds; leave one out")
    for goal, name, example in (
        ("sweep", "sweep", "learning_rate=1e-7 beta=0.1"),
        ("compare", "runs", "runs/a runs/b"),
        ("push", "repo", "owner/name"),
    ):
        if request.asks_for(goal) and not request[name]:
            raise UserError(f'{name.upper()}: missing; set it, such as {name.upper()}="{example}"')
    if request.asks_for("sweep", "control"):
        for entry in request.words.get("sweep", []):
            key, equals, value = entry.partition("=")
            if not key or not equals or not all(value.split(",")):
                raise UserError(
                    f"SWEEP={request['sweep']}: has a key without a value; write key=value,value"
                )
    check_launch(request)


def check_launch(request: Request) -> None:
    """Refuse an ACCELERATE that names no configuration, and NUM_PROCESSES without ACCELERATE."""
    folder = Path(find_config("accelerate"))
    known = sorted({path.stem for path in folder.glob("*.yaml")} - {"multi_node"})
    how = (request.words.get("accelerate") or [""])[0]
    if how and not how.startswith("--") and how not in known:
        near = nearest(how, known)
        remedy = f"did you mean {near}?" if near else f"choose one of {', '.join(known)}"
        raise UserError(
            f"ACCELERATE={how}: unknown (for several hosts see docs/scale.md); {remedy}"
        )
    needs_how = any(STAGES[stage].is_launched for stage in request.stages)
    if needs_how and not how and request["num_processes"] not in ("", "1"):
        raise UserError(
            f"NUM_PROCESSES={request['num_processes']}: needs ACCELERATE too, one of "
            f"{', '.join(known)}"
        )
