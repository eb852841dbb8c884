"""SFT interrupted at the terminal: no manifest, and the same command goes on where it stopped."""

import json
import shutil
import signal

import pytest

from pipeline import manifest
from pipeline.errors import UserError
from tests.integration.stages.stage_processes import finish, start, steps_on_disk, stop_when
from tests.results import differences, left_in

pytestmark = pytest.mark.integration
# `stages.sft` that waits after its checkpoint of step 8: no slow machine lets it end before it
# is interrupted.
WAITING = """
import signal
import stages.sft
from stages.run.saving import SavedRun

save = SavedRun._save_checkpoint

def save_and_wait(trainer, *args, **options):
    save(trainer, *args, **options)
    if trainer.state.global_step == 8:
        signal.pause()

SavedRun._save_checkpoint = save_and_wait
stages.sft.run_cli(stages.sft.in_launch(stages.sft.main))
"""


def read_losses(folder):
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {log["step"]: log["loss"] for log in history if "loss" in log}


def test_sft_interrupted_then_finished(write_recipe, run_stage, tmp_path):
    settings = {"max_steps": 40, "save_steps": 4, "save_total_limit": 2}
    config = ["--config", write_recipe("sft", **settings)]
    folder = tmp_path / "sft"
    process = start("-c", WAITING, *config)
    code, _, err = stop_when(process, lambda: steps_on_disk(folder), signal.SIGINT)
    assert code == 130 and "interrupted" in err and "Traceback" not in err
    assert manifest.read(folder) is None
    reached = steps_on_disk(folder)[-1]
    assert reached < 40

    out = finish(start("-m", "stages.sft", *config))
    assert f"resuming from {folder.resolve()}/checkpoint-{reached}\n" in out
    made = manifest.read(folder)
    assert made["counts"]["steps"] == 40 and made["resumed"]
    straight = run_stage("sft", **settings, output_dir=str(tmp_path / "straight"))
    assert not manifest.read(straight)["resumed"]
    losses, expected = read_losses(folder), read_losses(straight)
    assert sorted(losses) == list(range(1, 41))
    assert losses == pytest.approx(expected, rel=1e-3)
    assert expected[40] < expected[1]


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_max_hours_end_a_run_with_a_checkpoint(run_stage, tmp_path, monkeypatch, stage):
    settings = {"max_steps": 3, "save_steps": 100, "output_dir": str(tmp_path / "run")}
    monkeypatch.setenv("STOP_AT", "1")  # in 1970
    with pytest.raises(UserError, match=r"MAX_HOURS: over at step 1 of 3, which is saved in .*run"):
        run_stage(stage, **settings)
    assert steps_on_disk(tmp_path / "run") == [1] and manifest.read(tmp_path / "run") is None
    monkeypatch.delenv("STOP_AT")
    folder = run_stage(stage, **settings)
    made = manifest.read(folder)
    assert made["counts"]["steps"] == 3 and made["resumed"]
    shutil.rmtree(folder / "checkpoint-1")  # which the other run has no cause to save
    resumed = left_in(folder)
    shutil.rmtree(folder.resolve())
    folder.unlink()
    assert run_stage(stage, **settings) == folder and not manifest.read(folder)["resumed"]
    assert differences(left_in(folder), resumed) == []


def edit(path, change):
    """Change what a JSON file says."""
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def flip(path):
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


def leave_out_a_row(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


# Of a file, what is lost.
LOSSES = {
    "model.safetensors": flip,
    "checkpoint-2/optimizer.pt": flip,
    "rows.jsonl": leave_out_a_row,
    "samples-0.jsonl": leave_out_a_row,
    "config.json": lambda path: path.unlink(),
    "manifest.json": lambda path: edit(path, lambda made: made["counts"].update(steps=1)),
    "checkpoint-2/files.json": lambda path: edit(
        path, lambda made: made["files"].pop("optimizer.pt")
    ),
    "run.json": lambda path: edit(path, lambda made: made["config"].update(seed=9)),
    "trainer_state.json": lambda path: edit(path, lambda made: made["log_history"].pop(0)),
    "checkpoint-2/trainer_state.json": lambda path: edit(
        path, lambda made: made["log_history"][1].update(loss=1.5)
    ),
}


def test_a_loss_is_a_difference_and_how_a_run_went_is_none(run_stage, tmp_path):
    folder = run_stage("sft", max_steps=2, save_steps=2, output_dir=str(tmp_path / "run"))
    for name in ("rows.jsonl", "samples-0.jsonl"):
        (folder / name).write_text('["1"]\n["2"]\n')
    expected = left_in(folder)
    assert {*LOSSES} <= {*expected}
    for number, (name, lose) in enumerate(LOSSES.items()):
        other = shutil.copytree(folder, tmp_path / f"other-{number}")
        lose(other / name)
        assert differences(expected, left_in(other)) == [name]
        assert differences(left_in(other), expected) != [] or name == "samples-0.jsonl"

    for name in ("manifest.json", "run.json", "checkpoint-2/files.json", "trainer_state.json"):
        edit(folder / name, lambda made: made.update(resumed=True, attempts=[1, 2], host="b"))
    edit(folder / "trainer_state.json", lambda made: made["log_history"][0].update(new_pace=0.2))
    edit(folder / "manifest.json", lambda made: made["files"].update({"scores.json": "another"}))
    edit(folder / "manifest.json", lambda made: made["config"].update(output_dir="~/run"))
    assert differences(expected, left_in(folder)) == []
