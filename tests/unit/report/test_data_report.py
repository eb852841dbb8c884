"""The page on a built data folder: its numbers and warnings, what it says, what it refuses."""

import json
import os
import re
import sys
from collections import Counter

import pytest

from eval.report import data_report, plots
from eval.report.render import render
from pipeline.errors import UserError
from pipeline.manifest import sha256
from tests.files import write_rows
from tests.unit.report.runs import HOSTILE, poisoned
from tests.unit.report.test_page import Reader

SFT, GRPO, LEVELS = "sft_train.jsonl", "grpo_train.jsonl", (4, None, None, 10, 10.001, None)
EVIL = (
    "<script>alert(1)</script></pre></details>\n```\n`````\n<img src=http://evil.example/x>"
    "\x1b[31m \u202e ![x](http://evil.example/x) ```<img src=http://evil.example/y>` $\\frac{1}{2}$"
)


def make_source(name="gsm8k", rows_out=4, dropped=None):
    """A source as the manifest lists it."""
    rows_in = rows_out + sum((dropped or {}).values())
    entry = {"name": name, "split": "train", "place": f"{name}/train.jsonl", "rows_in": rows_in}
    return entry | {"rows_out": rows_out, "dropped": dropped or {}}


def add_up(parts):
    """The counts of several sources or files."""
    counts = {key: sum(one[key] for one in parts) for key in ("rows_in", "rows_out")}
    return counts | {"dropped": dict(sum((Counter(one["dropped"]) for one in parts), Counter()))}


def make_rows(file, sources, **more):
    """Rows of one data file; every third has its id as the subject, some a level."""
    rows = []
    for source in sources:
        for number in range(source["rows_out"]):
            name, third = f"{source['name']}-train-{number}", number % 3 == 0
            row = {"id": name, "source": source["name"], "question": f"What is {name}?"}
            row |= {"prompt": [{"role": "user", "content": row["question"]}], "answers": ["7"]}
            row |= {"level": LEVELS[number % 6], "subject": f"s {number}" * third}
            row |= {"completion": "so" * (number + 1)} if "sft" in file else {}
            rows.append(row | more)
    return rows


def make_drop(file, reason, number, **more):
    """A row of dropped.jsonl."""
    row = {"file": file, "reason": reason, "where": f"raw.jsonl:{number}", "detail": "so it is"}
    return row | {"id": f"p{number}", "question": f"Is it {number}?", "answers": ["7"]} | more


def make_pair(score):
    """A row of contamination.jsonl."""
    row = {"file": GRPO, "where": "raw.jsonl:1", "id": f"p{score}", "question": EVIL}
    row |= {"benchmark": "math500", "benchmark_id": "m1", "benchmark_question": "A leak?"}
    return row | {"answers": ["7"], "score": score, "kind": "reworded"}


def write_build(folder, files, pairs=(), tokenizer=None, rows=None, drops=()):
    """A data folder of `{file: sources}` as `data_prep.builder` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    outputs = {name: add_up(sources) | {"sources": sources} for name, sources in files.items()}
    for name, sources in files.items():
        write_rows(folder / name, (rows or {}).get(name) or make_rows(name, sources))
    write_rows(folder / "dropped.jsonl", drops)
    write_rows(folder / "contamination.jsonl", pairs)
    value = {
        "stage": "data", "git_commit": "abc123", "versions": {"torch": "0.1"}, "wall_time_s": 5.5,
        "config": {"seed": 3, "tokenizer": tokenizer, "mix": {}},
        "inputs": {"gsm8k/train.jsonl": "0" * 64}, **add_up(list(outputs.values())),
        "outputs": outputs, "seconds": {"build": 3.0},
        "decontamination": {"math500": 500, "gpqa_diamond": "not checked: no file x"},
    }  # fmt: skip
    value["files"] = {path.name: sha256(path) for path in folder.glob("*.jsonl")}
    (folder / "manifest.json").write_text(json.dumps(value))
    return folder


def run_report(monkeypatch, data, *flags):
    """`python -m eval.report.data_report` on a folder; returns the report's folder."""
    monkeypatch.setattr(sys, "argv", ["data_report", "--data", str(data), *flags])
    data_report.main()
    return data.parent / "data-report"


