"""Every entry point's answer to --help and to a mistake: one line, exit code 2, in no time."""

import ast
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
HEAVY = {"torch", "transformers", "datasets", "lm_eval", "sympy"}  # `import trl` alone is lazy
WRAPPER = f"""
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print("imported:", *sorted({HEAVY} & set(sys.modules)))
"""


def call(module, *flags):
    """Run `python -m module flags` in a process that says at the end what it imported."""
    command = [sys.executable, "-c", WRAPPER, module, *flags]
    env = os.environ | {"PYTHONPATH": str(ROOT), "WORLD_SIZE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    out, _, imported = done.stdout.rpartition("imported:")
    is_trls_help = "--help" in flags and module in ("stages.sft", "stages.grpo")
    assert is_trls_help or imported.strip() == "", f"{module} {flags} imported {imported}"
    return done.returncode, out, done.stderr


def assert_one_error(done, *words):
    code, out, err = done
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1, done
    assert all(word in err for word in words), err


@pytest.mark.parametrize("module", MODULES)
def test_help(module):
    code, out, err = call(module, "--help")
    assert code == 0 and err == ""
    assert f"python -m {module}" in out and "Keys, in the YAML" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_help_of_train_file_names_the_columns_that_are_read():
    for arguments, wanted in ((SftArguments, ("prompt", "completion")), (GrpoArguments, COLUMNS)):
        assert re.findall(r"`(\w+)`", own_keys(arguments)["train_file"].meaning) == [*wanted]


@pytest.mark.parametrize("module", MODULES)
def test_an_unknown_key(module):
    assert_one_error(call(module, "--no_such_key", "1"), "unknown key 'no_such_key'")


@pytest.mark.parametrize("module", [name for name, file in MODULES.items() if file])
def test_a_missing_input(module, tmp_path):
    """With the shipped recipe and an empty run folder; the build needs no earlier stage."""
    flags = ["--config", f"configs/tiny-cpu/{MODULES[module]}", "--run_dir", str(tmp_path)]
    if module == "data_prep.builder":
        assert_one_error(call(module, *flags, "--data_root", str(tmp_path / "x")), "data_root")
    else:
        assert_one_error(call(module, *flags), str(tmp_path), "does not exist", "make data")
    assert list(tmp_path.iterdir()) == []


def test_preflight_names_what_it_cannot_read(tmp_path):
    assert_one_error(call("stages.preflight", "--recipe", str(tmp_path / "none")), "not a folder")
    assert_one_error(call("stages.preflight", "--recipe", str(tmp_path)), "no YAML file")
    (tmp_path / "data.yaml").write_text("output_dir: x\nsft: [{name: nope}]\n")
    (tmp_path / "extra.yaml").write_text("a: 1\n")
    code, out, err = call("stages.preflight", "--recipe", str(tmp_path))
    assert (code, err) == (2, "") and "'nope'" in out and "extra.yaml" in out


@pytest.mark.parametrize("stage", [stage for stage, row in STAGES.items() if row.is_launched])
def test_a_process_of_a_launch_ends_with_its_launcher(stage):
    """A launcher that is killed leaves no process behind: `in_launch` sees to that."""
    source = Path(ROOT, *STAGES[stage].module.split(".")).with_suffix(".py")
    last = ast.unparse(ast.parse(source.read_text(encoding="utf-8")).body[-1])
    assert last.splitlines()[1:] == ["    run_cli(in_launch(main))"]
