"""`eval.run` with a scripted model, by hand, and `make eval MODEL= TASKS=` with a real one."""

import contextlib
import importlib
import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from data_prep.sampling.store import Settings
from eval.harness.cached_lm import read_settings
from pipeline import commands, scoring
from pipeline import request as requests
from pipeline.errors import UserError
from tests.integration.harness.eval_runs import (
    Scripted,
    copy_with,
    counting,
    evaluate,
    read_rows,
    read_scores,
    write_problems,
)
from tests.results import left_in

pytestmark = pytest.mark.integration
CASES = yaml.safe_load(Path(__file__).with_name("scripted.yaml").read_text(encoding="utf-8"))
PROBLEMS = CASES["problems"]
QUESTIONS = {question: gold for question, (gold, *_) in PROBLEMS.items()}
ASKED = {"num_samples": 4, "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 11, "seed": 5}


def completion(kind, gold):
    """`(text, whether it was cut off)` of one kind of completion."""
    text, is_cut, _ = CASES["kinds"][kind]
    return text.replace("GOLD", gold), is_cut


def write(request):
    """What the checkpoint answers to a request."""
    question = next(question for question in QUESTIONS if question in request.prompt)
    gold, greedy, sampled = PROBLEMS[question]
    kind = sampled[request.sample] if request.settings.temperature else greedy
    return completion(kind, gold)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory, tiny_model_dir):
    """The folder of an evaluation, its engine, and what it has said."""
    folder, out = tmp_path_factory.mktemp("scripted"), io.StringIO()
    write_problems(folder / "test.jsonl", QUESTIONS)
    engine = Scripted(tiny_model_dir, write)
    with contextlib.redirect_stdout(out):
        engine.evaluate(folder, "sft", **ASKED)
    return folder, engine, out.getvalue()


def test_what_a_run_leaves(scripted, tiny_model_dir):
    folder, _, out = scripted
    assert out.startswith("eval: 1 checkpoint (1 now, in ") and out.count("\n") == 1
    assert "on 5 problems of held_out, 25 completions each; results in " in out
    sft = folder / "eval/sft"
    names = sorted(path.name for path in sft.iterdir())
    assert names == ["completions.parquet", "samples", "scores.json"]
    scores, rows = read_scores(sft), read_rows(sft)
    assert scores["checkpoint"] == str(tiny_model_dir)
    assert (scores["num_problems"], scores["num_completions"]) == (5, 25)
    assert scores["num_tokens"] == sum(row["num_tokens"] for row in rows)
    manifest = json.loads((folder / "eval/manifest.json").read_text())
    assert manifest["counts"] == {"problems": 5, "completions": 25}
    assert [*manifest["files"]] == [
        f"{sft.readlink()}/{name}" for name in ("scores.json", "completions.parquet")
    ]
    assert manifest["inputs"] == {
        f"{folder}/test.jsonl": scores["fingerprint"]["data"][f"{folder}/test.jsonl"],
        str(tiny_model_dir): scores["fingerprint"]["checkpoint"],
    }


def test_every_completion_has_its_row(scripted):
    rows = read_rows(scripted[0] / "eval/sft")
    order = [("held_out", "greedy", f"p{i}", 0) for i in range(5)]
    order += [("held_out", "sampled", f"p{i}", k) for i in range(5) for k in range(4)]
    assert [(r["task"], r["mode"], r["id"], r["sample"]) for r in rows] == order
    kinds = [greedy for _, greedy, _ in PROBLEMS.values()]
    kinds += [kind for *_, sampled in PROBLEMS.values() for kind in sampled]
    for row, kind in zip(rows, kinds, strict=True):
        (gold,) = row["gold"]
        assert QUESTIONS[row["question"]] == gold and row["level"] == int(row["id"][1]) + 1
        text, is_cut = completion(kind, gold)
        assert (row["completion"], row["cut_off"]) == (text, is_cut)
        outcome = CASES["kinds"][kind][-1]
        assert (row["outcome"], row["score"]) == (outcome, float(outcome == "right"))
        assert row["num_tokens"] == (32 if is_cut else 10)
        assert row["prompt"].endswith(f"{row['question']}<|im_end|>\n<|im_start|>assistant\n")


