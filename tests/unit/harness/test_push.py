"""What is uploaded, to a stand-in for the hub on loopback; what goes wrong is one line."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from eval import push
from pipeline import manifest
from pipeline.errors import run_cli
from pipeline.models import card
from tests.unit.pipeline.test_card import make_run

REPO, TOKEN = "me/my-model", "hf_pl4nted"
TEMPLATE = "additional_chat_templates/tool.jinja"
MODEL = ["config.json", "model.safetensors", "tokenizer.json", "modeling_own.py", TEMPLATE]
NOT_SENT = [
    "training_args.bin", "optimizer.pt", "trainer_state.json", "run.json", "events.jsonl",
    "checkpoint-1/model.safetensors", "checkpoint-1/optimizer.pt", "runs/events.out", "a.lock",
]  # fmt: skip


class Hub(BaseHTTPRequestHandler):
    """The few answers of the hub that an upload asks for; `server.seen` has what it was sent."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        seen, status, answer = self.server.seen, 200, {}
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status = 401
        elif self.path == "/api/repos/create":
            status = 409 if seen.get("repo") else 200
            seen["repo"] = json.loads(body)
            answer = {"url": f"{constants.ENDPOINT}/{REPO}", "id": REPO}
        elif self.path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            answer = {"files": [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in files
            ]}  # fmt: skip
        elif self.path.endswith("/commit/main"):
            lines = [json.loads(line) for line in body.splitlines()]
            seen["files"] = {
                one["value"]["path"]: base64.b64decode(one["value"]["content"])
                for one in lines if one["key"] == "file"
            }  # fmt: skip
            answer = {"commitUrl": f"{constants.ENDPOINT}/{REPO}/commit/1", "commitOid": "1" * 40}
            answer["success"] = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.seen = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def upload(tmp_path, monkeypatch):
    """A GRPO run with all that a trainer leaves; a function that pushes it, with more flags."""
    folder = tmp_path / "grpo"
    make_run(tmp_path)
    for name in [*MODEL, *NOT_SENT, *(f"best/{name}" for name in MODEL)]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content = f"{name} {TOKEN[::-1]}"
        if name.endswith(".json"):
            content = json.dumps({"content": content, "auto_map": {}})
        (folder / name).write_text("" if name == "events.jsonl" else content)
    made = manifest.read(folder)
    made["files"] = {
        name: manifest.sha256(folder / name) for name in [*MODEL, *(f"best/{m}" for m in MODEL)]
    }
    manifest.write_json(folder / "manifest.json", made)
    card.write(folder)
    card.write(folder / "best")

    def call(*flags, model="grpo", repo=REPO):
        argv = ["--repo", repo, "--checkpoints", f"m={tmp_path / model}", "--test_file", "t.jsonl"]
        argv += ["--output_dir", f"{tmp_path}/eval", "--report_dir", f"{tmp_path}/report", *flags]
        monkeypatch.setattr("sys.argv", ["push", *argv])
        run_cli(push.main, is_first=False)
        return tmp_path / model

    return call


@pytest.mark.parametrize("model", ["grpo", "grpo/best"])
def test_model_card_and_manifest_are_sent_and_nothing_else(hub, upload, model):
    folder = upload(model=model)
    sent = hub.seen["files"]
    assert sorted(sent) == sorted([*MODEL, "README.md", "manifest.json"])
    assert all(sent[name] == (folder / name).read_bytes() for name in MODEL)
    assert hub.seen["repo"]["visibility"] == "private"
    assert TOKEN.encode() not in b"".join(sent.values())


def test_an_existing_repository_is_added_to_only_when_asked(hub, upload, capsys):
    upload()
    hub.seen.pop("files")
    with pytest.raises(SystemExit):
        upload()
    assert "overwrite" in capsys.readouterr().err and "files" not in hub.seen
    upload("--overwrite", "true")
    assert hub.seen["files"]


@pytest.mark.parametrize("fault", ["token", "network", "offline", "name", "changed", "untrained"])
def test_faults_are_one_line(hub, upload, monkeypatch, capsys, tmp_path, fault):
    flags = {}
    if fault == "token":
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    elif fault == "network":
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    elif fault == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    elif fault == "name":
        flags = {"repo": "my-model"}
    elif fault == "changed":
        (tmp_path / "grpo/model.safetensors").write_text("other")
    else:
        flags = {"model": "data"}
    with pytest.raises(SystemExit) as end:
        upload(**flags)
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert "files" not in hub.seen and "hf_" not in error
