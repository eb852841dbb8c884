"""The demo's base model: a tokenizer that survives loading, and a model that fits it."""

import sys

import pytest

from data_prep.sources.synthetic import MAX_VALUE
from pipeline import manifest
from pipeline.rows import read_rows
from stages import tiny_model

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def base(tmp_path_factory, data_dir):
    """The folder of `stages.tiny_model`, run in this process with a small shape."""
    folder = tmp_path_factory.mktemp("base")
    values = {"output_dir": folder, "train_file": data_dir / "sft_train.jsonl"}
    values |= {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 48}
    flags = [word for key, value in values.items() for word in (f"--{key}", str(value))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tiny_model", *flags])
        tiny_model.main()
    return folder


@pytest.fixture(scope="module")
def tokenizer(base):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base)


def test_numbers_are_single_tokens(tokenizer):
    for number in range(MAX_VALUE + 1):
        (alone,) = tokenizer(str(number))["input_ids"]
        (after_space,) = tokenizer(f" {number}")["input_ids"]
        assert alone != after_space
        first, *_, last = tokenizer(f"{number} + 1 = {number}")["input_ids"]
        assert (first, last) == (alone, after_space)


def test_the_model_fits_its_tokenizer_and_the_manifest(base, tokenizer, data_dir):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    counts = manifest.read(base)["counts"]
    embeddings = model.get_input_embeddings().weight
    assert embeddings.shape == (len(tokenizer), 32) and embeddings.dtype.itemsize == 4
    assert model.get_output_embeddings().weight is embeddings  # tied
    assert counts["vocab_size"] == len(tokenizer)
    assert counts["num_parameters"] == sum(p.numel() for p in model.parameters())
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    for _, row in read_rows(data_dir / "sft_train.jsonl"):
        ids = tokenizer(row["question"] + row["completion"])["input_ids"]
        assert len(ids) < model.config.max_position_embeddings


def test_a_changed_round_trip_is_caught(base, tokenizer):
    tiny_model.check_round_trip(base, ["How many pens?"], tokenizer)
    with pytest.raises(AssertionError, match="loses a part"):
        tiny_model.check_round_trip(base, ["cafe\u0301"], tokenizer)


def test_heads_that_do_not_share_the_width_are_refused():
    with pytest.raises(ValueError, match=r"^num_heads: 3 does not divide hidden_size 64"):
        tiny_model.ModelArguments("base", "rows.jsonl", num_heads=3)
