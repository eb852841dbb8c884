"""One thing is changed in a whole recipe: the audit names the fault, or passes with a note."""

import functools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

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

R1 = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
CORRECT, FORM = "correctness_reward", "think_format_reward"
LOOSE = "loose_think_format_reward"
CASES = yaml.safe_load(Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def recipe(tmp_path, tiny_model_dir):
    return Recipe(tmp_path, tiny_model_dir)


def rates(report):
    return {name: found["rates"] for name, found in report["sets"].items()}


def paid_tricks(report):
    return {name for name, found in report["tricks"].items() if found["num_paid"]}


# Changes of a recipe: each takes the recipe and a monkeypatch.


def as_written(case):
    """The change of a case of recipes.yaml."""

    def change(recipe, _):
        for stage, values in case.get("write", {}).items():
            recipe.write(stage, **values)
        if "tokenizer" in case:
            recipe.change_tokenizer(**case["tokenizer"])

    return change


def reward_by(recipe, **weights):
    recipe.write("grpo", reward_funcs=[*weights], reward_weights=[*weights.values()])


def double_the_first_token(recipe, _):
    recipe.change_tokenizer(bos_token="<|im_start|>")
    recipe.set_template("<|im_start|>" + R1)


def end_at_newlines(recipe, _):
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(recipe.base)
    (newline,) = tokenizer("\n")["input_ids"]
    GenerationConfig(eos_token_id=[tokenizer.eos_token_id, newline]).save_pretrained(recipe.base)


def with_golds(*answers):
    """The checks in front of it are blind here, so that only the audit's own can see it."""

    def harm(recipe, patch):
        patch.setattr("data_prep.schema.is_parseable", lambda gold: True)
        recipe.write_data("none", answers=[*answers])

    return harm


def ask_for_tags_in_training(recipe, _=None):
    boxes = (recipe.data / "test.jsonl").read_text()
    recipe.write_data("answer_tags")
    (recipe.data / "test.jsonl").write_text(boxes)


def ask_the_loose_reward_for_tags(recipe, patch):
    reward_by(recipe, **{LOOSE: 1.0, CORRECT: 1.0})
    ask_for_tags_in_training(recipe)


def paying(pay):
    """`pay(text, what was paid for it)` in the place of `correctness_reward`."""

    def harm(recipe, patch):
        reward_by(recipe, **{CORRECT: 1.0})
        before = rewards.REWARDS[CORRECT]

        @functools.wraps(before)
        def reward(**batch):
            texts = [completion[-1]["content"] for completion in batch["completions"]]
            return [pay(text, value) for text, value in zip(texts, before(**batch), strict=True)]

        patch.setitem(rewards.REWARDS, CORRECT, reward)

    return harm


def pay_more_for_wrong(recipe, patch):
    reward_by(recipe, **{CORRECT: 1.0, "random_reward": 2.0, FORM: 0.5})
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


def unlink_training_data(recipe, _):
    recipe.write("sft", train_file="{run}/distill/traces.jsonl")
    (recipe.data / "grpo_train.jsonl").unlink()


def publish_an_answer(recipe, _):
    """In a benchmark, whose rows nobody changes."""
    row = {"problem": "What is part (b)? The answer is 7.", "answer": "7", "idx": 4}
    (recipe.run / "minerva").mkdir()
    write_rows(recipe.run / "minerva/minerva.jsonl", [row])
    recipe.write("eval", tasks=["held_out", "minerva"], data_root=str(recipe.run))


class Fault(NamedTuple):
    """What is wrong, what is said of it, `{set: some of its rates}`, the exploits rewarded."""

    harm: Callable
    words: list[str]
    rates: dict[str, dict[str, float]] = MappingProxyType({})
    paid: set[str] = frozenset()


NO_BOX = {"nothing at all", "one or the other, no box", "a list of numbers, no box", "gold denied"}
FAULTS = {
    name: Fault(
        as_written(case), case["words"], case.get("rates", {}),
        {*TRICKS} if "pays_all" in case else set(),
    )
    for name, case in CASES["faults"].items()
} | {
    "an end id of the generation config within completions": Fault(
        end_at_newlines, ["ends early, after '<think>'"],
        {"held_out": {"template": 0.0, "reward": 0.0, "task": 0.0}},
    ),
    "a template that doubles the first token": Fault(
        double_the_first_token, ["the template writes '<|im_start|>' twice"],
    ),
    "golds that cannot be matched": Fault(
        with_golds("\\frac{1"), ["correctness_reward is 0"],
        {"sft_train": {"reward": 1.0}, "held_out": {"reward": 0.0}},
    ),
    "other golds that cannot be matched": Fault(
        with_golds("7", "\\frac{1"), ["grpo_train, other golds: reward passes 0.0 %"],
        {"held_out": {"reward": 1.0}},
    ),
    "a question that states its answer": Fault(
        state_an_answer,
        ["grpo_train: question passes 83.3 % of the golds", "failed: grpo_train, row synthetic-"],
    ),
    "nothing for correct answers": Fault(
        paying(lambda text, value: 0.0), ["failed: grpo_train, row "],
        {"sft_train": {"reward": 0.0}, "held_out": {"reward": 0.0, "task": 1.0}},
    ),
    "every box": Fault(
        paying(lambda text, value: float("\\boxed{" in text)), ["is rewarded"],
        {"grpo_train": {"reward": 1.0}}, {*TRICKS} - NO_BOX,
    ),
    "wrong answers more in all": Fault(
        pay_more_for_wrong, ["sum of all rewards", "'a wrong answer'", "9 times"],
    ),
    "a reversed task": Fault(
        reverse_the_tasks, ["failed: held_out, row ", ": task: wrong"],
        {"held_out": {"question": 1.0, "template": 1.0, "reward": 1.0, "task": 0.0}}, {*TRICKS},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(recipe, monkeypatch, capsys, name):
    """The manifest of a whole recipe is there from before, and must not survive."""
    fault = FAULTS[name]
    recipe.manifest.parent.mkdir(parents=True)
    recipe.manifest.write_text("{}")
    fault.harm(recipe, monkeypatch)
    assert recipe.audit() == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and "AUDIT=off" in err
    text, report = (recipe.run / "audit/audit.txt").read_text(), recipe.report()
    for word in fault.words:
        assert word in out + err and word in text
    assert not report["passes"] and not recipe.manifest.exists()
    for where, expected in fault.rates.items():
        assert expected.items() <= rates(report)[where].items()
    assert paid_tricks(report) == fault.paid


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


def ask_by(style):
    def change(recipe, _):
        recipe.write_data(style)
        if style == "think":
            recipe.set_template(R1)  # opens the thought

    return change


# What changes, and patterns of the notes.
PASSES = {
    name: (as_written(case), case.get("notes", [])) for name, case in CASES["passes"].items()
} | {
    "a benchmark that states an answer": (
        publish_an_answer, ["minerva: row minerva-test-4: the question states its answer: '7'"],
    ),
    "no training files": (
        unlink_training_data,
        ["not audited: sft_train: /.*`make distill`", "not audited: grpo_train: /.*`make data`"],
    ),
    "other tags in training": (
        ask_for_tags_in_training, ["the system prompts differ: sft_train, grpo_train: 'Reason"],
    ),
    "the loose form and its tags": (
        ask_the_loose_reward_for_tags, [f"{LOOSE} also rewards", "the system prompts differ"],
    ),
    "no GRPO": (lambda recipe, _: (recipe.configs / "grpo.yaml").unlink(), []),
    **{f"a prompt of {style}": (ask_by(style), []) for style in PROMPTS},
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_what_fails_no_recipe(recipe, monkeypatch, name):
    change, notes = PASSES[name]
    change(recipe, monkeypatch)
    assert recipe.audit() == 0
    report = recipe.report()
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


def use_template(template):
    def harm(recipe):
        recipe.write_data("think")
        recipe.set_template(template)

    return harm


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (use_template(R1.replace("message['content']", "messages[-1]['content']")),
         "the template leaves out the system message"),
        (use_template("{{ raise_exception('System role not supported') }}"),
         "cannot render messages of system, user"),
        (lambda r: r.write_data("none", answers=["$$"]), "test.jsonl:1: answers: '$$' cannot be "),
        (lambda r: (r.data / "sft_train.jsonl").write_text(""), "has no rows"),
        (lambda r: (r.data / "test.jsonl").write_text(""), "test.jsonl"),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused_at_once(recipe, capsys, harm, message):
    harm(recipe)
    assert recipe.audit() == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert not recipe.manifest.exists()
