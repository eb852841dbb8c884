"""Boxes: what each `\\boxed{…}` of a text holds, and whether it states an answer.

A box is no answer where it is a part of a larger formula, where a word such as "million" follows,
or where the text denies it. The searches run in linear time.
"""

import re
from typing import NamedTuple

from grading import units
from grading.compare import is_same_value
from grading.latex import tokenise, word_set

MAX_AROUND = 120  # characters on either side of a box that are looked at
MAX_NEAR = 40  # characters before a box in which the last words before it are
MAX_BEFORE = 200  # characters before a box in which a group before or around it may open
MAX_BOXES = 50  # of a text, from its end, whose surroundings are looked at
MAX_ENCLOSING = 4  # groups around a box that are looked at


class Box(NamedTuple):
    """One box: where it starts and ends, its content, and the commands whose groups hold it."""

    start: int
    end: int
    content: str
    inside: tuple[str, ...] = ()


def find_boxes(text: str) -> list[str]:
    """Contents of every balanced outermost `\\boxed{…}`, in order; unclosed ones do not count."""
    return [box.content for box in scan(text)]


def last_boxed(text: str) -> str | None:
    """Content of the last balanced `\\boxed{…}`, or None where there is none."""
    boxes = find_boxes(text)
    return boxes[-1] if boxes else None


def find_answers(text: str, question: str = "") -> list[str]:
    """What the boxes say; empty where none is an answer."""
    boxes, has_answer = scan(text), False
    found = [box.content for box in boxes[:-MAX_BOXES]]
    for box in boxes[-MAX_BOXES:]:
        before = text[max(0, box.start - MAX_AROUND) : box.start]
        after = text[box.end : box.end + MAX_AROUND]
        is_struck = after.lstrip(" $*").startswith(("~~", "<")) and bool(_STRUCK.search(before))
        prefix = _START.split(text[max(0, box.start - MAX_BEFORE) : box.start])[-1]
        has_factor = bool(_LETTER.match(after)) and "coefficient" not in question
        has_answer = has_answer or not (
            is_struck
            or has_factor
            or _is_part(box, before, prefix, after)
            or _is_scaled(after, question.lower())
            or is_denied(before, box.content, after)
        )
        found.append(box.content + _unit_behind(box.content, after))
    return found if has_answer else []


_BARE = re.compile(r"\\boxed\s+(-?\d+(?:[.,]\d+)*|[A-Za-z](?![A-Za-z]))")
_GROUP = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
# What stands before a group: its command, a power or an index, or the group before it.
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*(?:\[[^\]{}]*\]\s*)?((?:\{[^{}]*\}\s*){0,2})$|([\^_}])\s*$")


