"""One thing is broken in a whole recipe: the audit refuses it and names the first failing row."""

import functools
import json
import shutil

import pytest

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


@pytest.fixture
def recipe(tmp_path, tiny_model_dir):
    return Recipe(tmp_path, tiny_model_dir)


@pytest.fixture
def refused(recipe, capsys):
    """Audit the broken recipe: it must be refused with these words; returns the report.

    A whole recipe's manifest is there from before, and must not survive.
    """

    def call(*words):
        recipe.manifest.parent.mkdir(parents=True)
        recipe.manifest.write_text("{}")
        assert recipe.audit() == 2
        assert not recipe.manifest.exists()
        out, err = capsys.readouterr()
        assert err.startswith("error: ") and err.count("\n") == 1 and "AUDIT=off" in err
        assert all(word in out + err for word in words), out + err
        assert all(word in (recipe.run / "audit/audit.txt").read_text() for word in words)
        report = recipe.report()
        assert not report["passes"]
        return report

    return call


def rates(report):
    return {name: found["rates"] for name, found in report["sets"].items()}


def paid_tricks(report):
    return {name for name, found in report["tricks"].items() if found["num_paid"]}


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
    assert all(found == counts for found in report["tricks"].values())
    assert [*report["tricks"]] == [*TRICKS]
    assert (report["failures"], report["faults"], report["notes"]) == ([], [], [])
    assert report["sets"]["held_out"]["official"]["own form"]["ours"] == 1.0
    manifest = json.loads(recipe.manifest.read_text())
    assert manifest["counts"] == dict.fromkeys(report["sets"], NUM_ROWS)


def test_a_template_without_the_system_message_is_refused_at_once(recipe, capsys):
    drop_the_system_message(recipe)
    assert recipe.audit() == 2
    error = capsys.readouterr().err
    assert error.startswith("error: chat_template: ") and error.count("\n") == 1
    assert "the template leaves out the system message" in error


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


def set_in_config(**values):
    return lambda recipe: recipe.change_tokenizer(**values)


def end_at_newlines(recipe):
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(recipe.base)
    (newline,) = tokenizer("\n")["input_ids"]
    GenerationConfig(eos_token_id=[tokenizer.eos_token_id, newline]).save_pretrained(recipe.base)


def drop_the_system_message(recipe):
    recipe.write_data("think")
    recipe.set_template(R1.replace("{{ message['content'] }}", "{{ messages[-1]['content'] }}"))


def double_the_first_token(recipe):
    set_in_config(bos_token="<|im_start|>")(recipe)
    recipe.set_template("<|im_start|>" + R1)


