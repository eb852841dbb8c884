"""The data report's figures, order and warnings, on small numbers."""

import ast
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import data_prep
from eval.report import data_report
from eval.report.data_numbers import (
    REASONS,
    bin_edges,
    describe_benchmarks,
    describe_files,
    group_levels,
    group_rates,
    in_order,
    labels,
    largest,
    quantile,
    read_matches,
    sample_dropped,
)
from tests.unit.report.data_folders import add_up, make_drop, make_pair, make_source, write_lines

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
    assert found <= REASONS.keys()


def test_order_of_all_steps():
    given = ["not_in_mix", "image", "near_duplicate", "unheard_of", "no_answer", "bad_row",
             "in_eval_set", "not_sampled"]  # fmt: skip
    assert in_order(given) == [
        "not_sampled", "bad_row", "no_answer", "unheard_of", "image", "in_eval_set",
        "near_duplicate", "not_in_mix",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({7: 1}, 0.5, 7),
        ({1: 1, 2: 1}, 0.5, 1),  # half of them do not exceed 1
        ({1: 1, 2: 1, 9: 1}, 0.5, 2),
        ({1: 95, 8: 5}, 0.95, 1),
        ({1: 94, 8: 6}, 0.95, 8),
        ({3: 2, 5: 2}, 1.0, 5),
    ],
)
def test_quantile(counts, share, expected):
    assert quantile(counts, share) == expected


@pytest.mark.parametrize(
    ("values", "is_log", "num_bins"),
    [
        ([5], False, 1),
        ([1, 2, 3], False, 3),
        (range(64), False, 32),
        ([*range(10, 60), 10_000], True, 32),
        ([0, 0, 3, 4, 5, 900], True, None),
        ([0], False, 1),
    ],
)
def test_bins_hold_every_value(values, is_log, num_bins):
    edges, found_log = bin_edges(Counter(values))
    assert (found_log is is_log and len(edges) - 1 == num_bins) or num_bins is None
    assert edges[-1] > max(values) and (edges[0] < min(values) or (is_log and edges[0] == 0.5))
    assert all(b - a >= 1 for a, b in pairwise(edges))
    assert all(edge % 1 == 0.5 for edge in edges)  # whole numbers, none on an edge


def test_many_subjects_and_levels():
    subjects = {f"s{n:02}": 100 - n for n in range(20)} | {"": 7}
    found = largest(subjects)
    assert found[0] == ("s00", 100) and len(found) == 17
    assert found[-2:] == [("5 others", 85 + 84 + 83 + 82 + 81), ("(none)", 7)]
    assert largest({"": 5}) == [] and largest({"a": 1}) == [("a", 1)]
    assert group_levels([[1, 3], [2.5, 1]]) == [("1", 3), ("2.5", 1)]
    ranges = group_levels([[n / 2, 1] for n in range(25)])  # 0, 0.5, … 12
    assert ranges[0] == ("0 to 1", 2) and ranges[-1] == ("11 to 12", 3) and len(ranges) == 12
    assert sum(number for _, number in ranges) == 25


def test_pass_rates_keep_none_and_all_apart():
    assert group_rates({0: 5, 2: 1}, 2) == [("0", 5), ("1", 0), ("2", 1)]
    found = dict(group_rates({0: 4, 1: 1, 6: 2, 63: 3, 64: 9}, 64))
    assert (found["none"], found["0 to 10 %"], found["90 to 100 %"], found["all"]) == (4, 3, 3, 9)
    assert sum(found.values()) == 19 and len(found) == 12


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([("a", "x", "1"), ("b", "x", "1")], ["a", "b"]),
        ([("a", "x", "1"), ("a", "y", "1")], ["a x", "a y"]),
        ([("a", "x", "1"), ("a", "x", "2")], ["a x 1", "a x 2"]),
        ([("a", "x", "1"), ("a", "x", "1")], ["a 1", "a 2"]),
    ],
)
def test_labels_tell_sources_apart(sources, expected):
    keys = ("name", "split", "place")
    assert labels([dict(zip(keys, one, strict=True)) for one in sources]) == expected


def test_dropped_rows_are_drawn_at_random_and_the_same_again(tmp_path):
    rows = [make_drop(SFT, "image", n) for n in range(1000)] + [make_drop(GRPO, "image", 0)]
    write_lines(tmp_path / "dropped.jsonl", [*rows, make_drop(SFT, "unwanted", 0)])
    kinds = [(SFT, "image"), (GRPO, "image"), (GRPO, "proof")]
    found = counts, samples = sample_dropped(tmp_path, kinds, 5)
    assert counts == {(SFT, "image"): 1000, (GRPO, "image"): 1}
    drawn = [int(row["id"][1:]) for row in samples[SFT, "image"]]
    assert len(set(drawn)) == 5 and drawn == sorted(drawn) and drawn[-1] > 200
    assert samples.keys() == {(SFT, "image"), (GRPO, "image")}
    assert sample_dropped(tmp_path, kinds, 5) == found


def test_a_draw_is_uniform(tmp_path):
    """Each of 10 rows is one of 3 drawn in 3 of 10 folders, however the reasons are called."""
    hits = Counter()
    reasons = [f"reason {n}" for n in range(1000)]
    rows = [make_drop(SFT, reason, n) for reason in reasons for n in range(10)]
    write_lines(tmp_path / "dropped.jsonl", rows)
    _, samples = sample_dropped(tmp_path, [(SFT, reason) for reason in reasons], 3)
    hits.update(row["id"] for kept in samples.values() for row in kept)
    assert len(hits) == 10 and all(220 < n < 380 for n in hits.values())  # standard deviation 14


