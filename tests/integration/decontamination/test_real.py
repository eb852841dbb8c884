"""Decontamination and near duplicates on real rows: known leaks, made leaks, clean rows."""

import html
import json
import random
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from data_prep.build.duplicates import find_near_duplicates, is_near_duplicate, signature
from data_prep.decontamination.index import EvalIndex, EvalQuestion
from data_prep.decontamination.text import tokenise

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
    gsm8k = read_lines(shared_data / "gsm8k/train.jsonl")
    found = [index.find(row["question"], [row["answer"].rpartition("#### ")[2]]) for row in gsm8k]
    assert not any(found)
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


DIGITS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7"}
NUMBERING = ("12. ", "Problem 5. ", "(10 points) ", "[2003 AIME I] ", "## Task B-1.3.\n")
BEFORE = ("This problem is from a contest held last spring. ", "Read the text and answer it. ")
AFTER = (" Show all steps of your work.", " Think about it before you start.")
CHANGES = {
    "spacing": lambda text, rng: re.sub(" +", lambda _: rng.choice(["  ", "\n", " "]), text),
    "punctuation": lambda text, rng: re.sub(r"[.,?;:](?!\d)", " ", text),
    "LaTeX": lambda text, rng: re.sub(r"([\^_])(\w)", r"\1{\2}", text.replace(r"\frac", r"\dfrac")),
    "Unicode": unicode_signs,
    "figure removed": lambda text, rng: re.sub(r"\[asy\].*?\[/asy\]", "", text, flags=re.DOTALL),
    "enumeration": lambda text, rng: rng.choice(NUMBERING) + text,
    "answer form": lambda text, rng: text + " Give your answer as an integer.",
    "sentence before": lambda text, rng: rng.choice(BEFORE) + text,
    "sentence after": lambda text, rng: text + rng.choice(AFTER),
    "task": lambda text, rng: text.replace("What is", "Find").replace("Compute", "Determine"),
    "digits": lambda text, rng: re.sub("|".join(DIGITS), lambda word: DIGITS[word[0]], text),
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


@pytest.mark.slow
def test_repeats_in_dapo_are_found(dapo):
    questions = [question for question, _ in dapo]
    first, repeats = {}, {}
    for at, question in enumerate(questions):
        key = re.sub(r"[\W_]+", "", question.lower())
        if key in first:
            repeats[at] = first[key]
        first.setdefault(key, at)

    keys = np.stack([signature(tokenise(question)) for question in questions])
    found = find_near_duplicates(
        keys, lambda one, other: is_near_duplicate(questions[one], questions[other])
    )
    assert all(kept < dropped and kept not in found for dropped, kept in found.items())
    # The rest differ in a sign, in brackets or in damage to the text.
    assert len(repeats.keys() & found.keys()) > 0.97 * len(repeats)
    golds = [gold for _, gold in dapo]
    agreeing = sum(golds[one] == golds[other] for one, other in found.items())
    assert agreeing > 0.95 * len(found)
