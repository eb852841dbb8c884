"""Every command of README and docs that takes seconds runs here, on a shortened demo.

A command is found by its goal, so a new page is covered by itself. Processes are forked from one
that has imported torch: a start costs a fifth of a second in place of seven.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

from pipeline import commands
from pipeline import request as requests
from tests import demo
from tests.e2e.test_pipeline import SHORT
from tests.files import write_rows
from tests.integration.fork_server import Server
from tests.pages import ROOT, commands_of_pages, read_make, words_of

pytestmark = pytest.mark.integration
NEED_NO_RUN = {"help", "doctor", "preflight", "plan", "clean"}
ON_THE_DEMO = {"data", "base", "audit", "browse", "compare", "data-report"}
NUM_ROWS = {"sft": 60, "grpo": 20, "validation": 10, "test": 10, "transfer": 10}
# Commands that end with exit code 2, as their page says, and why.
REFUSED = {
    "make preflight RECIPE=grpo7b-published gpu_memory=94": "learning_rate 5e-07",
}


def is_quick(text):
    """Whether a command ends within a minute, without a GPU, a network or data of its own."""
    program, *words = words_of(text)
    if re.search(r"…|<|DATA_ROOT|YES=|\bGOAL\b|\bSTAGE\b|\bCOMMAND\b", text):
        return False
    if program == "make":
        targets, given = read_make(words)
        is_demo = given.get("RECIPE", "tiny-cpu") == "tiny-cpu"
        if targets == ["gpu-check"]:
            return "--dry" in given.get("ARGS", "")
        known = NEED_NO_RUN | (ON_THE_DEMO if is_demo else set())
        return bool(targets) and {*targets} <= known and words != ["compare"]
    if program == "python" and words[:2] == ["-m", "grading"]:
        return len(words) > 2
    is_ours = program == "sft-grpo-math" or words[:1] == ["-m"]
    return is_ours and bool({"--help", "--dry-run", "--list", "help"} & {*words})


def strip(text):
    """A command without its comment and with a file, for the same command on several pages."""
    return " ".join(re.sub(r"\bFILE\b", "outputs.jsonl", text.partition(" #")[0]).split())


CASES = list(dict.fromkeys(strip(one.text) for one in commands_of_pages() if is_quick(one.text)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as a clone is: all recipes, the demo's shortened, and files for what pages name."""
    folder = tmp_path_factory.mktemp("pages")
    demo.write_recipe(folder / "configs", NUM_ROWS, SHORT)
    for path in (ROOT / "configs").iterdir():
        if path.name != "tiny-cpu":
            (folder / "configs" / path.name).symlink_to(path)
    (folder / "configs/mine").symlink_to(ROOT / "configs/own-problems")  # a reader's copy
    row = {"prediction": "so \\boxed{18}", "completion": "so \\boxed{18}", "gold": "18"}
    write_rows(folder / "outputs.jsonl", [row])
    problem = {"question": "What is 2 plus 2?", "answer": "4"}
    write_rows(folder / "problems.jsonl", [problem])
    reward = "def few_lines(completions, **columns):\n    return [0.0] * len(completions)\n"
    (folder / "brevity.py").write_text(reward, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def start(folder):
    """Start `python WORDS` in that folder; returns its exit code and what it has printed."""
    server = Server()

    def call(words, **env):
        assert words[0] == "-m" and words[1] != "stages.run.launch"
        module = words[1]
        if importlib.util.find_spec(module).submodule_search_locations:
            module += ".__main__"
        return server.run_module(module, words[2:], folder, folder / "log", env)

    yield call
    server.close()


@pytest.fixture(scope="module")
def run(folder, start):
    """The demo's run, up to an evaluation of its base."""
    recipe, run = "configs/tiny-cpu", "runs/tiny-cpu"
    for words in (
        ["-m", "data_prep.builder", "--config", f"{recipe}/data.yaml", "--run_dir", run],
        ["-m", "stages.tiny_model", "--config", f"{recipe}/model.yaml", "--run_dir", run],
        [
            "-m", "eval.run", "--config", f"{recipe}/eval.yaml", "--run_dir", run,
            "--checkpoints", f"base={run}/base", "--tasks", "held_out",
        ],
    ):  # fmt: skip
        code, text = start(words)
        assert code == 0, text
    return folder / run


def plan(words, folder, run):
    """The commands that a make command comes to, with a folder of weights for a user's own."""
    targets, env = read_make(words)
    for key in {"MODEL", "TOKENIZER"} & env.keys():
        if re.match("[/~]", env[key]):
            env["MAKE_WORDS"] = env["MAKE_WORDS"].replace(env[key], f"{run}/base")
            env[key] = f"{run}/base"
    request = requests.read(targets, env)
    requests.check_goals(request)
    for name in request["runs"]:
        if not (folder / name).exists():
            shutil.copytree(run, folder / name)
    return commands.commands(request)


@pytest.mark.parametrize("text", CASES, ids=CASES)
def test_a_command_of_the_pages_runs(text, folder, run, start, monkeypatch):
    monkeypatch.chdir(folder)
    program, *words = words_of(text)
    wanted = (2, REFUSED[text]) if text in REFUSED else (0, "")
    if program == "make" and words[0] not in ("help", "clean", "gpu-check"):
        done = [start(command.words) for command in plan(words, folder, run)]
        assert done and done[-1][0] == wanted[0] and wanted[1] in done[-1][1], done
        assert not any(code for code, _ in done[:-1]), done
        return
    if program == "make":
        ours = [*words, "-C", str(ROOT), f"PY={sys.executable}", f"VENV={folder}/configs/venv"]
        command = ["make", "--no-print-directory", *ours]
    else:
        command = [sys.executable, *(["-m", "pipeline"] if program != "python" else []), *words]
    env = {key: value for key, value in os.environ.items() if key not in demo.OUTER}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == wanted[0], done.stdout + done.stderr


def test_there_are_commands_of_each_kind():
    goals = {word for text in CASES for word in words_of(text)[1:]}
    assert (NEED_NO_RUN | ON_THE_DEMO | {"gpu-check", "grading", "--help"}) <= goals
