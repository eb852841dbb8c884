"""What is uploaded, to a stand-in for the hub's client; what goes wrong is one line."""

import json
from pathlib import Path

import httpx
import huggingface_hub
import pytest
import yaml
from huggingface_hub import constants

from eval import push
from pipeline import manifest
from pipeline.errors import run_cli
from pipeline.models import card
from tests.unit.pipeline.test_card import make_run

CASES = yaml.safe_load(Path(__file__).with_name("inputs.yaml").read_text(encoding="utf-8"))
SECRET = "hf_pl4nted"
MODEL = [
    "config.json", "model.safetensors", "tokenizer.json", "modeling_own.py",
    "additional_chat_templates/tool.jinja",
]  # fmt: skip
NOT_SENT = [
    "training_args.bin", "optimizer.pt", "trainer_state.json", "run.json", "events.jsonl",
    "checkpoint-1/model.safetensors", "checkpoint-1/optimizer.pt", "runs/events.out", "a.lock",
]  # fmt: skip


def refuse(status):
    """What the client raises where the hub answers with a status."""
    request = httpx.Request("POST", "https://hub.test")
    raise httpx.HTTPStatusError(f"{status}", request=request, response=httpx.Response(status))


@pytest.fixture
def hub(monkeypatch):
    """A class as `HfApi`: what it was sent, as the hub would have it."""

    class Hub:
        repo, files = None, None

        def create_repo(self, repo, private, exist_ok):
            if Hub.repo and not exist_ok:
                refuse(409)
            Hub.repo = (repo, private)

        def create_commit(self, repo, parts, commit_message):
            assert repo == Hub.repo[0]
            Hub.files = {one.path_in_repo: Path(one.path_or_fileobj).read_bytes() for one in parts}

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    return Hub


@pytest.fixture
def upload(tmp_path, monkeypatch):
    """A GRPO run with all that a trainer leaves; a function that pushes it, with more flags."""
    folder = tmp_path / "grpo"
    make_run(tmp_path)
    sent = [*MODEL, *(f"best/{name}" for name in MODEL)]
    for name in [*sent, *NOT_SENT]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content = f"{name} {SECRET[::-1]}"
        if name.endswith(".json"):
            content = json.dumps({"content": content, "auto_map": {}})
        (folder / name).write_text("" if name == "events.jsonl" else content)
    made = manifest.read(folder) | {"files": {one: manifest.sha256(folder / one) for one in sent}}
    manifest.write_json(folder / "manifest.json", made)
    card.write(folder)
    card.write(folder / "best")

    def call(*flags, model="grpo", repo="me/my-model"):
        argv = ["--repo", repo, "--checkpoints", f"m={tmp_path / model}", "--test_file", "t.jsonl"]
        argv += ["--output_dir", f"{tmp_path}/eval", "--report_dir", f"{tmp_path}/report", *flags]
        monkeypatch.setattr("sys.argv", ["push", *argv])
        run_cli(push.main, is_first=False)
        return tmp_path / model

    return call


@pytest.mark.parametrize("model", ["grpo", "grpo/best"])
def test_model_card_and_manifest_are_sent_and_nothing_else(hub, upload, model):
    folder = upload(model=model)
    assert sorted(hub.files) == sorted([*MODEL, "README.md", "manifest.json"])
    assert all(hub.files[name] == (folder / name).read_bytes() for name in MODEL)
    assert hub.repo == ("me/my-model", True)


def test_an_existing_repository_is_added_to_only_when_asked(hub, upload, capsys):
    upload()
    hub.files = None
    with pytest.raises(SystemExit):
        upload()
    assert "overwrite" in capsys.readouterr().err and hub.files is None
    upload("--overwrite", "true")
    assert hub.files


@pytest.mark.parametrize(("fault", "words", "flags"), CASES["push"])
def test_faults_are_one_line(hub, upload, monkeypatch, capsys, tmp_path, fault, words, flags):
    if fault == "token":
        monkeypatch.setattr(hub, "create_repo", lambda *_, **__: refuse(401))
    elif fault in ("network", "offline"):  # of the real client
        monkeypatch.undo()
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", fault == "offline")
    elif fault == "changed":
        (tmp_path / "grpo/model.safetensors").write_text("other")
    with pytest.raises(SystemExit) as end:
        upload(**flags)
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert words in error and hub.files is None
