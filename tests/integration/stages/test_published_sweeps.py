"""The commands of the recipe perplexity-gsm8k, every combination of them, on the tiny model."""

import importlib
import re
import shutil
import sys
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
def test_every_published_score_is_beside_one_of_ours(swept, entries, tmp_path):
    choices = {key: values.split(",") for key, values in (e.split("=") for e in entries)}
    published = published_sweeps.find(NAME, choices)
    page = swept(entries)
    down, *across = choices
    columns = choices[across[0]] if across else [None]
    for value in choices[down]:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {value} |")]
        scores = [float(cell) for cell in line.strip("|").split("|")[1:]]  # no cell is empty
        ours, theirs = scores[: len(columns)], scores[len(columns) :]
        assert all(0 <= score <= 1 for score in ours)
        cells = [{down: value} | ({across[0]: one} if across else {}) for one in columns]
        assert theirs == [published.score(cell) for cell in cells]
    assert page.count("| finished |") == len(published.scores)
