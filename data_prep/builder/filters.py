"""The problems that a set keeps, judged one by one.

`sets` judges problems against each other, `data_prep.sources` those of single sources. docs/data.md
lists all reasons to leave a problem out. Evaluation sets are not filtered by kind or language. ARC
and GPQA are multiple choice by design.
"""

import functools
import re
from dataclasses import dataclass

from data_prep.builder.recipe import LANGUAGES, TRAINING, ByLevel, Source
from data_prep.decontamination.index import Match
from data_prep.schema import Problem
from data_prep.sources.base import (
    Drop,
    is_option,
    is_sentinel,
    stated_answers,
    without_commands,
)
from data_prep.sources.solutions import judge_solution
from grading.boxes import find_boxes
from grading.compare import is_parseable, is_same_value, read
from grading.own_grader import accepts
from grading.values import Words

# What a notice says of rows that stay.
NOTES = {
    "unchecked_solution": "whose solution states no answer that can be compared with the gold; "
    "read some of them",
    "lost_digits": "whose gold is a number of 2^53 or more in a column of floats, which lost its "
    "last digits; store it as text",
    "asks_for_box": "whose question still asks for a box; take the instruction out of the column",
}
CHOICE_SOURCES = ("arc", "gpqa")
_IMAGE = re.compile(
    r"!\[[^\]\n]{0,300}\]\s*\("  # markdown; `n![` alone may be a factorial before a bracket
    r"|<(?:img|image)\b|<image\d*>|\\includegraphics|\[/?img\b"
    r"|https?://\S{1,300}?\.(?:png|jpe?g|gif|svg|webp|bmp)\b",
    re.IGNORECASE,
)
# How the first option is labelled and how the others are; the first label may not be the end of a
# sentence ("the point A.").
_LABELS = (
    (r"(?<![\w)^])[(\uff08]\s*A\s*[)\uff09]", r"(?<![\w)^])[(\uff08]\s*@\s*[)\uff09]"),
    (
        r"(?:^|[\n?:.)\uff1f\uff1a\u3002\uff09_])\s*A[.)\uff0e\u3001\uff09]",
        r"\s@[.)\uff0e\u3001\uff09]",
    ),
    (r"(?:^|\n)\s*A\s*[:\uff1a]", r"\n\s*@\s*[:\uff1a]"),
)
_OPTIONS = tuple(
    (re.compile(first), re.compile(rest.replace("@", "B")), re.compile(rest.replace("@", "C")))
    for first, rest in _LABELS
)
# LaTeX between an option's label and its text.
_LAYOUT = re.compile(
    r"\\(?:q?quad|indent|bullet|item|text|hspace\*?\{[^{}]*\}|newline)(?![A-Za-z])"
    r"|\\(?:\\|[ ,;:!()\[\]])|[$~{}*]"
)
_FIGURE = re.compile(r"\[asy\].*?(?:\[/asy\]|$)|\\begin\{asy\}.*?(?:\\end\{asy\}|$)", re.DOTALL)
_PROVE = re.compile(
    r"(?<!to )(?<!not )(?<!you )(?<!will )(?<!can )(?<!could )\b(?:prove|show|demonstrate)\b"
    r"(?:\s+(?:that|the following|or disprove|whether|or refute|the (?:inequality|identity|equality"
    r"|statement|theorem|formula|relation))\b|\s*+:|(?:\s*+,)?+\s*+for (?:all|any|every|each)\b"
    r"|(?<=prove)\s+(?!your\b|it\b|this\b|why\b))"
    r"|(?<!\u4e0d\u9700\u8981)\u8bc1\u660e|\u6c42\u8bc1",
    re.IGNORECASE,
)
# What asks for a value as well as a proof; the second kind of verb only where a sentence begins.
_ASKS = re.compile(
    r"\?|\uff1f|\b(?:find|determine|compute|calculate|evaluate|express"
    r"|what (?:is|are|can|must|value)|how (?:many|much|long|far|old|often|large|small|big))\b"
    r"|(?:^|[.:;!\n)]\s{0,9}|\b(?:and|then|also|hence|please) )"
    r"(?:provide|solve|simplify|give|list|state|count|compare|build|construct|factor(?:i[sz]e)?"
    r"|sketch|describe|decide|investigate|what|which|who)\b"
    r"|\u6c42(?!\u8bc1)|\u591a\u5c11|\u51e0|\u4ec0\u4e48",
    re.IGNORECASE,
)
# What a template was to fill: N_00, number0, [num1], {name}, temp_a, {{num_birds}}, [insert it].
_SLOT = r"(?:num(?:ber)?|val(?:ue)?|name|var(?:iable)?|temp|slot|placeholder)"
_UNFILLED = re.compile(
    rf"(?<![A-Za-z\d\\])(?:{_SLOT}_?\d+|temp_[a-z]|[a-z]_0\d+)(?![A-Za-z\d])"
    rf"|(?<![\w}}])[\[<{{]\s*{_SLOT}_?[a-z\d]?\s*[\]>}}]"
    rf"|(?:\{{\{{|\$\{{)\s*(?:{_SLOT}\w*|[a-z]{{3,}}_[a-z_]{{3,}})\s*\}}"
    r"|\[\s*insert\b[^\]\n]{0,30}\]",
    re.IGNORECASE,
)
_LAST_VALUE = re.compile(r".*(?:=|\b(?:is|are|equals?)\b)\s*([^=\s][^=]{0,80})$", re.DOTALL)
_PROSE_WORD = re.compile(r"[A-Za-z]{2,}")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
# To be filled in.
_BLANK = re.compile(r"_{2,}|\\_\s*\\_|\(\s*\)|\.{4,}|\\(?:underline|square|qquad)")
_INTEGER = re.compile(r"-?[0-9]{1,15}")  # most golds; the grader reads all of them
MIN_REPEATED = 14  # characters of a passage that stands twice at the beginning
MIN_LETTERS = 40  # of Latin prose: below, nothing is known
MIN_MARGIN = 10.0  # nats of log-probability over the best language that is allowed

