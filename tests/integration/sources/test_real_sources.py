"""Every real file is built by its source: what is kept, what is dropped and why; sets are whole."""

import re
from collections import Counter

import pytest

from data_prep.decontamination.benchmarks import load_benchmark
from data_prep.schema import Problem
from data_prep.sources.base import Drop, find_value, repair_escapes
from data_prep.sources.registry import BUILDERS
from data_prep.sources.templates import bare_question
from grading.compare import is_parseable, is_same_value
from grading.grade import grade_short_all
from pipeline.rows import read_rows

pytestmark = pytest.mark.integration

# 53 solutions box nothing, as the files' README says; 22 boxes are empty; 57 hold words.
NUMINA = {"no_boxed_answer": 53, "empty_box": 22, "text_answer": 57}
COT, UPSTREAM_COT = (
    f"numinamath_cot/numina_cot_2k.{ending}" for ending in ("jsonl", "upstream_schema.jsonl.gz")
)
DSR, DSR_VERL = "deepscaler/deepscaler_preview_1209.jsonl.gz", "deepscaler/dsr_sub.parquet"
ORZ_57K = "orz/orz_math_57k_collected.head.json"
ORZ_72K = "orz/orz_math_72k_collection_extended.head.json"
DAPO = "dapo/dapo_math_17k.parquet"
# (file, source, rows, drops, problems with a solution, a level, a subject)
FILES = [
    ("aime/aime-2024_dapo.parquet", "aime", 960, {}, (0, 0, 0)),  # 30 problems, 32 times each
    ("aime/aime2024_orz.json", "aime", 30, {}, (0, 0, 0)),
    ("aime/aime24_qwen.jsonl", "aime", 30, {}, (30, 0, 0)),
    ("aime/aime25_areal.jsonl", "aime", 30, {}, (0, 0, 0)),
    ("aime/aime25_gift.jsonl", "aime", 30, {}, (0, 0, 0)),
    ("aime/aime25_structured_rl.jsonl", "aime", 30, {}, (0, 0, 0)),
    ("arc_challenge/train_sample_300.jsonl", "arc", 300, {}, (0, 0, 0)),
    ("areal_boba/areal_prompt_rows_10.jsonl", "areal_boba", 10, {}, (0, 0, 0)),
    (DAPO, "dapo", 17917, {}, (0, 0, 0)),
    ("dapo/dapo_math_17k_sample.jsonl", "dapo", 2000, {}, (0, 0, 0)),
    # One row's gold is "", in both files; 984 rows have no solution, that one has.
    (DSR, "deepscaler", 1209, {"no_answer": 1}, (224, 0, 0)),
    (DSR_VERL, "deepscaler", 1209, {"no_answer": 1}, (0, 0, 0)),
    ("deepscaler/rllm_train_aime.json", "deepscaler", 975, {}, (975, 975, 0)),
    ("deepscaler/rllm_train_aime.json", "aime", 975, {}, (975, 0, 0)),
    # Two golds are null and two are "".
    ("deepscaler/rllm_train_math.json", "deepscaler", 7474, {"no_answer": 4}, (0, 7470, 7470)),
    ("gsm8k/test.jsonl", "gsm8k", 1319, {}, (1319, 0, 0)),
    ("gsm8k/train.jsonl", "gsm8k", 7473, {}, (7473, 0, 0)),
    ("math/math500_orz.json", "math", 500, {}, (0, 0, 0)),
    ("math/math500_test.jsonl", "math", 500, {}, (500, 500, 500)),
    ("math/math500_verl.parquet", "math", 500, {}, (500, 500, 500)),
    ("math/test_minus_math500_4500.jsonl.gz", "math", 4500, {}, (4500, 4500, 4500)),
    # Two golds are ""; two levels are "Level ?".
    ("math/train.jsonl", "math", 7500, {"no_answer": 2}, (0, 7496, 7498)),
    ("mawps/mawps_2065.jsonl", "mawps", 2065, {}, (0, 0, 2065)),
    (COT, "numinamath", 2000, NUMINA, (1868, 0, 0)),
    (UPSTREAM_COT, "numinamath", 2000, NUMINA, (1868, 0, 0)),  # `source` is "unknown"
    ("svamp/svamp_1000.jsonl", "svamp", 1000, {}, (0, 0, 1000)),
    (ORZ_57K, "orz", 1785, {}, (0, 0, 0)),
    (ORZ_72K, "orz", 2000, {}, (0, 0, 0)),
]
# Files whose questions stand among instructions; all others must come out as they are.
WRAPPED = ("aime/aime-2024_dapo.parquet", "areal_boba/areal_prompt_rows_10.jsonl", DSR_VERL)
QUESTIONS = (
    "problem", "question", "instruction", "prompt", "conversations", "input", "Question",
)  # fmt: skip


