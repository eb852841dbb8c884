"""`eval.run` with a scripted model, whose errors are counted by hand: what it asks and leaves."""

import contextlib
import io
import json
from dataclasses import replace

import pytest

from data_prep.sampling.store import Settings
from eval.harness.cached_lm import read_settings
from pipeline.errors import UserError
from tests.integration.harness.eval_runs import (
    Scripted,
    evaluate,
    read_rows,
    read_scores,
    write_problems,
)
from tests.results import left_in

pytestmark = pytest.mark.integration
QUESTIONS = {"What is A?": "4", "What is B?": "5", "What is C?": "6", "What is D?": "7"}
QUESTIONS |= {"What is E?": "1/2"}
SAMPLED = {
    "A": ["right", "right", "right", "right, then cut"],
    "B": ["right", "wrong", "wrong", "unboxed"],
    "C": ["right", "repeated", "cut with the answer", "wrong"],
    "D": ["unclosed", "empty", "cut without", "looping"],
    "E": ["right", "right", "wrong", "wrong as well"],
}
GREEDY = ["right", "unboxed", "cut with the answer", "wrong", "unclosed"]
OUTCOMES = {
    "right": "right", "right, then cut": "right", "wrong": "wrong", "wrong as well": "wrong",
    "unboxed": "unread", "repeated": "unread", "looping": "cut off",
    "cut with the answer": "cut off", "cut without": "cut off", "unclosed": "unclosed",
    "empty": "no answer",
}  # fmt: skip
ASKED = {"num_samples": 4, "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 11, "seed": 5}


def block(answer):
    return f"<think>\nSo it is.\n</think>\n\n\\boxed{{{answer}}}"


def completion(kind, gold):
    """`(text, whether it was cut off)` of one kind of completion."""
    right = block(gold)
    return {
        "right": (right, False),
        "right, then cut": (right + "\n\nBecause", True),
        "wrong": (block(99), False),
        "wrong as well": (block(98), False),
        "unboxed": (f"<think>\nSo it is.\n</think>\n\nThe answer is {gold}.", False),
        "repeated": (f"{right}\n\n{right}", False),
        "looping": ("<think>\n" + "Wait, no. " * 20, True),
        "cut with the answer": (f"<think>\nIt is \\boxed{{{gold}}}. But wait", True),
        "cut without": ("<think>\nLet me see", True),
        "unclosed": (f"<think>\nSo it is \\boxed{{{gold}}}", False),
        "empty": ("", False),
    }[kind]


def write(request):
    """What the checkpoint answers to a request."""
    at, question = next((i, q) for i, q in enumerate(QUESTIONS) if q in request.prompt)
    kinds = SAMPLED["ABCDE"[at]] if request.settings.temperature else [GREEDY[at]]
    return completion(kinds[request.sample], QUESTIONS[question])


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
    kinds = GREEDY + [kind for problem in "ABCDE" for kind in SAMPLED[problem]]
    for row, kind in zip(rows, kinds, strict=True):
        (gold,) = row["gold"]
        assert QUESTIONS[row["question"]] == gold and row["level"] == int(row["id"][1]) + 1
        text, is_cut = completion(kind, gold)
        assert (row["completion"], row["cut_off"]) == (text, is_cut)
        assert row["outcome"] == OUTCOMES[kind]
        assert row["score"] == float(OUTCOMES[kind] == "right")
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
