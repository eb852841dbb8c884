"""A secret that the environment or a YAML has is used, and is in nothing that a run leaves."""

import base64
import json
import sys

import pytest

from pipeline.errors import UserError, run_cli
from pipeline.prompts import build_prompt
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


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_uploads_of_the_trainer_are_refused(run_stage, stage):
    """They would hold arguments, logs and every save; `eval.push` sends the final model."""
    with pytest.raises(UserError, match=r"push_to_hub: true .*make push REPO=owner/name"):
        run_stage(stage, push_to_hub=True)
