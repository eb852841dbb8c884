"""The official tasks are the harness's own: its prompts, its completions, its figures."""

import random
import re
from unittest import mock

import pytest
from datasets import Dataset

from eval.harness.suite import OFFICIAL_TASKS, load_official_tasks, process_gpqa
from tests.integration.harness.eval_runs import (
    Scripted,
    copy_with,
    evaluate,
    read_rows,
    read_scores,
)
from tests.integration.harness.official_data import (
    MATHS,
    TASKS,
    by_harness,
    gpqa,
    local_hub,
    write_official,
)

pytestmark = pytest.mark.integration


FEW = {"tasks": ["gsm8k"], "official": ["gsm8k", "arc_challenge"], "limit": 3}


@pytest.fixture(scope="module")
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("official")
    write_official(root)
    return root


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tiny_model_dir):
    """The tiny model with a context that holds 25 examples."""
    folder = tmp_path_factory.mktemp("long") / "model"
    return copy_with(folder, tiny_model_dir, max_position_embeddings=4096)


@pytest.fixture(scope="module")
def ours(tmp_path_factory, checkpoint, data_root):
    """`(folder of the results, the harness's samples)` of all official tasks."""
    import lm_eval

    samples, evaluate_tasks = {}, lm_eval.evaluate

    def record(*args, **kwargs):
        results = evaluate_tasks(*args, **kwargs)
        if not args[0].cuts_thought:
            samples.update(results["samples"])
        return results

    folder = tmp_path_factory.mktemp("ours")
    settings = {"tasks": ["gsm8k"], "official": OFFICIAL_TASKS, "limit": 3}
    with local_hub(data_root), mock.patch.object(lm_eval, "evaluate", record):
        done = evaluate(folder, f"base={checkpoint}", data_root=data_root, **settings)
    return done, samples


@pytest.fixture(scope="module")
def theirs(checkpoint, data_root):
    """`{task: (results, samples)}` of the harness with its own model on the same files."""
    with local_hub(data_root):
        return by_harness(checkpoint, limit=3)


def answers(sample):
    """What the model answered to one problem; log-likelihoods up to the rounding of batches."""
    pairs = [answer for (answer,) in sample["resps"]]
    return [(round(one[0], 3), one[1]) if isinstance(one, tuple) else str(one) for one in pairs]


@pytest.mark.parametrize("task", TASKS)
def test_prompts_answers_and_figures_are_the_harness_s(ours, theirs, task):
    folder, samples = ours
    results, expected = theirs[task]
    assert len(samples[task]) == len(expected) > 0
    for one, other in zip(samples[task], expected, strict=True):
        assert [args[0] for args in one["arguments"]] == [args[0] for args in other["arguments"]]
        how = one["arguments"][0][1]
        if isinstance(how, str):  # the options; else how to generate
            assert one["arguments"] == other["arguments"]
        else:
            assert how["until"] == other["arguments"][0][1]["until"]
            assert one["filtered_resps"] == other["filtered_resps"]
        assert answers(one) == answers(other)
        same = ("doc_id", "target", "filter", "metrics", "prompt_hash", "target_hash")
        for key in (*same, *other["metrics"]):
            assert one[key] == other[key]

    tasks = read_scores(folder)["tasks"].values()
    (found,) = (modes[f"official:{task}"] for modes in tasks if f"official:{task}" in modes)
    names = [key for key in results if "," in key and "_stderr," not in key]
    assert list(found["metrics"]) == names and found["main"] in names
    for name, metric in found["metrics"].items():
        stderr = results[name.replace(",", "_stderr,")]
        assert (metric["value"], metric["stderr"]) == pytest.approx((results[name], stderr))
        assert metric["n"] == found["num_problems"] == 3


def test_the_hub_is_asked_for_what_the_harness_asks_for(data_root):
    """By hub id and config: `local_hub` knows no others."""
    with local_hub(data_root):
        loaded, _ = load_official_tasks(OFFICIAL_TASKS, {"data_root": None})
    assert sorted(loaded) == sorted(TASKS)


def test_every_process_draws_the_same_examples_and_leaves_the_draws_of_others_alone(data_root):
    """Without a seed no stored sample would be found again."""
    found = []
    for seed in (1, 2):
        random.seed(seed)
        loaded, _ = load_official_tasks(OFFICIAL_TASKS, {"data_root": str(data_root)})
        for task in loaded.values():
            task.build_all_requests()
        found.append([one.args[0] for name in TASKS for one in loaded[name].instances])
    assert found[0] == found[1]
    for one in loaded["hendrycks_math500"].instances:  # no example is the problem itself
        assert one.args[0].count(f"Problem: {one.doc['problem']}\n") == 1
    state = random.getstate()
    process_gpqa(Dataset.from_list(gpqa()))
    assert random.getstate() == state


