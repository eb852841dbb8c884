"""One thing is changed in a whole recipe: the audit names the fault, or passes with a note."""

import functools
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from eval.audit.cases import TRICKS
from eval.harness import score
from grading.grade import Grade
from pipeline.prompts import PROMPTS
from stages import rewards
from tests.files import read_rows, write_rows
from tests.integration.audit.runs import NUM_ROWS, Recipe

pytestmark = pytest.mark.integration

CASES = yaml.safe_load(Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8"))
FAULTS, REFUSED = CASES["faults"], CASES["refused"]
PASSES = CASES["passes"] | {
    f"a prompt of {style}": {"prompt": style} for style in PROMPTS if style != "think"
}
NO_BOX = {"nothing at all", "one or the other, no box", "a list of numbers, no box", "gold denied"}
PAID = {"all": {*TRICKS}, "boxes": {*TRICKS} - NO_BOX, "none": set()}
CORRECT = "correctness_reward"


@pytest.fixture
def recipe(tmp_path, tiny_model_dir):
    return Recipe(tmp_path, tiny_model_dir)


def rates(report):
    return {name: found["rates"] for name, found in report["sets"].items()}


def paid_tricks(report):
    return {name for name, found in report["tricks"].items() if found["num_paid"]}


# Changes of a recipe: those of recipes.yaml, and functions that a case may name there.


def change(case, recipe, patch):
    """Change the recipe as the case says."""
    for stage, values in case.get("write", {}).items():
        recipe.write(stage, **values)
    if "tokenizer" in case:
        recipe.change_tokenizer(**case["tokenizer"])
    if "template" in case:
        recipe.set_template(case["template"])
    if "blind" in case:
        patch.setattr("data_prep.schema.is_parseable", lambda gold: True)
    if "golds" in case or "prompt" in case:
        recipe.write_data(case.get("prompt", "none"), answers=case.get("golds"))
    if "empty" in case:
        (recipe.run.parent / case["empty"]).write_text("")
    for name in case.get("remove", []):
        (recipe.run.parent / name).unlink()
    if "by" in case:
        globals()[case["by"]](recipe, patch)


def end_at_newlines(recipe, _):
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(recipe.base)
    (newline,) = tokenizer("\n")["input_ids"]
    GenerationConfig(eos_token_id=[tokenizer.eos_token_id, newline]).save_pretrained(recipe.base)


def ask_for_tags_in_training(recipe, _):
    boxes = (recipe.data / "test.jsonl").read_text()
    recipe.write_data("answer_tags")
    (recipe.data / "test.jsonl").write_text(boxes)


def pay(patch, value_of):
    """`value_of(text)` in the place of `correctness_reward`."""

    @functools.wraps(rewards.REWARDS[CORRECT])
    def reward(**batch):
        return [value_of(completion[-1]["content"]) for completion in batch["completions"]]

    patch.setitem(rewards.REWARDS, CORRECT, reward)


def pay_nothing(_, patch):
    pay(patch, lambda text: 0.0)


def pay_every_box(_, patch):
    pay(patch, lambda text: float("\\boxed{" in text))


def pay_more_for_wrong(_, patch):
    grade = rewards.REWARDS[CORRECT]

    def always_wrong(*, coin, **batch):
        return [1.0 - value for value in grade(**batch)]

    patch.setitem(rewards.REWARDS, "random_reward", always_wrong)


def state_an_answer(recipe, _):
    path = recipe.data / "grpo_train.jsonl"
    rows = read_rows(path)
    rows[2]["question"] += f" The answer is {rows[2]['answers'][0]}."
    write_rows(path, rows)


def reverse_the_tasks(_, patch):
    """The tasks, and nothing else, take right for wrong and wrong for right."""
    grade, other = score.grade_rollouts, {"right": "wrong"}

    def turned(*args, **form):
        grades = grade(*args, **form)
        return [Grade(other.get(one.verdict, "right"), one.prediction) for one in grades]

    patch.setattr(score, "grade_rollouts", turned)


def publish_an_answer(recipe, _):
    """In a benchmark, whose rows nobody changes."""
    row = {"problem": "What is part (b)? The answer is 7.", "answer": "7", "idx": 4}
    (recipe.run / "minerva").mkdir()
    write_rows(recipe.run / "minerva/minerva.jsonl", [row])
    recipe.write("eval", tasks=["held_out", "minerva"], data_root=str(recipe.run))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(recipe, monkeypatch, capsys, name):
    """The manifest of a whole recipe is there from before, and must not survive."""
    fault = FAULTS[name]
    recipe.manifest.parent.mkdir(parents=True)
    recipe.manifest.write_text("{}")
    change(fault, recipe, monkeypatch)
    assert recipe.audit() == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and "AUDIT=off" in err
    text, report = (recipe.run / "audit/audit.txt").read_text(), recipe.report()
    for word in fault["words"]:
        assert word in out + err and word in text
    assert not report["passes"] and not recipe.manifest.exists()
    for where, expected in fault.get("rates", {}).items():
        assert expected.items() <= rates(report)[where].items()
    assert paid_tricks(report) == PAID[fault.get("paid", "none")]


def test_a_whole_recipe_passes(recipe):
    assert recipe.audit() == 0
    report = recipe.report()
    paid = {"question": 1.0, "template": 1.0, "reward": 1.0}
    assert rates(report) == {
        "sft_train": paid | {"task": None},
        "grpo_train": paid | {"task": None},
        "held_out": paid | {"task": 1.0},
    }
    counts = {"num_rows": 3 * 4, "num_paid": 0, "num_above": 0}
    assert report["tricks"] == dict.fromkeys(TRICKS, counts)
    assert (report["failures"], report["faults"], report["notes"]) == ([], [], [])
    assert report["sets"]["held_out"]["official"]["own form"]["ours"] == 1.0
    manifest = json.loads(recipe.manifest.read_text())
    assert manifest["counts"] == dict.fromkeys(report["sets"], NUM_ROWS)
    keys = ["--reward_funcs", CORRECT, "random_reward", "--reward_weights", "1", "1"]
    assert recipe.audit(*keys) == 2  # those of the command line are audited


@pytest.mark.parametrize("name", PASSES)
def test_what_fails_no_recipe(recipe, monkeypatch, name):
    case = PASSES[name]
    change(case, recipe, monkeypatch)
    assert recipe.audit() == 0
    report, notes = recipe.report(), case.get("notes", [])
    assert not paid_tricks(report) and len(report["notes"]) == len(notes)
    for note, start in zip(report["notes"], notes, strict=True):
        assert re.match(start, note)


def test_a_recipe_without_sft_whose_grpo_evaluates(recipe):
    (recipe.configs / "sft.yaml").unlink()
    shutil.copy(recipe.data / "test.jsonl", recipe.data / "validation.jsonl")
    recipe.write(
        "grpo", model_name_or_path="{run}/base", use_peft=True, lora_r=4, eval_steps=2,
        eval_strategy="steps", eval_file="{run}/data/validation.jsonl",
    )  # fmt: skip
    assert recipe.audit() == 0
    found = rates(recipe.report())
    assert [*found] == ["grpo_train", "grpo_eval", "held_out"]
    assert found["grpo_eval"] == {"question": 1.0, "template": 1.0, "reward": 1.0, "task": None}
    read = json.loads(recipe.manifest.read_text())["inputs"]
    assert str(recipe.data / "validation.jsonl") in read


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_audited_is_refused_at_once(recipe, monkeypatch, capsys, name):
    change(REFUSED[name], recipe, monkeypatch)
    assert recipe.audit() == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and REFUSED[name]["words"] in err
    assert not recipe.manifest.exists()
