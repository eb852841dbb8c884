"""The official tasks are the harness's own: its prompts, its completions, its figures."""

import json
import random
import shutil
from unittest import mock

import pytest

from eval.harness.suite import OFFICIAL_TASKS, load_official_tasks, process_gpqa
from tests.integration.harness.eval_runs import evaluate, read_scores
from tests.integration.harness.official_data import (
    TASKS,
    by_harness,
    gpqa,
    local_hub,
    write_official,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("official")
    write_official(root)
    return root


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tiny_model_dir):
    """The tiny model with a context that holds 25 examples."""
    folder = tmp_path_factory.mktemp("long") / "model"
    shutil.copytree(tiny_model_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory, checkpoint, data_root):
    """`(folder of the results, the harness's samples)` of all official tasks."""
    import lm_eval

    samples, evaluate_tasks = {}, lm_eval.evaluate

    def record(*args, **kwargs):
        results = evaluate_tasks(*args, **kwargs)
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
    found = []
    for (answer,) in sample["resps"]:
        is_pair = isinstance(answer, tuple)
        found.append((round(answer[0], 3), answer[1]) if is_pair else str(answer))
    return found


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


def build_prompts(task):
    task.build_all_requests()
    return [instance.args[0] for instance in task.instances]


def test_every_process_draws_the_same_examples(data_root):
    """Without a seed each would, and no stored sample would be found again."""
    found = []
    for seed in (1, 2):
        random.seed(seed)
        loaded, _ = load_official_tasks(OFFICIAL_TASKS, {"data_root": str(data_root)})
        found.append({name: build_prompts(loaded[name]) for name in TASKS})
    assert found[0] == found[1]


def test_the_shuffle_leaves_the_draws_of_others_alone():
    from datasets import Dataset

    state = random.getstate()
    assert process_gpqa(Dataset.from_list(gpqa()))[0]["choices"]
    assert random.getstate() == state


def test_no_example_is_the_problem_itself(data_root):
    tasks, _ = load_official_tasks(["math500"], {"data_root": str(data_root)})
    task = tasks["hendrycks_math500"]
    build_prompts(task)
    for instance in task.instances:
        assert instance.args[0].count(f"Problem: {instance.doc['problem']}\n") == 1
