"""The page on a built data folder: its numbers and warnings, what it says, what it refuses."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

import data_prep
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


def written_reasons():
    """The reasons that calls in the builder's code name."""
    places = {"Drop": 0, "Dropped": 1, "drop": 2, "leave_out": 1}
    for path in Path(data_prep.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            place = places.get(getattr(node.func, "id", getattr(node.func, "attr", "")))
            if place is not None and len(node.args) > place:
                value = node.args[place]
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value


def test_every_reason_of_the_builder_is_explained():
    found = set(written_reasons())
    assert {"bad_row", "image", "no_answer", "not_in_mix", "duplicate_question"} <= found
    assert found <= {*data_report.READING, *data_report.CLEANING}


def test_reasons_are_in_the_order_of_the_steps():
    wanted = ["not_sampled", "bad_row", "no_answer", "unheard_of", "image", "in_eval_set",
              "near_duplicate", "not_in_mix"]  # fmt: skip
    assert list(data_report.in_order(dict.fromkeys(sorted(wanted), 1))) == wanted


def test_a_draw_of_dropped_rows_is_uniform_and_the_same_again(tmp_path):
    """Each of 10 rows is one of 3 drawn for 3 of 10 reasons; standard deviation 14."""
    reasons = [f"reason {n}" for n in range(1000)]
    rows = [make_drop(SFT, reason, n) for reason in reasons for n in range(10)]
    write_lines(tmp_path / "dropped.jsonl", [*rows, make_drop(SFT, "unwanted", 0)])
    drawn = []
    for _ in range(2):
        files = {SFT: {"dropped": dict.fromkeys(reasons, 10)}}
        data_report.add_dropped(files, tmp_path, 3)
        assert files[SFT]["num_logged"] == dict.fromkeys(reasons, 10)
        drawn.append([row["id"] for kept in files[SFT]["samples"].values() for row in kept])
    hits = Counter(drawn[0])
    assert len(hits) == 10 and all(220 < n < 380 for n in hits.values()) and drawn[0] == drawn[1]


def make_report(sources, name=SFT, mix=None, decontamination=None, **changes):
    """A report's counts of one file that is as its manifest says, but for `changes`."""
    outputs = {name: add_up(sources) | {"sources": sources}}
    build = {"config": {"mix": mix or {}}, "outputs": outputs}
    build["decontamination"] = LISTED if decontamination is None else decontamination
    file = data_report.describe_file(name, build)
    file |= {"num_rows": file["rows_out"], "num_logged": data_report.logged(file)} | changes
    return {"files": {name: file}, "adds_up": True} | {
        "decontamination": data_report.describe_benchmarks(build)
    }


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
        ([make_source("gsm8k", 10, rows_in=11)], {}, ["rows in are not rows out"]),
        ([make_source()], {"num_rows": 3}, ["other rows than the manifest"]),
        ([make_source("gsm8k", 4, {"image": 1})], {"num_logged": {"proof": 1}},
         ["other rows than the manifest"]),
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
    assert (report["rows_in"], report["rows_out"], report["adds_up"]) == (42, NUM_ROWS, True)
    sft, grpo = report["files"][SFT], report["files"][GRPO]
    assert list(sft["dropped"]) == ["not_sampled", "no_boxed_answer", "strange", "near_duplicate"]
    assert sft["num_rows"] == 11 and sft["made_of"]["source"] == [["numinamath", 6], ["gsm8k", 5]]
    assert list(sft["lengths"]["completion"].values()) == [11, 21, 21, 21]
    assert ["gsm8k 3", 1] in sft["made_of"]["level"]
    assert len(grpo["samples"]["bad_row"]) == 5 and grpo["num_logged"]["bad_row"] == 7
    assert report["matches"] == [["math500", GRPO, "reworded", 3]]
    assert [pair["score"] for pair in report["pairs"]] == [0.7, 0.8, 1.0]


def test_what_the_page_says(page):
    table = next(table for table in page.tables if table[0][0] == "step")
    assert table[:2] == [
        ["step", "rows", "%", "left", "gsm8k", "numinamath"],
        ["rows in", "23", "100.0", "23", "13", "10"],
    ]
    assert ["strange", "1", "4.3", "12", "0", "1"] in table
    assert table[-1] == ["rows out", "11", "47.8", "11", "5", "6"]
    assert ["math500", "500"] in page.rows
    assert ["math500", GRPO, "reworded", "3"] in page.rows
    assert ["source", "numinamath", "6", "54.5"] in page.rows
    assert "<h3>p0 (raw.jsonl:0)</h3>\n<p>so it is</p>\n" in page.text
    assert "grpo_train.jsonl: <code>bad_row</code>, 5 of 7 rows" in page.text
    ids = {value for name, value in page.attributes if name == "id"}
    sections = {"steps", "lengths", "mix", "decontamination", "dropped", "provenance"}
    assert {*sections, "lengths-0-figure_1"} <= ids


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
    data = write_build(tmp_path / "data", files, rows=rows)
    folder = run_report(monkeypatch, data, "--tokenizer", str(tmp_path))
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
    (remove("manifest.json"), "has no manifest.json; run `make data`"),
    (write("manifest.json", "{"), "manifest.json is damaged"),
    (write("manifest.json", '{"stage": "sft"}'), "manifest.json: is not of"),
    (write("manifest.json", '{"stage": "data", "config": {}}'), "rows_in, "),
    (remove(SFT), f"{SFT}: no such file"),
    (remove("dropped.jsonl"), "dropped.jsonl: no such file"),
    (end(SFT, '{"id": "x"}'), f"{SFT}:3: source: None is not text"),
    (end(SFT, '{"source": "s", "subject": "", "level": "5"}'), "level: '5' is not a number"),
    (end(SFT, '{"id": '), f"{SFT}:3: "),
    (end("dropped.jsonl", '{"file": 3}'), "dropped.jsonl:2: file: 3 is not"),
    (write("contamination.jsonl", json.dumps(make_pair(score="high"))), "1: score: 'high' is not"),
]


@pytest.mark.parametrize(("harm", "words"), HARM)
def test_what_cannot_be_shown_is_told(tmp_path, monkeypatch, harm, words):
    data = write_build(tmp_path / "data", {SFT: [make_source("gsm8k", 3, {"image": 2})]})
    harm(data)
    with pytest.raises(UserError, match=words) as error:
        run_report(monkeypatch, data)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data-report/manifest.json").exists()


def test_bad_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = write_build(tmp_path / "data", {SFT: [make_source()]})
    for key, value in (("rows", "0"), ("tokenizer", "/no/such"), ("data", "/no/such")):
        with pytest.raises(UserError, match=f"{key}: {value}"):
            run_report(monkeypatch, data, f"--{key}", value)
