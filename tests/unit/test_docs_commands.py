"""Every command of README and docs is one that works here, needs a GPU and says so, or has a test.

Commands are planned as `--dry-run` does, and every stage's command line, of the pages or of that
plan, is read by the stage's own parser. The check before the first stage passes on the launch of
each command. What nothing here can check says that it is for a GPU or a
network, or is in `ELSEWHERE`.
"""

import functools
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from pipeline import commands, names, stages
from pipeline import request as requests
from pipeline import words as typed_words
from pipeline.errors import UserError
from pipeline.scoring import check_scoring
from pipeline.settings import read_settings
from stages.preflight import rehearsal
from tests.pages import ROOT, Command, commands_of_pages, find_commands, read_make, words_of
from tests.recipes import LAUNCHES

IS_PAST = re.compile(r"\bat commit `?[0-9a-f]{7}")  # the page says where to find it
IS_MARKED = re.compile(r"\bGPUs?\b|network|server|hub\b", re.IGNORECASE)
# What begins so is run, or its work is read, by this test.
ELSEWHERE = {
    "cp -r configs/": "tests/e2e/test_readme.py",
    ".venv/bin/python mine.py": "tests/integration/trainer/test_own_reward.py",
    "bash .ci/run": ".github/workflows/ci.yml",
    "git apply": "tests/integration/test_architecture.py",
    ".venv/bin/tensorboard --logdir runs": "tests/integration/stages/test_trackers.py",
}
# Who runs the goals of make that pages name: on a shortened demo, a tiny model or a stand-in.
RUN_BY = {
    "tests/integration/test_page_commands.py": (
        "help", "doctor", "preflight", "plan", "clean", "data", "base", "audit", "browse",
        "compare", "data-report",
    ),
    "tests/e2e/test_pipeline.py": ("demo", "sft", "difficulty", "grpo", "eval", "report"),
    "tests/integration/sampling/test_distill_run.py": ("distill",),
    "tests/integration/stages/test_sweep_run.py": ("sweep", "control"),
    "tests/unit/harness/test_push.py": ("push",),
    "tests/unit/test_fetch.py": ("fetch",),
    "tests/integration/benchmarks/test_small.py": (
        "bench", "bench-curriculum", "bench-grader", "bench-guards", "bench-time",
    ),
    "tests/integration/benchmarks/test_study.py": ("study",),
    "tests/unit/benchmarks/test_verdicts.py": ("verdicts",),
    "tests/integration/benchmarks/test_gpu_check.py": ("gpu-check",),
    "tests/integration/test_site.py": ("docs",),
    ".ci/run": ("test", "lint", "golden"),
    "Makefile": ("test-fast", "test-slow", "test-vllm", "vllm-cpu", "chaos", "gpu-env", "lock"),
}  # fmt: skip
SPOKEN_OF = {"make compare", "make push", "make sweep"}  # each needs a variable
COPIED = "grpo7b"  # the recipe that a reader has copied to `configs/mine`
PLACES = {"GOAL", "STAGE", "COMMAND", "NAME"}  # which a reader fills in
REFERENCES = ("vllm serve", "trl vllm-serve", "pip install", "git checkout", "python -m")  # named


def check_goals(goals: tuple[str, ...], words: list[str], env: dict[str, str]) -> None:
    """Check a command's variables, and all command lines that it comes to."""
    request = requests.read([*goals, *words], env)
    requests.check_goals(request)
    check_scoring(request)
    found = [commands.only_command(request)] if "only" in request.options else []
    check_ahead(commands.look_ahead(request))
    for command in found or commands.commands(request):
        words = list(command.words)
        if words[1] == "stages.run.launch":
            check_launch(words[2:])
        else:
            check_module(tuple(words[1:]))


def check_ahead(words: tuple[str, ...]) -> None:
    """Make the check of all stages before the first starts, as on a host with GPUs and packages."""
    if words[1:2] != ("stages.preflight.rehearsal",):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*words[1:]])
        patch.setattr(rehearsal, "is_installed", lambda package: True)
        patch.setattr(rehearsal, "check_packages", lambda settings: None)
        patch.setattr(rehearsal, "check_servers", lambda values: None)
        # A reader's own modules, which a page shows.
        for name in ("check_own", "load_own"):
            patch.setattr(f"stages.rules.{name}", lambda name, *_: name)
        rehearsal.main()


def check_make(words: list[str]) -> None:
    """Check the targets and variables of a make command."""
    targets, env = read_make(words)
    for target in targets:
        if target in stages.GOALS:
            check_goals((target,), [], env)
        else:
            known = target in names.targets() or target.startswith("bench-")
            assert known, names.unknown("target", target, names.targets())
            given = typed_words.of_make(env["MAKE_WORDS"])
            typed_words.read([word for word in given if not word.startswith("ARGS=")], {})


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


def text_of(module: str) -> str:
    """The source of a module, or of a package's entry point."""
    source = Path(importlib.util.find_spec(module).origin)
    if source.name == "__init__.py":
        source = source.with_name("__main__.py")
    return source.read_text(encoding="utf-8")


