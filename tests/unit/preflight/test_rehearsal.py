"""What is looked for before the first stage of a command is paid for."""

import json
import shutil
import socket
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from pipeline import manifest
from pipeline.errors import UserError
from stages.preflight import rehearsal
from stages.preflight.inputs import PreflightArguments, check_teachers, read_recipe
from tests import demo


def test_a_missing_vllm_is_told_unless_nothing_is_left_for_it(monkeypatch, tmp_path):
    def look(*given):
        line = f"ahead --recipe {demo.ROOT}/configs/grpo7b --run {tmp_path} --goal difficulty"
        monkeypatch.setattr("sys.argv", [*line.split(), *given])
        rehearsal.main()

    monkeypatch.setattr(rehearsal, "is_installed", lambda package: False)
    with pytest.raises(UserError, match=r"difficulty\.yaml: vLLM is not installed"):
        look()
    look("--", "--backend", "hf")
    (tmp_path / "difficulty").mkdir()
    (tmp_path / "difficulty/manifest.json").touch()
    look()


def test_a_missing_package_of_a_later_stage_is_told_first(monkeypatch, tmp_path):
    line = f"ahead --recipe {demo.ROOT}/configs/tiny-cpu --run {tmp_path} --goal grpo --"
    monkeypatch.setattr("sys.argv", [*line.split(), "--use_liger_kernel", "true"])
    monkeypatch.setattr(manifest, "versions", lambda names: {"tensorboard"} & {*names})
    with pytest.raises(UserError, match="use_liger_kernel: True needs the package liger-kernel"):
        rehearsal.main()


@pytest.mark.parametrize(
    ("stage", "given", "line"),
    [
        ("difficulty", "--backend hf --max_new_tokens 32768", "the model's positions, 32,768"),
        ("difficulty", "--vllm_max_model_length 1000 --max_new_tokens 1000", "max_model_length"),
        ("eval", "--max_new_tokens 40000", "the model's positions, 32,768"),
        ("eval", "--max_new_tokens 2048", ""),
    ],
)
def test_samples_that_the_context_cannot_hold_are_told_first(
    monkeypatch, tmp_path, stage, given, line
):
    """Before SFT and GRPO are trained, whose models have as many positions as the first."""
    monkeypatch.setattr(rehearsal, "is_installed", lambda package: True)
    monkeypatch.setattr(rehearsal, "check_packages", lambda settings: None)
    start = f"ahead --recipe {demo.ROOT}/configs/grpo7b --run {tmp_path} --goal {stage} --"
    monkeypatch.setattr("sys.argv", [*start.split(), *given.split()])
    if line:
        with pytest.raises(UserError, match=rf"{stage}\.yaml: max_new_tokens.*{line}"):
            rehearsal.main()
    else:
        rehearsal.main()


@contextmanager
def serve_models(*names):
    """A server on this machine that lists these models; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"object": "list", "data": [{"id": name} for name in names]})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("teachers", [False, True])
def test_a_teacher_without_its_server_is_told_before_data_are_built(
    monkeypatch, tmp_path, teachers
):
    pytest.importorskip("openai", reason="the extra `distill` has the client")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(rehearsal, "is_installed", lambda package: True)
    monkeypatch.setattr(rehearsal, "check_packages", lambda settings: None)
    recipe = shutil.copytree(f"{demo.ROOT}/configs/perplexity", tmp_path / "recipe")
    file = recipe / "distill.yaml"
    given, run = yaml.safe_load(file.read_text(encoding="utf-8")), tmp_path / "run"

    def look(address):
        model = {"name": "R1", "model_name_or_path": "deepseek-ai/DeepSeek-R1", "base_url": address}
        changes = {"teachers": [model]} if teachers else {"base_url": address}
        file.write_text(yaml.safe_dump(given | changes), encoding="utf-8")
        line = f"ahead --recipe {recipe} --run {run} --goal grpo --"
        monkeypatch.setattr("sys.argv", line.split())
        rehearsal.main()

    with closing(socket.socket()) as taken:  # nobody listens there
        taken.bind(("127.0.0.1", 0))
        silent = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        name = "teachers: R1: " if teachers else ""
        with pytest.raises(UserError, match=rf"distill\.yaml: {name}base_url: {silent}"):
            look(silent)
        with serve_models("deepseek-ai/DeepSeek-R1", "Qwen/QwQ-32B-Preview") as address:
            look(address)
        (run / "distill").mkdir(parents=True)
        (run / "distill/manifest.json").touch()
        look(silent)  # its traces are there


def test_preflight_names_the_servers_that_a_recipe_needs(tmp_path):
    args = PreflightArguments(recipe=f"{demo.ROOT}/configs/perplexity", run=str(tmp_path))
    recipe, _ = read_recipe(args)
    (found,) = check_teachers(recipe)
    assert found.level == "not checked" and "http://localhost:8000/v1" in found.text
    assert "Qwen/QwQ-32B-Preview" in found.text and found.remedy
    given = [
        {"name": "QwQ"},
        {"name": "R1", "model_name_or_path": "R1", "base_url": "http://localhost:8001/v1"},
    ]
    recipe.settings["distill"]["teachers"] = given
    one, other = check_teachers(recipe)
    assert "--port" not in one.remedy and "--port 8001" in other.remedy
    (tmp_path / "distill").mkdir()
    (tmp_path / "distill/manifest.json").touch()
    assert [*check_teachers(recipe)] == []