NOTHING = {"template": 0.0, "reward": 0.0, "task": 0.0}
SPECIAL = ["<|im_start|>", "<think>"]
BROKEN = {  # how; what is said; the rates of one of the sets
    "an end of sequence that ends the thought": (
        set_in_config(eos_token="</think>"),
        ["ends early, after", "sft_train, row", "unclosed_think"], "held_out", NOTHING,
    ),
    "an end id of the generation config within completions": (
        end_at_newlines, ["ends early, after '<think>'"], "held_out", NOTHING,
    ),
    "a special tag that decoding drops": (
        set_in_config(extra_special_tokens=SPECIAL),
        ["'<think>", "becomes", "no_think"], "held_out", NOTHING,
    ),
    "a template that doubles the first token": (
        double_the_first_token, ["the template writes '<|im_start|>' twice"], "held_out", {},
    ),
    "too few new tokens in the tasks": (
        lambda recipe: recipe.write("eval", max_new_tokens=20),
        ["held_out: task passes 0.0 %", "cut off at 20 tokens"],
        "held_out", {"template": 1.0, "reward": 1.0, "task": 0.0},
    ),
    "too short completions in GRPO": (
        lambda recipe: recipe.write("grpo", max_completion_length=20),
        ["correctness_reward is 0, cut off at 20 tokens"],
        "held_out", {"reward": 0.0, "task": 1.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_recipe_is_refused(recipe, refused, name):
    harm, words, where, expected = BROKEN[name]
    harm(recipe)
    report = refused(*words)
    assert expected.items() <= rates(report)[where].items()
    assert report["failures"][0]["row"].startswith("synthetic-")


@pytest.mark.parametrize("style", PROMPTS)
def test_each_row_is_graded_in_the_form_its_prompt_asks_for(recipe, style):
    recipe.write_data(style)
    if style == "think":
        recipe.set_template(R1)  # opens the thought
    assert recipe.audit() == 0
    report = recipe.report()
    own = report["sets"]["held_out"]["official"]["own form"]
    assert own["ours"] == 1.0 and own["hendrycks"] == 0.0
    assert not paid_tricks(report)


@pytest.mark.parametrize(
    ("answers", "word", "sets"),
    [
        (["\\frac{1"], "correctness_reward is 0", {"sft_train": 1.0, "held_out": 0.0}),
        (["7", "\\frac{1"], "grpo_train, other golds: reward passes 0.0 %", {"held_out": 1.0}),
    ],
)
def test_golds_that_cannot_be_matched(recipe, refused, monkeypatch, answers, word, sets):
    """The checks in front of it are blind here, so that only the audit's own can see it."""
    monkeypatch.setattr("data_prep.schema.is_parseable", lambda gold: True)
    recipe.write_data("none", answers=answers)
    found = rates(refused(word))
    assert {name: found[name]["reward"] for name in sets} == sets


def refuse_the_system_message(recipe):
    recipe.write_data("think")
    recipe.set_template("{{ raise_exception('System role not supported') }}")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (refuse_the_system_message, "cannot render messages of system, user"),
        (lambda r: r.write_data("none", answers=["$$"]), "test.jsonl:1: answers: '$$' cannot be "),
        (lambda r: (r.data / "sft_train.jsonl").write_text(""), "has no rows"),
        (lambda r: (r.data / "test.jsonl").write_text(""), "test.jsonl"),
    ],
)
def test_what_cannot_be_audited_is_refused(recipe, capsys, harm, message):
    harm(recipe)
    assert recipe.audit() == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and not recipe.manifest.exists()


def test_a_missing_training_file_is_told_and_nothing_at_all_is_refused(recipe, refused):
    for name in ("sft_train", "grpo_train"):
        (recipe.data / f"{name}.jsonl").unlink()
    assert recipe.audit() == 0
    notes = [note.partition(": /")[0] for note in recipe.report()["notes"]]
    assert notes == ["not audited: sft_train", "not audited: grpo_train"]
    recipe.write("eval", tasks=["aime24"], data_root=str(recipe.run))
    shutil.rmtree(recipe.manifest.parent)
    refused("no set could be audited")


def test_one_gold_in_a_hundred_may_fail_and_is_named(recipe, capsys):
    rows = read_rows(recipe.data / "sft_train.jsonl")
    rows = [rows[at % len(rows)] | {"id": f"row-{at}"} for at in range(100)]
    rows[57]["completion"] = rows[57]["completion"].replace("\\boxed{", "\\boxed{1")
    write_rows(recipe.data / "sft_train.jsonl", rows)
    assert recipe.audit() == 0
    out = capsys.readouterr().out
    assert "failed: sft_train, row row-57: reward: correctness_reward is 0" in out
    assert "passes: at least 99.0 % of the golds" in out


def ask_for_tags_in_training(recipe):
    boxes = (recipe.data / "test.jsonl").read_text()
    recipe.write_data("answer_tags")
    (recipe.data / "test.jsonl").write_text(boxes)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (ask_for_tags_in_training, "the system prompts differ: sft_train, grpo_train: 'Reason"),
        (
            lambda r: r.write("grpo", reward_funcs=["rlinf_reward"], final_number=True),
            "final_number differs between grpo.yaml and eval.yaml",
        ),
    ],
)
def test_what_fails_no_recipe_is_a_note(recipe, change, note):
    change(recipe)
    assert recipe.audit() == 0
    report = recipe.report()
    found, *others = sorted(report["notes"])
    assert found.startswith(note) and not paid_tricks(report)
    assert not others


