"""A real run that starts again beside a damaged checkpoint and files of its user."""

import pytest

from pipeline import manifest

pytestmark = pytest.mark.integration


def test_a_run_that_starts_again_keeps_weights_and_notes(run_stage, monkeypatch, tmp_path, capfd):
    settings = {"max_steps": 4, "save_steps": 2, "save_total_limit": 1, "disable_tqdm": True}
    folder = run_stage("sft", **settings)
    only = folder / "checkpoint-4"
    assert [path.name for path in folder.glob("checkpoint-*")] == [only.name]
    (folder / manifest.NAME).unlink()  # as a kill leaves it
    content = bytearray((only / "optimizer.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (only / "optimizer.pt").write_bytes(content)
    (only / "notes.txt").write_text("mine")
    (folder / "good-2").mkdir()
    (folder / "good-2" / "model.safetensors").write_text("weights")
    (folder / "checkpoint-2-keep").mkdir()
    (folder / "checkpoint-2-keep" / "model.safetensors").write_text("weights")
    monkeypatch.setenv("PATH", str(tmp_path))  # nor is there git
    assert run_stage("sft", **settings) == folder
    aside = folder.resolve() / "damaged-1-checkpoint-4"
    assert f"rm -r {aside}" in capfd.readouterr().out
    assert manifest.read(folder)["counts"]["steps"] == 4
    kept = {path.parent.name for path in folder.resolve().rglob("model.safetensors")}
    assert kept == {aside.parent.name, "checkpoint-4", aside.name, "good-2", "checkpoint-2-keep"}
    assert (aside / "notes.txt").read_text() == "mine"
