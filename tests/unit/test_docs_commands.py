"""Every command of README and docs is one that works here, needs a GPU and says so, or has a test.

Commands are planned as `--dry-run` does, and every stage's command line, of the pages or of that
plan, is read by the stage's own parser. What nothing here can check says that it is for a GPU or a
network, or is in `ELSEWHERE`.
"""

import functools
import importlib.util
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline import commands, names, stages, variables
from pipeline.errors import UserError
from pipeline.settings import read_settings
from tests import demo
from tests.recipes import SCORING, SHIPPED

ROOT = demo.ROOT
PACKAGES = ("pipeline", "grading", "data_prep", "stages", "eval")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "configs" / name / "README.md" for name in (*SHIPPED, *SCORING)]
# The log speaks of what was there at its time.
PAGES = [page for page in PAGES if page.name != "LOG.md"]
TOOLS = (
    "make|python3?|sft-grpo-math|accelerate|vllm|pip|sbatch|tensorboard|trackio|curl|cp|git|hf|trl"
    "|wandb|docker|ray|torchrun|deepspeed|wget|bash|nvidia-smi|pre-commit"
)
COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ +)*(?:\.venv[\w-]*/bin/)?(?:{TOOLS})(?= |$)")
IS_MARKED = re.compile(r"\bGPUs?\b|network|server|hub\b", re.IGNORECASE)
# What begins so is run, or its work is read, by this test.
ELSEWHERE = {
    "cp -r configs/": "tests/e2e/test_readme.py",
    ".venv/bin/python mine.py": "tests/integration/trainer/test_own_reward.py",
    "git apply": "tests/integration/test_architecture.py",
    "sbatch --nodes 3 configs/accelerate/slurm.sh": "tests/integration/stages/test_slurm_script.py",
    ".venv/bin/tensorboard --logdir runs": "tests/integration/stages/test_trackers.py",
}
PLACES = {"GOAL", "STAGE", "COMMAND", "NAME"}  # which a reader fills in
REFERENCES = ("vllm serve", "trl vllm-serve", "pip install", "git checkout", "python -m")  # named


class Command(NamedTuple):
    """A command of a page; `around` is its line, and of a block all of the block."""

    text: str
    around: str


def split(text: str) -> tuple[list[str], list[str]]:
    """The blocks of a page that hold commands, fenced or indented, and the lines of its prose."""
    blocks, prose, language = [""], [], None
    for line in text.splitlines():
        if line.startswith("```"):
            language = line[3:] if language is None else None
            blocks.append("")
        elif language in ("", "bash", "sh") or (language is None and line.startswith("    ")):
            blocks[-1] += f"{line.strip()}\n"
        elif language is None:
            blocks.append("")
            prose.append(line)
    return [block for block in blocks if block], prose


def find_commands(text: str) -> list[Command]:
    """The commands of a page: lines of its blocks, and whole `code` in its prose."""
    blocks, prose = split(text)
    lines = [(line, block) for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [(code, line) for line in prose for code in re.findall(r"`([^`]+)`", line)]
    return [Command(*one) for one in lines if COMMAND.match(one[0])]


def words_of(text: str) -> list[str]:
    """A command's words without its comment, its program's folder and the environment before it."""
    words = shlex.split(text, comments=True)
    while "=" in words[0]:
        del words[0]
    return [words[0].rpartition("/")[2], *words[1:]]


def check_goals(goals: tuple[str, ...], words: list[str], env: dict[str, str]) -> None:
    """Check a command's variables, and all command lines that it comes to."""
    request = variables.read([*goals, *words], env)
    variables.check_goals(request)
    found = [commands.stage_command(request, request.goals[0])] if request.only else []
    for command in found or commands.commands(request):
        words = list(command.words)
        if words[1] == "stages.launch":
            check_launch(words[2:])
        else:
            check_module(tuple(words[1:]))


def check_make(words: list[str]) -> None:
    """Check the targets and variables of a make command."""
    given = dict(word.split("=", 1) for word in words if re.match(r"\w+=", word))
    targets = [word for word in words if "=" not in word and not word.startswith(("-", "."))]
    escaped = " ".join(f"{k}={re.sub(r'([ ])', chr(92) + ' ', v)}" for k, v in given.items())
    env = {"MAKE_GOALS": " ".join(targets), "MAKEFLAGS": f" -- {escaped}", **given}
    for target in targets:
        if target in stages.GOALS:
            check_goals((target,), [], env)
        else:
            known = target in names.targets() or target.startswith("bench-")
            assert known, names.unknown("target", target, names.targets())
            variables.check_names(given)


@functools.cache
def keys_of(module: str) -> tuple:
    """What a module's `main` gives to `parse`: our dataclass, and the names of Hugging Face's."""
    folder = importlib.util.find_spec(module).submodule_search_locations
    loaded = importlib.import_module(f"{module}.__main__" if folder else module)
    taken: list[tuple] = []

    def parse(doc, own, hf=(), *rest, **named):
        taken.append((own, hf))
        raise StopIteration

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded, "parse", parse)
        patch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(StopIteration):
            loaded.main()
    return taken[0]


