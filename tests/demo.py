"""The demo's recipe in a folder of its own, with other numbers, through make or Python."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
# Flags and variables of a make that runs the tests are not for this one.
OUTER = (
    "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "SEED", "RECIPE", "DATA_ROOT", "AUDIT",
    "TOKENIZER", "COMPLETIONS", "ARGS", "MODEL", "LORA", "TASKS", "SAMPLES", "MAKE_GOALS",
    "MAKE_WORDS",
)  # fmt: skip

DEMO = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
NUM_ROWS, SHORT = DEMO["num_rows"], DEMO["short"]


def write_recipe(
    folder: Path, num_rows: dict[str, int], changes: dict[str, dict[str, Any]]
) -> None:
    """Copy tiny-cpu to `folder/tiny-cpu` with numbers of rows and keys by stage; None drops one."""
    (folder / "tiny-cpu").mkdir(parents=True)
    for path in (ROOT / "configs/tiny-cpu").glob("*.yaml"):
        new = changes.get(path.stem, {})
        config = yaml.safe_load(path.read_text(encoding="utf-8")) | new
        for key, number in num_rows.items() if path.stem == "data" else ():
            for source in config[key]:
                source["sample"] = number // len(config[key])
        config = {k: v for k, v in config.items() if v is not None or k not in new}
        (folder / "tiny-cpu" / path.name).write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "venv").mkdir()
    (folder / "venv/ready").touch()  # newer than pyproject.toml: make installs nothing


def make(folder: Path, *goals: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run make on the recipe in `folder/tiny-cpu`, its run in `folder/run`; goals may be keys."""
    values = {
        "RECIPE": f"{folder}/tiny-cpu", "RUN": f"{folder}/run", "VENV": f"{folder}/venv",
        "PY": sys.executable,
    } | variables  # fmt: skip
    return run(["make", *goals, *(f"{key}={value}" for key, value in values.items())])


def pipeline(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same by `python -m pipeline`."""
    values = {"RECIPE": f"{folder}/tiny-cpu", "RUN": f"{folder}/run"} | variables
    given = [f"{key}={value}" for key, value in values.items()]
    return run([sys.executable, "-m", "pipeline", *words, *given])


def run(command: list[str], folder: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without the variables of a make that runs the tests.

    `more` is added to its environment.
    """
    env = {key: value for key, value in os.environ.items() if key not in OUTER}
    env |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "120"} | more
    pipes = {"capture_output": True, "text": True, "check": False}
    return subprocess.run(command, cwd=folder, env=env, **pipes)
