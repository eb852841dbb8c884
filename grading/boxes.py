"""Boxes: what each `\\boxed{…}` of a text holds, and whether it states an answer.

A box is no answer where it is a part of a larger formula, where a word such as "million" follows,
or where the text denies it. Nothing here evaluates a text, and all of it runs in linear time.
"""

import functools
import re
from bisect import bisect_right
from typing import NamedTuple

from grading.denial import is_denied
from grading.equivalence.compare import is_same_value
from grading.equivalence.tokens import word_set
from grading.equivalence.values import is_measure

MAX_AROUND = 80  # characters on either side of a box that are looked at
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
    """What the boxes say, with a minus before or a unit behind one; empty where none is an answer.

    Each is `-` + content + ` \\text{unit}`, the sign and the unit only where they are written.
    """
    boxes, has_answer = scan(text), False
    found = [box.content for box in boxes[:-MAX_BOXES]]
    is_coefficient = "coefficient" in question  # \\boxed{5}x^2
    for box in boxes[-MAX_BOXES:]:
        around = _Around(text, box)
        is_part = around.is_part() or (_LETTER.match(around.after) and not is_coefficient)
        is_part = is_part or around.is_scaled(question.lower())
        has_answer = has_answer or not (is_part or is_denied(around.before, around.after))
        found.append(_signed(around.sign(), box.content) + around.unit())
    return found if has_answer else []


def _signed(sign: str, content: str) -> str:
    """The content behind a sign, in brackets where it is a sum."""
    return f"{sign}({content})" if sign and _SUM.match(content) else sign + content


_SUM = re.compile(r"[^{(]+[-+\u2212]|\\[dt]?frac.*\}\s*[-+\u2212]")
_GROUP = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
# What stands before a group: its command, a power or an index, or the group before it.
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*(?:\[[^\]{}]*\]\s*)?((?:\{[^{}]*\}\s*){0,2})$|([\^_}])\s*$")


