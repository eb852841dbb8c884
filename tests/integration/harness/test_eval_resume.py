"""Evaluations that share samples: no finished one is generated twice, by one process or two."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from eval import run
from tests.integration.conftest import build_tiny_model
from tests.integration.harness.eval_runs import (
    PROBLEMS,
    ROOT,
    counting,
    evaluate,
    flags,
    read_evaluated,
    read_keys,
    read_rows,
    read_scores,
    read_store,
    write_problems,
)
from tests.integration.harness.official_data import write_official
from tests.refused import refused
from tests.unit.stages.helpers import NO_TENSORS

pytestmark = pytest.mark.integration
NUM = len(PROBLEMS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_model_dir):
    """A finished evaluation of the tiny model on `PROBLEMS`."""
    folder = tmp_path_factory.mktemp("finished")
    write_problems(folder / "test.jsonl")
    evaluate(folder, f"base={tiny_model_dir}")
    return folder


@pytest.fixture
def again(finished, tmp_path, tiny_model_dir):
    """Function: evaluate a copy of it again; returns its folder and what the engine was asked."""
    shutil.copytree(finished, tmp_path, symlinks=True, dirs_exist_ok=True)

    def call(**settings):
        # The path of the test file is part of the inputs.
        settings = {"test_file": f"{finished}/test.jsonl"} | settings
        with counting() as asked:
            folder = evaluate(tmp_path, f"base={tiny_model_dir}", **settings)
        return folder, asked

    return call


def evaluate_alone(*words):
    """The whole of a process."""
    sys.argv = ["eval.run", *words]
    run.main()
    sys.exit()


def test_a_killed_evaluation_goes_on(fork_server, tmp_path, tiny_model_dir):
    write_problems(tmp_path / "test.jsonl", {f"Mia has {i} pens." * i: str(i) for i in range(1, 9)})
    one_by_one = {"num_samples": 9, "max_new_tokens": 24, "batch_size": 1}
    checkpoint = f"base={tiny_model_dir}"
    setup = (evaluate_alone, *flags(tmp_path, checkpoint, **one_by_one))
    pids = fork_server.start(tmp_path / "process", setup=setup)
    try:
        while not (found := [*tmp_path.glob("eval/base-*/samples/samples-0.jsonl")]) or (
            found[0].read_bytes().count(b"\n") < 15
        ):
            ended = fork_server.wait(pids[0], seconds=0.01)
            assert ended is None, "the evaluation ended before it could be killed"
    finally:
        fork_server.kill(pids)
    (path,) = found
    assert not [*tmp_path.glob("eval/*/scores.json"), *tmp_path.glob("eval/manifest.json")]

    # What a kill within a write leaves: the last line without its end.
    whole = path.read_bytes()[: path.read_bytes().rfind(b"\n") + 1]
    path.write_bytes(whole[:-5])
    before = read_keys(path.parents[1])
    assert 14 <= len(before) < 80

    with counting() as asked:
        folder = evaluate(tmp_path, checkpoint, **one_by_one | {"batch_size": 16})
    assert len(asked) == 80 - len(before)
    after = read_keys(folder)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 80
    other = {"output_dir": str(tmp_path / "other"), "batch_size": 16}
    uninterrupted = evaluate(tmp_path, checkpoint, **one_by_one | other)
    assert read_rows(folder) == read_rows(uninterrupted)
    assert read_scores(folder)["tasks"] == read_scores(uninterrupted)["tasks"]


def test_more_samples_keep_those_that_are_there(again, finished):
    def by_sample(rows):
        return {(row["id"], row["mode"], row["sample"]): row for row in rows}

    before = by_sample(read_rows(finished / "eval" / "base"))
    folder, asked = again(num_samples=4)
    assert sorted(request.sample for request in asked) == [2] * NUM + [3] * NUM
    after = by_sample(read_rows(folder))
    assert len(after) == NUM * 5
    assert {key: after[key] for key in before} == before


def test_a_part_of_an_evaluation_is_kept_by_the_whole(tmp_path, tiny_model_dir, capsys):
    """The other checkpoint need not be there yet."""
    write_problems(tmp_path / "test.jsonl")
    checkpoints = (f"base={tiny_model_dir}", f"sft={tmp_path}/later")
    evaluate(tmp_path, *checkpoints, only_checkpoints="base")
    assert "eval: base done in" in capsys.readouterr().out
    assert not (tmp_path / "eval/manifest.json").exists()
    shutil.copytree(tiny_model_dir, tmp_path / "later")
    evaluate(tmp_path, *checkpoints)
    assert read_evaluated(tmp_path / "eval") == ["sft"]
    refused("only_checkpoints: 'grpo' .* base, sft", evaluate, tmp_path, *checkpoints,
            only_checkpoints="grpo")  # fmt: skip


def test_another_folder_may_have_the_samples(again, tmp_path, finished):
    """Another gold is another score of the same completions, and another prompt has its own."""
    before, test_file = read_rows(finished / "eval" / "base"), tmp_path / "test.jsonl"
    shared = {"test_file": test_file, "samples_dir": tmp_path / "eval/base/samples"}
    write_problems(test_file, dict.fromkeys(PROBLEMS, "77"))
    folder, asked = again(**shared, output_dir=tmp_path / "eval-2")
    assert asked == []
    found = read_rows(folder)
    assert [row["completion"] for row in found] == [row["completion"] for row in before]
    assert all(row["gold"] == ["77"] for row in found)
    write_problems(test_file, prompt_name="think")
    folder, asked = again(**shared, output_dir=tmp_path / "eval-3")
    assert len(asked) == 3 * NUM
    assert all("step by step" in row["prompt"] for row in read_rows(folder))


def test_other_sampling_code_generates_all(again, monkeypatch):
    monkeypatch.setattr("pipeline.manifest.hash_code", lambda *_: "edited")
    assert len(again()[1]) == 3 * NUM


def test_one_question_twice(again, tmp_path):
    """Equal prompts of two problems are samples of their own, numbered on."""
    row = json.loads((tmp_path / "test.jsonl").read_text().splitlines()[0])
    with (tmp_path / "test.jsonl").open("a") as file:
        file.write(json.dumps(row | {"id": "again", "answers": ["8"]}) + "\n")
    base, asked = again(test_file=tmp_path / "test.jsonl", output_dir=tmp_path / "eval-2")
    rows = [row for row in read_rows(base) if row["mode"] == "sampled"]
    texts = [row["completion"] for row in rows if row["id"] in ("p0", "again")]
    assert len(set(texts)) == 4
    assert len(read_keys(base)) == len(set(read_keys(base))) == len(asked) == 4 * 3


def test_only_what_changed_is_evaluated(tmp_path, tiny_model_dir, capsys):
    """A checkpoint that is added, one that is overwritten, and one that is as it was before."""
    other = tmp_path / "other"
    other.mkdir()
    build_tiny_model(other, seed=1)
    write_problems(tmp_path / "test.jsonl")
    shutil.copytree(tiny_model_dir, tmp_path / "sft")
    base, sft = f"base={tiny_model_dir}", f"sft={tmp_path}/sft"
    first = evaluate(tmp_path, sft).resolve()
    before = read_rows(first)
    evaluate(tmp_path, base, sft)
    assert read_evaluated(tmp_path / "eval") == ["base"]
    assert "sft: already evaluated with the same inputs, kept" in capsys.readouterr().out

    shutil.copytree(other, tmp_path / "sft", dirs_exist_ok=True)
    with counting() as asked:
        second = evaluate(tmp_path, sft, base).resolve()
    assert len(asked) == 3 * NUM and read_evaluated(tmp_path / "eval") == ["sft"]
    assert read_rows(first) == before != read_rows(second) and first != second
    assert read_rows(second) == read_rows(evaluate(tmp_path, f"other={other}"))

    shutil.copytree(tiny_model_dir, tmp_path / "sft", dirs_exist_ok=True)
    assert evaluate(tmp_path, sft).resolve() == first and read_evaluated(tmp_path / "eval") == []


EIGHT = {f"Mia has {i} pens." * (i % 3 + 1): str(i) for i in range(1, 9)}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
LONGER = {"num_samples": 3, "max_new_tokens": 16}
OFFICIAL = {"tasks": ["held_out", "gsm8k"], "official": ["gsm8k", "gpqa_diamond"], "limit": 4}


@pytest.fixture
def folder(tmp_path):
    write_problems(tmp_path / "test.jsonl", EIGHT)
    return tmp_path


def start(folder, *checkpoints, **settings):
    """Two processes of an evaluation, behind their launcher."""
    command = [*TORCHRUN, "-m", "eval.run", *flags(folder, *checkpoints, **settings)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, env=env, cwd=ROOT, **pipes)


def test_two_processes_write_what_one_would(folder, tiny_model_dir):
    write_official(folder / "data")
    settings = LONGER | OFFICIAL | {"data_root": folder / "data"}
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