def test_the_least_certain_pairs_come_first(tmp_path):
    scores = [0.9, 0.5, 1, 0.5, 0.7]
    pairs = [make_pair(score=score, id=f"p{n}") for n, score in enumerate(scores)]
    write_lines(tmp_path / "contamination.jsonl", [*pairs, make_pair(GRPO, 1, kind="exact")])
    counts, least = read_matches(tmp_path, 3)
    assert counts == {("math500", SFT, "reworded"): 5, ("math500", GRPO, "exact"): 1}
    assert [pair["id"] for pair in least] == ["p1", "p3", "p4"]


def make_report(files, mix=None, decontamination=None, **more):
    """A report's counts, of files that are as their manifest says."""
    outputs = {name: add_up(sources) | {"sources": sources} for name, sources in files.items()}
    build = {"config": {"mix": mix or {}}, "outputs": outputs}
    build["decontamination"] = {"gsm8k": 1} if decontamination is None else decontamination
    report = add_up(list(outputs.values())) | {"adds_up": True, "pass_rates": None}
    report |= {"files": describe_files(build), "decontamination": describe_benchmarks(build)}
    for file in report["files"].values():
        file |= {"num_rows": file["rows_out"], "solved": [], "num_logged": dict(file["dropped"])}
        file["num_logged"].pop("not_sampled", None)
    return report | more


LISTED = dict.fromkeys(("gsm8k", "math500", "aime24", "aime25", "gpqa_diamond", "arc_challenge"), 9)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"files": {SFT: [make_source("synthetic", 9)]}, "decontamination": {}}, []),
        ({"files": {SFT: [make_source("gsm8k", 9, {"image": 1, "not_sampled": 90})]}}, []),
        (
            {"files": {SFT: [make_source("gsm8k"), make_source("synthetic")]},
             "decontamination": {}},
            ["No benchmark was kept out of sft_train.jsonl, whose problems are real"],
        ),
        ({"files": {"test.jsonl": [make_source("gsm8k")]}, "decontamination": {}}, []),
        (
            {"files": {GRPO: [make_source("orz")]},
             "decontamination": LISTED | {"aime24": "not checked: no file a.jsonl"}},
            ["aime24 was not kept out of the training files: no file a.jsonl."],
        ),
        (
            {"files": {GRPO: [make_source("orz")]}, "decontamination": {"gsm8k": 3, "math500": 5}},
            ["aime24, aime25, gpqa_diamond and arc_challenge were not kept out"],
        ),
        (
            {"files": {GRPO: [make_source("orz", 9, {"bad_row": 2})]}},
            ["2 of 11 rows of orz could not be used as they are"],
        ),
        (
            {"files": {GRPO: [make_source("orz", 0, {"bad_row": 2}), make_source("math", 90)]}},
            ["2 of 2 rows of orz could not be used as they are"],
        ),
        (  # a single source: its loss says all that its reason's share would
            {"files": {SFT: [make_source("gsm8k", 4, {"image": 5, "proof": 1})]}},
            ["gsm8k lost 60 % of its 10 rows, most of them as image (5)"],
        ),
        (
            {"files": {SFT: [make_source("gsm8k", 70, {"image": 30, "not_sampled": 100}),
                             make_source("math", 30, {"image": 1})]}},
            ["image took 24 % of all 131 rows (31)"],
        ),
        ({"files": {SFT: [make_source("gsm8k", 80, {"image": 20})]}}, []),
        ({"files": {SFT: [make_source("gsm8k", 5, {"image": 5})]}}, ["image took 50 % of all 10"]),
        (
            {"files": {SFT: [make_source("gsm8k", 10, {"not_in_mix": 90})]},
             "mix": {"sft": {"easy": 1.0, "size": 12}}},
            ["sft_train.jsonl: the mix asks for 12 problems and got 10"],
        ),
        (
            {"files": {SFT: [make_source("gsm8k", 10)]}, "mix": {"sft": {"easy": 1.0, "size": 10}}},
            [],
        ),
        (
            {"files": {SFT: [make_source("gsm8k", 10)]}, "pass_rates": "rates.jsonl"},
            ["rates.jsonl has no problem of any file here"],
        ),
        (
            {"files": {SFT: [make_source("gsm8k", 10, rows_in=11)]}},
            ["The counts of sft_train.jsonl do not add up"],
        ),
        ({"files": {SFT: [make_source()]}, "adds_up": False}, ["The counts of the totals do not"]),
    ],
)  # fmt: skip
def test_warnings(report, words):
    report = {"decontamination": LISTED} | report
    found = data_report.warnings(make_report(**report))
    assert len(found) == len(words), found
    for warning, part in zip(found, words, strict=True):
        assert part in warning


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_rows": 3}, "sft_train.jsonl has 3 rows where the manifest says 4"),
        ({"num_logged": {}}, "dropped.jsonl has other rows of sft_train.jsonl than"),
        ({"num_logged": {"proof": 1}}, "dropped.jsonl has other rows of sft_train.jsonl than"),
    ],
)
def test_files_that_were_changed(change, words):
    report = make_report({SFT: [make_source("gsm8k", 4, {"image": 1})]}, decontamination=LISTED)
    report["files"][SFT] |= change
    (warning, *rest) = data_report.warnings(report)
    assert words in warning and not rest
