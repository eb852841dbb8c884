"""Thoughts of other sets: one well-formed thought is taken, all else is left out by name."""

from pathlib import Path

import pytest
import yaml

from data_prep.sources.base import Drop, find_reply
from data_prep.sources.solutions import strip_ending
from data_prep.sources.thoughts import read_thought
from pipeline.errors import UserError
from tests.files import read_rows, write_rows
from tests.unit.builder.helpers import run

CASES = yaml.safe_load(Path(__file__).with_name("thoughts.yaml").read_text(encoding="utf-8"))
SOURCE = {"name": "generic", "file": "rows.jsonl", "prompt_key": "q", "answer_key": "a"}
SKY = ("<|begin_of_thought|>", "<|end_of_thought|>")


@pytest.mark.parametrize(("start", "end"), CASES["markup"])
def test_one_thought_in_any_markup(start, end):
    reply = f"{start}\n\nSo it is 5.\n\n{end}\n\nThe answer is \\boxed{{5}}."
    assert read_thought(reply) == "So it is 5."
    assert read_thought(f"<|im_start|>assistant\n{reply}<|im_end|>") == "So it is 5."
    assert read_thought(reply.partition(start)[2]) == "So it is 5."  # a template opened it
    for text, reason in (
        (f"{start}a", "unclosed_thought"),
        (f"{end}a{start}", "unclosed_thought"),
        (f"{reply}{reply}", "several_thoughts"),
        (f"Sure. {reply}", "text_before_thought"),
        (f"{start}a{end}<answer>\n</answer><|im_end|>", "no_answer_after_thought"),
        (f"{start}\n{end}5", "empty_thought"),
        (f"{start}a<|unheard_of|>b{end}5", "unknown_markup"),
        (f"{start}a</scratchpad>5", "mixed_markup"),
    ):
        with pytest.raises(Drop, match=reason):
            read_thought(text)


def test_behind_the_thought_its_own_markup_goes():
    solution = "<|begin_of_solution|>\n\n\\boxed{5}\n\n<|end_of_solution|>"
    assert read_thought(f"{SKY[0]}\n\na\n\n{SKY[1]}\n\n{solution}") == "a"
    with pytest.raises(Drop, match="unknown_markup"):
        read_thought(solution)  # no thought at all


@pytest.mark.parametrize(
    "text", ["", "If $a<b$ and b>c, [think] of |x|<3.", "<b>Since</b> \\[x<y\\]"]
)
def test_a_plain_solution_stays(text):
    assert read_thought(text) == text


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_a_thought_beside_the_content_of_a_turn(name):
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2", name: "a"}]
    assert read_thought(find_reply(turns, with_thought=True)) == "a"
    assert find_reply(turns) == "2"
    turns[1]["content"] = "<think>b</think>2"
    with pytest.raises(Drop, match="several_thoughts"):
        read_thought(find_reply(turns, with_thought=True))


def test_sft_has_bare_thoughts_and_leaves_out_what_is_malformed(tmp_path):
    """GRPO keeps those problems: it has no thoughts."""
    replies = [
        f"{SKY[0]}\n\none and one\n\n{SKY[1]}\n\n<|begin_of_solution|>2<|end_of_solution|>",
        f"{SKY[0]}two and one",
        "<think>three</thinking>4",
        "So 4 + 1 = <<4+1=5>>5 legs.\n#### 5\n~a user",
    ]
    rows = [
        {"q": f"What is {n} plus 1?", "a": str(n + 1), "s": text}
        for n, text in enumerate(replies, 1)
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    source = SOURCE | {"solution_key": "s"}
    folder, made = run(tmp_path, {"sft": [source], "grpo": [source]})
    found = [row["completion"] for row in read_rows(folder / "sft_train.jsonl")]
    assert found == [
        "<think>\none and one\n</think>\n\n\\boxed{2}",
        "<think>\nSo 4 + 1 = 5 legs.\n</think>\n\n\\boxed{5}",
    ]
    assert made["dropped"] == {"unclosed_thought": 1, "mixed_markup": 1}
    assert len(read_rows(folder / "grpo_train.jsonl")) == 4


@pytest.mark.parametrize("end", CASES["signatures"])
def test_what_is_no_thought_goes_from_the_end_of_a_solution(end):
    assert strip_ending(f"So it is 8.{end}", ("8",)) == "So it is 8."
    marked = f"4 * 2 = <<4*2=8>>8 legs\n#### 8{end}"
    for text in (marked, f"{marked}\nThank you for reading."):
        assert strip_ending(text, ("8",)) == "4 * 2 = 8 legs"


@pytest.mark.parametrize("end", CASES["kept"])
def test_what_may_be_a_thought_stays(end):
    assert strip_ending(f"So it is 8.{end}", ("8",)) == f"So it is 8.{end}"


def test_the_first_generation_that_was_judged_correct_is_taken(tmp_path):
    good = "<think>good</think>2"
    generations = ["<think>bad</think>3", "<think>cut", good]
    rows = [
        {"generations": generations, "ok": [False, True, True], "whole": [True, False, True]},
        {"generations": generations[:1], "ok": [False], "whole": [True]},
        {"generations": generations[:1], "ok": [None], "whole": [True]},
    ]
    rows = [row | {"q": f"Add 1 and 1 on day {n}.", "a": "2"} for n, row in enumerate(rows)]
    write_rows(tmp_path / "rows.jsonl", rows)
    source = SOURCE | {"solution_key": "generations", "solution_if": ["ok", "whole"]}
    folder, made = run(tmp_path, {"sft": [source]})
    (row,) = read_rows(folder / "sft_train.jsonl")
    assert row["completion"].startswith("<think>\ngood\n</think>")
    assert made["dropped"] == {"no_correct_solution": 2}
    write_rows(tmp_path / "rows.jsonl", [rows[0] | {"ok": [True]}])
    with pytest.raises(UserError, match=r"ok: .* as long as generations"):
        run(tmp_path, {"sft": [source]})
    del source["solution_key"]
    with pytest.raises(UserError, match="solution_key"):
        run(tmp_path, {"sft": [source]})