def scan(text: str) -> list[Box]:
    """Every balanced outermost box, found in one pass."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    around: dict[int, list[int]] = {}
    first, last = text.find("\\boxed"), text.rfind("\\boxed")
    if first < 0:
        return []
    for token in _GROUP.finditer(text, max(0, first - MAX_BEFORE)):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0][-1] == "{" and token[0] != "\\{":
            around[token.start()] = opened[-MAX_ENCLOSING:]
            opened.append(token.end() - 1)
        elif token[0] == "}" and opened:
            closes[opened.pop()] = token.start()
            if not opened and token.start() > last:
                break
    boxes = [Box(bare.start(), bare.end(), bare[1]) for bare in _BARE.finditer(text)]
    end = 0
    for start, groups in around.items():
        brace = text.index("{", start)
        close = closes.get(brace)
        if close is not None and start >= end:
            inside = tuple(_command(text, at) for at in groups if at in closes)
            boxes.append(Box(start, close + 1, text[brace + 1 : close], inside))
            end = close
    return sorted(boxes)


def _command(text: str, brace: int) -> str:
    """The command that a group belongs to; "" for a plain group."""
    found = _COMMAND.search(text[max(0, brace - MAX_AROUND) : brace])
    return (found[1] or found[3]) if found else ""


# A part of a larger formula

# Commands and marks that make something else of what is in their group.
_CHANGES = re.compile(
    r"[dtc]?frac|[dt]?binom|sqrt|root|[\^_}]|sin|cos|tan|cot|sec|csc|log|ln|lg|exp|overline|bar|hat"
    r"|vec|[bx]?cancel|sout|st|not|operatorname|pmod|bmod|lfloor|lceil"
)
_SIGNS = (
    r"(?:[-+/\u00d7\u00f7\u00b7\u2212]|(?<!\*)\*(?!\*)|\\(?:times|cdot|div|ast|pm|mp)(?![A-Za-z]))"
)
_LABEL = r"\\(?:(?:color|text)[a-z]*|math(?:rm|bf|it|sf)|[mh]box|label|tag|[hv]space)\*?\s*\{[^{}]*"
# What ends the formula before a box: a relation, an arrow, a separator, a full stop, a delimiter.
_START = re.compile(
    rf"{_LABEL}[:,;.=!?][^{{}}]*\}}+|\\begin\s*\{{[a-z]+\*?\}}"
    r"|[$&:,;\n=<>\u2190-\u21ff\u2208\u2234\u2243\u2245\u2248\u2261\u2264\u2265\u27f5-\u27ff]"
    r"|[.!?](?=[\s*])|\\(?:[()\[\]]|\\[(\[]?|(?:q?quad|[A-Za-z]*(?:[aA]rrow|eq)[a-z]*|[a-z]*sim"
    r"|approx|cong|therefore|because|implies|i?ff|(?:maps|leads|prop)?to|in|[lg]e|equiv|colon|mid)(?![A-Za-z]))"
)
_BLANK = (
    r"(?:[\s{.*~]|\\[!,;: ]|\\(?:left|[a-z]*style|[lL]arge|[hH]uge|bf|rm|boldsymbol)(?![A-Za-z])"
    rf"|{_LABEL}(?:\}}|$))*"
)
_NOTHING = re.compile(_BLANK)
# An operator with something to operate on, a function, or a factor right before a box.
_OPERATION = re.compile(
    r"(?:[\d)\]}!%\u221a]|(?<![A-Za-z\\])[A-Za-z]|\\(?:pi|[cl]?dots|alpha|theta))\s*"
    rf"{_SIGNS}{_BLANK}$"
    r"|(?:[\^_\u221a\u00b1]|\\(?:pm|mp|sqrt|d?frac|sin|cos|tan|cot|log|ln|exp|sum|int|lim))"
    r"[\s{(]*(?:\\left\s*\()?$"
)
_TOUCHING = re.compile(r"(?<![A-Za-z\d.])(?:\d+|[A-Za-z])$")
# "Step 2 - 5" is no difference, "\n- 5" is a list, "2 *5*" is emphasis.
_NO_OPERATION = re.compile(
    r"(?:\b(?:step|part|case|option|problem|question|exercise|answer|method|no\.|#)\s*"
    r"\(?(?:\d+|[A-Za-z])[.):]*|(?:^|\n)\s*\(?(?:\d+|[A-Za-z])[.)])\s*[-\u2212]\s*$|\s\*$"
    r"|(?:^|\n)[ \t]*[-+*\u2212\u2022][ \t]+[*_ ]*$",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[abceijknp-rt-z](?![A-Za-z])")  # others may be units
_RIGHT = re.compile(
    r"\d|_\{?\d|\.\d|\{?,\}?\d{3}|\((?:[a-z]|\d+)\s*[-+*/^)]|\\left\s*\("
    rf"|\s*(?::\s*(?!00)\d|(?:\^\{{?\\circ\}}?|\\%)?\s*{_SIGNS}"
    r"(?:\s*(?:\(?\d|\\(?:[dt]?frac|sqrt|pi|boxed)(?![A-Za-z]))|[A-Za-z](?![A-Za-z]))"
    r"|(?:\\right)?\)?\s*\^(?!\s*\{?\s*\\circ)|!(?=\s*\$)"
    r"|\\(?:sqrt|pi|ln|log|sin|cos|tan|theta|alpha|binom)(?![A-Za-z])"
    r"|\\[dt]?frac(?!\s*\{\s*\\(?:text|mathrm)))"
)
_IN_MATRIX = re.compile(r"\\begin\s*\{(?:[bpvBV]?matrix|smallmatrix)\}(?:(?!\\end).)*$", re.DOTALL)
_BULLET = re.compile(r"[^\n]{0,4}\n\s*[-*+\u2022]\s")
_CLOSED = re.compile(r"(?:[^$\\\n]|\\[^)\]]|\n(?!\n))*(?:\$|\\[)\]]|\\end)")
_UPRIGHT = re.compile(r"\\[a-z]*(?:text|rm|bf|it|name|box)[a-z]*\s*\{[^{}]*\}")
_PLAIN_WORD = re.compile(r"(?<![\\A-Za-z{])(?=[A-Z]*[a-z])[A-Za-z]{2,}")


def plain_words(text: str) -> list[str]:
    """The words of a text outside `\\text{…}`, without "or" and "and"."""
    words = _PLAIN_WORD.findall(_UPRIGHT.sub("", text))
    return [word for word in words if word.lower() not in ("or", "and")]


def _is_part(box: Box, before: str, prefix: str, after: str) -> bool:
    """Whether the box is a part of a larger formula."""
    if any(map(_CHANGES.fullmatch, box.inside)):
        return True
    if _IN_MATRIX.search(before) or (_RIGHT.match(after) and not _BULLET.match(after)):
        return True
    closing = re.match(r"(?:\\right)?\)", after)
    if before.rstrip().endswith("(") and closing:  # (\boxed{4})
        before, prefix = (re.sub(r"\s*(?:\\left)?\s*\(\s*$", "", one) for one in (before, prefix))
        if after[closing.end() :].startswith("^") or before.endswith(("-", "\u2212")):
            return True
    if before.endswith(("-", "\u2212")):
        return True
    before = re.sub(r"(?:\s*(?:\$|\\[()\[\]]))+\s*$", " ", before)  # 3 + $\boxed{4}$
    if _OPERATION.search(before) and not _NO_OPERATION.search(before):
        return True
    if _TOUCHING.search(prefix):
        return True
    closed = _CLOSED.match(after)  # the box shares the delimiters of what stands before it
    if not closed or _NOTHING.fullmatch(prefix) or plain_words(prefix + closed[0]):
        return False
    return not is_same_value(prefix.strip(" {~"), box.content)


_LOOSE = r"(?:[\s~*$]|\\[,;: )\]]|\\(?:text|mathrm|textrm)\s*\{)*"
_POWER = r"(?:\s+(?:squared|cubed)|\}?\s*\$?\^\s*\{?[23]\}?)?"
_UNIT = re.compile(
    rf"{_LOOSE}(\\?%|percent|per cent|\^?\s*\{{?\s*\\circ|\u00b0"
    rf"|(?:(?:square|cubic|sq|cu)\s+)?(?!in\s+[a-z])[A-Za-z]+{_POWER}"
    rf"(?:\s*(?:/|per)\s*[A-Za-z]+{_POWER})?)(?![A-Za-z&'])"
)


def _unit_behind(content: str, after: str) -> str:
    """The unit of measure right behind the box of a number, as LaTeX; else nothing."""
    found = _UNIT.match(after)
    if not found or not re.search(r"[\d}]\s*$|\\pi\s*$", content) or "\\text" in content:
        return ""
    said = re.sub(r"[\\}$]", "", found[1])
    if re.fullmatch("[A-Za-z]", said) and said not in units.LETTERS:
        return ""
    if said in ("%", "percent", "per cent"):
        return r"\%"
    if "circ" in said or said == "\u00b0":
        return r"^\circ"
    unit = units.read_unit(units.unit_words(tokenise(said))[0])
    is_measure = unit is not None and units.is_measured(unit[0])
    return rf" \text{{ {said}}}" if is_measure else ""


_SCALE = re.compile(
    r"(?:[\s$~]|\\[,;: ]|\\(?:text|mathrm|textrm)\s*\{)*"
    r"((?:hundred|thousand|[mb]illion|trillion|dozen|lakh|crore)(?=s?(?![A-Za-z]))"
    r"|(?:ten|hundred|thousand|million)ths?(?![A-Za-z])|[\u4e07\u4ebf])"
)


def _is_scaled(after: str, question: str) -> bool:
    """Whether a word such as million follows that the question does not ask for."""
    found = _SCALE.match(after)
    if found is None:
        return False
    asked = rf"\b(?:how many|in)\b[^.?]*\b{found[1]}|[\u591a\u51e0]\u5c11?\s*{found[1]}"
    return not re.search(asked, question)


# Denial

_FALSE = (
    r"(?:wrong|incorrect|false|untrue|mistaken|impossible|extraneous|invalid|inadmissible"
    r"|a mistake|a lie|an error)"
)
_ANSWER = r"(?:answer|result|value|number|solution|total|one)"
_NEGATIONS = word_set(
    "not never no nobody none nor neither hardly cannot without unlikely impossible wrong incorrect"
    " false untrue mistaken mistake error lie pas nicht kein keine ne"
)
# What may stand between a negation and the answer that it denies.
_FILLERS = word_set(
    "a an the our my your this that it its it's there one be been being is are was were equal"
    " equals to as of for with have get give gives write say says think claim conclude assume"
    " believe suppose guess agree answer answers answered accept way means case same correct right"
    " true final result value number solution total should would could can will possibly really"
    " actually likely simply just ever necessarily"
)
_SAY = r"(?:say|think|claim|conclude|assume|believe|suppose|guess|agree|answer|write|give|accept)s?"
_UNSAID = re.compile(
    rf"(?:\bnot|n't|\bnever|\bcannot)(?: \w+ly| should)* {_SAY} that\b"
    r"(?:(?!\b(?:so|thus|hence|therefore|but)\b)[^.:;,!?\n])*$",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"(?:answer|give|write|accept)s? "
    rf"(?:(?:the|an?|my) )?(?:{_ANSWER} )?(?:is|are|was|were)\b"
)
_WORDS = re.compile(r"[a-z']+|[^a-z\s]")
_SCALED = re.compile(
    r"(?<!-)\b(?:twice|double|triple|half(?: of)?|minus|negative|except|square of|different from"
    r"|(?:two|three|four|five|ten) times|neither(?: \S+ nor)?|anything but|rather than|instead of"
    r"|(?:square root|cube root|third|quarter|fifth|tenth|opposite|inverse|reciprocal) of"
    r"|(?<!none )other than) ?$"
    r"|(?:не|不是|并非|不等于|\\neq?|\\not ?=|\u2260|\bno es) ?$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"[ .,;:?\u2014-]*(?:(?:but|and|however|although|though|yet|no|wait|oops|sorry|hmm)\b[ ,]*)*"
    rf"(?:(?:this|that|it|which|the) )?(?:(?:box|claim|statement|{_ANSWER}) )?"
    r"(?:(?:is|are|was|would be|seems|(?:turns out|proves|seems) to be) "
    r"(?:(?:\w+ly|just|also|however|the|an?) )*"
    rf"(?:{_FALSE}|not (?:correct|right|true))\b"
    r"|(?:is|are|was) not(?: so| the case)? ?(?:[.,;!]|$)"
    rf"|(?:(?:is|are|was) not|isn't|wasn't|cannot be|can't be) (?:(?:the|a|what|final) )*"
    rf"(?:correct|right|true|it|{_ANSWER})\b)(?! (?:of|if|unless|for)\b)"
    r"| ?(?:squared|cubed)\b| ?(?:plus|minus|times) (?:\d|two|three|four|ten)\b",
    re.IGNORECASE,
)
# A question is no statement, unless it is answered with a yes.
_ASKED = re.compile(r" *\?(?! *(?:yes|indeed|correct|right|true)\b)", re.IGNORECASE)
_CORRECTED = re.compile(
    r"\b(?:(?:right|real) (?:answer|value|result|area|length|number)"
    r"|(?:correct|actual|true) [a-z]+) (?:is|was|must be|should be) (?:the )?"
    r"([^.!?\n,;]+(?:\.\d+)?)",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:ignore|disregard|discard) (?:the|my|that|this) (?:(?:above|previous|first|last|boxed) )?"
    r"(?:box|answer|above)\b"
    r"|\b(?:i|we) (?:\w+ )?(?:mis(?:read|calculated|counted|applied)"
    r"|(?:made|have made) an? (?:\w+ )?(?:error|mistake|slip))\b"
    r"|\blet (?:me|us) (?:re(?:compute|calculate|consider|do)|correct)\b"
    rf"|\b(?:so|but|and|which) (?:this|that|it) is {_FALSE}"
    r"|^\W*would be (?:correct|right|true) if\b",
    re.IGNORECASE,
)
# Words of doubt behind an answer: a number that follows replaces it, unless it is said again.
_DOUBTED = re.compile(
    r"\b(?:hmm|wait|oops|sorry|correction|i (?:now )?reali[sz]ed?|on second thought|go with"
    r"|instead(?! of))\b",
    re.IGNORECASE,
)
_INTEGER = r"-?\d[\d,]*"
_STATED = re.compile(
    rf"\banswer (?:is|was|must be|should be) ({_INTEGER})(?!\d|\.\d|\s*[-+*/=^:%$\\])",
    re.IGNORECASE,
)
_HAS_WORDS = re.compile(r"[?\w\u2260]")
_STRUCK = re.compile(r"(?:~~|<(?:s|del|strike)>)[\s*$]*$", re.IGNORECASE)
_OPERATION_OF = re.compile(r"\b(?:sum|product|difference) of ?$", re.IGNORECASE)
_OPERAND = re.compile(
    r"(?: [a-z]+)? ?(?:,|,? and|,? with) ?(?:-?\d|\\|[b-z]\b|its\b|itself\b|one\b|two\b|three\b)"
)
_MARKUP = re.compile(
    r"(?:[\s*_$`\"\u201c\u201d{}()\[\]~]"
    r"|\\(?:[()\[\],;: !]|(?:text(?:bf|it)?|mathrm|left|right)\b))+"
)


def is_denied(before: str, content: str, after: str) -> bool:
    """Whether an answer between two pieces of text is denied: `not 5`, `5 is wrong`."""
    near = before[-MAX_NEAR:]
    line = _without_markup(before.rpartition("\n")[2])
    near = _without_markup(near) if "\n" in near else line
    if _is_negated(line) or _SCALED.search(near):
        return True
    if not _HAS_WORDS.search(after):
        return False
    after = _without_markup(after)
    if _OPERATION_OF.search(near) and _OPERAND.match(after):
        return True
    denied = after.partition(f" not {content}")
    if denied[1] and not re.match(r"\w|[.,]\d", denied[2]):
        return True
    corrected, stated = _CORRECTED.search(after), _STATED.search(after)
    if corrected and re.search(r"\d", corrected[1]) and _is_other(corrected[1], content):
        return True
    if stated and re.fullmatch(_INTEGER, content.strip()) and _is_other(stated[1], content):
        return True
    if _DOUBTED.search(after) and re.search(r"\d", after) and content.strip() not in after:
        return True
    return any((_AFTER.match(after), _ASKED.match(after), _TAKEN_BACK.search(after)))


def _is_other(said: str, content: str) -> bool:
    """Whether what is said behind an answer is another one, and no part of it."""
    part = re.search(rf"(?<![\w.]){re.escape(said.strip())}(?![\w.])", content)
    return not part and not is_same_value(said.strip(), content)


def _without_markup(text: str) -> str:
    """A text without markup and contractions: that's as that is."""
    text = text.replace("\u2019", "'")
    if "'" in text:
        text = re.sub(r"\b(that|this|it|which|there|he|she)'s\b", r"\1 is", text)
        text = re.sub(r"(?<=[a-z])n't\b", " not", text.replace("can't", "can not"))
    return _MARKUP.sub(" ", text)


def _is_negated(before: str) -> bool:
    """Whether a negation is the last word before an answer, but for fillers: `cannot be`."""
    if "that" in before and _UNSAID.search(before):
        return True
    between: list[str] = []
    for word in reversed(_WORDS.findall(before.lower())):
        if word in _NEGATIONS:  # the number that he did not answer is 6
            return word != "not" or not _SUBJECT.match(" ".join(reversed(between)))
        if word not in _FILLERS:
            return False
        between.append(word)
    return False
