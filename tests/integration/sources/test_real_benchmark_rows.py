"""The evaluation sets from every real copy at hand: whole, scorable, and the same problems."""

from collections import Counter

import pytest

from data_prep.decontamination.benchmarks import load_benchmark
from data_prep.grading.equivalence import is_parseable
from data_prep.grading.grade import grade_short_all

pytestmark = pytest.mark.integration

MATH_500 = ["math/math500_test.jsonl", "math/math500_verl.parquet", "math/math500_orz.json"]
AIME_2024 = ["aime/aime24_qwen.jsonl", "aime/aime-2024_dapo.parquet", "aime/aime2024_orz.json"]
AIME_2025 = [f"aime/aime25_{name}.jsonl" for name in ("areal", "gift", "structured_rl")]
SETS = [
    ("gsm8k", "gsm8k/test.jsonl", 1319),
    *(("math", file, 500) for file in MATH_500),
    ("math", "math/test_minus_math500_4500.jsonl.gz", 4500),
    *(("aime", file, 30) for file in AIME_2024 + AIME_2025),
    ("arc", "arc_challenge/train_sample_300.jsonl", 300),
]


@pytest.fixture
def load(shared_data):
    return lambda name, file: load_benchmark(name, None, None, "test", [file], str(shared_data))


@pytest.mark.parametrize(("name", "file", "num_problems"), SETS, ids=[file for _, file, _ in SETS])
def test_sets_are_whole_and_scorable(load, name, file, num_problems):
    problems = load(name, file)
    assert len(problems) == num_problems == len({p.id for p in problems})
    assert {p.source for p in problems} == {name}
    assert all(is_parseable(p.answers[0]) and p.question == p.question.strip() for p in problems)
    assert load(name, file) == problems


def test_math_500_is_one_set_in_three_shapes(load):
    plain, verl, orz = (load("math", file) for file in MATH_500)
    assert plain == verl  # ids, levels and solutions too
    assert plain[0].id == "math-test-precalculus-807" and orz[0].id == "math-test-0"
    assert [p.question for p in plain] == [p.question for p in orz]
    graded = grade_short_all([p.answers[0] for p in orz], [p.answers[0] for p in plain])
    assert {one.verdict for one in graded} == {"right"}
    assert Counter(p.level for p in plain) == {1: 43, 2: 90, 3: 105, 4: 128, 5: 134}
    assert all(p.solution for p in plain) and not any(p.solution or p.level for p in orz)


def test_aime_2024_copies_agree_but_for_one_gold_known_to_be_wrong(load):
    qwen, dapo, orz = (load("aime", file) for file in AIME_2024)
    golds = Counter(p.answers[0] for p in qwen)
    assert Counter(p.answers[0] for p in dapo) == golds
    # ORZ has 480 for this problem, as if it were another one's answer; right is 197.
    assert golds - Counter(p.answers[0] for p in orz) == {"197": 1}
    assert Counter(p.answers[0] for p in orz) - golds == {"480": 1}
    (wrong,) = [p for p in orz if "Eight circles" in p.question]
    (right,) = [p for p in qwen if "Eight circles" in p.question]
    assert (wrong.answers[0], right.answers[0]) == ("480", "197")
    assert not any("Answer:" in p.question for p in dapo)
    assert len({p.id for p in dapo} & {f"aime-test-{n}" for n in range(30)}) == 30
