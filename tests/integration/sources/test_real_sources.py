"""Every real file is built by its source: what is kept, what is dropped and why; sets are whole."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from data_prep.decontamination.benchmarks import load_benchmark
from data_prep.schema import Problem
from data_prep.sources.base import Drop, find_value, repair_escapes
from data_prep.sources.registry import BUILDERS
from data_prep.sources.templates import bare_question
from grading.compare import is_parseable, is_same_value
from grading.grade import grade_short_all
from pipeline.rows import read_rows

pytestmark = pytest.mark.integration

FILES = yaml.safe_load(Path(__file__).with_name("files.yaml").read_text(encoding="utf-8"))
DSR, DSR_VERL = "deepscaler/deepscaler_preview_1209.jsonl.gz", "deepscaler/dsr_sub.parquet"
# Files whose questions stand among instructions; all others must come out as they are.
WRAPPED = {"aime/aime-2024_dapo.parquet", "areal_boba/areal_prompt_rows_10.jsonl", DSR_VERL}
# Of Chinese problems that end with the same instructions, box and all.
CHANGED = {"dapo/dapo_math_17k.parquet": 20, "dapo/dapo_math_17k_sample.jsonl": 3}
LARGE = {file for file, _, num_rows, *_ in FILES if num_rows > 5000}
QUESTIONS = (
    "problem", "question", "instruction", "prompt", "conversations", "input", "Question",
)  # fmt: skip


def slow_if_large(rows):
    """Parameters of a test whose first is a file; those of large files are slow."""
    for row in rows:
        marks = [pytest.mark.slow] if row[0] in LARGE else []
        yield pytest.param(*row, marks=marks, id="-".join(str(value)[:40] for value in row))


def build_all(path, source, **options):
    found = []
    for where, row in read_rows(path):
        try:
            found.append(BUILDERS[source](row, f"s-train-{where}", where, **options))
        except Drop as drop:
            found.append(drop)
    return found


def reasons(built):
    return Counter(one.reason for one in built if isinstance(one, Drop))


@pytest.mark.parametrize(("file", "source", "num_rows", "drops", "filled"), [*slow_if_large(FILES)])
def test_every_row_is_a_problem_or_a_named_drop(shared_data, file, source, num_rows, drops, filled):
    built = build_all(shared_data / file, source)
    assert len(built) == num_rows and reasons(built) == drops
    problems = [one for one in built if isinstance(one, Problem)]
    assert all(one.question and all(one.answers) for one in problems)
    fields = ("solution", "level", "subject")
    assert filled == [
        sum(getattr(one, field) not in ("", None) for one in problems) for field in fields
    ]


def text_of(row):
    _, value = find_value(row, QUESTIONS)
    turn = value[0] if isinstance(value, list) else {"content": value}
    return turn.get("content", turn.get("value"))


OTHERS = sorted({file for file, *_ in FILES if "arc" not in file} - WRAPPED)


@pytest.mark.parametrize("file", [*slow_if_large((file,) for file in OTHERS)])
def test_questions_without_instructions_stay_byte_for_byte(shared_data, file):
    texts = [repair_escapes(text_of(row)).strip() for _, row in read_rows(shared_data / file)]
    changed = [text for text in texts if bare_question(text) != text]
    assert len(changed) == CHANGED.get(file, 0)
    assert all(text.startswith(bare_question(text)) for text in changed)


@pytest.mark.parametrize(
    ("file", "drops"),
    [
        ("svamp/svamp_1000.jsonl", {"solution_disagrees": 1}),
        ("gsm8k/train.jsonl", {"solution_disagrees": 375, "no_solution": 107}),
    ],
)
def test_nearly_every_equation_of_the_training_rows_is_a_thought(shared_data, file, drops):
    built = build_all(shared_data / file, file.partition("/")[0], thought="equation")
    assert reasons(built) == drops
    lines = [one.solution.split("\n") for one in built if isinstance(one, Problem)]
    sides = [line.partition(" = ")[::2] for one in lines for line in one if "=" in line]
    assert sides and [one for one in sides if not is_same_value(*one)] == []


@pytest.mark.parametrize("file", ["svamp/svamp_1000.jsonl", "mawps/mawps_2065.jsonl"])
def test_the_text_of_the_word_problems_is_nobody_s_tokens(shared_data, file):
    questions = [one.question for one in build_all(shared_data / file, file.partition("/")[0])]
    tokens = re.compile(r" [,.?!]( |$)|  |\$ \d| n't| 's\b|(^|[.?!] )[a-z]")
    assert [question for question in questions if tokens.search(question)] == []


def test_wrapped_copies_give_the_same_questions(shared_data):
    plain, verl = (build_all(shared_data / file, "deepscaler") for file in (DSR, DSR_VERL))
    for one, other in zip(plain, verl, strict=True):
        if isinstance(one, Problem):
            assert (one.question, one.answers) == (other.question, other.answers)
    path = shared_data / "aime/aime-2024_dapo.parquet"
    bare = {row["extra_info"]["raw_problem"].strip() for _, row in read_rows(path)}
    assert {one.question for one in build_all(path, "aime")} == bare and len(bare) == 30


MATH_500 = ["math/math500_test.jsonl", "math/math500_verl.parquet", "math/math500_orz.json"]
SETS = [
    ("gsm8k/test.jsonl", "gsm8k", 1319),
    ("math/test_minus_math500_4500.jsonl.gz", "math", 4500),
    ("arc_challenge/train_sample_300.jsonl", "arc", 300),
    *[(file, "math", 500) for file in MATH_500],
    *[(file, "aime", 30) for file, *_ in FILES if file.startswith("aime/")],
]


@pytest.fixture
def load(shared_data):
    place = {"hub": "", "split": "test"}
    return lambda name, file: load_benchmark(
        place | {"source": name, "files": [file]}, str(shared_data)
    )


@pytest.mark.parametrize(("file", "name", "num_problems"), SETS, ids=[file for file, *_ in SETS])
def test_sets_are_whole_and_scorable(load, file, name, num_problems):
    problems = load(name, file)
    assert len(problems) == num_problems == len({one.id for one in problems})
    assert {one.source for one in problems} == {name}
    for one in problems:
        assert is_parseable(one.answers[0]) and one.question == one.question.strip()


def test_math_500_is_one_set_in_three_shapes(load):
    plain, verl, orz = (load("math", file) for file in MATH_500)
    assert plain == verl  # ids, levels and solutions too
    assert plain[0].id == "math-test-precalculus-807" and orz[0].id == "math-test-0"
    assert [one.question for one in plain] == [one.question for one in orz]
    golds = [[one.answers[0] for one in problems] for problems in (orz, plain)]
    assert {one.verdict for one in grade_short_all(*golds)} == {"right"}
    assert Counter(one.level for one in plain) == {1: 43, 2: 90, 3: 105, 4: 128, 5: 134}
    assert all(one.solution for one in plain)
    assert not any(one.solution or one.level for one in orz)
