"""Distillation from its command line: a server's traces, killed runs, teachers of one's own."""

import json
import os
import sys
from unittest import mock

import pytest

from data_prep.sampling import problems as problems_module
from pipeline import manifest
from pipeline.prompts import PROMPTS, build_completion
from stages import distill
from tests.files import read_rows
from tests.integration.conftest import build_tiny_model
from tests.integration.harness.eval_runs import Scripted, write_problems
from tests.integration.sampling.test_openai_engine import answer, serve

pytest.importorskip("openai", reason="the extra `distill` has the client")
pytestmark = pytest.mark.integration
NUM_PROBLEMS, NUM_SAMPLES = 12, 3
TOTAL = NUM_PROBLEMS * NUM_SAMPLES


@pytest.fixture
def problems(tmp_path):
    """Problem n asks for n + n; the first has two golds."""
    path = tmp_path / "problems.jsonl"
    golds = {f"{n} + {n}?": str(2 * n) for n in range(NUM_PROBLEMS)}
    write_problems(path, golds | {"0 + 0?": ["-1", "0"]})
    return path


def teach(body, _=0):
    """Right for even numbers, else wrong, by a thought that the seed decides."""
    number = int(body["messages"][-1]["content"].split()[0])
    reasoning = f"{number} and {number}, says {body['seed']}"
    return answer(f"\\boxed{{{2 * number if number % 2 == 0 else -7}}}", reasoning)


def tagged(body, _=0):
    """As `teach`, with its answer in tags."""
    found = teach(body)
    message = found["choices"][0]["message"]
    message["content"] = message["content"].replace("\\boxed{", "<answer>")[:-1] + "</answer>"
    return found


def recite(thought, cut=()):
    """A checkpoint of one's own that is always right; the samples numbered `cut` are cut off."""

    def write(request):
        number = int(request.prompt.partition("user\n")[2].split()[0])
        text = f"<think>\n{thought.format(request.sample)}\n</think>\n\n\\boxed{{{2 * number}}}"
        if request.prompt.endswith("<think>\n"):
            text = text.removeprefix("<think>")
        return text, request.sample in cut

    return write


SERVER = {"backend": "openai", "base_url": "http://server.test/v1"}
SERVER |= {"model_name_or_path": "teacher", "concurrency": 4}


