"""The table of stages: what each one runs, needs and reads.

`python -m pipeline`, the sweep, preflight and the tests read it; make and the Slurm script ask
`python -m pipeline`. Modules and classes are text, so that reading the table imports nothing.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECIPES = Path(__file__).with_name("recipes")  # of the clone, or of the installed package
MEMORY_REMEDY = "end other programs, or use a machine with more memory"


@dataclass(frozen=True)
class Stage:
    """A stage of a recipe.

    Args:
        module: started as `python -m module`.
        meaning: for the list of commands.
        needs: stages that come before it, where the recipe has them.
        needs_if_read: stages that come before it, where its YAML reads their folder.
        flags: variables that it takes, beside those of every stage.
        reads: variables that it reads only if it is asked for by name.
        config: name of its YAML, where that is not the stage's.
        is_optional: a recipe has the stage only if it has its YAML.
        is_launched: `ACCELERATE` starts it on several processes.
        arguments: `module:class` of its own keys; hf: names of the Hugging Face classes beside it.
        options: `module:class` of the keys of one that has no YAML.
        check: `module:function` that checks the keys of its YAML alone.
        code: files and folders of ours that decide its result; a change makes the result stale.
        list_inputs: `module:function` that lists the files that it would read now, by its
            configuration.
        memory_remedy: what to do if memory is full, for the message.
    """

    module: str
    meaning: str
    needs: tuple[str, ...] = ()
    needs_if_read: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    config: str = ""
    is_optional: bool = False
    is_launched: bool = False
    arguments: str = ""
    options: str = ""
    hf: tuple[str, ...] = ()
    check: str = ""
    code: tuple[str, ...] = ()
    list_inputs: str = ""
    memory_remedy: str = MEMORY_REMEDY


TO_TRAIN = (
    "LORA=1, ACCELERATE=fsdp2 or a smaller model needs less; `make preflight` prints each part"
)
TO_SAMPLE = "lower batch_size; with backend: vllm set vllm_max_model_length"
STAGES = {
    "data": Stage(
        "data_prep.builder",
        "build the data files",
        flags=("data_root",),
        arguments="data_prep.builder.recipe:DataArguments",
        check="data_prep.builder.recipe:check_settings",
        list_inputs="data_prep.builder.recipe:local_files",
        memory_remedy="lower num_workers",
    ),
    "base": Stage(
        "stages.tiny_model",
        "a random-init base model (recipes with a model.yaml)",
        needs=("data",),
        config="model",
        is_optional=True,
        arguments="stages.tiny_model:ModelArguments",
    ),
    "sft": Stage(
        "stages.sft",
        "supervised fine-tuning, before GRPO",
        needs=("data", "base"),
        needs_if_read=("distill",),
        flags=("model", "overlay"),
        is_launched=True,
        is_optional=True,
        arguments="stages.arguments:SftArguments",
        hf=("SFTConfig", "ModelConfig"),
        check="stages.rules:check_sft_keys",
        memory_remedy=TO_TRAIN,
    ),
    "difficulty": Stage(
        "stages.difficulty",
        "pass rate of each problem, by the SFT model",
        needs=("sft",),
        flags=("model",),
        is_launched=True,
        is_optional=True,
        arguments="data_prep.sampling:ProblemSetArguments",
        check="data_prep.sampling.keys:check_sampling",
        memory_remedy=TO_SAMPLE,
    ),
    "distill": Stage(
        "stages.distill",
        "correct solutions of a teacher model (recipes with a distill.yaml)",
        needs=("data",),
        needs_if_read=("sft",),
        is_launched=True,
        is_optional=True,
        arguments="stages.distill:DistillArguments",
        check="stages.distill:check_keys",
        memory_remedy=TO_SAMPLE,
    ),
    "audit": Stage(
        "eval.audit",
        "check that correct answers earn the reward, and only those",
        needs=("data", "base"),
        flags=("data_root", "model", "tokenizer", "completions", "keys"),
        reads=("completions",),
        options="eval.audit.__main__:AuditArguments",
        code=("grading", "eval/audit", "stages/rewards.py", "pipeline/prompts.py"),
    ),
    "grpo": Stage(
        "stages.grpo",
        "GRPO with verifiable rewards",
        needs=("data", "audit", "sft", "difficulty"),  # the audit before what costs hours
        flags=("model", "overlay"),
        is_launched=True,
        arguments="stages.arguments:GrpoArguments",
        hf=("GRPOConfig", "ModelConfig"),
        check="stages.rules:check_grpo_keys",
        memory_remedy=TO_TRAIN,
    ),
    "eval": Stage(
        "eval.run",
        "score base, SFT and GRPO on benchmarks; with TASKS= one MODEL= alone",
        needs=("grpo", "audit"),
        flags=("model", "data_root"),
        reads=("tasks", "samples"),
        is_launched=True,
        arguments="eval.harness.settings:EvalArguments",
        check="data_prep.sampling.keys:check_sampling",
        memory_remedy=TO_SAMPLE,
        code=(
            "grading",
            "eval/harness",
            "eval/tasks",
            "eval/run.py",
            "pipeline/prompts.py",
            "data_prep/schema.py",
            "data_prep/sources",
            "data_prep/decontamination/benchmarks.py",
        ),
    ),
    "report": Stage(
        "eval.report",
        "the page of results: tables, tests and curves",
        needs=("eval",),
        flags=("model", "data_root"),
        reads=("tasks", "samples"),
        config="eval",
    ),
}
BEFORE_GRPO = STAGES["grpo"].needs
SCORING = ("eval", "report")  # all that a model from elsewhere needs to be scored
TASKS = ROOT / "eval/tasks"  # a file for each task
TRAINED = tuple(name for name, row in STAGES.items() if row.hf)  # by TRL's trainers
# The data and the base come first: they report a mistake just as soon themselves.
CHECKED_AHEAD = tuple(
    name for name, row in STAGES.items() if row.arguments and name not in ("data", "base")
)


@dataclass(frozen=True)
class Tool:
    """A command beside the stages.

    Args:
        module: started as `python -m module`; "" for what `python -m pipeline` does itself.
        meaning: for the list of commands.
        needs: stages that come before it; their variables are read, too.
        flags: what its command is given, by the names in `commands.values_of`.
        reads: further variables that it reads.
        options: `module:class` of its own keys.
        writes: whether it writes to the run's folder, and so takes its lock.
    """

    module: str
    meaning: str
    needs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ("recipe", "run")
    reads: tuple[str, ...] = ()
    options: str = ""
    writes: bool = False


OF_RECIPE = ("recipe", "run", "overlay", "model", "data_root", "tokenizer", "accelerate")
OF_SWEEP = (
    "grpo_config", "run", "launcher", "overlay", "model", "data_root", "keys", "parallel",
    "num_processes",
)  # fmt: skip
TOOLS = {
    "sweep": Tool(
        "stages.sweep",
        'train every combination of values: SWEEP="beta=0,0.04 seed=0,1"',
        BEFORE_GRPO,
        (*OF_SWEEP, "sweep"),
        writes=True,
    ),
    "control": Tool(
        "stages.sweep",
        "control runs: GRPO with a random and with a format-only reward",
        BEFORE_GRPO,
        (*OF_SWEEP, "folder", "sweep"),
        reads=("seeds",),
        writes=True,
    ),
    "preflight": Tool(
        "stages.preflight",
        "check a recipe for mistakes, memory and disk (GPUS=8)",
        flags=(*OF_RECIPE, "gpus", "keys"),
        reads=("rehearse",),
        options="stages.preflight.inputs:PreflightArguments",
    ),
    "plan": Tool(
        "stages.preflight.plan",
        "hours, tokens and cost of each stage (GPUS=8 PRICE=2.5)",
        flags=(*OF_RECIPE, "gpus", "price", "keys"),
        options="stages.preflight.plan:PlanArguments",
    ),
    "fetch": Tool(
        "eval.fetch",
        "models, data and benchmark sets into the cache, for hosts without a network",
        ("data",),
        ("recipe", "run", "model", "data_root", "keys"),
        writes=True,
    ),
    "doctor": Tool("stages.doctor", "versions, devices, disk, recipe: paste it into an issue"),
    "data-report": Tool(
        "eval.report.data_report",
        "what the data build kept and left out",
        ("data",),
        ("data",),
        writes=True,
    ),
    "browse": Tool(
        "eval.report.browse", "a page of completions with filters", (), ("run",), ("tasks",)
    ),
    "compare": Tool(
        "eval.report.compare", 'runs side by side: RUNS="runs/a runs/b"', (), ("runs", "out")
    ),
    "push": Tool(
        "eval.push",
        "upload the final model: REPO=owner/name",
        flags=("config", "run_dir", "seed", "model", "repo"),
        options="eval.push:PushArguments",
    ),
    "show": Tool(
        "",
        "each key of a recipe and the file that gives it: show RECIPE [STAGE]",
        flags=(*OF_RECIPE, "keys"),
    ),
    "clean": Tool("", "list the files of a run; YES=1 removes them", reads=("tasks", "yes")),
}
# Everything behind these words goes to the module as it is.
PASSED_ON = {"grade": "grading", "launch": "stages.run.launch"}
GOALS = ("demo", *STAGES, *TOOLS)


def stage_of_process() -> tuple[str, str]:
    """The stage, tool or module that this process was started as, and what needs less memory."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem
    for name, row in STAGES.items():
        if row.module == module:
            return name, row.memory_remedy
    return module, MEMORY_REMEDY


