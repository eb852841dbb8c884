"""The page on a made-up data folder: what is written, what it says, and that it is safe to open."""

import json
import re

import pytest
from data_folders import (
    EVIL,
    make_drop,
    make_pair,
    make_rows,
    make_source,
    run_report,
    write_build,
    write_lines,
)
from test_report import Reader, markdown_tables

from data_prep.config import UserError

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
    drops = [make_drop(SFT, "no_boxed_answer", n, question="", answer="") for n in range(2)]
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
    return Reader((folder / "data-report.html").read_text())


def test_the_files_and_the_numbers(folder):
    assert {path.name for path in folder.iterdir()} == {
        "data-report.html", "data-report.md", "data-report.json", "manifest.json", "lengths.png",
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


def test_the_page_and_its_twin_have_the_same_tables(folder, page):
    text = (folder / "data-report.md").read_text()
    bars = [table for table in page.tables if "" in table[0]]  # with a column for the bars
    assert len(bars) >= 6
    plain = [
        [[cell for place, cell in enumerate(row) if place != 1] for row in table]
        if table in bars
        else table
        for table in page.tables
    ]
    ours = [[[cell.replace("`", "") for cell in row] for row in table] for table in plain]
    shown = [
        [[cell.replace("&lt;", "<") for cell in row] for row in table]
        for table in markdown_tables(text)
    ]
    assert shown == ours
    assert ["math500", "500", "3", "3"] in [row for table in shown for row in table]
    assert ["gpqa_diamond", "not checked", "-", "-"] in [row for table in shown for row in table]
    assert [["right", "rows", "%"], ["0", "3", "37.5"], ["1", "3", "37.5"], ["2", "2", "25.0"]] in (
        shown
    )
    assert "8 of 9 problems of grpo_train.jsonl" in text
    assert "](lengths.png)" in text and "| build | 3.0 | 75.0 |" in text
    assert (folder / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_loads_nothing_and_runs_nothing(folder, page):
    assert not page.tags & {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
    targets = {name: value for name, value in page.attributes if name.endswith(("href", "src"))}
    assert targets and all(value.startswith("#") for value in targets.values())
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) and {"steps", "dropped", "decontamination"} <= set(ids)
    assert "default-src 'none'" in (folder / "data-report.html").read_text()


def test_texts_of_others_are_shown_and_nothing_else(folder, page):
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert page.pres.count(shown) == 6  # three dropped rows, three pairs
    for name in ("data-report.html", "data-report.md"):
        text = (folder / name).read_text()
        assert "\x1b" not in text and "\u202e" not in text
    text = (folder / "data-report.md").read_text()
    assert text.count(f"``````text\n{shown}\n``````") == 6
    outside = re.sub(r"^(`{3,})text$.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "evil" in outside  # the detail
    assert "<script" not in outside and "<img" not in outside and "](http" not in outside


def test_rows_without_texts_show_where_and_why(folder):
    text = (folder / "data-report.md").read_text()
    assert "**raw.jsonl:0**\n\nso it is\n\n**raw.jsonl:1**" not in text  # ids come first
    assert "**p0 (raw.jsonl:0)**\n\nso it is\n\n**p1 (raw.jsonl:1)**\n\nso it is" in text
    assert "`no_boxed_answer`, 2 rows: the solution boxes nothing" in text
    assert "grpo_train.jsonl: 5 of 7 rows" in text


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
    text = (run_report(monkeypatch, data) / "data-report.md").read_text()
    assert "1 rows of 1 source" not in text and "1 row of 1 source became 1 problem" in text
    assert "None was left out." in text and "**Warnings**" not in text
    assert "## Rows that were left out" not in text and "warning" not in capsys.readouterr().out


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


def change(folder, name, line):
    """Overwrite a file's last row."""
    lines = (folder / name).read_text().splitlines()
    (folder / name).write_text("\n".join([*lines[:-1], line]) + "\n")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda d: (d / "manifest.json").unlink(), "has no manifest.json: .*run `make data`"),
        (lambda d: (d / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (lambda d: (d / "manifest.json").write_text('{"stage": "sft"}'), "stage: 'sft' is not"),
        (lambda d: (d / "manifest.json").write_text("[]"), "stage: None is not 'data'"),
        (
            lambda d: (d / "manifest.json").write_text('{"stage": "data", "config": {}}'),
            "rows_in: missing or unknown, .*run `make data` again",
        ),
        (lambda d: (d / SFT).unlink(), f"{SFT}: no such file"),
        (lambda d: (d / "dropped.jsonl").unlink(), "dropped.jsonl: no such file"),
        (lambda d: (d / "contamination.jsonl").unlink(), "contamination.jsonl: no such file"),
        (lambda d: change(d, SFT, '{"id": "x"}'), f"{SFT}:3: source: None is not text"),
        (
            lambda d: change(d, SFT, '{"id": "x", "source": "s", "subject": "", "level": "5"}'),
            f"{SFT}:3: level: '5' is not a number",
        ),
        (lambda d: change(d, SFT, '{"id": '), f"{SFT}:3: "),
        (lambda d: change(d, "dropped.jsonl", '{"file": 3}'), "dropped.jsonl:2: file: 3 is not"),
        (
            lambda d: write_lines(d / "contamination.jsonl", [make_pair(score="high")]),
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