def run(folder, problems, **changes):
    """`python -m stages.distill` in this process; returns the rows of traces.jsonl."""
    values = {"problems_file": problems, "output_dir": folder, "num_samples": NUM_SAMPLES}
    values |= {"max_new_tokens": 16} | changes
    flags = [str(part) for key, value in values.items() for part in (f"--{key}", value)]
    with mock.patch.object(sys, "argv", ["distill", *flags]), mock.patch.dict(os.environ):
        distill.main()
    lines = (folder / "traces.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_server_s_traces(problems, tmp_path, capsys):
    folder = tmp_path / "out"
    with serve(teach) as server:
        rows = run(folder, problems, **SERVER, keep=2)
        assert len(server.requests) == TOTAL
        assert len({json.dumps(request) for request in server.requests}) == TOTAL
    assert [(row["id"], row["trace"]) for row in rows] == [
        (f"p{n}", trace) for n in range(0, NUM_PROBLEMS, 2) for trace in range(2)
    ]
    assert rows[3]["completion"] == build_completion(rows[3]["solution"], "4")
    assert rows[0]["answers"] == ["0", "-1"], "first the gold that the teacher found"
    assert all(row["solution"].startswith(row["question"].split()[0] + " and ") for row in rows)
    written = manifest.read(folder)
    assert written["counts"]["verdicts"] == {"right": TOTAL // 2, "wrong": TOTAL // 2}
    assert written["counts"]["problems_without_a_trace"] == NUM_PROBLEMS // 2
    assert written["dropped"] == {"not_needed": NUM_PROBLEMS // 2, "wrong": TOTAL // 2}
    assert (written["samples_in"], written["samples_out"], len(rows)) == (TOTAL, 12, 12)
    assert written["inputs"] == {str(problems): manifest.sha256(problems)}
    assert written["teachers"] == {"teacher": "openai teacher"}
    assert {row["teacher"] for row in rows} == {"teacher"}
    out, err = capsys.readouterr()
    assert out.startswith("distill: 12 problems, 36 samples, 12 traces kept, dropped 24: wrong 18,")
    assert out.count("\n") == 1 and err == ""

    # The server is gone, and is not missed.
    assert run(folder, problems, **SERVER, keep=2) == rows
    assert "distill: up to date" in capsys.readouterr().out
    (folder / "manifest.json").unlink()
    assert run(folder, problems, **SERVER, keep=2) == rows
    assert "distill: 36 samples are already stored\n" in capsys.readouterr().out
    with serve(teach) as server:  # more samples extend, of any address, but of this model
        changes = {"base_url": "http://other.test/v1", "num_samples": 5, "concurrency": 1}
        assert run(folder, problems, **SERVER | changes, keep=2) == rows
        assert len(server.requests) == 2 * NUM_PROBLEMS
        run(folder, problems, **SERVER | {"model_name_or_path": "other"})
        assert len(server.requests) == TOTAL + 2 * NUM_PROBLEMS


def test_two_teachers_of_the_same_problems(problems, tmp_path, tiny_model_dir, capsys):
    """A server and a checkpoint: one file, which the data build takes with both traces."""
    from data_prep.builder import __main__ as build

    own = {"name": "own", "model_name_or_path": str(tiny_model_dir), "dtype": "float32"}
    server = SERVER | {"name": "QwQ", "prompt": "answer_tags", "keep": 2}
    others = [server, own | {"num_samples": 1}]
    recipe, folder, load = tmp_path / "distill.yaml", tmp_path / "out", problems_module.load_engine
    recipe.write_text(json.dumps({"teachers": others}))

    def load_engine(checkpoint, key, args, rank):
        is_server = args.backend == "openai"
        if is_server:
            return load(checkpoint, key, args, rank)
        return Scripted(tiny_model_dir, recite("by hand"))

    with serve(tagged) as server, mock.patch.object(problems_module, "load_engine", load_engine):
        rows = run(folder, problems, config=recipe)
    asked = {request["messages"][0]["content"] for request in server.requests}
    assert asked == {PROMPTS["answer_tags"].system}
    each = ["QwQ", "QwQ", "own"]
    assert [(row["id"], row["teacher"], row["trace"]) for row in rows] == [
        (f"p{n}", name, trace)
        for n in range(NUM_PROBLEMS)
        for trace, name in enumerate(each if n % 2 == 0 else ["own"])
    ]
    prompts = {row["id"]: row["prompt"] for row in read_rows(problems)}
    assert all(row["prompt"] == prompts[row["id"]] for row in rows)
    written = manifest.read(folder)
    assert written["counts"]["traces_by_teacher"] == {"QwQ": 12, "own": 12}
    assert written["counts"]["problems_without_a_trace"] == 0
    assert (written["samples_in"], written["samples_out"]) == (TOTAL + NUM_PROBLEMS, 24)
    assert written["teachers"]["QwQ"] == "openai teacher"

    # Nothing is asked again, and the build has both teachers' traces of a problem.
    (folder / "manifest.json").unlink()
    assert run(folder, problems, config=recipe) == rows
    data = tmp_path / "data.yaml"
    source = {"name": "traces", "file": str(folder / "traces.jsonl")}
    data.write_text(json.dumps({"output_dir": str(tmp_path / "data"), "sft": [source]}))
    with mock.patch.object(sys, "argv", ["build", "--config", str(data)]):
        build.main()
    assert len(read_rows(tmp_path / "data/sft_train.jsonl")) == len(rows)


@pytest.mark.parametrize("is_prefilled", [False, True])
def test_a_teacher_of_one_s_own(problems, tmp_path, is_prefilled):
    model = tmp_path / "model"
    model.mkdir()
    build_tiny_model(model)
    if is_prefilled:
        template = model / "chat_template.jinja"
        assert "assistant\n{%" in template.read_text()
        template.write_text(template.read_text().replace("assistant\n{%", "assistant\n<think>\n{%"))
    engine = Scripted(model, recite("no. {}", (0,)))
    with mock.patch("data_prep.sampling.problems.load_engine", return_value=engine):
        rows = run(tmp_path / "out", problems, model_name_or_path=model, dtype="float32")
    tail = "<|im_start|>assistant\n" + ("<think>\n" if is_prefilled else "")
    assert {request.prompt.endswith(tail) for request in engine.asked} == {True}
    assert [row["solution"] for row in rows] == ["no. 1"] * NUM_PROBLEMS
    assert manifest.read(tmp_path / "out")["dropped"] == {
        "cut_off": NUM_PROBLEMS, "not_needed": NUM_PROBLEMS
    }  # fmt: skip
