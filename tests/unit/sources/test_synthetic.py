"""The embedded word problems: every number recomputed from the question's own words."""

import re

import pytest

from data_prep.builder.filters import check_problem
from data_prep.builder.recipe import Source
from data_prep.decontamination.text import question_key
from data_prep.sources import synthetic

STEP = re.compile(r"(\d+)((?: [+-] \d+)+) = (\d+)")


def load(split="train", sample=200, seed=0, **options):
    return list(synthetic.load(split, sample, seed, **options))


def read_chain(question):
    """(start, changes) read off a question's text, without the generator's help."""
    start = int(re.search(r" has (\d+) ", question)[1])
    events = re.findall(r"^[A-Z]\w+ (\w+) (\d+)\.$", question, re.MULTILINE)
    signs = dict.fromkeys(synthetic.GAINS, 1) | dict.fromkeys(synthetic.LOSSES, -1)
    return start, [signs[verb] * int(number) for verb, number in events]


def read_steps(solution):
    """[(total before, changes, total after)] of every equation in a worked solution."""
    steps = []
    for before, terms, after in STEP.findall(solution):
        changes = [int(term.replace(" ", "")) for term in re.findall(r"[+-] \d+", terms)]
        steps.append((int(before), changes, int(after)))
    return steps


def test_answers_by_hand():
    events = ["Monday buys 5.", "Tuesday loses 3."]
    assert synthetic.write_careful_answer(14, [5, -3], events) == (
        "Monday buys 5. 14 + 5 = <<14+5=19>>19\nTuesday loses 3. 19 - 3 = <<19-3=16>>16\n#### 16"
    )
    assert synthetic.write_hasty_answer(14, [5, -3, 2, -8], [3, 1]) == (
        "14 + 5 - 3 + 2 = <<14+5-3+2=18>>18\n18 - 8 = <<18-8=10>>10\n#### 10"
    )


@pytest.mark.parametrize("hasty_share", [0.0, 1.0])
def test_every_answer_follows_from_the_question(hasty_share):
    problems = load(sample=400, max_level=7, hasty_share=hasty_share)
    for problem in problems:
        start, changes = read_chain(problem.question)
        assert len(changes) == problem.level and 0 not in changes
        totals = [start]
        for change in changes:
            totals.append(totals[-1] + change)
        assert all(0 <= total <= synthetic.MAX_VALUE for total in totals)
        assert problem.answers[0] == str(totals[-1])
        steps = read_steps(problem.solution)
        assert [c for _, merged, _ in steps for c in merged] == changes
        assert all(after == before + sum(merged) for before, merged, after in steps)
        assert [before for before, _, _ in steps] == [start, *(after for *_, after in steps[:-1])]
        assert "<<" not in problem.solution and "####" not in problem.solution


def test_careful_solutions_take_one_day_at_a_time_and_hasty_ones_do_not():
    assert {len(m) for p in load(max_level=5) for _, m, _ in read_steps(p.solution)} == {1}
    hasty = load(max_level=5, hasty_share=1.0, max_merge=3)
    sizes = {len(m) for p in hasty if p.level > 1 for _, m, _ in read_steps(p.solution)}
    assert {2, 3} <= sizes <= {1, 2, 3}


@pytest.mark.parametrize("levels", [[1, 1, 6], [7, 2], [4]])
def test_levels_come_round_in_the_order_given(levels):
    found = [p.level for p in load(sample=50, levels=levels)]
    assert found == (levels * 50)[:50]
    # Where `max_level` says the same, nothing is drawn differently.
    if levels == [4]:
        assert load(sample=9, levels=[1, 2, 3, 4]) == load(sample=9, max_level=4)


def test_ids_and_questions_are_distinct():
    problems = load("test", sample=1500, max_level=1)  # few enough for repeats to be drawn
    assert len(problems) == 1500
    assert len({p.question for p in problems}) == len({p.id for p in problems}) == 1500
    assert {p.source for p in problems} == {"synthetic"}
    assert len({question_key(p.question) for p in problems}) == 1500
    source = Source("synthetic")
    assert all(check_problem(p, source, "sft") == p.answers for p in problems)


def test_splits_share_no_arithmetic_chain():
    chains = {}
    for split in synthetic.SPLITS:
        problems = load(split, 400, max_level=3)
        found = [read_chain(p.question) for p in problems]
        assert all(synthetic.split_of(*chain) == split for chain in found)
        chains[split] = {(start, *changes) for start, changes in found}
    for split, found in chains.items():
        others = set().union(*(c for name, c in chains.items() if name != split))
        assert found and not found & others


@pytest.mark.parametrize(
    "options",
    [{"split": "dev"}, {"max_level": 0}, {"max_level": 8}, {"hasty_share": -0.1},
     {"hasty_share": 1.1}, {"max_merge": 1}, {"max_merge": 8}, {"levels": [1, 0]}],
)  # fmt: skip
def test_options_out_of_range(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: .* is not (within|one of)"):
        load(**options)


def test_more_problems_than_a_split_holds_is_an_error_and_no_endless_loop(monkeypatch):
    monkeypatch.setattr(synthetic, "NAMES", ("Mia",))
    monkeypatch.setattr(synthetic, "OBJECTS", ("pens",))
    monkeypatch.setattr(synthetic, "GAINS", ("buys",))
    monkeypatch.setattr(synthetic, "LOSSES", ("sells",))
    with pytest.raises(ValueError, match=r"sample: 100000 is more than split 'test' holds"):
        list(synthetic.load("test", 100_000, 0, max_level=1))
