"""Question: what a question says about its answer, and what of it is no answer.

It may name options, a base or a unit, so that golds are read with them and answers that say another
are incorrect. An answer that equals a gold is incorrect, too, where it leaves arithmetic to do,
copies a formula of the question, or is not reduced, factored or expanded as asked.
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, isqrt

from grading import units
from grading.compare import is_same_value, read
from grading.equal import equal
from grading.latex import TRIGONOMETRIC, is_simple, to_ascii, word_set
from grading.numeric import TooLarge, exact_value, identical
from grading.tree import (
    DEGREE,
    MINUS_ONE,
    ONE,
    PI,
    TEN,
    TWO,
    Call,
    Num,
    Power,
    Product,
    Sum,
    Tree,
    children,
    functions,
    has_root_power,
    is_number,
    ordered,
    simplified,
    subtrees,
    variables,
)
from grading.values import (
    Conditional,
    Equation,
    Modulus,
    Number,
    Option,
    Ratio,
    Several,
    Value,
    inside,
)

# What the question says

_PRINT = r"(?:\\(?:text|math)[a-z]*\s*\{|\\(?:rm|bf)(?![a-z])|[\s${*]|\\ ){0,9}"
_AFTER = r"(?:[\s$}*~:.]|\\[ ,;:])*"
_LETTER = re.compile(rf"{_PRINT}[(\[]?\s*([A-Ka-k])\s*[)\]]?{_AFTER}")
# `(A) 1`, `A: 1`, `A. 1`, `[A] 1`, `\textbf{(A)}\ 1`, at the start of a line or behind a space.
_MARK = re.compile(
    rf"(?:(?<=[\s$}}~\[,;])|(?<=quad)|(?<=\\\\)|^)(?:[-*\u2022]\s+)?{_PRINT}"
    rf"(?:[(\[]([A-Ka-k])(?:\s|\\ )*[)\]]|([A-K])[).:](?!\d)){_AFTER}(?=\S)",
    re.MULTILINE,
)
_HAS_OPTIONS = re.compile(r"[BG]\s?[).:\]}]|[(\[][bg][)\]]")
_LETTERS = {"A": "ABCDEFGHIJ", "F": "FGHJK"}  # by the first of a list
_END = re.compile(r"(?:[\s,;$~]|\\q?quad|\\[ ,;!]|\\\\|\.(?=\s*$))+$")
_BASE = re.compile(
    r"\b(?:in|to|into)\s+(?:base[\s-]+(\w+)|(binary|octal|decimal|hexadecimal)\b)"
    r"|\bbase\b(?!.*\b(?:in|to)\s+base)",
    re.DOTALL,
)
_BASES = {"binary": "2", "octal": "8", "decimal": "10", "hexadecimal": "16"}
_COUNTED = re.compile(
    r"(?:how many|(?:find|determine|compute|what is) the number of"
    r"|wie ?viele?|combien de|cu[a\u00e1]nt[oa]s|quant[ie]) "
    r"(?:(?:more|fewer|total|whole|full) )?((?:square |cubic )?[a-z\u00df-\u00ff]+)"
    r"|(?:\u591a\u5c11|\u51e0)\s*(\u4e07|\u4ebf|[\u4e00-\u9fff]{1,2})"
)
_UNIT = re.compile(
    r"\b(?:in|of|en) ((?:square |cubic )?[a-z]+(?: ?/ ?[a-z]+| per [a-z]+)?)\s*(?=[?.,)]|$)"
)
_SCALES = word_set("pair dozen couple hundred thousand million billion \u4e07 \u4ebf")
_IN_ORDER = re.compile(
    r"\bin (?:(?:increasing|decreasing|ascending|descending|alphabetical|numerical) )?order\b"
    r"|\bfrom (?:least|smallest|lowest|greatest|largest|highest)\b|\brespectively\b"
)
_PERCENT = re.compile(r"%|percent|per cent|\bprobab|\bchance|\brate\b|\binterest\b")
MAX_END = 120  # characters at the end of a question in which `in metres?` is looked for


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question says about its answer; `unit` is a measure, `scale` a word such as pairs."""

    options: dict[str, str]
    base: str | None
    unit: str | None
    scale: str | None


