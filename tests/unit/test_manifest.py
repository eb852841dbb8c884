"""Manifests: last, whole, and true to what was read."""

import hashlib

import pytest

from data_prep import manifest


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


def test_sha256_of_files(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest.sha256(tmp_path / "a") == known


def test_sha256_of_a_folder_is_its_manifests_else_its_configurations(tmp_path):
    with pytest.raises(OSError):
        manifest.sha256(tmp_path)
    for name in ("adapter_config.json", "config.json", "manifest.json"):  # later ones win
        (tmp_path / name).write_text(name)
        assert manifest.sha256(tmp_path) == hashlib.sha256(name.encode()).hexdigest()


def test_hash_inputs_records_hub_ids(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    found = manifest.hash_inputs([tmp_path / "a", "org/model"])
    assert found == {str(tmp_path / "a"): manifest.sha256(tmp_path / "a"), "org/model": "hub"}


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


@pytest.mark.parametrize(
    ("text", "encodable"),
    [("a é 😀", "a é 😀"), ("a\ud800b", "a\ufffdb"), ("\udc00\ud800", "\ufffd\ufffd"),
     ("\ud83d\ude00", "😀")],
)  # fmt: skip
def test_half_surrogates_become_replacement_characters(text, encodable):
    assert manifest.encodable(text) == encodable