@pytest.mark.parametrize(
    "keys",
    [
        {"bf16": True}, {"fp16": True, "bf16": False, "dtype": "float32"}, {"tf32": True},
        {"attn_implementation": "flash_attention_2"},
    ],
)  # fmt: skip
def test_a_recipe_for_a_gpu_is_audited_without_one(recipe, keys):
    recipe.write("grpo", use_cpu=False, **keys)
    assert recipe.audit() == 0


@pytest.mark.parametrize(
    ("names", "weights", "passes"),
    [
        (["think_format_reward"], [1.0], False),
        (["loose_think_format_reward"], [1.0], False),
        (["think_format_reward", "soft_length_penalty"], [1.0, 1.0], False),
        (["think_format_reward", "correctness_reward"], [1.0, 0.0], False),  # only logged
        (["think_format_reward", "correctness_reward"], [0.5, 1.0], True),
        (["think_format_reward", "cosine_scaled_reward"], [0.5, 1.0], True),
    ],
)
def test_a_recipe_that_rewards_no_correctness(recipe, refused, names, weights, passes):
    recipe.write("grpo", reward_funcs=names, reward_weights=weights)
    if passes:
        assert recipe.audit() == 0
        return
    report = refused(f"reward_funcs: nothing rewards correctness: {names[0]}")
    assert report["faults"][0].startswith("reward_funcs: ") and not paid_tricks(report)


def test_the_loose_format_reward_is_told_of_and_needs_tags_in_training(recipe, refused):
    names = ["loose_think_format_reward", "correctness_reward"]
    recipe.write("grpo", reward_funcs=names, reward_weights=[1.0, 1.0])
    ask_for_tags_in_training(recipe)
    assert recipe.audit() == 0
    assert any(note.startswith(f"{names[0]} also rewards") for note in recipe.report()["notes"])
    shutil.rmtree(recipe.manifest.parent)
    recipe.write_data("none")  # boxes
    refused("grpo_train", f"{names[0]} is 0")


def test_a_reward_of_ones_own_may_look_at_correctness(recipe):
    assert recipe.audit("--reward_funcs", "tests.integration.audit.runs:own_reward") == 0
    report = recipe.report()
    assert not paid_tricks(report)
    (note,) = report["notes"]
    assert note.startswith("only a reward of your own can look at correctness")
    own = "tests.integration.audit.runs:reward_of_length"
    assert recipe.audit("--reward_funcs", own) == 2  # the golds earn no more than the exploits


def test_a_recipe_without_grpo_has_no_rewards_to_fault(recipe):
    (recipe.configs / "grpo.yaml").unlink()
    assert recipe.audit() == 0
    assert recipe.report()["faults"] == []


def test_chance_is_no_recipes_reward(recipe, refused):
    names = ["random_reward", "correctness_reward"]
    recipe.write("grpo", reward_funcs=names, reward_weights=[0.5, 1.0])
    refused("reward_funcs: random_reward has a weight", "not audited: random_reward: TypeError")


def test_the_rewards_of_a_command_line_are_audited(recipe, capsys):
    keys = ["--reward_funcs", "correctness_reward", "random_reward", "--reward_weights", "1", "1"]
    assert recipe.audit() == 0
    assert recipe.audit(*keys) == 2
    assert "reward_funcs: random_reward" in capsys.readouterr().err


@pytest.fixture
def replace_reward(monkeypatch):
    """Put `pay(text, what was paid for it)` in the place of `correctness_reward`."""
    before = rewards.REWARDS["correctness_reward"]

    def call(pay):
        @functools.wraps(before)
        def reward(**batch):
            texts = [completion[-1]["content"] for completion in batch["completions"]]
            return [pay(text, value) for text, value in zip(texts, before(**batch), strict=True)]

        monkeypatch.setitem(rewards.REWARDS, "correctness_reward", reward)

    return call


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_a_reward_that_pays_nothing_for_right(recipe, refused, replace_reward, weight):
    names = ["random_reward", "correctness_reward"]
    recipe.write("grpo", reward_funcs=names, reward_weights=[1.0, weight])
    replace_reward(lambda text, right: 0.0)
    report = refused("failed: grpo_train, row ", "correctness_reward is 0")
    assert {found["reward"] for found in rates(report).values()} == {0.0}
    assert rates(report)["held_out"]["task"] == 1.0 and not paid_tricks(report)


