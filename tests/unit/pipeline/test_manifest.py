"""Manifests: last, whole, true to what was read, with the commit of the code."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from pipeline import manifest
from pipeline.settings import RecipeArguments
from stages import doctor
from tests.conftest import ROOT
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)


def write(folder, **extra):
    counts = {"rows": 3}
    return manifest.write(folder, "toy", {"seed": 0}, {"a": "b"}, counts, 0.0, **extra)


def test_start_makes_the_folder_and_removes_the_old_manifest(tmp_path):
    folder = tmp_path / "a" / "b"
    manifest.start(folder)
    (folder / "model.bin").write_text("x")
    write(folder)
    assert manifest.read(folder)["stage"] == "toy"
    started = manifest.start(folder)
    assert started > 0 and manifest.read(folder) is None is manifest.read(tmp_path / "missing")
    assert [p.name for p in folder.iterdir()] == ["model.bin"]


def test_what_another_process_took_or_put_there_is_no_fault(tmp_path):
    work, place = tmp_path / "work", tmp_path / "place"
    assert not manifest.is_older(work, 0)
    for folder, text in ((work, "ours"), (place, "of the other")):
        folder.mkdir()
        (folder / "file").write_text(text)
    manifest.put_in_place(work, place)
    assert (place / "file").read_text() == "of the other"
    with pytest.raises(FileNotFoundError):
        manifest.put_in_place(work, tmp_path / "no folder" / "place")


def test_sha256_of_a_file_and_of_a_folder_s_model(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest.sha256(tmp_path / "a") == known
    digests = []
    for name, text, is_part in (
        ("config.json", "{}", True),
        ("model.safetensors", "{}", True),
        ("training_args.bin", "{}", False),
        ("manifest.json", "{}", False),
        ("modeling_own.py", "x = 1", False),  # somebody's script
        ("config.json", '{"auto_map": {"AutoConfig": "modeling_own.A"}}', True),
        ("modeling_own.py", "x = 2", True),
        ("additional_chat_templates/tool.jinja", "x", True),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        digests.append(manifest.sha256(tmp_path))
        assert (digests.count(digests[-1]) == 1) is is_part, name


def test_what_a_stage_wrote_is_what_the_next_one_reads(tmp_path):
    for name in ("data.jsonl", "config.json", "other"):
        (tmp_path / name).write_text("{}")
    write(tmp_path, files=["data.jsonl", "config.json"])
    inputs = [tmp_path, tmp_path / "data.jsonl", tmp_path / "other", "org/model"]
    digests = {str(path): manifest.sha256(path) for path in inputs[:3]}
    assert manifest.hash_inputs(inputs) == digests | {"org/model": "hub"}
    (tmp_path / "other").write_text("changed")  # not the stage's
    manifest.hash_inputs(inputs)
    (tmp_path / "data.jsonl").write_text("{} ")
    for path in inputs[:2]:
        refused(r"data.jsonl: has changed .*`make toy`", manifest.hash_inputs, [path])
    (tmp_path / "data.jsonl").unlink()
    refused(r"data.jsonl: is missing", manifest.hash_inputs, [tmp_path])


@table
def test_a_result_is_current_by_contents(tmp_path, monkeypatch, change, is_current):
    source, folder = tmp_path / "in.jsonl", tmp_path / "out"
    config = {"seed": 0, "file": str(source), "output_dir": str(folder), "update_tokens": 1}
    manifest.start(folder)
    for path in (source, folder / "a"):
        path.write_text("1")
    inputs = manifest.hash_inputs([source])
    manifest.write(folder, "toy", config, inputs, {}, 0.0, ["a"])
    if change in ("input", "result"):
        (source if change == "input" else folder / "a").write_text("2")
    if change == "input renamed":  # or the run was moved
        config["file"] = str(source.rename(tmp_path / "other.jsonl"))
        moved = {"config": config, "inputs": manifest.hash_inputs([config["file"]])}
        assert not manifest.difference(manifest.read(folder), moved)
        return
    if change == "input gone":
        source.unlink()
    if change == "FORCE":
        monkeypatch.setenv("FORCE", "1")
    key = {"key": "seed", "key of the place": "output_dir", "memory key": "update_tokens"}
    if change in key:
        config[key[change]] = 2
    assert manifest.is_current(folder, config) == is_current


@table
def test_a_difference_is_named(old, new, said):
    inputs = {"x": "1", "y": "1"}
    changed = {"x": "2", "y": "1"} if "file" in old else inputs
    found = manifest.difference(
        {"config": old, "inputs": inputs}, {"config": new, "inputs": changed}
    )
    assert found == said


def test_the_hash_of_a_large_file_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(manifest, "REMEMBERED", 1)
    file, reads = tmp_path / "weights", []
    read = manifest.read_sha256
    monkeypatch.setattr(manifest, "read_sha256", lambda path: reads.append(path) or read(path))

    def hash_again():
        manifest._sha256.cache_clear()  # as another process
        return manifest.sha256(file)

    file.write_text("1")
    assert hash_again() == hash_again() and len(reads) == 2  # it may be written once more
    os.utime(file, (1e9, 1e9))
    assert hash_again() == hash_again() and len(reads) == 3
    file.write_text("2")
    os.utime(file, (1e9, 1e9 + 1))
    assert hash_again() == read(file) and len(reads) == 4


def test_a_damaged_manifest_is_refused_and_anothers_ignored(tmp_path):
    (tmp_path / "manifest.json").write_text('{"stage": ')
    refused("damaged", manifest.read, tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    assert manifest.read(tmp_path) is None


@pytest.mark.parametrize("keep", [False, True])
def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path, keep):
    path, partial = tmp_path / "a.txt", tmp_path / "a.txt.partial"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), manifest.open_whole(path, keep_partial=keep) as file:
        file.write("ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and partial.exists() == keep
    with manifest.open_whole(path) as file:
        file.write("new é")
        assert path.read_text() == "old"
    assert path.read_text(encoding="utf-8") == "new é" and not partial.exists()


def test_half_surrogates_become_replacement_characters():
    texts = ("a é 😀", "a\ud800b", "\udc00\ud800", "\ud83d\ude00")
    found = [manifest.encodable(text) for text in texts]
    assert found == ["a é 😀", "a\ufffdb", "\ufffd\ufffd", "😀"]


def test_a_key_that_an_earlier_version_lacked_counts_as_its_default(tmp_path):
    (tmp_path / "out.txt").write_text("x")
    manifest.write(tmp_path, "data", {"seed": 0}, {}, {}, 0.0, ["out.txt"])
    defaults = {"seed": 1, "distill": [], "limit": 4, "shape": (1, 2)}
    for more, is_current in (
        ({}, True),
        ({"distill": [], "limit": 4, "shape": (1, 2)}, True),
        ({"distill": ["gsm8k"]}, False),
        ({"limit": 5}, False),
        ({"other": 5}, True),  # whose default is not known
    ):
        config = {"seed": 0} | more
        assert manifest.is_current(tmp_path, config, defaults=defaults) is is_current, more


def test_a_manifest_says_where_a_converted_model_comes_from(tmp_path):
    origin = {"file": "a.gguf", "source": "here", "sha256": "0", "quantization": "Q4_1 (4-bit)"}
    model = tmp_path / "model"
    model.mkdir()
    inputs = {str(model): "abc", "owner/name": "hub"}
    manifest.write(tmp_path, "sft", {}, inputs, {}, 0.0)
    assert "origins" not in manifest.read(tmp_path)
    (model / manifest.ORIGIN).write_text(json.dumps(origin))
    manifest.write(tmp_path, "sft", {}, inputs, {}, 0.0)
    assert manifest.read(tmp_path)["origins"] == {str(model): origin}
    (model / manifest.ORIGIN).write_text("{}")
    refused("is damaged", manifest.write, tmp_path, "sft", {}, inputs, {}, 0.0)


# The commit of the code


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository that seems to be the project's."""
    place = tmp_path / "checkout"
    (place / "pipeline").mkdir(parents=True)
    (place / "pipeline" / "manifest.py").write_text("")
    git(tmp_path, "init", "-q", str(place))
    git(place, "add", ".")
    git(place, "commit", "-qm", "one")
    monkeypatch.setattr(manifest, "__file__", str(place / "pipeline" / "manifest.py"))
    manifest._tell_unknown.cache_clear()
    return place


