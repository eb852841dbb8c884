"""The commands of the recipe perplexity-gsm8k, every combination of them, on the tiny model."""

import importlib
import re
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest

from stages import published_sweeps, sweep

pytestmark = pytest.mark.integration
NAME = "perplexity-gsm8k"
README = Path(__file__).parents[3] / "configs" / NAME / "README.md"
COMMANDS = [line.split() for line in re.findall(r'SWEEP="(.*?)"', README.read_text())]


def run_here(command):
    """Run a stage in this process, for a start that costs a second instead of ten."""
    _, _, module, *flags = command
    sys.argv[:] = [module, *flags]
    importlib.import_module(module).main()
    return 0


@pytest.fixture
def swept(write_recipe, tmp_path, monkeypatch):
    """Run the sweep of some entries, one step each; returns the page."""
    folder = tmp_path / NAME
    folder.mkdir()
    validation = {"eval_strategy": "steps", "eval_steps": 1, "eval_problems": 2}
    validation |= {"num_generations_eval": 2, "per_device_eval_batch_size": 4}
    shutil.move(write_recipe("grpo", max_steps=1, **validation), folder / "grpo.yaml")
    monkeypatch.setattr(sweep.Runner, "run", lambda _, words, **__: run_here(words))

    def run(entries):
        flags = ["--grpo_config", str(folder / "grpo.yaml"), "--run", str(tmp_path / "run")]
        monkeypatch.setattr(sys, "argv", ["sweep", *flags, "--sweep", *entries])
        sweep.main()
        return (tmp_path / "run/sweep/table.md").read_text()

    return run


@pytest.mark.parametrize(
    "entries",
    [COMMANDS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in COMMANDS[1:])],
    ids=lambda entries: entries[0].partition("=")[0],
)
def test_every_published_score_is_beside_one_of_ours(swept, entries):
    choices = {key: values.split(",") for key, values in (e.split("=") for e in entries)}
    published = published_sweeps.find(NAME, choices)
    page = swept(entries)
    header, _, *lines = [line.strip("| ").split(" | ") for line in page.splitlines() if "|" in line]
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert all(0 <= float(row["avg@k"]) <= 1 and row["ended"] == "finished 1" for row in rows)
    scores = {row["runs"]: float(row["published"]) for row in rows}
    cells = [dict(zip(choices, cell, strict=True)) for cell in product(*choices.values())]
    assert scores == {
        ", ".join(f"{key}={value}" for key, value in cell.items()): published.score(cell)
        for cell in cells
    }
    assert len(scores) == len(published.scores)
