"""GRPO paid by a function of the user's own, which the manifest remembers."""

import json
import re
from pathlib import Path

import pytest

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