def test_a_draw_of_dropped_rows_is_uniform_and_the_same_again(tmp_path):
    """Each of 10 rows is one of 5 drawn for half of 1,000 reasons; standard deviation 16."""
    reasons = [f"reason {n}" for n in range(1000)]
    rows = [make_drop(SFT, reason, n) for reason in reasons for n in range(10)]
    write_rows(tmp_path / "dropped.jsonl", rows)
    drawn = []
    for _ in range(2):
        files = {SFT: {"dropped": dict.fromkeys([*reasons, "not_sampled"], 10)}}
        data_report.add_samples(files, tmp_path / "dropped.jsonl")
        assert [*files[SFT]["samples"]] == reasons
        drawn.append([row["id"] for kept in files[SFT]["samples"].values() for row in kept])
    hits = Counter(drawn[0])
    assert len(hits) == 10 and all(420 < n < 580 for n in hits.values()) and drawn[0] == drawn[1]


LISTED = dict.fromkeys(data_report.BENCHMARKS, 9)
UNCHECKED = LISTED | {"aime24": "not checked: no file a.jsonl"}


@pytest.mark.parametrize(
    ("sources", "decontamination", "words"),
    [
        ([make_source("synthetic", 9)], {}, None),
        ([make_source("gsm8k", 10, {"not_sampled": 90, "not_in_mix": 90, "image": 10})], LISTED,
         None),
        ([make_source()], UNCHECKED, r"kept out of the training files \(no file a.*: aime24\."),
        ([make_source()], dict.fromkeys([*LISTED][1:], 3), r"not listed in .*: gsm8k\."),
        ([make_source("orz", 9, {"bad_row": 2})], LISTED, "2 rows of orz cannot be read"),
        ([make_source("a", 4, {"image": 5, "proof": 1}), make_source("b", 90)], LISTED,
         "a lost 6 of 10 rows"),
    ],
)  # fmt: skip
def test_warnings(tmp_path, monkeypatch, capsys, sources, decontamination, words):
    data = write_build(tmp_path / "data", {SFT: sources})
    build = json.loads((data / "manifest.json").read_text())
    build["decontamination"] = decontamination
    (data / "manifest.json").write_text(json.dumps(build))
    run_report(monkeypatch, data)
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert len(found) == (words is not None), found
    assert not words or re.search(words, found[0])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose texts are hostile."""
    folder = tmp_path_factory.mktemp("run") / "data"
    files = {
        SFT: [
            make_source("gsm8k", 5, {"not_sampled": 8}),
            make_source("numinamath", 6, {"no_boxed_answer": 2, "near_duplicate": 1, "own": 1}),
        ],
        GRPO: [make_source("math", 9, {"in_eval_set": 3, "bad_row": 7})],
    }
    rows = {GRPO: make_rows(GRPO, files[GRPO], subject="`<b>x`")}
    drops = [make_drop(SFT, "no_boxed_answer", n, question="", answers=[]) for n in range(2)]
    drops += [make_drop(SFT, reason, 5) for reason in ("near_duplicate", "own")]
    drops += [make_drop(GRPO, "in_eval_set", n, question=EVIL, detail=EVIL) for n in range(3)]
    drops += [make_drop(GRPO, "bad_row", n) for n in range(7)]
    write_build(folder, files, [make_pair(score) for score in (1, 0.7, 0.8)], None, rows, drops)
    with pytest.MonkeyPatch.context() as monkeypatch:
        return run_report(monkeypatch, folder)


@pytest.fixture
def page(made):
    return Reader(made / "data-report.html")


def test_the_files_and_the_numbers(made):
    assert {*os.listdir(made)} == {"data-report.html", "data-report.json", "manifest.json"}
    report = json.loads((made / "data-report.json").read_text())
    assert (report["rows_in"], report["rows_out"]) == (42, 20)
    sft, grpo = report["files"][SFT], report["files"][GRPO]
    assert list(sft["dropped"]) == ["not_sampled", "no_boxed_answer", "near_duplicate", "own"]
    assert sft["num_rows"] == 11 and sft["made_of"]["source"] == [["numinamath", 6], ["gsm8k", 5]]
    assert list(sft["lengths"]["completion"].values()) == [11, 6, 12, 12]
    levels = [["gsm8k 4", 1], ["gsm8k 10", 2], ["numinamath 4", 1], ["numinamath 10", 2]]
    assert sft["made_of"]["level"] == levels and len(grpo["samples"]["bad_row"]) == 5
    assert report["matches"] == [["math500", GRPO, "reworded", 3]]
    assert [pair["score"] for pair in report["pairs"]] == [0.7, 0.8, 1.0]


def test_what_the_page_says(page):
    table = page.tables[0]
    assert table[1] == ["rows in", "23 (100.0)", "13 (100.0)", "10 (100.0)"]
    assert table[2] == ["rows out", "11 (47.8)", "5 (38.5)", "6 (60.0)"]
    assert ["own", "1 (4.3)", "-", "1 (10.0)"] in table
    assert ["math500", "500"] in page.rows
    assert ["math500", GRPO, "reworded", "3"] in page.rows
    assert ["source numinamath", "6 (54.5)", "-"] in page.rows
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


def test_every_field_is_shown_as_text(made):
    report = json.loads((made / "data-report.json").read_text())
    report = poisoned(
        report, {SFT, GRPO, *(r for f in report["files"].values() for r in f["dropped"])}
    )
    figures = [plots.draw_lengths(poisoned({"a": [1, 2, 300]}, {"a"}), HOSTILE, HOSTILE)]
    values = {"report": report, "tables": data_report.tables(report), "figures": figures}
    path = made.parent / "hostile.html"
    path.write_text(render("data_report", num_measured=9, **values), "utf-8")
    Reader(path).check_safe()


def test_lengths_in_tokens(tmp_path, monkeypatch):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    data = write_build(tmp_path / "data", {"test.jsonl": [make_source()]})
    folder = run_report(monkeypatch, data, "--tokenizer", str(tmp_path))
    report = json.loads((folder / "data-report.json").read_text())
    found = report["files"]["test.jsonl"]["lengths"]["question"]
    assert (report["unit"], found["median"], found["num"]) == ("tokens", 3, 4)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("manifest.json", None, "manifest.json: missing; run `make data`"),
        ("manifest.json", '{"stage": "sft"}', "manifest.json: missing; run `make data`"),
        (SFT, None, f"{SFT}: is missing"),
        (SFT, '{"id": "x"}', f"{SFT}: has changed since the stage data wrote it"),
        ("dropped.jsonl", '{"file": 3}', "dropped.jsonl: has changed"),
    ],
)
def test_what_cannot_be_shown_is_told(tmp_path, monkeypatch, name, text, words):
    data = write_build(tmp_path / "data", {SFT: [make_source("gsm8k", 3)]})
    (data / name).unlink() if text is None else (data / name).write_text(text)
    with pytest.raises(UserError, match=words) as error:
        run_report(monkeypatch, data)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data-report/manifest.json").exists()


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["gsm8k raw/a.jsonl train", "math raw/b.jsonl train"], ["gsm8k", "math"]),
        (["generic raw/a.jsonl train"], ["generic a.jsonl"]),
        (["math raw/a.jsonl train", "math raw/b.jsonl train"], ["math a.jsonl", "math b.jsonl"]),
        (["math x/a.jsonl train", "math y/a.jsonl train"], ["math x/a.jsonl", "math y/a.jsonl"]),
        (["math o/m train", "math o/m test"], ["math o/m train", "math o/m test"]),
        (["synthetic  rl", "synthetic  rl"], ["synthetic rl 1", "synthetic rl 2"]),
    ],
)
def test_a_column_is_named_by_its_source(sources, names):
    keys = ("name", "place", "split")
    found = [dict(zip(keys, source.split(" "), strict=True)) for source in sources]
    assert data_report.name_sources(found) == names


def test_kept_rows_are_shown_as_a_model_gets_them(tmp_path, monkeypatch):
    data = write_build(tmp_path / "data", {SFT: [make_source(rows_out=9)]})
    made = run_report(monkeypatch, data)
    kept = json.loads((made / "data-report.json").read_text())["files"][SFT]["kept"]
    assert len({row["id"] for row in kept}) == data_report.NUM_KEPT
    row = kept[0]
    assert row["texts"]["Prompt"] == f"What is {row['id']}?" and row["texts"]["Gold"] == "7"
    assert row["texts"]["Prompt"] in (made / "data-report.html").read_text()
