"""Which folder a run trains in, what it resumes from, and that nothing is lost."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from transformers import Trainer

from pipeline import clean, manifest
from pipeline import folders as places
from pipeline.models import card
from stages.run import folders, training
from stages.run.saving import SavedRun
from stages.trainer import evaluation
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)

CONFIG = {"seed": 0, "betas": (0.9, 0.95), "save_only_model": False, "report_to": "none"}
FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt")


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "run" / "sft"


def prepare(place, inputs=None, **keys):
    return training.prepare("sft", str(place), CONFIG | keys, inputs or {"train.jsonl": "abc"})


def save(folder, step, *names, is_sealed=True):
    """A checkpoint as the Trainer writes one."""
    checkpoint = Path(folder, f"checkpoint-{step}")
    checkpoint.mkdir(parents=True, exist_ok=True)
    for name in names or FILES:
        (checkpoint / name).write_text(f"{name} of step {step} of {Path(folder).name}")
    (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    if is_sealed:
        folders.seal(checkpoint)
    return checkpoint


def finish(run, weights="weights"):
    Path(run.work, "model.safetensors").write_text(weights)
    training.conclude(run, {})


def weights_of(folder):
    return Path(folder, "model.safetensors").read_text()


def overwrite(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def contents(folder):
    """Each file below a folder with its bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_start_takes_up_what_a_killed_run_has(place):
    """Its folder, and its last whole checkpoint; the machine below tries all else."""
    run = prepare(place)
    assert prepare(place).work == run.work  # killed before its first checkpoint
    save(run.work, 4)
    overwrite(save(run.work, 8) / "optimizer.pt")
    assert prepare(place).checkpoint == f"{run.work}/checkpoint-4"


@table
def test_what_trains_again(place, change, is_same):
    finish(prepare(place))
    assert (prepare(place, **change) is None) is is_same


def test_a_new_key_counts_if_the_user_sets_it(place, monkeypatch):
    finish(prepare(place))
    monkeypatch.setattr(manifest, "_request", manifest.as_request({"new": 3}, ()))
    assert prepare(place, new=3) is not None


def test_processes_may_share_rows_out_and_hosts_may_not_differ():
    def made(number, size, steps, **keys):
        keys |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        return {"config": keys, "inputs": {}, "num_processes": number}

    assert not folders.difference(made(1, 4, 4), made(2, 4, 2))
    assert folders.difference(made(1, 4, 4), made(2, 4, 3))
    assert folders.difference(made(1, 4, 4), made(1, 8, 2))  # other micro-batches round differently
    # `check_resume` refuses to resume from the other.
    one, two = (made(n, 4, 4, generation_batch_size=16 * n) for n in (1, 2))
    assert not folders.difference(one, two)
    one, two = (made(1, 4, 4, update_tokens=number) for number in (1, 2))
    assert not folders.difference(one, two)
    assert folders.difference(one, two, left_out=manifest.PLACES)  # as hosts are compared


def test_a_start_names_the_key_that_differs(place, capsys):
    save(prepare(place).work, 4)
    run = prepare(place, seed=1)
    assert "has checkpoint-4 of another configuration (seed: 0, not 1)" in capsys.readouterr().out
    finish(prepare(place, seed=1))
    assert f"{run.work}: was ended before its first checkpoint" in capsys.readouterr().out
    prepare(place, seed=2)
    assert "has a finished run of another configuration" in capsys.readouterr().out


def test_a_changed_best_model_is_refused_as_no_checkpoint_can_make_it_again(place, monkeypatch):
    run = prepare(place)
    save(run.work, 4)
    best = Path(run.work, "best")
    best.mkdir()
    (best / "config.json").write_text("{}")
    finish(run)
    (best / "config.json").write_text("{1}")
    refused(r"best/config\.json: has changed .*`FORCE=1 make sft`", prepare, place)
    monkeypatch.setenv("FORCE", "1")
    forced = prepare(place)
    assert forced.work == f"{run.work}-2" and forced.checkpoint is None
    assert (best / "config.json").read_text() == "{1}"


