"""Options: the choices that a multiple-choice question lists, and golds that name one of them."""

import functools
import re
from collections.abc import Sequence

MAX_OPTIONS = 10
_LETTER = re.compile(
    r"[\s$]*(?:\\(?:text|mathrm|textbf|mathbf)\s*\{)*[\s(]*([A-J])[\s).:]*\}*[\s$]*"
)
# `(A) 1`, `A: 1`, `A. 1`, `\textbf{(A)}\ 1`, at the start of a line or behind a space.
_MARK = re.compile(
    r"(?:(?<=\s)|(?<=[$}])|^)(?:\$?\\(?:text|mathrm|textbf|mathbf|rm|bf)\s*\{\s*)?"
    r"(?:\(([A-J])\)|([A-J])\s*[).:](?!\d))[\s.:]*\}?\$?(?:\s|\\ |~|\\[,;:]|\\quad|(?=[$\\\d-]))\s*",
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
        options[letter] = text + "$" if text.count("$") % 2 else text
    return options if len(options) > 1 else {}


def golds_with_options(golds: Sequence[str], question: str) -> list[str]:
    """The golds, and with each that is an option's letter or value both of them: `(B) 2`."""
    options = find_options(question) if question else {}
    both = []
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
