"""What flows through the pipeline: one problem, and the three row shapes written to disk.

The builder turns every source into `Problem`s; `sft_row` and `grpo_row` turn those into the JSON
lines that `stages/` and `eval/` read. Prompts stay lists of chat messages on disk: the tokenizer's
chat template is applied in `data_prep.prompts`, once, by whoever has the tokenizer.
"""

from dataclasses import dataclass

from data_prep.prompts import build_completion, build_prompt


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
    """

    id: str
    source: str
    question: str
    answer: str
    solution: str = ""
    level: int | None = None


def grpo_row(problem: Problem, system_prompt: str) -> dict:
    """Row for GRPO and evaluation: `{id, source, level, prompt, question, answer}`."""
    return {
        "id": problem.id,
        "source": problem.source,
        "level": problem.level,
        "prompt": build_prompt(problem.question, system_prompt),
        "question": problem.question,
        "answer": problem.answer,
    }


def sft_row(problem: Problem, system_prompt: str) -> dict:
    """Row for SFT: a GRPO row and `completion`, the text the model should write."""
    return grpo_row(problem, system_prompt) | {
        "completion": build_completion(problem.solution, problem.answer, system_prompt)
    }
