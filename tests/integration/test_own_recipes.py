"""A user's own folders under `configs/` are no concern of the tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
FOLDERS = (
    "pipeline", "grading", "data_prep", "stages", "eval", "benchmarks", "tests", "configs", "docs",
    "examples",
)  # fmt: skip
# Tests of every recipe, launch or page.
COLLECTORS = [
    "tests/integration/preflight/test_recipes.py", "tests/integration/audit/test_real_sets.py",
    "tests/unit/stages/test_launch.py", "tests/unit/stages/test_recipes.py",
    "tests/unit/test_docs.py",
]  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project, without git's folder, with four folders and a launch of a user."""
    folder = tmp_path_factory.mktemp("copy")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, folder)
    configs = folder / "configs"
    shutil.copytree(configs / "grpo7b", configs / "mine-copied")
    (configs / "mine-copied/README.md").write_text("`configs/none.yaml`, [none](none.md)\n")
    shutil.copytree(configs / "tiny-cpu", configs / "mine-edited")
    (configs / "mine-edited/grpo.yaml").write_text("max_step: 1\nmodel_name_or_path: x\n")
    (configs / "mine-part").mkdir()
    shutil.copy(configs / "grpo7b/grpo.yaml", configs / "mine-part")
    (configs / "mine-notes").mkdir()
    (configs / "mine-notes/notes.txt").write_text("later\n")
    (configs / "accelerate/mine-launch.yaml").write_text("no_such_key: 1\n")
    return folder


def run_pytest(copy, *words):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    env = os.environ | {"PYTHONPATH": ""}  # not the project that was copied
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_no_test_is_collected_for_a_user_s_folder(copy):
    found = run_pytest(copy, "--collect-only", *COLLECTORS)
    assert "[grpo7b]" in found and "[fsdp2]" in found and "configs/grpo7b/README.md" in found
    assert "mine-" not in found


def test_no_test_of_all_recipes_fails(copy):
    run_pytest(copy, "tests/unit/test_docs.py", "tests/unit/stages/test_recipes.py")