_FORMULA = re.compile(
    r"\$\$?|\\[\[(]|\[asy\]|\\begin\{\w+\*?\}|\\operatorname\{\w*\}|\\[A-Za-z]+|https?://\S+"
)
_CLOSING = {"$$": "$$", "$": "$", r"\[": r"\]", r"\(": r"\)", "[asy]": "[/asy]"}
_END = re.compile(r"\\end\{\w+\*?\}")
_WORD = re.compile(r"[^\W\d_]+")
# Scripts that no English question is written in. Greek letters are mathematics.
_FOREIGN_LETTER = re.compile(
    "[\u0400-\u052f\u0590-\u06ff\u0900-\u0dff\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"
)


@dataclass(frozen=True, slots=True)
class Checked:
    """A row that stays.

    Args:
        notes: what is to be told of it, names of `NOTES`.
        key: of the normalised question and the trace number, 16 bytes.
        signature: MinHash keys as bytes; empty where near duplicates are not looked for.
        band: its difficulty or source, as `mix` shares them out; None where it is unknown.
    """

    where: str
    problem: Problem
    notes: tuple[str, ...]
    key: bytes
    signature: bytes
    band: str | None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that is left out.

    Args:
        problem: None where the source made none of the row.
        drop: why.
        text: the beginning of a row that is not a problem, for dropped.jsonl.
        match: the evaluation question that it repeats.
    """

    where: str
    problem: Problem | None
    drop: Drop
    text: str = ""
    match: Match | None = None


def check_problem(problem: Problem, source: Source, key: str) -> tuple[str, ...]:
    """All checks but that of language, which costs more; the golds that can serve, or `Drop`."""
    if not problem.question.strip():
        raise Drop("empty_question")
    check_damage(problem.question)
    if key == "sft" and not problem.solution.strip():
        raise Drop("no_solution")
    answers = [answer for answer in problem.answers if not is_sentinel(answer)]
    if not answers:
        raise Drop("sentinel_answer", problem.answers[0][:80])
    if key in TRAINING:
        check_kind(problem)
    readable = [answer for answer in answers if _INTEGER.fullmatch(answer) or is_readable(answer)]
    if not readable:
        raise Drop("gold_not_parseable", answers[0][:80])
    check_level(problem.level, source)
    said = judge_solution(problem.solution, tuple(readable)) if key == "sft" else None
    if said and not said[1]:
        raise Drop("solution_disagrees", f"{said[0][:80]!r}, gold {readable[0][:80]!r}")
    return tuple(readable)


def check_for_own_grader(
    problem: Problem, source: Source, key: str, grader: str, answer_form: str
) -> tuple[str, ...]:
    """The checks that need no mathematics; the golds that the user's grader accepts for themselves.

    Each is shown to it in the answer form, as SFT writes it and a model should. Raises `Drop`.
    """
    if not problem.question.strip():
        raise Drop("empty_question")
    if key == "sft" and not problem.solution.strip():
        raise Drop("no_solution")
    golds = [gold for gold in problem.answers if accepts(grader, gold, [gold], answer_form)]
    if not golds:
        raise Drop("gold_refused", problem.answers[0][:80])
    check_level(problem.level, source)
    return tuple(golds)


def check_damage(question: str) -> None:
    """Raise `Drop` for a blank that a template left, or a text that is there twice."""
    text = _FIGURE.sub("", question)
    if found := _UNFILLED.search(text):
        raise Drop("unfilled_template", found[0])
    start = text[:MIN_REPEATED].casefold()
    again = text.casefold().find(start, MIN_REPEATED) if len(start) == MIN_REPEATED else -1
    first = text[:again].strip(" \n\t,.;:?!") if again > 0 else ""
    if first and text[again:].casefold().startswith(first.casefold()):
        raise Drop("repeated_text", first[:80])


def check_kind(problem: Problem) -> None:
    """Raise `Drop` for a problem of a kind that is not used for training."""
    if points_to_image(problem.question):
        raise Drop("image")
    if asks_for_proof(problem.question):
        raise Drop("proof")
    if problem.source not in CHOICE_SOURCES:
        if is_option(problem.answers[0]):
            raise Drop("multiple_choice", f"gold {problem.answers[0][:80]!r}")
        if shows_options(problem.question):
            raise Drop("multiple_choice", "the question shows options")
    for shown in (*stated_answers(problem.question), last_value(problem.question)):
        if shown and any(is_same_value(shown, answer) for answer in problem.answers):
            raise Drop("shows_answer", shown)


def last_value(question: str) -> str:
    """The value that a text ends with which asks for nothing: "If x + 3 = 10, then x = 7."."""
    if _ASKS.search(question) or _BLANK.search(question):
        return ""
    sentence = _SENTENCE_END.split(question[-1000:].strip())[-1].rstrip(" .!$\\])")
    found = _LAST_VALUE.match(sentence)
    return found[1].strip(" $(\\[") if found and found[1].isascii() else ""


def check_level(level: float | None, source: Source) -> None:
    """Raise `Drop` unless a level is within its source's bounds; an unknown one never is."""
    lowest, highest = source.min_level, source.max_level
    if lowest is None and highest is None:
        return
    is_high_enough = level is not None and (lowest is None or level >= lowest)
    if level is None or not is_high_enough or (highest is not None and level > highest):
        raise Drop("level", f"{level}")