@pytest.mark.parametrize("missing", ["optimizer.pt", "scheduler.pt"])
def test_weights_alone_are_never_restarted_silently(place, monkeypatch, missing):
    run = prepare(place)
    kept = save(run.work, 4, *({*FILES} - {missing}))
    refused(missing, prepare, place)
    monkeypatch.setenv("FORCE", "1")
    forced = prepare(place)
    assert forced.work != run.work and forced.checkpoint is None and weights_of(kept)
    (kept / "global_step4").mkdir()  # DeepSpeed's
    assert not folders.missing_state(kept)


@pytest.mark.parametrize("name", ["best", "events.jsonl"])
def test_what_an_earlier_start_left_is_not_taken_for_this_ones(place, name):
    run = prepare(place)
    Path(run.work, name).mkdir()
    assert prepare(place).work != run.work and Path(run.work, name).is_dir()


@table
def test_a_damaged_checkpoint_is_passed_over_and_kept(place, capsys, name, change):
    run = prepare(place)
    for step in (4, 8):
        last = save(run.work, step)
    (last / "notes.txt").write_text("mine")
    (last / ".tmpIRZv9H").write_text("of safetensors, torn")
    file = last / name
    if change == "removed":
        file.unlink()
    elif change == "renamed":
        last.rename(last.with_name("checkpoint-80"))
    elif change == "another run's":
        seal = json.loads(file.read_text())
        seal["run"]["config"]["seed"] = 3
        file.write_text(json.dumps(seal))
    else:
        file.write_bytes(file.read_bytes()[:-3] if change == "cut" else b"{}")
    assert prepare(place).checkpoint == f"{run.work}/checkpoint-4"
    (notes,) = place.parent.rglob("notes.txt")
    assert notes.read_text() == "mine"
    was_whole = change != "removed" or name == "model.safetensors"  # it had hashes and a state
    assert ("set aside as damaged-1-" in capsys.readouterr().out) is was_whole
    assert (notes.parent == last and not (last / ".tmpIRZv9H").exists()) is not was_whole


def test_a_run_file_that_is_damaged_is_read_from_a_checkpoint(place):
    run = prepare(place)
    checkpoint = save(run.work, 4)
    for text in ('{"config": ', "[]"):
        Path(run.work, "run.json").write_text(text)
        assert prepare(place).checkpoint == str(checkpoint)


@pytest.mark.parametrize("name", ["checkpoint-1e5", "checkpoint-keep-2", "checkpoint-007"])
def test_a_name_that_is_not_the_trainers_is_no_checkpoint(place, name):
    run = prepare(place)
    save(run.work, 4).rename(Path(run.work, name))
    assert prepare(place).checkpoint is None and Path(run.work, name).is_dir()


@pytest.mark.parametrize(
    ("limit", "kept"), [(None, [4, 8, 9, 12]), (0, [4, 8, 9, 12]), (1, [12]), (2, [9, 12])]
)
def test_an_older_checkpoint_goes_when_the_newer_one_is_sealed(tmp_path, limit, kept):
    for step in (4, 8, 9, 12):
        save(tmp_path, step, is_sealed=step != 12)
        os.utime(tmp_path / f"checkpoint-{step}", (1e9 - step, 1e9 - step))  # the clock goes back
    last, written = tmp_path / "checkpoint-12", []

    class Saves(Trainer):
        """It writes a file late."""

        def __init__(self):
            pass

        def _save_checkpoint(self, model, trial):
            written.append((last / "files.json").exists())
            (last / "late.json").write_text("{}")

    class Ours(SavedRun, Saves):
        args = SimpleNamespace(output_dir=str(tmp_path), should_save=True, save_only_model=False)
        state, keep = SimpleNamespace(global_step=12), limit
        accelerator = SimpleNamespace(wait_for_everyone=lambda: None)

        def save_more(self, checkpoint):
            (checkpoint / "more.json").write_text("{}")

    for _ in range(2):
        Ours()._save_checkpoint(None, None)
    assert written == [False, False]
    seal = folders.read_seal(last)["files"]
    assert seal.keys() == {*FILES, "trainer_state.json", "late.json", "more.json"}
    assert sorted(int(p.name[11:]) for p in tmp_path.glob("checkpoint-*")) == kept
    assert not folders.damage(last)