def program(tmp_path, text):
    (tmp_path / "bin").mkdir(exist_ok=True)
    file = tmp_path / "bin" / "git"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(tmp_path / "bin")


def test_git_runs_no_program_that_environment_or_repository_name(tmp_path, checkout, monkeypatch):
    evil = Path(program(tmp_path, f"touch {tmp_path}/ran"), "git")
    for number, key in enumerate(("core.fsmonitor", "core.pager", "diff.external")):
        git(checkout, "config", key, str(evil))
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", str(evil))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "3")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))
    (checkout / "pipeline" / "manifest.py").write_text("changed")
    assert manifest.git_commit().endswith("-dirty") and not (tmp_path / "ran").exists()


def test_the_commit_is_of_this_code_whatever_git_dir_says(tmp_path, checkout, monkeypatch):
    commit = manifest.git_commit()
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert len(commit) == 40 and manifest.git_commit() == commit


@pytest.mark.parametrize(
    "fault",
    ["no git", "no repository", "sleep 5", "printf '\\377' >&2; exit 3", "exit 0"],
)
def test_without_a_commit_the_manifest_is_written_with_one_notice(
    tmp_path, checkout, monkeypatch, capfd, fault
):
    monkeypatch.setattr(manifest, "GIT_SECONDS", 0.2 if fault == "sleep 5" else 20)
    if fault == "no git":
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    elif fault == "no repository":
        (checkout / ".git").rename(tmp_path / "away")
    else:  # what a program of this name does
        monkeypatch.setenv("PATH", f"{program(tmp_path, fault)}:{os.environ['PATH']}")
    for _ in range(2):
        manifest.write(tmp_path, "data", {}, {}, {}, 0.0)
    assert json.loads((tmp_path / "manifest.json").read_text())["git_commit"] is None
    assert capfd.readouterr().err.count("notice: ") == 1


def test_the_doctor_answers_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "devices", lambda: "none")
    monkeypatch.chdir(ROOT)
    assert doctor.examine(RecipeArguments(recipe="configs/tiny-cpu"))["commit"] == "unknown"