def option_letter(text: str) -> str | None:
    """The letter of an answer that is one option and nothing more, else None."""
    found = _LETTER.fullmatch(text)
    return found[1].upper() if found else None


@functools.lru_cache(maxsize=1024)
def find_options(question: str) -> dict[str, str]:
    """{letter: text} of the options in a question, which must be A, B, C, … or F, G, H, J, K."""
    options: dict[str, str] = {}
    if not _HAS_OPTIONS.search(question):
        return options
    marks = list(_MARK.finditer(question))
    for at, mark in enumerate(marks):
        letter = (mark[1] or mark[2]).upper()
        order = _LETTERS.get(next(iter(options), ""), "")
        if letter != order[len(options) : len(options) + 1]:
            if letter not in _LETTERS:
                continue
            options = {}  # the last list counts
        end = marks[at + 1].start() if at + 1 < len(marks) else len(question)
        text = _END.sub("", question[mark.end() : end].partition("\n\n")[0])
        options[letter] = text.replace("$", "") if text.count("$") % 2 else text
    return options if len(options) > 1 else {}


@functools.lru_cache(maxsize=1024)  # of a group's completions each asks for it
def read_question(question: str) -> Asked:
    """What a question says."""
    lowered = question.lower()
    found = ["".join(one) for one in _COUNTED.findall(lowered)]
    found += [name.replace("/", " / ") for name in _UNIT.findall(lowered[-MAX_END:])]
    parts = {name: set(name.split()) - {"/", "per", "square", "cubic"} for name in found}
    measures = {name for name in found if parts[name] and all(map(units.is_measure, parts[name]))}
    measures = {name for name in measures if len(name) > 2 or not name.isascii()}
    scales = {word for word in found if word.removesuffix("s") in _SCALES}
    base = _BASE.search(lowered)
    return Asked(
        options=find_options(question),
        base=base and (base[1] or _BASES[base[2] or "decimal"]),
        unit=measures.pop() if len(measures) == 1 else None,
        scale=scales.pop() if len(scales) == 1 else None,
    )


def golds_as_asked(golds: Sequence[str], question: str, prediction: str) -> list[str]:
    """The golds, and each as the question says it: with its unit, its base, its option's letter."""
    if not question or prediction in golds:
        return [*golds]
    asked = read_question(question)
    options, scale, spelled = asked.options, asked.scale or "", list[str]()
    is_scaled = scale and scale.removesuffix("s") in prediction
    named = [one for one in (asked.unit, scale if is_scaled else None) if one]
    more = [rf"{gold} \text{{ {unit}}}" for unit in named for gold in golds if is_plain(gold)]
    if asked.base:
        more += [f"{gold}_{{{asked.base}}}" for gold in golds if gold.strip().isalnum()]
    for gold in golds if options else ():
        letter, ours = option_letter(gold), option_letter(prediction)
        if letter in options:
            others = [text for other, text in options.items() if other != letter]
            if ours or not any(is_same_value(prediction, text) for text in others):
                more += [f"({letter}) {options[letter]}", options[letter]]  # not 3 of x = 3, y = 3
            if ours == letter or _is_spelled_out(prediction, letter, options[letter]):
                spelled.append(prediction)
        elif letter is None and ours in options and is_same_value(options[ours], gold):
            more.append(f"({ours}) {gold}")
    return [*spelled, *golds, *more]


def _is_spelled_out(prediction: str, letter: str, option: str) -> bool:
    """Whether a prediction is an option as the question prints it: `C) x=-1`, or `x=-1`."""
    found = _MARK.match(prediction)
    if found and (found[1] or found[2]).upper() != letter:
        return False
    said = prediction[found.end() :] if found else prediction
    return bool(said.strip()) and _squashed(said) == _squashed(option)


def is_plain(text: str) -> bool:
    """Whether a text is an integer or a decimal and nothing more."""
    return text.strip().replace(".", "", 1).replace(",", "").isdecimal()


