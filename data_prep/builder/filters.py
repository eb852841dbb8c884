"""The problems that a set keeps, judged one by one, and how a mix is drawn.

`duplicates` judges problems against each other, `data_prep.sources` those of single sources.
docs/data.md lists all reasons to leave a problem out. Evaluation sets are not filtered by kind or
language. ARC and GPQA are multiple choice by design.

A source says how hard its problems are: `difficulty: easy` for all of them, or by their level. With
`difficulty: {by: level, medium: 3, hard: 5}`, levels 3 and 4 are medium, 5 and above hard.
`mix: {grpo: {easy: 0.2, medium: 0.5, hard: 0.3, size: 10000}}` then draws a set with these shares.
Without `difficulty`, `mix: {grpo: {gsm8k: 0.3, math: 0.7}}` gives each source a share by its name.
"""

import functools
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_prep.builder.recipe import LANGUAGES, TRAINING, Source, shares_of
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
from grading.canonical import letters_of
from grading.compare import is_parseable, is_same_value, read
from grading.own_grader import accepts
from grading.values import Bracketed, Named, Number, Several, Value, Words

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
# "She now has 7 pens.", the only number of a sentence.
_ONLY_NUMBER = re.compile(
    r"\D*\b(?:has|have|had|is|are|was|were|gets?|got|costs?|makes?|leaves?|gives?|takes?|needs?)\b"
    r"\D{0,60}(?<![\w^{_])(\d[\d,]*(?:\.\d+)?)\D*\Z"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d+)?(?!\w)")
_COUNTED = re.compile(r"(?=.*[A-Za-z]{2})(?:\s*[A-Za-z]\s*=)?[A-Za-z\s()\[\].,;:$/-]*", re.DOTALL)
# "(legs)", "miles"; "2 xy" may be x times y.
_PLAIN_WORD = re.compile(r"(?<=\s[(\[])[A-Za-z]{2,}|(?i:\b(?=[a-z]*[aeiou])[a-z]{3,})")
_DATE = re.compile(r"\s*[A-Z][a-z]+ \d{1,2}\s*")  # October 30, Day 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_BLANK = re.compile(
    r"_{2,}|\\_\s*\\_|\(\s*\)|\.{4,}|\\(?:underline|square|qquad)"
)  # to be filled in
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
    """A row and the result of its checks.

    Args:
        problem: None where the source made none of the row.
        drop: why it is left out, or None; the fields after `match` are set only if it stays.
        text: the beginning of a row that is not a problem, for dropped.jsonl.
        match: the evaluation question that it repeats.
        notes: what is to be told of a row that stays, names of `NOTES`.
        key: of the normalised question and the trace number, 16 bytes.
        signature: MinHash keys as bytes; empty where near duplicates are not looked for.
    """

    where: str
    problem: Problem | None
    drop: Drop | None = None
    text: str = ""
    match: Match | None = None
    notes: tuple[str, ...] = ()
    key: bytes = b""
    signature: bytes = b""
    band: str | None = None


def check_kind(problem: Problem) -> Drop | None:
    """Why a problem of this kind is not used for training; None where it is used."""
    if points_to_image(problem.question):
        return Drop("image")
    if asks_for_proof(problem.question):
        return Drop("proof")
    if problem.source not in CHOICE_SOURCES:
        if is_option(problem.answers[0]):
            return Drop("multiple_choice", f"gold {problem.answers[0][:80]!r}")
        if shows_options(problem.question):
            return Drop("multiple_choice", "the question shows options")
    for shown in (*stated_answers(problem.question), *stated_facts(problem.question)):
        if any(is_same_value(shown, answer) for answer in problem.answers):
            return Drop("shows_answer", shown)
    return None


def stated_facts(question: str) -> Iterator[str]:
    """The value that a text ends with which asks for nothing: "If x + 3 = 10, then x = 7."."""
    if _ASKS.search(question):
        return
    if _BLANK.search(question):
        return
    sentence = _SENTENCE_END.split(question[-1000:].strip())[-1].rstrip(" .!$\\])")
    for pattern in (_LAST_VALUE, _ONLY_NUMBER):
        if (found := pattern.match(sentence)) and found[1].isascii():
            yield found[1].strip(" $(\\[")


def find_damage(question: str) -> Drop | None:
    """What makes a question unusable in any set: a blank that its template left, or text twice."""
    text = _FIGURE.sub("", question)
    if found := _UNFILLED.search(text):
        return Drop("unfilled_template", found[0])
    start = text[:MIN_REPEATED].casefold()
    again = text.casefold().find(start, MIN_REPEATED) if len(start) == MIN_REPEATED else -1
    first = text[:again].strip(" \n\t,.;:?!") if again > 0 else ""
    if first and text[again:].casefold().startswith(first.casefold()):
        return Drop("repeated_text", first[:80])
    return None


