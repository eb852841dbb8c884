r"""Kinds of problems: proofs, multiple choice, pictures, and golds that are no answer.

Every source's problems are sorted by these, see `policies`. They read text alone and
prefer to say no: a problem taken for what it is not would be lost.
"""

import re

from data_prep.grading.answers import find_boxes, is_same_value

_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathsf|bf|rm|mbox|boxed|fbox)"
    r"\s*\{([^{}]*)\}"
)
_OPTION = re.compile(
    r"\(?[A-H]\)?[.:]?"  # C, (C), C.
    r"|\(?[A-H]\s*[).:].*"  # C) 2, (C) 2, C: 2
    r"|[A-H]\s+\d.*"  # C 2
    r"|.*\([A-H]\)"  # 40 (B)
    r"|.*\\\(\(?[A-H][).:].*"  # The final answer is \(C. 0.8\)
    r"|[A-H](?:(?:\s|,|and|or)*[A-H])+",  # ABD; A, E; A and D
    re.DOTALL,
)
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
    r"|statement|theorem|formula|relation))\b|\s*:|\s*,?\s*for (?:all|any|every|each)\b"
    r"|(?<=prove)\s+(?!your\b|it\b|this\b|why\b))"
    r"|(?<!\u4e0d\u9700\u8981)\u8bc1\u660e|\u6c42\u8bc1",
    re.IGNORECASE,
)
# What asks for a value beside the proof; the second kind of verb only where a sentence begins.
_ASKS = re.compile(
    r"\?|\uff1f|\b(?:find|determine|compute|calculate|evaluate|express"
    r"|what (?:is|are|can|must|value)|how (?:many|much|long|far|old|often|large|small|big))\b"
    r"|(?:^|[.:;!\n)]\s{0,9}|\b(?:and|then|also|hence|please) )"
    r"(?:provide|solve|simplify|give|list|state|count|compare|build|construct|factor(?:i[sz]e)?"
    r"|sketch|describe|decide|investigate|what|which|who)\b"
    r"|\u6c42(?!\u8bc1)|\u591a\u5c11|\u51e0|\u4ec0\u4e48",
    re.IGNORECASE,
)
# "none" is the one that may be a real answer; there it cannot be told from a missing one.
_SENTINELS = frozenset(
    (
        "proof", "notfound", "not found", "answer not found", "n/a", "nan", "null", "none",
        "unknown", "see solution", "see the solution", "see above", "see below", "see proof",
        "see the proof", "see figure", "no answer", "no answer found", "no answer provided",
        "no answer available", "not available", "not given", "not provided", "unanswered", "todo",
        "tbd", "proved", "proven", "qed", "q.e.d", "-", "--", "---", "?", "??", "???", "...",
        "\u2026", "_", "__", "___", "*", ".", "/", "\\ldots", "\\dots", "\\cdots", "\\square",
        "\\blacksquare", "\u7565", "\u65e0\u7b54\u6848", "\u89c1\u89e3\u6790", "\u8bc1\u660e",
        "\u8bc1\u660e\u7565",
    )
)  # fmt: skip


def _without_commands(text: str) -> str:
    for _ in range(3):  # as deep as they are nested in earnest
        text = _TEXT_COMMAND.sub(r"\1", text)
    return text


def is_option(gold: str) -> bool:
    """Whether a gold is a multiple-choice option: its letter, alone or beside the value."""
    plain = _without_commands(gold).replace("\\ ", " ").strip(" $~")
    return bool(_OPTION.fullmatch(plain))


def is_sentinel(gold: str) -> bool:
    r"""Whether a gold says that there is no answer (`proof`, `notfound`, `N/A`), boxed or not.

    "no solution", "DNE" and `\emptyset` are answers.
    """
    plain = _without_commands(gold).replace("\\ ", " ").strip().strip("$()[]\"'`<>{} ")
    plain = re.sub(r"[\s_]+", " ", plain.casefold()) if len(plain) > 3 else plain.casefold()
    return plain in _SENTINELS or plain.rstrip(".!") in _SENTINELS


def holds_several_answers(gold: str) -> bool:
    r"""Whether a gold boxes values that differ: `\boxed{1}\boxed{2}` says not which one counts."""
    first, *others = find_boxes(gold) or [""]
    return any(not is_same_value(first, box) for box in others)


def points_to_image(question: str) -> bool:
    """Whether the question holds a reference to a picture, which a row of text cannot show.

    Figures given as code, such as `[asy]`, are text.
    """
    return bool(_IMAGE.search(question))


def shows_options(question: str) -> bool:
    r"""Whether the question lists options (A), (B), (C) or A. B. C., in LaTeX commands or not."""
    plain = _LAYOUT.sub(" ", _without_commands(_FIGURE.sub("", question)))
    plain = re.sub(r"\s+", lambda gap: "\n" if "\n" in gap[0] else " ", plain)
    return any(_occur_in_order(labels, plain) for labels in _OPTIONS)


def _occur_in_order(labels: tuple[re.Pattern, ...], text: str) -> bool:
    """Whether each label occurs behind the one before; one pattern for all would be cubic."""
    end = 0
    for label in labels:
        if not (found := label.search(text, end)):
            return False
        end = found.end()
    return True


def asks_for_proof(question: str) -> bool:
    """Whether the question asks for a proof and for nothing that has a value."""
    return bool(_PROVE.search(question)) and not _ASKS.search(question)


_SHOWN = re.compile(r"\b(?:final )?(?:answer|ans)\s*[:.=]\s*(\S.{0,120}?)\s*$", re.IGNORECASE)


def shown_answer(question: str) -> str | None:
    """What a question ends with as its own answer, such as 56 in "… Answer: 56."; or None."""
    found = _SHOWN.search(question[-200:])
    return found[1].rstrip(".") if found else None
