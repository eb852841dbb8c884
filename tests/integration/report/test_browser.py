"""The report in a browser: hostile text runs no script, even without the page's policy."""

import re
import shutil
import subprocess

import pytest

from tests.unit.report.runs import both_modes, hostile_page, run_report, write_result

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]


def title_after_scripts(path, folder):
    """The page's title when its scripts and handlers have run."""
    command = [BROWSER, *FLAGS.split(), f"--user-data-dir={folder}", "--dump-dom", f"file://{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[1]


def test_no_script_of_a_completion_runs(tmp_path, monkeypatch):
    for name in ("sft", "grpo"):
        write_result(tmp_path / "eval" / name, both_modes(2 if name == "grpo" else 1))
    page = hostile_page(run_report(tmp_path, monkeypatch, ["sft", "grpo"]))
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub("<meta http-equiv=.*?>", "", page.read_text("utf-8")), "utf-8")
    works = tmp_path / "works.html"
    works.write_text("<title>not</title><img src=x onerror=\"document.title = 'ran'\">")
    assert title_after_scripts(works, tmp_path / "profile") == "ran"  # the browser runs scripts
    for path in (page, bare):
        assert title_after_scripts(path, tmp_path / "profile") != "ran"
