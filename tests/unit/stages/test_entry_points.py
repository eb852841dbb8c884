"""Every entry point's answer to --help and to a mistake: one line, exit code 2, in no time."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.schema import COLUMNS
from pipeline.key_types import own_keys
from pipeline.stages import STAGES, config_name
from stages.arguments import GrpoArguments, SftArguments

ROOT = Path(__file__).parents[3]
MODULES = {
    row.module: f"{config_name(stage)}.yaml" for stage, row in STAGES.items() if row.arguments
} | {"stages.preflight": None}
OF_TRL = ("stages.sft", "stages.grpo")  # their help has TRL's own keys
HEAVY = {"torch", "transformers", "datasets", "lm_eval", "sympy"}  # `import trl` alone is lazy
# One process for all command lines; it tells what each printed, what is imported by then, and
# whether the process has left a note for the launcher.
RUN_ALL = f"""
import contextlib, io, json, os, pathlib, runpy, sys, warnings
warnings.filterwarnings("ignore", ".* found in sys.modules")  # another one has imported it
for line in sys.stdin:
    sys.argv, code = json.loads(line), 0
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
    imported = sorted({HEAVY} & sys.modules.keys())
    note = pathlib.Path(os.environ["TORCHELASTIC_ERROR_FILE"])
    print(json.dumps([code, out.getvalue(), err.getvalue(), imported, note.exists()]))
    note.unlink(missing_ok=True)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """`{name: (exit code, stdout, stderr, imports, note)}` of all command lines, and a folder.

    A missing input is one of the shipped recipe in an empty run's folder.
    """
    folder, recipe = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("recipe")
    (recipe / "data.yaml").write_text("output_dir: x\nsft: [{name: nope}]\n")
    (recipe / "extra.yaml").write_text("a: 1\n")
    lines = {f"help {name}": [name, "--help"] for name in MODULES if name not in OF_TRL}
    for name, file in MODULES.items():
        lines[f"unknown {name}"] = [name, "--no_such_key", "1"]
        flags = ["--config", f"configs/tiny-cpu/{file}", "--run_dir", f"{folder}"]
        if name == "data_prep.builder":
            flags += ["--data_root", f"{folder}/x"]
        if file:
            lines[f"missing {name}"] = [name, *flags]
    for name, place in (("none", folder / "none"), ("no YAML", folder), ("wrong", recipe)):
        lines[name] = ["stages.preflight", "--recipe", str(place)]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input="".join(json.dumps(one) + "\n" for one in
        lines.values()), capture_output=True, text=True, check=True, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": "1",
                          "TORCHELASTIC_ERROR_FILE": str(recipe / "error.json")},
    )  # fmt: skip
    answered = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip(lines, answered, strict=True)), folder


def test_a_mistake_is_answered_before_anything_heavy_is_imported(answers):
    heavy = {name: found[3] for name, found in answers[0].items() if found[3]}
    assert not heavy, f"first by {next(iter(heavy))}"


def assert_one_error(found, *words):
    code, out, err, *_ = found
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1, found
    assert all(word in err for word in words), err


@pytest.mark.parametrize("module", MODULES)
def test_help(answers, module, monkeypatch, capsys):
    if module in OF_TRL:
        monkeypatch.setattr(sys, "argv", [module, "--help"])
        with pytest.raises(SystemExit) as end:
            importlib.import_module(module).main()
        code, out = end.value.code, capsys.readouterr().out
    else:
        code, out, err, *_ = answers[0][f"help {module}"]
        assert err == ""
    assert code == 0
    assert f"python -m {module}" in out and "Keys, in the YAML" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_help_of_train_file_names_the_columns_that_are_read():
    for arguments, wanted in ((SftArguments, ("prompt", "completion")), (GrpoArguments, COLUMNS)):
        assert re.findall(r"`(\w+)`", own_keys(arguments)["train_file"].meaning) == [*wanted]


@pytest.mark.parametrize("module", MODULES)
def test_an_unknown_key_and_a_missing_input(answers, module):
    """The build needs no earlier stage."""
    found, folder = answers
    assert_one_error(found[f"unknown {module}"], "unknown key 'no_such_key'")
    if module == "data_prep.builder":
        assert_one_error(found[f"missing {module}"], "data_root")
    elif MODULES[module]:
        words = (str(folder), "does not exist", "make data")
        assert_one_error(found[f"missing {module}"], *words)
    assert list(folder.iterdir()) == []


def test_preflight_names_what_it_cannot_read(answers):
    found, _ = answers
    assert_one_error(found["none"], "not a folder")
    assert_one_error(found["no YAML"], "no YAML file")
    code, out, err, *_ = found["wrong"]
    assert (code, err) == (2, "") and "'nope'" in out and "extra.yaml" in out


def test_a_process_of_a_launch_leaves_word_of_its_error(answers):
    """So it ends with its launcher, too: `in_launch` does both."""
    noted = {module for module in MODULES if answers[0][f"unknown {module}"][4]}
    assert noted == {row.module for row in STAGES.values() if row.is_launched}
