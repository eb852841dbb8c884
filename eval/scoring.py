"""Scoring: what the harness tasks in `eval/tasks/` call to load rows and to score completions.

The prompt is the training prompt: `data_prep.prompts.render_prompt`. The verdict is the reward's
verdict: `data_prep.rollouts.grade_rollouts`. The harness only aggregates: means over problems, and
their standard errors.
"""

from typing import Any

from data_prep.answers import is_well_formed
from data_prep.prompts import prefills_think, render_prompt
from data_prep.rollouts import grade_rollouts
from data_prep.schema import read_problems


class Completion(str):
    """A completion's text that also knows what the text cannot tell.

    The harness passes completions about as plain strings; a subclass of `str` carries the two
    facts of the generation through it to `process_greedy` and `process_sampled`.

    Args:
        text: the text before the end-of-sequence token.
        num_tokens: generated tokens, the end-of-sequence token included.
        cut_off: whether the token limit came before an end-of-sequence token.
    """

    num_tokens: int
    cut_off: bool

    def __new__(cls, text: str, num_tokens: int, cut_off: bool):
        self = super().__new__(cls, text)
        self.num_tokens = num_tokens
        self.cut_off = cut_off
        return self

    def __getnewargs__(self):
        return str(self), self.num_tokens, self.cut_off


def load_rows(test_file: str, tokenizer: str, final_number: bool, **_: Any) -> dict:
    """Load the problems with two more columns, all that scoring has to know.

    Args:
        test_file: JSON lines in the shape of `data_prep.schema.grpo_row`.
        tokenizer: path or hub id of the checkpoint's tokenizer; the column `rendered` is the exact
            text that the model continues.
        final_number: the recipe's key, copied into every row.

    Returns:
        `{"test": datasets.Dataset}`, as the harness expects of a `custom_dataset`.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    rows = [
        row | {"rendered": render_prompt(row["prompt"], loaded), "final_number": final_number}
        for row in read_problems(test_file)
    ]
    return {"test": Dataset.from_list(rows)}


def score_completions(doc: dict, completions: list[Completion]) -> list[dict]:
    """Grade the completions of one problem.

    Args:
        doc: a row of `load_rows`.
        completions: its completions, in the order they were sampled.

    Returns:
        One record per completion: `completion, verdict, prediction, well_formed, cut_off,
        num_tokens`.
    """
    think_prefilled = prefills_think(doc["rendered"])
    texts = [str(completion) for completion in completions]
    grades = grade_rollouts(
        [doc["prompt"]] * len(texts),
        texts,
        [doc["answer"]] * len(texts),
        think_prefilled=think_prefilled,
        final_number=doc["final_number"],
    )
    return [
        {
            "completion": text,
            "verdict": grade.verdict,
            "prediction": grade.prediction,
            "well_formed": is_well_formed(text, think_prefilled=think_prefilled),
            "cut_off": completion.cut_off,
            "num_tokens": completion.num_tokens,
        }
        for completion, text, grade in zip(completions, texts, grades, strict=True)
    ]


def _metrics(doc: dict, results: list[list[Completion]], score_name: str) -> dict:
    """Metrics of one problem; `results` holds one list, the completions of its one request."""
    records = score_completions(doc, results[0])
    count = len(records)
    return {
        score_name: sum(r["verdict"] == "right" for r in records) / count,
        "format_rate": sum(r["well_formed"] for r in records) / count,
        "cut_off_rate": sum(r["cut_off"] for r in records) / count,
        "completion_length": sum(r["num_tokens"] for r in records) / count,
        # Carried as a metric because the harness hands nothing else back for each problem.
        "completions": records,
    }


def process_greedy(doc: dict, results: list[list[Completion]]) -> dict:
    """`process_results` of the greedy task: `accuracy` is the correctness of its one completion."""
    return _metrics(doc, results, "accuracy")


def process_sampled(doc: dict, results: list[list[Completion]]) -> dict:
    """`process_results` of the sampled task: `avg@k` is the mean correctness of k completions."""
    return _metrics(doc, results, "avg@k")


def count_completions(per_problem: list[list[dict]]) -> int:
    """Aggregation of the `completions` metric: how many there are."""
    return sum(len(records) for records in per_problem)
