"""Scores: completions graded, a row for each, and every task's metrics.

The verdict is the reward's verdict: `grade_rollouts`. Completions that are not correct are read
leniently, too. That decides no score: it tells an incorrect answer from one that was not read. In
an official task the harness's own verdicts decide the score, and ours are for the diagnosis.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.sampling.store import Completion
from data_prep.schema import Problem
from data_prep.sources.base import Drop
from data_prep.sources.registry import BUILDERS
from eval.harness.metrics import greedy_metrics, mean_interval, outcome, sampled_metrics
from grading.extract import is_well_formed
from grading.grade import grade_rollouts
from grading.lenient import grade_leniently
from grading.own_grader import COLUMN
from pipeline.errors import UserError
from pipeline.manifest import encodable, open_whole
from pipeline.prompts import THINK_OPEN, prefills_think

# Of completions.parquet, with their types in Arrow; besides them `gold`, a list of strings.
COLUMNS = {
    "task": "string",
    "mode": "string",
    "id": "string",
    "source": "string",
    "level": "double",
    "sample": "int64",
    "question": "string",
    "prompt": "string",
    "completion": "string",
    "verdict": "string",
    "prediction": "string",
    "well_formed": "bool",
    "cut_off": "bool",
    "num_tokens": "int64",
    "lenient": "string",
    "outcome": "string",
    "score": "double",
}
# Of a checkpoint's `scores.json`.
SCORES: Any = {
    "checkpoint?": str,
    "fingerprint": {"checkpoint": str, "engine": str, "data": ({str: str}, None), "code": str},
    "settings": {str: object},
    "num_problems": int,
    "num_completions": int,
    "tasks": {
        str: {
            str: {
                "main": str,
                "num_problems": int,
                "num_cut_prompts?": int,  # official ones, cut on the left to fit the context
                "metrics": {str: {str: object}},
            }
        }
    },
}
OPTIONS = tuple(enumerate("ABCD", 1))


def grade_completions(
    prompt: str,
    completions: Sequence[Completion],
    golds: list[str],
    answer_form: str,
    question: str | None,
    final_number: bool,
    own_grader: str | None = None,
) -> list[dict[str, Any]]:
    """Grade the completions of one problem, a record for each; any of `golds` may match.

    `own_grader`: the user's own, whose verdicts have no lenient reading beside them.
    """
    texts = [str(completion) for completion in completions]
    num = len(texts)
    form = {"think_prefilled": prefills_think(prompt), "final_number": final_number}
    grades = grade_rollouts(
        texts,
        [golds] * num,
        [answer_form] * num,
        [question or ""] * num,
        own_graders=[own_grader] * num,
        **form,
    )
    failed = [at for at, grade in enumerate(grades) if grade.verdict != "right" and not own_grader]
    readings = grade_leniently([texts[at] for at in failed], [golds] * len(failed))
    lenient = dict(zip(failed, readings, strict=True))
    return [
        {
            "completion": text,
            "verdict": grade.verdict,
            "prediction": grade.prediction,
            "well_formed": is_well_formed(text, answer_form=answer_form, **form),
            "cut_off": completion.cut_off,
            "num_tokens": completion.num_tokens,
            "lenient": lenient.get(at, "right" if grade.verdict == "right" else None),
            COLUMN: own_grader,
        }
        for at, (text, grade, completion) in enumerate(zip(texts, grades, completions, strict=True))
    ]


def process_completions(
    doc: dict, results: list[list[Completion]], *, final_number: bool
) -> dict[str, Any]:
    """`process_results` of the think-aware tasks: the `score`, a mean, of a row's k completions.

    Their records are carried as a metric, as the harness hands nothing else back for each problem.
    """
    records = grade_completions(
        doc["rendered"],
        results[0],
        doc["answers"],
        doc["answer_form"],
        doc["question"],
        final_number,
        own_grader=doc.get(COLUMN),
    )
    for record in records:
        is_right = record["verdict"] == "right"
        record |= {"score": float(is_right), "outcome": outcome(record, is_right=is_right)}
    return {"score": sum(r["score"] for r in records) / len(records), "completions": records}


def think_rows(task: str, mode: str, samples: list[dict]) -> list[dict]:
    """One row per completion of a think-aware task; `samples` are the harness's."""
    return [
        {key: sample["doc"][key] for key in ("id", "source", "level", "question")}
        | {"task": task, "mode": mode, "sample": number, "gold": sample["doc"]["answers"]}
        | {"prompt": sample["doc"]["rendered"]}
        | record
        for sample in samples
        for number, record in enumerate(sample["completions"])
    ]


