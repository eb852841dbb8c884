"""`LORA=1 ACCELERATE=fsdp2` in two processes: the shortened demo, by one command.

FSDP 2 is that of `fsdp_on_cpu`, which Python loads at its start in each launched process. The
others would say that it needs GPUs.
"""

import json

import pytest

from tests import demo
from tests.e2e.test_pipeline import NUM_ROWS, SHORT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SITE = """
import os
if os.environ.get("ACCELERATE_USE_FSDP") == "true":
    from tests.integration.trainer.fsdp_on_cpu import shard_on_cpu
    shard_on_cpu()
else:
    from stages.run import launch
    launch.check_fsdp_device = lambda is_cpu: None
"""
CHANGES = SHORT | {
    "grpo": SHORT["grpo"] | {"eval_steps": 1, "per_device_eval_batch_size": 16},
}


def test_from_data_to_report(tmp_path, monkeypatch):
    demo.write_recipe(tmp_path / "project", NUM_ROWS, CHANGES)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/site:{demo.ROOT}")
    flags = {"LORA": "1", "ACCELERATE": "fsdp2", "NUM_PROCESSES": "2"}
    done = demo.pipeline(tmp_path / "project", "report", **flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("share of the weights in this process: 0.5") == 4
    run = tmp_path / "project/run"
    for name in ("sft", "grpo", "grpo/best"):
        assert (run / name / "model.safetensors").is_file()
        assert (run / name / "adapter/adapter_config.json").is_file()
    engine = json.loads((run / "grpo/run.json").read_text())["engine"]
    assert engine == "FSDP"
    report = json.loads((run / "report/report.json").read_text())
    assert [*report["scores"]] == ["base", "sft", "grpo"]
