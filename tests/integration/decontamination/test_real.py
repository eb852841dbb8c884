"""Decontamination on real rows: known leaks, made leaks, clean rows."""

import html
import json
import random
import re

import pyarrow.parquet as pq
import pytest

from data_prep.decontamination.index import EvalIndex
from data_prep.schema import Problem

pytestmark = pytest.mark.integration


def read_lines(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


@pytest.fixture(scope="module")
def sets(shared_data):
    """(question, gold) of the rows of each evaluation set."""
    gsm8k = read_lines(shared_data / "gsm8k/test.jsonl")
    math500 = read_lines(shared_data / "math/math500_test.jsonl")
    aime25 = read_lines(shared_data / "aime/aime25_structured_rl.jsonl")
    return {
        "gsm8k": [(row["question"], row["answer"].rpartition("#### ")[2]) for row in gsm8k],
        "math500": [(row["problem"], row["answer"]) for row in math500],
        "aime25": [(row["problem"], str(row["answer"])) for row in aime25],
    }


@pytest.fixture(scope="module")
def index(sets):
    return EvalIndex(
        [
            Problem(str(at), name, question, (gold,))
            for name, rows in sets.items()
            for at, (question, gold) in enumerate(rows)
        ]
    )


def test_known_leaks_between_dapo_and_math500(shared_data, index):
    dapo = pq.read_table(shared_data / "dapo/dapo_math_17k.parquet").to_pylist()
    rows = [(row["prompt"][0]["content"], row["reward_model"]["ground_truth"]) for row in dapo]
    found = [match for question, gold in rows if (match := index.find(question, [gold]))]
    assert {match.benchmark for match in found} == {"math500"}
    assert 15 <= len(found) <= 25
    assert {match.kind for match in found} == {"exact", "embedded", "reworded"}
    # An octagon misspelt and asked for k+m, a perimeter of AIME asked for a+b.
    texts = [match.question for match in found]
    assert any("An equiangular octagon" in text for text in texts)
    assert any("Find the perimeter of triangle $ABC.$" in text for text in texts)
    # The same statement with another answer asked for, whose gold is no form of the first.
    assert any("vertices of a convex polygon in the complex plane" in text for text in texts)
    assert any("is reflected about the line $y=k$" in text for text in texts)
    assert any("f(x) + f(y) = f(x + y) - xy - 1" in text for text in texts)


def test_clean_rows_are_kept(shared_data, index):
    math = read_lines(shared_data / "math/train.jsonl")
    found = [match for row in math if (match := index.find(row["problem"], [row["answer"] or ""]))]
    # Three of them are in both splits of MATH.
    assert len(found) < 0.001 * len(math)


def drop_words(text, rng):
    words = text.split(" ")
    droppable = [at for at, word in enumerate(words) if word.isalpha() and word.islower()]
    gone = set(rng.sample(droppable, min(len(droppable), max(1, len(words) // 25))))
    return " ".join(word for at, word in enumerate(words) if at not in gone)


CHANGES = {
    "figure removed": lambda text, rng: re.sub(r"\[asy\].*?\[/asy\]", "", text, flags=re.DOTALL),
    "sentence before": lambda text, rng: "This problem is from a contest held last spring. " + text,
    "sentence after": lambda text, rng: text + " Show all steps of your work.",
    "words dropped": drop_words,
    "HTML": lambda text, rng: f"<p>{html.escape(text)}</p>".replace("\n", "<br/>"),
    "JSON": lambda text, rng: json.dumps(text)[1:-1],
    "options after": lambda text, rng: f"{text}\n(A) 12\n(B) 15\n(C) 18\n(D) 20\n(E) 24",
    "in a longer text": lambda text, rng: (
        "Ann and Bob train for the olympiad with old problems from many years and places. "
        + text
        + " When they are done they will write it down, compare their notes and go home."
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found(change, index, sets):
    rng = random.Random(0)
    texts = [*rng.sample(sets["gsm8k"], 40), *rng.sample(sets["math500"], 40), *sets["aime25"]]
    missed = [
        question
        for question, gold in texts
        if index.find(CHANGES[change](question, rng), [gold]) is None
    ]
    assert len(missed) <= 0.05 * len(texts)
