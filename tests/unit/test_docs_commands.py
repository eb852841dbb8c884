"""Every command of README and docs for make, Python or accelerate works here.

Commands are planned as `--dry-run` does, and every stage's command line, of the pages or of that
plan, is read by the stage's own parser. The check before the first stage passes on the launch of
each command.
"""

import functools
import importlib
import importlib.util
import re
import sys

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
from tests.settings import classes_of
from tests.tables import tables_beside

table = tables_beside(__file__)

IS_PAST = re.compile(r"\bat commit `?[0-9a-f]{7}")  # the page says where to find it
SPOKEN_OF = {"make compare", "make push", "make sweep"}  # each needs a variable
COPIED = "grpo7b"  # the recipe that a reader has copied to `configs/mine`
PLACES = {"GOAL", "STAGE", "COMMAND", "NAME"}  # which a reader fills in


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
def check_module(words: tuple[str, ...]) -> None:
    """Check `module --flags`; those of benchmarks and tests are their own."""
    module, *argv = words
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"no module {module}"
    if module == "stages.run.launch":
        check_launch(argv)
    elif module == "grading":
        importlib.import_module("grading.__main__")._parse(argv)
    elif module == "pipeline" and argv[:1] != ["--help"]:
        check_pipeline(argv)
    elif module.startswith(("stages", "eval", "data_prep")) and argv[:1] not in ([], ["--help"]):
        command = f"{module}.__main__" if spec.submodule_search_locations else module
        read_settings(*classes_of(command), argv)


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
    if words and words[0] in stages.PASSED_ON:
        check_module((stages.PASSED_ON[words[0]], *words[1:]))
    elif words:
        check_goals((), words, {})


def check(command: Command) -> None:
    """Check one command; raises `AssertionError`, `UserError`."""
    given = re.sub(r'(?<= )[A-Z_]+=(?:"?…"?)?(?= |$)', "", command.text).strip()  # DATA_ROOT=…
    given = re.sub(r"\b(RECIPE=|show )mine\b", rf"\1{COPIED}", given)
    program, *words = words_of(given)
    words = [word for word in words if "…" not in word and not word.startswith("<")]
    is_whole = words and not PLACES & {*words} and words[-1] != "--help"
    if IS_PAST.search(command.around) or given in SPOKEN_OF or not is_whole:
        return
    if program == "make":
        check_make(words)
    elif program in ("python", "python3") and words[0] == "-m" and words[1:]:
        check_module(tuple(words[1:]))
    elif program == "accelerate":
        check_launch(words)
    elif program == "sft-grpo-math":
        check_pipeline(words)


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
    # The paths of the pages are examples.
    monkeypatch.setattr("stages.preflight.rehearsal.missing_inputs", lambda *_: ())


def test_the_commands_of_the_pages_work():
    found = commands_of_pages()
    assert len(found) > 150
    wrong = faults(found)
    assert wrong == [], "\n".join(wrong)


def test_the_readme_shows_what_make_grpo_starts(monkeypatch):
    monkeypatch.setattr(commands, "looks_current", lambda *_: False)
    planned = commands.commands(requests.read(["grpo", "RECIPE=grpo7b"], {}))
    shown = "".join(f"{' '.join(('python', *one.words))}\n" for one in planned)
    assert shown.count("\n") == 5 and shown in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_commands_at_the_heads_of_the_launch_files_work(name):
    text = (ROOT / f"configs/accelerate/{name}.yaml").read_text(encoding="utf-8")
    head = re.sub(r"(?m)^#( {3})?", lambda mark: "    " if mark[1] else "", text)
    found = find_commands(head)
    assert found and faults(found) == []


@table
def test_a_wrong_command_is_found(text, words):
    (fault,) = faults(find_commands(text))
    assert words in fault