@pytest.mark.parametrize(
    ("pay", "paid", "unpaid"),
    [
        (lambda text, right: float("\\boxed{" in text),
         {"a wrong answer", "two boxes, gold last"}, {"nothing at all"}),
        (lambda text, right: 1.0, {*TRICKS}, set()),
        (lambda text, right: max(right, float("<think>\n\\boxed{" in text)),
         {"gold in the thought only"}, {"nothing at all"}),
    ],
)  # fmt: skip
def test_a_reward_that_pays_for_something_else(refused, replace_reward, pay, paid, unpaid):
    replace_reward(pay)
    report = refused("is rewarded")
    assert paid <= paid_tricks(report) and not unpaid & paid_tricks(report)
    assert {found["reward"] for found in rates(report).values()} == {1.0}


def test_wrong_answers_that_all_rewards_together_pay_more(recipe, refused, monkeypatch):
    names = ["correctness_reward", "random_reward", "think_format_reward"]
    recipe.write("grpo", reward_funcs=names, reward_weights=[1.0, 2.0, 0.5])
    grade = rewards.REWARDS["correctness_reward"]

    def always_wrong(*, coin, **batch):
        return [1.0 - value for value in grade(**batch)]

    monkeypatch.setitem(rewards.REWARDS, "random_reward", always_wrong)
    report = refused("sum of all rewards", "'a wrong answer'")
    assert not paid_tricks(report)
    assert report["tricks"]["a wrong answer"]["num_above"] == 3 * 3


@pytest.mark.parametrize(
    ("weights", "passes"), [([1.0, 0.5], True), ([1.0, 5.0], True), ([0.1, 5.0], False)]
)
def test_right_must_be_worth_its_share_of_the_rewards(recipe, refused, weights, passes):
    names = ["correctness_reward", "think_format_reward"]
    recipe.write("grpo", reward_funcs=names, reward_weights=weights)
    if passes:
        assert recipe.audit() == 0
    else:
        refused("sum of all rewards", "'a wrong answer'", "nearly")


@pytest.mark.parametrize("text", [" The answer is {}.", "\n#### {}", " $\\boxed{{{}}}$"])
def test_a_question_that_states_its_answer(recipe, refused, text):
    path = recipe.data / "grpo_train.jsonl"
    rows = read_rows(path)
    rows[2]["question"] += text.format(rows[2]["answers"][0])
    write_rows(path, rows)
    report = refused("grpo_train: question passes 83.3 % of the golds")
    (fault,) = report["failures"]
    assert (fault["row"], fault["check"]) == (rows[2]["id"], "question")


def test_a_weight_that_pays_for_the_opposite(recipe, refused):
    recipe.write("grpo", reward_funcs=["rlinf_reward"], reward_weights=[-1.0])
    assert "a wrong answer" in paid_tricks(refused("rlinf_reward is -5"))


def test_a_task_with_a_reversed_verdict(refused, monkeypatch):
    """The tasks, and nothing else, take right for wrong and wrong for right."""
    grade, other = score.grade_rollouts, {"right": "wrong"}

    def turned(*args, **form):
        grades = grade(*args, **form)
        return [Grade(other.get(one.verdict, "right"), one.prediction) for one in grades]

    monkeypatch.setattr(score, "grade_rollouts", turned)
    report = refused("failed: held_out, row ", ": task: wrong")
    assert rates(report)["held_out"] == {
        "question": 1.0,
        "template": 1.0,
        "reward": 1.0,
        "task": 0.0,
    }
    assert report["tricks"]["a wrong answer"]["num_paid"] == 3
    assert {one["check"] for one in report["failures"]} == {"task"}
