"""Prompts and completions: what the data files store, and what a tokenizer is given."""

import json

import pytest

from data_prep.config import UserError
from data_prep.grading.grade import grade
from data_prep.prompts import (
    SYSTEM_PROMPTS,
    build_completion,
    build_prompt,
    prefills_think,
    render_completion,
    render_prompt,
)
from data_prep.schema import Problem, grpo_row, read_problems, sft_row

CHAT = "<|im_start|>assistant\n"


class Tokenizer:
    """Joins the messages as a chat template would; `opening` is its generation prompt."""

    def __init__(self, opening):
        self.opening = opening

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert tokenize is False
        turns = "".join(f"[{m['role']}]{m['content']}" for m in messages)
        return turns + (self.opening if add_generation_prompt else "")


def test_build_prompt():
    user = {"role": "user", "content": "What is 1+1?"}
    assert build_prompt("What is 1+1?") == [user]
    system = {"role": "system", "content": SYSTEM_PROMPTS["think"]}
    assert build_prompt("What is 1+1?", "think") == [system, user]
    with pytest.raises(KeyError):
        build_prompt("What is 1+1?", "unknown")


@pytest.mark.parametrize("name", sorted(SYSTEM_PROMPTS))
def test_every_built_completion_is_graded_right(name):
    completion = build_completion("1 + 1 = 2\n", "2", name)
    assert grade(completion, "2", answer_tags=name == "answer_tags").verdict == "right"


def test_build_completion_by_hand():
    assert build_completion(" 1 + 1 = 2\n", "2") == "<think>\n1 + 1 = 2\n</think>\n\n\\boxed{2}"
    assert build_completion("1 + 1 = 2", "2", "answer_tags") == (
        "<think>\n1 + 1 = 2\n</think>\n\n<answer>2</answer>"
    )


def test_system_prompts_ask_for_the_form_they_are_trained_on():
    assert "\\boxed{}" in SYSTEM_PROMPTS["think"] and "\\boxed{}" in SYSTEM_PROMPTS["boxed"]
    assert "<answer>" in SYSTEM_PROMPTS["answer_tags"]
    assert "\\boxed" not in SYSTEM_PROMPTS["answer_tags"]


def test_render_prompt_applies_the_template_with_its_generation_prompt():
    messages = [{"role": "user", "content": "What is 1+1?"}]
    assert render_prompt(messages, Tokenizer(CHAT)) == "[user]What is 1+1?" + CHAT


@pytest.mark.parametrize(
    ("prompt", "prefilled"),
    [
        (CHAT, False),
        (CHAT + "<think>", True),
        (CHAT + "<think>\n", True),
        (CHAT + "<think>\n\n</think>\n\n", False),
        ("Write <think> first.\n" + CHAT, False),
    ],
)
def test_prefills_think(prompt, prefilled):
    assert prefills_think(prompt) is prefilled


@pytest.mark.parametrize("opening", ["", "<think>", "<think>\n", "<think>\n\n"])
def test_prompt_and_completion_join_to_one_thought(opening):
    completion = build_completion("1 + 1 = 2", "2")
    prompt = CHAT + opening
    text = prompt + render_completion(completion, prompt)
    assert text.count("<think>") == 1
    # The template's own white space stands in for ours: never both, never neither.
    space = "\n\n" if opening.endswith("\n\n") else "\n"
    assert text == f"{CHAT}<think>{space}1 + 1 = 2\n</think>\n\n\\boxed{{2}}"


def test_rows():
    problem = Problem("p-1", "toy", "What is 1+1?", "2", "1 + 1 = 2", 3)
    row = grpo_row(problem, "none")
    assert row == {
        "id": "p-1",
        "source": "toy",
        "level": 3,
        "subject": "",
        "prompt": [{"role": "user", "content": "What is 1+1?"}],
        "question": "What is 1+1?",
        "answer": "2",
    }
    completion = "<think>\n1 + 1 = 2\n</think>\n\n<answer>2</answer>"
    tagged = sft_row(problem, "answer_tags")
    assert tagged == grpo_row(problem, "answer_tags") | {"completion": completion}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answer": None}, r":2: answer: missing; rows need id, prompt, answer"),
        ({"answer": "\\frac{"}, r":2: answer: .* cannot be parsed"),
        ({"answer": 7}, r":2: answer: 7 cannot be parsed"),
        ({"answer": []}, r":2: answer: missing"),
        ({"answer": ["2", "\\frac{"]}, r":2: answer: .*frac.* cannot be parsed"),
        ({"answer": ["2", 2]}, r":2: answer: 2 cannot be parsed"),
        ({"answer": ["2", ["3"]]}, r":2: answer: \['3'\] cannot be parsed"),
        (
            {"prompt": "2 + 2?"},
            r":2: prompt: must be a list of \{role, content\}, found '2 \+ 2\?'",
        ),
        ({"prompt": [{"role": "user"}]}, r":2: prompt: must be a list"),
        ({"id": ""}, r":2: id: missing"),
    ],
)
def test_a_row_that_no_stage_could_use_is_refused_by_line(tmp_path, change, words):
    sound = {"id": "p", "prompt": build_prompt("1 + 1?"), "answer": "2"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(sound) + "\n" + json.dumps(sound | change) + "\n")
    rows = read_problems(str(path))
    assert next(rows) == sound | {"answer": ["2"]}
    with pytest.raises(UserError, match=words):
        next(rows)


def test_an_answer_is_one_gold_or_several(tmp_path):
    row = {"id": "p", "prompt": build_prompt("1 + 1?")}
    path = tmp_path / "rows.jsonl"
    answers = ["2", ["2"], ["2", "\\frac{4}{2}"]]
    path.write_text("".join(json.dumps(row | {"answer": a}) + "\n" for a in answers))
    found = [row["answer"] for row in read_problems(str(path))]
    assert found == [["2"], ["2"], ["2", "\\frac{4}{2}"]]
