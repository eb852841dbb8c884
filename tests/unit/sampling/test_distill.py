"""Distillation without a teacher: which samples are kept, the rows they become, refused keys."""

from pathlib import Path

import pytest
import yaml

from data_prep.sampling.store import Completion
from grading.grade import Grade, grade_all
from pipeline.errors import UserError
from pipeline.prompts import build_completion, build_prompt
from stages.distill import DistillArguments, check_rows, choose_traces, trace_row

PATHS = {"model_name_or_path": "m", "problems_file": "p", "output_dir": "o"}
SERVER = {"backend": "openai", "base_url": "http://localhost:8000/v1"}
FILE = Path(__file__).with_name("keys.yaml")
CASES = yaml.safe_load(FILE.read_text(encoding="utf-8"))["distill refuses"]


@pytest.mark.parametrize(("changes", "key"), CASES)
def test_keys_that_are_refused(changes, key):
    with pytest.raises(UserError, match=f"^{key}\\b"):
        DistillArguments(**PATHS | changes)


def test_the_settings_of_each_teacher():
    """Those of the file, and its own; a single teacher is named after its model."""
    others = [{"name": "QwQ"}, {"name": "R1", "model_name_or_path": "r", "keep": 2}]
    both = DistillArguments(**PATHS | {"num_samples": 3, "teachers": others}).each_teacher()
    found = {
        name: (one.model_name_or_path, one.keep, one.num_samples) for name, one in both.items()
    }
    assert found == {"QwQ": ("m", 1, 3), "R1": ("r", 2, 3)}
    # One of a server and one of our own: null takes the server's address away.
    own = {"name": "own", "backend": "hf", "base_url": None}
    mixed = DistillArguments(**PATHS | SERVER | {"teachers": [{"name": "a"}, own]}).each_teacher()
    assert [(one.backend, one.base_url) for one in mixed.values()] == [
        ("openai", SERVER["base_url"]), ("hf", None)
    ]  # fmt: skip
    assert [*DistillArguments(**PATHS).each_teacher()] == ["m"]


def test_the_perplexity_recipe_names_both_teachers():
    text = Path("configs/perplexity/distill.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text.replace("# teachers:", "teachers:"))
    found = DistillArguments(**values).each_teacher()
    assert [one.model_name_or_path for one in found.values()] == [
        "Qwen/QwQ-32B-Preview", "deepseek-ai/DeepSeek-R1"
    ]  # fmt: skip


def write(thought, answer="4", cut_off=False):
    return Completion(f"<think>\n{thought}\n</think>\n\n\\boxed{{{answer}}}", 9, cut_off)


BARE = Completion("\\boxed{4}", 4, False)
OPEN = Completion("<think>and so on", 4, False)
TWO = Completion("<think>a</think> \\boxed{4} or \\boxed{5}", 4, False)
MUTE = Completion("<think>a</think> that is all", 4, False)
LONG, SHORT = write("a long thought"), write("short")


@pytest.mark.parametrize(
    ("completions", "keep", "kept", "dropped"),
    [
        ([], 1, [], {}),
        ([LONG, SHORT], 9, ["a long thought", "short"], {}),
        ([SHORT, LONG, LONG, SHORT], 1, ["short"], {"duplicate": 2, "not_needed": 1}),
        ([write("short", "5"), SHORT], 1, ["short"], {"wrong": 1}),
        ([write("short", cut_off=True), LONG], 1, ["a long thought"], {"cut_off": 1}),
        (
            [BARE, OPEN, TWO, MUTE, write("x", "?!")], 1, [],
            dict.fromkeys(
                ("no_think", "unclosed_think", "several_answers", "no_answer", "unparseable"), 1
            ),
        ),
    ],
)  # fmt: skip
def test_which_samples_are_kept(completions, keep, kept, dropped):
    grades = grade_all([str(one) for one in completions], [["4"]] * len(completions))
    found, lost = choose_traces(completions, grades, keep)
    assert (list(found), dict(lost)) == (kept, dropped)


def test_a_teacher_with_a_markup_of_its_own():
    texts = [
        "[THINK]a thought[/THINK]\\boxed{4}",
        "<|begin_of_thought|>a<|end_of_thought|>b<|begin_of_thought|>\\boxed{4}",
    ]
    completions = [Completion(text, 9, cut_off=False) for text in texts]
    found, lost = choose_traces(completions, [Grade("right", "4")] * 2, 9)
    assert (list(found), dict(lost)) == (["a thought"], {"several_thoughts": 1})


ROW = {"id": "a", "source": "toy", "question": "2+2?", "answers": ["4"], "level": 2.5}
ROW |= {"own_prompt": build_prompt("2+2?", "think"), "own_form": "box", "answer_form": "box"}


@pytest.mark.parametrize(
    ("golds", "prediction", "answers"),
    [
        (["4"], "\\frac{8}{2}", ["4"]),
        (["7", "4"], "4", ["4", "7"]),
        (["7", "4"], "what math-verify alone can read", ["7", "4"]),
    ],
)
def test_the_gold_of_the_thought_comes_first(golds, prediction, answers):
    found = trace_row(ROW | {"answers": golds, "subject": "sums"}, 1, "QwQ", "so", prediction)
    assert found == {
        "id": "a", "source": "toy", "question": "2+2?", "answers": answers, "solution": "so",
        "teacher": "QwQ", "trace": 1, "level": 2.5, "subject": "sums", "prompt": ROW["own_prompt"],
        "answer_form": "box", "completion": build_completion("so", answers[0]),
    }  # fmt: skip


def test_a_trace_answers_in_the_form_that_its_problem_names():
    found = trace_row(ROW | {"own_form": "tags"}, 0, "QwQ", "so", "4")
    assert found["answer_form"] == "tags"
    assert found["completion"].endswith("<answer>4</answer>")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": "a", "question": " "}], r"file\.jsonl: id 'a': question: missing"),
        ([ROW, ROW | {"id": 7}], r"file\.jsonl: id 7: id: 7 is not text; fix the row"),
        ([ROW | {"level": "hard"}], r"file\.jsonl: id 'a': level: 'hard' is not a number"),
    ],
)
def test_problems_that_cannot_become_traces(rows, words):
    with pytest.raises(UserError, match=f"^problems_file: {words}"):
        check_rows(rows, "file.jsonl")
