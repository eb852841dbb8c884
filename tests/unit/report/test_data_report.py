"""The page on a built data folder: its numbers and warnings, what it says, what it refuses."""

import json
from collections import Counter

import pytest

from data_prep.config import UserError
from eval.report import data_report
from tests.unit.report.data_folders import (
    EVIL,
    add_up,
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


def test_a_draw_of_dropped_rows_is_uniform_and_the_same_again(tmp_path):
    """Each of 10 rows is one of 5 drawn for half of 1,000 reasons; standard deviation 16."""
    reasons = [f"reason {n}" for n in range(1000)]
    rows = [make_drop(SFT, reason, n) for reason in reasons for n in range(10)]
    write_lines(tmp_path / "dropped.jsonl", rows)
    drawn = []
    for _ in range(2):
        files = {SFT: {"dropped": dict.fromkeys([*reasons, "not_sampled"], 10)}}
        data_report.add_samples(files, tmp_path / "dropped.jsonl")
        assert [*files[SFT]["samples"]] == reasons
        drawn.append([row["id"] for kept in files[SFT]["samples"].values() for row in kept])
    hits = Counter(drawn[0])
    assert len(hits) == 10 and all(420 < n < 580 for n in hits.values()) and drawn[0] == drawn[1]


def make_report(sources, name=SFT, mix=None, decontamination=None, **changes):
    """A report's counts of one file that is as its manifest says, but for `changes`."""
    outputs = {name: add_up(sources) | {"sources": sources}}
    build = {"config": {"mix": mix or {}}, "outputs": outputs}
    build["decontamination"] = LISTED if decontamination is None else decontamination
    file = data_report.describe_file(name, build)
    file |= {"num_rows": file["rows_out"]} | changes
    return {"files": {name: file}, "decontamination": data_report.describe_benchmarks(build)}


LISTED = dict.fromkeys(("gsm8k", "math500", "aime24", "aime25", "gpqa_diamond", "arc_challenge"), 9)


@pytest.mark.parametrize(
    ("sources", "changes", "words"),
    [
        ([make_source("synthetic", 9)], {"decontamination": {}}, []),
        ([make_source("gsm8k", 9, {"image": 1, "not_sampled": 90})], {}, []),
        ([make_source("gsm8k", 5, {"image": 5})], {}, []),
        ([make_source()], {"name": "test.jsonl", "decontamination": {}}, []),
        ([make_source()], {"decontamination": LISTED | {"aime24": "not checked: no file a.jsonl"}},
         ["aime24 was not kept out of the training files: no file a.jsonl."]),
        ([make_source()], {"decontamination": dict.fromkeys([*LISTED][1:], 3)},
         ["gsm8k was not kept out of the training files: not listed"]),
        ([make_source("orz", 9, {"bad_row": 2})], {}, ["2 rows of orz cannot be read"]),
        ([make_source("a", 4, {"image": 5, "proof": 1}), make_source("b", 90)], {},
         ["a lost 6 of 10 rows"]),
        ([make_source("gsm8k", 10, {"not_in_mix": 90})], {}, []),
        ([make_source()], {"num_rows": 3}, ["other rows than the manifest"]),
    ],
)  # fmt: skip
def test_warnings(sources, changes, words):
    found = data_report.warnings(make_report(sources, **changes))
    assert len(found) == len(words), found
    for warning, part in zip(found, words, strict=True):
        assert part in warning


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
    """A run whose texts are hostile."""
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
    names = {"data-report.html", "data-report.json", "manifest.json"}
    assert {path.name for path in folder.iterdir()} == names
    report = json.loads((folder / "data-report.json").read_text())
    assert (report["rows_in"], report["rows_out"]) == (42, NUM_ROWS)
    sft, grpo = report["files"][SFT], report["files"][GRPO]
    assert list(sft["dropped"]) == ["not_sampled", "no_boxed_answer", "near_duplicate", "strange"]
    assert sft["num_rows"] == 11 and sft["made_of"]["source"] == [["numinamath", 6], ["gsm8k", 5]]
    assert list(sft["lengths"]["completion"].values()) == [11, 21, 21, 21]
    assert ["gsm8k 3", 1] in sft["made_of"]["level"]
    assert len(grpo["samples"]["bad_row"]) == 5
    assert report["matches"] == [["math500", GRPO, "reworded", 3]]
    assert [pair["score"] for pair in report["pairs"]] == [0.7, 0.8, 1.0]


def test_what_the_page_says(page):
    table = page.tables[0]
    assert table[:2] == [
        ["", "rows", "%", "gsm8k", "numinamath"], ["rows in", "23", "100.0", "13", "10"],
    ]  # fmt: skip
    assert ["strange", "1", "4.3", "0", "1"] in table
    assert table[-1] == ["rows out", "11", "47.8", "5", "6"]
    assert ["math500", "500"] in page.rows
    assert ["math500", GRPO, "reworded", "3"] in page.rows
    assert ["source", "numinamath", "6", "54.5"] in page.rows
    assert "<h3>p0 (raw.jsonl:0)</h3>\n<p>so it is</p>\n" in page.text
    assert "grpo_train.jsonl: <code>bad_row</code>, 5 of 7 rows" in page.text
    ids = {value for name, value in page.attributes if name == "id"}
    assert f"{SFT}-figure_1" in ids
    assert ids >= {"steps", "lengths", "mix", "decontamination", "dropped", "provenance"}


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
    assert "warning: gpqa_diamond" in out and "evil" not in out
    assert out.endswith("data-report/data-report.html\n")


def test_lengths_in_tokens(tmp_path, monkeypatch):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    files = {"test.jsonl": [make_source("math", 3)]}
    rows = {"test.jsonl": make_rows("test.jsonl", files["test.jsonl"], question="how many words ?")}
    # By flag, or as the build was told.
    for flags, told in ((["--tokenizer", str(tmp_path)], None), ([], str(tmp_path))):
        data = write_build(tmp_path / "data", files, rows=rows, config={"tokenizer": told})
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


HARM = [
    (remove("manifest.json"), "manifest.json is missing; run `make data`"),
    (write("manifest.json", "{"), "manifest.json is damaged"),
    (write("manifest.json", '{"stage": "sft"}'), "manifest.json: is of the stage sft"),
    (write("manifest.json", '{"stage": "data", "config": {}, "outputs": {}}'), "rows_in"),
    (remove(SFT), f"{SFT}: no such file"),
    (end(SFT, '{"id": "x"}'), f"{SFT} is damaged"),
    (end(SFT, '{"id": '), f"{SFT}:3: "),
    (end("dropped.jsonl", '{"file": 3}'), "dropped.jsonl is damaged"),
]


@pytest.mark.parametrize(("harm", "words"), HARM)
def test_what_cannot_be_shown_is_told(tmp_path, monkeypatch, harm, words):
    data = write_build(tmp_path / "data", {SFT: [make_source("gsm8k", 3, {"image": 2})]})
    harm(data)
    with pytest.raises(UserError, match=words) as error:
        run_report(monkeypatch, data)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data-report/manifest.json").exists()
