"""What the harness tasks compute for one problem, and the checks before anything heavy starts."""

import os
import pickle

import pytest

from data_prep.checkpoints import is_hub_id
from data_prep.config import UserError
from data_prep.prompts import build_prompt
from eval.arguments import EvalArguments, check_inputs, split_checkpoints
from eval.scoring import (
    Completion,
    count_completions,
    process_greedy,
    process_sampled,
    score_completions,
)


def row(rendered="user: 2+2\nassistant: ", answer="4", system_prompt="none", final_number=False):
    prompt = build_prompt("What is 2+2?", system_prompt)
    doc = {"prompt": prompt, "rendered": rendered, "answer": answer}
    return doc | {"final_number": final_number}


RIGHT = "<think>\n2+2=4\n</think>\n\n\\boxed{4}"
WRONG = "<think>\n2+2=5\n</think>\n\n\\boxed{5}"
PLAIN = "<think>\n2+2=4\n</think>\n\nThe answer is 4."


@pytest.mark.parametrize(
    ("doc", "text", "verdict", "well_formed"),
    [
        (row(), RIGHT, "right", True),
        (row(), WRONG, "wrong", True),
        (row(), "\\boxed{4}", "no_think", False),
        (row(), "<think>\n\\boxed{4}", "unclosed_think", False),
        (row(), "<think>\n2+2=4\n</think>\n\nfour, I think", "no_answer", True),
        (row(), RIGHT + " or \\boxed{5}", "several_answers", True),
        # An R1-style template opens the thought inside the prompt.
        (row(rendered="…<think>\n"), RIGHT.removeprefix("<think>\n"), "right", True),
        (row(system_prompt="answer_tags"), "<think>x</think> <answer>4</answer>", "right", True),
        (row(system_prompt="think"), RIGHT, "right", True),
        (row(answer=["3", "8/2"]), RIGHT, "right", True),
        (row(answer=["3", "5"]), RIGHT, "wrong", True),
        (row(), PLAIN, "no_answer", True),
        (row(final_number=True), PLAIN, "right", True),
    ],
)
def test_one_completion(doc, text, verdict, well_formed):
    (record,) = score_completions(doc, [Completion(text, num_tokens=9, cut_off=False)])
    assert (record["verdict"], record["well_formed"]) == (verdict, well_formed)


def test_sampled_metrics_by_hand():
    completions = [
        Completion(RIGHT, num_tokens=20, cut_off=False),
        Completion(WRONG, num_tokens=24, cut_off=False),
        Completion("<think>\n2+2", num_tokens=32, cut_off=True),
        Completion(RIGHT, num_tokens=20, cut_off=False),
    ]
    metrics = process_sampled(row(), [completions])
    records = metrics.pop("completions")
    assert metrics == {
        "avg@k": 0.5,
        "format_rate": 0.75,
        "cut_off_rate": 0.25,
        "completion_length": 24.0,
    }
    assert [record["prediction"] for record in records] == ["4", "5", None, "4"]
    assert count_completions([records, records[:1]]) == 5


def test_greedy_metrics_by_hand():
    metrics = process_greedy(row(), [[Completion(WRONG, num_tokens=24, cut_off=False)]])
    assert metrics["accuracy"] == 0.0
    assert metrics["format_rate"] == 1.0
    assert "avg@k" not in metrics


def test_completion_is_text_and_survives_pickling():
    completion = pickle.loads(pickle.dumps(Completion("abc", num_tokens=7, cut_off=True)))
    assert (completion, completion.num_tokens, completion.cut_off) == ("abc", 7, True)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["base=a/b", "sft=runs/x/sft"], {"base": "a/b", "sft": "runs/x/sft"}),
        (["a=b=c"], {"a": "b=c"}),
        (["runs/x/sft"], "not name=path"),
        (["a/b=c"], "not name=path"),
        (["sft="], "not name=path"),
        (["sft=a", "sft=b"], "'sft' occurs twice"),
        ([], "is empty"),
    ],
)
def test_split_checkpoints(entries, expected):
    if isinstance(expected, dict):
        assert list(split_checkpoints(entries).items()) == list(expected.items())
    else:
        with pytest.raises(UserError, match=expected):
            split_checkpoints(entries)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("Qwen/Qwen2.5-7B", True), ("runs/sft", False), ("runs/x/sft", False), ("/a/b", False)],
)
def test_is_hub_id(tmp_path, monkeypatch, path, expected):
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_hub_id(path) is expected


def test_missing_inputs_name_path_and_remedy(tmp_path, monkeypatch):
    # So that monkeypatch restores the variable that a passing check sets.
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    values = {"test_file": f"{tmp_path}/test.jsonl", "checkpoints": [f"sft={tmp_path}/sft"]}
    with pytest.raises(UserError, match=r"test\.jsonl does not exist; `make data`"):
        check_inputs(values)
    (tmp_path / "test.jsonl").touch()
    (tmp_path / "sft").mkdir()
    with pytest.raises(UserError, match=r"sft: .*/sft holds no model; run `make sft`"):
        check_inputs(values)
    (tmp_path / "sft" / "config.json").touch()
    check_inputs(values)


def test_a_multi_process_launch_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="one process"):
        check_inputs({})


@pytest.mark.parametrize("hub_id, offline", [("", "1"), ("Qwen/Qwen2.5-7B-Instruct", "0")])
def test_offline_only_without_hub_checkpoints(tmp_path, monkeypatch, hub_id, offline):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    (tmp_path / "test.jsonl").touch()
    (tmp_path / "config.json").touch()
    entries = [f"sft={tmp_path}"] + ([f"base={hub_id}"] if hub_id else [])
    check_inputs({"test_file": f"{tmp_path}/test.jsonl", "checkpoints": entries})
    assert os.environ["HF_HUB_OFFLINE"] == offline


@pytest.mark.parametrize(
    ("key", "value"), [("num_samples", 0), ("top_p", 1.5), ("limit", 0), ("dtype", "fp32")]
)
def test_settings_are_checked(key, value):
    with pytest.raises(UserError, match=key):
        EvalArguments(["a=b"], "test.jsonl", "out", "report", **{key: value})
