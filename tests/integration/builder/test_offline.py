"""Sets as a user downloads them: the recipes find the files of hub repositories below DATA_ROOT."""

import gzip
import json
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from data_prep.builder.recipe import check_source, find_files
from pipeline.recipe_files import read_yaml
from tests.files import read_rows
from tests.recipes import SHIPPED
from tests.unit.builder.helpers import run
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
    "svamp": (
        [f"{folder}{split}{ending}" for split in ("train", "test")
         for folder, ending in (("", ".json"), ("data/", "-00000-of-00001.parquet"))],
        ["data/train-00000-of-00001.parquet"],
    ),
    "deepmath": (
        [f"data/train-0000{n}-of-00010.parquet" for n in range(10)] + ["README.md"],
        [f"data/train-0000{n}-of-00010.parquet" for n in range(10)],
    ),
}  # fmt: skip


def training_sources(recipe):
    values = read_yaml(str(CONFIGS / recipe / "data.yaml"))
    return [check_source(one, key) for key in ("sft", "grpo") for one in values.get(key) or []]


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


@pytest.fixture
def downloads(tmp_path, shared_data):
    """NuminaMath-CoT as on the hub, of real rows: 300 of two training files, 10 of the test's."""
    root = tmp_path / "downloads"
    for name in ("gsm8k", "math", "aime", "orz"):
        root.mkdir(exist_ok=True)
        (root / name).symlink_to(shared_data / name)
    packed = shared_data / "numinamath_cot/numina_cot_2k.upstream_schema.jsonl.gz"
    with gzip.open(packed, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, 310)]
    folder = root / "numinamath_cot/data"
    folder.mkdir(parents=True)
    for name, part in (
        ("train-00000-of-00002", rows[:150]), ("train-00001-of-00002", rows[150:300]),
        ("test-00000-of-00001", rows[300:]),
    ):  # fmt: skip
        pq.write_table(pa.Table.from_pylist(part), folder / f"{name}.parquet")
    return root


def perplexity_on_numinamath():
    """The recipe's data.yaml with the comment's source in the place of ORZ."""
    text = (CONFIGS / "perplexity/data.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text.replace("# - {name: numinamath", "- {name: numinamath"))
    assert [source["name"] for source in recipe["grpo"]] == ["orz", "numinamath"]
    return recipe | {"distill": [], "grpo": recipe["grpo"][1:]}


def test_perplexity_on_numinamath_without_traces(downloads, tmp_path, capsys):
    recipe = perplexity_on_numinamath() | {"decontaminate_if_found": [], "num_workers": 1}
    (source,) = recipe["grpo"]
    assert (source["name"], source["sample"]) == ("numinamath", 250_000)
    folder, written = run(tmp_path, recipe | {"data_root": str(downloads)})
    (found,) = written["outputs"]["grpo_train.jsonl"]["sources"]
    assert found["rows_in"] == 300  # no row of the hub's test file
    rows = read_rows(folder / "grpo_train.jsonl")
    assert 150 < len(rows) < 300 and len(rows) == found["rows_out"]
    assert found["dropped"].keys() & {"no_boxed_answer", "proof", "multiple_choice"}
    assert all(row["answers"] and row["answer_form"] == "tags" for row in rows)
    assert not {"solution", "completion"} & {key for row in rows for key in row}
    assert "sample: 250,000 is more than" in "".join(capsys.readouterr())
    # Of more rows than asked for, so many.
    recipe["grpo"][0]["sample"] = 100
    folder, written = run(tmp_path, recipe | {"data_root": str(downloads)})
    (found,) = written["outputs"]["grpo_train.jsonl"]["sources"]
    assert len(read_rows(folder / "grpo_train.jsonl")) == 100
    assert found["dropped"]["not_sampled"] == len(rows) - 100
