"""Small local files in the shapes of the official tasks' data sets, and the harness on them."""

import csv
import random
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from eval.harness.suite import HARNESS_FOLDERS, OFFICIAL_TASKS, read_official_metadata
from pipeline.rows import read_rows
from tests.files import write_rows

MATHS = ["\\frac{1}{2}", "4", "x^2+1", "(1,2)", "\\sqrt{3}", "-7"]
TASKS = {
    "gsm8k": 8, "minerva_math500": 4, "hendrycks_math500": 4, "arc_challenge": 25,
    "gpqa_diamond_zeroshot": 0, "gpqa_diamond_cot_zeroshot": 0,
}  # fmt: skip
HUB = {  # `{(hub id, config): {split: file}}`, as our tasks name them
    (one["hub"], one.get("config", "default")): {s: names[0] for s, names in one["files"].items()}
    for task in OFFICIAL_TASKS
    for one in read_official_metadata(task).values()
}


def gsm8k(count, start):
    return [
        {
            "question": f"Mia has {i} pens and buys {i + 1}. How many?",
            "answer": f"{i} + {i + 1} = <<{i}+{i + 1}={2 * i + 1}>>{2 * i + 1}\n#### {2 * i + 1}",
        }
        for i in range(start, start + count)
    ]


def math500():
    return [
        {
            "problem": f"Find $a_{i}$.", "solution": f"It is $\\boxed{{{answer}}}$.",
            "answer": answer, "subject": "Algebra", "level": i % 5 + 1,
            "unique_id": f"test/algebra/{i}.json",
        }
        for i, answer in enumerate(MATHS)
    ]  # fmt: skip


def arc(count, start):
    """Every third row has three options, every second labels that are numbers."""
    rows = []
    for i in range(start, start + count):
        texts = [f"{i} {kind}" for kind in ("stones", "old rivers", "clouds", "very tall trees")]
        texts = texts[: 3 if i % 3 == 0 else 4]
        labels = list("1234" if i % 2 else "ABCD")[: len(texts)]
        choices = {"text": texts, "label": labels}
        rows.append(
            {"id": f"arc-{i}", "question": f"What melts {i}?", "choices": choices}
            | {"answerKey": labels[i % len(texts)]}
        )
    return rows


def gpqa():
    names = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    options = ("fast  neutrons", "slow quarks", "a mole, of ions", "3 eV")
    return [
        {"Record ID": f"rec{i}", "Question": f"What decays in {i} s?\nChoose."}
        | {name: f"{option} {i}" for name, option in zip(names, options, strict=True)}
        for i in range(4)
    ]


def write_official(root):
    """Write all of them below `root`."""
    for file, rows in (
        ("gsm8k/train.jsonl", gsm8k(9, 10)), ("gsm8k/test.jsonl", gsm8k(3, 1)),
        ("math/math500.jsonl", math500()),
        ("arc_challenge/train.jsonl", arc(26, 10)), ("arc_challenge/validation.jsonl", arc(1, 5)),
        ("arc_challenge/test.jsonl", arc(3, 1)),
    ):  # fmt: skip
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        write_rows(root / file, rows)
    (root / "gpqa").mkdir()
    with (root / "gpqa" / "gpqa_diamond.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, gpqa()[0])
        writer.writeheader()
        writer.writerows(gpqa())


@contextmanager
def local_hub(root):
    """The hub's data sets are these files; GPQA's options stand in an order of their own."""
    import datasets

    def load_dataset(path, name=None, **_):
        files = HUB[path, name or "default"].items()
        rows = {split: [row for _, row in read_rows(root / file)] for split, file in files}
        return datasets.DatasetDict({k: datasets.Dataset.from_list(v) for k, v in rows.items()})

    def shuffle(options):
        options.sort(key=lambda option: random.Random(option).random())

    with (
        mock.patch.object(datasets, "load_dataset", load_dataset),
        mock.patch.object(random, "shuffle", shuffle),
    ):
        yield


def by_harness(checkpoint, limit):
    """`lm_eval.simple_evaluate` with the harness's own model, task by task, as a user would.

    Returns:
        `{task: (results, samples)}`.
    """
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    root = Path(lm_eval.__file__).parent / "tasks"
    folders = [root / name for name in HARNESS_FOLDERS]
    manager = TaskManager(include_path=folders, include_defaults=False)  # it knows none of ours
    model = HFLM(str(checkpoint), dtype="float32", device="cpu", batch_size=3)
    found = {}
    for task, shots in TASKS.items():
        asked = task
        if task == "hendrycks_math500":  # can be said within a group only
            asked = {"group": "alone", "task": [{"task": task, "fewshot_split": "test"}]}
        done = lm_eval.simple_evaluate(
            model, tasks=[asked], num_fewshot=shots, task_manager=manager, bootstrap_iters=1,
            limit=limit,
        )  # fmt: skip
        found[task] = done["results"][task], done["samples"][task]
    return found