def scan(text: str) -> list[Box]:
    """Every balanced outermost box."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    around: dict[int, list[int]] = {}
    # One pass: matching each box on its own takes quadratic time on "\\boxed{" repeated.
    # An escaped \{ or \} is a printed brace and does not count.
    first, last = text.find("\\boxed"), text.rfind("\\boxed")
    if first < 0:
        return []
    for token in _GROUP.finditer(text, max(0, first - MAX_BEFORE)):
        found = token[0]
        if found == "{":
            opened.append(token.start())
        elif found[-1] == "{" and found != "\\{":
            around[token.start()] = opened[-MAX_ENCLOSING:]
            opened.append(token.end() - 1)
        elif found == "}" and opened:
            closes[opened.pop()] = token.start()
            if not opened and token.start() > last:
                break
    boxes, end = [], 0
    for start, groups in around.items():
        brace = text.index("{", start)
        close = closes.get(brace)
        if close is not None and start >= end:
            inside = tuple(_command(text, at) for at in groups if at in closes)
            boxes.append(Box(start, close + 1, text[brace + 1 : close], inside))
            end = close
    return boxes


def _command(text: str, brace: int) -> str:
    """The command that a group belongs to; "" for a plain group."""
    if not (match := _COMMAND.search(text[max(0, brace - MAX_AROUND) : brace])):
        return ""
    return match[1] or match[3]


# Commands and marks that make something else of what is in their group.
_CHANGES = re.compile(
    r"[dtc]?frac|[dt]?binom|sqrt|root|[\^_}]|sin|cos|tan|cot|sec|csc|log|ln|lg|exp|overline|bar|hat"
    r"|vec|[bx]?cancel|sout|st|not|operatorname|pmod|bmod|lfloor|lceil"
)
_OPERATOR = (
    r"(?:[-+/\u00d7\u00f7\u00b7\u2212]|(?<!\*)\*(?!\*)|\\(?:times|cdot|div|ast|pm|mp)(?![A-Za-z]))"
)
_LABEL = r"\\(?:color(?:box)?|text[a-z]*|mathrm|[mh]box|emph|label|tag|[hv]space)\*?\s*\{[^{}]*"
_ENDING_LABEL = rf"(?:{_LABEL}|\\math(?:bf|it|sf)\s*\{{[^{{}}]*)[:,;.=!?][^{{}}]*\}}+"
_LAYOUT = (
    r"\\begin\s*\{(?:equation|displaymath|eqnarray|multline|split|(?:fl)?align(?:ed)?"
    r"|gather(?:ed)?)\*?\}"
)
# What ends the formula before a box: a relation, an arrow, a separator, a full stop, a delimiter,
# a label that holds one of them, the start of an environment that only lays formulas out.
_START = re.compile(
    rf"{_ENDING_LABEL}|{_LAYOUT}"
    r"|[$&:,;\n=<>\u2190-\u21ff\u2208\u2234\u2243\u2245\u2248\u2261\u2264\u2265\u27f5-\u27ff]"
    r"|[.!?](?=[\s*])|\\(?:[(\[]|\\[(\[]?|(?:q?quad|[A-Za-z]*(?:[aA]rrow|eq)[a-z]*|[a-z]*sim"
    r"|approx|cong|leadsto|therefore|because|implies|i?ff|to|mapsto|in|[lg]e|propto|equiv|coloneqq"
    r"|models|vdash|colon|big|Big|vert|mid)(?![A-Za-z]))"
)
_NO_CONTENT = (
    r"(?:[\s{.*~]|\\[!,;: ]"
    r"|\\(?:left|(?:display|text)style|[lL]arge|LARGE|[hH]uge|normalsize|bf(?:series)?|rm|it|bm"
    r"|math(?:bf|it|sf)|boldsymbol|underline|ensuremath)(?![A-Za-z])"
    rf"|{_LABEL}(?:\}}|$))*"
)
_NOTHING = re.compile(rf"{_NO_CONTENT}[-+\u2212]?{_NO_CONTENT}")
_SIGN = re.compile(rf"{_NO_CONTENT}[-\u2212](\s*){_NO_CONTENT}")
_TOUCHING = re.compile(r"(?<![A-Za-z\d.])(?:\d+|[A-Za-z])$")
# An operator with something to operate on, or a function, right before a box.
_OPERATION = re.compile(
    r"(?:[\d)\]}!%\u221a]|(?<![A-Za-z\\])[A-Za-z]|\\(?:pi|[cl]?dots|alpha|theta))\s*"
    rf"{_OPERATOR}{_NO_CONTENT}$"
    r"|(?:[\^_\u221a\u00b1]|\\(?:pm|mp|sqrt|d?frac|sin|cos|tan|cot|log|ln|exp|sum|int|lim))"
    r"[\s{(]*(?:\\left\s*\()?$"
)
_MAY_OPERATE = re.compile(r"[-+*/^_\\\u00b1\u00b7\u00d7\u00f7\u2212\u221a]")
# "Step 2 - 5" is no difference, "\n- 5" is a list, "2 *5*" is emphasis.
_NO_OPERATION = re.compile(
    r"(?:\b(?:step|part|case|option|choice|problem|question|exercise|answer|method|page|no\.|#)\s*"
    r"\(?(?:\d+|[A-Za-z])[.):]*|(?:^|\n)\s*\(?(?:\d+|[A-Za-z])[.)])\s*[-\u2212]\s*$|\s\*$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?:^|\n)[ \t]*[-+*\u2212\u2022][ \t]+[*_ ]*$")
_LETTER = re.compile(r"[abceijknp-rt-z](?![A-Za-z])")  # others may be units
_RIGHT = re.compile(
    rf"\d|\.\d|,\d{{3}}|\{{,\}}|\((?:[a-z]|\d+)\s*[-+*/^)]|\\left\s*\(|\s*(?::\s*(?!00)\d|(?:\^\{{?\\circ\}}?|\\%)?\s*{_OPERATOR}"
    r"(?:\s*(?:\(?\d|\\(?:[dt]?frac|sqrt|pi|boxed)(?![A-Za-z]))|[A-Za-z](?![A-Za-z]))"
    r"|(?:\\right)?\)?\s*\^(?!\s*\{?\s*\\circ)|!(?=\s*\$)|\\(?:sqrt|pi|ln|log|sin|cos|tan|theta|alpha|binom)(?![A-Za-z])"
    r"|\\[dt]?frac(?!\s*\{\s*\\(?:text|mathrm)))"
)
_SCALE = re.compile(
    r"(?:[\s$~]|\\[,;: ]|\\(?:text|mathrm|textrm)\s*\{)*"
    r"((?:hundred|thousand|[mb]illion|trillion|dozen|lakh|crore)(?=s?(?![A-Za-z]))"
    r"|(?:ten|hundred|thousand|million)ths?(?![A-Za-z])|[\u4e07\u4ebf])"
)
_NAME = r"(?:(?:square|sq\.?|cubic|cu\.?)\s+)?[A-Za-z]{1,12}(?:\s?(?:/|per)\s?[A-Za-z]{1,8})?"
_TEXT = r"\\(?:text|mathrm|textrm|mbox)\s*\{\s*"
_UNIT = re.compile(
    r"(?:[\s$~*_]|\\[,;: ]|\\[)\]])*(?:"
    rf"(?P<percent>\\%|%|(?:{_TEXT})?per\s?cent\b)"
    r"|(?P<degree>\^\s*\{?\s*\\circ\s*\}?|\u00b0)"
    rf"|(?:(?P<upright>{_TEXT})|(?<=[\s$~*]))(?P<name>{_NAME})(?![A-Za-z{{&'\u2019-])"
    r"(?(upright)(?:\s+(?P<more>[A-Za-z ]{2,40}))?\s*\}|(?=(?:\s+(?P<next>[A-Za-z]+))?))"
    r"\s*\$?(?P<power>\^\{?[23]\}?|[\u00b2\u00b3])?)(?!\s*\$?\s*[/^])"
    r"|(?P<base>_\{?\d{1,2}\}?)"
)
_PLAIN_VALUE = re.compile(
    r"(?:[\s\d.,/^+{}-]|\\(?:[dt]?frac|sqrt|pi|cdot|times)(?![A-Za-z])|\\[,!])+"
)


class _Around:
    """The text on both sides of one box."""

    def __init__(self, text: str, box: Box):
        self.text, self.box = text, box
        self.before = text[max(0, box.start - MAX_AROUND) : box.start]
        self.after = text[box.end : box.end + MAX_AROUND]
        # A label is read as a whole, also where it is longer than what is looked at otherwise.
        starters = _START.finditer(text, max(0, box.start - MAX_BEFORE), box.start)
        self.start = max(box.start - MAX_AROUND, 0, *(match.end() for match in starters))
        self.prefix = text[self.start : box.start]  # of the same formula

    def is_part(self) -> bool:
        """Whether the box is a part of a larger formula."""
        if any(map(_CHANGES.fullmatch, self.box.inside)):
            return True
        if _RIGHT.match(self.after):
            return True
        before, prefix = self.before, self.prefix
        closing = re.match(r"(?:\\right)?\)", self.after)
        if before.rstrip().endswith("(") and closing:  # (\boxed{4})
            before, prefix = (_BRACKET.sub("", one) for one in (before, prefix))
            if self.after[closing.end() :].startswith("^") or before.endswith(("-", "\u2212")):
                return True
        before = _OPENING.sub(" ", re.sub(_ENDING_LABEL, " ", before))  # 3 + $\boxed{4}$
        is_operation = _MAY_OPERATE.search(before, len(before) - 20) and _OPERATION.search(before)
        if is_operation and not _NO_OPERATION.search(before):
            return not _BULLET.search(before) or (before == self.before and self.is_inside)
        if _TOUCHING.search(prefix):
            return True
        return not _NOTHING.fullmatch(prefix) and self._is_factor(prefix)

    def is_scaled(self, question: str) -> bool:
        """Whether a word such as million follows that the question does not ask for."""
        match = _SCALE.match(self.after)
        return bool(match) and not re.search(rf"(?:how many|in)\b[^.?]*\b{match[1]}", question)

    def _is_factor(self, prefix: str) -> bool:
        """Whether what stands before the box shares its delimiters, and is not the box's value."""
        if plain_words(prefix) or not self.is_inside:
            return False
        return not is_same_value(prefix.strip(" {~"), self.box.content)

    @functools.cached_property
    def is_inside(self) -> bool:
        """Whether the box is between the delimiters of a formula."""
        spans = _formulas(self.text)
        at = bisect_right(spans, (self.box.start, len(self.text))) - 1
        return at >= 0 and self.box.start < spans[at][1]

    def sign(self) -> str:
        """`-` where a minus stands before the box, and no bullet or dash."""
        if not (match := _SIGN.fullmatch(self.prefix)):
            return "-" if re.search(r"\s[-\u2212]$", self.prefix) else ""
        starter = self.text[self.start - 1] if self.start else "\n"
        is_apart = match[1] and starter in ":,;.!?\n"
        return "" if is_apart and not self.is_inside else "-"

    def unit(self) -> str:
        """The unit that stands right behind the box, where the box is a number."""
        if not _PLAIN_VALUE.fullmatch(self.box.content) or not (found := _UNIT.match(self.after)):
            return ""
        if found["base"]:
            return found["base"]
        if found["percent"] or found["degree"]:
            return r"\%" if found["percent"] else r"^\circ"
        name = found["name"]
        following = found["more"] or found["next"]
        is_noun = found["next"] and found["next"].lower() not in _BEHIND_UNITS  # 6 day passes
        if is_noun or (name in _NO_UNIT and following):  # "5 in total" has no inches
            return ""
        parts = [word for word in re.split(r"[\s/.]+", name) if word not in _POWERS]
        is_unit = bool(parts) and all(map(is_measure, parts))
        return rf" \text{{ {name}}}{found['power'] or ''}" if is_unit else ""


