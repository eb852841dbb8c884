"""The data build: counts that add up, determinism, decontamination, and clean failure."""

import json
import re
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from data_prep import schema
from data_prep.builder import __main__ as build
from data_prep.builder import sets
from data_prep.builder.write import REMEDIES
from pipeline import manifest
from pipeline.errors import UserError
from tests.files import read_rows, write_rows
from tests.unit.builder.helpers import run

OUTPUTS = ["grpo_train.jsonl", "sft_train.jsonl", "test.jsonl", "validation.jsonl"]


def write_gsm8k(path, numbers):
    rows = [{"question": f"What is {n} plus 1?", "answer": f"{n}+1\n#### {n + 1}"} for n in numbers]
    write_rows(path, rows)


NO_BENCHMARK = (
    "notice: gsm8k may hold problems of benchmarks, and no benchmark is set; set decontaminate: "
    "[gsm8k, math500, aime24, aime25]\n"
)
LOGS = ["contamination.jsonl", "dropped.jsonl"]


@pytest.fixture
def recipe(tmp_path):
    write_gsm8k(tmp_path / "train.jsonl", [*range(50), 7])  # one duplicate
    write_gsm8k(tmp_path / "test.jsonl", range(40, 45))  # all of them in train
    write_gsm8k(tmp_path / "validation.jsonl", [44, 100])  # one of them in test
    entry = {"name": "gsm8k", "hub": "openai/gsm8k", "file": "train.jsonl"}
    return {
        "data_root": str(tmp_path),
        "prompt": "think",
        "sft": [entry],
        "grpo": [entry | {"sample": 30}],
        "validation": [{"name": "gsm8k", "file": "validation.jsonl", "split": "validation"}],
        "test": [{"name": "gsm8k", "file": "test.jsonl", "split": "test"}],
    }


def test_the_form_of_the_answer_is_the_recipes(tmp_path, recipe):
    for changes, form, final in (
        ({}, "box", "\\boxed{1}"),
        ({"prompt": "answer_tags"}, "tags", "<answer>1</answer>"),
        ({"answer_form": "tags"}, "tags", "<answer>1</answer>"),
    ):
        folder, _ = run(tmp_path, recipe | changes)
        rows = [row for name in OUTPUTS for row in read_rows(folder / name)]
        assert {row["answer_form"] for row in rows} == {form}
        assert any(row.get("completion", "").endswith(final) for row in rows)
    folder, _ = run(tmp_path, recipe | {"prompt": "answer_tags", "eval_prompt": "think"})
    forms = [{row["answer_form"] for row in read_rows(folder / name)} for name in OUTPUTS]
    assert forms == [{"tags"}, {"tags"}, {"box"}, {"box"}]


def test_counts_add_up_and_no_question_leaks(tmp_path, recipe, capsys):
    folder, _ = run(tmp_path, recipe)
    assert sorted(p.name for p in folder.iterdir()) == sorted([*OUTPUTS, *LOGS, "manifest.json"])
    sets = {name: read_rows(folder / name) for name in OUTPUTS}
    written = manifest.read(folder)
    output = written["outputs"]["sft_train.jsonl"]
    assert output["dropped"] == {"duplicate_question": 1, "in_eval_set": 5}
    assert (output["rows_in"], output["rows_out"], len(output["sources"])) == (51, 45, 1)
    assert written["outputs"]["validation.jsonl"]["dropped"] == {"in_eval_set": 1}
    assert written["outputs"]["grpo_train.jsonl"]["dropped"]["not_sampled"] == 15  # of 45
    for totals in (written, *written["outputs"].values()):
        assert totals["rows_in"] == totals["rows_out"] + sum(totals["dropped"].values())
    assert written["rows_out"] == sum(map(len, sets.values()))
    assert written["rows_in"] == 51 + 51 + 5 + 2
    logged = read_rows(folder / "dropped.jsonl")
    assert len(logged) == sum(
        number
        for output in written["outputs"].values()
        for reason, number in output["dropped"].items()
        if reason != "not_sampled"
    )
    pairs = read_rows(folder / "contamination.jsonl")
    assert {(pair["file"], pair["benchmark"]) for pair in pairs} == {
        ("validation.jsonl", "test"), ("sft_train.jsonl", "test"), ("grpo_train.jsonl", "test"),
    }  # fmt: skip
    held_out = {r["question"] for name in OUTPUTS[2:] for r in sets[name]}
    assert not held_out & {r["question"] for name in OUTPUTS[:2] for r in sets[name]}
    row = sets["sft_train.jsonl"][0]
    number = int(row["answers"][0]) - 1
    assert row["id"] == f"gsm8k-train-{number}" and row["prompt"][0]["role"] == "system"
    assert row["completion"] == f"<think>\n{number}+1\n</think>\n\n\\boxed{{{number + 1}}}"
    assert "completion" not in sets["grpo_train.jsonl"][0]
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "read 109 rows" in out and "in_eval_set" in out
    assert err == NO_BENCHMARK


