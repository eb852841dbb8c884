"""Recipes by name, where no file of that name is there."""

import pytest

from pipeline.commands import COMMANDS, RECIPES, find_recipe
from tests.demo import ROOT

SHIPPED = str(RECIPES / "tiny-cpu")


@pytest.mark.parametrize(
    ("key", "word", "expected"),
    [
        ("--recipe", "tiny-cpu", SHIPPED),
        ("--config", "tiny-cpu/sft.yaml", f"{SHIPPED}/sft.yaml"),
        ("--config", "configs/tiny-cpu/sft.yaml", f"{SHIPPED}/sft.yaml"),
        ("--run_dir", "tiny-cpu", "tiny-cpu"),  # not a place for a recipe
        ("--config", "mine/sft.yaml", "mine/sft.yaml"),
        ("--recipe", "rlite", "rlite"),  # a folder that is there
    ],
)
def test_a_recipe_of_the_package_is_found(key, word, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rlite").mkdir()
    assert find_recipe(key, word) == expected


def test_every_command_is_a_module_that_can_be_run():
    for module in COMMANDS.values():
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
