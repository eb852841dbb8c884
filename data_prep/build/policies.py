"""Which problems a set keeps, as far as one problem alone can tell.

Reasons, in the order in which they are checked (`clean` has those that take the whole
set, `data_prep.sources` those of single sources):

    empty_question       nothing is asked
    no_solution          SFT only: no worked text, which would teach empty thoughts
    sentinel_answer      the gold says that there is none: "proof", "notfound", "N/A"
    image                the question points to a picture that is not in the row
    proof                it asks for a proof: a right final line proves nothing
    multiple_choice      the gold is an option, or the question shows options: a guess is right one
                         time in four, and a right value without its letter would be graded wrong
    shows_answer         the question ends with its own answer: "… Find the area. Answer: 56."
    gold_not_parseable   the grader cannot read the gold, so no completion could ever match it
    level, pass_rate     outside of the source's bounds
    foreign_language     not in `languages`
    long_question        more than `max_question_tokens`
    long_solution        SFT only: more than `max_solution_tokens`

Evaluation sets are never filtered by kind, language or length: they are what they are. ARC and
GPQA are multiple choice by design.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.build.language import find_foreign
from data_prep.build.mixing import Limits
from data_prep.config import UserError
from data_prep.grading.answers import is_parseable, is_same_value
from data_prep.schema import Problem
from data_prep.sources import Drop
from data_prep.sources.kinds import (
    asks_for_proof,
    holds_several_answers,
    is_option,
    is_sentinel,
    points_to_image,
    shown_answer,
    shows_options,
)  # fmt: skip

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHOICE_SOURCES = ("arc", "gpqa")


@dataclass(frozen=True, slots=True)
class Policies:
    """What the problems of one file must be.

    Args:
        is_training: sft or grpo; the others keep every kind of question.
        needs_solution: sft.
        multiple_choice, proofs: "drop" or "keep".
        languages: codes of `data_prep.build.language.LANGUAGES`; empty keeps all.
        tokenizer: folder or hub id, for the limits below.
        max_question_tokens, max_solution_tokens: without template and tags; None is no limit.
    """

    is_training: bool
    needs_solution: bool = False
    multiple_choice: str = "drop"
    proofs: str = "drop"
    languages: tuple[str, ...] = ()
    tokenizer: str | None = None
    max_question_tokens: int | None = None
    max_solution_tokens: int | None = None

    def has_lengths(self) -> bool:
        """Whether tokens must be counted."""
        return self.is_training and bool(self.max_question_tokens or self.max_solution_tokens)


def check_kind(problem: Problem, policies: Policies) -> Drop | None:
    """Why a problem's kind is not wanted."""
    if points_to_image(problem.question):
        return Drop("image")
    if policies.proofs == "drop" and asks_for_proof(problem.question):
        return Drop("proof")
    if policies.multiple_choice == "drop" and problem.source not in CHOICE_SOURCES:
        if is_option(problem.answer):
            return Drop("multiple_choice", f"gold {problem.answer[:80]!r}")
        if shows_options(problem.question):
            return Drop("multiple_choice", "the question shows options")
    shown = shown_answer(problem.question)
    if shown and any(is_same_value(shown, answer) for answer in problem.answers):
        return Drop("shows_answer", shown)
    return None


def check_problem(problem: Problem, policies: Policies, limits: Limits) -> Drop | list[str]:
    """All checks but those of language and length, which cost more; the golds that can serve."""
    if not problem.question.strip():
        return Drop("empty_question")
    if policies.needs_solution and not problem.solution.strip():
        return Drop("no_solution")
    answers = [answer for answer in problem.answers if not is_sentinel(answer)]
    if not answers:
        return Drop("sentinel_answer", problem.answer[:80])
    if policies.is_training and (drop := check_kind(problem, policies)):
        return drop
    readable = [a for a in answers if is_parseable(a) and not holds_several_answers(a)]
    if not readable:
        return Drop("gold_not_parseable", answers[0][:80])
    if refused := limits.refuse(problem):
        return Drop(refused, f"{getattr(problem, refused)}")
    return readable


def check_language(problem: Problem, policies: Policies) -> Drop | None:
    """Whether the question is in a language that is not wanted."""
    if not policies.is_training or not policies.languages:
        return None
    found = find_foreign(problem.question, policies.languages)
    return Drop("foreign_language", found) if found else None


def check_lengths(problem: Problem, policies: Policies) -> Drop | None:
    """Whether question or solution have more tokens than allowed."""
    if not policies.has_lengths():
        return None
    limits = [("long_question", problem.question, policies.max_question_tokens)]
    if policies.needs_solution:
        limits.append(("long_solution", problem.solution, policies.max_solution_tokens))
    for reason, text, limit in limits:
        # A token has at least one byte: most texts need no counting.
        if limit is None or len(text.encode()) <= limit:
            continue
        num_tokens = len(load_tokenizer(policies.tokenizer).encode(text, add_special_tokens=False))
        if num_tokens > limit:
            return Drop(reason, f"{num_tokens} tokens")
    return None


@functools.cache
def load_tokenizer(path: str) -> "Tokenizer":
    """The tokenizer.json of a folder or of a hub model.

    Not transformers' own loading: that takes a second and 400 MB in each worker.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    from tokenizers import Tokenizer

    try:
        file = Path(path, "tokenizer.json")
        return Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(path)
    except Exception as error:  # the Rust library raises nothing narrower
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"tokenizer: {path}: {message}; give a folder with a tokenizer.json or a hub id"
        ) from error
