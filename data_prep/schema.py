"""A problem, and the shapes of its rows on disk.

The builder turns every source into `Problem`s. `sft_row` and `grpo_row` turn those into the JSON
lines that `stages/` and `eval/` read. Prompts are lists of chat messages on disk, or raw text. The
stage that has the tokenizer applies its chat template to the former, by `pipeline.prompts`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading import own_grader
from grading.compare import is_parseable
from pipeline import manifest
from pipeline.errors import UserError
from pipeline.json_files import Shape, mismatch
from pipeline.own_code import check_consent, own_files
from pipeline.prompts import ANSWER_FORMS, build_completion, build_prompt, form_of
from pipeline.rows import read_rows

# What a stage needs of a problem: GRPO, sampling and evaluation.
COLUMNS = ("id", "prompt", "answers", "answer_form")
# Of the columns that a row of a data file has.
SHAPE: Shape = {
    "id?": (str, int),
    "prompt?": (str, [{"role": str, "content": str}]),
    "completion?": str,
    "answers?": [str],
    "answer_form?": str,
    "question?": (str, None),
    "source?": (str, None),
    "subject?": (str, None),
    "level?": (float, None),
    f"{own_grader.COLUMN}?": (str, None),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its gold.

    Args:
        id: unique within its source, stable across runs.
        source: name of the data set it came from.
        question: the bare question, without prompt wrapper or template tokens.
        answers: the gold final values as text, without `\\boxed{}` around them; any may match.
        solution: worked gold text that leads to the answer; empty where the source has none.
        level: difficulty as the source gives it (synthetic: number of steps), or None.
        subject: topic as the source gives it, or "".
        trace: which of several worked solutions of one question this is, from 0. Problems that
            differ in it are no duplicates.
        raw_prompt: the text that a model continues, taken as it is; "": the question makes it.
    """

    id: str
    source: str
    question: str
    answers: tuple[str, ...]
    solution: str = ""
    level: int | float | None = None
    subject: str = ""
    trace: int = 0
    raw_prompt: str = ""


def grpo_row(
    problem: Problem,
    prompt_name: str,
    answer_form: str | None = None,
    grader: str | None = None,
) -> dict:
    """Row for GRPO and evaluation.

    Args:
        prompt_name: a key of `pipeline.prompts.PROMPTS`. Of a raw prompt it is the form alone.
        answer_form: where the grader looks for an answer; None: what the prompt asks for.
        grader: the user's own, which all stages then use for this row; None: ours.
    """
    row = {
        "id": problem.id,
        "source": problem.source,
        "level": problem.level,
        "subject": problem.subject,
        "prompt": problem.raw_prompt or build_prompt(problem.question, prompt_name),
        "question": problem.question,
        "answers": list(problem.answers),
        "answer_form": answer_form or form_of(prompt_name),
    }
    return row | {own_grader.COLUMN: grader} if grader else row


def sft_row(
    problem: Problem,
    prompt_name: str,
    answer_form: str | None = None,
    grader: str | None = None,
) -> dict:
    """Row for SFT: a GRPO row with one gold, and `completion`, the text the model should write."""
    row = grpo_row(problem, prompt_name, answer_form, grader)
    return row | {
        "answers": row["answers"][:1],
        "completion": build_completion(problem.solution, row["answers"][0], row["answer_form"]),
    }


def question_of(row: dict[str, Any]) -> str:
    """The bare question of a row; of one without that column its raw prompt, or its user's last."""
    if row.get("question"):
        return str(row["question"])
    if isinstance(row["prompt"], str):
        return row["prompt"]
    asked = [one["content"] for one in row["prompt"] if one["role"] == "user"]
    return str(asked[-1]) if asked else ""


def check_row(
    row: dict[str, Any], columns: tuple[str, ...], where: str, optional: tuple[str, ...] = ()
) -> None:
    """Refuse a row that a stage could not use, naming file and line.

    Args:
        columns, optional: those that it needs, and those that it reads where they are there.
    """
    if missing := [column for column in columns if not row.get(column)]:
        needed = ", ".join(columns)
        fault = f"{missing[0]}: missing; rows need {needed}; run `make data` again"
        raise UserError(f"{where}: {fault}")
    names = {*columns, *optional}
    read = {key: shape for key, shape in SHAPE.items() if key.removesuffix("?") in names}
    if fault := mismatch(row, read):
        raise UserError(f"{where}: {fault}; fix the row, or run `make data` again")
    if "answer_form" in columns and row["answer_form"] not in ANSWER_FORMS:
        wanted = f"must be one of {', '.join(ANSWER_FORMS)}"
        raise UserError(f"{where}: answer_form: {wanted} (got {row['answer_form']!r:.80})")


def read_problems(path: str, optional: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a GRPO or evaluation file; refuses what cannot be used, or never be matched.

    Rows that our build has written were looked at then; `read_rows` refuses a file changed since.

    Args:
        optional: columns that are read where they are there, as `check_row` takes them.
    """
    made = manifest.read(Path(path).parent) or {}
    is_built = made.get("stage") == "data" and Path(path).name in made["files"]
    taken = set()
    for where, row in read_rows(path):
        grader = row.get(own_grader.COLUMN)
        if not is_built:
            check_row(row, COLUMNS, where, (*optional, own_grader.COLUMN))
        if grader and grader not in taken:
            take_grader(grader, where, path)
            taken.add(grader)
        for gold in row["answers"]:
            if not is_built and not grader and not is_parseable(gold):
                fault = "cannot be parsed, so no completion can match it"
                raise UserError(f"{where}: answers: {gold!r} {fault}; correct or remove it")
        yield row


def take_grader(name: str, where: str, path: str) -> None:
    """Load the grader that a data file's rows name, if the user allows it.

    Raises:
        UserError: nobody allowed it, or its file is not the one that the data were built with.
    """
    check_consent(name, f"{where}: {own_grader.COLUMN}")
    own_grader.take(name)
    made = manifest.read(Path(path).parent) or {}
    if Path(path).name not in made.get("files", {}) or manifest.is_forced():
        return
    (file,) = own_files([name])
    if manifest.sha256(file) not in made["inputs"].values():
        remedy = f"run `make {made['stage']}` again, or set FORCE=1 to keep the rows"
        raise UserError(
            f"{own_grader.KEY}: {name} ({file}) has changed since {path} was built; {remedy}"
        )


def grader_files(rows: Iterable[dict[str, Any]]) -> list[Path]:
    """The files of the user's own graders that rows name, for the manifest's hashes."""
    return own_files({row.get(own_grader.COLUMN) or "" for row in rows})