@functools.cache
def check_module(words: tuple[str, ...]) -> None:
    """Check `module --flags`; raises `AssertionError`, `UserError`."""
    module, *argv = words
    assert importlib.util.find_spec(module) is not None, f"no module {module}"
    if module == "stages.launch":
        return check_launch(argv)
    if module == "grading":
        importlib.import_module("grading.__main__")._parse(argv)
    elif module.startswith(("benchmarks", "tests")):  # by their text: some import torch
        source = importlib.util.find_spec(module).origin
        if (folder := Path(source).parent) and source.endswith("__init__.py"):
            source = folder / "__main__.py"
        text = Path(source).read_text(encoding="utf-8")
        flags = {re.split("=", word[2:])[0] for word in argv if word.startswith("--")}
        unknown = [f for f in flags if not re.search(rf'^    {f}: |"--{f}"', text, re.M)]
        assert {*unknown} <= {"config"}, f"{module}: unknown {unknown}"
    elif (
        module.startswith(("stages", "eval", "data_prep", "grading", "pipeline"))
        and argv[:1]
        and argv[0][:2] == "--"
        and argv != ["--help"]
    ):
        read_settings(*keys_of(module), argv)
    return None


def check_launch(words: list[str]) -> None:
    """Check `accelerate launch`'s words: its config file, and the stage that it starts."""
    at = words.index("-m") if "-m" in words else len(words)
    if "--config_file" in words[:at]:
        file = words[words.index("--config_file") + 1]
        assert (ROOT / file).is_file(), f"no file {file}"
    if words[at:]:
        check_module(tuple(words[at + 1 :]))


def check_pipeline(words: list[str]) -> None:
    """Check what is behind `sft-grpo-math` or `python -m pipeline`."""
    if words[0] in stages.PASSED_ON:
        check_module((stages.PASSED_ON[words[0]], *words[1:]))
    else:
        check_goals((), words, {})


def check(command: Command) -> None:
    """Check one command; raises `AssertionError`, `UserError`."""
    given = re.sub(r'(?<= )[A-Z_]+=(?:"?…"?)?(?= |$)', "", command.text)  # DATA_ROOT=…
    program, *words = words_of(given)
    if any("…" in word or word.startswith("<") for word in words) and not IS_MARKED.search(given):
        words = [word for word in words if "…" not in word and not word.startswith("<")]
        if not words:
            return  # spoken of
    if PLACES & {*words}:
        return  # spoken of
    if program == "make":
        check_make(words)
    elif program in ("python", "python3") and words[:2] == ["-m", "pipeline"] and words[2:]:
        check_pipeline(words[2:])
    elif program in ("python", "python3") and words[:1] == ["-m"] and words[1:]:
        check_module(tuple(words[1:]))
    elif command.text.startswith(tuple(ELSEWHERE)):
        pass
    elif program == "accelerate":
        check_launch(words)
    elif program == "sft-grpo-math" and words:
        check_pipeline(words)
    else:
        is_spoken_of = command.text in REFERENCES or not words
        assert is_spoken_of or IS_MARKED.search(command.around), "not said to need a GPU or network"


def faults(commands: list[Command]) -> list[str]:
    """What is wrong with each command."""
    found = []
    for command in dict.fromkeys(commands):
        try:
            check(command)
        except (AssertionError, UserError, ValueError) as error:
            found.append(f"{command.text}: {error}")
    return found


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_the_commands_of_the_pages_work_or_say_what_they_need():
    found = [one for page in PAGES for one in find_commands(page.read_text(encoding="utf-8"))]
    assert len(found) > 150
    spoken_of = {"make compare", "make push", "make sweep"}
    assert faults([one for one in found if one.text not in spoken_of]) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("`make grop`", "did you mean 'grpo'"),
        ("    make grpo RECIPE=grpo8b\n", "no recipe in configs/grpo8b"),
        ('`make grpo ARGS="--learning_rat 1"`', "did you mean 'learning_rate'"),
        ("`make report RECIP=grpo7b`", "RECIPE= was probably meant"),
        ("`make demo GPUS=2`", "it is for preflight and plan"),
        ("```\nmake grpo ACCELERATE=fsdp3\n```\n", "did you mean fsdp2"),
        ("`python -m stages.gpro --config configs/tiny-cpu/grpo.yaml`", "no module"),
        ("`python -m stages.sft --config configs/tiny-cpu/stf.yaml`", "no such config file"),
        ("`python -m benchmarks.memory --forms x`", "unknown ['forms']"),
        ("`python -m grading FILE --form essay`", "invalid choice"),
        ("`sft-grpo-math sfft --only --config tiny-cpu/sft.yaml`", "did you mean 'sft'"),
        (
            "    accelerate launch --config_file configs/accelerate/zero4.yaml \\\n"
            "        -m stages.sft --config configs/tiny-cpu/sft.yaml\n",
            "no file configs/accelerate/zero4.yaml",
        ),
        ("`vllm serve runs/x`", "not said to need"),
    ],
)
def test_a_wrong_command_is_found(text, words):
    (fault,) = faults(find_commands(text))
    assert words in fault


def test_marked_commands_and_those_that_have_a_test_pass():
    assert faults(find_commands("On a GPU: `vllm serve runs/x`")) == []
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())