def test_only_finished_checkpoints_of_the_run_itself_are_rotated(place, tmp_path):
    folder = Path(prepare(place).work)
    (tmp_path / "thesis.tex").write_text("mine")
    for step in (4, 5, 6, 7, 8, 9):
        save(folder, step, is_sealed=step != 5)  # another program's
    folders.unseal(folder / "checkpoint-9")  # a roll-back to step 8 has left it behind
    (folder / "checkpoint-6" / "notes.txt").write_text("mine")
    (folder / "checkpoint-4" / "link").symlink_to(tmp_path)
    seal = json.loads((folder / "checkpoint-4/files.json").read_text())
    for name in ("../../../thesis.tex", str(tmp_path / "thesis.tex"), "link/thesis.tex"):
        seal["files"][name] = "0"
    (folder / "checkpoint-4/files.json").write_text(json.dumps(seal))
    folders.rotate(folder, 1)
    left = {path.name: len([*path.iterdir()]) for path in folder.glob("checkpoint-*")}
    expected = {"checkpoint-4": 1, "checkpoint-5": 4, "checkpoint-6": 1}
    assert left == expected | {"checkpoint-8": 5, "checkpoint-9": 4}
    assert (tmp_path / "thesis.tex").is_file()


def test_a_users_checkpoint_is_judged_by_its_hashes_or_else_by_its_formats(place):
    checkpoint = save(place, 4, is_sealed=False)
    assert folders.damage(checkpoint) == f"{FILES[0]} is damaged"  # it is a text here
    kept = save(prepare(place.with_name("grpo")).work, 4)
    given = {"resume_from_checkpoint": str(kept)}
    refused("made with seed: 0, not 3", prepare, place.with_name("third"), seed=3, **given)
    overwrite(kept / "optimizer.pt")
    told = r"optimizer\.pt is damaged; take an earlier one"
    refused(told, prepare, place.with_name("fourth"), **given)


@table
def test_a_folder_of_an_earlier_version_is_used_as_it_is_or_refused(
    place, fault, words, monkeypatch
):
    run = prepare(place)
    save(run.work, 4)
    finish(run)
    place.unlink()
    Path(run.work).rename(place)
    if fault == "force":
        monkeypatch.setenv("FORCE", "1")
    elif fault == "changed":
        overwrite(place / "model.safetensors")
    elif fault in ("unfinished", "users"):
        (place / manifest.NAME).unlink()
    if fault == "users":
        (place / "run.json").rename(place / "thesis.tex")
    before = contents(place.parent)
    if fault:
        told = f"output_dir: .*stays as it is .*{words}"
        refused(told, prepare, place, seed=int(fault == "another key"))
    else:
        assert prepare(place) is None
    assert contents(place.parent) == before


@pytest.mark.parametrize("name", ["elsewhere", "sft"])
def test_a_users_own_link_is_followed(place, name):
    disk = place.parent.parent / "disk" / name
    disk.mkdir(parents=True)
    place.parent.mkdir()
    place.symlink_to(disk)
    run = prepare(place)
    finish(run)
    assert Path(run.work).parent == disk.parent and weights_of(place) == "weights"
    assert prepare(place) is None