# Languages that write 1.500,25: two of their words, or one that asks for a number.
_COMMA_WORDS = re.compile(
    r"\b(?:wie|viele?|der|die|das|und|ist|wenn|f\u00fcr|eine?r?"
    r"|combien|les?|des?|du|est|une?|quel(?:le)?|pour"
    r"|cu[\u00e1a]nt[oa]s|cu[\u00e1a]l|el|es|la|los|las|una|qu\u00e9|del|por|si"
    r"|quant[aeio]|della|dei|che|il|di|come|per|het|hoeveel|een)\b"
)
_COMMA_QUESTION = re.compile(r"\b(?:wie ?viele?|combien|cu[a\u00e1]nt[oa]s?|quant[aeio]|hoeveel)\b")
_COMMA_DECIMAL = re.compile(r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+|\d+)(?:,|\{,\})(\d+)(?![\d.,])")
_POINT_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![\d.,])")


def with_points(prediction: str, question: str) -> str:
    """A prediction whose numbers follow a question that writes 1.500,25; else unchanged."""
    if "," not in prediction and "." not in prediction:
        return prediction
    words = set(_COMMA_WORDS.findall(question.lower()))
    if len(words) < 2 and not _COMMA_QUESTION.search(question.lower()):
        return prediction
    text = _COMMA_DECIMAL.sub(lambda m: f"{m[1].replace('.', '')}.{m[2]}", prediction)
    return _POINT_THOUSANDS.sub(lambda m: m[0].replace(".", ""), text)


# What is no answer


def is_refused(
    value: Value, wanted: Value, prediction: str, golds: Sequence[str], question: str, matched: str
) -> str | None:
    """Why a prediction that equals a gold is no answer: "unevaluated", "wrong", or None.

    `value` and `wanted` are what the prediction and the gold are. `matched` is that gold as the
    question says it, such as an option with its letter.
    """
    if prediction.strip() in (*golds, matched) or (
        is_simple(prediction) and not find_tasks(question)
    ):
        return None
    is_divided = "\\div" in to_ascii(prediction) and not is_plain(prediction.rpartition("=")[2])
    if is_divided and not any("\\div" in to_ascii(gold) for gold in golds):
        return "unevaluated"
    try:
        theirs = [wanted, *(read(gold) for gold in {*golds, matched})]
        if question and (
            _contradicts(
                value, prediction, [*golds, matched], read_question(question), question.lower()
            )
            or _is_copy(value, prediction, golds, theirs, question)
            or _is_half_done(value, theirs, find_tasks(question))
        ):
            return "wrong"
        return "unevaluated" if _is_unevaluated(value, theirs, bool(question)) else None
    except TooLarge:
        return None


def _contradicts(
    value: Value, prediction: str, golds: Sequence[str], asked: Asked, question: str
) -> bool:
    """Whether a prediction says another option or unit than the question: `(B) 13` for `(B) 12`."""
    letter = value.letter.upper() if isinstance(value, Option) else ""
    if isinstance(value, Option) and value.value is not None and letter in asked.options:
        option = asked.options[letter]
        is_same = _is_spelled_out(prediction, letter, option)
        return not is_same and not is_same_value(prediction, f"({value.letter}) {option}")
    match value:
        case Conditional(_, Modulus(tree)) if str(exact_value(tree)) not in question:
            return True  # a modulus that the question does not name
        case Several(items, "list") if _IN_ORDER.search(question):
            lists = [one.items for one in map(read, golds) if isinstance(one, Several)]
            if lists and not any(all(map(equal, items, one)) for one in lists):
                return True
    numbers = _numbers(value)
    scale = (asked.scale or "").removesuffix("s")
    lacks_scale = scale not in ("", "pair", "couple") and scale not in prediction
    if lacks_scale and any(number.unit for number in numbers):
        return True  # 15 books for "how many thousand books"
    is_stray = any(number.percent for number in numbers) and not any("%" in gold for gold in golds)
    if is_stray and not _PERCENT.search(question):
        theirs = [one.tree for gold in golds for one in _numbers(read(gold))]
        return any(one.percent and identical(one.tree, tree) for one in numbers for tree in theirs)
    found = units.read_unit(asked.unit.split()) if asked.unit else None
    if not found or not any(n.unit and _is_other_unit(n.unit, found[0]) for n in numbers):
        return False
    return not any(is_same_value(prediction, gold) for gold in golds if not is_plain(gold))


