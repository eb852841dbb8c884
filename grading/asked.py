"""Asked: what a question says about the form of its answer, its options and its base."""

import functools
import re
from collections.abc import Sequence

MAX_OPTIONS = 10
_PRINT = r"(?:\\(?:text|math)[a-z]*\s*\{|\\(?:rm|bf)(?![a-z])|[\s${*]|\\ )*"
_AFTER = r"(?:[\s$}*~:.]|\\[ ,;:])*"
_LETTER = re.compile(rf"{_PRINT}[(\[]?\s*([A-J])\s*[)\]]?{_AFTER}")
# `(A) 1`, `A: 1`, `A. 1`, `[A] 1`, `\textbf{(A)}\ 1`, at the start of a line or behind a space.
_MARK = re.compile(
    rf"(?:(?<=[\s$}}~\[,;])|(?<=quad)|(?<=\\\\)|^)(?:[-*\u2022]\s+)?{_PRINT}"
    rf"(?:[(\[]([A-J])(?:\s|\\ )*[)\]]|([A-J])[).:](?!\d)){_AFTER}(?=\S)",
    re.MULTILINE,
)
_END = re.compile(r"(?:[\s,;$~]|\\q?quad|\\[ ,;!]|\\\\|\.(?=\s*$))+$")


def option_letter(text: str) -> str | None:
    """The letter of an answer that is one option and nothing more, else None."""
    match = _LETTER.fullmatch(text)
    return match[1] if match else None


@functools.lru_cache(maxsize=1024)  # of a group's completions each asks for them
def find_options(question: str) -> dict[str, str]:
    """{letter: text} of the options in a question, which must be A, B, C, … in this order."""
    options: dict[str, str] = {}
    if not any(mark in question for mark in ("B)", "B.", "B:", "B]", "B}")):
        return options
    marks = list(_MARK.finditer(question))
    for at, mark in enumerate(marks):
        letter = mark[1] or mark[2]
        if letter == "A":
            options = {}  # the last list counts
        elif letter != chr(ord("A") + len(options)):
            continue
        following = (one.start() for one in marks[at + 1 :])
        text = question[mark.end() : next(following, len(question))].partition("\n\n")[0]
        text = _END.sub("", text)
        options[letter] = text.replace("$", "") if text.count("$") % 2 else text
    return options if len(options) > 1 else {}


_BASE = re.compile(
    r"\b(?:in|to|into)\s+base[\s-]+(\w+)|\bbase\b(?!.*\b(?:in|to)\s+base)", re.I | re.S
)


def _asked_base(question: str) -> str | None:
    """The base that an answer is to be written in, None where the question is not about bases."""
    if not (found := _BASE.search(question)):
        return None
    return found[1] or "10"


def golds_as_asked(golds: Sequence[str], question: str) -> list[str]:
    """The golds, and each that is an option's letter or value as both of them: `(B) 2`.

    Digits of which the question names the base are a gold with the base, too: `2011_3`.
    """
    if not question:
        return [*golds]
    options, base = find_options(question), _asked_base(question)
    both = [f"{gold}_{{{base}}}" for gold in golds if base and gold.strip().isalnum()]
    for gold in golds if options else ():
        letter = option_letter(gold)
        if letter in options:
            both.append(f"({letter}) {options[letter]}")
        elif letter is None:
            plain = gold.replace(" ", "").strip("$")
            same = [
                one for one, text in options.items() if text.replace(" ", "").strip("$") == plain
            ]
            both += [f"({one}) {gold}" for one in same[:1]]
    return [*golds, *both]
