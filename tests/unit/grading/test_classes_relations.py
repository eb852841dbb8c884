"""Classes of answers about relations and tuples, from templates: wrong ones that look alike."""

import random

import pytest

from grading.grade import grade_short_all

NAMES, NUM_ROWS = "abcdhkmnpqrstuvwxyz", 60


def labels(rng):
    a, b, c, d = rng.sample(NAMES, 4)
    n = rng.randint(2, 50)
    yield f"{n}{a}={b}+{c}", f"{n}{a}={b}-{c}", False
    yield f"{a}^2={b}", f"{a}^2={c}", False
    yield f"{n}={a}-{b}", f"{n}={a}+{b}", False
    yield f"{n}={a}-{b}", f"{n}={a}-{c}", False
    yield f"{a}{b}={c}", f"{a}{b}={d}", False
    yield f"{n}{a}+1={b}", f"{b}={n}{a}+1", True
    yield f"{a}-{b}={n}", f"{n}={a}-{b}", True
    yield f"{a}={b}+{n}", f"{a}-{b}={n}", True


def solved(rng):
    a, b = rng.sample(NAMES, 2)
    n, m, k = (rng.randint(2, 30) for _ in range(3))
    yield f"{m}{a}+{k}={m * n + k}", f"{a}={n}", False
    yield f"{m}{a}+{k}>{m * n + k}", f"{a}>{n}", False
    yield f"{a}-{n}=0", f"{a}={n}", False
    yield f"{m}{a}\\le {m * n}", f"{a}\\le {n}", False
    yield f"{n}={a}", f"{a}={n}", True
    yield f"{n}<{a}", f"{a}>{n}", True
    yield f"{a}=\\frac{{{2 * n}}}{{2}}", f"{a}={n}", True
    yield f"{n}", f"{a}={n}", True
    yield f"{a}+{b}={n}", f"{b}={n}-{a}", True  # the gold is no number


def tuples(rng):
    a, b = rng.sample(NAMES, 2)
    n, m = rng.sample(range(-20, 20), 2)
    n, m = sorted((n, m))
    yield f"{a}={n} \\text{{ or }} {a}={m}", f"({n},{m})", False
    yield f"{n} \\text{{ or }} {m}", f"({n},{m})", False
    yield f"{n},{m}", f"({n},{m})", False
    yield f"{n},{m}", f"[{n},{m}]", False
    yield f"({n},{m})", f"{n} \\text{{ or }} {m}", False
    yield f"{n},{m}", f"\\{{{n},{m}\\}}", True
    yield f"{a}={n},{b}={m}", f"({n},{m})", a < b
    yield f"{n} \\text{{ or }} {m}", f"{m},{n}", True
    yield f"\\left({n},{m}\\right)", f"({n}, {m})", True


UNITS = [("kg", "g", 1000), ("m", "cm", 100), ("km", "m", 1000), ("hours", "minutes", 60)]


def units(rng):
    a, n = rng.choice(NAMES), rng.randint(2, 50)
    large, small, factor = rng.choice(UNITS)
    for relation in ("=", ">", "\\le "):
        yield f"{a}{relation}{n}\\text{{ {large}}}", f"{a}{relation}{n}\\text{{ {small}}}", False
    yield f"{a}=\\${n}", f"{a}={n}\\text{{ cents}}", False
    yield f"{a}={n}\\text{{ {large}}}", f"{a}={n * factor}\\text{{ {small}}}", True
    yield f"{a}={n}\\text{{ {large}}}", f"{a}={n}", True
    yield f"{a}={n}", f"{a}={n}\\text{{ {small}}}", True
    yield f"{a}=\\${n}", f"{a}={100 * n}\\text{{ cents}}", True


def sums(rng):
    n = rng.randint(3, 30)
    total = n * (n + 1) // 2
    for text in (
        f"\\sum_{{k=1}}^{{{n}}} k",
        f"\\lim_{{x\\to {total}}} x",
        f"\\int_0^{{{n}}} x\\,dx",
    ):
        yield f"{text} = {total}", f"{total}", True
        yield f"{text} = \\frac{{{2 * total}}}{{2}} = {total}", f"{total}", True
        yield f"{text} = {total + 1}", f"{total}", False
        yield f"{text} = {total} = {total + 1}", f"{total}", False


@pytest.mark.parametrize("make", [labels, solved, tuples, units, sums])
def test_of_each_class_the_wrong_are_wrong_and_the_right_right(make):
    rng = random.Random(make.__name__)
    rows = [row for _ in range(NUM_ROWS) for row in make(rng)]
    grades = grade_short_all([row[0] for row in rows], [row[1] for row in rows])
    found = [(*row[:2], grade.verdict == "right") for row, grade in zip(rows, grades, strict=True)]
    assert [one for one, row in zip(found, rows, strict=True) if one[2] != row[2]] == []
