"""Nothing that may hold weights, and no file of the user, is removed without being asked."""

import functools
import json
import os
from pathlib import Path

import pytest

from pipeline import clean, errors
from stages.run import folders
from stages.trainer import evaluation, guard_actions
from tests.unit.stages.test_training import (
    CONFIG,
    INPUTS,
    add_checkpoint,
    finish,
    prepare,
    weights_of,
)


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "sft"


def damage(checkpoint):
    file = checkpoint / "optimizer.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def all_texts(folder):
    """The contents of every file below a folder."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def make_foreign(folder, step):
    other = folder.with_name("other")
    prepare(other, {"seed": 3})
    add_checkpoint(other, step).rename(folder / f"checkpoint-{step}")


def add_users_files(folder):
    """A user's files in a run's folder, and in the newest checkpoint there; their contents."""
    kept = add_checkpoint(folder, 2)
    for name, place in (("good-4", folder), ("checkpoint-2-keep", folder), ("elsewhere", folder)):
        kept.rename(place / name)
        (place / name / "model.safetensors").write_bytes(name.encode())
        kept = add_checkpoint(folder, 2)
    (folder / "elsewhere").rename(folder.parent.parent / "elsewhere")
    (folder / "checkpoint-1").symlink_to(folder.parent.parent / "elsewhere")
    newest = add_checkpoint(folder, 4)
    (newest / "notes.txt").write_text("in a checkpoint")
    (newest / "mine").mkdir()
    (newest / "mine" / "model.bin").write_text("in a folder in a checkpoint")
    (folder / "notes.txt").write_text("in the run")
    (folder / "mine").mkdir()
    (folder / "mine" / "deep.txt").write_text("in a folder")
    return [
        *(b"good-4", b"checkpoint-2-keep", b"elsewhere"),
        *(b"in a checkpoint", b"in a folder in a checkpoint", b"in the run", b"in a folder"),
    ]


@pytest.mark.parametrize("fault", ["damaged", "foreign"])
def test_the_only_checkpoint_is_kept_until_the_user_frees_it(folder, capsys, fault):
    prepare(folder)
    for number in (1, 2):
        if fault == "damaged":
            damage(add_checkpoint(folder, 4))
        else:
            make_foreign(folder, 4)
        notes = folder / "checkpoint-4" / "notes.txt"
        notes.write_text(f"{number}")
        start = prepare(folder)
        assert (start.work, start.checkpoint) == (str(folder), None)
        aside = folder / f"{fault}-{number}-checkpoint-4"
        assert f"rm -r {aside}" in capsys.readouterr().out
        if fault == "foreign":
            os.rename(folder.with_name("other"), folder.with_name(f"other {number}"))
    add_checkpoint(folder, 4)
    finish(start)
    for number in (1, 2):
        aside = folder / f"{fault}-{number}-checkpoint-4"
        assert (aside / "model.safetensors").is_file()
        assert (aside / "notes.txt").read_text() == f"{number}"
    with pytest.raises(errors.UserError, match=f"rm -r .*{fault}-1-checkpoint-4"):
        find_kept = functools.partial(folders.describe_kept, folder)
        errors.check_space(str(folder), 1e30, "one more checkpoint", find_kept)


@pytest.mark.parametrize("change", ["none", "damaged", "other run", "forced", "no run file"])
def test_a_users_files_survive_every_start(folder, change, monkeypatch):
    start = prepare(folder)
    theirs = add_users_files(folder)
    config = CONFIG
    if change == "damaged":
        for step in (2, 4):
            damage(folder / f"checkpoint-{step}")
    elif change == "other run":
        config = {"seed": 1}
        for step in (2, 4):
            (folder / f"checkpoint-{step}" / "trainer_state.json").unlink()
    elif change == "forced":
        finish(start)
        monkeypatch.setenv("FORCE", "1")
        theirs.append(b"weights")
    elif change == "no run file":
        (folder / folders.RUN_FILE).write_text("{")
    start = prepare(folder, config, {} if change == "forced" else INPUTS)
    work = Path(start.work)
    add_checkpoint(work, 8)
    folders.rotate(work, 1)
    finish(start, "new")
    # A further run takes its place.
    start = prepare(folder, {"seed": 5}, {})
    finish(start, "newer")
    assert sorted({*theirs} - {*all_texts(folder.parent.parent)}) == []


def test_only_finished_checkpoints_of_the_run_itself_are_rotated(folder):
    prepare(folder)
    theirs = add_users_files(folder)
    make_foreign(folder, 3)
    add_checkpoint(folder, 5, is_sealed=False)  # another program's
    for step in (6, 7, 8):
        add_checkpoint(folder, step)
    # A roll-back to step 7 has left this one behind.
    folders.unseal(folder / "checkpoint-8")
    folders.rotate(folder, 1)
    assert sorted({*theirs} - {*all_texts(folder.parent.parent)}) == []
    states = sorted(path.parent.name for path in folder.glob("checkpoint-*/trainer_state.json"))
    kept = ["checkpoint-1", "checkpoint-2-keep", "checkpoint-3", "checkpoint-5"]
    assert states == [*kept, "checkpoint-7", "checkpoint-8"]
    left = sorted(path.name for path in (folder / "checkpoint-4").iterdir())
    assert left == ["mine", "notes.txt"] and not (folder / "checkpoint-6").exists()


def test_a_list_of_files_that_leads_elsewhere_removes_nothing_there(folder, tmp_path):
    prepare(folder)
    (tmp_path / "thesis.tex").write_text("mine")
    for step in (4, 8):
        add_checkpoint(folder, step)
    (folder / "checkpoint-4" / "link").symlink_to(tmp_path)
    file = folder / "checkpoint-4" / "files.json"
    content = json.loads(file.read_text())
    for name in ("../../../thesis.tex", str(tmp_path / "thesis.tex"), "link/thesis.tex"):
        content["files"][name] = "0"
    file.write_text(json.dumps(content))
    folders.rotate(folder, 1)
    assert (tmp_path / "thesis.tex").is_file()
    assert not (folder / "checkpoint-4" / "model.safetensors").exists()


def test_resuming_does_not_make_a_users_file_the_runs(folder):
    start = prepare(folder)
    notes = add_checkpoint(folder, 4) / "notes.txt"
    notes.write_text("mine")
    assert prepare(folder).checkpoint == str(notes.parent)
    add_checkpoint(folder, 8)
    folders.rotate(folder, 1)
    assert notes.is_file() and not (notes.parent / "optimizer.pt").exists()
    assert start.work == str(folder)


def test_a_checkpoint_that_is_saved_again_has_new_hashes(folder):
    prepare(folder)
    checkpoint = add_checkpoint(folder, 4)
    (checkpoint / "optimizer.pt").write_bytes(b"saved again after a kill")
    folders.seal(checkpoint)
    assert not folders.damage(checkpoint)


def test_a_state_that_cannot_be_read_sets_its_checkpoint_aside(folder):
    prepare(folder)
    checkpoint = add_checkpoint(folder, 4, state=None)
    (checkpoint / "trainer_state.json").write_text('{"global')
    assert prepare(folder).checkpoint is None
    assert (folder / "damaged-1-checkpoint-4" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", ["checkpoint-1e5", "checkpoint-keep-2", "checkpoint-007"])
def test_a_name_that_is_not_the_trainers_is_no_checkpoint(folder, name):
    prepare(folder)
    add_checkpoint(folder, 4).rename(folder / name)
    assert prepare(folder).checkpoint is None and (folder / name).is_dir()


def test_a_superseded_run_keeps_weights_and_what_the_user_protected(folder):
    start = prepare(folder)
    kept = add_checkpoint(folder, 2)
    kept.rename(folder / "checkpoint-2-keep")
    checkpoint = add_checkpoint(folder, 4)
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_optim_states.pt"):
        (checkpoint / "global_step4").mkdir(exist_ok=True)
        (checkpoint / "global_step4" / name).write_text(name)
    folders.seal(checkpoint)
    finish(start)
    finish(prepare(folder, {"seed": 1}, {}), "new")
    old = folder.with_name("sft.1")
    assert (old / "checkpoint-2-keep" / "optimizer.pt").is_file()
    assert not (old / "checkpoint-4" / "optimizer.pt").exists()
    states = [path.name for path in (old / "checkpoint-4" / "global_step4").iterdir()]
    assert states == ["mp_rank_00_model_states.pt"]


def test_another_run_never_takes_the_name_of_a_users_file(folder):
    for number in (1, 2):
        start = prepare(folder, {"seed": number}, {})
        if number == 1:
            folder.with_name("sft.1").write_text("mine")
        finish(start)
    assert folder.with_name("sft.1").read_text() == "mine" and folder.with_name("sft.2").is_dir()


def test_a_start_that_has_only_logs_leaves_nothing_behind(folder):
    prepare(folder)
    logs = folder / "runs" / "Nov26_host" / "events.out.tfevents.1.host"
    logs.parent.mkdir(parents=True)
    logs.write_text("")
    start = prepare(folder, {"seed": 1})
    assert start.work == str(folder) and not logs.exists()
    assert [path.name for path in folder.parent.iterdir()] == ["sft"]


def test_the_best_model_of_an_earlier_start_is_neither_lost_nor_taken_for_this_ones(folder):
    prepare(folder)
    best = folder / "best"
    best.mkdir()
    (best / "best.json").write_text('{"metric": "avg@2", "step": 4, "value": 1, "stderr": null}')
    (folder / guard_actions.EVENTS).write_text('{"action": "rollback"}')
    prepare(folder)
    assert evaluation.read_best(folder) is None and not (folder / guard_actions.EVENTS).exists()
    assert (folder / "earlier-1-best" / "best.json").is_file()


@pytest.mark.parametrize("is_link", [False, True])
def test_what_the_user_put_beside_the_best_model_is_kept(tmp_path, is_link):
    replaced = tmp_path / "best.replaced"
    if is_link:
        (tmp_path / "elsewhere").mkdir()
        replaced.symlink_to("elsewhere")
    else:
        replaced.mkdir()
    for name in ("model.safetensors", "notes.txt", "best.json"):
        (replaced / name).write_text(name)
    (tmp_path / "best").mkdir()
    record = {"metric": "avg@2", "value": 1, "stderr": None, "step": 4}
    for name in ("model.safetensors", "best.json"):
        (tmp_path / "best" / name).write_text(json.dumps(record))
    assert evaluation.read_best(tmp_path) == record
    assert (tmp_path / "earlier-1-best" / "notes.txt").is_file()
    assert (tmp_path / "earlier-1-best" / "model.safetensors").exists() == is_link


def test_cleaning_names_what_no_stage_wrote_and_removes_no_file_beside_it(tmp_path, capsys):
    run = tmp_path / "run"
    finish(prepare(run / "sft"))
    earlier = run / "eval.1" / "base" / "completions.parquet"  # of an evaluation that was killed
    earlier.parent.mkdir(parents=True)
    earlier.write_text("")
    for path in (run / "uv.lock", run / "sft" / "notes.txt", run / "sft" / "good-4" / "w.bin"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    clean.show(str(run))
    shown = capsys.readouterr().out
    assert "notes.txt" in shown and "good-4" in shown
    clean.remove(str(run))
    assert not (run / "eval.1").exists()
    assert not (run / "sft").exists() and (run / "uv.lock").is_file()


@pytest.mark.parametrize("fault", ["killed early", "damaged", "other run"])
def test_a_stage_folder_that_is_a_link_starts_again_where_the_link_leads(folder, fault):
    disk = folder.parent.parent / "disk" / "sft"
    disk.mkdir(parents=True)
    folder.parent.mkdir()
    folder.symlink_to(disk)
    prepare(folder)
    if fault != "killed early":
        add_checkpoint(folder, 4)
    if fault == "damaged":
        damage(folder / "checkpoint-4")
    start = prepare(folder, {"seed": 1} if fault == "other run" else CONFIG)
    assert start.checkpoint is None and Path(start.work).resolve().parent == disk.parent
    finish(start)
    assert folder.is_symlink() and weights_of(folder) == "weights"
    numbered = [path.name for path in disk.parent.iterdir()]
    assert sorted(numbered) == (["sft", "sft.1"] if fault == "other run" else ["sft"])


def test_a_checkpoint_that_is_a_link_is_resumed_from(folder):
    prepare(folder)
    add_checkpoint(folder, 4).rename(folder.parent / "elsewhere")
    (folder / "checkpoint-4").symlink_to("../elsewhere")
    assert prepare(folder).checkpoint == str(folder / "checkpoint-4")


def test_torn_weights_are_removed_and_a_users_files_kept(folder):
    prepare(folder)
    checkpoint = add_checkpoint(folder, 4)
    for place in (folder, checkpoint):
        for name in (".tmpIRZv9H", ".tmp", ".tmp-notes"):
            (place / name).write_text("")
    start = prepare(folder)
    assert start.checkpoint == str(checkpoint)
    for place in (folder, checkpoint):
        assert {".tmp", ".tmp-notes"} == {p.name for p in place.iterdir() if ".tmp" in p.name}
