"""Right answers to the official tasks score 1 and wrong ones 0; our grader's view stands beside."""

import re
import shutil

import pytest

from eval.harness.suite import OFFICIAL_TASKS
from tests.integration.harness.eval_runs import Scripted, evaluate, read_rows, read_scores, recite
from tests.integration.harness.official_data import MATHS, TASKS, arc, gpqa, gsm8k, write_official

pytestmark = pytest.mark.integration
GSM8K = {row["question"]: row["answer"].split()[-1] for row in gsm8k(3, 1)}
ARC = {
    row["question"]: row["choices"]["text"][row["choices"]["label"].index(row["answerKey"])]
    for row in arc(3, 1)
}
OPTION = re.compile(r"\(([A-D])\) fast neutrons")  # the harness drops the double blank


def last_question(prompt):
    """The question that is asked, after the examples."""
    return re.split(r"Question: |Problem:\s", prompt)[-1].rpartition("\n")[0].strip()


def answer_official(prompt, is_right=True):
    """A completion in the form that the task's own parsers read."""
    if "What is the correct answer to this question:" in prompt:
        (letter,) = OPTION.findall(prompt)
        other = "ABCD"["ABCD".index(letter) - 1]
        return f"So it decays. The answer is ({letter if is_right else other})."
    if "Solution:" in prompt or "Find $a_" in prompt:
        gold = MATHS[int(re.findall(r"Find \$a_(\d)\$", prompt)[-1])]
        gold = gold if is_right else "123"
        final = f"Final Answer: The final answer is ${gold}$. I hope it is correct."
        return final if "Solution:" in prompt else f"It is ${gold}$"
    gold = GSM8K[last_question(prompt)] if is_right else "123"
    return f"Counting them, so #### {gold}"


def engine(checkpoint, is_right):
    def write(request):
        if request.settings.rendered:  # a think-aware task
            return "<think>\nWho knows.\n</think>\n\nNobody.", False
        return answer_official(request.prompt, is_right), False

    def choose(pair):
        if "What is the correct answer to this question:" in pair.prompt:
            (letter,) = OPTION.findall(pair.prompt)
            return (pair.continuation == f" ({letter})") == is_right
        return (pair.continuation == f" {ARC[last_question(pair.prompt)]}") == is_right

    return Scripted(checkpoint, write, choose)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model_dir):
    """The checkpoints `right` and `wrong`, evaluated on every official task."""
    folder = tmp_path_factory.mktemp("official-scripted")
    write_official(folder / "data")
    names = ("right", "wrong")
    for name in names:
        shutil.copytree(tiny_model_dir, folder / name)
    engines = {name: engine(tiny_model_dir, name == "right") for name in names}
    with recite(**engines):
        evaluate(
            folder, *(f"{name}={folder}/{name}" for name in names), tasks=OFFICIAL_TASKS,
            official=OFFICIAL_TASKS, data_root=folder / "data", limit=3,
        )  # fmt: skip
    return folder


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_right_answers_score_one_and_wrong_ones_nothing(folder, name):
    tasks = read_scores(folder / "eval" / name)["tasks"]
    assert list(tasks) == OFFICIAL_TASKS
    found = {
        f"{mode.removeprefix('official:')} {metric}": one["value"]
        for modes in tasks.values()
        for mode, value in modes.items()
        if mode.startswith("official:")
        for metric, one in value["metrics"].items()
    }
    assert set(found.values()) == {float(name == "right")}, found
    assert sorted(found) == [
        "arc_challenge acc,none", "arc_challenge acc_norm,none",
        "gpqa_diamond_cot_zeroshot exact_match,flexible-extract",
        "gpqa_diamond_cot_zeroshot exact_match,strict-match",
        "gpqa_diamond_zeroshot acc,none", "gpqa_diamond_zeroshot acc_norm,none",
        "gsm8k exact_match,flexible-extract", "gsm8k exact_match,strict-match",
        "hendrycks_math500 exact_match,none",
        "minerva_math500 exact_match,none", "minerva_math500 math_verify,none",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_every_row_has_its_problem_and_outcome(folder, name):
    rows = [r for r in read_rows(folder / "eval" / name) if r["mode"].startswith("official:")]
    assert len(rows) == 3 * len(TASKS)
    for row in rows:
        assert (row["score"], row["outcome"]) == (float(name == "right"), name)
        if row["completion"] is None:
            continue
        # No thought: our grader reads no answer, and the lenient reading does.
        assert row["verdict"] == "no_think" and not row["well_formed"]
        assert row["lenient"] == name
    golds = {
        mode: [row["gold"] for row in rows if row["mode"] == f"official:{mode}"] for mode in TASKS
    }
    assert golds["gsm8k"] == [["3"], ["5"], ["7"]]
    assert golds["hendrycks_math500"] == golds["minerva_math500"] == [[a] for a in MATHS[:3]]
    # Options 1, 2 and 3 modulo 3 or 4 of the rows 1 to 3.
    assert golds["arc_challenge"] == [["B"], ["C"], ["A"]]


def test_the_options_of_gpqa_are_those_that_were_shown(folder):
    rows = [row for row in read_rows(folder / "eval" / "right") if row["task"] == "gpqa_diamond"]
    official = [row for row in rows if row["mode"].startswith("official:")]
    assert len(official) == 6
    for row in official:
        shown = dict(re.findall(r"\(([A-D])\) (.*)", row["prompt"]))
        (letter,) = row["gold"]
        assert dict(re.findall(r"\(([A-D])\) (.*)", row["question"])) == shown
        assert shown[letter].startswith("fast neutrons")
        original = gpqa()[int(row["id"].rpartition("-")[2])]
        assert sorted(shown.values()) == sorted(
            original[key].replace("  ", " ") for key in original if "Answer" in key
        )
    golds = {(row["id"], *row["gold"]) for row in official}
    assert len(golds) == 3, "both tasks show the options in one order"


def test_think_aware_tasks_of_the_same_benchmarks(folder):
    """One prompt for each problem, through the chat template, whatever the data set."""
    rows = [r for r in read_rows(folder / "eval" / "right") if "official" not in r["mode"]]
    assert {row["task"] for row in rows} == {*OFFICIAL_TASKS}
    for row in rows:
        prompt = f"<|im_start|>user\n{row['question']}<|im_end|>\n<|im_start|>assistant\n"
        assert (row["prompt"], row["outcome"]) == (prompt, "no answer")
