"""What the harness tasks in `eval/tasks/` are made of: `custom_dataset` functions.

The harness calls them with a task's `metadata` and with what `suite` adds to every task's:
`data_root`, `test_file`, `tokenizer`, `system_prompt` and `answer_form`.
"""

import functools
import random
from pathlib import Path
from typing import Any

from data_prep.checkpoints import load_tokenizer
from data_prep.config import UserError
from data_prep.decontamination.benchmarks import load_benchmark
from data_prep.prompts import render_prompt
from data_prep.reading.rows import read_rows
from data_prep.schema import grpo_row, read_problems
from eval.harness.suite import expand

load_tokenizer_once = functools.cache(load_tokenizer)  # however many tasks ask for it
COLUMNS = ("id", "source", "level", "prompt", "question", "answers", "answer_form")


def read_held_out(test_file: str) -> list[dict]:
    """Rows of the recipe's own test file with exactly `COLUMNS`.

    Raises:
        UserError: no rows, an id that occurs twice, or a value of a kind that no result can hold.
    """
    rows = [{key: row.get(key) for key in COLUMNS} for row in read_problems(test_file)]
    if not rows:
        raise UserError(f"test_file: {test_file} has no rows; `make data` builds it")
    seen = set()
    for row in rows:
        for key, kind in (("id", str), ("source", str), ("level", int | float), ("question", str)):
            if not isinstance(row[key], kind | None):
                name = "text" if kind is str else "a number"
                raise UserError(
                    f"{test_file}: id {row['id']!r}: {key}: {row[key]!r:.80} is not {name}; fix it"
                )
        if (row["source"], row["id"]) in seen:
            raise UserError(
                f"{test_file}: the id {row['id']!r} occurs twice, and results are kept by id; "
                "rename or remove one"
            )
        seen.add((row["source"], row["id"]))
    return rows


def read_problem_rows(
    source: str,
    test_file: str | None,
    data_root: str | None,
    system_prompt: str,
    answer_form: str | None = None,
    files: tuple[str, ...] = (),
    split: str = "test",
    hub: str | None = None,
    config: str | None = None,
    **_: Any,
) -> list[dict]:
    """The rows of one think-aware task, before any tokenizer is asked.

    Args:
        source: `held_out`, or a key of `data_prep.build.recipe.BUILDERS`.
        test_file: what `held_out` reads.
        data_root: folder of the local `files`, of which the first that exists is read; without it
            the hub's set `hub`, `config`, `split` is.
        system_prompt, answer_form: see `data_prep.schema.grpo_row`; the test file has its own.

    Returns:
        Rows with `COLUMNS`.
    """
    if source == "held_out":
        return read_held_out(test_file)
    problems = load_benchmark(source, hub, config, split, list(files), data_root)
    return [grpo_row(one, system_prompt, answer_form) for one in problems]


def load_rows(tokenizer: str, **metadata: Any) -> dict:
    """Load a think-aware task's problems; the column `rendered` is the text the model continues.

    `metadata` has the name of a `benchmark`, and what `read_problem_rows` takes.
    """
    from datasets import Dataset
    from jinja2 import TemplateError

    loaded = load_tokenizer_once(tokenizer, "checkpoints", needs=())
    try:
        rows = [
            row | {"rendered": render_prompt(row["prompt"], loaded)}
            for row in read_problem_rows(**expand(metadata))
        ]
    except UserError:
        raise
    except (ValueError, TemplateError) as error:  # no template, or one that refuses the messages
        raise UserError(
            f"{tokenizer}: its chat template cannot render the prompts ({error!s:.120}); add a "
            "chat_template to the checkpoint, or choose another system_prompt"
        ) from error
    return {"test": Dataset.from_list(rows)}


def load_official(
    hub: str,
    files: dict[str, list[str]],
    data_root: str | None,
    config: str | None = None,
    **_: Any,
) -> dict:
    """Load the splits of an official task: those the harness would, or local files like them.

    Args:
        files: for each split the local files that may hold it.
        data_root: folder of the local files; None asks the hub.

    Returns:
        `{split: datasets.Dataset}` with the columns of the hub's set.
    """
    import datasets

    if data_root is None:
        try:
            return datasets.load_dataset(hub, config)
        except (OSError, ValueError) as error:
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"hub: {hub} (config {config}): {message}; set data_root to a folder of local files"
            ) from error
    return {
        split: datasets.Dataset.from_list([row for _, row in read_rows(path)])
        for split, path in find_official(hub, files, data_root).items()
    }


def find_official(hub: str, files: dict[str, list[str]], data_root: str) -> dict[str, Path]:
    """The local file of each split of an official task; raises `UserError` where there is none."""
    found = {}
    for split, names in files.items():
        path = next((p for name in names if (p := Path(data_root, name)).is_file()), None)
        if path is None:
            raise UserError(
                f"data_root: {data_root} holds no {' or '.join(names)} for the split {split} of "
                f"{hub}; put it there, or leave data_root out to ask the hub"
            )
        found[split] = path
    return found


def process_gpqa(dataset: Any) -> Any:
    """The harness's own `process_docs` of GPQA with its shuffle of the options seeded.

    It draws from the global generator each time it is called, which is twice: the second order
    would score the answers to the first.
    """
    # That of the written task: the columns of the other, and `choices`.
    from lm_eval.tasks.gpqa.cot_zeroshot.utils import process_docs

    state = random.getstate()
    random.seed(0)
    try:
        return process_docs(dataset)
    finally:
        random.setstate(state)