def test_every_row_has_its_problem_and_outcome(ours, theirs):
    rows = [row for row in read_rows(ours[0]) if row["mode"].startswith("official:")]
    written = sum(row["completion"] is not None for row in rows)
    assert len(rows) == 3 * len(TASKS) + written // 2, "what is written is read twice"
    for row in rows:
        is_option = row["completion"] is None  # chosen by log-likelihood: nothing was written
        expected = {"right", "wrong"} if is_option else {"wrong", "no answer", "cut off"}
        assert row["outcome"] in expected and (row["verdict"] is None) == is_option
    found = {task: [row for row in rows if row["mode"] == f"official:{task}"] for task in TASKS}
    for task, (_, samples) in theirs.items():
        main = "acc_norm" if found[task][0]["completion"] is None else "exact_match"
        chosen = [one for one in samples if one["filter"] in ("none", "flexible-extract")]
        assert [row["score"] for row in found[task]] == [one[main] for one in chosen]
    golds = {task: [row["gold"] for row in found[task]] for task in TASKS}
    assert golds["gsm8k"] == [["3"], ["5"], ["7"]]
    assert golds["hendrycks_math500"] == golds["minerva_math500"] == [[a] for a in MATHS[:3]]
    # Options 1, 2 and 3 modulo 3 or 4 of the rows 1 to 3.
    assert golds["arc_challenge"] == [["B"], ["C"], ["A"]]


def test_the_options_of_gpqa_are_those_that_were_shown(ours):
    official = [row for row in read_rows(ours[0]) if row["mode"].startswith("official:gpqa")]
    official = [row for row in official if "cut off" not in row["mode"]]
    assert len(official) == 6
    for row in official:
        shown = dict(re.findall(r"\(([A-D])\) (.*)", row["prompt"]))
        (letter,) = row["gold"]
        assert dict(re.findall(r"\(([A-D])\) (.*)", row["question"])) == shown
        assert shown[letter].startswith("fast neutrons")  # the harness drops the double blank
        original = gpqa()[int(row["id"].rpartition("-")[2])]
        options = [original[key].replace("  ", " ") for key in original if "Answer" in key]
        assert sorted(shown.values()) == sorted(options)
    golds = {(row["id"], *row["gold"]) for row in official}
    assert len(golds) == 3, "both tasks show the options in one order"


def test_completions_are_read_without_their_thought_too(tmp_path, data_root, tiny_model_dir):
    """The harness's strict parser takes the first `####`, which here stands in the thought."""
    golds = {f"buys {i + 1}. How many?\nAnswer:": 2 * i + 1 for i in (1, 2, 3)}

    def write(request):
        gold = next((g for end, g in golds.items() if request.prompt.endswith(end)), 0)
        thought = f"<think>\nIs it #### {gold + 1}? No, #### {gold}.\n</think>\n\n"
        return thought + (f"#### {gold}" if gold < 7 else f"It is **{gold}**."), False

    scripted = Scripted(tiny_model_dir, write)
    done = scripted.evaluate(tmp_path, data_root=data_root, **FEW)
    tasks = read_scores(done)["tasks"]
    assert [*tasks["arc_challenge"]] == ["official:arc_challenge"], "nothing is written"
    found = {
        mode: tasks["gsm8k"][mode]["metrics"]["exact_match,strict-match"]["value"]
        for mode in ("official:gsm8k", "official:gsm8k, thought cut off")
    }
    # The thought was in the way of two; the form of the third is not read.
    assert found == {"official:gsm8k": 0, "official:gsm8k, thought cut off": pytest.approx(2 / 3)}
    assert len(scripted.asked) == len(set(scripted.asked)), "nothing is generated twice"
    rows = [row for row in read_rows(done) if row["mode"].endswith(", thought cut off")]
    assert len(rows) == 3 and all("<think>" in row["completion"] for row in rows)


def test_cut_prompts_are_counted_and_told(tmp_path, data_root, tiny_model_dir, capsys):
    """Also where all completions are stored: the count is of the prompts."""
    scripted = Scripted(tiny_model_dir, lambda _: ("", False))
    scripted.max_length = 700
    for _ in range(2):
        done = scripted.evaluate(tmp_path, data_root=data_root, **FEW)
        tasks = read_scores(done)["tasks"]
        found = [tasks[task][f"official:{task}"]["num_cut_prompts"] for task in FEW["official"]]
        assert found == [3, 3] and "num_cut_prompts" not in tasks["gsm8k"]["greedy"]
        err = capsys.readouterr().err
        assert err.count("lack their beginning: gsm8k 3, arc_challenge 3") == 1
        (done / "scores.json").unlink()  # scored again
