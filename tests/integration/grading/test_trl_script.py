"""The script of docs/grader.md runs in a plain TRL trainer."""

import re
import runpy
import sys

import pytest

from tests.demo import ROOT

pytestmark = pytest.mark.integration
MODEL, CONFIG = '"Qwen/Qwen2.5-0.5B-Instruct"', 'GRPOConfig("runs/trl", '


def run(path):
    """The whole of a process."""
    runpy.run_path(path, run_name="__main__")
    sys.exit()


def test_the_documented_script_trains(fork_server, tiny_model_dir, tmp_path):
    text = (ROOT / "docs/grader.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (script,) = [one for one in scripts if CONFIG in one]
    assert len([line for line in script.splitlines() if line.strip()]) <= 15
    assert MODEL in script and CONFIG in script
    script = script.replace(MODEL, repr(str(tiny_model_dir)))
    small = "max_completion_length=8, use_cpu=True, bf16=False, report_to='none', "
    script = script.replace(CONFIG, f"GRPOConfig({str(tmp_path)!r}, {small}")
    script += "print(trainer.state.log_history[0]['rewards/correctness_reward/mean'])\n"
    (tmp_path / "mine.py").write_text(script)
    (lines,) = fork_server.finish(tmp_path / "mine.py", setup=(run, str(tmp_path / "mine.py")))
    assert float(lines[-1]) == 0.0  # of a random model
