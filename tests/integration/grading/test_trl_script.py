"""The script of docs/grader.md runs in a plain TRL trainer."""

import re
import subprocess
import sys

import pytest

from tests.demo import ROOT

pytestmark = pytest.mark.integration
MODEL, CONFIG = '"Qwen/Qwen2.5-0.5B-Instruct"', 'GRPOConfig("runs/trl", '


def test_the_documented_script_trains(tiny_model_dir, tmp_path):
    text = (ROOT / "docs/grader.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len([line for line in script.splitlines() if line.strip()]) <= 15
    assert MODEL in script and CONFIG in script
    script = script.replace(MODEL, repr(str(tiny_model_dir)))
    small = "max_completion_length=8, use_cpu=True, bf16=False, report_to='none', "
    script = script.replace(CONFIG, f"GRPOConfig({str(tmp_path)!r}, {small}")
    script += "print(trainer.state.log_history[0]['rewards/correctness_reward/mean'])\n"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == 0.0  # of a random model
