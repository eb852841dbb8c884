"""What README and docs name exists: files, modules, make targets, keys; of links see test_site."""

import importlib.util
import json
import math
import re
from statistics import fmean

import pytest

from benchmarks.__main__ import BENCHMARKS
from docs import keys
from docs.pictures import draw
from eval.report.decomposition import PARTS
from pipeline import names as known
from tests import pages
from tests.pages import ROOT

PACKAGES = (
    "pipeline", "grading", "data_prep", "stages", "eval", "benchmarks", "tests", "configs", "docs",
    "examples",
)  # fmt: skip


def names(page, pattern):
    return sorted({match[1] for match in re.finditer(pattern, page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name_of)
def test_files_modules_and_targets_exist(page):
    files = names(page, rf"(?<![\w/.])((?:{'|'.join(PACKAGES)})/[\w./-]+\.(?:py|yaml|sh|md|png))\b")
    files = [name for name in files if not name.startswith(("configs/my/", "configs/mine/"))]
    missing = [name for name in files if not (ROOT / name).exists()]
    modules = names(page, r"-m ((?:pipeline|grading|data_prep|stages|eval|benchmarks|docs)[\w.]*)")
    missing += [one for one in modules if importlib.util.find_spec(one) is None]
    targets = {*known.targets(), *BENCHMARKS}
    assert missing == [] and {*names(page, r"(?:^|`)make ([a-z][\w-]*)")} <= targets


NUMBERS = ("an", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def times(text):
    """`(goal, time)` of each sentence or line that names one goal of make and one time."""
    for part in re.split(r"\n(?=\s*\n|[-|]|make )|(?<=[.;]) ", text):
        part = " ".join(part.split())
        goals = {*re.findall(r"\bmake ([a-z-]+)(?=[` ])(?! +[A-Z]+=)", part)}
        found = re.findall(r"\b(\d+|[a-z]+) (minute|hour)s?\b", part)
        if len(goals) == len(found) == 1:
            number, unit = found[0]
            number = NUMBERS.index(number) + 1 if number in NUMBERS else number
            yield goals.pop(), f"{number} {unit}"


def test_a_time_is_the_same_wherever_it_stands():
    found = {}
    for page in pages.PAGES:
        for goal, time in times(page.read_text(encoding="utf-8")):
            found.setdefault(goal, {}).setdefault(time, []).append(pages.name_of(page))
    assert {goal: where for goal, where in found.items() if len(where) > 1} == {}


def test_times_are_found():
    text = "make demo   # all, in 10 minutes\nmake test   # ten minutes\n\n`make demo`, in eight\n"
    text += "minutes. It is done; `make study` takes an hour.\n| `make a`, `make b` | 3 minutes |\n"
    assert [*times(text)] == [
        ("demo", "10 minute"), ("test", "10 minute"), ("demo", "8 minute"), ("study", "1 hour")
    ]  # fmt: skip


def test_the_page_of_keys_is_up_to_date():
    assert keys.PAGE.read_text(encoding="utf-8") == keys.page(), "run python -m docs.keys"


def test_the_navigation_of_the_site_has_each_page_once():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    found = re.findall(r"(?m)^ +- (?:.*: )?(\S+\.md)$", text[text.index("\nnav:") :])
    shown = [pages.name_of(page) for page in (*pages.DOCS, *pages.RESULTS)]
    shown += ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    assert {*found} ^ {*shown} == set() and len(found) == len(shown)


def test_the_last_lines_of_the_demo_are_those_that_golden_compares():
    expected = json.loads((ROOT / "tests/golden/expected.json").read_text(encoding="utf-8"))
    found = expected["full chain"]["report"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for task in ("held_out", "transfer"):
        change = {
            key: 100 * value
            for name, value in found.items()
            if (key := name.removeprefix(f".changes.{task}.sampled.1.")) != name
        }
        score = 100 * found[f".scores.grpo.{task}.sampled.metrics.avg@4.value"]
        parts = [f"{part} {change[f'{part}.value']:+.1f}" for part in PARTS]
        parts = [part.replace("+0.0", "0.0").replace("-0.0", "0.0") for part in parts]
        assert (
            f"grpo scores {score:.1f} % on {task} (avg@4), {change['score.value']:.1f} points more "
            f"than sft (95 % interval {change['score.low']:.1f} to {change['score.high']:.1f}).\n"
            f"Parts: {', '.join(parts)}. Since base:"
        ) in readme


def test_the_readme_rounds_no_gain_up():
    found = json.loads((ROOT / "docs/results/smollm2.json").read_text(encoding="utf-8"))
    sft, grpo = (fmean(found["figures"][name]["test"]) for name in ("SFT", "GRPO"))
    gain = found["gains"]["GRPO - SFT, all seeds"]["test"]
    values = [f"{math.floor(10 * value + 1e-9) / 10:.1f}" for value in (sft, grpo, *gain)]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    told = "from {} to {} % of samples on SVAMP, a gain of {} points (95 % interval over problems "
    assert f"{told}{{}} to {{}})".format(*values) in readme
    greedy = found["gains"]["GRPO - SFT, all seeds"]["test, greedy"]
    values = [f"{math.floor(10 * value) / 10:.1f}" for value in greedy]
    assert "Greedy answers gain {} ({} to {})".format(*values) in readme


def shares(values):
    """Rounded up: a greater share of stock's seconds is worse."""
    return [f"{math.ceil(100 * value - 1e-9) / 100:.2f}" for value in values]


def points(values):
    """In per cent, rounded down."""
    return [f"{math.floor(1000 * value + 1e-9) / 10:.1f}" for value in values]


def test_no_figure_of_time_is_rounded_in_our_favour():
    found = json.loads((ROOT / "docs/results/time-to-accuracy.json").read_text(encoding="utf-8"))
    ours, parts = found["beside_stock"]["ours"], found["parts"]
    needed, ahead = shares(ours["seconds_needed"]), points(ours["at_seconds"])
    chosen = points(found["curricula"]["ours"]["at_seconds"])
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    told = "takes {} of stock TRL's seconds to TRL's final accuracy "
    told += "(five seeds, 95 % interval {} to {})"
    assert told.format(*needed) in readme
    assert "At equal seconds it is {} points ahead ({} to {})".format(*ahead) in readme
    assert "Choosing problems alone gains {} ({} to {})".format(*chosen) in readme

    speed = " ".join((ROOT / "docs/speed.md").read_text(encoding="utf-8").split())
    told = "{} of stock TRL's seconds reach its final accuracy: over five seeds, with a 95 % "
    told += "interval of {} to {}"
    assert told.format(*needed) in speed
    assert "is {} points ahead ({} to {})".format(*ahead) in speed
    assert "at equal tokens {} ({} to {})".format(*points(ours["at_tokens"])) in speed
    stock = parts.pop("stock")["step"]
    steps = [
        fmean(mine / other for mine, other in zip(part["step"], stock, strict=True))
        for part in parts.values()
    ]
    told = "{} of stock's seconds with our generation, {} with `update_tokens` as well, {} without "
    told += "a backward pass for rows without advantage, and {} with the curriculum"
    assert told.format(*shares(steps)) in speed


def test_the_picture_of_the_readme_shows_the_study():
    for name in ("accuracy", "pipeline"):
        for theme in draw.COLORS:
            file = ROOT / f"docs/pictures/{name}-{theme}.svg"
            drawn = getattr(draw, f"draw_{name}")(theme)
            assert file.read_text(encoding="utf-8") == drawn, "python docs/pictures/draw.py"
