"""No checkpoint is served what another one wrote, however alike their names and prompts are."""

import shutil

import pytest

from data_prep.config import UserError
from tests.integration.harness.eval_runs import (
    PROBLEMS,
    Counting,
    evaluate,
    read_evaluated,
    read_keys,
    read_rows,
    write_problems,
)

pytestmark = pytest.mark.integration
NUM = 3 * len(PROBLEMS)  # one greedy and two sampled completions of each


@pytest.fixture
def folder(tmp_path):
    write_problems(tmp_path / "test.jsonl")
    return tmp_path


@pytest.fixture(scope="module")
def other(tmp_path_factory, tiny_model_dir):
    """A checkpoint like the tiny model with other weights."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("other") / "model"
    shutil.copytree(tiny_model_dir, folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.model.norm.weight.data.mul_(-1)
    model.save_pretrained(folder)
    return folder


def texts(folder):
    return [(row["completion"], row["num_tokens"]) for row in read_rows(folder)]


def test_a_checkpoint_that_was_overwritten_in_place(folder, tiny_model_dir, other):
    shutil.copytree(tiny_model_dir, folder / "sft")
    first = evaluate(folder, f"sft={folder}/sft")
    before, keys = texts(first), set(read_keys(first))
    shutil.copytree(other, folder / "sft", dirs_exist_ok=True)
    with Counting() as count:
        evaluate(folder, f"sft={folder}/sft")
    assert read_evaluated(folder / "eval") == ["sft"]
    assert len(count.asked) == NUM
    assert texts(first) != before
    assert texts(first) == texts(evaluate(folder, f"other={other}"))
    assert len(set(read_keys(first)) - keys) == NUM

    # Back again: the old samples are still good, for the old checkpoint.
    shutil.copytree(tiny_model_dir, folder / "sft", dirs_exist_ok=True)
    with Counting() as count:
        evaluate(folder, f"sft={folder}/sft")
    assert count.asked == [] and texts(first) == before


def test_an_evaluation_that_fails_costs_no_earlier_result(folder, tiny_model_dir):
    evaluate(folder, f"base={tiny_model_dir}")
    with pytest.raises(UserError, match="exceed the model's context of 512"):
        evaluate(folder, f"base={tiny_model_dir}", max_new_tokens=600)
    for name in ("manifest.json", "base/scores.json", "base/completions.parquet"):
        assert (folder / "eval" / name).exists()