def test_a_disk_without_links_is_refused(place, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for act in (prepare, places.check_links):
        refused("no link can be made there", act, place)


def test_paths_through_a_link_outlast_it(place):
    run = prepare(place)
    (Path(run.work) / "best").mkdir()
    for name in ("", "/best"):
        assert places.behind_link(f"{place}{name}") == f"{run.work}{name}"
    assert places.behind_link("org/model") == "org/model"
    assert places.place_of(place) == place and places.runs_of(place) == [Path(run.work)]
    assert places.folders_in(place.parent) == [place]


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


def test_clean_lists_all_and_removes_what_it_is_asked_to(place, capsys):
    run = place.parent
    for seed in (0, 1):
        one = prepare(place, seed=seed)
        save(one.work, 4)
        finish(one)
    assert training.say_where_to_free(Path(one.work)) == ["`make clean` lists 1 other runs"]
    first, linked = places.runs_of(place)
    combination = prepare(run / "sweep" / "beta=0" / "grpo")
    earlier = run / "eval.1" / "base" / "completions.parquet"  # of an evaluation that was killed
    for path in (earlier, run / "uv.lock", first / "notes.txt", run / "own" / "w.bin"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    capsys.readouterr()
    clean.show(str(run))
    shown = capsys.readouterr().out
    assert f"sft -> {linked.name}" in shown and "notes.txt" in shown and "own" not in shown
    assert f"{first}: finished, YES=states frees" in shown and f"{linked}:" not in shown
    clean.remove_states(str(run))
    assert not [*first.rglob("optimizer.pt")] and [*linked.rglob("optimizer.pt")]
    assert weights_of(first / "checkpoint-4") and prepare(place) is None
    clean.remove(str(run))
    left = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    assert left == ["own/w.bin", "uv.lock"] and combination.checkpoint is None


class Killed(BaseException):
    """The process is dead: it does nothing more."""


class Disk:
    """Counts what changes files below a folder, and ends the process before one of the changes."""

    CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink")

    def __init__(self):
        self.folder, self.left = "", None
        sys.addaudithook(self.hook)

    def hook(self, event, args):
        if self.left is None or (event != "open" and event not in self.CHANGES):
            return
        is_write = event != "open" or (isinstance(args[1], str) and {*args[1]} & {*"wax+"})
        if is_write and str(args[1 if event == "os.symlink" else 0]).startswith(self.folder):
            self.left -= 1
            if self.left < 0:
                raise Killed

    def killed(self, after, act, *args):
        """What `act` returns; None where it was killed."""
        self.left = after
        try:
            return act(*args)
        except Killed:
            return None
        finally:
            self.left = None


DISK = Disk()
SEEDS, KILLS = st.sampled_from([0, 1]), st.one_of(st.none(), st.integers(0, 14))


class Starts(RuleBasedStateMachine):
    """Starts, saves, kills and ends of runs, between which a user changes what he likes.

    No byte of the user's goes, no result is overwritten, a start takes the last whole checkpoint
    of its keys and changes none of another run.
    """

    def __init__(self):
        super().__init__()
        self.base = self.folder()
        self.place = self.base / "run" / "sft"
        DISK.folder = str(self.base)
        self.run, self.number = None, 0
        self.notes: set[bytes] = set()
        self.results: dict[Path, bytes] = {}  # weights by run
        self.saved: dict[Path, dict[Path, bytes]] = {}  # of each checkpoint, as it was saved

    def whole(self, run):
        """The whole checkpoints of a run, by step."""
        return {
            int(path.name[11:]): path
            for path in run.glob("checkpoint-*")
            if (path / "files.json").is_file()
            and self.saved.get(path, {"": b""}).items() <= contents(path).items()
        }

    def same(self, seed):
        """The runs of a seed, the oldest first."""
        said = {one: folders.read_run(one) for one in places.runs_of(self.place)}
        return [one for one in said if said[one]["config"]["seed"] == seed]

    @rule(seed=SEEDS, force=st.booleans(), after=KILLS)
    def start(self, seed, force, after):
        os.environ["FORCE"] = str(int(force))
        same = self.same(seed)
        taken = same[-1:] if force else same
        known = {one: self.whole(one) for one in taken if one not in self.results}
        is_done = not force and any(one in self.results for one in same)
        saved = {checkpoint: contents(checkpoint) for checkpoint in self.saved}
        self.run = None
        self.run = DISK.killed(after, lambda: prepare(self.place, seed=seed) or "done")
        os.environ.pop("FORCE")
        if self.run is None:
            return
        assert (self.run == "done") is is_done
        linked = self.place.resolve()
        if is_done:
            self.run = None
            assert linked in self.results and linked in same
            return
        work = Path(self.run.work)
        for checkpoint, content in saved.items():
            assert checkpoint.is_relative_to(work) or contents(checkpoint) == content
        assert work not in self.results and json.loads((work / "run.json").read_text())
        if self.run.checkpoint is None:
            assert not any(known.values())
        else:
            assert Path(self.run.checkpoint) == known[work][max(known[work])]
        assert linked == work or (linked / manifest.NAME).is_file()

    @precondition(lambda self: self.run)
    @rule(after=KILLS)
    def step(self, after):
        work = Path(self.run.work)
        step = max((int(path.name[11:]) for path in work.glob("checkpoint-*")), default=0) + 1

        def act():
            checkpoint = save(work, step, is_sealed=False)
            self.saved[checkpoint] = contents(checkpoint)
            folders.seal(checkpoint)
            folders.rotate(work, 2)
            return True

        if not DISK.killed(after, act):
            self.run = None

    @precondition(lambda self: self.run)
    @rule(after=KILLS)
    def end(self, after):
        work, self.number = Path(self.run.work), self.number + 1
        is_told = DISK.killed(after, lambda: finish(self.run, f"weights {self.number}") or True)
        if (work / manifest.NAME).is_file():
            self.results[work] = (work / "model.safetensors").read_bytes()
        assert not is_told or self.place.resolve() == work
        self.run = None

    @rule()
    def kill(self):
        self.run = None

    def choose(self, data, paths):
        paths = sorted(paths)
        return data.draw(st.sampled_from(paths)) if paths else None

    @precondition(lambda self: not self.run)
    @rule(data=st.data(), name=st.sampled_from([*FILES, "trainer_state.json", "files.json"]))
    def damage(self, data, name):
        found = self.choose(data, self.place.parent.glob(f"sft-*/checkpoint-*/{name}"))
        if found and found.stat().st_size:
            if name == "files.json":  # of which the hashes alone are damaged for sure
                found.write_bytes(found.read_bytes()[:-9])
                self.saved.pop(found.parent, None)
            else:
                overwrite(found)

    @precondition(lambda self: not self.run)
    @rule(data=st.data())
    def damage_result(self, data):
        if found := self.choose(data, self.results):
            overwrite(found / "model.safetensors")
            del self.results[found]

    @rule(data=st.data())
    def write_notes(self, data):
        paths = [*self.place.parent.glob("sft-*"), *self.place.parent.glob("sft-*/checkpoint-*")]
        if found := self.choose(data, [one for one in paths if one.is_dir()]):
            self.number += 1
            (found / f"notes-{self.number}.txt").write_text(f"notes {self.number}")
            self.notes.add(f"notes {self.number}".encode())

    @precondition(lambda self: not self.run)
    @rule()
    def remove_the_link(self):
        self.place.unlink(missing_ok=True)

    @invariant()
    def nothing_is_lost(self):
        assert {path.read_bytes() for path in self.base.rglob("*.txt")} >= self.notes
        for run, weights in self.results.items():
            assert (run / "model.safetensors").read_bytes() == weights
            assert (run / manifest.NAME).is_file()


def test_nothing_is_lost_whatever_happens_in_whatever_order(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(manifest, "git_commit", lambda: None)
    monkeypatch.setattr(manifest, "versions", dict)
    monkeypatch.setattr(card, "write", lambda folder: None)
    Starts.folder = lambda self: tmp_path_factory.mktemp("starts")
    machine = Starts.TestCase("runTest")
    machine.settings = settings(
        max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, database=None
    )
    machine.runTest()
