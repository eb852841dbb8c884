"""The data build: counts that add up, determinism, decontamination, and clean failure."""

import subprocess
import sys

import pytest

from data_prep import manifest
from data_prep.build import __main__ as build
from data_prep.config import UserError
from tests.unit.build.helpers import rows_of, run, write

OUTPUTS = ["grpo_train.jsonl", "sft_train.jsonl", "test.jsonl", "validation.jsonl"]


def write_gsm8k(path, numbers):
    rows = [{"question": f"What is {n} plus 1?", "answer": f"{n}+1\n#### {n + 1}"} for n in numbers]
    write(path, rows)


NO_BENCHMARK = (
    "notice: gsm8k may hold problems of benchmarks, and none is checked; set decontaminate: "
    "[gsm8k, math500, aime24, aime25]\n"
)
LOGS = ["contamination.jsonl", "dropped.jsonl"]


def counts(output):
    """A file's entry of the manifest without its sources, which must add up to it."""
    for name in ("rows_in", "rows_out"):
        assert output[name] == sum(source[name] for source in output["sources"])
    for reason, number in output["dropped"].items():
        assert number == sum(source["dropped"].get(reason, 0) for source in output["sources"])
    return {name: output[name] for name in ("rows_in", "rows_out", "dropped")}


@pytest.fixture
def recipe(tmp_path):
    write_gsm8k(tmp_path / "train.jsonl", [*range(50), 7])  # one duplicate
    write_gsm8k(tmp_path / "test.jsonl", range(40, 45))  # all of them in train
    write_gsm8k(tmp_path / "validation.jsonl", [44, 100])  # one of them in test
    entry = {"name": "gsm8k", "hub": "openai/gsm8k", "file": "train.jsonl"}
    return {
        "data_root": str(tmp_path),
        "system_prompt": "think",
        "sft": [entry],
        "grpo": [entry | {"sample": 30}],
        "validation": [{"name": "gsm8k", "file": "validation.jsonl", "split": "validation"}],
        "test": [{"name": "gsm8k", "file": "test.jsonl", "split": "test"}],
    }


def test_the_form_of_the_answer_is_the_recipes(tmp_path, recipe):
    for changes, form, final in (
        ({}, "box", "\\boxed{1}"),
        ({"system_prompt": "answer_tags"}, "tags", "<answer>1</answer>"),
        ({"answer_form": "tags"}, "tags", "<answer>1</answer>"),
    ):
        folder, _ = run(tmp_path, recipe | changes)
        rows = [row for name in OUTPUTS for row in rows_of(folder / name)]
        assert {row["answer_form"] for row in rows} == {form}
        assert any(row.get("completion", "").endswith(final) for row in rows)


def test_counts_add_up_and_no_question_leaks(tmp_path, recipe, capsys):
    folder, _ = run(tmp_path, recipe)
    assert sorted(p.name for p in folder.iterdir()) == sorted([*OUTPUTS, *LOGS, "manifest.json"])
    sets = {name: rows_of(folder / name) for name in OUTPUTS}
    written = manifest.read(folder)
    assert counts(written["outputs"]["sft_train.jsonl"]) == {
        "rows_in": 51, "rows_out": 45, "dropped": {"duplicate_question": 1, "in_eval_set": 5},
    }  # fmt: skip
    assert written["outputs"]["validation.jsonl"]["dropped"] == {"in_eval_set": 1}
    assert written["outputs"]["grpo_train.jsonl"]["dropped"]["not_sampled"] == 21
    for totals in (written, *written["outputs"].values()):
        assert totals["rows_in"] == totals["rows_out"] + sum(totals["dropped"].values())
    assert written["rows_out"] == sum(map(len, sets.values()))
    assert written["rows_in"] == 51 + 51 + 5 + 2
    assert len(written["inputs"]) == 3 and all(len(h) == 64 for h in written["inputs"].values())
    logged = rows_of(folder / "dropped.jsonl")
    assert len(logged) == sum(
        number
        for output in written["outputs"].values()
        for reason, number in output["dropped"].items()
        if reason != "not_sampled"
    )
    pairs = rows_of(folder / "contamination.jsonl")
    assert {(pair["file"], pair["benchmark"]) for pair in pairs} == {
        ("validation.jsonl", "test"), ("sft_train.jsonl", "test"), ("grpo_train.jsonl", "test"),
    }  # fmt: skip
    assert all(pair["question"] == pair["benchmark_question"] for pair in pairs)
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


