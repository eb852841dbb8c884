r"""Sets for GRPO that differ in little but the names of their columns, one function each.

verl's parquet files (`prompt` of {role, content}, `reward_model.ground_truth`), slime's (`label`)
and TTRL's (`prompt` as text, `answer`) are read by the same names.
"""

from dataclasses import replace
from typing import Any

from data_prep.schema import Problem
from data_prep.sources import base
from data_prep.sources.generic import raw_prompt
from pipeline.errors import UserError

QUESTIONS = ("prompt", "problem", "question")  # a chat comes before a copy of its text
NUM_TRACES = 3  # of R1 in a row of DeepMath


def build_areal_boba(
    row: dict[str, Any],
    problem_id: str,
    where: str,
    *,
    apply_chat_template: bool | None = None,
) -> Problem:
    r"""AReaL-boba (`inclusionAI/AReaL-boba-Data`): 106k problems in the R1-distill prompt template.

    `prompt` holds the question between template tokens, `solutions` the golds, each in a
    `\boxed{}`. `query_id` is no id (the published example has "xx"), so positions are.
    `apply_chat_template`: false takes the templated text as it is.
    """
    task = base.get_text(row, ("task",), where, default="math").strip()
    if task.lower() != "math":
        raise base.Drop("not_math", f"task {task!r:.40}")
    columns = ("prompt",), ("solutions", "answer"), ()
    raw = raw_prompt(row, "prompt", apply_chat_template, where)
    return base.build_row(row, problem_id, where, "areal_boba", *columns, raw_prompt=raw)


def build_dapo(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """DAPO-Math-17k (`BytedTsinghua-SIA/DAPO-Math-17k`): rewritten to have integer answers.

    Upstream `extra_info.index` repeats as each problem does, so positions are the ids.
    """
    golds = ("reward_model.ground_truth", "label", "answer", "solution")
    return base.build_row(row, problem_id, where, "dapo", QUESTIONS, golds, ())


def build_deepscaler(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """DeepScaleR-Preview (`agentica-org/DeepScaleR-Preview-Dataset`): 40k of AIME, AMC, MATH.

    Its component files in rllm also have `difficulty` and `type`.
    """
    level = base.get_number(row, ("difficulty",), where)
    subject = base.get_text(row, base.SUBJECTS, where, default="").strip()
    return base.build_row(row, problem_id, where, "deepscaler", level=level, subject=subject)


def build_orz(row: dict[str, Any], problem_id: str, where: str) -> Problem:
    """Open-Reasoner-Zero (`Open-Reasoner-Zero/orz_math_57k_collection` and its kin).

    A training row is a bare list of two turns, which `reading` wraps as `conversations`: the
    question, and a turn of the assistant without text but with `ground_truth`, the gold as `value`.
    A row of an evaluation file has `prompt`, a list of one turn, and `final_answer`.
    """
    if "conversations" in row:
        turns = row["conversations"]
        truths = [
            turn["ground_truth"]
            for turn in (turns if isinstance(turns, list) else ())
            if isinstance(turn, dict) and isinstance(turn.get("ground_truth"), dict)
        ]
        if len(truths) != 1:
            fault = f"{turns!r:.80} has no single turn with a ground_truth"
            form = "[{from: human, value: …}, {from: assistant, ground_truth: {value: …}}]"
            raise UserError(f"{where}: conversations: {fault}; write {form}")
        row = {"prompt": turns, "ground_truth": truths[0]}
    golds = ("final_answer", "answer", "ground_truth.value")
    return base.build_row(row, problem_id, where, "orz", QUESTIONS, golds, ())


def build_deepmath(row: dict[str, Any], problem_id: str, where: str, *, trace: int = 1) -> Problem:
    r"""DeepMath-103K (`zwhe99/DeepMath-103K`): hard problems, each with three solutions by R1.

    `difficulty` runs from about 1 to 10 in halves, with -1 for unknown; `topic` is a path such as
    `Mathematics -> Algebra -> Group Theory`. The solutions are R1's completions,
    `…</think>…\boxed{x}`: that is the solution, "" where their box is not the gold.
    `trace` chooses one, from 1; `-t1` or `-t2` is added to the ids of the second and third.
    """
    if not 1 <= trace <= NUM_TRACES:
        raise UserError(f"{where}: trace: {trace} is not 1 to {NUM_TRACES}; change it")
    level = base.get_number(row, ("difficulty",), where)
    if level is not None and level < 0:
        level = None
    subject = base.get_text(row, ("topic",), where, default="").rpartition("->")[2].strip()
    name = problem_id if trace == 1 else f"{problem_id}-t{trace - 1}"
    columns = ("question", "problem"), ("final_answer", "answer"), ()
    built = base.build_row(
        row, name, where, "deepmath", *columns, level=level, subject=subject, trace=trace - 1
    )
    text = base.get_text(row, (f"r1_solution_{trace}",), where, default="")
    return replace(built, solution=base.right_reply(text, built.answers))