def is_readable(gold: str) -> bool:
    """Whether the grader can read a gold, and it is one value."""
    return is_parseable(gold) and not holds_several_answers(gold) and not is_sentence(gold)


def is_sentence(gold: str) -> bool:
    """Whether words say a number: "She has 7 pens." is read as words, which 7 does not match."""
    plain = without_commands(gold)
    has_number = any(map(str.isdigit, plain)) and len(_PROSE_WORD.findall(plain)) > 1
    return has_number and isinstance(read(gold), Words)


def holds_several_answers(gold: str) -> bool:
    r"""Whether a gold boxes values that differ: `\boxed{1}\boxed{2}` says not which one counts."""
    first, *others = find_boxes(gold) or [""]
    return any(not is_same_value(first, box) for box in others)


def points_to_image(question: str) -> bool:
    """Whether the question holds a reference to a picture; code such as `[asy]` is text."""
    return bool(_IMAGE.search(question))


def shows_options(question: str) -> bool:
    r"""Whether the question lists options (A), (B), (C) or A. B. C., in LaTeX commands or not."""
    plain = _LAYOUT.sub(" ", without_commands(_FIGURE.sub("", question)))
    plain = re.sub(r"\s+", lambda gap: "\n" if "\n" in gap[0] else " ", plain)
    return any(_occur_in_order(labels, plain) for labels in _OPTIONS)


