"""Evaluation during GRPO, without a model: keys, choice of the problems, the best one's folder."""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from pipeline.errors import UserError
from stages.arguments import GrpoArguments
from stages.grpo import hold_out, sample_problems
from stages.host import check_grpo
from stages.rules import check_grpo_keys
from stages.trainer.evaluation import (
    FILE,
    HeldOutCounts,
    average_at_k,
    is_better,
    keep_if_best,
    read_best,
)
from tests.files import write_rows
from tests.unit.stages.helpers import grpo, named, write_model

TABLE = yaml.safe_load(Path(__file__).with_name("evaluation.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("key", "values"), TABLE["keys"])
def test_keys_are_refused_in_one_line(key, values):
    assert named(lambda: check_grpo_keys(grpo(values))) == key


def build_row(number, question=None):
    question = question or f"What is {number} + 1?"
    prompt = [{"role": "user", "content": question}]
    row = {"id": f"p{number}", "prompt": prompt, "question": question, "answer_form": "box"}
    return row | {"answers": [str(number + 1)]}


@pytest.fixture
def files(tmp_path):
    """A recipe whose files exist: 10 problems to train on, 5 held out."""
    write_model(tmp_path / "sft")
    write_rows(tmp_path / "train.jsonl", map(build_row, range(10)))
    write_rows(tmp_path / "validation.jsonl", map(build_row, range(20, 25)))
    return TABLE["evaluates"] | {
        "model_name_or_path": str(tmp_path / "sft"),
        "train_file": str(tmp_path / "train.jsonl"),
        "eval_file": str(tmp_path / "validation.jsonl"),
        "eval_problems": 4,
    }


@pytest.mark.parametrize(("key", "changes"), TABLE["files"])
def test_files_that_go_together_or_not(files, key, changes):
    assert named(check_grpo, grpo(files | changes)) == key


def test_a_held_out_question_that_is_trained_on_is_named(files, tmp_path):
    """Whatever it is spelt like, and with or without the bare question beside the prompt."""
    rows = [build_row(20), build_row(7, "what is  7+1"), build_row(21)]
    del rows[1]["question"]
    write_rows(tmp_path / "shared.jsonl", rows)
    words = r"eval_file: .*shared\.jsonl:2: the question is also in .*train\.jsonl:8 \(1 of 3 are\)"
    changes = {"eval_file": str(tmp_path / "shared.jsonl"), "eval_problems": None}
    with pytest.raises(UserError, match=words):
        check_grpo(grpo(files | changes))


def test_the_choice_depends_on_seed_and_rows_alone():
    rows = [build_row(number) for number in range(50)]
    chosen = sample_problems(rows, 10, 0)
    assert len({row["id"] for row in chosen}) == 10
    shuffled = random.Random(3).sample(rows, len(rows))
    assert sample_problems(shuffled, 10, 0) == chosen == sample_problems(rows, 20, 0)[:10]
    assert sample_problems(rows, 10, 1) != chosen
    everything = sample_problems(rows, None, 0)
    assert sorted(row["id"] for row in everything) == sorted(row["id"] for row in rows)


def test_copies_of_a_held_out_problem_are_not_trained_on_either():
    rows = [build_row(number) for number in range(8)]
    copies = [row | {"id": row["id"] + " again"} for row in rows]
    args = GrpoArguments(train_file="", eval_problems=3)
    to_train, held_out = hold_out(rows + copies, args, 0)
    assert len(held_out) == 3 and len(to_train) == 10
    assert not {row["question"] for row in to_train} & {row["question"] for row in held_out}
    assert not any("again" in row["id"] for row in held_out)
    assert hold_out(rows, GrpoArguments(train_file=""), 0) == (rows, [])


def test_average_and_standard_error():
    # Shares 1, 0.5, 0: mean 0.5, standard deviation 0.5.
    assert average_at_k([4, 2, 0], 4) == pytest.approx((0.5, 0.5 / 3**0.5))
    assert average_at_k([1, 1], 1) == (1, 0)


def test_copies_of_a_problem_that_another_process_has_count_once():
    """Of the numbers 0 and 1 here, 2 and again 0 there, each with two completions."""
    counts = HeldOutCounts(2, ends={9})
    there = [[2, 2, 0, 8], [0, 0, 2, 6]]  # number, correct, cut off, tokens
    accelerator = SimpleNamespace(
        device="cpu", gather=lambda mine: torch.cat([mine, torch.tensor(there)])
    )
    rows = [{"held_out": number} for number in (0, 0, 1, 1)]
    completions = [[5, 9], [5, 6, 7], [9], [9]]
    counts.add(rows, ["right", "wrong", "no_answer", "wrong"], completions, accelerator)
    assert len(counts) == 3
    assert counts.metrics() == {
        "eval_avg@2": pytest.approx(0.5), "eval_avg@2_stderr": pytest.approx(0.5 / 3**0.5),
        "eval_cut_off_rate": 1 / 6, "eval_response_length": 15 / 6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "step", "expected"),
    [(0.6, 30, True), (0.4, 30, False), (0.5, 30, False), (0.5, 20, False), (0.5, 10, True)],
)
def test_of_equal_models_the_earlier_is_better(value, step, expected):
    assert is_better(value, step, {"value": 0.5, "step": 20}) is expected
    assert is_better(value, step, None)


class Killed(Exception):
    """Stands for the end of the process."""


def put(folder, step):
    """As `keep_if_best`, of a trainer that writes its step as the model."""

    def save_model(path, _internal_call):
        assert _internal_call
        Path(path).mkdir()
        Path(path, "model").write_text(str(step))

    trainer = SimpleNamespace(
        args=SimpleNamespace(output_dir=str(folder), should_save=True),
        state=SimpleNamespace(global_step=step),
        accelerator=SimpleNamespace(wait_for_everyone=lambda: None),
        save_model=save_model,
    )
    assert keep_if_best(trainer, "avg@2", {"eval_avg@2": step / 10, "eval_avg@2_stderr": 0.0})


def look(folder):
    return read_best(folder)["step"], (folder / "best/model").read_text()


@pytest.mark.parametrize("number", range(5))
def test_a_kill_at_any_moment_leaves_a_whole_model(number, tmp_path, monkeypatch):
    """Before the model is whole, before its record, between the renames, before the clean-up."""
    from stages.trainer import evaluation

    assert read_best(tmp_path) is None
    put(tmp_path, 1)
    assert look(tmp_path) == (1, "1")
    calls = iter(range(-1, 10))  # `read_best` removes a folder first

    def fragile(do):
        def call(*args, **kwargs):
            if next(calls) == number:
                raise Killed
            return do(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", fragile(Path.mkdir))
        patch.setattr(evaluation.manifest, "write_json", fragile(evaluation.manifest.write_json))
        patch.setattr(Path, "rename", fragile(Path.rename))
        patch.setattr(evaluation.shutil, "rmtree", fragile(evaluation.shutil.rmtree))
        patch.setattr(Path, "unlink", fragile(Path.unlink))
        with pytest.raises(Killed):
            put(tmp_path, 2)
    step = 1 if number < 3 else 2
    assert look(tmp_path) == (step, str(step))
    put(tmp_path, 3)
    assert look(tmp_path) == (3, "3")
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert json.loads((tmp_path / "best" / FILE).read_text())["value"] == 0.3
