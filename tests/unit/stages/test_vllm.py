"""vLLM for a run: the engine on this host, the server, and the log-probs that it gives back."""

import contextlib
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.settings import read_settings
from stages import host as vllm
from stages.arguments import DEFAULTS, GRPO, GrpoArguments
from stages.grpo import guards_of
from stages.precision import sampler_dtype
from stages.preflight import batches
from stages.preflight.inputs import WARNING, PreflightArguments, Recipe, check_server
from stages.rules import check_grpo_keys
from stages.trainer.guards import GuardSettings
from stages.trainer.logprobs import PROCESSED, RAW, logprobs_mode, shaping_keys, why_not_compared
from tests.refused import refused
from tests.servers import serve_json
from tests.tables import tables_beside
from tests.unit.stages.helpers import grpo, named

table = tables_beside(__file__)

ON = {"use_vllm": True}
SERVER = ON | {"vllm_mode": "server"}
CONFIG = {
    "weight_transfer_config": {"backend": "nccl"},
    "model_config": {"logprobs_mode": "processed_logprobs"},
}


@pytest.fixture
def host(monkeypatch):
    """Function: whether there is a GPU and vLLM -> this host is one like that."""

    def call(gpu=False, has_vllm=True):
        monkeypatch.setattr(vllm, "has_gpu", lambda: gpu)
        monkeypatch.setattr(vllm, "is_installed", lambda name: has_vllm)

    return call


def check(values):
    vllm.check_vllm(grpo(values))


@table
def test_what_a_host_has_not(host, there, values, key):
    host(**there)
    assert named(check, values) == key


def test_gpus_that_are_hidden(monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / "nvidia0"]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert vllm.has_gpu()
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not vllm.has_gpu()


@pytest.fixture
def serve(host, monkeypatch):
    """Function: answers by path -> recipe of a run with such a server."""
    host(gpu=True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RANK", raising=False)
    with contextlib.ExitStack() as servers:

        def call(**answers):
            port = servers.enter_context(serve_json(answers))
            return SERVER | {"vllm_server_host": "127.0.0.1", "vllm_server_port": port}

        yield call


def test_a_server_is_waited_for(serve, capfd):
    values = serve(health=([503, 200], {}), server_info=(200, {"vllm_config": CONFIG}))
    check(values | {"vllm_server_timeout": 60})
    url = f"http://127.0.0.1:{values['vllm_server_port']}"
    assert capfd.readouterr().err == f"waiting up to 60 s for the vLLM server at {url}\n"
    check(SERVER | {"vllm_server_base_url": f"{url}/", "vllm_server_port": 1})
    assert capfd.readouterr().err == ""


def test_a_server_that_does_not_come(serve, monkeypatch):
    values = serve(health=(503, {})) | {"vllm_server_timeout": "0.2"}
    refused(r"^vllm_server_host: .* within 0\.2 s .*503.*vllm serve", check, values)
    assert named(check, SERVER | {"vllm_server_base_url": "127.0.0.1"}) == "vllm_server_base_url"
    monkeypatch.setenv("RANK", "1")  # one process asks
    check(values)


def test_a_server_that_cannot_serve_a_trainer(serve):
    for shown, words in (
        ({}, "does not show its settings"),
        ({"vllm_config": CONFIG | {"weight_transfer_config": None}}, "takes no weights"),
    ):
        values = serve(health=(200, {}), server_info=(200, shown))
        refused(f"^vllm_server_host: .* {words}.*--logprobs-mode", check, values)


FP16 = {"fp16": True, "bf16": False}


@table
def test_vllm_samples_in_what_the_trainer_computes_in(values, found):
    settings = grpo(values)
    assert sampler_dtype(settings, settings.dtype) == tuple(found)


@table
def test_a_server_of_another_dtype_is_named(serve, capfd, values, said, wanted):
    """In a line of the run and of preflight, with the flag that the server lacks."""
    config = CONFIG | {"model_config": CONFIG["model_config"] | {"dtype": said}}
    values |= serve(health=(200, {}), server_info=(200, {"vllm_config": config}))
    check(values)
    err = capfd.readouterr().err
    found = preflight(values)
    if wanted is None:
        assert err == "" and all(one.level == "ok" for one in found)
        return
    key = "fp16: true" if "fp16" in values else "bf16: true"
    assert err.startswith("notice: vllm_server_host: ") and key in err
    (one,) = found
    assert (one.level, one.topic) == ("warning", "grpo.yaml") and key in one.text
    assert f"--dtype {wanted}" in err and f"--dtype {wanted}" in one.remedy


@pytest.mark.parametrize(
    ("values", "level"), [(FP16, "warning"), ({"bf16": True}, "not checked"), ({"bf16": False}, "")]
)
def test_preflight_names_the_dtype_of_a_server_that_is_not_there(serve, values, level):
    values = serve(server_info=(404, {})) | values
    assert [one.level for one in preflight(values)] == ([level] if level else [])
    assert preflight(values | {"vllm_mode": "colocate"}) == []


def preflight(values):
    recipe = Recipe(PreflightArguments("configs/x"), "runs/x", {}, "none", {"grpo": grpo(values)})
    return list(check_server(recipe))


def sampling(*flags):
    """The settings of a GRPO recipe with these flags, after its checks."""
    line = ["--train_file", "t", "--output_dir", "o", "--num_generations", "4"]
    line += ["--use_vllm", "true", "--vllm_mode", "colocate", *flags]
    settings = read_settings(GrpoArguments, GRPO, line, DEFAULTS)
    check_grpo_keys(settings)
    return settings


def alignment(settings):
    return guards_of(SimpleNamespace(guard_settings=GuardSettings), settings).alignment


@table
def test_trls_log_probs_where_the_distribution_is_the_models(flags):
    settings = sampling(*flags.split())
    assert shaping_keys(settings) == [] and logprobs_mode(settings) == PROCESSED
    assert why_not_compared(settings) == ""


@table
def test_log_probs_where_keys_change_what_is_sampled(flags, keys):
    """At temperature 1 those from before the keys are compared; at another the guard is off."""
    flags = shlex.split(flags)
    settings = sampling(*flags)
    assert shaping_keys(settings) == keys and logprobs_mode(settings) == RAW
    assert why_not_compared(settings) == "" and alignment(settings) == "warn"
    truncated = ["--vllm_importance_sampling_mode", "token_truncate"]
    settings = sampling(*flags, *truncated, "--temperature", "0.7")
    assert logprobs_mode(settings) == PROCESSED and alignment(settings) == "off"
    assert all(key in why_not_compared(settings) for key in keys)
    said = [found.text for found in batches.check_grpo(settings, 32, 1) if found.level == WARNING]
    assert any("guard_alignment is off" in text and keys[0] in text for text in said)


def test_a_correction_by_the_whole_completion_is_refused_there():
    """At a kept mass of 0.9 a token, the loss of 100 tokens is multiplied by 0.00003."""
    told = r"^vllm_importance_sampling_mode: sequence_mask .*top_p"
    refused(told, sampling, "--top_p", "0.8", "--temperature", "0.7")


def test_without_vllm_nothing_is_compared():
    flags = ["--use_vllm", "false", "--vllm_mode", "null"]
    settings = sampling(*flags, "--top_p", "0.8", "--temperature", "0.7")
    assert why_not_compared(settings) == ""
