"""Pass rates and traces from samples, without a model: what is kept, which keys are refused."""

import tempfile
from pathlib import Path

import pytest
import yaml

from data_prep.sampling import ProblemSetArguments
from data_prep.sampling.keys import READ_BY, check_sampling
from data_prep.sampling.problems import SampledSet, load_pass_counts, load_problems
from data_prep.sampling.store import Completion, SampleStore
from eval.harness.settings import EvalArguments
from grading.grade import Grade, grade_all
from pipeline.errors import UserError
from pipeline.key_types import known_keys, own_keys
from pipeline.prompts import build_completion, build_prompt
from pipeline.settings import convert, read_settings, run_check
from stages.difficulty import write_rates
from stages.distill import DistillArguments, check_keys, choose_traces, trace_row
from tests.files import read_rows, write_rows
from tests.recipes import SCORING, SHIPPED

PATHS = {"model_name_or_path": "m", "problems_file": "p", "output_dir": "o"}


def right(answer):
    return Completion(f"<think>so</think> \\boxed{{{answer}}}", 9, False)


CUT = Completion("<think>so, so, s", 12, True)
# Problem a has several golds; b was cut off once, and once after its answer; c is never right.
SAMPLES = {
    "a": [right("14"), right("014"), right("7")],
    "b": [right("3"), Completion("<think>so</think> \\boxed{3} so", 12, True), CUT],
    "c": [Completion("\\boxed{5}", 4, False), right("\\text{x}"), Completion("", 1, False)],
}
GOLDS = {"a": ["7", "14"], "b": ["3"], "c": ["5"]}


@pytest.mark.parametrize("at_once", [1, 4, 1024])
def test_rates(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("data_prep.sampling.problems.GRADED_AT_ONCE", at_once)
    rows = [
        {"id": name, "prompt": build_prompt(name), "answers": golds, "answer_form": "box"}
        for name, golds in GOLDS.items()
    ]
    problems = SampledSet(rows, list(GOLDS), False, ProblemSetArguments(**PATHS, num_samples=3))
    assert {one.place for one in problems.requests(1)} == {"p: b: "}
    store, path = SampleStore(tmp_path / "samples", "model"), tmp_path / "pass_rates.jsonl"
    for number, name in enumerate(GOLDS):
        for request, completion in zip(problems.requests(number), SAMPLES[name], strict=True):
            store.add(request, completion)
    counts = write_rates(path, problems, store, "0123456789ab")
    common = {"num_samples": 3, "checkpoint": "0123456789ab"}
    found = {"a": (3, 0, {"right": 3}), "b": (2, 2, {"right": 2, "unclosed_think": 1})}
    found["c"] = (0, 0, {"no_think": 2, "wrong": 1})
    assert read_rows(path) == [
        {"id": name, "num_right": num_right, "num_cut_off": num_cut, "verdicts": verdicts} | common
        for name, (num_right, num_cut, verdicts) in found.items()
    ]
    assert counts == {
        "problems": 3,
        "num_right_histogram": {"0": 1, "1": 0, "2": 1, "3": 1},
        "verdicts": {"right": 5, "no_think": 2, "unclosed_think": 1, "wrong": 1},
        "cut_off_share": round(2 / 9, 4),
        "tokens": 27 + 33 + 14,
    }
    assert load_pass_counts(str(path)) == {"a": (3, 3), "b": (2, 3), "c": (0, 3)}


def test_reading_problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    row = {"id": "a", "prompt": build_prompt("2+2?"), "answers": ["4"], "answer_form": "box"}
    write_rows(path, [row, row | {"answers": ["x ="]}])
    assert load_problems(str(path), 1) == [row]
    with pytest.raises(UserError, match=r"problems\.jsonl:2: answers: 'x =' cannot be parsed"):
        load_problems(str(path), None)
    for rows, words in (([row] * 2, "id 'a'"), ([row | {"id": 7}], "id 7"), ([], "no rows")):
        write_rows(path, rows)
        with pytest.raises(UserError, match=f"problems_file: .*{words}"):
            load_problems(str(path), None)


def pass_counts_of(line):
    """Of a file whose second line this is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pass_rates.jsonl"
        path.write_text('{"id": "z", "num_right": 1, "num_samples": 4}\n' + line)
        return load_pass_counts(str(path))


def test_a_problem_set_needs_samples():
    """An evaluation may do with its greedy completions."""
    with pytest.raises(UserError, match=r"^x: num_samples: must be at least 1"):
        convert("num_samples", 0, own_keys(ProblemSetArguments)["num_samples"], "x")


# Keys that another backend reads.

CONFIGS = Path(__file__).parents[3] / "configs"
SERVER = {"backend": "openai", "base_url": "http://localhost:8000/v1"}
# Arguments, the keys that they need, the check.
NEEDED = "output_dir: o, model_name_or_path: m, problems_file: p"
STAGES = {
    "eval": (EvalArguments, "output_dir: o, checkpoints: [a=b], report_dir: r", check_sampling),
    "difficulty": (ProblemSetArguments, NEEDED, check_sampling),
    "distill": (DistillArguments, NEEDED, check_keys),
}


def read(stage, text, path, *argv):
    own, needed, _ = STAGES[stage]
    server = f"backend: openai, base_url: '{SERVER['base_url']}'"
    path.write_text(f"{{{needed}, {text.replace('SERVER', server)}}}", encoding="utf-8")
    return read_settings(own, (), ["--config", str(path), *argv])


def check_keys_of(stage, text):
    with tempfile.TemporaryDirectory() as folder:
        return STAGES[stage][2](read(stage, text, Path(folder) / "x.yaml"))


def test_another_backend_on_the_command_line_overrules_a_key(tmp_path):
    text, path = "backend: hf, batch_size: 8", tmp_path / "x.yaml"
    run_check(read("eval", text, path, "--backend", "vllm"), check_sampling)
    both = read("eval", text, path, "--backend", "vllm", "--batch_size", "4")
    with pytest.raises(UserError, match="batch_size: 4"):
        run_check(both, check_sampling)


def test_recipes_have_no_such_key():
    known = {key for own, *_ in STAGES.values() for key in known_keys(own)}
    assert {key for keys in READ_BY.values() for key in keys} <= known
    for stage, (own, _, check) in STAGES.items():
        paths = [CONFIGS / name / f"{stage}.yaml" for name in (*SHIPPED, *SCORING)]
        for path in filter(Path.exists, paths):
            given = ["--checkpoints", "base=b"] if stage == "eval" else []
            check(read_settings(own, (), ["--config", str(path), *given]))


def arguments(changes):
    return DistillArguments(**PATHS | changes)


def choose(texts, cut_off, keep):
    """The thoughts that are kept, and why the others are dropped."""
    completions = [Completion(text, 9, number in cut_off) for number, text in enumerate(texts)]
    found, lost = choose_traces(completions, grade_all(texts, [["4"]] * len(texts)), keep)
    return [*found], dict(lost)


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
