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


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, tiny_model_dir):
    """A LoRA adapter on the tiny model that changes what it writes."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapter")
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "o_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data.fill_(3.0)
    adapted.save_pretrained(folder / "adapter")
    adapted.merge_and_unload().save_pretrained(folder / "merged")
    return folder / "adapter"


def texts(folder):
    return [(row["completion"], row["num_tokens"]) for row in read_rows(folder)]


def test_two_checkpoints_in_one_folder_share_nothing(folder, tiny_model_dir, other):
    first = evaluate(folder, f"model={tiny_model_dir}")
    base, keys = texts(first), set(read_keys(first))
    with Counting() as count:
        assert evaluate(folder, f"model={other}") == first
    assert len(count.asked) == NUM
    assert len(set(read_keys(first)) - keys) == NUM
    assert texts(first) == texts(evaluate(folder, f"alone={other}"))
    assert texts(first) != base

    # Back again: the old samples are still good, for the old checkpoint.
    with Counting() as count:
        evaluate(folder, f"model={tiny_model_dir}")
    assert count.asked == []
    assert texts(first) == base


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


def test_every_file_that_decides_counts(folder, tiny_model_dir):
    shutil.copytree(tiny_model_dir, folder / "sft")
    evaluate(folder, f"sft={folder}/sft", max_new_tokens=1)
    for file, text in (
        ("config.json", "\n"), ("generation_config.json", "\n"), ("tokenizer.json", "\n"),
        ("tokenizer_config.json", "\n"), ("chat_template.jinja", " "), ("added_tokens.json", "{}"),
        ("special_tokens_map.json", '{"eos_token": "<|im_start|>"}'),
    ):  # fmt: skip
        with (folder / "sft" / file).open("a") as changed:
            changed.write(text)
        with Counting() as count:
            evaluate(folder, f"sft={folder}/sft", max_new_tokens=1)
        assert len(count.asked) == NUM, file
    (folder / "sft" / "README.md").write_text("Of no account.")
    with Counting() as count:
        evaluate(folder, f"sft={folder}/sft", max_new_tokens=1)
    assert read_evaluated(folder / "eval") == []


def test_equal_weights_write_the_same_wherever_they_lie(folder, tiny_model_dir):
    shutil.copytree(tiny_model_dir, folder / "copy")
    with Counting() as count:
        evaluate(folder, f"base={tiny_model_dir}", f"copy={folder}/copy")
    assert len(count.asked) == 2 * NUM, "each folder has samples of its own"
    assert read_rows(folder / "eval" / "base") == read_rows(folder / "eval" / "copy")
    found = [read_keys(folder / "eval" / name) for name in ("base", "copy")]
    assert found[0] == found[1]


def test_an_adapter_is_another_checkpoint_than_its_base(folder, tiny_model_dir, adapter):
    base = evaluate(folder, f"base={tiny_model_dir}", f"sft={adapter}")
    sft = folder / "eval" / "sft"
    assert not set(read_keys(base)) & set(read_keys(sft))
    assert texts(base) != texts(sft)

    merged = adapter.parent / "merged"
    shutil.copytree(tiny_model_dir, folder / "merged")
    shutil.copytree(merged, folder / "merged", dirs_exist_ok=True)
    assert texts(sft) == texts(evaluate(folder, f"merged={folder}/merged"))


def test_an_adapter_on_another_base_is_another_checkpoint(folder, tiny_model_dir, other, adapter):
    shutil.copytree(adapter, folder / "sft")
    sft = evaluate(folder, f"sft={folder}/sft")
    before = texts(sft)
    config = folder / "sft" / "adapter_config.json"
    config.write_text(config.read_text().replace(str(tiny_model_dir), str(folder / "base")))
    shutil.copytree(tiny_model_dir, folder / "base")
    evaluate(folder, f"sft={folder}/sft")
    assert texts(sft) == before
    shutil.copytree(other, folder / "base", dirs_exist_ok=True)
    with Counting() as count:
        evaluate(folder, f"sft={folder}/sft")
    assert len(count.asked) == NUM
    assert texts(sft) != before


def test_a_missing_checkpoint_leaves_nothing_behind(folder):
    with pytest.raises(UserError, match=r"grpo: .*/grpo holds no model; run `make grpo`"):
        evaluate(folder, f"grpo={folder}/grpo")
    assert not (folder / "eval").exists()


def test_an_evaluation_that_fails_costs_no_earlier_result(folder, tiny_model_dir):
    evaluate(folder, f"base={tiny_model_dir}")
    with pytest.raises(UserError, match="exceed the model's context of 512"):
        evaluate(folder, f"base={tiny_model_dir}", max_new_tokens=600)
    for name in ("manifest.json", "base/scores.json", "base/completions.parquet"):
        assert (folder / "eval" / name).exists()