def test_a_made_problem_that_repeats_a_test_question_names_its_source(tmp_path, recipe):
    made = {"name": "synthetic", "split": "test"}
    sets = {"test": [made | {"sample": 5}], "validation": [made | {"sample": 9}]}
    folder, _ = run(tmp_path, recipe | sets)
    assert {pair["source"] for pair in read_rows(folder / "contamination.jsonl")} == {"synthetic"}


def test_short_source_is_taken_whole_with_a_notice(tmp_path, recipe, capsys):
    recipe["grpo"][0]["sample"] = 1000
    run(tmp_path, recipe)
    err = capsys.readouterr().err
    notice = "notice: grpo: gsm8k: sample: 1,000 is more than the 45 problems left; all are taken\n"
    assert err == NO_BENCHMARK + notice


def test_a_sample_is_drawn_of_what_cleaning_leaves_whatever_the_order(tmp_path, recipe):
    def drawn(**changes):
        folder, written = run(tmp_path, recipe | changes)
        counts = written["outputs"]["sft_train.jsonl"]
        return {row["question"] for row in read_rows(folder / "sft_train.jsonl")}, counts

    entry = recipe["sft"][0]
    some, counts = drawn(sft=[entry | {"sample": 20}])
    assert len(some) == 20 and counts["dropped"]["not_sampled"] == 25  # of 51 - 1 - 5
    assert some < drawn(sft=[entry | {"sample": 30}])[0]
    assert some != drawn(sft=[entry | {"sample": 20}], seed=1)[0]
    write_gsm8k(tmp_path / "train.jsonl", [*reversed(range(50)), 7])
    assert drawn(sft=[entry | {"sample": 20}])[0] == some
    # What another source has already taken counts for that one.
    write_gsm8k(tmp_path / "more.jsonl", range(30, 80))
    more = entry | {"file": "more.jsonl", "sample": 30}
    _, counts = drawn(sft=[entry, more])
    assert [source["rows_out"] for source in counts["sources"]] == [45, 30]


def test_a_crash_while_writing_leaves_no_output(tmp_path, recipe, monkeypatch):
    def fail(*args):
        raise OSError(28, "disk full")

    monkeypatch.setattr(sets, "sft_row", fail)
    with pytest.raises(OSError, match="disk full"):
        run(tmp_path, recipe)
    assert list((tmp_path / "run/data").iterdir()) == []


