"""What README and docs name exists: files, links, headings, modules, make targets, keys."""

import importlib.util
import json
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
LINKED = [*pages.PAGES, ROOT / "CHANGELOG.md"]


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


def broken(page, text):
    """The links of a page that lead nowhere."""
    found = []
    for link in pages.links(text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists():
            found.append(link)
        elif anchor and target.suffix == ".md":
            its_text = target.read_text(encoding="utf-8") if file else text
            found += [] if anchor in pages.anchors(its_text) else [link]
    return found


@pytest.mark.parametrize("page", LINKED, ids=pages.name_of)
def test_links_lead_somewhere(page):
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found():
    text = "# One\n\n## Two `keys`, & [more](x)\n\n## One\n\n```\n# no heading\n```\n"
    text += "[a](#one) [b](#two-keys--more) [c](#one-1) [d](CITATION.cff) `[e](gone.md)`\n"
    assert broken(ROOT / "README.md", text) == ["x"]
    text = "[a](#gone) [b](docs/gone.md) ![c](docs/gone.png) [d](#no-heading)\n# Here\n"
    text += '<img src="docs/gone.svg">'
    assert len(broken(ROOT / "README.md", text)) == 5


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


def rounded(values, digits):
    return [f"{value:.{digits}f}" for value in values]


def test_the_readme_has_the_figures_of_the_study():
    found = json.loads((ROOT / "docs/results/smollm2.json").read_text(encoding="utf-8"))
    sft, grpo = (fmean(found["figures"][name]["test"]) for name in ("SFT", "GRPO"))
    gains = found["gains"]["GRPO - SFT, all seeds"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    told = "from {} to {} % of samples on SVAMP, a gain of {} points (95 % interval over problems "
    told += "{} to {})"
    assert told.format(*rounded((sft, grpo, *gains["test"]), 1)) in readme
    assert "Greedy answers gain {} ({} to {})".format(*rounded(gains["test, greedy"], 1)) in readme


def test_the_pages_have_the_figures_of_time():
    found = json.loads((ROOT / "docs/results/time-to-accuracy.json").read_text(encoding="utf-8"))
    ours, parts = found["beside_stock"]["ours"], found["parts"]
    needed = rounded(ours["seconds_needed"], 2)
    ahead, at_tokens = (
        rounded((100 * value for value in ours[cost]), 1) for cost in ("at_seconds", "at_tokens")
    )
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    told = "takes {} of stock TRL's seconds to TRL's final accuracy "
    told += "(five seeds, 95 % interval {} to {})"
    assert told.format(*needed) in readme
    assert "At equal seconds it is {} points ahead ({} to {};".format(*ahead) in readme

    speed = " ".join((ROOT / "docs/speed.md").read_text(encoding="utf-8").split())
    assert "{} of stock TRL's seconds [{}, {}]".format(*needed) in speed
    assert "{} points ahead [{}, {}]".format(*ahead) in speed
    assert "at equal tokens {} [{}, {}]".format(*at_tokens) in speed
    stock = parts.pop("stock")["step"]
    steps = [
        fmean(mine / other for mine, other in zip(part["step"], stock, strict=True))
        for part in parts.values()
    ]
    told = "{} of stock's seconds with our generation, {} with `update_tokens` as well, {} without "
    told += "a backward pass for rows without advantage, and {} with the curriculum"
    assert told.format(*rounded(steps, 2)) in speed


def test_the_picture_of_the_readme_shows_the_study():
    for name in ("accuracy", "pipeline"):
        for theme in draw.COLORS:
            file = ROOT / f"docs/pictures/{name}-{theme}.svg"
            drawn = getattr(draw, f"draw_{name}")(theme)
            assert file.read_text(encoding="utf-8") == drawn, "python docs/pictures/draw.py"