def _is_other_unit(unit: units.Unit, asked: units.Unit) -> bool:
    """Whether two units measure the same in other sizes, a length and an area, or other things."""
    ours, theirs = dict(unit.dimensions), dict(asked.dimensions)
    if ours == theirs:
        return units.ratio(unit, asked) not in (None, 1)
    return bool(ours) and (ours.keys() == theirs.keys() or not ours.keys() & theirs.keys())


def _numbers(value: Value) -> list[Number]:
    """The numbers in a value; of an equation its sides."""
    numbers = [one for one in inside(value) if isinstance(one, Number)]
    equations = [one for one in inside(value) if isinstance(one, Equation)]
    return numbers + [Number(side) for one in equations for side in children(one.tree)]


def _is_unevaluated(value: Value, golds: Sequence[Value], has_question: bool) -> bool:
    """Whether a number is not written out, or has functions, and those of no gold are so."""
    theirs = [number.tree for gold in golds for number in _numbers(gold)]
    ours = [number.tree for number in _numbers(value)]
    if isinstance(value, Ratio) or not theirs or not ours:
        return False
    if has_question and all(map(is_written_out, theirs)):
        return not all(
            is_written_out(tree) for tree in ours if is_number(tree) and not _is_radian(tree)
        )
    if any(map(_has_arithmetic, ours)) and not any(map(_has_arithmetic, theirs)):
        return True
    if has_question and any(map(_has_quotient, ours)) and not any(map(_has_quotient, theirs)):
        return True
    return has_question and not set().union(*map(_kinds, ours)) <= set().union(*map(_kinds, theirs))


def _is_radian(tree: Tree) -> bool:
    """Whether a number is a multiple of pi that is worked out, which degrees may be."""
    return PI in subtrees(tree) and not functions(tree) and not _has_arithmetic(tree)


def _kinds(tree: Tree) -> set[str]:
    """The kinds of function in a tree: all of trigonometry is one, logarithms are, and roots."""
    kinds = {"root"} if has_root_power(tree) else set()
    for name in functions(tree):
        is_trigonometric = name in TRIGONOMETRIC and not name.startswith("arc")
        group = "factorial" if name == "binomial" else "ln" if name in ("log", "lg") else name
        kinds.add("sin" if is_trigonometric else group)
    return kinds - ({"exp"} if variables(tree) else {"exp", "root"})


def is_written_out(tree: Tree) -> bool:
    """Whether a rational number is written out: 3, -0.5, 3/4, 1 1/2, 3 * 10^-1, 2^10."""
    match tree:
        case Num():
            return True
        case Product((first, Power(base, exponent))):
            if exponent == MINUS_ONE:
                value = exact_value(tree)
                if base != ONE and (value is None or value.denominator == 1):
                    return False  # 1230 / 15, 12 / 0.04
                is_double = not isinstance(first, Num) and not isinstance(base, Num)
                return not is_double and is_written_out(first) and _is_divisor(base)
            return is_written_out(first) and base == TEN and isinstance(exponent, Num)
        case Product((first, second)):
            return (second == DEGREE and is_written_out(first)) or (
                first == MINUS_ONE and is_written_out(second)
            )
        case Sum((Num(whole), Product((Num(top), Power(Num(bottom), exponent))))):
            is_mixed = exponent == MINUS_ONE and whole.denominator == top.denominator == 1
            return is_mixed and bottom.denominator == 1 and 0 < top < bottom
        case Power(Num(), Num(exponent)):
            return exponent.denominator == 1 and exponent not in (0, 1)
    return False


def _is_divisor(tree: Tree) -> bool:
    """Whether one may divide by it in a value: an integer, a fraction; 12/0.04 is work."""
    match tree:
        case Num(value):
            return value.denominator == 1
        case Product((Num(), Power(Num(), exponent))):
            return exponent == MINUS_ONE
        case Power(Num(), Num()):
            return True
    return False


def _has_arithmetic(tree: Tree) -> bool:
    """Whether a tree has a product of two numbers, or a sum of two or one that is rational."""
    if isinstance(tree, Sum | Product) and not is_written_out(tree):
        if isinstance(tree, Sum) and exact_value(tree) is not None:
            return True
        plain = [p for p in children(tree) if p != MINUS_ONE and is_written_out(p)]
        divisors = [p for p in plain if isinstance(p, Power) and p.exponent == MINUS_ONE]
        numbers = [p for p in plain if not isinstance(p, Power)]
        if len(numbers) > 1 or len(divisors) > 1:
            return True
    return any(map(_has_arithmetic, children(tree)))


