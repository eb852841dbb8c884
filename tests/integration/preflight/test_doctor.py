"""`make doctor`: what an issue needs to know, and no secret."""

import os

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


def test_it_works_without_what_only_linux_has(tmp_path, monkeypatch):
    for name in ("sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "sysconf", None)  # macOS lacks some of its names
    found = examine(RecipeArguments("configs/tiny-cpu", str(tmp_path)))
    assert int(found["processor"].split()[0]) >= 1 and "GiB of memory" in found["processor"]


def test_a_damaged_manifest_and_a_renamed_checkpoint_are_shown(tmp_path):
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft/manifest.json").write_text("[")
    (tmp_path / "grpo/checkpoint-good4").mkdir(parents=True)
    (tmp_path / "grpo/checkpoint-2-keep").mkdir()
    (tmp_path / "grpo/checkpoint-1").mkdir()
    found = progress(str(tmp_path))
    assert "grpo at checkpoint-1" in found and "sft/manifest.json: is damaged" in found


def test_a_run_not_yet_started_and_a_recipe_that_is_none(tmp_path):
    assert progress(str(tmp_path / "none")) == "nothing yet"
    with pytest.raises(UserError, match="recipe"):
        examine(RecipeArguments("configs/none"))
