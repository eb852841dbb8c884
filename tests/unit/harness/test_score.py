"""What the tasks compute for one problem and for all, by hand, by brute force, by property."""

import math
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sampling.store import Completion
from eval.harness import metrics, suite
from eval.harness.metrics import majority_at_k, mean_interval, pass_at_k
from eval.harness.score import (
    official_metrics,
    official_problem,
    official_rows,
    process_completions,
    think_metrics,
    think_rows,
)
from grading.own_grader import COLUMN
from pipeline.errors import UserError
from pipeline.prompts import build_prompt, form_of
from tests.files import write_rows

RIGHT = "<think>\n2+2=4\n</think>\n\n\\boxed{4}"


def row(rendered="user: 2+2\nassistant: ", answers=("4",), prompt_name="none"):
    prompt = build_prompt("What is 2+2?", prompt_name)
    doc = {"prompt": prompt, "rendered": rendered, "answers": list(answers)}
    doc["answer_form"] = form_of(prompt_name)
    return doc | {"id": "a", "source": "s", "level": 2, "question": "What is 2+2?"}


def process(doc, text):
    return process_completions(doc, [[Completion(text, 9, False)]], final_number=False)


def process_one(changes, text):
    """`[verdict, outcome]` of a text for a row with these changes."""
    found = process(row(**changes), text)
    (record,) = found["completions"]
    verdict = record["verdict"]
    assert record["well_formed"] == (verdict in ("right", "wrong"))
    assert found["score"] == record["score"] == float(verdict == "right")
    assert (record["completion"], record["num_tokens"], record["cut_off"]) == (text, 9, False)
    return [verdict, record["outcome"]]


def test_problems_of_two_sources_may_share_an_id():
    rows = think_rows("held_out", "greedy", [{"doc": row()} | process(row(), RIGHT)])
    rows += [one | {"source": "other"} for one in rows]
    assert think_metrics(rows, "greedy")["num_problems"] == 2


GSM8K = {"question": "2+2?", "answer": "It is <<2+2=4>>4.\n#### 4"}


def diagnose(text, score, cut_off):
    """`[verdict, lenient, outcome]` of the harness's two samples, of which the strict one is 0."""
    sample = {"doc": GSM8K, "doc_id": 0, "arguments": [("Question: 2+2?\nAnswer:", {})]}
    sample["resps"] = [[Completion(text, 3, cut_off)]]
    samples = [sample | {"filter": "strict-match", "exact_match": 0.0}]
    samples.append(sample | {"filter": "flexible-extract", "exact_match": score})
    main = "exact_match,flexible-extract"
    (found,) = official_rows("official:gsm8k", "gsm8k", main, samples, final_number=False)
    assert (found["task"], found["mode"], found["sample"]) == ("gsm8k", "official:gsm8k", 0)
    assert (found["score"], found["gold"], found["num_tokens"]) == (score, ["4"], 3)
    assert found["prompt"] == "Question: 2+2?\nAnswer:"
    return [found["verdict"], found["lenient"], found["outcome"]]


@pytest.mark.parametrize(("stderr", "num", "has_interval"), [(0.29, 4, True), ("N/A", 1, False)])
def test_only_the_main_metric_of_an_official_task_has_an_interval(stderr, num, has_interval):
    """The rows hold the scores of that metric alone."""
    main, other = "exact_match,flexible-extract", "exact_match,strict-match"
    results = {"alias": "gsm8k", main: 0.5, other: 0.25}
    results["exact_match_stderr,flexible-extract"] = stderr
    rows = [{"score": float(place % 2)} for place in range(num)]
    metrics = official_metrics(results, rows, main)["metrics"]
    assert {name: one["value"] for name, one in metrics.items()} == {main: 0.5, other: 0.25}
    assert metrics[other]["low"] is metrics[other]["high"] is None
    low, high = metrics[main]["low"], metrics[main]["high"]
    assert 0 <= low < 0.5 < high <= 1 if has_interval else low is high is None


def test_an_official_row_whose_gold_cannot_be_read():
    doc = {"problem": "x", "answer": "", "solution": "no box"}
    with pytest.raises(UserError, match=r"math500-7: no_answer: its gold cannot be read; fix the"):
        official_problem(doc, "math500", 7)


def test_the_gold_of_minerva_is_the_solution_s_and_not_its_shorthand():
    doc = {"problem": "?", "solution": r"So \boxed{5x - 7y + 11z + 4 = 0}.", "answer": "0"}
    text = r"<think>a</think>\boxed{5x - 7y + 11z + 4 = 0}"
    sample = {"doc": doc, "doc_id": 3, "filter": "none", "arguments": [("Problem:", {})]}
    sample |= {"resps": [[Completion(text, 3, False)]], "exact_match": 0.0, "math_verify": 1.0}
    mode = "official:minerva_math500"
    (found,) = official_rows(mode, "math500", "exact_match,none", [sample], False)
    assert found["gold"] == ["5x - 7y + 11z + 4 = 0"]
    assert (found["verdict"], found["outcome"]) == ("right", "unread")


