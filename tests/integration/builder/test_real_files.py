"""Builds of real files, and the files of hub repositories; no benchmark's problem gets through."""

import json
import re
from pathlib import Path

import pytest
import yaml

from data_prep.builder.recipe import check_source, find_files
from pipeline.recipe_files import read_yaml
from tests.files import read_rows
from tests.integration.sources.test_real_sources import FILES as SOURCES
from tests.recipes import SHIPPED
from tests.unit.builder.helpers import run
from tests.unit.stages.test_recipes import CONFIGS

pytestmark = pytest.mark.integration

# The first source of each file: {file: name}.
FILES = {file: source for file, source, *_ in reversed(SOURCES)}
TRAINING = (
    "areal_boba/", "dapo/", "deepscaler/", "gsm8k/train", "math/train", "math/test_minus",
    "numinamath_cot/", "orz/",
)  # fmt: skip
EVALUATION = {
    "gsm8k/test.jsonl": "question",
    "math/math500_test.jsonl": "problem",
    "aime/aime24_qwen.jsonl": "problem",
    "aime/aime25_structured_rl.jsonl": "problem",
}


def letters(question):
    """Nothing but letters and digits: the loosest sense in which two texts are the same."""
    return re.sub(r"[\W_]", "", question).casefold()


@pytest.fixture(scope="module", params=[4000, pytest.param(None, marks=pytest.mark.slow)])
def mixed(request, tmp_path_factory, shared_data):
    """All files in one set, each benchmark's own file among them; built by two workers.

    The quick one has files of fewer than 4,000 rows; the slow one has all, which takes a minute.
    """
    files = {file: num for file, _, num, *_ in SOURCES if num < (request.param or num + 1)}
    recipe = {
        "grpo": [{"name": FILES[file], "file": file} for file in files],
        "decontaminate": ["gsm8k", "math500", "aime24", "aime25"],
        "data_root": str(shared_data), "num_workers": 2,
    }  # fmt: skip
    return *run(tmp_path_factory.mktemp("mixed"), recipe), files


def test_all_files_mixed_add_up(mixed, shared_data):
    folder, written, files = mixed
    sources = written["outputs"]["grpo_train.jsonl"]["sources"]
    rows_of = files | {"svamp/svamp_1000.jsonl": 700}  # its training split
    assert {source["place"]: source["rows_in"] for source in sources} == rows_of
    assert len(read_rows(folder / "dropped.jsonl")) == written["rows_in"] - written["rows_out"]
    rows = read_rows(folder / "grpo_train.jsonl")
    for row in rows:
        assert row["question"].strip() and row["prompt"][-1]["content"] == row["question"]
        assert not re.search(r"[<|\uff5c](?:User|Assistant|im_start|think)", row["question"])
    assert len({row["id"] for row in rows}) == len(rows) == written["rows_out"]
    assert len({letters(row["question"]) for row in rows}) > 0.99 * len(rows)


def test_one_worker_writes_the_same_bytes_as_two(tmp_path, shared_data):
    files = ("gsm8k/test.jsonl", "math/math500_orz.json", "math/math500_test.jsonl")
    recipe = {
        "grpo": [{"name": FILES[file], "file": file} for file in files],
        "decontaminate": ["aime24"],
        "data_root": str(shared_data),
    }
    written = []
    for num_workers in (1, 2):
        folder, _ = run(tmp_path, recipe | {"num_workers": num_workers})
        written.append({p.name: p.read_bytes() for p in folder.glob("*.jsonl")})
    assert written[0] == written[1] and len(written[0]) == 3


def load_evaluation(shared_data):
    """The questions of the four benchmarks, read without the project."""
    found = [
        json.loads(line)[column]
        for file, column in EVALUATION.items()
        for line in (shared_data / file).read_bytes().split(b"\n")
        if line.strip()
    ]
    assert len(found) == 1319 + 500 + 30 + 30
    return found


def test_no_benchmark_problem_survives(mixed, shared_data):
    folder, written, files = mixed
    assert written["decontamination"] == {"gsm8k": 1319, "math500": 500, "aime24": 30, "aime25": 30}
    held_out = {letters(question) for question in load_evaluation(shared_data)}
    kept = [letters(row["question"]) for row in read_rows(folder / "grpo_train.jsonl")]
    assert not [text for text in kept if text in held_out and len(text) >= 20]
    # Nor inside a longer text, where the text is too long to be there by chance.
    everything = "\n".join(kept)
    assert not [text for text in held_out if len(text) >= 60 and text in everything]
    pairs = read_rows(folder / "contamination.jsonl")
    assert len(pairs) == written["dropped"]["in_eval_set"]
    # What is known to be there: the folder's README counts 7 problems of MATH-500 in DAPO apart
    # from punctuation, and 4 in AIME 1983 to 2023.
    same = {pair["where"] for pair in pairs if letters(pair["question"]) in held_out}
    if "dapo/dapo_math_17k.parquet" in files:
        assert len({where for where in same if "dapo_math_17k.parquet" in where}) >= 7
    assert len({where for where in same if "rllm_train_aime" in where}) >= 4
    # Of the sets that are no benchmark, under 1 % is lost, to true matches and false ones.
    sources = written["outputs"]["grpo_train.jsonl"]["sources"]
    training = [one for one in sources if one["place"].startswith(TRAINING)]
    assert len(training) == (14 if len(files) == len(FILES) else 9)
    lost = sum(one["dropped"].get("in_eval_set", 0) for one in training)
    assert 0 < lost < 0.01 * sum(one["rows_in"] for one in training)


HUB_FILES = yaml.safe_load(Path(__file__).with_name("hub_files.yaml").read_text(encoding="utf-8"))


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


@pytest.mark.parametrize("folder", HUB_FILES)
def test_the_files_of_a_hub_repository_are_found(sources, folder, tmp_path):
    wanted, others = HUB_FILES[folder]["wanted"], HUB_FILES[folder]["others"]
    for name in wanted + others:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    own = [source for source in sources if source.file.startswith(f"{folder}/")]
    expected = [tmp_path / folder / name for name in wanted]
    assert own and all(find_files(source, str(tmp_path)) == expected for source in own)


def test_no_recipe_names_the_sample_of_a_set(sources):
    assert not [one.file for one in sources if "head" in one.file or "2k" in one.file]


def test_the_source_in_a_comment_of_perplexity_is_one(tmp_path):
    text = (CONFIGS / "perplexity/data.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text.replace("# - {name: numinamath", "- {name: numinamath"))
    orz, numina = recipe["grpo"]
    assert (orz["name"], numina["name"], numina["sample"]) == ("orz", "numinamath", 250_000)
    (tmp_path / "numinamath_cot").mkdir()
    for name in HUB_FILES["numinamath_cot"]["wanted"]:
        (tmp_path / "numinamath_cot" / Path(name).name).touch()
    assert len(find_files(check_source(numina, "grpo"), str(tmp_path))) == 5
