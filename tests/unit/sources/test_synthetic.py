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


def load_with(options):
    return load(**options)


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


def test_levels_come_round_in_the_order_given():
    assert [p.level for p in load(sample=50, levels=[1, 1, 6])] == ([1, 1, 6] * 50)[:50]
    # Where `max_level` says the same, nothing is drawn differently.
    assert load(sample=9, levels=[1, 2, 3, 4]) == load(sample=9, max_level=4)


def test_ids_and_questions_are_distinct_and_all_serve():
    problems = load("test", sample=1500, max_level=1)  # few enough for repeats to be drawn
    assert {p.source for p in problems} == {"synthetic"} and len(problems) == 1500
    assert len({p.id for p in problems}) == 1500
    assert len({question_key(p.question) for p in problems}) == 1500
    source = Source("synthetic")
    assert all(check_problem(p, source, "sft") == p.answers for p in problems)


def test_splits_share_no_arithmetic_chain():
    seen = set()
    for split in synthetic.SPLITS:
        chains = [read_chain(p.question) for p in load(split, 400, max_level=3)]
        assert all(synthetic.split_of(*chain) == split for chain in chains)
        found = {(start, *changes) for start, changes in chains}
        assert found and not found & seen
        seen |= found


def test_more_problems_than_a_split_holds_is_an_error_and_no_endless_loop(monkeypatch):
    for name, words in (("NAMES", "Mia"), ("OBJECTS", "pens"), ("GAINS", "buys"), ("LOSSES", "x")):
        monkeypatch.setattr(synthetic, name, (words,))
    with pytest.raises(ValueError, match=r"sample: 100000 is more than split 'test' holds"):
        load("test", 100_000, max_level=1)
