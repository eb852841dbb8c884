"""`make doctor`: what an issue needs to know, and no secret."""

import pytest

from pipeline.errors import UserError
from pipeline.settings import RecipeArguments
from stages.doctor import examine, progress


def test_it_tells_versions_devices_disk_and_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for folder in ("sft", "grpo/checkpoint-20", "grpo/checkpoint-3", "eval"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sft/manifest.json").write_text('{"stage": "sft"}')
    found = examine(RecipeArguments("configs/tiny-cpu", str(tmp_path)))
    assert found["run"] == "grpo at checkpoint-20, sft finished"
    assert "torch" in found["packages"] and "GiB free" in found["disk"]
    assert "OMP_NUM_THREADS=1" in found["variables"]
    assert "hf_secret" not in str(found) and "data.yaml" in found["recipe"]


def test_a_run_not_yet_started_and_a_recipe_that_is_none(tmp_path):
    assert progress(str(tmp_path / "none")) == "nothing yet"
    with pytest.raises(UserError, match="recipe"):
        examine(RecipeArguments("configs/none"))
