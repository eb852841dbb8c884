"""Goals, flags and variables of a command line."""

import re

import pytest

from pipeline.errors import UserError
from pipeline.variables import read


@pytest.mark.parametrize(
    "words",
    [
        ["grpo", "--recipe", "grpo7b", "--num_processes", "8"],
        ["grpo", "--recipe=grpo7b", "--num-processes=8"],
        ["grpo", "RECIPE=grpo7b", "NUM_PROCESSES=8"],
        ["RECIPE=grpo7b", "NUM_PROCESSES=8", "grpo"],
    ],
)
def test_a_variable_may_be_written_as_for_make(words):
    found = read(words, {})
    assert found.goals == ("grpo",)
    assert found.values == {"recipe": "grpo7b", "num_processes": "8"}


def test_keys_of_a_stage_go_through_as_they_are():
    found = read(["grpo", "RECIPE=grpo7b", "--", "--system", "X=1", "LORA=1"], {})
    assert found.values == {"recipe": "grpo7b", "args": "--system X=1 LORA=1"}


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("learning_rate=1e-4", "learning_rate=1e-4"),
        ("LR=1e-4", "learning_rate=1e-4"),
        ("BETA=0.1", "beta=0.1"),
        ("EPOCHS=3", "num_train_epochs=3"),
        ("NUM_GENERATIONS=8", "num_generations=8"),
        ("kl_coef=0.1", "beta=0.1"),
        ("Steps=10", "max_steps=10"),
        ("GAMMA=1", "key=value"),
    ],
)
def test_a_key_in_place_of_a_variable_is_refused_with_what_to_write(word, key):
    of_make = {"MAKE_GOALS": "grpo", "MAKEFLAGS": f" -- {word}"}
    for words, env in ((["grpo"], of_make), (["grpo", word], {})):
        with pytest.raises(UserError, match=f'KEYS="{re.escape(key)}"'):
            read(words, env)


@pytest.mark.parametrize(
    "name",
    ["CUDA_LAUNCH_BLOCKING", "HF_HOME", "NCCL_X", "WANDB_PROJECT", "VLLM_X", "OMP_X",
     "PYTORCH_ALLOC_CONF", "TORCH_X", "SLURM_JOB_ID", "TOKENIZERS_PARALLELISM", "ALLOW_CODE"],
)  # fmt: skip
def test_what_libraries_read_is_handed_on(name):
    assert read(["grpo"], {"MAKE_GOALS": "grpo", "MAKEFLAGS": f" -- {name}=1", name: "1"}).goals


def test_the_shell_may_have_any_variable():
    assert read(["grpo"], {"MAKE_GOALS": "grpo", "LR": "1", "learning_rate": "1"}).goals


def test_an_unknown_one_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="RECIPE= was"):
        read(["grpo", "RECIPPE=grpo7b"], {})