def _has_quotient(tree: Tree) -> bool:
    """Whether a fraction in a tree is an integer: (12/2)^2 pi."""
    for part in subtrees(tree):
        match part:
            case Product((Num(top), Power(Num(bottom), exponent))) if exponent == MINUS_ONE:
                if bottom not in (0, 1) and (top / bottom).denominator == 1:
                    return True
    return False


_VERB = (
    r"(?:convert|simplify|factor(?:i[sz]e)?|expand|evaluate|reduce|change|express|rewrite|write"
    r"|compute|calculate)"
)
_START = (
    r"(?:(?:fully|completely|entirely|further)\s+|^|(?:[.?!;:,]\s|\n)\s*"
    r"|\b(?:to|and|then|please|now|you|we|i|must|should|can|could)\s+)"
)
_TASKS = {
    "reduce": re.compile(
        r"\bsimplif|\bsimplest|\blowest terms|\breduced? (?:\w+ ){0,2}(?:fraction|form)"
        r"|\u6700\u7b80|\u5316\u7b80|\u7ea6\u5206|\b(?:ge)?k\u00fcrz[et]|\bvereinfach"
        r"|m\u00ednima expresi\u00f3n|\birr[\u00e9e]ductible|\birreducible"
        r"|\brationali[sz]e"
    ),
    "factor": re.compile(
        rf"{_START}factor|\bfactored\b|\bfactori[sz]ation\b|\bproduct of (?:\w+ )*prime"
        r"|\u56e0\u5f0f\u5206\u89e3|\u5206\u89e3\u56e0\u5f0f|\bfaktorisiere|\bfactoris(?:e|ez|er)\b|\bfactoriza"
    ),
    "expand": re.compile(
        rf"{_START}expand\b|\u5c55\u5f00|\bmultipliziere|\bd\u00e9velopp|\bdesarrolla"
    ),
    "other": re.compile(
        rf"{_START}{_VERB}\b|\bin scientific notation\b|\bas which power\b"
        r"|\bas an? (?:\w+ )?(?:fraction|decimal|per ?cent(?:age)?|mixed number|ratio|power)\b"
    ),
}


@functools.lru_cache(maxsize=1024)
def find_tasks(question: str) -> frozenset[str]:
    """What a question asks to do with its formulas: reduce, factor, expand, other."""
    lowered = question.lower()
    return frozenset(name for name, pattern in _TASKS.items() if pattern.search(lowered))


_DELIMITED = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
_SIDES = re.compile(r"(?<![<>!:\\])=|\\(?:le|ge|approx|equiv|to)(?![a-z])")
_PLAIN = re.compile(r"-?(?:\\?[A-Za-z]{1,6}|[\d.,]+)")
_SAME = re.compile(r"\\(?:left|right|displaystyle|mathrm|text)(?![a-z])|\\[,;:! ]|[${}]")
_SPACE = re.compile(r"(?<![A-Za-z\d])\s+|\s+(?![A-Za-z\d])|^\s+|\s+$")
_SPELLED = (("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\cdot", "*"), ("\\times", "*"))
_COMMAND = re.compile(r"\\(?=[A-Za-z])")  # sin 2x is a copy of \sin 2x
MAX_FORMULAS = 60  # in a question
Form = Callable[[Tree], Tree]


def _squashed(text: str) -> str:
    """A text without what differs in print alone."""
    text = to_ascii(text)
    for old, new in _SPELLED:
        text = text.replace(old, new)
    text = " ".join(_COMMAND.sub("", _SAME.sub(" ", text)).split())
    return _SPACE.sub("", text).rstrip(".")