def config_name(stage: str) -> str:
    """The name of a stage's YAML in its recipe, without `.yaml`."""
    return STAGES[stage].config or stage


COMMANDS: dict[str, Stage | Tool] = {**STAGES, **TOOLS}


def load(name: str) -> Any:
    """The object that `module:name` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _as_given(settings: Any) -> Any:
    """The check of a stage that needs none."""
    return settings


def load_keys(stage: str) -> tuple[type, tuple[str, ...], Callable[..., Any]]:
    """The class of a stage's own keys, the names of Hugging Face's classes, the check of both."""
    row = STAGES[stage]
    return load(row.arguments), row.hf, load(row.check) if row.check else _as_given


def has_file(stage: str, recipe: str) -> bool:
    """Whether a recipe has the YAML of a stage; the audit reads all of them and has none."""
    return stage == "audit" or Path(recipe, f"{config_name(stage)}.yaml").is_file()


def is_for_scoring(recipe: str) -> bool:
    """Whether a recipe only scores models: it builds no data and trains nothing."""
    return has_file("eval", recipe) and not (has_file("data", recipe) or has_file("grpo", recipe))


def known_tasks() -> list[str]:
    """The names of the tasks that score completions with our own grader."""
    names = sorted(path.stem for path in TASKS.glob("*.yaml"))
    return [name for name in names if not name.startswith(("official_", "think_common"))]