def build_all(path, source, **options):
    found = []
    for where, row in read_rows(path):
        try:
            found.append(BUILDERS[source](row, f"s-train-{where}", where, **options))
        except Drop as drop:
            found.append(drop)
    return found


@pytest.mark.parametrize(
    ("file", "source", "num_rows", "drops", "filled"), FILES, ids=lambda value: str(value)[:40]
)
def test_every_row_is_a_problem_or_a_named_drop(shared_data, file, source, num_rows, drops, filled):
    built = build_all(shared_data / file, source)
    assert len(built) == num_rows
    assert Counter(b.reason for b in built if isinstance(b, Drop)) == drops
    problems = [b for b in built if isinstance(b, Problem)]
    assert all(p.question and all(p.answers) for p in problems)
    fields = ("solution", "level", "subject")
    counts = tuple(sum(getattr(p, f) not in ("", None) for p in problems) for f in fields)
    assert counts == filled


def text_of(row):
    _, value = find_value(row, QUESTIONS)
    turn = value[0] if isinstance(value, list) else {"content": value}
    return turn.get("content", turn.get("value"))


@pytest.mark.parametrize("file", sorted({f for f, *_ in FILES if "arc" not in f} - set(WRAPPED)))
def test_questions_without_instructions_stay_byte_for_byte(shared_data, file):
    texts = [repair_escapes(text_of(row)).strip() for _, row in read_rows(shared_data / file)]
    changed = [text for text in texts if bare_question(text) != text]
    # Twenty of DAPO's Chinese problems end with the same instructions, box and all.
    assert len(changed) == (20 if file == DAPO else 3 if file.startswith("dapo") else 0)
    assert all(text.startswith(bare_question(text)) for text in changed)


def test_nearly_every_equation_of_the_training_rows_is_a_thought(shared_data):
    for source, file, number, drops in (
        ("svamp", "svamp/svamp_1000.jsonl", 1000, {"solution_disagrees": 1}),
        ("gsm8k", "gsm8k/train.jsonl", 7473, {"solution_disagrees": 375, "no_solution": 107}),
    ):
        built = build_all(shared_data / file, source, thought="equation")
        assert len(built) == number
        assert Counter(b.reason for b in built if isinstance(b, Drop)) == drops
        lines = [p.solution.split("\n") for p in built if isinstance(p, Problem)]
        sides = [line.partition(" = ")[::2] for one in lines for line in one if "=" in line]
        wrong = [one for one in sides if not is_same_value(*one)]
        assert sides and wrong == []


def test_the_text_of_the_word_problems_is_nobody_s_tokens(shared_data):
    for source, file in (("svamp", "svamp/svamp_1000.jsonl"), ("mawps", "mawps/mawps_2065.jsonl")):
        questions = [p.question for p in build_all(shared_data / file, source)]
        assert [q for q in questions if re.search(r" [,.?!]( |$)|  |\$ \d| n't| 's\b", q)] == []
        assert [q for q in questions if re.search(r"(^|[.?!] )[a-z]", q)] == []


def test_wrapped_copies_give_the_same_questions(shared_data):
    plain, verl = (build_all(shared_data / file, "deepscaler") for file in (DSR, DSR_VERL))
    pairs = [
        (one, other) for one, other in zip(plain, verl, strict=True) if isinstance(one, Problem)
    ]
    others = [a.question for a, b in pairs if (a.question, a.answers) != (b.question, b.answers)]
    assert not others
    path = shared_data / "aime/aime-2024_dapo.parquet"
    bare = {row["extra_info"]["raw_problem"].strip() for _, row in read_rows(path)}
    assert {p.question for p in build_all(path, "aime")} == bare and len(bare) == 30


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
    place = {"hub": "", "split": "test"}
    return lambda name, file: load_benchmark(
        place | {"source": name, "files": [file]}, str(shared_data)
    )


@pytest.mark.parametrize(("name", "file", "num_problems"), SETS, ids=[file for _, file, _ in SETS])
def test_sets_are_whole_and_scorable(load, name, file, num_problems):
    problems = load(name, file)
    assert len(problems) == num_problems == len({p.id for p in problems})
    assert {p.source for p in problems} == {name}
    assert all(is_parseable(p.answers[0]) and p.question == p.question.strip() for p in problems)


def test_math_500_is_one_set_in_three_shapes(load):
    plain, verl, orz = (load("math", file) for file in MATH_500)
    assert plain == verl  # ids, levels and solutions too
    assert plain[0].id == "math-test-precalculus-807" and orz[0].id == "math-test-0"
    assert [p.question for p in plain] == [p.question for p in orz]
    graded = grade_short_all([p.answers[0] for p in orz], [p.answers[0] for p in plain])
    assert {one.verdict for one in graded} == {"right"}
    assert Counter(p.level for p in plain) == {1: 43, 2: 90, 3: 105, 4: 128, 5: 134}
    assert all(p.solution for p in plain) and not any(p.solution or p.level for p in orz)
