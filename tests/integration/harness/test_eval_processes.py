"""Several processes share an evaluation; its results are those of one process, to the bit."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.integration.harness.eval_runs import (
    ROOT,
    counting,
    evaluate,
    flags,
    read_keys,
    read_rows,
    read_scores,
    read_store,
    write_problems,
)
from tests.integration.harness.official_data import write_official
from tests.unit.stages.helpers import NO_TENSORS

pytestmark = pytest.mark.integration
PROBLEMS = {f"Mia has {i} pens." * (i % 3 + 1): str(i) for i in range(1, 9)}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
SETTINGS = {"num_samples": 3, "max_new_tokens": 16}
OFFICIAL = {"tasks": ["held_out", "gsm8k"], "official": ["gsm8k", "gpqa_diamond"], "limit": 4}


@pytest.fixture
def folder(tmp_path):
    write_problems(tmp_path / "test.jsonl", PROBLEMS)
    return tmp_path


def start(folder, *checkpoints, **settings):
    """Two processes of an evaluation, behind their launcher."""
    command = [*TORCHRUN, "-m", "eval.run", *flags(folder, *checkpoints, **settings)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, env=env, cwd=ROOT, **pipes)


def test_two_processes_write_what_one_would(folder, tiny_model_dir):
    write_official(folder / "data")
    settings = SETTINGS | OFFICIAL | {"data_root": folder / "data"}
    process = start(folder, f"base={tiny_model_dir}", **settings)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert out.count("\n") == 1 and out.startswith("eval: 1 checkpoint (1 now"), out
    lines = [line for line in re.split(r"[\r\n]+", err) if line.strip()]
    notices = [line for line in lines if line.startswith("notice: base: official prompts exceed")]
    assert len(notices) == 1, err  # of the main process alone
    bars = [line for line in lines if line not in notices]
    assert all(re.match(r"base (greedy|sampled|official): ", line) for line in bars), err

    two = folder / "eval" / "base"
    store = read_store(two)
    assert list(store) == ["samples-0.jsonl", "samples-1.jsonl"]
    shares = [{*keys} for keys in store.values()]
    assert not shares[0] & shares[1]
    # Greedy and sampled completions of 4 + 3 problems, then 3 + 4 that are official and the four
    # options of 4, each time one by one in turn.
    assert list(map(len, shares)) == [4 + 11 + 4 + 8, 3 + 10 + 3 + 8]
    total = sum(map(len, store.values()))
    assert total == sum(map(len, shares))

    with counting() as asked:
        one = evaluate(folder, f"base={tiny_model_dir}", **settings, output_dir=folder / "one")
    assert len(asked) == total
    assert set(read_keys(one)) == shares[0] | shares[1]
    assert read_rows(two) == read_rows(one)
    assert read_scores(two)["tasks"] == read_scores(one)["tasks"]
    manifests = [json.loads((f.parent / "manifest.json").read_text()) for f in (one, two)]
    assert manifests[0]["counts"] == manifests[1]["counts"]
    assert manifests[0]["inputs"] == manifests[1]["inputs"]


def test_an_error_in_one_process_ends_both(folder):
    """The main process finds that the adapter's base is not there, while the other waits for it."""
    adapter = folder / "sft"
    adapter.mkdir()
    config = {"base_model_name_or_path": "nobody/nothing"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_text(NO_TENSORS)
    process = start(folder, f"sft={adapter}")
    out, err = process.communicate(timeout=240)
    assert process.returncode != 0
    assert out == ""
    found = re.findall(r"^error: checkpoints: nobody/nothing: .*$", err, re.MULTILINE)
    assert len(found) == 1, err
    assert re.search(r"exitcode +: 2 ", err)
