"""GRPO with parts of the user's own: a reward, which the manifest remembers, and a curriculum."""

import json
import re
import runpy
from pathlib import Path

import pytest

from stages import grpo

pytestmark = pytest.mark.integration
PAGE = Path(__file__).parents[3] / "docs/grpo.md"


def test_the_example_of_the_docs_pays(run_stage, tmp_path, monkeypatch):
    source = re.search(r"```python\n(# brevity\.py.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (tmp_path / "brevity.py").write_text(source[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOW_CODE", "1")
    funcs = ["correctness_reward", "brevity:few_lines"]
    folder = run_stage("grpo", reward_funcs=funcs, reward_weights=[1.0, 0.5], max_steps=1)
    made = json.loads((folder / "manifest.json").read_text())
    assert made["config"]["reward_funcs"] == funcs and len(made["inputs"]["brevity.py"]) == 64
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    log = {key: value for entry in history for key, value in entry.items()}
    assert log["rewards/few_lines/mean"] == pytest.approx(-0.1 * log["rollout/lines"])


def test_the_curriculum_of_the_docs_chooses(run_stage, tmp_path, monkeypatch):
    source = re.search(r"```python\n(from pipeline.*?)```", PAGE.read_text("utf-8"), re.S)[1]
    assert len([line for line in source.splitlines() if line.strip()]) < 20
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(grpo, "build_curriculum", grpo.build_curriculum)  # and back at the end
    mine, made = runpy.run_path(str(tmp_path / "mine.py"))["InOrder"], []
    monkeypatch.setattr(mine, "observe", lambda _, problems, *others: made.append(problems))
    run_stage("grpo", curriculum="predictive", max_steps=1)
    assert made[0] and made[0] == [*range(len(made[0]))]
