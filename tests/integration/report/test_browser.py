"""The pages in a browser: nothing overflows or overlaps, no text is a script, filters filter."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.report.runs import (
    both_modes,
    hostile_page,
    make_rows,
    run_report,
    solved,
    write_json,
    write_log,
    write_result,
    write_run,
)
from tests.unit.report.test_pages import run_browse, run_compare

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --disable-sync "
    "--disable-background-networking --disable-component-update --virtual-time-budget=2000"
)
NAMES = ["base", "sft", "a-checkpoint-with-a-name-of-fifty-two-characters-000"]
HERE = Path(__file__).parent
LAYOUT, COUNTS = ((HERE / name).read_text("utf-8") for name in ("layout.js", "counts.js"))


def load(page, width=1280, script=None):
    """The page as Chromium has it after loading; of a script, a function without arguments, what
    it returns, without the page's policy, which would not let it run."""
    if script:
        text = re.sub("<meta http-equiv=.*?>", "", page.read_text("utf-8"))
        page = page.with_name(f"with-script-{page.name}")
        shown = "document.body.append(Object.assign(document.createElement('output'), {"
        shown += f"id: 'found', textContent: JSON.stringify(({script})())}}))"
        page.write_text(f"{text}<script>addEventListener('load', () => {shown})</script>", "utf-8")
    command = [
        BROWSER,
        *FLAGS.split(),
        f"--window-size={width},844",
        "--dump-dom",
        f"file://{page}",
    ]
    found = subprocess.run(command, capture_output=True, check=True, timeout=600)
    text = found.stdout.decode("utf-8", "replace")
    if not script:
        return text
    return json.loads(html.unescape(re.search('id="found">(.*?)</output>', text, re.DOTALL)[1]))


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
    logs = [{"step": s, "rollout/rewards": 0.5, "grad_norm": s} for s in range(1, 60)]
    write_json(folder / NAMES[2] / "trainer_state.json", {"log_history": logs})
    for step in (1, 50):
        write_log(folder / NAMES[2] / f"completions/completions_{step:05}.parquet", step)
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = run_report(folder, monkeypatch, NAMES)
        run_compare(monkeypatch, folder, "b", NAMES[2])
        run_browse(monkeypatch, folder)
    return {"report": made / "report.html", "compare": folder / "out/compare.html",
            "completions": folder / "completions.html"}  # fmt: skip


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("kind", ["report", "compare", "completions"])
def test_nothing_overflows_or_overlaps(pages, kind, width):
    assert load(pages[kind], width, LAYOUT) == []


def test_the_filters_of_completions(pages):
    cases = [
        {}, {"firstStep": "50"}, {"firstStep": "50", "lastStep": "49"}, {"verdict": "right"},
        {"verdict": "wrong"}, {"least": "1000"}, {"most": "999"}, {"from": "eval/sft"},
        {"from": "eval/sft", "verdict": "right"}, {"text": "UNBROKENunbroken"}, {"text": "nowhere"},
    ]  # fmt: skip
    found = load(pages["completions"], script=COUNTS.replace("CASES", json.dumps(cases)))
    assert all(told == shown for told, shown in found)
    everything, late, never, right, wrong, long, short, sft, both, text, none = (
        told for told, _ in found
    )
    assert 0 < late < everything and never == none == 0
    assert 0 < right + wrong < everything  # unclosed ones, too
    assert long + short == everything and text == long > 0
    assert 0 < both < sft


def test_no_script_of_a_completion_runs(tmp_path, monkeypatch):
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(2 if name == "grpo" else 1))
    page = hostile_page(run_report(tmp_path, monkeypatch, ["sft", "grpo"]))
    works = tmp_path / "works.html"
    works.write_text("<title>not</title><img src=x onerror=\"document.title = 'ran'\">")
    assert "<title>ran</title>" in load(works)  # the browser runs scripts
    for one in (page, tmp_path / "report/completions.html"):
        assert "<title>ran</title>" not in load(one)
    assert load(page, script="() => document.title") != "ran"