def test_same_seed_same_bytes(tmp_path, recipe):
    def content(*flags):
        folder, _ = run(tmp_path, recipe, *flags)
        return {name: (folder / name).read_bytes() for name in OUTPUTS}

    first = content()
    assert content() == first
    other = content("--seed", "1")
    assert other["sft_train.jsonl"] != first["sft_train.jsonl"]
    assert other["test.jsonl"] == first["test.jsonl"]  # evaluation keeps the file's order


def test_short_source_is_taken_whole_with_a_notice(tmp_path, recipe, capsys):
    recipe["grpo"][0]["sample"] = 1000
    run(tmp_path, recipe)
    err = capsys.readouterr().err
    assert (
        err
        == NO_BENCHMARK + "notice: grpo: gsm8k has 51 rows, fewer than sample 1000: all are taken\n"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": "q"}', "train.jsonl:52: missing column 'answer'"),
        ('{"question": "q", "answer": "#### x"}', "train.jsonl:52: answer: the gold 'x'"),
        ('{"question": ', "train.jsonl:52: malformed JSON"),
        ("[]", "train.jsonl:52: a row must be an object"),
    ],
)
def test_a_bad_row_leaves_no_output(tmp_path, recipe, line, words):
    folder, _ = run(tmp_path, recipe)  # an older result is there
    with (tmp_path / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(UserError) as error:
        run(tmp_path, recipe)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert list(folder.iterdir()) == []


def test_a_crash_while_writing_leaves_no_output(tmp_path, recipe, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(build, "sft_row", fail)
    with pytest.raises(UserError, match=r"output_dir: .*disk full; check the disk"):
        run(tmp_path, recipe)
    assert list((tmp_path / "run/data").iterdir()) == []


SYNTHETIC = {"name": "synthetic", "sample": 5}
TRAIN = {"name": "gsm8k", "file": "train.jsonl"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data_root": "/no/such/folder"}, "data_root: /no/such/folder is not a folder"),
        ({"answer_form": "boxed"}, "answer_form: must be one of box, tags .*'boxed'"),
        ({"system_prompt": "thinks"}, "system_prompt: must be one of none, .*'thinks'"),
        ({"sft": [{"name": "gsm8k", "file": "none.jsonl"}]}, "none.jsonl does not exist"),
        ({"sft": [{"name": "gsm8k", "fil": "a"}]}, "unknown key 'fil' .* did you mean 'file'"),
        ({"sft": [{"name": "gsm9k", "file": "a"}]}, "name: must be one of gsm8k, .*'gsm9k'"),
        ({"sft": [{"name": "gsm8k"}]}, "set 'file' or 'hub'"),
        ({"sft": [{"file": "a"}]}, "is not a source"),
        ({"sft": ["gsm8k"]}, "sft: 'gsm8k' is not a mapping"),
        ({"sft": "gsm8k"}, "sft: 'gsm8k' is not a list of mappings"),
        ({"sft": [{"name": "gsm8k", "file": "a", "options": {"x": 1}}]}, "only synthetic has"),
        ({"sft": [{"name": "gsm8k", "file": "train.jsonl", "sample": 0}]}, "sample: 0 is not"),
        ({"sft": [{"name": "gsm8k", "file": "a", "split": 3}]}, "split: 3 is not text"),
        ({"sft": [{"name": "synthetic"}]}, "missing key 'sample'"),
        ({"sft": [SYNTHETIC | {"file": "a"}]}, "is generated"),
        ({"sft": [SYNTHETIC | {"options": {"max_levels": 1}}]}, "synthetic: .*'max_levels'"),
        ({"sft": [SYNTHETIC | {"options": {"levels": 1}}]}, "synthetic: levels: 1 is not a list"),
        ({"sft": [SYNTHETIC | {"options": {"max_level": 99}}]}, "max_level: 99"),
        ({"sfd": []}, "unknown key 'sfd'; did you mean 'sft'"),
        ({"sft": [], "grpo": [], "test": [], "validation": []}, "no sources"),
        ({"sft": [TRAIN | {"prompt_key": "q"}]}, "prompt_key: has no effect on this source"),
        ({"sft": [SYNTHETIC | {"trace": 1}]}, "trace: has no effect on this source"),
        ({"sft": [TRAIN | {"name": "generic"}]}, "missing key 'prompt_key'"),
        ({"sft": [TRAIN | {"min_level": "3"}]}, "min_level: '3' is not a number"),
        ({"sft": [TRAIN | {"difficulty": "soft"}]}, "difficulty: 'soft'"),
        ({"sft": [TRAIN | {"difficulty": "easy"}]}, "has no effect without 'mix"),
        ({"mix": {"sft": {"easy": 1}}}, "missing key 'difficulty', which the mix needs"),
        ({"mix": {"test": {"easy": 1}}}, "mix: must be for training sets .*'test'"),
        (
            {"mix": {"sft": {"easy": 0.5, "hard": 0.5}}, "sft": [TRAIN | {"difficulty": "easy"}]},
            "hard: 0.5, but no source is hard",
        ),
        ({"mix": "easy"}, "mix: 'easy' is not a mapping"),
        ({"decontaminate": ["gsm9k"]}, "decontaminate: must be some of gsm8k, .*'gsm9k'"),
        ({"decontaminate": ["math500"]}, "decontaminate: math500: .*data_root: .* has none of"),
        ({"languages": ["english"]}, "languages: must be some of en, .*'english'"),
        ({"languages": "en"}, "languages: 'en' is not a list of texts; write"),
        ({"decontaminate": 5}, "decontaminate: 5 is not a list of texts"),
        ({"decontaminate": [["gsm8k"]]}, "decontaminate: .* is not a list of texts"),
        ({"output_dir": 5}, "output_dir: 5 is not one text; quote it"),
        ({"pass_rates": 5}, "pass_rates: 5 is not one text"),
        ({"output_dir": True}, "output_dir: True is not one text"),
        ({"sft": [TRAIN | {"min_level": 5, "max_level": 3}]}, "min_level: 5 is above max_level: 3"),
        ({"sft": [TRAIN | {"min_level": float("nan")}]}, "min_level: nan is not a number"),
        ({"max_question_tokens": 5}, "max_question_tokens: needs 'tokenizer'"),
        ({"max_question_tokens": 0}, "max_question_tokens: must be above 0"),
        ({"max_question_tokens": 5, "tokenizer": "/no/such"}, "tokenizer: /no/such: "),
        ({"num_workers": -1}, "num_workers: must be 0 or more"),
        ({"on_bad_row": "ignore"}, "on_bad_row: must be one of stop, skip .*'ignore'"),
        ({"sft": [TRAIN | {"hub_file": "a"}]}, "hub_file: needs 'hub'"),
        ({"sft": [{"name": "gsm8k", "file": "train.jsonl"}] * 2, "test": []}, None),
    ],
)
def test_bad_recipes(tmp_path, recipe, change, words):
    if words is None:  # the same source twice: duplicates, counted as such
        folder, _ = run(tmp_path, recipe | change)
        assert manifest.read(folder)["outputs"]["sft_train.jsonl"]["rows_out"] == 49
        return
    with pytest.raises(UserError, match=words):
        run(tmp_path, recipe | change)
    folder = tmp_path / "run/data"
    assert not folder.exists() or list(folder.iterdir()) == []


def test_two_files_of_one_split_get_ids_of_their_own(tmp_path, recipe):
    recipe["sft"] = [{"name": "gsm8k", "file": file} for file in ("train.jsonl", "other.jsonl")]
    write_gsm8k(tmp_path / "other.jsonl", range(200, 210))
    folder, _ = run(tmp_path, recipe)
    ids = {row["id"] for row in rows_of(folder / "sft_train.jsonl")}
    assert {"gsm8k-train-0", "gsm8k-train2-0"} < ids and len(ids) == 45 + 10


def test_a_set_with_nothing_left_is_an_error(tmp_path, recipe):
    recipe["sft"] = [{"name": "gsm8k", "file": "test.jsonl"}]
    with pytest.raises(UserError, match=r"sft: no problem is left of 5 rows.*in_eval_set"):
        run(tmp_path, recipe)


def test_cli_says_one_line_and_exits_2(tmp_path):
    config = tmp_path / "data.yaml"
    config.write_text("output_dir: x\nsft: [{name: nope}]\n", encoding="utf-8")
    command = [sys.executable, "-m", "data_prep.build", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: sft: name: ") and done.stderr.count("\n") == 1


def test_importing_the_cli_imports_nothing_heavy():
    code = (
        "import sys, data_prep.build.__main__\n"
        "heavy = {'torch', 'trl', 'datasets', 'transformers', 'sympy', 'pyarrow'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_that_no_build_wrote_are_not_touched(tmp_path, recipe):
    """The folder of the raw files is no folder for the built ones."""
    for name, text in (("test.jsonl", "mine"), ("dropped.jsonl", "mine as well")):
        (tmp_path / "run/data").mkdir(parents=True, exist_ok=True)
        (tmp_path / "run/data" / name).write_text(text)
    with pytest.raises(UserError, match=r"run/data holds test\.jsonl, which no build wrote"):
        run(tmp_path, recipe)
    with pytest.raises(UserError, match=r"holds test\.jsonl, which is read; choose another"):
        run(tmp_path, recipe, "--output_dir", str(tmp_path))
    assert (tmp_path / "run/data/test.jsonl").read_text() == "mine"
    assert (tmp_path / "train.jsonl").exists() and (tmp_path / "test.jsonl").exists()


def test_what_a_killed_build_left_is_built_over(tmp_path, recipe):
    folder = tmp_path / "run/data"
    folder.mkdir(parents=True)
    for name in ("build.partial", "test.jsonl", "sft_train.jsonl.partial"):
        (folder / name).write_text("half")
    (folder / "test.jsonl.spool.partial").write_text("half")
    run(tmp_path, recipe)
    assert sorted(p.name for p in folder.iterdir()) == sorted([*OUTPUTS, *LOGS, "manifest.json"])
    del recipe["validation"]  # a file of a former recipe goes
    run(tmp_path, recipe)
    assert not (folder / "validation.jsonl").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--output_dir",), "output_dir: True is not one text"),
        (("--output_dir", "a", "b"), r"output_dir: \['a', 'b'\] is not one text"),
        (("--output_dir", " "), "output_dir: must be a path .got ' '"),
        (("--decontaminate",), "decontaminate: True is not a list of texts"),
        (("--mix", "{grpo: {easy: 1}}"), "mix: .* belongs in the YAML"),
        (("--sft", "[{name: gsm8k}]"), "sft: .* belongs in the YAML"),
    ],
)
def test_bad_command_lines(tmp_path, recipe, flags, words):
    with pytest.raises(UserError, match=words):
        run(tmp_path, recipe, *flags)


def test_lists_of_one_from_the_command_line(tmp_path, recipe):
    folder, _ = run(tmp_path, recipe, "--languages", "en")
    assert manifest.read(folder)["config"]["languages"] == ["en"]
