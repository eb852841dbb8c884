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
    example_split,
    gpqa,
    harness_tasks,
    local_hub,
    write_official,
)

pytestmark = pytest.mark.integration
OURS = {"tasks": ["gsm8k"], "official": OFFICIAL_TASKS, "limit": 3}


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


def evaluate_recorded(folder, checkpoint, data_root, **settings):
    """Evaluate; returns the folder, and the samples that the harness handed back."""
    import lm_eval

    samples, evaluate_task = {}, lm_eval.evaluate

    def record(*args, **kwargs):
        results = evaluate_task(*args, **kwargs)
        samples.update(results["samples"])
        return results

    with mock.patch.object(lm_eval, "evaluate", record):
        done = evaluate(folder, f"base={checkpoint}", data_root=data_root, **settings)
    return done, samples


@pytest.fixture(scope="module")
def ours(tmp_path_factory, checkpoint, data_root):
    """`(folder of the results, the harness's samples)` of all official tasks."""
    folder = tmp_path_factory.mktemp("ours")
    with local_hub(data_root):
        return evaluate_recorded(folder, checkpoint, data_root, **OURS)


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
def test_prompts_answers_and_verdicts_are_the_harness_s(ours, theirs, task):
    samples, expected = ours[1][task], theirs[task][1]
    assert len(samples) == len(expected) > 0
    for one, other in zip(samples, expected, strict=True):
        assert [args[0] for args in one["arguments"]] == [args[0] for args in other["arguments"]]
        if isinstance(one["arguments"][0][1], str):  # the options; else how to generate
            assert one["arguments"] == other["arguments"]
        assert answers(one) == answers(other)
        for key in ("doc_id", "target", "filter", "metrics", "prompt_hash", "target_hash"):
            assert one[key] == other[key]
        assert {key: one[key] for key in one["metrics"]} == {k: other[k] for k in other["metrics"]}
        if "until" in one["arguments"][0][1]:
            assert one["arguments"][0][1] == other["arguments"][0][1]
            assert one["filtered_resps"] == other["filtered_resps"]


@pytest.mark.parametrize("task", TASKS)
def test_figures_are_the_harness_s(ours, theirs, task):
    results = theirs[task][0]
    tasks = read_scores(ours[0])["tasks"]
    (found,) = (
        modes[f"official:{task}"] for modes in tasks.values() if f"official:{task}" in modes
    )
    names = [key for key in results if "," in key and "_stderr," not in key]
    assert list(found["metrics"]) == names
    for name in names:
        stderr = results[name.replace(",", "_stderr,")]
        metric = found["metrics"][name]
        assert (metric["value"], metric["stderr"]) == pytest.approx((results[name], stderr))
        assert metric["n"] == found["num_problems"] == 3
    assert found["main"] in names


def test_only_shots_and_data_are_ours(data_root):
    """The YAML says what it changes, and changes nothing else."""
    with local_hub(data_root):
        loaded, _ = load_official_tasks(OFFICIAL_TASKS, {"data_root": str(data_root)})
        assert sorted(loaded) == sorted(TASKS)
        manager = harness_tasks()
        for name, task in loaded.items():
            ours = task.config.to_dict()
            theirs = manager.load(name)["tasks"][name].config.to_dict()
            changed = {k for k in ours | theirs if ours.get(k) != theirs.get(k)}
            allowed = {"custom_dataset", "metadata", "num_fewshot"}
            if "gpqa" in name:  # the seed of its shuffle
                allowed |= {"process_docs", "fewshot_config"}
                for config in (ours, theirs):
                    config["fewshot_config"].pop("process_docs")
                assert ours["fewshot_config"] == theirs["fewshot_config"]
            if name == "minerva_math500":
                allowed -= {"num_fewshot"}
            if split := example_split(name):
                allowed |= {"fewshot_split", "fewshot_config"}
                assert ours["fewshot_config"] == theirs["fewshot_config"] | {
                    "split": split["fewshot_split"]
                }
            assert changed <= allowed, name
            assert ours["num_fewshot"] == TASKS[name]


def test_the_hub_is_asked_for_what_the_harness_asks_for(data_root):
    import datasets

    with local_hub(data_root):
        asked = []
        local = datasets.load_dataset

        def load(path, name=None, **_):
            asked.append((path, name or "default"))
            return local(path, name)

        with mock.patch.object(datasets, "load_dataset", load):
            load_official_tasks(OFFICIAL_TASKS, {"data_root": None})
            ours, asked[:] = sorted(asked), []
            for name in TASKS:
                harness_tasks().load(name)
    assert ours == sorted(asked)


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
