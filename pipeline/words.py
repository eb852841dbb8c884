"""The words of a command: `make grpo RECIPE=grpo7b learning_rate=1e-5 sft.max_length=1024`.

`python -m pipeline grpo …` takes the same words. Capitals are variables; they may come from the
environment, too. All other words with `=` are keys (pipeline/keys.py). make hands the words of its
command line on as MAKE_WORDS.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from pipeline.errors import UserError
from pipeline.key_types import validated
from pipeline.names import nearest

# Name: its type and its meaning. The text of a list is parted as a shell would.
VARIABLES: dict[str, tuple[Any, str]] = {
    "recipe": (str, "a folder of configs/, tiny-cpu by default"),
    "model": (str, "folder or hub id to start from, or smollm2, not the recipe's"),
    "run": (str, "folder of the run, runs/<recipe> by default"),
    "lora": (bool, "1: train LoRA adapters, with configs/lora.yaml"),
    "seed": (NonNegativeInt, "seed of every stage"),
    "data_root": (str, "folder of local data files, in place of the hub"),
    "tokenizer": (str, "folder or hub id of the tokenizer, if the model is not on this machine"),
    "accelerate": (list, "a file of configs/accelerate, or flags of `accelerate launch`"),
    "num_processes": (PositiveInt, "how many processes accelerate starts"),
    "max_hours": (PositiveFloat, "end training after so many hours, with a checkpoint to go on"),
    "force": (bool, "1: run the named stages again although they are up to date"),
    "audit": (Literal["on", "off"], "off: train although the audit fails"),
    "rehearse": (Literal["on", "off"], "off: train without a rehearsal of the stages before"),
    "tasks": (list, "eval: score MODEL alone on these and train nothing, as math500 aime24"),
    "samples": (NonNegativeInt, "eval, with TASKS: sampled completions a problem, and a greedy"),
    "completions": (str, "audit: show how each parser reads this file"),
    "sweep": (list, "sweep: key=value,value for each key to vary"),
    "parallel": (PositiveInt, "sweep, control: runs at a time, each on GPUs of its own"),
    "seeds": (list, "control: the seeds, 0 1 2 by default"),
    "gpus": (PositiveInt, "preflight, plan: training processes, one for each GPU"),
    "price": (PositiveFloat, "plan: price of a GPU-hour"),
    "runs": (list, "compare: folders of runs"),
    "out": (str, "compare: the page to write"),
    "repo": (str, "push: owner/name on the hub"),
    "yes": (
        Literal["0", "1", "states"],
        "clean: 1 removes the files, states the optimizers' states of earlier runs",
    ),
}
OPTIONS = {
    "dry-run": "print the commands that would run, and run none",
    "only": "run this one stage alone, without the stages before it",
    "list": "print the run's folder and the stages that are not up to date",
    "start-model": "print the model that GRPO starts from, then the flags of its vLLM server",
    "help": "this list; with a stage or tool: all of its keys",
}
# Read by the Makefile itself, or by a target that is no goal of this command.
OF_MAKE = ("PYTHON", "PY", "VENV", "VLLM", "SHAPE", "SMALL", "CPU_STANDIN")
# What the libraries below read; it is handed on as it is.
OF_THE_STACK = re.compile(
    r"(CUDA|HF|NCCL|WANDB|VLLM|OMP|PYTORCH|TORCH|SLURM|OPENAI|TOKENIZERS|TENSORBOARD|MLFLOW"
    r"|SWANLAB|TRACKIO)_\w+|ALLOW_CODE"
)
GONE = ("ARGS", "KEYS")


@dataclass
class Words:
    """A command as it was typed.

    Args:
        goals: in their order, each once.
        variables: values by name; typed: the names that were on the command line.
        keys: words such as `sft.max_length=1024`.
        options: names of OPTIONS.
        handed_on: variables of the libraries; unknown: those that nothing reads.
    """

    goals: tuple[str, ...]
    variables: dict[str, Any]
    typed: set[str]
    keys: list[str]
    options: set[str]
    handed_on: dict[str, str]
    unknown: dict[str, str]


def read(argv: Sequence[str], env: Mapping[str, str]) -> Words:
    """Read a command line, make's if it started this, and the environment.

    Raises:
        UserError: an unknown option, a variable given twice, no value, or one of another type.
    """
    goals: list[str] = []
    capitals: dict[str, str] = {}
    keys: list[str] = []
    options: set[str] = set()
    for word in (*argv, *of_make(env.get("MAKE_WORDS", ""))):
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            options.add(option(word))
        elif not equals:
            goals.append(word)
        elif not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            split_key(word)
            keys.append(word)
        elif capitals.setdefault(name, value) != value:
            raise UserError(f"{word}: {name} is given twice; remove one")
    refuse_gone(capitals)
    refuse_gone({name: env[name] for name in GONE if env.get(name)})
    typed = {name.lower() for name in capitals if name.lower() in VARIABLES}
    others = {name: value for name, value in capitals.items() if name.lower() not in typed}
    handed_on = {name: value for name, value in others.items() if OF_THE_STACK.fullmatch(name)}
    others = {name: value for name, value in others.items() if name not in handed_on}
    for name in typed:
        if not capitals[name.upper()].strip():
            raise UserError(f"{name.upper()}: is empty; give it a value, or leave it out")
    texts = {name: env.get(name.upper(), "") for name in VARIABLES}
    texts |= {name: capitals[name.upper()] for name in typed}
    variables = {name: value_of(name, text) for name, text in texts.items() if text}
    return Words(tuple(dict.fromkeys(goals)), variables, typed, keys, options, handed_on, others)


def split_key(word: str) -> tuple[str, str, str]:
    """`sft.max_length=1024` as `("sft", "max_length", "1024")`; "" where no stage is named."""
    name, _, text = word.partition("=")
    stage, _, key = name.rpartition(".")
    if not key or not text or name.startswith("."):
        remedy = "write key=value without blanks, and key=null for the default"
        raise UserError(f"{word}: has no stage, key or value; {remedy}")
    return stage, key, text


def of_make(overrides: str) -> list[str]:
    """The words of make's command line, without those that make itself reads.

    Blanks within a word have a backslash there, and a dollar sign is doubled.
    """
    words = re.findall(r"(?:\\.|\S)+", overrides, re.DOTALL)
    plain = [re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL).replace("$$", "$") for word in words]
    return [word for word in plain if word.partition("=")[0] not in OF_MAKE]


def option(word: str) -> str:
    """The name of an option; `--learning_rate` is none."""
    name = {"-h": "help"}.get(word, word.lstrip("-"))
    if name in OPTIONS:
        return name
    if near := nearest(name, [*OPTIONS]):
        raise UserError(f"{word}: unknown option; did you mean --{near}?")
    name = name.partition("=")[0]
    name = name.upper() if name in VARIABLES else name
    raise UserError(f"{word}: no option; variables and keys are written {name}=VALUE")


def refuse_gone(found: Iterable[str]) -> None:
    """Refuse ARGS and KEYS: keys are words of their own."""
    for name in GONE:
        if name in found:
            example = "make grpo learning_rate=1e-5 sft.max_length=1024"
            raise UserError(f"{name}: is not read; write each key as a word of its own: {example}")


def text_of(value: Any) -> str:
    """A variable's value as it was typed."""
    return shlex.join(value) if isinstance(value, list) else str(value)


def value_of(name: str, text: str) -> Any:
    """The value of a variable as its type has it."""
    kind = VARIABLES[name][0]
    if kind is str:
        return text
    try:
        return shlex.split(text) if kind is list else validated(kind, name.upper(), text)
    except ValueError as error:
        fault = f"{name.upper()}: a quote is not closed; close it" if kind is list else error
        raise UserError(str(fault)) from error