@functools.lru_cache(maxsize=1024)  # of a group's completions each is held against it
def _given(question: str) -> tuple[dict[Form, set[Tree]], str]:
    """(forms of the formulas in a question and of their sides, the question squashed)."""
    forms: dict[Form, set[Tree]] = {ordered: set(), simplified: set()}
    delimited = [found[found.lastindex or 0] for found in _DELIMITED.finditer(question)]
    plain = _WORD.split(to_ascii(_DELIMITED.sub(";", question)))
    for text in [*delimited, *filter(_FORMULA.search, plain)][:MAX_FORMULAS]:
        for part in (text, *_SIDES.split(text)) if len(text) < 300 else ():
            try:
                value = read(part.strip(" .,;?"))
                for form, found in forms.items():
                    found |= _forms(value, form)
            except (TooLarge, RecursionError):
                continue
    forms[ordered] |= {Num(Fraction(n.replace(",", ""))) for n in _NUMBER.findall(question)}
    return forms, _squashed(question)


# Words part the formulas of plain text, but for the names of functions.
_WORD = re.compile(
    r"(?<![\\A-Za-z])(?!(?:sqrt|sin|cos|tan|log|ln|pi)(?![a-z]))"
    r"(?:[A-Za-z]{3,}|(?:an|as|at|by|in|is|it|of|on|or|to|be|we)(?![a-z]))[A-Za-z']*"
    r"|[,;:?!](?:\s|$)|\.(?:\s|$)|\n"
)
_FORMULA = re.compile(r"[A-Za-z\d)}]\s*[-+*/^=(]|\\[A-Za-z]")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?", re.ASCII)


def _forms(value: Value, form: Form) -> set[Tree]:
    """The numbers of a value in one form."""
    trees = [
        Product((number.tree, Num(Fraction(1, 100))))
        if number.percent and children(number.tree)  # 100(x + 1)%
        else number.tree
        for number in _numbers(value)
    ]
    return set(map(form, trees))


def _all_functions(value: Value) -> set[str]:
    """The functions in the numbers of a value."""
    return set().union(*(functions(number.tree) for number in _numbers(value)))


def _is_given_quantity(value: Value, golds: Sequence[Value], given: set[Tree]) -> bool:
    """Whether it is a measured number of the question, and a gold is another number: 7 miles."""
    theirs = {number.tree for gold in golds for number in _numbers(gold)}
    return any(
        number.unit and number.unit.dimensions and number.tree in given - theirs
        for number in _numbers(value)
    )


def _is_copy(
    value: Value, prediction: str, golds: Sequence[str], theirs: Sequence[Value], question: str
) -> bool:
    """Whether a prediction is a formula of the question, and no gold is.

    Plain numbers and names are copies only where the question says to bring them into another form.
    """
    has_task = bool(find_tasks(question))
    given, squashed = _given(question)
    is_plain = _is_plain_form(value)
    if is_plain and not has_task and "=" not in prediction:
        return _is_given_quantity(value, theirs, given[ordered])
    known = {_squashed(part) for gold in golds for part in (gold, *gold.split("="))}
    written = [(_forms(one, ordered), _all_functions(one)) for one in (value, *theirs)]
    if written[0] in written[1:]:
        known |= {_squashed(part) for part in (prediction, prediction.rpartition("=")[2])}
    parts = {prediction}
    if has_task or not is_plain:
        parts.add(prediction.rpartition("=")[2])
    for part in parts:
        text = _squashed(part)
        is_formula = len(text) > 1 and text not in known and not _PLAIN.fullmatch(part.strip())
        if is_formula and re.search(rf"(?<![\w.)]){re.escape(text)}(?![\w^(]|\.\d)", squashed):
            return True
    if has_task and _parts_of(value) & given[ordered] - set().union(*map(_parts_of, theirs)):
        return True  # 2E - E, E^2 / E, 1 / (1 / E)
    compared: list[Form] = [ordered, simplified]
    if is_plain:
        compared = [ordered] if has_task else []
    for form in compared:
        ours, forms = _forms(value, form), set().union(*(_forms(gold, form) for gold in theirs))
        formulas = {one for one in ours - forms if children(one) or is_plain}
        if formulas & given[form] and (is_plain or not forms & given[form]):
            return True
    return _is_given_quantity(value, theirs, given[ordered])


def _parts_of(value: Value) -> set[Tree]:
    """The formulas within the numbers of a value that are no number written out, in order."""
    parts = {part for number in _numbers(value) for part in subtrees(number.tree)}
    return {ordered(part) for part in parts if children(part) and not is_written_out(part)}


