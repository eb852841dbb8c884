"""Decontamination on real rows: known leaks, made leaks, clean rows."""

import html
import json
import random
import re

import pyarrow.parquet as pq
import pytest

from data_prep.decontamination.index import EvalIndex, EvalQuestion

pytestmark = pytest.mark.integration


def read_lines(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


@pytest.fixture(scope="module")
def math500(shared_data):
    rows = read_lines(shared_data / "math/math500_test.jsonl")
    return [(row["problem"], row["answer"]) for row in rows]


@pytest.fixture(scope="module")
def dapo(shared_data):
    rows = pq.read_table(shared_data / "dapo/dapo_math_17k.parquet").to_pylist()
    return [(row["prompt"][0]["content"], row["reward_model"]["ground_truth"]) for row in rows]


@pytest.fixture(scope="module")
def gsm8k(shared_data):
    rows = read_lines(shared_data / "gsm8k/test.jsonl")
    return [(row["question"], row["answer"].rpartition("#### ")[2]) for row in rows]


@pytest.fixture(scope="module")
def aime25(shared_data):
    rows = read_lines(shared_data / "aime/aime25_structured_rl.jsonl")
    return [(row["problem"], str(row["answer"])) for row in rows]


def build_index(**sets):
    return EvalIndex(
        [
            EvalQuestion(name, str(at), question, (gold,))
            for name, rows in sets.items()
            for at, (question, gold) in enumerate(rows)
        ]
    )


@pytest.fixture(scope="module")
def index(gsm8k, math500, aime25):
    return build_index(gsm8k=gsm8k, math500=math500, aime25=aime25)


def test_known_leaks_between_dapo_and_math500(dapo, index):
    matches = [index.find(question, [gold]) for question, gold in dapo]
    found = [match for match in matches if match]
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


def unicode_signs(text, rng):
    for command, sign in (
        (r"\times", "\u00d7"), (r"\cdot", "·"), (r"\le ", "≤ "), (r"\pi", "π"), (r"\angle", "∠"),
        ("^2", "²"), (r"^\circ", "°"), (r"\theta", "θ"), (r"\sqrt", "√"), ("-", "\u2212"),
    ):  # fmt: skip
        text = text.replace(command, sign)
    return text


def drop_words(text, rng):
    words = text.split(" ")
    droppable = [at for at, word in enumerate(words) if word.isalpha() and word.islower()]
    gone = set(rng.sample(droppable, min(len(droppable), max(1, len(words) // 25))))
    return " ".join(word for at, word in enumerate(words) if at not in gone)


BEFORE = ("This problem is from a contest held last spring. ", "Read the text and answer it. ")
AFTER = (" Show all steps of your work.", " Think about it before you start.")
CHANGES = {
    "LaTeX": lambda text, rng: re.sub(r"([\^_])(\w)", r"\1{\2}", text.replace(r"\frac", r"\dfrac")),
    "Unicode": unicode_signs,
    "figure removed": lambda text, rng: re.sub(r"\[asy\].*?\[/asy\]", "", text, flags=re.DOTALL),
    "sentence before": lambda text, rng: rng.choice(BEFORE) + text,
    "sentence after": lambda text, rng: text + rng.choice(AFTER),
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
def test_changed_copies_are_found(change, index, gsm8k, math500, aime25):
    rng = random.Random(0)
    texts = [*rng.sample(gsm8k, 40), *rng.sample(math500, 40), *aime25]
    missed = [
        question
        for question, gold in texts
        if index.find(CHANGES[change](question, rng), [gold]) is None
    ]
    assert len(missed) <= 0.05 * len(texts)
