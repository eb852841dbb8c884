"""How the harness's own parsers score completions: those of the audit, or of a user's file.

The official tasks get the completions as if a model had just written them, and the golds in the
shape of the tasks' data. Only stop strings and the token limit change the text.
`eval.harness.suite.protect` keeps the parsers from hanging.
"""

import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lm_eval.tasks.minerva_math import utils as minerva

from data_prep.sampling.store import Completion
from data_prep.sources.base import get_golds, get_text
from eval.harness.cached_lm import read_settings
from eval.harness.suite import load_official_tasks
from grading.grade import grade_all
from grading.lenient import grade_leniently
from pipeline.console import quiet_harness
from pipeline.errors import UserError
from pipeline.prompts import THINK_OPEN, prefills_think
from pipeline.rows import read_rows

# The data of the benchmarks whose official tasks read what a model writes.
FILES = {
    "gsm8k": ("gsm8k/train.jsonl", "gsm8k/test.jsonl"),
    "math500": ("math/math500.jsonl",),
}
PARSERS = {
    ("gsm8k", "strict-match", "exact_match"): "gsm8k strict",
    ("gsm8k", "flexible-extract", "exact_match"): "gsm8k flexible",
    ("minerva_math500", "none", "exact_match"): "minerva",
    ("minerva_math500", "none", "math_verify"): "minerva math_verify",
    ("hendrycks_math500", "none", "exact_match"): "hendrycks",
}
MAX_GOLD = 10_000  # characters; the harness normalises golds in quadratic time, in this process


def score_given(task: Any, texts: list[list[str]], cut: Any) -> dict[str, list[dict[str, Any]]]:
    """A harness's task on given completions, as if a model had just written them.

    Args:
        texts: the completions of each of the task's first problems.
        cut: `cut(text, settings) -> Completion`, the stop rules.

    Returns:
        What the task's `process_results` says of each problem, for each of its filters.
    """
    quiet_harness()
    task.build_all_requests(limit=len(texts))
    for request in task.instances:
        settings = read_settings(request.args[1], 0)
        request.resps = [cut(text, settings) for text in texts[request.doc_id]]
    task.apply_filters()
    return {
        name: [task.process_results(one.doc, [one.filtered_resps[name]]) for one in task.instances]
        for name in task.instances[0].filtered_resps
    }


def parse_officially(
    golds: Sequence[str], completions: Sequence[str], cut: Any
) -> tuple[dict[str, list[bool]], list[int]]:
    """How the harness's parsers score completions, whose stop rules are `cut`.

    Returns:
        For each of `PARSERS` whether it scores each completion. And the places of unscored
        completions: a parser was stopped on them, or the harness cannot read their gold.
    """
    unfit = {place for place, gold in enumerate(golds) if not _fits(gold)}
    lines = []
    for at, gold in enumerate(golds):
        shown = "?" if at in unfit else gold
        # Both shapes in one. The row's number is its question, which no parser reads.
        row = {"question": str(at), "answer": f"#### {shown}"}
        row |= {"problem": str(at), "solution": _boxed(shown)}
        lines.append(json.dumps(row) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        for name in itertools.chain(*FILES.values()):
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(lines), encoding="utf-8")
        tasks, stopped = load_official_tasks([*FILES], {"data_root": folder})
    scores = {}
    for name, task in tasks.items():
        task.set_config("num_fewshot", 0)
        scores[name] = score_given(task, [[text] for text in completions], cut)
    unfit |= {int(doc["problem"]) for doc in stopped}
    found = {
        name: [bool(one[metric]) and at not in unfit for at, one in enumerate(scores[task][chosen])]
        for (task, chosen, metric), name in PARSERS.items()
    }
    return found, sorted(unfit)


def _boxed(gold: str) -> str:
    return f"\\boxed{{{gold}}}"


def _fits(gold: str) -> bool:
    """Whether a gold survives the harness's reading of its own data."""
    if len(gold) > MAX_GOLD:
        return False
    try:
        gold.encode()  # half of a surrogate pair cannot be written
        boxed = minerva.last_boxed_only_string(_boxed(gold))
        minerva.normalize_final_answer(minerva.remove_boxed(boxed))
    # The harness does not check the golds of its data: unbalanced braces raise one of these.
    except (UnicodeEncodeError, AssertionError, TypeError, IndexError):
        return False
    return True


# A file of completions, such as the `completions.parquet` of an evaluation.


def read_completions(path: str) -> Iterator[dict[str, Any]]:
    """Rows of `where, completion, golds, prefilled` from JSON lines, JSON or parquet.

    A row has a `completion` and its `gold`: a text, a number, or a list of which any may match. A
    `prompt` that ends with `<think>` opens the thought.

    Raises:
        UserError: a row lacks a completion or a gold.
    """
    for where, row in read_rows(path):
        if row.get("completion", "") is None:
            continue  # a log-likelihood of an evaluation: nothing was written
        completion, golds = get_text(row, ("completion",), where), get_golds(row, ("gold",), where)
        if not golds:
            raise UserError(f"{where}: the gold is empty; fix or remove the row")
        prompt = row.get("prompt")
        prefilled = isinstance(prompt, str) and prefills_think(prompt)
        yield {"where": where, "completion": completion, "golds": golds, "prefilled": prefilled}


def parse_rows(rows: list[dict]) -> list[dict[str, Any]]:
    """The verdicts of all parsers on each row of `read_completions`.

    `where`, `gold`, our `verdict`, our `lenient` one, and for each of `PARSERS` whether it scores
    the row. `stopped`: a parser of the harness was stopped, or could not read the gold.
    """
    completions, golds = [row["completion"] for row in rows], [row["golds"] for row in rows]
    official, stopped = parse_officially(
        [gold[0] for gold in golds], completions, lambda text, _: Completion(text, 0, cut_off=False)
    )
    whole = [f"{THINK_OPEN if row['prefilled'] else ''}{row['completion']}" for row in rows]
    grades, lenient = grade_all(whole, golds), grade_leniently(completions, golds)
    return [
        {
            "where": row["where"],
            "gold": row["golds"],
            "stopped": at in stopped,
            "verdict": grades[at].verdict,
            "lenient": lenient[at],
            **{name: scores[at] for name, scores in official.items()},
        }
        for at, row in enumerate(rows)
    ]
