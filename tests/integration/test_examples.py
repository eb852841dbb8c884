"""The examples, as another project would run them: each short, each with what it promises."""

import runpy
import subprocess
import sys

import pytest

from tests.demo import ROOT

pytestmark = pytest.mark.integration
# What each prints at least; the model is random.
EXAMPLES = {
    "curriculum": ["problems used; expected pass rates"],
    "guards": ["of 40\n", "no_signal: share of informative groups"],
    "rewards": ["rewards/correctness_reward/mean: 0.000", "rewards/overlong/mean: -"],
    "grade": ["right            (1, 2]", "right 3"],
    "audit": [
        "correct answers rewarded: 37 of 37",
        "REWARDED two boxes, gold last",
        "ok       nothing at all",
    ],
}


def test_these_are_all_of_them():
    """A command of its own, which has its own test, apart."""
    found = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert found == {*EXAMPLES, "chat_template"}


def test_curriculum_and_guards_need_no_torch():
    code = "from stages.trainer import Curriculum, GuardSettings; import sys; "
    code += "sys.exit('torch' in sys.modules or not hasattr(Curriculum, 'choose'))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, tiny_model_dir, tmp_path, monkeypatch, capfd):
    path = ROOT / f"examples/{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40
    monkeypatch.chdir(tmp_path)
    given = [] if name == "grade" else [str(tiny_model_dir)]
    monkeypatch.setattr(sys, "argv", [str(path), *given])
    found = runpy.run_path(str(path), run_name="__main__")
    text = capfd.readouterr().out
    assert [part for part in EXAMPLES[name] if part not in text] == [], text
    if name == "guards":
        assert found["trainer"].state.global_step < 40
        assert len((tmp_path / "out-guards/events.jsonl").read_text().splitlines()) == 1