SYNTHETIC = {"name": "synthetic", "sample": 5}
TRAIN = {"name": "gsm8k", "file": "train.jsonl"}
EASY = TRAIN | {"difficulty": "easy"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data_root": "/no/such/folder"}, "data_root: /no/such/folder is not a folder"),
        ({"prompt": "thinks"}, "prompt: must be 'none', .*'thinks'"),
        ({"sfd": []}, "unknown key 'sfd'; did you mean 'sft'"),
        ({"sft": [], "grpo": [], "test": [], "validation": []}, "no sources"),
        ({"decontaminate": ["math500"]}, "decontaminate: math500: .*data_root: .* has none of"),
        ({"mix": {"test": {"easy": 1}}}, "mix: must be 'sft', .*'test'"),
        ({"mix": {"distill": {"easy": 1}}}, "mix: distill: this recipe has no such list"),
        ({"mix": {"sft": {"easy": 1}}}, "sft: gsm8k: difficulty: goes together with 'mix"),
        ({"sft": [EASY]}, "sft: gsm8k: difficulty: goes together with 'mix"),
        ({"sft": [EASY], "mix": {"sft": {"hard": 1}}}, "mix: sft: these shares cannot be met: "),
        *[({"mix": {"sft": mix}}, "data.yaml: mix: must ")
          for mix in ([], {"easy": 0.5}, {"easy": 1.5}, {"easy": True}, {"easy": 1, "size": 0},
                      {"easy": 1, "sise": 5})],
        *[({"sft": [TRAIN | {"difficulty": value}]}, "sft: gsm8k: difficulty: ")
          for value in ("soft", {"by": "subject", "medium": 3, "hard": 4},
                        {"by": "level", "medium": "3", "hard": 4},
                        {"by": "level", "medium": 5, "hard": 3})],
        *[({"sft": source if isinstance(source, str) else [source]}, words) for source, words in (
            ("gsm8k", "sft: must be a valid dictionary"),
            ({"file": "a"}, "is not a source"),
            ({"name": "gsm9k", "file": "a"}, "name: must be 'gsm8k', .*'gsm9k'"),
            ({"name": "gsm8k"}, "missing key 'file' or 'hub'"),
            ({"name": "gsm8k", "file": "none.jsonl"}, "none.jsonl does not exist"),
            ({"name": "gsm8k", "fil": "a"}, "unknown key 'fil'; did you mean 'file'"),
            (TRAIN | {"sample": 0}, "sample: must be at least 1"),
            (TRAIN | {"options": {"x": 1}}, "options: has no effect on this source"),
            (TRAIN | {"thought": "equations"}, "thought: must be 'equation' .*'equations'"),
            ({"name": "mawps", "file": "a", "thought": "equation"}, "thought: has no effect on"),
            (TRAIN | {"prompt_key": "q"}, "prompt_key: has no effect on this source"),
            (TRAIN | {"name": "generic", "answer_key": "a"}, "missing key 'prompt_key' or"),
            ({"name": "synthetic"}, "missing key 'sample'"),
            (SYNTHETIC | {"file": "a"}, "file: has no effect on this source"),
            (SYNTHETIC | {"options": {"max_levels": 1}}, "synthetic: .*'max_levels'"),
            (SYNTHETIC | {"options": {"max_level": 99}}, "max_level: 99"))],
    ],
)  # fmt: skip
def test_bad_recipes(tmp_path, recipe, change, words):
    with pytest.raises(UserError, match=words) as error:
        run(tmp_path, recipe | change)
    assert "\n" not in str(error.value)
    folder = tmp_path / "run/data"
    assert not folder.exists() or list(folder.iterdir()) == []


def test_the_same_source_twice_gives_duplicates(tmp_path, recipe):
    _, written = run(tmp_path, recipe | {"sft": [TRAIN] * 2, "test": []})
    assert written["outputs"]["sft_train.jsonl"]["rows_out"] == 49


def svamp(number, **changes):
    """A row of SVAMP, `( number + 1 )`."""
    row = {"Body": f"Ann has {number} books and buys 1 more.", "Question": "How many has she now?"}
    return row | {"Answer": number + 1.0, "Equation": f"( {number}.0 + 1.0 )"} | changes


