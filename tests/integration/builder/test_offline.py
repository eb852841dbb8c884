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

# The files of each hub repository, in its folder below DATA_ROOT: those to be read, and others.
REPOSITORIES = {
    "numinamath_cot": (
        [f"data/train-0000{n}-of-00005.parquet" for n in range(5)],
        ["data/test-00000-of-00001.parquet", "README.md", ".gitattributes"],
    ),
    "areal_boba": (["AReaL-boba-106k.jsonl"], ["README.md"]),
    "orz": (["orz_math_57k_collection.json"], ["README.md"]),
    "dapo": (["data/dapo-math-17k.parquet"], ["README.md"]),
    "svamp": (
        ["data/train-00000-of-00001.parquet"],
        ["train.json", "test.json", "data/test-00000-of-00001.parquet"],
    ),
    "deepmath": ([f"data/train-0000{n}-of-00010.parquet" for n in range(10)], ["README.md"]),
}


@pytest.fixture(scope="module")
def sources():
    """The training sources of all recipes that have a file."""
    found = []
    for recipe in SHIPPED:
        path = CONFIGS / recipe / "data.yaml"
        values = read_yaml(str(path)) if path.is_file() else {}
        found += [
            check_source(one, key) for key in ("sft", "grpo") for one in values.get(key) or []
        ]
    return [source for source in found if source.file]


@pytest.mark.parametrize("folder", REPOSITORIES)
def test_the_files_of_a_hub_repository_are_found(sources, folder, tmp_path):
    wanted, others = REPOSITORIES[folder]
    for name in (*wanted, *others):
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    own = [source for source in sources if source.file.startswith(f"{folder}/")]
    expected = [tmp_path / folder / name for name in wanted]
    assert own and all(find_files(source, str(tmp_path)) == expected for source in own)


def test_no_recipe_names_the_sample_of_a_set(sources):
    assert not [one.file for one in sources if "head" in one.file or "2k" in one.file]


@pytest.fixture
def downloads(tmp_path, shared_data):
    """NuminaMath-CoT as on the hub, of real rows: 300 of two training files, 10 of the test's."""
    root = tmp_path / "downloads"
    folder = root / "numinamath_cot/data"
    folder.mkdir(parents=True)
    for name in ("gsm8k", "math", "aime", "orz"):
        (root / name).symlink_to(shared_data / name)
    packed = shared_data / "numinamath_cot/numina_cot_2k.upstream_schema.jsonl.gz"
    with gzip.open(packed, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, 310)]
    for name, part in (
        ("train-00000-of-00002", rows[:150]), ("train-00001-of-00002", rows[150:300]),
        ("test-00000-of-00001", rows[300:]),
    ):  # fmt: skip
        pq.write_table(pa.Table.from_pylist(part), folder / f"{name}.parquet")
    return str(root)


def test_perplexity_on_numinamath_without_traces(downloads, tmp_path, capsys):
    """The recipe with the comment's source in the place of ORZ."""
    text = (CONFIGS / "perplexity/data.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text.replace("# - {name: numinamath", "- {name: numinamath"))
    orz, numina = recipe["grpo"]
    assert (orz["name"], numina["name"], numina["sample"]) == ("orz", "numinamath", 250_000)
    recipe |= {"decontaminate_if_found": [], "num_workers": 1, "data_root": downloads}
    folder, written = run(tmp_path, recipe | {"distill": [], "grpo": [numina]})
    (found,) = written["outputs"]["grpo_train.jsonl"]["sources"]
    assert found["rows_in"] == 300  # no row of the hub's test file
    rows = read_rows(folder / "grpo_train.jsonl")
    assert 150 < len(rows) < 300 and len(rows) == found["rows_out"]
    assert found["dropped"].keys() & {"no_boxed_answer", "proof", "multiple_choice"}
    assert all(row["answers"] and row["answer_form"] == "tags" for row in rows)
    assert not {"solution", "completion"} & {key for row in rows for key in row}
    assert "sample: 250,000 is more than" in "".join(capsys.readouterr())
