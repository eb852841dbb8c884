"""Extract: the one answer that a completion offers, by a strict reader or a lenient one.

Strict, for rewards and scores (`extract`): one `<think>` thought, then the answer. Nothing inside
the thought counts. A completion that offers several values has no answer.
Lenient, for diagnosis only (`read_leniently`): the answer that a patient human would see. A text
that offers several ("7 or 8") is read as that list, which equals no single gold.
Nothing here evaluates anything, and every function runs in time linear in the text.
"""

import re
from dataclasses import dataclass

from grading.asked import find_options, option_letter
from grading.boxes import UPRIGHT, find_answers, find_boxes, plain_words, scan
from grading.equivalence.compare import is_same_value
from grading.equivalence.values import is_measure
from pipeline.prompts import ANSWER_CLOSE, ANSWER_OPEN, BARE_FORMS, THINK_CLOSE, THINK_OPEN

MAX_SPELLINGS = 8  # of one answer in a completion
MAX_STATEMENT = 2_000  # characters of the end of a text in which prose is read
MAX_UNCLOSED = 80  # characters behind `\boxed{` that the text may have ended within
_BLANK = re.compile("[\\s\u200b-\u200f\u2060\ufeff]*")  # invisible characters are no thought


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a completion offers: status no_think, unclosed_think, no_answer, several_answers, ok."""

    prediction: str | None
    status: str
    several: tuple[str, ...] = ()  # answers, together one where the gold is a list of as many


def _split_thought(
    completion: str, think_prefilled: bool | None, answer_form: str = "box"
) -> tuple[str, str, str]:
    """(status, thought, text after it); status is ok, no_think or unclosed_think.

    With None, or in a form that asks for no thought, a completion that only closes one was
    prefilled, and one without tags has none.
    """
    if think_prefilled is None or (not think_prefilled and answer_form in BARE_FORMS):
        if THINK_OPEN not in completion and THINK_CLOSE not in completion:
            return "ok", "", completion
        think_prefilled = THINK_OPEN not in completion
    text = THINK_OPEN + completion if think_prefilled else completion
    if text.rfind(THINK_OPEN) > text.rfind(THINK_CLOSE):
        return "unclosed_think", "", ""
    if text.count(THINK_OPEN) != 1 or text.count(THINK_CLOSE) != 1:
        return "no_think", "", ""  # absent, doubled or re-opened: no thought that can be told apart
    thought, _, rest = text.partition(THINK_OPEN)[2].partition(THINK_CLOSE)
    return "ok", thought, rest


def is_well_formed(
    completion: str,
    think_prefilled: bool = False,
    answer_form: str = "box",
    final_number: bool = False,
) -> bool:
    """Whether a completion is one thought, then one answer in the form that the prompt asks for.

    The thought is not empty and holds no tags. After it comes one box, or one pair of answer tags
    with at most one box between them, and no other tag. With `final_number` a statement without a
    box is an answer, too. The arguments are those of `grade.grade_all`.
    """
    status, thought, rest = _split_thought(completion, think_prefilled, answer_form)
    has_tags = THINK_CLOSE in completion
    if has_tags and _BLANK.fullmatch(thought):
        return False
    if status != "ok" or ANSWER_OPEN in thought or ANSWER_CLOSE in thought:
        return False
    num_pairs = 1 if answer_form == "tags" else 0
    if rest.count(ANSWER_OPEN) != num_pairs or rest.count(ANSWER_CLOSE) != num_pairs:
        return False
    found = find_boxes(rest)
    if find := _FORMS.get(answer_form):
        found = [one for answer in find(rest) for one in find_boxes(answer) or [answer]]
    if not found and final_number and "\\boxed" not in rest:
        return _final_statement(rest).status == "ok"
    return len(found) == 1 and not _BLANK.fullmatch(found[0])


def extract(
    text: str,
    think_prefilled: bool | None = False,
    answer_form: str = "box",
    final_number: bool = False,
    question: str = "",
) -> Extraction:
    """Find the answer that follows the thought; the arguments are those of `grade.grade_all`.

    An empty thought is one: models that are asked not to think write `<think></think>`.
    """
    status, _, rest = _split_thought(text, think_prefilled, answer_form)
    if status != "ok":
        return Extraction(None, status)
    find = _FORMS.get(answer_form)
    found = _read_each(find(rest), question) if find else find_answers(rest, question)
    if not found and final_number and "\\boxed" not in rest:
        return _final_statement(rest)
    return _only_one(found, question)


# What a box may hold and yet say nothing: `\boxed{?}`, `\boxed{\phantom{4}}`.
_NO_ANSWER = re.compile(
    r"(?:[\s?_.$~{}\u2026\u25a1\u2610\u200b-\u200f\u2060\ufeff]"
    r"|\\(?:[,;:! _]|q?quad|[lcd]?dots|[bB]ox|square|underline|text|mathrm|textbf)(?![A-Za-z])"
    r"|\\[hv]?phantom\s*\{[^{}]*\}|\\[hv]space\s*\*?\s*\{[^{}]*\})*"
)


def _only_one(found: list[str], question: str = "") -> Extraction:
    """The last of several answers if all are one value: hedging must not be rewarded.

    Boxes that say nothing, and those of the question, are no answers. A value and the letter that
    the question gives it are one.
    """
    found = [one for one in found if not _NO_ANSWER.fullmatch(one)]
    if len(found) > 1 and "\\boxed" in question:
        copied = set(find_boxes(question))
        found = [one for one in found if one not in copied] or found
    if not found:
        return Extraction(None, "no_answer")
    *parts, last = dict.fromkeys(found)
    if len(parts) > 1 and is_same_value(", ".join(parts), last):
        return Extraction(last.strip(), "ok")  # each, then all in one
    if parts and (joined := _with_its_option(parts, last, question)):
        return Extraction(joined, "ok")
    others = {*found} - {found[-1]}
    if len(others) > MAX_SPELLINGS or not all(is_same_value(one, found[-1]) for one in others):
        return Extraction(None, "several_answers", tuple(dict.fromkeys(found)))
    return Extraction(found[-1].strip(), "ok")


def _with_its_option(parts: list[str], last: str, question: str) -> str | None:
    """B of the boxes 2 and B, where the question says that B is 2; else None."""
    letters = {option_letter(one) for one in (*parts, last)} - {None}
    values = [one for one in (*parts, last) if option_letter(one) is None]
    if len(letters) != 1 or not values or len(values) > MAX_SPELLINGS:
        return None
    (letter,) = letters
    option = find_options(question).get(letter)
    if option is None or not all(is_same_value(one, option) for one in values):
        return None
    return letter


def extract_short(text: str, question: str = "") -> Extraction:
    """Find the answer in a bare value or short text: a box, else the text, else what it states."""
    status, _, text = _split_thought(text, None)
    if status != "ok":
        return Extraction(None, status)
    if find_boxes(text):
        return _only_one(find_answers(text, question), question)
    if "\\boxed{" in text:
        return Extraction(None, "no_answer")  # never closed
    tagged = _tagged(text)
    if tagged:
        return _only_one(tagged)
    return _final_statement(text)


def _hashed(text: str) -> list[str]:
    """What is behind `####` on its line, or on the next."""
    return [answer.strip("*_` \t").rstrip("*_`. \t") for answer in _ANSWER_LINE.findall(text)]


def _tagged(text: str) -> list[str]:
    """What is between answer tags."""
    closed = [part for part in text.split(ANSWER_OPEN)[1:] if ANSWER_CLOSE in part]
    return [part.partition(ANSWER_CLOSE)[0] for part in closed]


def _read_each(answers: list[str], question: str) -> list[str]:
    """The boxes of each as `find_answers` reads them, else its text; empty where none is an answer.

    Boxes that are no answers count beside one that is, as `find_answers` has it within a text.
    """
    found: list[str] = []
    has_answer = False
    for answer in answers:
        boxes = find_boxes(answer)
        said = find_answers(answer, question) if boxes else [answer]
        has_answer = has_answer or bool(said)
        found += said or boxes
    return found if has_answer else []


# A quoted `"####"` only speaks of one; the next on the same line is another answer.
_ANSWER_LINE = re.compile(r"""(?<![#\\])(?:\\?#){4}(?!\\?#|["'”])\s*((?:(?!(?:\\?#){4}).)*)""")
_FORMS = {"tags": _tagged, "hashes": _hashed}

_FILLERS = (
    r"(?:(?:approximately|about|roughly|therefore|thus|hence|so|then|simply|indeed|maybe|equal to)"
    r"\b[\s*_:,]*)*"
)
# A statement of the answer, up to what follows it on its line (or the next, if that is empty).
_MARKER = re.compile(
    r"(?:answer|option|choice|solution)(?:\s+(?:to|of)\s[^.\n]{0,80}?)?[\s*_]*(?:is|:|=|\n)[\s*_:]*"
    rf"{_FILLERS}|(?:\\?#){{4}}\s*",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^(?:(?:option|choice)\s+|(?:so|thus|hence|then|therefore),?\s+(?=[-\d(])"
    r"|[a-z ]{3,40}:[ \t]+|=)\s*",
    re.IGNORECASE,
)
_POLITE = re.compile(r"[.\s]*I hope (?:it|this) (?:is correct|helps).*", re.IGNORECASE | re.DOTALL)
_MATHS = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|\*\*(.+?)\*\*", re.DOTALL
)
_NUMBER = re.compile(
    r"\b\d{1,2}:\d\d(?:\s?[ap]\.?m\b\.?)?"
    r"|(?<![\w.^_{])(?:(?<![\d)\]])[-\u2212]\s?)?(?:\\?\$|[€£])?\d+(?:,\d{3})*(?:\.\d+)?"
    r"(?:\s?/\s?\d+|\s?\\?%|\s?[π√]\d*|\s(?:[kcm]?m|mi)/(?:h|s|min)\b|\s?mph\b)?(?![\w^])"
    r"|(?<=[$€£])\d+(?:,\d{3})*(?:\.\d+)?"
)
# What makes of the number after it a date or a reference: "May 5", "page 5".
_DATED = re.compile(
    r"\b(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]*\.?\s+$"
    r"|\b(?:page|step|chapter|section|exercise|problem|question|figure|equation|example)s?\s+$"
)
_PRICE = re.compile(r"(?<![\\$])\$(?=\d+(?:,\d{3})*(?:\.\d+)?(?![\d$]|\s*[-+*/^=<>\\]))")
# Words between candidates that offer both; " is " alone defines the second by the first.
_HEDGE = re.compile(
    r"(?:[\s,;/*$&.?!()-]|\b(?:or|and|maybe|perhaps|possibly|probably|either|also|even|rather|wait|no"
    r"|not|actually|could|be|it|is|might|else|if|sure|to|i|think|mean|alternatively)\b)*",
    re.IGNORECASE,
)
_DEFINITION = re.compile(r"\s*(?:is|are|be|equals)[\s:]*", re.IGNORECASE)
# What makes of the number after it something else: "not 5", "at least 5".
_DENIAL = re.compile(
    r"(?:\b(?:can)?not|n't|\bimpossible\s+to\s+\w+|\b(?:never|neither|least|most|than|between|twice|double|triple|half|times"
    r"|third|quarter|root|square|cube|reciprocal|opposite|multiple|factor|divisor|percent)(?:\s+of)?)"
    r"\s+(?:(?:be|the|exactly|equal\s+to)\s+)*$",
    re.IGNORECASE,
)
# What comes after these words explains the answer and is not the answer.
_EXPLANATION = re.compile(
    r"\b(?:attained|achieved|reached|occurs?|when|where|if|since|because|with"
    r"|for (?:every|all|any))\b",
    re.IGNORECASE,
)
_CASES = re.compile(r"\b(?:otherwise|else|unless)\b|\bif\b.*\bif\b", re.IGNORECASE | re.DOTALL)
_CONCLUSION = re.compile(r"\b(?:so|hence|thus|therefore|makes|giving|total)\b", re.IGNORECASE)
_RESULT = re.compile("=|then|get|give|leave|equal|come|result")
_CONTENT = re.compile(r"[a-z]{3,}|\d+")
_COMMON = {"the", "and", "for", "are", "was", "were", "has", "have", "had", "this", "that", "with"}
_SENTENCE = re.compile(r"[.!?][*\")]*\s+(?=[A-Z*$\\])")
_NAMED = re.compile(r"\b(?:is|are|was|has|have)\s+((?:[A-Za-z]+\s+){0,3}[A-Za-z]+)\W*$")
_VERBS = {"is", "are", "was", "have", "has", "had", "get", "gets", "makes", "need", "needs", "pays"}


def _is_prose(text: str) -> bool:
    """Whether a text is sentences rather than a value: words beyond a unit or a name or two."""
    outside = UPRIGHT.sub("", text)
    if _MATHS.search(outside) and plain_words(_MATHS.sub("", outside)):
        return True
    words = plain_words(outside)
    digit = re.search(r"\d", outside)
    if not digit:
        return len(words) > 4 or bool(re.search(r"\b(?:is|are|was|has)\b", outside))
    before = plain_words(outside[: digit.start()])
    return len(words) > 2 or len(before) > 1 or not _VERBS.isdisjoint(before)


def _final_statement(text: str) -> Extraction:
    """What a short text ends by stating: after a marker, else its mathematics, else its number."""
    text = _POLITE.sub("", text.strip()[-MAX_STATEMENT:]).replace("```", " ").strip()
    if (whole := re.fullmatch(r"\\text\s*\{([^{}]*)\}", text)) and _MARKER.search(whole[1]):
        text = whole[1].strip()
    signs = re.findall(r"(?<!\\)\$(?=(\d?))", text)
    if all(signs) or len(signs) % 2:  # $5 + $3 = $8, not $5$
        text = re.sub(r"(?<!\\)\$" if all(signs) else _PRICE, r"\\$", text)
    if markers := list(_MARKER.finditer(text)):
        stated = text[markers[-1].end() :].strip()
        first = _NEXT_SENTENCE.split(stated.partition("\n")[0], maxsplit=1)[0]
        rest = stated[len(first) :]
        gap, *number = re.split(r"\d", rest, maxsplit=1)
        is_hedged = number and _HEDGE.fullmatch(gap)
        is_stated = re.search(r"\d", first) and not (is_hedged or _CONCLUSION.search(rest))
        stated = first if is_stated else stated  # "as follows. We get 5"
        text = stated.rstrip(" .*_").strip() or text
    text = _LABEL.sub("", text)  # "Option C", "Total: 5 apples", "= 5"
    if not text:
        return Extraction(None, "no_answer")
    return _last_candidate(text) if _is_prose(text) else Extraction(text, "ok")


def _last_candidate(text: str) -> Extraction:
    """The last formula or number of some prose; several if it offers them as alternatives."""
    found = [(match, next(filter(None, match.groups()))) for match in _MATHS.finditer(text)]
    bold = [inside for match, inside in found if match[5] and not re.search(r"\d", inside)]
    found = [(match, inside) for match, inside in found if not _is_worded(match, inside)]
    numbers = [(match, match[0]) for match in _NUMBER.finditer(text)]
    numbers = [one for one in numbers if not _DATED.search(text[: one[0].start()])]
    if numbers and _is_aside(text, start := _last_sentence(text, numbers)):
        numbers = [one for one in numbers if one[0].end() < start]
    if not found or (numbers and _last_sentence(text, numbers) > found[-1][0].end()):
        found = numbers
    if not found:
        named = bold or _NAMED.findall(text)
        return Extraction(named[-1], "ok") if named else Extraction(None, "no_answer")
    found = _before_explanation(text, found)
    last = len(found) - 1
    if _CASES.search(text, _last_sentence(text, found)):
        last = 0  # all of them: each in its case
    while last:
        gap = text[found[last - 1][0].end() : found[last][0].start()]
        if not _HEDGE.fullmatch(gap) or _DEFINITION.fullmatch(gap):
            break
        last -= 1
    if _DENIAL.search(text[: found[last][0].start()]):
        return Extraction(None, "no_answer")
    # Several candidates are one list: right only where the gold is that list.
    answers = [inside.strip().rstrip(".") + _unit_after(text, at) for at, inside in found[last:]]
    return Extraction(", ".join(answers), "ok")


def _is_aside(text: str, start: int) -> bool:
    """Whether the last sentence is about something else: no word or number of those before it."""
    parts = text[:start].lower(), text[start:].lower()
    before, after = ({word[:5] for word in _CONTENT.findall(part)} for part in parts)
    is_result = _CONCLUSION.search(parts[1]) or _RESULT.search(parts[1])
    return not (is_result or before & after - _COMMON) and bool(re.search(r"\d", text[:start]))


def _unit_after(text: str, match: re.Match) -> str:
    """The measured unit that follows a candidate in the prose, with a space before it."""
    words = re.match(r"\s+((?:square|cubic|sq)\s+)?([A-Za-z]+)", text[match.end() :])
    return f" {words[1] or ''}{words[2]}" if words and _is_unit(words[2]) else ""


def _is_unit(word: str) -> bool:
    """Whether a word of prose is a measure; shorter ones are mostly something else."""
    return len(word) > 2 and is_measure(word)


def _last_sentence(text: str, found: list) -> int:
    """Where the sentence of the last candidate starts."""
    ends = (end.end() for end in _SENTENCE.finditer(text) if end.end() <= found[-1][0].start())
    return max(ends, default=0)


def _before_explanation(text: str, found: list) -> list:
    """The candidates of the last sentence, up to the words that explain them."""
    start = _last_sentence(text, found)
    found = [(match, inside) for match, inside in found if match.start() >= start]
    if _CASES.search(text, start):
        return found  # 12 if n is even, 13 otherwise
    for cut in _EXPLANATION.finditer(text, start):
        before = [(match, inside) for match, inside in found if match.end() <= cut.start()]
        if before and not _CONCLUSION.search(text, cut.end()):
            return before
    return found


def _is_worded(match: re.Match, inside: str) -> bool:
    """Whether what the signs enclose is words: `$5 and Ann has $`, a bold heading."""
    words = [word for word in plain_words(inside) if len(word) > 2]
    return bool(words) or bool(match[5] and not re.search(r"\d", inside) and len(inside) > 1)


# The lenient reader

# Options in one breath: "(B)", but also "A or B", which is no choice.
_OPTIONS = re.compile(
    r"(?<![\w'\\])\(?[A-J](?![\w'])\)?"
    r"(?:[*$}]*\s*(?:[,/&]\s*(?:or|and)?|\bor\b|\band\b)\s*[*${]*\(?[A-J](?![\w'])\)?)*"
)
_LEAD = re.compile(r"(?:[\s*_$({:]|\\text|option\b|choice\b|is\b)*", re.IGNORECASE)
_OPTION_WORD = re.compile(r"\b(?:option|choice)(?:\s+is)?(?:[\s*_$({:]|\\text)*\Z", re.IGNORECASE)
_UNCLOSED_NUMBER = re.compile(
    r"\\boxed\{\s*((?:[-+]\s?)?(?:\\?\$)?\d[\d,]*(?:\.\d+)?)\s*(?:\Z|\n|\$|\.(?:\s|\Z))"
)
_BROKEN_BOX = re.compile(r"\\boxed\s*\{?")
# A fourth-level heading is no answer, so the line must hold nothing but a number.
_HASHES = re.compile(
    r"####[ \t]*([-+]?(?:\\?\$)?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:\\?%)?)[ \t.]*(?=\n|\Z)"
)
_STATEMENT = re.compile(
    r"(?:\banswer\b[^.:=\n]{0,60}?(?:\b(?:is|equals)\b|[:=])[\s*_:]*|<answer>\s*)" + _FILLERS,
    re.IGNORECASE,
)
_NEXT_SENTENCE = re.compile(r"[.!?][*$)\]]*\s+(?=\S)")
_EQUALS = re.compile(r"(?<![<>!=])=+>?")
_REOPENED = re.compile(r".\$|\\[(\[]")  # formulas beyond the one that the equals sign is in
# A number and what it counts: "15 liters of the 24", "$800 on ties", but not "15 or 24".
_COUNTED = re.compile(
    r"((?:[-+]\s?)?(?:\\?\$)?\d[\d,]*(?:\.\d+)?(?:/\d+)?)\s+"
    r"(?!and\b|mod\b)(a|an|at|as|by|in|of|on|to|[A-Za-z]{3,})\b(?!.*\bor\b).*"
)
_END = re.compile(r"\\end\{[a-z]{1,12}\*?\}\Z")
_CALCULATION = re.compile(r"<<[^<>\n]*>>")  # GSM8K's own notes: 48/2 = <<48/2=24>>24
_FORMULA = re.compile(r"\$[^$]+\$|\\[(\[a-zA-Z]")


def read_leniently(completion: str, is_choice: bool = False) -> str | None:
    """The one answer that a completion gives, or None.

    It is looked for behind the last `</think>`, then in all of the text; the first decides of
    1. the last balanced box that is not empty;
    2. the last `<answer>…</answer>`;
    3. a last box that the text ended within, if it holds a plain number, else nothing;
    4. for a multiple-choice question the last option on its own: "(B)", "Answer: B";
    5. GSM8K's `#### 72`;
    6. the last "answer is …", "answer: …" or `<answer>…`, up to the end of its sentence;
    7. "… = x" at the end of the last line;
    8. the last formula or number of the text, unless it is denied ("not 7").
    """
    after = completion.rpartition(THINK_CLOSE)[2]
    for text in dict.fromkeys((after, completion)):
        text = text.replace(THINK_OPEN, "\n").replace(THINK_CLOSE, "\n")
        if (answer := _read(text, is_choice)) is not None:
            return answer
    return None


def _read(text: str, is_choice: bool) -> str | None:
    if any(map(str.strip, find_boxes(text))):
        return _side_by_side_boxes(text)
    _, opened, inside = text.rpartition(ANSWER_CLOSE)[0].rpartition(ANSWER_OPEN)
    if opened and (answer := _short(inside[-MAX_STATEMENT:], is_choice)):
        return answer
    box = text[text.rfind("\\boxed{") :] if "\\boxed{" in text else ""
    if box and not find_boxes(box):
        if number := _UNCLOSED_NUMBER.match(box):
            return number[1]
        if len(box) <= MAX_UNCLOSED and "\n" not in box.strip():
            return None
    tail = _CALCULATION.sub("", text[-MAX_STATEMENT:])
    if is_choice and (answer := _option(tail)):
        return answer
    if hashes := _HASHES.findall(tail):
        return hashes[-1]
    if not _STATEMENT.search(tail) and (answer := _equated(tail)):
        return answer
    return _last_value(tail)


def _short(text: str, is_choice: bool = False) -> str | None:
    """The answer in a short piece of text without a box."""
    if is_choice and (answer := _option(text)):
        return answer
    text = _BROKEN_BOX.sub(" ", text.replace(ANSWER_OPEN, "\n").replace(ANSWER_CLOSE, "\n"))
    text = re.sub(r"\A" + _FILLERS, "", text.strip(" \n*_`"), flags=re.IGNORECASE)
    return extract_short(text).prediction


def _side_by_side_boxes(text: str) -> str:
    """The last box, with those before it that only an "or", an "and" or a comma parts from it."""
    *others, box = [box for box in scan(text) if box.content.strip()]
    start, last = box.start, box.content
    run = [last]
    for before in others[: -MAX_SPELLINGS - 1 : -1]:
        if not _HEDGE.fullmatch(text[before.end : start]):
            break
        run.insert(0, before.content)
        start = before.start
    is_one = all(is_same_value(box, last) for box in {*run} - {last})
    return last.strip() if is_one else ", ".join(map(str.strip, run))


def _option(tail: str) -> str | None:
    """The option that the last "answer is …" states, else the last on its own: no mere article."""
    if statements := list(_STATEMENT.finditer(tail)):
        rest = tail[statements[-1].end() :]
        if (found := _OPTIONS.search(rest)) and _LEAD.fullmatch(rest[: found.start()]):
            return _letters(found[0])
    closing = len(_without_closing(tail).rstrip("}) "))
    alone = [
        found
        for found in _OPTIONS.finditer(tail)
        if found.end() >= closing or _is_on_its_own(tail, found)
    ]
    return _letters(alone[-1][0]) if alone else None


def _is_on_its_own(tail: str, found: re.Match) -> bool:
    """Whether a letter is an option: "(B)", "option B", or "B." at the start of the text."""
    if re.match(r"\([A-J]\)", found[0]):
        return True
    if _OPTION_WORD.search(tail[max(0, found.start() - 30) : found.start()]):
        return True
    end = found.end() if found[0].endswith(")") else found.end() + 1
    return bool(re.fullmatch(r"\s*[A-J](?:\)|[.:])", tail[:end]))


def _letters(options: str) -> str:
    return ", ".join(dict.fromkeys(re.findall(r"[A-J]", options)))


def _without_closing(text: str) -> str:
    """The text without the print that may follow its last value: `$.`, `\\]`, `**`."""
    while True:
        text = text.rstrip(" \t\r\n$.*_`")
        if text.endswith(("\\]", "\\)")):
            text = text[:-2]
        elif end := _END.search(text, max(0, len(text) - 20)):
            text = text[: end.start()]
        else:
            return text


def _equated(tail: str) -> str | None:
    """The value behind the last equals sign, if the last line ends with it."""
    line = _without_closing(tail).rpartition("\n")[2]
    *sides, value = _EQUALS.split(line)
    value = value.strip()
    if not sides or not value or _NEXT_SENTENCE.search(value) or _REOPENED.search(value):
        return None
    if counted := _COUNTED.fullmatch(value):
        number, thing = counted[1], counted[2]
        return f"{number} {thing}" if _is_unit(thing) else number
    return _short(value)


def _last_value(tail: str) -> str | None:
    """The last formula or number; words alone are an answer only where they are stated as one."""
    answer = _short(tail)
    is_value = re.search(r"\d", answer or "") or _FORMULA.search(tail) or _STATEMENT.search(tail)
    return answer if is_value else None