def test_svamp_in_one_file_has_the_hub_s_splits(tmp_path, recipe, monkeypatch):
    rows = [svamp(2, idx=699), svamp(30, idx=700), svamp(400, idx=0), svamp(5000, idx=999)]
    (tmp_path / "svamp").mkdir()
    write_rows(tmp_path / "svamp/svamp_1000.jsonl", rows)
    place = {"name": "svamp", "hub": "ChilleD/SVAMP", "file": "svamp/"}
    recipe = {"sft": [place | {"thought": "equation"}], "test": [place | {"split": "test"}]}
    folder, written = run(tmp_path, recipe)
    names = "sft_train.jsonl", "test.jsonl"
    found = [[row["answers"] for row in read_rows(folder / name)] for name in names]
    assert [sorted(one) for one in found] == [[["3"], ["401"]], [["31"], ["5001"]]]
    assert [written["outputs"][name]["rows_in"] for name in names] == [2, 2]
    hub = {"train": [rows[2], rows[0]], "test": [rows[1], rows[3]]}  # without idx, text for answers
    hub = {
        split: [svamp(int(row["Answer"]) - 1, Answer=f"{row['Answer']:.0f}") for row in of_split]
        for split, of_split in hub.items()
    }
    monkeypatch.setattr(
        "data_prep.builder.rows.load_hub",
        lambda name, split, config: ((f"{split}:{n}", row) for n, row in enumerate(hub[split])),
    )
    run(tmp_path, recipe | {"data_root": None, "output_dir": "{run}/hub"})
    other = [[row["answers"] for row in read_rows(tmp_path / "run/hub" / name)] for name in names]
    assert [sorted(one) for one in other] == [sorted(one) for one in found]


def test_an_equation_s_level_chooses_rows_and_what_disagrees_is_counted(tmp_path, recipe):
    rows = [svamp(2), svamp(30, Answer=1.0), svamp(4, Equation="( 4 * 1.0 ) + 1.0")]
    write_rows(tmp_path / "svamp.jsonl", rows)
    entry = {"name": "svamp", "file": "svamp.jsonl", "thought": "equation", "max_level": 1}
    folder, written = run(tmp_path, {"sft": [entry]})
    (row,) = read_rows(folder / "sft_train.jsonl")
    assert row["completion"] == "<think>\n2 + 1 = 3\n</think>\n\n\\boxed{3}"
    found = written["outputs"]["sft_train.jsonl"]["dropped"]
    assert found == {"level": 1, "solution_disagrees": 1}


def test_two_files_of_one_split_get_ids_of_their_own(tmp_path, recipe):
    recipe["sft"] = [{"name": "gsm8k", "file": file} for file in ("train.jsonl", "other.jsonl")]
    write_gsm8k(tmp_path / "other.jsonl", range(200, 210))
    folder, _ = run(tmp_path, recipe)
    ids = {row["id"] for row in read_rows(folder / "sft_train.jsonl")}
    assert {"gsm8k-train-0", "gsm8k-train2-0"} < ids and len(ids) == 45 + 10


def test_a_set_with_nothing_left_is_an_error(tmp_path, recipe):
    recipe["sft"] = [{"name": "gsm8k", "file": "test.jsonl"}]
    with pytest.raises(UserError, match=r"sft: no problem is left of 5 rows.*in_eval_set"):
        run(tmp_path, recipe)


GENERIC = {"name": "generic", "file": "a.jsonl", "prompt_key": "q", "answer_key": "a"}