def _is_plain_form(value: Value) -> bool:
    """Whether all numbers of a value are written out, or names."""
    trees = [number.tree for number in _numbers(value)]
    return all(is_written_out(tree) or not children(tree) for tree in trees)


def _is_half_done(value: Value, golds: Sequence[Value], tasks: frozenset[str]) -> bool:
    """Whether a value is not in lowest terms, factored or expanded as asked, and some gold is."""
    if not tasks - {"other"}:
        return False
    ours = [number.tree for number in _numbers(value)]
    theirs = [number.tree for gold in golds for number in _numbers(gold)]
    if "reduce" in tasks and any(map(_is_unreduced, ours)):
        return not any(map(_is_unreduced, theirs))
    if "expand" in tasks and any(map(_has_product, ours)):
        return not any(map(_has_product, theirs))
    if "factor" in tasks and len(ours) == 1 and theirs:
        if _has_common_factor(ours[0]) and not any(map(_has_common_factor, theirs)):
            return True
        return _num_factors(ours[0]) < max(map(_num_factors, theirs))
    return False


def _content(tree: Tree) -> int:
    """The greatest common divisor of the integers that the terms of a sum begin with; else 1."""
    if not isinstance(tree, Sum):
        return abs(int(tree.value)) if isinstance(tree, Num) and tree.value.denominator == 1 else 1
    whole = simplified(tree)
    terms = whole.parts if isinstance(whole, Sum) else ()
    heads = [term.parts[0] if isinstance(term, Product) else term for term in terms]
    found = [h.value for h in heads if isinstance(h, Num) and h.value.denominator == 1]
    return gcd(*map(int, found)) if found and len(found) == len(terms) else 1


def _has_common_factor(tree: Tree) -> bool:
    """Whether a sum in a product could be divided by an integer: 3(15x + 10)."""
    factors = [one for part in subtrees(tree) if isinstance(part, Product) for one in part.parts]
    bases = [one.base if isinstance(one, Power) else one for one in factors]
    return any(_content(one) > 1 for one in bases if isinstance(one, Sum) and variables(one))


def _is_unreduced(tree: Tree) -> bool:
    """Whether a tree has a fraction like 6/4, a root like that of 45, or one in a divisor."""
    for part in subtrees(tree):
        match part:
            case Product((Num(top), Power(Num(bottom), exponent))) if exponent == MINUS_ONE:
                if top.denominator == bottom.denominator == 1 and gcd(int(top), int(bottom)) > 1:
                    return True
            case Product((Sum() as top, Power(Num(bottom), exponent))) if exponent == MINUS_ONE:
                if bottom.denominator == 1 and gcd(_content(top), int(bottom)) > 1:
                    return True
            case Call("root", (Num(value), degree)) if degree == TWO and value.denominator == 1:
                most = min(isqrt(abs(value.numerator)), 1000)
                if any(value.numerator % k**2 == 0 for k in range(2, most + 1)):
                    return True
            case Power(base, exponent) if exponent == MINUS_ONE:
                if is_number(base) and exact_value(base) is None and functions(base) & {"root"}:
                    return True
                if isinstance(simplified(base), Sum) and variables(base):
                    return True
    return False


def _has_product(tree: Tree) -> bool:
    """Whether a tree has a power of a sum, or a product of it and letters: `x(x+2)`."""
    for part in subtrees(tree):
        factors = [one for one in children(part) if variables(one)]
        has_sum = any(isinstance(one, Sum) for one in factors)
        is_power = isinstance(part, Power) and part.exponent != MINUS_ONE
        if has_sum and (is_power or (isinstance(part, Product) and len(factors) > 1)):
            return True
    return False


def _num_factors(tree: Tree) -> int:
    """How many factors a product has, a power as many as its exponent."""
    if isinstance(tree, Product):
        return sum(_num_factors(part) for part in tree.parts if part != MINUS_ONE)
    if isinstance(tree, Power) and isinstance(tree.exponent, Num):
        exponent: Fraction = tree.exponent.value
        return _num_factors(tree.base) * int(exponent) if exponent.denominator == 1 else 1
    return 1
