"""vLLM's log-probs where keys change what it samples: compared, with the guard off, or refused."""

from types import SimpleNamespace

import pytest

from pipeline.errors import UserError
from pipeline.settings import read_settings
from stages.arguments import DEFAULTS, GRPO, GrpoArguments
from stages.grpo import guards_of
from stages.preflight import batches
from stages.preflight.inputs import WARNING
from stages.rules import check_grpo_keys
from stages.trainer.guards import GuardSettings
from stages.trainer.logprobs import PROCESSED, RAW, logprobs_mode, shaping_keys, why_not_compared

ON = ["--use_vllm", "true", "--vllm_mode", "colocate"]
SHAPED = [
    (["--top_p", "0.8"], ["top_p"]),
    (["--top_k", "1024", "--min_p", "0.1"], ["top_k", "min_p"]),
    (["--repetition_penalty", "1.1"], ["repetition_penalty"]),
    (["--generation_kwargs", '{"presence_penalty": 0.5}'], ["generation_kwargs: presence_penalty"]),
    (["--generation_kwargs", '{"logit_bias": {"7": -9}}'], ["generation_kwargs: logit_bias"]),
]
PLAIN = [
    [],
    ["--temperature", "0.7"],
    ["--top_p", "1.0", "--top_k", "0", "--min_p", "0.0", "--repetition_penalty", "1.0"],
    ["--generation_kwargs", '{"seed": 3}'],
]
TRUNCATED = ["--vllm_importance_sampling_mode", "token_truncate"]


def settings_of(*flags):
    """The settings of a GRPO recipe with these flags, after its checks."""
    line = ["--train_file", "t", "--output_dir", "o", "--num_generations", "4", *ON, *flags]
    settings = read_settings(GrpoArguments, GRPO, line, DEFAULTS)
    check_grpo_keys(settings)
    return settings


@pytest.mark.parametrize("flags", PLAIN)
def test_trls_log_probs_where_the_distribution_is_the_models(flags):
    settings = settings_of(*flags)
    assert shaping_keys(settings) == [] and logprobs_mode(settings) == PROCESSED
    assert why_not_compared(settings) == ""


@pytest.mark.parametrize(("flags", "keys"), SHAPED)
def test_at_temperature_1_those_from_before_the_keys(flags, keys):
    settings = settings_of(*flags)
    assert shaping_keys(settings) == keys and logprobs_mode(settings) == RAW
    assert why_not_compared(settings) == ""
    assert guards_of(SimpleNamespace(guard_settings=GuardSettings), settings).alignment == "warn"


@pytest.mark.parametrize(("flags", "keys"), SHAPED)
def test_at_another_temperature_the_guard_is_off(flags, keys):
    settings = settings_of(*flags, *TRUNCATED, "--temperature", "0.7")
    assert logprobs_mode(settings) == PROCESSED
    assert all(key in why_not_compared(settings) for key in keys)
    assert guards_of(SimpleNamespace(guard_settings=GuardSettings), settings).alignment == "off"
    said = [found.text for found in batches.check_grpo(settings, 32, 1) if found.level == WARNING]
    assert any("guard_alignment is off" in text and keys[0] in text for text in said)


def test_a_correction_by_the_whole_completion_is_refused_there():
    """At a kept mass of 0.9 a token, the loss of 100 tokens is multiplied by 0.00003."""
    with pytest.raises(UserError, match=r"^vllm_importance_sampling_mode: sequence_mask .*top_p"):
        settings_of("--top_p", "0.8", "--temperature", "0.7")


def test_without_vllm_nothing_is_compared():
    flags = ["--use_vllm", "false", "--vllm_mode", "null"]
    settings = settings_of(*flags, "--top_p", "0.8", "--temperature", "0.7")
    assert why_not_compared(settings) == ""