def think_metrics(rows: list[dict], mode: str) -> dict[str, Any]:
    """`{num_problems, main, metrics}` of one task and mode; metrics are means over problems."""
    by_problem = defaultdict(list)
    for row in rows:
        by_problem[row["source"], row["id"]].append(row)
    measure = greedy_metrics if mode == "greedy" else sampled_metrics
    found = [measure(records) for records in by_problem.values()]
    bounds = defaultdict(lambda: (0.0, 1.0), completion_length=None)
    metrics = {n: mean_interval([one[n] for one in found], bounds[n]) for n in found[0]}
    main = "accuracy" if mode == "greedy" else next(n for n in metrics if n.startswith("avg@"))
    return {"num_problems": len(found), "main": main, "metrics": metrics}


def official_problem(doc: dict, benchmark: str, doc_id: int) -> Problem:
    """The problem of an official task's row: its question and its gold."""
    problem_id = f"{benchmark}-{doc_id}"
    if benchmark == "gpqa_diamond":  # the harness has shuffled the options already
        question = "\n".join([doc["Question"], *(f"({c}) {doc[f'choice{i}']}" for i, c in OPTIONS)])
        return Problem(problem_id, "gpqa", question, (doc["answer"].strip("()"),))
    # minerva_math500 puts its own shorthand of the gold into `answer`: the solution has it in full.
    row = {key: value for key, value in doc.items() if key != "answer" or benchmark != "math500"}
    try:
        return BUILDERS[BENCHMARKS[benchmark]["source"]](row, problem_id, problem_id)
    except Drop as drop:
        fault = f"{problem_id}: {drop.reason}: its gold cannot be read; fix the row"
        raise UserError(fault) from drop


def written_tasks(samples: dict[str, list[dict]]) -> list[str]:
    """The official tasks whose answers are written, not options chosen by log-likelihood."""
    return [task for task, each in samples.items() if isinstance(each[0]["resps"][0][0], str)]


def official_rows(
    mode: str,
    benchmark: str,
    main: str,
    samples: list[dict],
    final_number: bool,
    whole: list[dict] | None = None,
) -> list[dict]:
    """One row per problem of an official task.

    Args:
        benchmark: the think-aware task on the same problems.
        main: the metric that counts, as `metric,filter`.
        samples: the harness's: one for each problem and filter.
        whole: the same with whole completions, where `samples` lack their thoughts.
    """
    metric, _, wanted = main.partition(",")
    rows = []
    for sample, one in zip(samples, whole or samples, strict=True):
        if sample["filter"] != wanted:
            continue
        problem = official_problem(sample["doc"], benchmark, sample["doc_id"])
        row = {key: getattr(problem, key) for key in ("id", "source", "level", "question")}
        row |= {"task": benchmark, "mode": mode, "sample": 0}
        row |= {"gold": list(problem.answers), "prompt": sample["arguments"][0][0]}
        row["score"] = float(sample[metric])
        rows.append(row | _diagnose(row, one["resps"][0][0], final_number))
    return rows


def _diagnose(row: dict, completion: Any, final_number: bool) -> dict:
    """The verdict of our grader on an official task's completion; none on a chosen option."""
    is_right = row["score"] == 1
    if isinstance(completion, tuple):  # a log-likelihood: nothing was written
        return {"completion": None, "outcome": "right" if is_right else "wrong"}
    (record,) = grade_completions(
        row["prompt"], [completion], row["gold"], "box", row["question"], final_number
    )
    found = outcome(record, is_right=is_right)
    # A few-shot prompt asks for no thought, so a missing `</think>` is no fault.
    if found == "unclosed" and THINK_OPEN not in record["completion"]:
        found = "unread"
    return record | {"outcome": found}


def official_metrics(results: dict[str, Any], rows: list[dict], main: str) -> dict[str, Any]:
    """`{num_problems, main, metrics}` of an official task: the harness's own figures.

    Only the main metric has a 95 % interval, from the scores of `rows`.
    """
    interval = mean_interval([row["score"] for row in rows])
    metrics = {}
    for key, value in results.items():
        metric, _, name = key.partition(",")
        if not name or metric.endswith("_stderr"):
            continue
        stderr = results.get(f"{metric}_stderr,{name}")
        metrics[key] = {
            "value": float(value),
            "stderr": None if stderr in (None, "N/A") else float(stderr),
            "low": interval["low"] if key == main else None,
            "high": interval["high"] if key == main else None,
            "n": len(rows),
        }
    return {"num_problems": len(rows), "main": main, "metrics": metrics}


def write_parquet(path: Path, rows: list[dict]) -> None:
    """Write `completions.parquet` so that a reader sees the old file or the complete new one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([*COLUMNS.items(), ("gold", pa.list_(pa.string()))])
    table = []
    for row in rows:
        values = {name: row.get(name) for name in schema.names}
        texts = {name: encodable(v) for name, v in values.items() if isinstance(v, str)}
        table.append(values | texts)
    with open_whole(path, "wb") as file:
        pq.write_table(pa.Table.from_pylist(table, schema=schema), file, compression="zstd")
