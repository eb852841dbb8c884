"""The pages in a browser: nothing overflows or overlaps, nothing is logged, no text is a script."""

import re

import pytest

from tests.integration.report.chromium import BROWSER, Chromium
from tests.unit.report.runs import (
    both_modes,
    hostile_page,
    make_rows,
    run_report,
    solved,
    write_log,
    write_result,
    write_run,
)
from tests.unit.report.test_browse import run_browse
from tests.unit.report.test_compare import run_compare

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]
NAMES = ["base", "sft", "a-checkpoint-with-a-name-of-fifty-two-characters-000"]
# What is wrong with the layout, a line each. What may be wider than the page scrolls by itself.
LAYOUT = """(() => {
  document.querySelectorAll("details").forEach(one => one.open = true);
  const wrong = [], width = document.documentElement.clientWidth;
  const name = one => `${one.tagName} ${(one.textContent || "").trim().slice(0, 40)}`;
  const box = one => one.getBoundingClientRect();
  const all = (kind, of = document) => [...of.querySelectorAll(kind)];
  const within = (a, b) => a.right <= b.right + 1 && a.left >= b.left - 1
    && a.bottom <= b.bottom + 1 && a.top >= b.top - 1;
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const overlap = (one, other) =>  // line by line
    [...one.getClientRects()].some(a => [...other.getClientRects()].some(b => meet(a, b)));
  if (document.documentElement.scrollWidth > width) wrong.push("the page scrolls sideways");
  for (const one of all("body *"))
    if (!one.closest(".scroll, pre") && box(one).width)
      if (box(one).right > width + 1 || box(one).left < -1) wrong.push(`too wide: ${name(one)}`);
  const rows = all("nav, .tiles, .filters, thead tr, .label");
  const groups = rows.map(one => [...one.children]);
  for (const svg of all("svg")) {
    groups.push(all("text", svg));
    for (const text of all("text", svg)) {
      if (!within(box(text), box(svg))) wrong.push(`cut off in a figure: ${name(text)}`);
      if (Math.min(box(text).height, box(text).width) < 8 && text.textContent.length > 1)
        wrong.push(`too small: ${name(text)}`);
    }
  }
  for (const parts of groups)
    parts.forEach((one, at) => parts.slice(at + 1).forEach(other => {
      if (overlap(one, other)) wrong.push(`overlap: ${name(one)} and ${name(other)}`);
    }));
  return wrong;
})()"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each kind, with long names and words that cannot be broken."""
    folder = tmp_path_factory.mktemp("pages")
    long = {"completion": "unbroken" * 200, "question": "x" * 400, "prediction": "9" * 300}
    for name, right in zip(NAMES, (0, 1, 4), strict=True):
        rows = both_modes(right, level=2) + both_modes(right, "gsm8k", num_problems=120)
        rows += make_rows(solved(right, other="cut off"), "gpqa_diamond", "official:gpqa_diamond")
        write_result(folder / "eval" / name, [row | long for row in rows])
    for seed, right in ((0, 1), (1, 2)):
        write_run(folder / f"{NAMES[2]}/seed-{seed}", both_modes(right), seed, range(1, 60))
        write_run(folder / f"b/seed-{seed}", both_modes(right + 1), seed, range(1, 60))
    with pytest.MonkeyPatch.context() as monkeypatch:
        (folder / NAMES[2] / "trainer_state.json").write_text(
            (folder / "b/seed-0/grpo/trainer_state.json").read_text()
        )
        (folder / NAMES[2] / "completions").mkdir()
        for step in (1, 50):
            write_log(folder / NAMES[2] / f"completions/completions_{step:05}.parquet", step)
        made = run_report(folder, monkeypatch, NAMES)
        run_compare(monkeypatch, folder, "b", NAMES[2])
        run_browse(monkeypatch, folder)
    return {"report": made / "report.html", "compare": folder / "out/compare.html",
            "completions": folder / "completions.html"}  # fmt: skip


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["report", "compare", "completions"])
def test_nothing_overflows_or_overlaps_and_nothing_is_logged(tab, pages, kind, width):
    tab.open(pages[kind], width)
    assert tab.run(LAYOUT) == [] and tab.logged == []


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_the_first_screen_has_the_numbers_and_the_pictures(tab, pages, width, height):
    tab.open(pages["compare"], width, height)
    bottoms = tab.run(
        "[...document.querySelectorAll('.tiles > div, .first svg')]"
        ".map(one => one.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) == 4 and max(bottoms) <= height  # one task: two numbers


def test_the_filters_of_completions(tab, pages):
    tab.open(pages["completions"], 1280)

    def count(**values):
        """How many completions match when these inputs are set, and all others are empty."""
        tab.run(
            "for (const one of document.querySelectorAll('.filters input, .filters select'))"
            f" one.value = ({values!r})[one.name] ?? '';"
            "document.querySelector('form').dispatchEvent(new Event('input'))"
        )
        told = tab.run("document.getElementById('count').textContent").split()[0].replace(",", "")
        assert int(told) == tab.run("document.querySelectorAll('article').length")
        return int(told)

    all_rows, steps = count(), count(firstStep="50")
    assert 0 < steps < all_rows and count(firstStep="50", lastStep="49") == 0
    assert count(verdict="right") + count(verdict="wrong") < all_rows  # unclosed ones, too
    assert count(least="1000") + count(most="999") == all_rows
    assert 0 < count(**{"from": "eval/sft"}, verdict="right") < count(**{"from": "eval/sft"})
    assert count(text="UNBROKENunbroken") == count(least="1000") and count(text="nowhere") == 0
    count(order="-1")
    assert "1,600 characters" in tab.run("document.querySelector('#list article').textContent")
    assert tab.logged == []


def test_no_script_of_a_completion_runs(tab, tmp_path, monkeypatch):
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(2 if name == "grpo" else 1))
    page = hostile_page(run_report(tmp_path, monkeypatch, ["sft", "grpo"]))
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub("<meta http-equiv=.*?>", "", page.read_text("utf-8")), "utf-8")
    works = tmp_path / "works.html"
    works.write_text("<title>not</title><img src=x onerror=\"document.title = 'ran'\">")
    titles = []
    for path in (works, page, bare, tmp_path / "report/completions.html"):
        tab.open(path, 1280)
        titles.append(tab.run("new Promise(done => setTimeout(() => done(document.title), 200))"))
    assert titles[0] == "ran" and "ran" not in titles[1:]  # the browser runs scripts