def test_sampled_metrics_by_hand(scripted):
    found = read_scores(scripted[0] / "eval/sft")["tasks"]["held_out"]["sampled"]
    assert (found["num_problems"], found["main"]) == (5, "avg@4")
    # Right of four: A 4 (the cut comes after the answer), B 1, C 1, D 0, E 2.
    #   avg@4   1, 1/4, 1/4, 0, 1/2                                        sum 2
    #   pass@2  1, 1 - C(3,2)/6, the same, 0, 1 - C(2,2)/6 = 5/6           sum 17/6
    #   pass@4  1, 1, 1, 0, 1                                              sum 4
    #   maj@4   A 1. B: one against two, 0. C: one against one, the others abstain, 1/2.
    #           D: nobody votes for it, 0. E: two against one and one, 1.  sum 5/2
    #   answer_right  A 4, B 2 (unboxed), C 3 (repeated, cut), D 1 (unclosed), E 2   sum 12/4
    #   format_rate   A 4, B 3 (unboxed), C 2, D 0, E 4                              sum 13/4
    #   cut_off_rate  A 1, C 1, D 2                                                  sum 4/4
    #   length        four of 32 tokens, sixteen of 10
    assert {name: one["value"] for name, one in found["metrics"].items()} == pytest.approx(
        {
            "avg@4": 2 / 5, "pass@2": 17 / 30, "pass@4": 4 / 5, "maj@4": 1 / 2,
            "answer_right": 12 / 20, "format_rate": 13 / 20, "cut_off_rate": 4 / 20,
            "completion_length": (4 * 32 + 16 * 10) / 20,
        }
    )  # fmt: skip


def test_what_each_mode_asks_for(scripted):
    """From the recipe to the engine; nothing is left to a checkpoint's or the harness's taste."""
    engine, greedy = scripted[1], Settings(11)
    sampled = replace(greedy, temperature=0.6, top_p=0.9, seed=5)
    assert (greedy.until, greedy.rendered, greedy.temperature) == ((), True, 0.0)
    found = [(one.settings, one.sample, one.place) for one in engine.asked]
    places = [f"held_out: p{i}: " for i in range(5)]
    expected = [(greedy, 0, place) for place in places]
    expected += [(sampled, k, place) for place in places for k in range(4)]
    assert len(found) == 25 and {*found} == {*expected}


def test_generation_settings_of_a_task():
    """An official task's; those of ours are above."""
    from lm_eval.models.huggingface import HFLM

    official = {"do_sample": False, "temperature": 0.7, "top_p": 0.5, "until": "a"}
    limit = HFLM.max_gen_toks.fget(None)
    assert read_settings(official, 9) == Settings(limit, until=("a",), rendered=False)


def test_an_evaluation_that_fails_costs_no_earlier_result(tmp_path, tiny_model_dir):
    write_problems(tmp_path / "test.jsonl", {"How many pens? " * 200: "2"})
    Scripted(tiny_model_dir, lambda _: ("", False)).evaluate(tmp_path)
    before = left_in(tmp_path / "eval")
    with pytest.raises(UserError, match=r"^held_out: p0: .* exceed the model's context of 512"):
        evaluate(tmp_path, f"base={tiny_model_dir}", num_samples=3)
    assert left_in(tmp_path / "eval") == before