def _occur_in_order(labels: tuple[re.Pattern, ...], text: str) -> bool:
    """Whether each label occurs behind the one before; one pattern for all would be cubic."""
    end = 0
    for label in labels:
        found = label.search(text, end)
        if not found:
            return False
        end = found.end()
    return True


def asks_for_proof(question: str) -> bool:
    """Whether the question asks for a proof and for nothing that has a value."""
    return bool(_PROVE.search(question)) and not _ASKS.search(question)


@functools.cache
def _language_identifier():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(list(LANGUAGES))
    return identifier


def _without_formulas(question: str) -> str:
    """The text between formulas, figures, commands and links; in linear time."""
    last = {closing: question.rfind(closing) for closing in _CLOSING.values()}
    last |= {found[0]: found.start() for found in _END.finditer(question)}
    parts, at = [], 0
    while opening := _FORMULA.search(question, at):
        parts.append(question[at : opening.start()])
        at = opening.end()
        closing = _CLOSING.get(opening[0]) or opening[0].replace("begin", "end", 1)
        # What nothing closes further on is not looked for.
        if last.get(closing, -1) >= at:
            at = question.index(closing, at) + len(closing)
    return " ".join([*parts, question[at:]])


def check_language(question: str, allowed: list[str]) -> None:
    """Raise `Drop` for a question in another language than those; all are allowed where none is."""
    if allowed and (language := find_foreign(question, tuple(allowed))):
        raise Drop("foreign_language", language)


def find_foreign(question: str, allowed: tuple[str, ...]) -> str | None:
    """The language of a question that is in none of the `allowed`; None where it is, or may be.

    Formulas make short questions look foreign ("Write $4.3+3.88$ as a decimal." scores best as
    Portuguese), so LaTeX is removed first. Prose in Latin letters is called foreign only if it is
    long enough and the margin is clear. docs/data.md has the error rate.
    """
    words = _WORD.findall(_without_formulas(question))
    prose = " ".join(word for word in words if len(word) > 1 or _FOREIGN_LETTER.match(word))
    num_foreign = len(_FOREIGN_LETTER.findall(prose))
    # A foreign name in an English question is no foreign question.
    is_foreign_script = num_foreign > 0.2 * max(1, len(prose))
    if not is_foreign_script and len(prose) < MIN_LETTERS:
        return None
    ranked = _language_identifier().rank(prose)
    best, score = ranked[0]
    allowed_score = max(value for name, value in ranked if name in allowed)
    needed = 0.0 if is_foreign_script else MIN_MARGIN
    if best in allowed or score - allowed_score <= needed:
        return None
    return best


def find_band(difficulty: str | ByLevel | None, level: float | None) -> str | None:
    """easy, medium or hard; None where the level that decides is unknown."""
    if not isinstance(difficulty, ByLevel):
        return difficulty
    if level is None:
        return None
    if level >= difficulty.hard:
        return "hard"
    return "medium" if level >= difficulty.medium else "easy"
