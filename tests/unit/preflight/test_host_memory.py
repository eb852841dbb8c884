"""A CPU recipe that needs more memory than the machine has is refused before its first stage."""

import shutil
import sys

import pytest

from pipeline import memory
from pipeline.errors import UserError
from stages.preflight import capacity, rehearsal
from tests.conftest import ROOT


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Check a recipe ahead, on a machine with so many GiB."""

    def call(recipe, gib, *keys, goal="grpo"):
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(capacity, "total_memory", lambda: int(gib * 2**30))
        monkeypatch.setattr(rehearsal, "check_packages", lambda settings: None)
        line = ["--recipe", str(recipe), "--run", str(tmp_path / "run"), "--goal", goal]
        line += ["--keys", *keys] if keys else []
        monkeypatch.setattr(sys, "argv", ["ahead", *line])
        rehearsal.main()

    return call


def test_the_laptop_recipe_fits_8_gib_and_not_3(check):
    check("configs/smollm2-135m", 8)
    with pytest.raises(
        UserError, match=r"smollm2-135m/sft.yaml: too little memory: .* GiB of .* 3.0 GiB"
    ):
        check("configs/smollm2-135m", 3)


def test_grpo_is_planned_with_the_model_that_sft_starts_from(check):
    with pytest.raises(
        UserError, match=r"grpo.yaml: too little memory: .*per_device_train_batch_size: 32"
    ):
        check("configs/smollm2-135m", 8, "grpo.per_device_train_batch_size=64")


def test_a_recipe_without_a_limit_on_its_rows_is_left_to_preflight(check, tmp_path):
    shutil.copytree(ROOT / "configs/smollm2-135m", tmp_path / "mine")
    path = tmp_path / "mine/sft.yaml"
    path.write_text(path.read_text().replace("max_length: 512\n", ""))
    check(tmp_path / "mine", 3, goal="sft")
    check("configs/smollm2-135m", 8, "grpo.max_completion_length=null")


@pytest.mark.parametrize(
    ("text", "expected", "group", "controller"),
    [("3000\n", 3000, "/", "memory"), ("3000\n", 3000, "/user.slice/job", ""),
     ("3000\n", 3000, "/user.slice/job/step", "memory"), ("max\n", 10**6, "/user.slice/job", ""),
     (None, 10**6, "/", "")],
)  # fmt: skip
def test_a_control_group_bounds_the_memory(
    monkeypatch, tmp_path, text, expected, group, controller
):
    mine, root = tmp_path / "cgroup", tmp_path / "sys"
    mine.write_text(f"12:cpu:/other\n0:{controller}:{group}\n")
    limit = root / group.strip("/").removesuffix("/step") / "memory.max"
    limit.parent.mkdir(parents=True)
    if text:
        limit.write_text(text)
    (root / "other").mkdir()
    (root / "other/memory.max").write_text("1")  # a group that limits processors, not memory
    monkeypatch.setattr(memory, "GROUPS", str(mine))
    monkeypatch.setattr(memory, "LIMITS", {controller: str(root / "memory.max")})
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("M", (), {"total": 10**6}))
    assert memory.total_memory() == expected
