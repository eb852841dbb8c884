"""Sets as a user downloads them: the recipes find the files of hub repositories below DATA_ROOT."""

import pytest
import yaml

from data_prep.build.recipe import check_source, find_files
from tests.recipes import SHIPPED
from tests.unit.stages.test_recipes import CONFIGS

pytestmark = pytest.mark.integration

# The files of each hub repository, in its folder below DATA_ROOT, and those of them to be read.
REPOSITORIES = {
    "numinamath_cot": (
        [*(f"data/train-0000{n}-of-00005.parquet" for n in range(5)),
         "data/test-00000-of-00001.parquet", "README.md", ".gitattributes"],
        [f"data/train-0000{n}-of-00005.parquet" for n in range(5)],
    ),
    "areal_boba": (["AReaL-boba-106k.jsonl", "README.md"], ["AReaL-boba-106k.jsonl"]),
    "orz": (["orz_math_57k_collection.json", "README.md"], ["orz_math_57k_collection.json"]),
    "dapo": (["data/dapo-math-17k.parquet", "README.md"], ["data/dapo-math-17k.parquet"]),
    "deepmath": (
        [f"data/train-0000{n}-of-00010.parquet" for n in range(10)] + ["README.md"],
        [f"data/train-0000{n}-of-00010.parquet" for n in range(10)],
    ),
}  # fmt: skip


def training_sources(recipe):
    values = yaml.safe_load((CONFIGS / recipe / "data.yaml").read_text(encoding="utf-8"))
    return [check_source(one, key) for key in ("sft", "grpo") for one in values.get(key, [])]


@pytest.mark.parametrize("folder", REPOSITORIES)
def test_the_files_of_a_hub_repository_are_found(folder, tmp_path):
    names, wanted = REPOSITORIES[folder]
    for name in names:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = [
        [path.relative_to(tmp_path / folder).as_posix() for path in find_files(one, str(tmp_path))]
        for recipe in SHIPPED
        if (CONFIGS / recipe / "data.yaml").is_file()
        for one in training_sources(recipe)
        if (one.file or "").startswith(f"{folder}/")
    ]
    assert found and all(one == wanted for one in found)


def test_no_recipe_names_the_sample_of_a_set():
    files = {
        one.file
        for recipe in SHIPPED
        if (CONFIGS / recipe / "data.yaml").is_file()
        for one in training_sources(recipe)
    }
    assert not [file for file in files if file and ("head" in file or "2k" in file)]
