"""The data build: counts that add up, determinism, notices, and clean failure."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from data_prep import schema
from data_prep.builder.recipe import DataArguments, Source
from data_prep.builder.rows import Job, read_source
from data_prep.builder.write import Spool
from data_prep.schema import Problem
from pipeline.errors import UserError
from tests.files import read_rows, write_rows
from tests.unit.builder.helpers import run

OUTPUTS = ["grpo_train.jsonl", "sft_train.jsonl", "test.jsonl", "validation.jsonl"]
LEFT = sorted([*OUTPUTS, "contamination.jsonl", "dropped.jsonl", "manifest.json"])
TRAIN = {"name": "gsm8k", "file": "train.jsonl"}
GENERIC = {"name": "generic", "file": "a.jsonl", "prompt_key": "q", "answer_key": "a"}
BAD_RECIPES = yaml.safe_load(Path(__file__).with_name("bad_recipes.yaml").read_text("utf-8"))
NO_BENCHMARK = (
    "notice: gsm8k may hold problems of benchmarks, and no benchmark is set; set decontaminate: "
    "[gsm8k, math500, aime24, aime25]\n"
)


def write_gsm8k(path, numbers):
    rows = [{"question": f"What is {n} plus 1?", "answer": f"{n}+1\n#### {n + 1}"} for n in numbers]
    write_rows(path, rows)


@pytest.fixture
def recipe(tmp_path):
    write_gsm8k(tmp_path / "train.jsonl", [*range(50), 7])  # one duplicate
    write_gsm8k(tmp_path / "test.jsonl", range(40, 45))  # all of them in train
    write_gsm8k(tmp_path / "validation.jsonl", [44, 100])  # one of them in test
    return {
        "prompt": "think",
        "sft": [TRAIN | {"hub": "openai/gsm8k"}],
        "grpo": [TRAIN | {"hub": "openai/gsm8k", "sample": 30}],
        "validation": [{"name": "gsm8k", "file": "validation.jsonl", "split": "validation"}],
        "test": [{"name": "gsm8k", "file": "test.jsonl", "split": "test"}],
    }


def said_by(tmp_path, recipe, capsys):
    """What a build says: its notices, or its one line of an error; and its manifest, if any."""
    try:
        _, made = run(tmp_path, recipe)
    except UserError as error:
        assert "\n" not in str(error)
        return str(error), None
    return capsys.readouterr().err, made


def test_counts_add_up_and_no_question_leaks(tmp_path, recipe, capsys):
    folder, written = run(tmp_path, recipe)
    assert sorted(p.name for p in folder.iterdir()) == LEFT
    found = {name: read_rows(folder / name) for name in OUTPUTS}
    outputs = written["outputs"]
    output = outputs["sft_train.jsonl"]
    assert output["dropped"] == {"duplicate_question": 1, "in_eval_set": 5}
    assert (output["rows_in"], output["rows_out"], len(output["sources"])) == (51, 45, 1)
    assert outputs["validation.jsonl"]["dropped"] == {"in_eval_set": 1}
    assert outputs["grpo_train.jsonl"]["dropped"]["not_sampled"] == 15  # of 45
    for totals in (written, *outputs.values()):
        assert totals["rows_in"] == totals["rows_out"] + sum(totals["dropped"].values())
    assert written["rows_out"] == sum(map(len, found.values()))
    assert written["rows_in"] == 51 + 51 + 5 + 2
    logged = read_rows(folder / "dropped.jsonl")
    assert len(logged) == sum(written["dropped"].values()) - 15
    pairs = read_rows(folder / "contamination.jsonl")
    assert {(pair["file"], pair["benchmark"]) for pair in pairs} == {
        ("validation.jsonl", "test"), ("sft_train.jsonl", "test"), ("grpo_train.jsonl", "test"),
    }  # fmt: skip
    held_out = {row["question"] for name in OUTPUTS[2:] for row in found[name]}
    assert not held_out & {row["question"] for name in OUTPUTS[:2] for row in found[name]}
    row = found["sft_train.jsonl"][0]
    number = int(row["answers"][0]) - 1
    assert row["id"] == f"gsm8k-train-{number}" and row["prompt"][0]["role"] == "system"
    assert row["completion"] == f"<think>\n{number}+1\n</think>\n\n\\boxed{{{number + 1}}}"
    assert "completion" not in found["grpo_train.jsonl"][0]
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "read 109 rows" in out and "in_eval_set" in out
    assert err == NO_BENCHMARK


def test_a_sample_is_drawn_of_what_cleaning_leaves_whatever_the_order(tmp_path, recipe):
    def drawn(*sources, **changes):
        folder, written = run(tmp_path, {"sft": [*sources], "test": recipe["test"]} | changes)
        counts = written["outputs"]["sft_train.jsonl"]
        return {row["question"] for row in read_rows(folder / "sft_train.jsonl")}, counts

    some, counts = drawn(TRAIN | {"sample": 20})
    assert len(some) == 20 and counts["dropped"]["not_sampled"] == 25  # of 51 - 1 - 5
    assert some < drawn(TRAIN | {"sample": 30})[0]
    assert some != drawn(TRAIN | {"sample": 20}, seed=1)[0]
    write_gsm8k(tmp_path / "train.jsonl", [*reversed(range(50)), 7])
    assert drawn(TRAIN | {"sample": 20})[0] == some
    # What another source has already taken counts for that one.
    write_gsm8k(tmp_path / "more.jsonl", range(30, 80))
    _, counts = drawn(TRAIN, {"name": "gsm8k", "file": "more.jsonl", "sample": 30})
    assert [source["rows_out"] for source in counts["sources"]] == [45, 30]


@pytest.mark.parametrize(("change", "words"), BAD_RECIPES)
def test_bad_recipes(tmp_path, recipe, change, words):
    with pytest.raises(UserError, match=words) as error:
        run(tmp_path, recipe | change)
    assert "\n" not in str(error.value)
    folder = tmp_path / "run/data"
    assert not folder.exists() or list(folder.iterdir()) == []


def svamp(number, **changes):
    """A row of SVAMP, `( number + 1 )`."""
    row = {"Body": f"Ann has {number} books and buys 1 more.", "Question": "How many has she now?"}
    return row | {"Answer": number + 1.0, "Equation": f"( {number}.0 + 1.0 )"} | changes


def test_svamp_in_one_file_has_the_hub_s_splits(tmp_path, monkeypatch):
    rows = [svamp(2, idx=699), svamp(30, idx=700), svamp(400, idx=0), svamp(5000, idx=999)]
    (tmp_path / "svamp").mkdir()
    write_rows(tmp_path / "svamp/svamp_1000.jsonl", rows)
    place = {"name": "svamp", "hub": "ChilleD/SVAMP", "file": "svamp/"}
    recipe = {"sft": [place | {"thought": "equation"}], "test": [place | {"split": "test"}]}
    hub = {"train": [svamp(400, Answer="401"), svamp(2, Answer="3")],
           "test": [svamp(30, Answer="31"), svamp(5000, Answer="5001")]}  # fmt: skip
    monkeypatch.setattr(
        "data_prep.builder.rows.load_hub",
        lambda name, split, config: ((f"{split}:{n}", row) for n, row in enumerate(hub[split])),
    )
    for data_root in (str(tmp_path), None):
        folder, written = run(tmp_path, recipe | {"data_root": data_root})
        for name, golds in (("sft_train.jsonl", ["3", "401"]), ("test.jsonl", ["31", "5001"])):
            assert sorted(row["answers"][0] for row in read_rows(folder / name)) == golds
            assert written["outputs"][name]["rows_in"] == 2


def test_a_file_of_the_hub_is_fetched_and_read_as_a_local_one(tmp_path, monkeypatch):
    path = tmp_path / "boba.jsonl"
    write_rows(path, [{"prompt": "q", "solutions": ["1"]}] * 3)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: path)
    source = Source("areal_boba", hub="owner/set", hub_file="boba.jsonl")
    found = read_source(Job(source, "train", "grpo", DataArguments("out")))
    assert [where for _, where, _ in found] == [f"{path}:{n}" for n in (1, 2, 3)]


SUMS = [{"q": f"What is {n} plus {7 * n}?", "a": 8 * n} for n in range(11, 16)]
RECORDS = [{"q": f"What did customer {n} order?", "a": {"id": n, "items": 2}} for n in range(30)]
AS_TEXT = [row | {"a": json.dumps(row["a"])} for row in RECORDS]


@pytest.mark.parametrize(
    ("rows", "changes", "num_left"),
    [
        (AS_TEXT, {}, None),
        (AS_TEXT + SUMS, {}, 5),
        (AS_TEXT + SUMS, {"mix": {"grpo": {"easy": 0.5, "hard": 0.5}}}, None),
        (RECORDS, {}, None),
        (RECORDS + SUMS, {"on_bad_row": "skip"}, 5),
    ],
)
def test_golds_that_only_a_grader_of_one_s_own_reads_say_so(
    tmp_path, capsys, rows, changes, num_left
):
    write_rows(tmp_path / "a.jsonl", rows)
    source = GENERIC | ({"difficulty": "easy"} if "mix" in changes else {})
    said, made = said_by(tmp_path, {"grpo": [source]} | changes, capsys)
    assert "`grader" in said and (made and made["rows_out"]) == num_left


@pytest.mark.parametrize(
    ("key", "num_rows", "sample", "num_left"),
    [("test", 10, 100, None), ("validation", 10, 10, None), ("transfer", 15, 10, 5)],
)
def test_a_set_that_holds_back_most_rows_is_named_with_its_key(
    tmp_path, capsys, key, num_rows, sample, num_left
):
    rows = [{"q": f"What is {n} plus {7 * n}?", "a": 8 * n} for n in range(11, 11 + num_rows)]
    write_rows(tmp_path / "a.jsonl", rows)
    recipe = {key: [GENERIC | {"sample": sample}], "grpo": [GENERIC]}
    said, made = said_by(tmp_path, recipe, capsys)
    assert f"`{key}` holds them back" in said and "`sample`" in said
    assert (made and made["counts"]["grpo_train"]) == num_left


def test_rows_that_stay_and_are_to_be_looked_at_are_counted(tmp_path, capsys):
    def notices(key, name, **changes):
        run(tmp_path, {key: [GENERIC | {"file": name} | changes]})
        err = capsys.readouterr().err
        return [line.partition(" rows: ")[0] for line in err.splitlines() if "generic: " in line]

    rows = [{"q": f"{n} twos?", "a": 2.0**n, "s": f"It is 1 * 2 = {2**n}."} for n in (2, 60, 70)]
    rows.append({"q": "How many?", "a": 3.0, "s": "There are three."})
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert notices("grpo", "a.parquet") == ["notice: grpo: generic: 2 of 4"]
    assert notices("sft", "a.parquet", solution_key="s") == ["notice: sft: generic: 1 of 4"]
    asked = [{"q": f"{n} twos? In \\boxed{{}}, {n} $s$.", "a": 2**n} for n in (2, 3, 4)]
    write_rows(tmp_path / "a.jsonl", [*asked, {"q": "Is $\\boxed{5}$ odd?", "a": 5}])
    assert notices("grpo", "a.jsonl") == ["notice: grpo: generic: 3 of 4"]
    large = '{"q": "How many twos?", "a": 1180591620717411303424.0}\n'
    (tmp_path / "b.jsonl").write_text(large)  # which has all digits
    assert notices("grpo", "b.jsonl") == []
    (row,) = read_rows(tmp_path / "run/data/grpo_train.jsonl")
    assert row["answers"] == [str(2**70)]


def test_files_that_no_build_wrote_are_not_touched(tmp_path, recipe):
    """The folder of the raw files is no folder for the built ones."""
    (tmp_path / "run/data").mkdir(parents=True)
    (tmp_path / "run/data/test.jsonl").write_text("mine")
    with pytest.raises(UserError, match=r"run/data holds test\.jsonl, which no build wrote"):
        run(tmp_path, recipe)
    with pytest.raises(
        UserError, match=r"holds test\.jsonl, a file that the build reads; choose another"
    ):
        run(tmp_path, recipe, "--output_dir", str(tmp_path))
    assert (tmp_path / "run/data/test.jsonl").read_text() == "mine"
    assert (tmp_path / "train.jsonl").exists() and (tmp_path / "test.jsonl").exists()


def test_what_a_killed_build_left_is_built_over(tmp_path, recipe):
    folder = tmp_path / "run/data"
    folder.mkdir(parents=True)
    for name in ("build.partial", "test.jsonl", "sft_train.jsonl.partial"):
        (folder / name).write_text("half")
    run(tmp_path, recipe)
    assert sorted(p.name for p in folder.iterdir()) == LEFT
    del recipe["validation"]  # a file of a former recipe goes
    run(tmp_path, recipe)
    assert not (folder / "validation.jsonl").exists()


def test_rows_of_a_build_are_looked_at_once(tmp_path, monkeypatch):
    """Those of anybody else at each start; those that were changed since are refused."""
    write_rows(tmp_path / "a.jsonl", SUMS)
    folder, _ = run(tmp_path, {"grpo": [GENERIC]})
    looked_at = []
    monkeypatch.setattr(schema, "check_row", lambda row, *_: looked_at.append(row["id"]))
    file, copy = folder / "grpo_train.jsonl", tmp_path / "copy.jsonl"
    assert len([*schema.read_problems(str(file))]) == 5 and not looked_at
    copy.write_text(file.read_text())
    assert len([*schema.read_problems(str(copy))]) == len(looked_at) == 5
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match="has changed since the stage data wrote it"):
        next(schema.read_problems(str(file)))


def test_a_spool_gives_back_what_it_took_in_any_order(tmp_path):
    first = Problem("a-1", "math", "x\u2028y\ud83d", ("1", "2"), "", 2.5, "algebra", 1)
    others = [Problem(f"b-{n}", "orz", "q" * n, (str(n),), f"s{n}") for n in range(50)]
    with (tmp_path / "spool").open("w+b") as file:
        spool = Spool(file, lambda problem: {"q": problem.question, "s": problem.solution})
        spool.append(first, "f:1")
        for number, problem in enumerate(others, 1):
            spool.append(problem, f"f:{number + 1}")
            assert spool.get(0) == (first, "f:1")  # reading between the writes
        assert spool.line(0) == b'{"q": "x\\u2028y\\ud83d", "s": ""}\n'
        for number in (50, 3, 27, 1):
            problem, where = spool.get(number)  # without its solution
            assert (problem.id, where) == (f"b-{number - 1}", f"f:{number + 1}")
            assert json.loads(spool.line(number))["s"] == f"s{number - 1}"