@pytest.mark.parametrize(
    ("rows", "key", "extra", "reason", "remedy"),
    [
        ([{"q": "How many?", "a": ""}] * 3, "grpo", {}, "no_answer", "answer_key"),
        ([{"q": "How many?", "a": "proof"}] * 3, "grpo", {}, "sentinel_answer", "values"),
        ([{"q": "How many?", "a": "3"}] * 3, "sft", {}, "no_solution", "solution_key"),
        ([{"q": f"Order {n}?", "a": json.dumps({"id": n})} for n in range(3)], "grpo", {},
         "gold_not_parseable", "`grader: "),
        ([{"q": "How many?", "a": "3", "l": 1}] * 3, "grpo",
         {"level_key": "l", "min_level": 2}, "level", "min_level"),
        ([{"q": f"Which of {n}?", "choices": ["a", "b"], "a": 1} for n in range(3)]
         + [{"q": "How many?", "a": ""}], "test", {}, "multiple_choice", "another source"),
        ([{"q": "How many?", "a": "3"}, {"q": "How many?", "a": "4"}], "grpo", {},
         "conflicting_gold", "copies"),
    ],
)  # fmt: skip
def test_where_no_row_is_left_the_log_stays_and_the_commonest_reason_is_shown(
    tmp_path, rows, key, extra, reason, remedy
):
    path = tmp_path / "a.jsonl"
    write_rows(path, rows)
    with pytest.raises(UserError) as error:
        run(tmp_path, {key: [GENERIC | extra]})
    text = str(error.value)
    assert "\n" not in text and remedy in text and f"{path}:" in text
    folder = tmp_path / "run/data"
    logged = read_rows(folder / "dropped.jsonl")
    assert len(logged) == len(rows) and logged[0]["reason"] == reason
    assert manifest.read(folder) is None and not list(folder.glob("*.partial.partial"))
    # The next build is not refused for it.
    write_rows(path, [{"q": "What is 1 plus 1?", "a": "2", "s": "1+1=2", "l": 2}])
    assert run(tmp_path, {key: [GENERIC | extra | {"solution_key": "s"}]})[1]["rows_out"] == 1
    assert read_rows(folder / "dropped.jsonl") == []


RECORDS = [{"q": f"What did customer {n} order?", "a": {"id": n, "items": 2}} for n in range(30)]
AS_TEXT = [row | {"a": json.dumps(row["a"])} for row in RECORDS]
SUMS = [{"q": f"What is {n} plus {7 * n}?", "a": 8 * n} for n in range(11, 16)]


@pytest.mark.parametrize(
    ("rows", "changes", "is_left"),
    [
        (AS_TEXT, {}, False),
        (AS_TEXT + SUMS, {}, True),
        (AS_TEXT, {"mix": {"grpo": {"easy": 1}}}, False),
        (AS_TEXT + SUMS, {"mix": {"grpo": {"easy": 0.5, "hard": 0.5}}}, False),
        (RECORDS, {}, False),
        (RECORDS, {"on_bad_row": "skip"}, False),
        (RECORDS + SUMS, {"on_bad_row": "skip"}, True),
    ],
)
def test_golds_that_only_a_grader_of_one_s_own_reads_say_so(
    tmp_path, capsys, rows, changes, is_left
):
    write_rows(tmp_path / "a.jsonl", rows)
    source = GENERIC | ({"difficulty": "easy"} if "mix" in changes else {})
    if is_left:
        assert run(tmp_path, {"grpo": [source]} | changes)[1]["rows_out"] == len(SUMS)
        said = capsys.readouterr().err
    else:
        with pytest.raises(UserError) as error:
            run(tmp_path, {"grpo": [source]} | changes)
        said = str(error.value)
    assert "`grader" in said


@pytest.mark.parametrize(("num_rows", "sample"), [(10, 100), (10, 10), (15, 10)])
@pytest.mark.parametrize("key", ["test", "validation", "transfer"])
def test_a_set_that_holds_back_most_rows_is_named_with_its_key(
    tmp_path, capsys, key, num_rows, sample
):
    rows = [{"q": f"What is {n} plus {7 * n}?", "a": 8 * n} for n in range(11, 11 + num_rows)]
    write_rows(tmp_path / "a.jsonl", rows)
    recipe = {key: [GENERIC | {"sample": sample}], "grpo": [GENERIC]}
    if num_rows > sample:
        assert run(tmp_path, recipe)[1]["counts"]["grpo_train"] == num_rows - sample
        said = capsys.readouterr().err
    else:
        with pytest.raises(UserError) as error:
            run(tmp_path, recipe)
        said = str(error.value)
    assert f"`{key}` holds them back" in said and "`sample`" in said


