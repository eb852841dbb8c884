"""One text for all editions of a question that differ in case, spacing and punctuation only."""

import hashlib
import re

MIN_LETTERS = 30
_SIGNS = re.compile(r"[\W_]")
_INVISIBLE = re.compile(r"[\u200b-\u200d\u2060\ufeff]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
# Signs that carry mathematics stay (3-2 is not 3+2, 1.5 is not 15, 5! is not 5); the rest goes.
_PUNCTUATION = re.compile(r"[,;:?$'\"`\u2018\u2019\u201c\u201d\u2026]|(?<![\d)])!|\.(?!\d)")
_AROUND_SIGN = re.compile(r" ?([-+*/=<>^(){}\[\]|]) ?")


def normalise_question(question: str) -> str:
    """A question without what editions of one problem differ in: case, spacing, punctuation."""
    text = _INVISIBLE.sub("", question.casefold())
    text = _PUNCTUATION.sub(" ", _THOUSANDS.sub("", text))
    return _AROUND_SIGN.sub(r"\1", " ".join(text.split())).strip()


def question_key(question: str, trace: int = 0) -> bytes:
    """16 bytes that are equal for equal normalised questions and trace numbers."""
    text = f"{trace} {normalise_question(question)}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def text_keys(question: str) -> list[str | bytes]:
    """Keys of which one is equal where two questions count as the same text.

    The second looks at letters and digits alone. It also takes a question for another that differs
    in a sign: two rows of 48,000 real ones, little for what editions lose in signs and braces. In
    short texts a sign is too often all that differs, so it is left out there.
    """
    letters = _SIGNS.sub("", question.casefold())
    return [question_key(question), *([letters] if len(letters) >= MIN_LETTERS else [])]


def without_options(question: str) -> str:
    """A question of ARC or GPQA without the lines of its options, which editions order freely."""
    return question.rpartition("\n\nA. ")[0] or question
