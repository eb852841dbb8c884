"""Prompts and completions: what the data files store, and what a tokenizer is given."""

import dataclasses
import json
from pathlib import Path

import pytest
import trl
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from data_prep.schema import Problem, grpo_row, read_problems, sft_row
from grading.grade import grade, grade_rollouts
from pipeline.prompts import (
    ANSWER_FORMS,
    BARE_FORMS,
    PROMPTS,
    build_completion,
    build_prompt,
    form_of,
    prefills_think,
    render_completion,
    render_prompt,
)
from tests.files import write_rows
from tests.refused import refused
from tests.tables import read_beside, tables_beside

table = tables_beside(__file__)

CHAT = "<|im_start|>assistant\n"


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_every_built_completion_is_graded_right(form):
    completion = build_completion("1 + 1 = 2\n", "2", form)
    assert grade(completion, "2", answer_form=form).verdict == "right"


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_ask_once_and_for_the_form_they_are_trained_on(name):
    text = "".join(PROMPTS[name][:2])
    assert text.count("{question}") == 1
    asks = {"tags": "<answer>", "hashes": '"####"'}.get(form_of(name), "\\boxed{}")
    assert (asks in text) == (name != "none")
    # `none` leaves the form to training; any other prompt asks for the thought that it requires.
    assert name == "none" or (form_of(name) in BARE_FORMS) == ("<think>" not in text)
    (*_, message) = build_prompt("Is {question} {0} a \\frac{1}{2}?", name)
    assert message["role"] == "user" and "Is {question} {0} a \\frac{1}{2}?" in message["content"]


# The checkpoints' own templates, which TRL ships: BOS, what is before the message, what is after.
TEMPLATES = read_beside(__file__)["templates"]


def tokenizer_with(template, bos="<s>"):
    core = Tokenizer(WordLevel({bos: 0}, unk_token=bos))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=bos)
    tokenizer.chat_template = template
    return tokenizer


def shipped_template(name):
    path = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    return path.read_text(encoding="utf-8")


@table
def test_the_rendered_prompt_to_the_byte(name, user):
    for template, (bos, before, after) in TEMPLATES.items():
        text = render_prompt(
            build_prompt("1 + 1?", name), tokenizer_with(shipped_template(template), bos)
        )
        sent = user.strip() if template == "llama3_1" else user  # that one trims messages
        assert text == before + sent + after, template


class Raising:
    """A tokenizer whose template raises."""

    name_or_path = "folder"

    def __init__(self, error):
        self.error = error

    def apply_chat_template(self, *_, **__):
        raise self.error


def test_a_template_that_renders_nothing_is_one_line():
    told = r"^chat_template: folder: cannot render.*chat_template_path"
    for error in (ValueError("no default\ntemplate"), OverflowError()):
        refused(told, render_prompt, build_prompt("1 + 1?"), Raising(error))


@table
def test_a_template_that_leaves_out_a_message_is_refused(template, role):
    tokenizer = tokenizer_with(template)
    texts = {"system": "Be brief.\n", "user": " 1 + 1? ", "assistant": "<think>2</think>"}
    messages = [{"role": one, "content": text} for one, text in texts.items()]
    if role is None:
        assert "1 + 1?" in render_prompt(messages, tokenizer)
        return
    told = f"^chat_template: .* leaves out the {role} message; "
    refused(told, render_prompt, messages, tokenizer)


def test_prefills_think():
    assert prefills_think(CHAT + "<think>\n") is True
    assert prefills_think(CHAT + "<think>\n\n</think>\n\n") is False


@pytest.mark.parametrize("opening", ["", "<think>", "<think>\n", "<think>\n\n"])
def test_prompt_and_completion_join_to_one_thought(opening):
    completion = build_completion("1 + 1 = 2", "2")
    prompt = CHAT + opening
    text = prompt + render_completion(completion, prompt)
    assert text.count("<think>") == 1
    # The template's own white space stands in for ours: never both, never neither.
    space = "\n\n" if opening.endswith("\n\n") else "\n"
    assert text == f"{CHAT}<think>{space}1 + 1 = 2\n</think>\n\n\\boxed{{2}}"


def test_a_word_changed_in_a_prompt_changes_no_verdict(monkeypatch, tmp_path):
    """Neither in a file that is built already nor in one that is built from then on."""
    problem = Problem("p-1", "toy", "What is 1+1?", ("2",), "1 + 1 = 2")
    rows = [sft_row(problem, "answer_tags")]
    monkeypatch.setitem(PROMPTS, "answer_tags", PROMPTS["answer_tags"]._replace(system="Think."))
    rows.append(sft_row(problem, "answer_tags"))
    path = tmp_path / "rows.jsonl"
    write_rows(path, rows)
    columns = ("completion", "answers", "answer_form")
    batch = zip(*([row[name] for name in columns] for row in read_problems(str(path))), strict=True)
    grades = grade_rollouts(*batch, think_prefilled=False, final_number=False)
    assert [grade.verdict for grade in grades] == ["right", "right"]


def test_rows():
    problem = Problem("p-1", "toy", "What is 1+1?", ("2",), "1 + 1 = 2", 3)
    row = grpo_row(problem, "none")
    assert row == {
        "id": "p-1", "source": "toy", "level": 3, "subject": "",
        "prompt": [{"role": "user", "content": "What is 1+1?"}], "question": "What is 1+1?",
        "answers": ["2"], "answer_form": "box",
    }  # fmt: skip
    several = dataclasses.replace(problem, answers=("2", "4/2"))
    assert grpo_row(several, "think")["answers"] == ["2", "4/2"]
    assert sft_row(several, "think")["answers"] == ["2"]
    completion = "<think>\n1 + 1 = 2\n</think>\n\n<answer>2</answer>"
    tagged = sft_row(problem, "answer_tags")
    assert tagged == grpo_row(problem, "answer_tags") | {"completion": completion}
    assert tagged["answer_form"] == "tags"
    raw = dataclasses.replace(problem, raw_prompt="<|User|>1 + 1?<|Assistant|>")
    assert grpo_row(raw, "boba") == grpo_row(problem, "boba") | {"prompt": raw.raw_prompt}
    assert sft_row(problem, "none", "tags") == row | {
        "completion": completion, "answer_form": "tags"
    }  # fmt: skip


@table
def test_a_row_that_no_stage_could_use_is_refused_by_line(tmp_path, change, words):
    sound = {"id": "p", "prompt": build_prompt("1 + 1?"), "answers": ["2"], "answer_form": "box"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(sound) + "\n" + json.dumps(sound | change) + "\n")
    rows = read_problems(str(path))
    assert next(rows) == sound
    refused(words, next, rows)
