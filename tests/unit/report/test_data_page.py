"""The page on a made-up data folder: what is written, what it says, and that it is safe to open."""

import json

import pytest

from data_prep.config import UserError
from tests.unit.report.data_folders import (
    EVIL,
    make_drop,
    make_pair,
    make_rows,
    make_source,
    run_report,
    write_build,
    write_lines,
)
from tests.unit.report.test_page import Reader

SFT, GRPO = "sft_train.jsonl", "grpo_train.jsonl"
FILES = {
    SFT: [
        make_source("gsm8k", 5, {"not_sampled": 8}),
        make_source("numinamath", 6, {"no_boxed_answer": 2, "near_duplicate": 1, "strange": 1}),
    ],
    GRPO: [make_source("math", 9, {"in_eval_set": 3, "bad_row": 7})],
}
NUM_ROWS = 20  # that were written


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose texts are hostile, with pass rates of the GRPO file."""
    folder = tmp_path_factory.mktemp("run") / "data"
    rows = {GRPO: make_rows(GRPO, FILES[GRPO], subject="`<b>x`")}
    drops = [make_drop(SFT, "no_boxed_answer", n, question="", answers=[]) for n in range(2)]
    drops += [make_drop(SFT, reason, 5) for reason in ("near_duplicate", "strange")]
    drops += [make_drop(GRPO, "in_eval_set", n, question=EVIL, detail=EVIL) for n in range(3)]
    drops += [make_drop(GRPO, "bad_row", n) for n in range(7)]
    pairs = [make_pair(GRPO, score, id=f"p{score}", question=EVIL) for score in (1, 0.7, 0.8)]
    write_build(
        folder, FILES, pairs, rows=rows, drops=drops,
        decontamination={"math500": 500, "gpqa_diamond": "not checked: no file x"},
    )  # fmt: skip
    rates = [{"id": f"math-train-{n}", "num_right": n % 3, "num_samples": 2} for n in range(8)]
    (folder.parent / "difficulty").mkdir()
    write_lines(folder.parent / "difficulty/pass_rates.jsonl", rates)
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_report(monkeypatch, folder)
    return folder


@pytest.fixture
def folder(made):
    return made.parent / "data-report"


@pytest.fixture
def page(folder):
    return Reader(folder / "data-report.html")


def test_the_files_and_the_numbers(folder):
    assert {path.name for path in folder.iterdir()} == {
        "data-report.html", "data-report.json", "manifest.json",
    }  # fmt: skip
    assert json.loads((folder / "manifest.json").read_text())["stage"] == "data-report"
    report = json.loads((folder / "data-report.json").read_text())
    assert (report["rows_in"], report["rows_out"], report["adds_up"]) == (42, NUM_ROWS, True)
    sft, grpo = report["files"][SFT], report["files"][GRPO]
    assert list(sft["dropped"]) == ["not_sampled", "no_boxed_answer", "strange", "near_duplicate"]
    assert list(grpo["dropped"]) == ["bad_row", "in_eval_set"]
    assert (sft["num_rows"], sft["by_source"]) == (11, {"numinamath": 6, "gsm8k": 5})
    assert sft["lengths"]["completion"] == {
        "num": 11, "mean": pytest.approx((5 * 16 + 6 * 21) / 11), "median": 21, "p95": 21,
        "longest": 21,
    }  # fmt: skip
    assert sft["levels"]["gsm8k"] == [[0, 1], [3, 1]]
    assert grpo["solved"] == [[0, 2, 3], [1, 2, 3], [2, 2, 2]]
    assert len(grpo["samples"]["bad_row"]) == 5 and grpo["num_logged"]["bad_row"] == 7
    assert report["matches"] == [["math500", GRPO, "reworded", 3]]
    assert [pair["score"] for pair in report["pairs"]] == [0.7, 0.8, 1.0]


def test_the_steps_add_up_row_by_row(page):
    table = next(table for table in page.tables if table[0][0] == "step")
    assert table == [
        ["step", "rows", "%", "left", "gsm8k", "numinamath"],
        ["rows in", "23", "100.0", "23", "13", "10"],
        ["not_sampled", "8", "34.8", "15", "8 (61.5 %)", "-"],
        ["no_boxed_answer", "2", "8.7", "13", "-", "2 (20.0 %)"],
        ["strange", "1", "4.3", "12", "-", "1 (10.0 %)"],
        ["near_duplicate", "1", "4.3", "11", "-", "1 (10.0 %)"],
        ["rows out", "11", "47.8", "11", "5 (38.5 %)", "6 (60.0 %)"],
    ]


def test_what_the_page_says(page):
    assert ["math500", "500", "3", "3"] in page.rows
    assert ["gpqa_diamond", "not checked", "-", "-"] in page.rows
    bars = [["right", "", "rows", "%"], ["0", "", "3", "37.5"], ["1", "", "3", "37.5"]]
    assert [*bars, ["2", "", "2", "25.0"]] in page.tables
    assert ["build", "3.0", "75.0"] in page.rows
    for words in (
        "8 of 9 problems of grpo_train.jsonl",
        "<h3>p0 (raw.jsonl:0)</h3>\n<p>so it is</p>\n",
        "<code>no_boxed_answer</code>, 2 rows: the solution boxes nothing",
        "grpo_train.jsonl: 5 of 7 rows",
        "width: 100.0%",
    ):
        assert words in page.text
    ids = {value for name, value in page.attributes if name == "id"}
    assert {"built", "steps", "lengths", "mix", "difficulty", "decontamination"} <= ids
    assert {"dropped", "provenance", "lengths-0-figure_1"} <= ids


def test_the_page_is_safe_and_shows_texts_as_they_are(page):
    page.check_safe()
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert page.pres.count(shown) == 6  # three dropped rows, three pairs
    assert "&lt;b&gt;x" in page.text  # a subject


def test_the_same_folder_gives_the_same_page(made, folder, monkeypatch, capsys):
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    run_report(monkeypatch, made)
    again = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [name for name in first if first[name] != again[name]] in ([], ["manifest.json"])
    out = capsys.readouterr().out
    assert "warning: gpqa_diamond was not kept out of the training files: no file x." in out
    *_, last = out.splitlines()
    assert last.startswith("data-report: 42 rows of 3 sources became 20 problems")
    assert last.endswith("data-report/data-report.html") and "evil" not in out


def test_one_row_and_nothing_dropped(tmp_path, monkeypatch, capsys):
    data = write_build(tmp_path / "data", {"test.jsonl": [make_source("synthetic", 1)]})
    text = (run_report(monkeypatch, data) / "data-report.html").read_text()
    assert "1 row of 1 source became 1 problem" in text and "None was left out." in text
    assert 'id="dropped"' not in text and "warning" not in capsys.readouterr().out


def test_lengths_in_tokens(tmp_path, monkeypatch):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    rows = make_rows("test.jsonl", [make_source("math", 3)], question="how many words ?")
    files = {"test.jsonl": [make_source("math", 3)]}
    # By flag, or as the build was told.
    for flags, told in ((["--tokenizer", str(tmp_path)], None), ([], str(tmp_path))):
        config = {"tokenizer": told}
        data = write_build(tmp_path / "data", files, rows={"test.jsonl": rows}, config=config)
        folder = run_report(monkeypatch, data, *flags)
        report = json.loads((folder / "data-report.json").read_text())
        found = report["files"]["test.jsonl"]["lengths"]["question"]
        assert (report["unit"], found["median"], found["num"]) == ("tokens", 4, 3)


def write(name, text):
    return lambda data: (data / name).write_text(text)


def end(name, line):
    """Overwrite a file's last row."""

    def harm(data):
        lines = (data / name).read_text().splitlines()
        (data / name).write_text("\n".join([*lines[:-1], line]) + "\n")

    return harm


