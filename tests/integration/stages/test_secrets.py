"""A secret that the environment or a YAML has is used, and is in nothing that a run leaves."""

import base64
import json
import sys
from unittest import mock

import pytest

from data_prep.config import run_cli
from data_prep.prompts import build_prompt
from stages import distill
from tests.integration.sampling.test_openai_engine import answer, serve

pytestmark = pytest.mark.integration
SECRET = "pl4nted"


def files_with_it(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert paths
    return [path for path in paths if SECRET.encode() in path.read_bytes()]


def test_the_password_of_a_server(tmp_path, capsys, monkeypatch):
    pytest.importorskip("openai", reason="the extra `distill` has the client")
    problem = {"id": "a", "prompt": build_prompt("2+2?"), "question": "2+2?", "answers": ["4"]}
    path, recipe, out = (tmp_path / name for name in ("problems.jsonl", "distill.yaml", "out"))
    path.write_text(json.dumps(problem | {"answer_form": "box", "source": "x"}) + "\n")
    values = {"backend": "openai", "base_url": f"http://user:{SECRET}@server.test/v1", "seed": 0}
    values |= {"model_name_or_path": "m", "problems_file": str(path), "output_dir": str(out)}
    recipe.write_text(json.dumps(values))
    basic = base64.b64encode(f"user:{SECRET}".encode()).decode()
    monkeypatch.setattr(sys, "argv", ["distill", "--config", str(recipe)])
    with serve(lambda *_: answer("\\boxed{4}")) as server:
        distill.main()
        assert {headers["authorization"] for headers in server.headers} == {f"Basic {basic}"}
    recipe.write_text(json.dumps(values | {"seed": 1}))
    with serve(lambda *_: (404, {})), pytest.raises(SystemExit):
        run_cli(distill.main)
    assert SECRET not in "".join(capsys.readouterr())
    assert files_with_it(out) == []


def test_the_token_of_an_upload(run_stage, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    hub = mock.MagicMock()
    monkeypatch.setattr("transformers.trainer.hf_api", hub)
    folder = run_stage("sft", push_to_hub=True, report_to="tensorboard", save_steps=1)
    uploads = hub().upload_folder.call_args_list
    assert {call.kwargs["folder_path"] for call in uploads} == {str(folder)}
    assert all(call.kwargs["token"] is None for call in uploads)  # the client has it by itself
    assert (folder / "training_args.bin").is_file() and [*folder.rglob("events.out*")]
    assert files_with_it(tmp_path) == []
