"""Each mistake of the table is told by its key, each valid setting passes in silence.

`keys.tsv` has a row for each: settings of a stage, changes to the tiny model's configuration, and
the key that is named. `by` says who names it: `rules` and types at once, `rehearsal` in seconds;
the latter are slow.
"""

import csv
import json
from pathlib import Path

import pytest

from pipeline.settings import build, run_check
from stages.arguments import GRPO, SFT, GrpoArguments, SftArguments
from stages.preflight import narrow
from stages.preflight.attempts import Rehearsal, inspect
from stages.preflight.inputs import load_shape
from stages.preflight.rehearsal import on_one_cpu
from stages.rules import check_grpo_keys, check_sft_keys
from tests.settings import settings_of

pytestmark = pytest.mark.integration
CLASSES = {"sft": (SftArguments, SFT), "grpo": (GrpoArguments, GRPO)}
CHECKS = {"sft": check_sft_keys, "grpo": check_grpo_keys}
BASE = {"train_file": "made", "model_name_or_path": "tiny", "output_dir": "o", "report_to": "none"}
QUICK = ("lora_target_modules", "optim_target_modules", "sapo_temperature_pos")


def rows():
    """The rows of the table; of those that need a rehearsal some are quick enough for each run."""
    with Path(__file__).with_name("keys.tsv").open(encoding="utf-8") as file:
        found = [*csv.DictReader(file, delimiter="\t")]
    told = set()
    for row in found:
        is_first = row["key"] in QUICK and row["key"] not in told
        is_slow = row["by"] == "rehearsal" and not is_first
        if row["by"] == "rehearsal":
            told.add(row["key"])
        name = f"{row['stage']}-{row['key'] or 'valid'}-{row['settings']}"
        yield pytest.param(row, id=name, marks=[pytest.mark.slow] if is_slow else [])


def told_by_rules(stage, values, processes, monkeypatch):
    """The settings, and the keys that are named without a step; none where one is refused."""
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    try:
        settings = settings_of(BASE | values, *CLASSES[stage])
        settings = run_check(settings, CHECKS[stage])
        build(settings, CLASSES[stage][0])
        settings = settings.as_trl_types()
    except ValueError as error:
        return None, [str(error).removeprefix("recipe: ").partition(":")[0]]
    finally:
        monkeypatch.delenv("WORLD_SIZE")
    return settings, []


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The narrow model of the rows that change none."""
    return narrow.write_start("tiny", tmp_path_factory.mktemp("start"))


@pytest.mark.parametrize("row", [*rows()])
def test_a_mistake_is_told_by_its_key(row, start, tmp_path, monkeypatch):
    stage, values, processes = row["stage"], json.loads(row["settings"]), int(row["processes"])
    settings, named = told_by_rules(stage, values, processes, monkeypatch)
    if row["by"] == "rehearsal":
        assert not named
        model = "tiny"
        if row["model"]:
            given = json.loads(row["model"])
            model = tmp_path / "model"
            model.mkdir()
            shape = given if "model_type" in given else load_shape("tiny") | given
            (model / "config.json").write_text(json.dumps(shape))
        tried = Rehearsal(stage, dict(settings), str(model), tmp_path, processes=processes)
        if not row["model"]:
            tried.prepare = lambda: setattr(tried, "start", start)
        with on_one_cpu():
            found = inspect(tried)
        named = [line.partition(":")[0] for line in found.faults + found.notes]
    assert row["key"] in named if row["key"] else not named