@functools.cache
def check_module(words: tuple[str, ...]) -> None:
    """Check `module --flags`; raises `AssertionError`, `UserError`."""
    module, *argv = words
    assert importlib.util.find_spec(module) is not None, f"no module {module}"
    if module == "stages.run.launch":
        return check_launch(argv)
    if module == "grading":
        importlib.import_module("grading.__main__")._parse(argv)
    elif module.startswith(("benchmarks", "tests")):  # by their text: some import torch
        text = text_of(module)
        for other in re.findall(
            r"^from (benchmarks\.\w+) import|^import (benchmarks\.\w+)", text, re.M
        ):
            text += text_of("".join(other))
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


def is_tested(command: Command) -> bool:
    """Whether a test of its own runs a command."""
    return command.text.startswith(tuple(ELSEWHERE))


def check(command: Command) -> None:
    """Check one command; raises `AssertionError`, `UserError`."""
    if IS_PAST.search(command.around):
        return
    given = re.sub(r'(?<= )[A-Z_]+=(?:"?…"?)?(?= |$)', "", command.text).strip()  # DATA_ROOT=…
    given = re.sub(r"\bRECIPE=mine\b", lambda one: one[0].replace("mine", COPIED), given)
    program, *words = words_of(given)
    if any("…" in word or word.startswith("<") for word in words) and not IS_MARKED.search(given):
        words = [word for word in words if "…" not in word and not word.startswith("<")]
        if not words:
            return  # spoken of
    if PLACES & {*words} or given in SPOKEN_OF or words[-1:] == ["--help"]:
        return
    if program == "make":
        check_make(words)
    elif program in ("python", "python3") and words[:2] == ["-m", "pipeline"] and words[2:]:
        check_pipeline(words[2:])
    elif program in ("python", "python3") and words[:1] == ["-m"] and words[1:]:
        check_module(tuple(words[1:]))
    elif program == "python" and words[:1] and words[0].endswith(".py"):
        assert (ROOT / "examples" / Path(words[0]).name).is_file() or is_tested(command)
    elif is_tested(command):
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
    found = commands_of_pages()
    assert len(found) > 150
    wrong = faults(found)
    assert wrong == [], "\n".join(wrong)


def test_the_readme_shows_what_make_grpo_starts(monkeypatch):
    monkeypatch.setattr(commands, "looks_current", lambda *_: False)
    planned = commands.commands(requests.read(["grpo", "RECIPE=grpo7b"], {}))
    shown = "".join(f"{' '.join(('python', *one.words))}\n" for one in planned)
    assert shown.count("\n") == 5 and shown in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_commands_at_the_heads_of_the_launch_files_work():
    for name in LAUNCHES:
        text = (ROOT / f"configs/accelerate/{name}.yaml").read_text(encoding="utf-8")
        head = re.sub(r"(?m)^#( {3})?", lambda mark: "    " if mark[1] else "", text)
        found = find_commands(head)
        assert found and faults(found) == [], name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("`make grop`", "did you mean 'grpo'"),
        ("    make grpo RECIPE=grpo8b\n", "no recipe in configs/grpo8b"),
        ("`make grpo learning_rat=1`", "did you mean 'learning_rate'"),
        ("`make report RECIP=grpo7b`", "did you mean 'RECIPE'"),
        ("`make demo GPUS=2`", "it is for preflight and plan"),
        ("```\nmake grpo ACCELERATE=fsdp3\n```\n", "did you mean fsdp2"),
        ("`make sft RECIPE=grpo7b ACCELERATE=fsdp2 NUM_PROCESSES=8`", "set dtype to float32"),
        (
            "`make grpo RECIPE=grpo7b ACCELERATE=fsdp2 NUM_PROCESSES=16 sft.dtype=float32 "
            "grpo.dtype=float32`",
            "no whole number on 16",
        ),
        ("`make report RECIPE=rlite ACCELERATE=cpu`", "is for CPUs"),
        ("`python -m stages.gpro --config configs/tiny-cpu/grpo.yaml`", "no module"),
        ("`python -m stages.sft --config configs/tiny-cpu/stf.yaml`", "no such config file"),
        ("`python -m benchmarks.memory --forms x`", "unknown ['forms']"),
        ("`python -m grading FILE --form essay`", "invalid choice"),
        ("`sft-grpo-math sfft RECIPE=tiny-cpu`", "did you mean 'sft'"),
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


def test_every_goal_of_the_pages_is_run_by_a_test():
    goals = set()
    for command in commands_of_pages():
        program, *words = words_of(command.text)
        if program == "make" and not IS_PAST.search(command.around):
            goals |= {goal for goal in read_make(words)[0] if not {*"<…"} & {*goal}} - PLACES
    assert goals - {goal for run in RUN_BY.values() for goal in run} == set()
    assert [file for file in RUN_BY if not (ROOT / file).is_file()] == []