def test_rows_of_a_benchmark_are_not_the_recipe_s_own_choice(tmp_path):
    (tmp_path / "gsm8k").mkdir()
    question = "A train covers 180 miles in 3 hours at one speed. How fast is it, in miles an hour?"
    write_rows(tmp_path / "gsm8k/test.jsonl", [{"question": question, "answer": "#### 60"}])
    write_rows(tmp_path / "a.jsonl", [{"q": question, "a": "60"}])
    with pytest.raises(UserError, match="in no evaluation set"):
        run(tmp_path, {"grpo": [GENERIC], "decontaminate": ["gsm8k"]})


def test_a_failed_build_leaves_the_files_of_the_one_before(tmp_path):
    write_rows(tmp_path / "a.jsonl", [{"q": "What is 1 plus 1?", "a": "2"}])
    folder, made = run(tmp_path, {"grpo": [GENERIC]})
    before = (folder / "grpo_train.jsonl").read_bytes()
    write_rows(tmp_path / "a.jsonl", [{"q": "What is 1 plus 1?", "a": ""}])
    with pytest.raises(UserError, match="no_answer"):
        run(tmp_path, {"grpo": [GENERIC]})
    assert (folder / "grpo_train.jsonl").read_bytes() == before and manifest.read(folder) == made
    assert [row["reason"] for row in read_rows(folder / "dropped.jsonl")] == ["no_answer"]


def test_every_reason_has_a_remedy_unless_another_source_is_it():
    folder = Path(build.__file__).parents[1]
    places = [*folder.glob("builder/*.py"), *folder.glob("sources/*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in places)
    reasons = set(re.findall(r'Drop\(\s*"([a-z_]+)"', text))
    assert {"no_answer", "unfilled_template", "gold_refused", "empty_thought"} < reasons
    assert reasons - REMEDIES.keys() == {"image", "proof", "not_math", "invalid_problem"}


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
    rows = [{"q": f"{n} twos?", "a": 2**n} for n in (2, 60, 70)]
    write_rows(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.jsonl").write_text((tmp_path / "a.jsonl").read_text().replace("}", ".0}"))
    for name in ("a.jsonl", "b.jsonl"):  # which has all digits
        assert notices("grpo", name) == []
        made = read_rows(tmp_path / "run/data/grpo_train.jsonl")
        assert {row["answers"][0] for row in made} == {str(row["a"]) for row in rows}


def test_files_that_no_build_wrote_are_not_touched(tmp_path, recipe):
    """The folder of the raw files is no folder for the built ones."""
    for name, text in (("test.jsonl", "mine"), ("dropped.jsonl", "mine as well")):
        (tmp_path / "run/data").mkdir(parents=True, exist_ok=True)
        (tmp_path / "run/data" / name).write_text(text)
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
    assert sorted(p.name for p in folder.iterdir()) == sorted([*OUTPUTS, *LOGS, "manifest.json"])
    del recipe["validation"]  # a file of a former recipe goes
    run(tmp_path, recipe)
    assert not (folder / "validation.jsonl").exists()


def test_rows_of_a_build_are_looked_at_once(tmp_path, monkeypatch):
    """Those of anybody else at each start; those that were changed since are refused."""
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(3)]
    write_rows(tmp_path / "own.jsonl", rows)
    source = {"name": "generic", "file": "own.jsonl", "prompt_key": "question"}
    folder, _ = run(tmp_path, {"grpo": [source | {"answer_key": "answer"}]})
    looked_at = []
    monkeypatch.setattr(schema, "check_row", lambda row, *_: looked_at.append(row["id"]))
    file = folder / "grpo_train.jsonl"
    assert len([*schema.read_problems(str(file))]) == 3 and not looked_at
    copy = tmp_path / "copy.jsonl"
    copy.write_text(file.read_text())
    assert len([*schema.read_problems(str(copy))]) == len(looked_at) == 3
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match="has changed since the stage data wrote it"):
        next(schema.read_problems(str(file)))