_NO_UNIT = {"in", *"nNtTjJwWvV"}
_BEHIND_UNITS = word_set("""
    in of per each and or altogether total is are was were long wide tall high deep for to at on by
    more less left away as so from than apart old ago later every with which that the a this
""")
_POWERS = {"square", "cubic", "sq", "cu", "per", ""}
UPRIGHT = re.compile(r"\\[a-z]*(?:text|rm|bf|it|name|box)[a-z]*\s*\{[^{}]*\}")
_PLAIN_WORD = re.compile(r"(?<![\\A-Za-z{])(?=[A-Z]*[a-z])[A-Za-z]{2,}")


def plain_words(text: str) -> list[str]:
    """The words of a text outside `\\text{…}`, without "or" and "and"."""
    words = _PLAIN_WORD.findall(UPRIGHT.sub("", text))
    return [word for word in words if word.lower() not in ("or", "and")]


_BRACKET = re.compile(r"\s*(?:\\left)?\s*\(\s*$")
_OPENING = re.compile(r"(?:\s*(?:\$|\\[()\[\]]))+\s*$")
_DELIMITER = re.compile(
    r"(?<!\\)(?:\$\$?|\\[()\[\]])|\\(?:begin|end)\s*\{(?:align|gather|equation)"
)
_CLOSING = {"\\(": "\\)", "\\[": "\\]"}


@functools.lru_cache(maxsize=16)  # of a text each box is looked for
def _formulas(text: str) -> list[tuple[int, int]]:
    """(start, end) of what stands between delimiters; a dollar sign of a price opens nothing."""
    spans: list[tuple[int, int]] = []
    opening, start = "", 0
    for match in _DELIMITER.finditer(text):
        token = match[0]
        is_dollar = token[0] == "$"
        if is_dollar and opening[:1] == "$":
            inside = text[start : match.start()]
            if "\n\n" in inside or plain_words(inside):
                start = match.end()  # the one before was a price
            else:
                spans.append((start, match.start()))
                opening = ""
        elif opening and token in (_CLOSING.get(opening), opening.replace("begin", "end")):
            spans.append((start, match.start()))
            opening = ""
        elif opening[:1] in ("", "$") and (is_dollar or token in _CLOSING or "begin" in token):
            opening, start = token, match.end()
    return spans
