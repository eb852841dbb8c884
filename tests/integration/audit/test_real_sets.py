"""Every shipped recipe on the real benchmarks: each gold is paid, no trick is."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from data_prep.schema import grpo_row, sft_row
from data_prep.sources import synthetic
from eval.audit import __main__ as audit
from pipeline.errors import run_cli
from pipeline.recipe_files import read_yaml
from tests.files import write_rows
from tests.recipes import SHIPPED

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
QUICK = ("tiny-cpu", "grpo7b")  # a tokenizer of its own, and the stand-in; the others are slow
# Golds of MATH are longer than the embedded set's, and the stand-in has a token for each byte.
LEAST_TOKENS = 512
NUM_EMBEDDED = 40
SETS = {"gsm8k": 200, "math500": 500, "aime24": 30, "aime25": 30, "held_out": NUM_EMBEDDED}


def prepare(recipe, folder):
    """A copy of the recipe with all the sets and embedded rows; returns the audit's flags."""
    config = {
        path.stem: read_yaml(str(path)) for path in (ROOT / "configs" / recipe).glob("*.yaml")
    }
    data, run = folder / "run/data", folder / "run"
    data.mkdir(parents=True)
    rows = {}
    for name, split, make in (
        ("sft_train", "train", sft_row), ("grpo_train", "rl", grpo_row),
        ("validation", "validation", grpo_row), ("test", "test", grpo_row),
    ):  # fmt: skip
        problems = synthetic.load(split, NUM_EMBEDDED, 0, max_level=5)
        rows[name] = [make(one, config["data"]["prompt"]) for one in problems]
        write_rows(data / f"{name}.jsonl", rows[name])
    if "sft" in config:  # its rows may be a teacher's
        traces = Path(config["sft"]["train_file"].replace("{run}", str(run)))
        traces.parent.mkdir(exist_ok=True)
        write_rows(traces, rows["sft_train"])
    config["eval"] |= {"test_file": "{run}/data/test.jsonl", "tasks": [*SETS]}
    config["eval"]["max_new_tokens"] = max(LEAST_TOKENS, config["eval"]["max_new_tokens"])
    limit = config["grpo"]["max_completion_length"]
    config["grpo"]["max_completion_length"] = max(LEAST_TOKENS, limit)
    (folder / recipe).mkdir()
    for stage, values in config.items():
        (folder / recipe / f"{stage}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    flags = ["--recipe", f"{folder / recipe}", "--run", f"{run}"]
    if "model" not in config:  # its tokenizer is on the hub
        return [*flags, "--tokenizer", "bytes"]
    from stages.tiny_model import build_tokenizer

    texts = [f"{row['question']}\n{row['completion']}" for row in rows["sft_train"]]
    build_tokenizer(texts).save_pretrained(run / "base")
    return flags


@pytest.mark.parametrize(
    "recipe", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.slow) for one in SHIPPED]
)
def test_every_gold_of_every_set_is_paid_in_a_shipped_recipe(
    recipe, tmp_path, monkeypatch, shared_data
):
    flags = prepare(recipe, tmp_path)
    flags += ["--data_root", str(shared_data), "--limit", str(max(SETS.values()))]
    flags += ["--num_rows", "40", "--num_tricked", "4", "--num_parsed", "2"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(sys, "argv", ["eval.audit", *flags])
    run_cli(audit.main)
    report = json.loads((tmp_path / "run/audit/audit.json").read_text())
    assert report["failures"] == [] and not [n for n in report["notes"] if "not audited: a" in n]
    for name, num_rows in SETS.items():
        found = report["sets"][name]
        assert found["num_rows"] >= num_rows
        assert found["rates"] == {"question": 1.0, "template": 1.0, "reward": 1.0, "task": 1.0}, (
            name
        )
        assert {one["ours"] for one in found["official"].values()} == {1.0}, name
    others = report["sets"].keys() - SETS.keys()
    has_sft = (ROOT / "configs" / recipe / "sft.yaml").is_file()
    assert {"grpo_train"} | ({"sft_train"} if has_sft else set()) <= others
    for name in others:
        paid = {"question": 1.0, "template": 1.0, "reward": 1.0, "task": None}
        assert report["sets"][name]["rates"] == paid
    assert {found["num_paid"] for found in report["tricks"].values()} == {0}
    tried = 4 * (len(others) + 2 * len(SETS))  # by the reward, and in a task by both
    assert {found["num_rows"] for found in report["tricks"].values()} == {tried}