def test_a_column_that_only_a_later_row_has_is_kept(tmp_path, monkeypatch):
    own = {"id": "a", "question": "2 + 2?", "answers": ["4"], "answer_form": "box"}
    own["prompt"] = [{"role": "user", "content": "2 + 2?"}]
    rows = [own, own | {"id": "b", COLUMN: "mine:grade"}, own | {"id": "c"}]
    write_rows(tmp_path / "test.jsonl", rows)
    monkeypatch.setattr("data_prep.schema.take_grader", lambda *_: None)
    monkeypatch.setattr(suite, "load_tokenizer_once", lambda *_, **__: None)
    monkeypatch.setattr(suite, "render_prompts", lambda rows, _: [str(row) for row in rows])
    settings = {"benchmark": "held_out", "test_file": f"{tmp_path}/test.jsonl", "data_root": None}
    found = suite.load_rows("model", prompt="none", **settings)["test"]
    assert found[COLUMN] == [None, "mine:grade", None]
    write_rows(tmp_path / "a.jsonl", [{"question": "1?"}, {"question": "2?", "level": 3}])
    found = suite.load_official("owner/set", {"test": ["a.jsonl"]}, str(tmp_path))["test"]
    assert found["level"] == [None, 3] and found["question"] == ["1?", "2?"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(right, data):
    k = data.draw(st.integers(1, len(right)))
    subsets = list(combinations(right, k))
    expected = sum(map(any, subsets)) / len(subsets)
    assert pass_at_k(len(right), sum(right), k) == pytest.approx(expected)
    assert pass_at_k(200, 1, 100) == 1 / 2  # in integers


def votes(*predictions):
    """Records that vote as told; `"4"` and `"=4"` are right, None abstains."""
    return [
        {"verdict": "right" if one in ("4", "=4") else "wrong", "prediction": one}
        for one in predictions
    ]


def majority(predictions):
    """In either order."""
    records = votes(*predictions)
    assert majority_at_k(records) == majority_at_k(records[::-1])
    return majority_at_k(records)


def mean_of(values):
    found = mean_interval(values)
    return [found["value"], found["stderr"], found["n"]]


def interval_of(value, bounds):
    """Of thirty such values."""
    found = mean_interval([value] * 30, bounds)
    assert found["stderr"] == 0
    return [found["low"], found["high"]]


def test_majority_compares_each_answer_with_a_few_classes_only(monkeypatch):
    calls = []
    monkeypatch.setattr(metrics, "is_same_value", lambda *pair: bool(calls.append(pair)))
    scattered = [f"x^{i}" for i in range(255)]
    assert majority_at_k(votes("4", *scattered)) == pytest.approx(1 / 256)
    assert len(calls) <= 255 * metrics.MAX_CLASSES
    calls.clear()
    # Nothing to compare where the result is known: no right vote, or too few wrong ones.
    assert majority_at_k(votes(*scattered)) == 0.0
    assert majority_at_k(votes(*["4"] * 3, *scattered[:2])) == 1.0
    assert not calls


def test_the_interval_by_hand():
    # Two more values, 0 and 1: seven, of mean 3/7, whose squares about it sum to 12/7.
    half = 2.776 * math.sqrt(12 / 7 / 6 / 7)
    for least in (0.0, -1.0):
        found = mean_interval([1.0, 0.0, 0.0, 1.0, 0.0], bounds=(least, 1.0))
        expected = max(least, 3 / 7 - half), 3 / 7 + half
        assert (found["low"], found["high"]) == pytest.approx(expected)


def beta(a, b, k):
    return lambda rng: sum(rng.random() < rate for rate in [rng.betavariate(a, b)] * k) / k


def paired(gain, loss):
    return lambda rng: (u := rng.random()) and (float(u < gain) - float(u > 1 - loss))


# One problem's value, its mean and bounds; greedy, k samples, paired differences.
KINDS = {
    "even": (lambda rng: float(rng.random() < 0.5), 0.5, 0),
    "easy": (lambda rng: float(rng.random() < 0.9), 0.9, 0),
    "rare": (lambda rng: float(rng.random() < 0.03), 0.03, 0),
    "avg@4": (beta(0.5, 0.5, 4), 0.5, 0),
    "avg@16": (beta(0.3, 1.2, 16), 0.2, 0),
    "more gained than lost": (paired(0.2, 0.1), 0.1, -1),
    "few gained": (paired(0.05, 0.0), 0.05, -1),
    "k samples": (lambda rng: beta(2, 1, 8)(rng) - beta(1, 2, 8)(rng), 1 / 3, -1),
}


def test_intervals_cover_95_percent_at_30_problems():
    """95 % on average, no kind below 90; the percentile bootstrap covered 57 % of the rare ones."""
    rng, covered = random.Random(0), {}
    for name, (draw, mean, low) in KINDS.items():
        found = [mean_interval([draw(rng) for _ in range(30)], (low, 1.0)) for _ in range(400)]
        covered[name] = sum(one["low"] <= mean <= one["high"] for one in found) / len(found)
    assert min(covered.values()) >= 0.9, covered
    assert sum(covered.values()) / len(covered) >= 0.95, covered


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30))
def test_an_interval_holds_the_mean_and_keeps_its_bounds(values):
    found = mean_interval(values, (-1.0, 1.0))
    assert -1 <= found["low"] <= found["value"] + 1e-12 and found["value"] - 1e-12 <= found["high"]
    assert found["high"] <= 1
