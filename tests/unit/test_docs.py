"""What README and docs name exists, and their tables and figures are those of code and studies.

Links are followed where the site is built, see tests/integration/test_site.py.
"""

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
from stages.arguments import MODES, REWARD_FUNCS
from stages.trainer.guards import ACTIONS, RULES, GuardSettings
from tests import pages
from tests.pages import ROOT

PRODUCT = "pipeline|grading|data_prep|stages|eval"
FOLDERS = f"{PRODUCT}|benchmarks|tests|configs|docs|examples"


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def one_line(name):
    """A page's text with a blank in place of each line's end."""
    return " ".join(text_of(name).split())


def table(page, head):
    """The rows below the table head that begins so, cell by cell without code marks."""
    block = re.search(
        rf"^\|{re.escape(head)}[^\n]*\n\|[-|:]+\|\n((?:\|.*\n)+)", text_of(page), re.M
    )
    rows = [line[1:-1].split("|") for line in block[1].splitlines()]
    return [[cell.replace("`", "") for cell in row] for row in rows]


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name_of)
def test_files_modules_and_targets_exist(page):
    text = page.read_text(encoding="utf-8")
    files = re.findall(rf"(?<![\w/.])((?:{FOLDERS})/[\w./-]+\.(?:py|yaml|sh|md|png))\b", text)
    own = ("configs/my/", "configs/mine/")  # the reader's
    missing = [name for name in files if not name.startswith(own) and not (ROOT / name).exists()]
    modules = re.findall(rf"-m ((?:{PRODUCT}|benchmarks|docs)[\w.]*)", text)
    missing += [one for one in modules if importlib.util.find_spec(one) is None]
    targets = {*re.findall(r"(?:^|`)make ([a-z][\w-]*)", text)}
    assert missing == [] and targets <= {*known.targets(), *BENCHMARKS}


def test_the_page_of_keys_is_up_to_date():
    assert keys.PAGE.read_text(encoding="utf-8") == keys.page(), "run python -m docs.keys"


def test_the_navigation_of_the_site_has_each_page_once():
    found = re.findall(
        r"(?m)^ +- (?:.*: )?(\S+\.md)$", text_of("mkdocs.yml").partition("\nnav:")[2]
    )
    shown = [pages.name_of(page) for page in (*pages.DOCS, *pages.RESULTS)]
    assert sorted(found) == sorted([*shown, "README.md", "CONTRIBUTING.md", "CHANGELOG.md"])


def test_every_reward_and_guard_is_listed():
    assert [row[0] for row in table("docs/grpo.md", "name|value")] == [*REWARD_FUNCS]
    assert {row[0].split()[0] for row in table("docs/grpo.md", "action")} == {*ACTIONS}
    limits = {row[0]: row[2] for row in table("docs/grpo.md", "`guard_…`")}
    defaults = GuardSettings()
    assert limits == {
        name: f"guard_{rule.limit}, {getattr(defaults, rule.limit):g}"
        for name, rule in RULES.items()
    }


def test_every_mode_is_listed():
    rows = table("docs/curriculum.md", "mode")
    assert {row[0].split()[0] for row in rows} == {*MODES}


def test_the_last_lines_of_the_demo_are_those_that_golden_compares():
    found = json.loads(text_of("tests/golden/expected.json"))["full chain"]["report"]
    for task in ("held_out", "transfer"):
        head = f".changes.{task}.sampled.1."
        change = {
            name.removeprefix(head): 100 * value
            for name, value in found.items()
            if name.startswith(head)
        }
        score = 100 * found[f".scores.grpo.{task}.sampled.metrics.avg@4.value"]
        parts = [f"{part} {change[f'{part}.value']:+.1f}" for part in PARTS]
        parts = [re.sub(r"[+-]0\.0", "0.0", part) for part in parts]
        assert (
            f"grpo scores {score:.1f} % on {task} (avg@4), {change['score.value']:.1f} points more "
            f"than sft (95 % interval {change['score.low']:.1f} to {change['score.high']:.1f}).\n"
            f"Parts: {', '.join(parts)}. Since base:"
        ) in text_of("README.md")


def rounded(values, digits=1, scale=1):
    return [f"{scale * value:.{digits}f}" for value in values]


def test_the_readme_has_the_figures_of_the_study():
    found = json.loads(text_of("docs/results/smollm2.json"))
    sft, grpo = (fmean(found["figures"][name]["test"]) for name in ("SFT", "GRPO"))
    gains = found["gains"]["GRPO - SFT, all seeds"]
    told = "from {} to {} % of samples on SVAMP, a gain of {} points (95 % interval over problems "
    told += "{} to {})"
    readme = one_line("README.md")
    assert told.format(*rounded([sft, grpo, *gains["test"]])) in readme
    assert "Greedy answers gain {} ({} to {})".format(*rounded(gains["test, greedy"])) in readme


def test_the_pages_have_the_figures_of_time():
    found = json.loads(text_of("docs/results/time-to-accuracy.json"))
    ours, parts = found["beside_stock"]["ours"], found["parts"]
    needed, ahead = rounded(ours["seconds_needed"], 2), rounded(ours["at_seconds"], scale=100)
    fastest, stock = (parts[one]["step"] for one in ("no backward pass without advantage", "stock"))
    step = [fmean(mine / other for mine, other in zip(fastest, stock, strict=True))]
    for page, told, values in (
        ("README.md", "takes {} of stock TRL's seconds to TRL's final accuracy "
         "(five seeds, 95 % interval {} to {})", needed),
        ("README.md", "At equal seconds it is {} points ahead ({} to {};", ahead),
        ("docs/speed.md", "{} of stock TRL's seconds [{}, {}]", needed),
        ("docs/speed.md", "{} of stock's seconds without a curriculum", rounded(step, 2)),
    ):  # fmt: skip
        assert told.format(*values) in one_line(page)


def test_the_pictures_of_the_readme_show_the_study():
    for name in ("accuracy", "pipeline"):
        for theme in draw.COLORS:
            drawn = getattr(draw, f"draw_{name}")(theme)
            assert text_of(f"docs/pictures/{name}-{theme}.svg") == drawn, "docs/pictures/draw.py"
