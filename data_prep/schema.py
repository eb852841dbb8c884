"""What flows through the pipeline: one problem, and the three row shapes written to disk.

The builder turns every source into `Problem`s; `sft_row` and `grpo_row` turn those into the JSON
lines that `stages/` and `eval/` read. Prompts stay lists of chat messages on disk: the tokenizer's
chat template is applied in `data_prep.prompts`, once, by whoever has the tokenizer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data_prep.config import UserError
from data_prep.grading.equivalence import is_parseable
from data_prep.prompts import build_completion, build_prompt
from data_prep.reading.rows import read_rows


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its gold.

    Args:
        id: unique within its source, stable across runs.
        source: name of the data set it came from.
        question: the bare question, without prompt wrapper or template tokens.
        answer: the gold final value as text, without `\\boxed{}` around it.
        solution: worked gold text that leads to the answer; empty where the source has none.
        level: difficulty as the source gives it (synthetic: number of steps), or None.
        other_answers: further golds of which any may match as well.
        subject: topic as the source gives it, or "".
        pass_rate: share of right rollouts of some model, 0..1, that the source gives; or None.
        trace: which of several worked solutions of one question this is, from 0. Problems that
            differ in it are no duplicates.
    """

    id: str
    source: str
    question: str
    answer: str
    solution: str = ""
    level: int | float | None = None
    other_answers: tuple[str, ...] = ()
    subject: str = ""
    pass_rate: float | None = None
    trace: int = 0

    @property
    def answers(self) -> list[str]:
        """All golds, of which any may match."""
        return [self.answer, *self.other_answers]


def grpo_row(problem: Problem, system_prompt: str) -> dict:
    """Row for GRPO and evaluation: `{id, source, level, subject, prompt, question, answer}`.

    `answer` is the gold, or the list of golds where there are several.
    """
    return {
        "id": problem.id,
        "source": problem.source,
        "level": problem.level,
        "subject": problem.subject,
        "prompt": build_prompt(problem.question, system_prompt),
        "question": problem.question,
        "answer": problem.answers if problem.other_answers else problem.answer,
    }


def sft_row(problem: Problem, system_prompt: str) -> dict:
    """Row for SFT: a GRPO row with one gold, and `completion`, the text the model should write."""
    return grpo_row(problem, system_prompt) | {
        "answer": problem.answer,
        "completion": build_completion(problem.solution, problem.answer, system_prompt),
    }


def check_row(row: dict[str, Any], columns: tuple[str, ...], where: str) -> None:
    """Refuse a row that a stage could not use, by file and line.

    Raises:
        UserError: a column is missing or empty, or `prompt` is not a list of chat messages.
    """
    for column in columns:
        if not row.get(column):
            raise UserError(
                f"{where}: {column}: missing; rows need {', '.join(columns)}; run `make data` again"
            )
    prompt = row["prompt"]
    is_chat = isinstance(prompt, list) and all(
        isinstance(m, dict) and isinstance(m.get("content"), str) and m.get("role") for m in prompt
    )
    if not is_chat:
        raise UserError(
            f"{where}: prompt: must be a list of {{role, content}}, found {prompt!r:.80}"
        )


def read_problems(path: str) -> Iterator[dict[str, Any]]:
    """The rows of a GRPO or evaluation file, with `answer` as the list of golds.

    In the file `answer` is one gold or a list of which any may match. All rows get lists, because
    a column of both kinds cannot become a data set.

    Raises:
        UserError: see `check_row`; or a gold cannot be parsed, so that nothing could ever match it.
    """
    for where, row in read_rows(path):
        check_row(row, ("id", "prompt", "answer"), where)
        golds = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
        for gold in golds:
            if not isinstance(gold, str) or not is_parseable(gold):
                raise UserError(
                    f"{where}: answer: {gold!r} cannot be parsed, so no completion could ever "
                    "match it; correct or remove it"
                )
        yield row | {"answer": golds}
