"""Names within keys that are mappings."""

import pytest

from pipeline.settings import known_keys
from stages.arguments import SFT, SftArguments
from stages.checks import check_grpo_keys, check_sft_keys
from stages.checks.mappings import (
    CHECKPOINTING,
    MODEL_REFUSED,
    MODEL_TAKEN,
    REFUSED,
    TAKEN,
    fields_of,
)
from tests.unit.stages.helpers import grpo, named, sft

GENERATION = ("transformers", "generation/configuration_utils.py")
CPU = {"use_cpu": True, "bf16": False}
PAGED = {"use_transformers_continuous_batching": True}


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"generation_kwargs": {"banana": 3}}, "generation_kwargs"),
        ({"generation_kwargs": '{"banana": 3}'}, "generation_kwargs"),
        ({"generation_kwargs": "x"}, "generation_kwargs"),
        *(({"generation_kwargs": {name: 1}}, "generation_kwargs") for name in (*TAKEN, *REFUSED)),
        *(
            ({"model_init_kwargs": {name: "x"}}, "model_init_kwargs")
            for name in (*MODEL_TAKEN, *MODEL_REFUSED)
        ),
        ({"model_init_kwargs": {"attention_dropout": 0.1}}, None),
        ({"cache_implementation": "offloaded"} | CPU, "cache_implementation"),
        ({"generation_kwargs": {"stop_strings": ["x"]}}, "generation_kwargs"),
        ({"generation_kwargs": {"token_healing": True}}, "generation_kwargs"),
        ({"generation_kwargs": {"no_repeat_ngram_size": 3}}, None),
        ({"generation_kwargs": {}}, None),
        ({"accelerator_config": {"banana": 3}}, "accelerator_config"),
        ({"accelerator_config": {"even_batches": False}}, None),
        ({"accelerator_config": "x"}, "accelerator_config"),
        ({"gradient_checkpointing_kwargs": {"banana": 3}}, "gradient_checkpointing_kwargs"),
        ({"gradient_checkpointing_kwargs": {"use_reentrant": False}}, None),
        (PAGED | {"transformers_continuous_batching_config": {"banana": 3}},
         "transformers_continuous_batching_config"),
        (PAGED | {"transformers_continuous_batching_config": {"num_blocks": 64}}, None),
        ({"model_init_kwargs": "x"}, "model_init_kwargs"),
        ({"model_init_kwargs": "1e30"}, "model_init_kwargs"),
        ({"reward_weights": [0.0, 0.0, 0.0]}, "reward_weights"),
        ({"reward_weights": [0.0, 0.0, -1.0]}, None),
        ({"remove_unused_columns": True}, "remove_unused_columns"),
        ({"use_vllm": True, "vllm_importance_sampling_mode": "x"}, "vllm_importance_sampling_mode"),
        ({"include_num_input_tokens_seen": True}, None),
        ({"pad_to_multiple_of": 8}, None),
        ({"train_sampling_strategy": "x"}, "train_sampling_strategy"),
        ({"use_peft": True, "lora_task_type": "SEQ_CLS"}, "lora_task_type"),
        ({"resume_from_checkpoint": "."}, "resume_from_checkpoint"),
    ],
)  # fmt: skip
def test_values_that_fail_or_do_nothing_later(values, refused):
    assert named(lambda: check_grpo_keys(grpo(values))) == refused
    # In SFT the Trainer leaves the right columns.
    if values.keys() <= known_keys(SftArguments, SFT).keys() - {"remove_unused_columns"}:
        assert named(lambda: check_sft_keys(sft(values))) == refused


def test_names_are_those_of_the_classes():
    """That they were found at all, and that the ones set by a recipe exist."""
    names = fields_of(*GENERATION, "GenerationConfig")
    assert len(names) > 60
    assert {*TAKEN} - names == {"n", "max_tokens", "structured_outputs"}  # vLLM's
    assert "num_blocks" in fields_of(*GENERATION, "ContinuousBatchingConfig")
    assert "even_batches" in fields_of("transformers", "trainer_pt_utils.py", "AcceleratorConfig")
    assert "use_reentrant" in CHECKPOINTING
