"""Keys of other versions and trainers: each gets the key that the stage really has."""

import pytest

from data_prep.builder.recipe import DataArguments, Source, check_source
from data_prep.sampling.problems import ProblemSetArguments
from eval.harness.settings import EvalArguments
from pipeline.errors import UserError
from pipeline.key_types import known_keys
from pipeline.renamed import REMOVED, RENAMED, hint
from pipeline.settings import read_settings
from stages.arguments import GRPO, SFT, GrpoArguments, SftArguments
from stages.distill import DistillArguments

STAGES = {
    "sft": (SftArguments, SFT),
    "grpo": (GrpoArguments, GRPO),
    "difficulty": (ProblemSetArguments, ()),
    "distill": (DistillArguments, ()),
    "eval": (EvalArguments, ()),
    "data": (DataArguments, ()),
    "source": (Source, ()),
}
KEYS = {name: known_keys(*stage) for name, stage in STAGES.items()}


def test_every_hint_names_a_key_that_a_stage_has():
    for name, targets in RENAMED.items():
        for target in targets:
            assert any(target in keys for keys in KEYS.values()), (name, target)
        for keys in KEYS.values():
            first = next((target for target in targets if target in keys), None)
            if first and name not in keys:
                assert hint(name, keys, "").startswith(f"use {first!r}")
    assert not {*REMOVED} & {*RENAMED}


def test_what_is_removed_is_a_key_of_no_stage_and_has_a_remedy():
    assert not [name for name in REMOVED for keys in KEYS.values() if name in keys]
    assert all(hint(name, KEYS["grpo"], "") == REMOVED[name] for name in REMOVED)


@pytest.mark.parametrize(
    ("stage", "name", "key"),
    [
        ("grpo", "torch_dtype", "dtype"), ("grpo", "n", "num_generations"),
        ("grpo", "actor_rollout_ref.rollout.n", "num_generations"),
        ("grpo", "learning-rate", "learning_rate"), ("sft", "max_prompt_length", "max_length"),
        ("sft", "warmup_ratio", "warmup_steps"), ("difficulty", "n", "num_samples"),
        ("eval", "use_vllm", "backend"),
    ],
)  # fmt: skip
def test_hints(stage, name, key):
    assert hint(name, KEYS[stage], "").partition(";")[0] == f"use {key!r}"


def test_the_hint_is_given_where_the_key_is_read():
    with pytest.raises(UserError, match=r"unknown key 'torch_dtype'; use 'dtype'$"):
        read_settings(GrpoArguments, GRPO, ["--torch_dtype", "x"])
    entry = {"name": "gsm8k", "dataset_name": "openai/gsm8k"}
    with pytest.raises(UserError, match=r"grpo: gsm8k: unknown key 'dataset_name'; use 'hub'$"):
        check_source(entry, "grpo")
