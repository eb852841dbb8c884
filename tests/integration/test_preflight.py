"""A whole recipe at once: the shipped ones are sound, and stages that grade differently are not."""

import shutil
from pathlib import Path

import pytest

from data_prep.config import UserError
from stages.preflight import check_recipe

pytestmark = pytest.mark.integration
CONFIGS = Path(__file__).parents[2] / "configs"
RECIPES = sorted(path.parent for path in CONFIGS.glob("*/grpo.yaml"))


@pytest.mark.parametrize("folder", RECIPES, ids=lambda folder: folder.name)
def test_shipped_recipes_are_sound(folder):
    assert {"data.yaml", "sft.yaml", "grpo.yaml", "eval.yaml"} <= set(check_recipe(folder))


@pytest.mark.parametrize("names", [("grpo",), ("difficulty",), ("eval",), ("grpo", "difficulty")])
def test_stages_that_grade_differently_are_refused(tmp_path, names):
    folder = tmp_path / "recipe"
    shutil.copytree(CONFIGS / "grpo7b", folder)
    for name in names:
        with (folder / f"{name}.yaml").open("a") as file:
            file.write("final_number: true\n")
    with pytest.raises(UserError) as error:
        check_recipe(folder)
    message = str(error.value)
    assert message.startswith("final_number: ") and "\n" not in message
    for name in ("grpo", "difficulty", "eval"):
        assert f"{name}.yaml {'true' if name in names else 'false'}" in message

    for name in {"grpo", "difficulty", "eval"} - set(names):
        with (folder / f"{name}.yaml").open("a") as file:
            file.write("final_number: true\n")
    check_recipe(folder)