def test_text_that_utf_8_lacks(tmp_path, tiny_model_dir):
    """Halves of surrogate pairs, zeros and line ends of other kinds, through store and tables."""
    write_problems(tmp_path / "test.jsonl")
    text = "<think>\n\ud83d\0\u2028\x85\r\n</think>\n\n\\boxed{14}\udc00"
    engine = Scripted(tiny_model_dir, lambda _: (text, False))
    base = engine.evaluate(tmp_path)
    first = read_rows(base)
    (base / "scores.json").unlink()
    engine.evaluate(tmp_path)
    shown = text.replace("\ud83d", "\ufffd").replace("\udc00", "\ufffd")
    assert {row["completion"] for row in first} == {shown}
    assert read_rows(base) == first
    assert {row["score"] for row in first if row["id"] == "p0"} == {1.0}


@pytest.fixture
def score(tmp_path, tiny_model_dir, shared_data, monkeypatch):
    """Run the command in this process; returns the folder of its run, and how much was asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    model = tmp_path / "runs/mine/my model"
    # Its tokens are little more than bytes.
    copy_with(model, tiny_model_dir, max_position_embeddings=4096)

    def call(tasks, samples="2", **given):
        values = {"MODEL": str(model), "DATA_ROOT": str(shared_data), "TASKS": tasks}
        values |= {"SAMPLES": samples, "max_new_tokens": "8", "limit": "3", "dtype": "float32"}
        words = [f"{key}={value}" for key, value in (values | given).items()]
        request = requests.read(["eval", *words], {})
        requests.check_goals(request)
        scoring.check_scoring(request)
        with counting() as asked:
            for command in commands.commands(request):
                _, module, *flags = command.words
                name = {"eval.report": "eval.report.__main__"}.get(module, module)
                monkeypatch.setattr(sys, "argv", [module, *flags])
                importlib.import_module(name).main()
        return Path(request.run), len(asked)

    return call


def test_one_command_scores_a_model_and_another_list_of_tasks_shares_its_completions(score, capsys):
    run, asked = score("math500,aime24")
    assert run.parent.name.startswith("evaluate-my.model-") and run.name == "math500-aime24"
    assert asked == 2 * 3 * (1 + 2)
    assert {path.name for path in run.iterdir() if path.is_dir()} == {"eval", "report"}
    scores = read_scores(run / "eval/my.model")
    assert [*scores["tasks"]] == ["math500", "aime24"]
    assert "avg@2" in scores["tasks"]["aime24"]["sampled"]["metrics"]
    report = json.loads((run / "report/report.json").read_text())
    assert report["title"] == "Scores of my model" and report["stages"] == {}
    assert not [one for modes in report["changes"].values() for one in modes.values() if one]
    page = (run / "report/report.html").read_text()
    assert "paired" not in page and "the change comes from" not in page
    assert f"{run}/report/report.html" in capsys.readouterr().out

    before = (run / "eval/my.model/scores.json").read_bytes()
    other, asked = score("aime24", samples="4")
    assert other != run and asked == 3 * 2  # two more samples of three problems
    assert "avg@4" in read_scores(other / "eval/my.model")["tasks"]["aime24"]["sampled"]["metrics"]
    assert (run / "eval/my.model/scores.json").read_bytes() == before
    assert score("math500,aime24") == (run, 0)


def test_another_recipe_gives_the_prompt_and_another_run_s_card_is_left_alone(score):
    """And no samples leave the greedy completions."""
    trained = Path("runs/mine/my model")
    (trained / "README.md").write_text("its own scores")
    made = {"stage": "grpo", "config": {}, "counts": {}, "files": {}, "inputs": {}}
    (trained / "manifest.json").write_text(json.dumps(made))
    run, asked = score("math500", samples="0", RECIPE="qwen2.5-1.5b", backend="hf")
    assert run.parent.name.startswith("qwen2.5-1.5b-my.model-")
    scores = read_scores(run / "eval/my.model")
    assert scores["settings"]["prompt"] == "think" and scores["settings"]["official"] == []
    (modes,) = scores["tasks"].values()
    assert asked == 3 and [*modes] == ["greedy"]
    page = (run / "report/report.html").read_text()
    assert "avg@" not in page and "greedy accuracy" in page
    assert (trained / "README.md").read_text() == "its own scores"