def remove(name):
    return lambda data: (data / name).unlink()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (remove("manifest.json"), "has no manifest.json: .*run `make data`"),
        (write("manifest.json", "{"), "manifest.json is damaged"),
        (write("manifest.json", '{"stage": "sft"}'), "stage: 'sft' is not"),
        (write("manifest.json", "[]"), "stage: None is not 'data'"),
        (write("manifest.json", '{"stage": "data", "config": {}}'), "rows_in: missing or unknown"),
        (remove(SFT), f"{SFT}: no such file"),
        (remove("dropped.jsonl"), "dropped.jsonl: no such file"),
        (remove("contamination.jsonl"), "contamination.jsonl: no such file"),
        (end(SFT, '{"id": "x"}'), f"{SFT}:3: source: None is not text"),
        (
            end(SFT, '{"id": "x", "source": "s", "subject": "", "level": "5"}'),
            f"{SFT}:3: level: '5' is not a number",
        ),
        (end(SFT, '{"id": '), f"{SFT}:3: "),
        (end("dropped.jsonl", '{"file": 3}'), "dropped.jsonl:2: file: 3 is not"),
        (
            write("contamination.jsonl", json.dumps(make_pair(score="high"))),
            "contamination.jsonl:1: score: 'high' is not a number",
        ),
    ],
)
def test_what_cannot_be_shown_is_told(tmp_path, monkeypatch, harm, words):
    data = write_build(tmp_path / "data", {SFT: [make_source("gsm8k", 3, {"image": 2})]})
    harm(data)
    with pytest.raises(UserError, match=words) as error:
        run_report(monkeypatch, data)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data-report/manifest.json").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--rows", "0"], "rows: 0 must be at least 1"),
        (["--pass_rates", "none.jsonl"], "pass_rates: none.jsonl does not exist"),
        (["--output_dir", "DATA"], "holds the result of another stage"),
        (["--tokenizer", "/no/such"], "tokenizer: /no/such: "),
        (["--data", "/no/such"], "/no/such is not a folder"),
    ],
)
def test_bad_flags(tmp_path, monkeypatch, flags, words):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = write_build(tmp_path / "data", {SFT: [make_source()]})
    with pytest.raises(UserError, match=words):
        run_report(monkeypatch, data, *(str(data) if flag == "DATA" else flag for flag in flags))
    assert (data / "manifest.json").exists()
