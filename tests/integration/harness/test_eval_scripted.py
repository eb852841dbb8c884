"""A scripted model with known errors, through the harness and the scores, by hand."""

import shutil

import pytest

from tests.integration.harness.eval_runs import (
    Scripted,
    evaluate,
    read_rows,
    read_scores,
    recite,
    write_problems,
)

pytestmark = pytest.mark.integration

QUESTIONS = {"What is A?": "4", "What is B?": "5", "What is C?": "6", "What is D?": "7"}
QUESTIONS |= {"What is E?": "1/2"}


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


SAMPLED = {
    "A": ["right", "right", "right", "right, then cut"],
    "B": ["right", "wrong", "wrong", "unboxed"],
    "C": ["right", "repeated", "cut with the answer", "wrong"],
    "D": ["unclosed", "empty", "cut without", "looping"],
    "E": ["right", "right", "wrong", "wrong as well"],
}
GREEDY = ["right", "unboxed", "cut with the answer", "wrong", "unclosed"]


def write(request):
    """What the checkpoint answers to a request."""
    at, question = next((i, q) for i, q in enumerate(QUESTIONS) if q in request.prompt)
    kinds = SAMPLED["ABCDE"[at]] if request.settings.temperature else [GREEDY[at]]
    return completion(kinds[request.sample], QUESTIONS[question])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model_dir):
    """The results of the checkpoint."""
    folder = tmp_path_factory.mktemp("scripted")
    write_problems(folder / "test.jsonl", QUESTIONS)
    engine = Scripted(tiny_model_dir, write)
    with recite(**{tiny_model_dir.name: engine}):
        found = evaluate(folder, f"sft={tiny_model_dir}", num_samples=4)
    assert len(engine.asked) == 5 + 20
    return found


def values(metrics):
    return {name: metric["value"] for name, metric in metrics.items()}


def test_sampled_metrics_by_hand(folder):
    found = read_scores(folder)["tasks"]["held_out"]["sampled"]
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
    assert values(found["metrics"]) == pytest.approx(
        {
            "avg@4": 2 / 5, "pass@2": 17 / 30, "pass@4": 4 / 5, "maj@4": 1 / 2,
            "answer_right": 12 / 20, "format_rate": 13 / 20, "cut_off_rate": 4 / 20,
            "completion_length": (4 * 32 + 16 * 10) / 20,
        }
    )  # fmt: skip


OUTCOMES = {
    "right": "right", "right, then cut": "right", "wrong": "wrong", "wrong as well": "wrong",
    "unboxed": "unread", "repeated": "unread", "looping": "cut off",
    "cut with the answer": "cut off", "cut without": "cut off", "unclosed": "unclosed",
    "empty": "no answer",
}  # fmt: skip


def test_every_completion_has_its_outcome(folder):
    rows = read_rows(folder)
    order = [("held_out", "greedy", f"p{i}", 0) for i in range(5)]
    order += [("held_out", "sampled", f"p{i}", k) for i in range(5) for k in range(4)]
    assert [(r["task"], r["mode"], r["id"], r["sample"]) for r in rows] == order
    kinds = GREEDY + [kind for problem in "ABCDE" for kind in SAMPLED[problem]]
    for row, kind in zip(rows, kinds, strict=True):
        (gold,) = row["gold"]
        text, is_cut = completion(kind, gold)
        assert (row["completion"], row["cut_off"]) == (text, is_cut)
        assert row["outcome"] == OUTCOMES[kind]
        assert row["score"] == float(OUTCOMES[kind] == "right")
        assert row["num_tokens"] == (32 if is_cut else 10)
        assert row["prompt"].endswith(f"{row['question']}<|im_end|>\n<|im_start|>assistant\n")


def test_another_reading_is_scored_without_asking_the_model(tmp_path, tiny_model_dir):
    """`final_number` makes "The answer is 5." right: the same completions, other scores."""
    write_problems(tmp_path / "test.jsonl", QUESTIONS)
    shutil.copytree(tiny_model_dir, tmp_path / "sft")
    engine = Scripted(tiny_model_dir, write)
    with recite(sft=engine):
        for final_number, accuracy, average in ((False, 1 / 5, 8 / 20), (True, 2 / 5, 9 / 20)):
            folder = evaluate(
                tmp_path, f"sft={tmp_path}/sft", num_samples=4, final_number=final_number,
                output_dir=tmp_path / str(final_number), samples_dir=tmp_path / "samples",
            )  # fmt: skip
            tasks = read_scores(folder)["tasks"]["held_out"]
            assert tasks["greedy"]["metrics"]["accuracy"]["value"] == pytest.approx(accuracy)
            assert tasks["sampled"]["metrics"]["avg@4"]["value"] == pytest.approx(average)
            assert len(engine.asked) == 25