def check_problem(problem: Problem, source: Source, key: str) -> Drop | tuple[str, ...]:
    """All checks but that of language, which costs more; the golds that can serve."""
    if not problem.question.strip():
        return Drop("empty_question")
    if drop := find_damage(problem.question):
        return drop
    if key == "sft" and not problem.solution.strip():
        return Drop("no_solution")
    answers = [answer for answer in problem.answers if not is_sentinel(answer)]
    if not answers:
        return Drop("sentinel_answer", problem.answers[0][:80])
    if key in TRAINING and (drop := check_kind(problem)):
        return drop
    readable = [answer for answer in answers if _INTEGER.fullmatch(answer) or is_readable(answer)]
    if not readable:
        return Drop("gold_not_parseable", answers[0][:80])
    if not has_wanted_level(problem.level, source):
        return Drop("level", f"{problem.level}")
    said = judge_solution(problem.solution, tuple(readable)) if key == "sft" else None
    if said and not said[1]:
        return Drop("solution_disagrees", f"{said[0][:80]!r}, gold {readable[0][:80]!r}")
    return tuple(readable)


def check_for_own_grader(
    problem: Problem, source: Source, key: str, grader: str, answer_form: str
) -> Drop | tuple[str, ...]:
    """The checks that need no mathematics; the golds that the user's grader accepts for themselves.

    Each is shown to it in the answer form, as SFT writes it and a model should.
    """
    if not problem.question.strip():
        return Drop("empty_question")
    if key == "sft" and not problem.solution.strip():
        return Drop("no_solution")
    golds = [gold for gold in problem.answers if accepts(grader, gold, [gold], answer_form)]
    if not golds:
        return Drop("gold_refused", problem.answers[0][:80])
    if not has_wanted_level(problem.level, source):
        return Drop("level", f"{problem.level}")
    return tuple(golds)


def has_wanted_level(level: float | None, source: Source) -> bool:
    """Whether a level is within the bounds of its source; an unknown one is only without any."""
    if source.min_level is None and source.max_level is None:
        return True
    if level is None:
        return False
    if source.min_level is not None and level < source.min_level:
        return False
    return source.max_level is None or level <= source.max_level


def is_readable(gold: str) -> bool:
    """Whether the grader can read a gold, and it is one value."""
    return is_parseable(gold) and not holds_several_answers(gold) and not is_misread(gold)


def is_misread(gold: str) -> bool:
    """Whether a number with words about it is read as something else, which it does not match."""
    plain = without_commands(gold)
    numbers, rest = _NUMBER.findall(plain), _NUMBER.sub("", plain)
    if len(numbers) != 1 or not _COUNTED.fullmatch(rest) or _DATE.fullmatch(plain):
        return False

    def is_wrong(value: Value) -> bool:
        match value:
            case Number():
                names = letters_of(value) | {"e", "i"}
                return any(word in names or {*word} <= names for word in _PLAIN_WORD.findall(rest))
            case Words():
                return True
            case Named(_, inner):
                return is_wrong(inner)
            case Several(items) | Bracketed(_, items, _):
                return any(map(is_wrong, items))
        return False

    return not is_same_value(numbers[0], gold) and is_wrong(read(gold))


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


def find_band(difficulty: str | dict[str, Any] | None, level: float | None) -> str | None:
    """easy, medium or hard; None where the level that decides is unknown."""
    if not isinstance(difficulty, dict):
        return difficulty
    if level is None:
        return None
    if level >= difficulty["hard"]:
        return "hard"
    return "medium" if level >= difficulty["medium"] else "easy"


def plan_counts(available: Mapping[str, int], mix: Mapping[str, float]) -> dict[str, int]:
    """How many problems of each band, or of each source, a set with these shares can have at most.

        N = min over bands b with share_b > 0 of floor(available_b / share_b), and at most `size`

    Counts are share x N, rounded by largest remainders so that they add up to N.
    """
    wanted = {band: share for band, share in shares_of(dict(mix)).items() if share > 0}
    # The small addend: 3 / 0.3 is 10, and not 9.99….
    total = min(int(available.get(band, 0) / share + 1e-9) for band, share in wanted.items())
    total = min(total, int(mix.get("size", total)))
    exact = {band: share * total for band, share in wanted.items()}
    counts = {band: int(number + 1e-9) for band, number in exact.items()}
    by_remainder = sorted(wanted, key=lambda band: (counts[band] - exact[band], band))
    for band in by_remainder[: total - sum(counts.values())]:
        counts[band] += 1
    # Rounding up may ask a band for one more than it has.
    return {band: min(number, available.get(band, 0)) for band, number in counts.items()}


def choose_mix(bands: Sequence[str], mix: Mapping[str, float], seed: str) -> set[int]:
    """Indices of the problems of a mix, drawn at random within each band; see `plan_counts`."""
    counts = plan_counts(Counter(bands), mix)
    members = {band: [i for i, each in enumerate(bands) if each == band] for band in counts}
    rng = random.Random(seed)
    return {index for band, n in counts.items() for index in rng.sample(members[band], n)}
