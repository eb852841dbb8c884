"""Compare: whether two answers are the same value, reading by reading and kind by kind.

Three-valued: True, False, or None where a value is outside our grammar and there is no `algebra` to
ask. A number never equals a relation or a list; sets are unordered, tuples ordered.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

from grading.equivalence import relations
from grading.equivalence.numeric import (
    exact_value,
    identical,
    is_defined,
    is_number,
    limited_work,
)
from grading.equivalence.readings import MAX_CHARS, read, read_bare
from grading.equivalence.relations import as_interval, by_label, is_label, labels, names
from grading.equivalence.tokens import FUNCTIONS, Token, TooLarge, is_balanced, tokenise, word_set
from grading.equivalence.values import (
    INFINITY,
    MINUS_INFINITY,
    MINUS_ONE,
    Choice,
    Opaque,
    Relation,
    Scalar,
    Sequence,
    Tree,
    Value,
    Words,
    is_several,
    ratio,
    subtrees,
)

_HUNDREDTH = Fraction(1, 100)
_ANSWERS = {word.upper(): word for word in ("yes", "no", "true", "odd", "even")}
_SUBJECT = re.compile(
    r"^(?:(?:this|it|the)\s+)?(?:series|integral|sequence|limit|statement|graph|function)?\s*"
    r"(?:is|are)?\s+(?=[a-z]{4})",
    re.IGNORECASE,
)
_ANSWERS["DNE"] = "doesnotexist"


def _fold(text: str) -> str:
    """Words as compared: letters of up to four capitals stay as written (AB is not ab)."""
    text = re.sub(r"^(?:an?|the)\s+", "", text, flags=re.IGNORECASE)
    text = _SUBJECT.sub("", text)
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", text)  # June 20th
    text = re.sub(r"(?<=[A-Za-z]{3})!$", "", text)
    plain = re.sub(r"(?<!\d)[.,:\"]+(?!\d)", "", text)  # p.m. is pm, but 2.0 is not 20
    plain = plain.replace(" ", "")
    if plain.upper() in _ANSWERS:
        return _ANSWERS[plain.upper()]
    is_name = len(plain) <= 2 or (plain.isupper() and len(plain) <= 4)
    return plain if is_name else plain.casefold()


def _same_scalars(ours: Scalar | Words, theirs: Scalar | Words) -> bool:
    """Whether two numbers or expressions are one value, with their units."""
    if ours.tree is None or theirs.tree is None:
        return False  # words are no number
    ours, theirs = (v if isinstance(v, Scalar) else Scalar(v.text, v.tree) for v in (ours, theirs))
    if theirs.is_guess and ours.unit is None:
        return False
    if (ours.percent and theirs.unit) or (ours.unit and theirs.percent):
        return False
    if ours.percent != theirs.percent and not is_number(ours.tree):
        return False
    if ours.unit and theirs.unit:
        factor = ratio(ours.unit, theirs.unit)
        return factor is not None and identical(_times(ours.tree, factor), theirs.tree)
    if identical(ours.tree, theirs.tree) and not _is_sign_lost(ours, theirs):
        return theirs.percent or not (ours.percent and _is_irrational_sum(ours.tree))
    bare = _without_sign(ours, theirs)
    if bare and identical(bare, theirs.tree):
        return True
    other = _without_sign(theirs, ours)
    return bool(other) and identical(ours.tree, other)


def _without_sign(value: Scalar, other: Scalar) -> Tree | None:
    """50% as 1/2, and 180 degrees as pi where a pi is written on the other side."""
    if value.percent and not other.percent:
        return _times(value.tree, _HUNDREDTH)
    if _is_angle(value) and other.unit is None and ("const", "pi") in subtrees(other.tree):
        return ("mul", value.tree, ("const", "degree"))
    return None


def _is_angle(value: Scalar) -> bool:
    return value.unit is not None and dict(value.unit.dimensions) == {"degree": 1}


def _is_sign_lost(ours: Scalar, theirs: Scalar) -> bool:
    """Whether a sign changes an answer that the gold has without it: 1/8 %, pi/3 degrees."""
    if ours.percent and not theirs.percent:
        value = exact_value(theirs.tree)
        is_fraction = any(part[0] == "pow" for part in subtrees(theirs.tree))
        return is_fraction and value is not None and abs(value) < 1
    both = (ours, theirs), (theirs, ours)
    return any(
        _is_angle(one) and other.unit is None and ("const", "pi") in subtrees(other.tree)
        for one, other in both
    )


def _is_irrational_sum(tree: Tree) -> bool:
    """Whether a sign behind a number may be about its last term: \\frac{1 + \\sqrt{5}}{2}."""
    return exact_value(tree) is None and any(part[0] == "add" for part in subtrees(tree))


def _percents(value: Value) -> set[bool]:
    """Whether the numbers in a value, at any depth, have a per cent sign."""
    if isinstance(value, Scalar):
        return {value.percent} if value.percent or is_number(value.tree) else set()
    parts = getattr(value, "items", ()) or getattr(value, "parts", ())
    return set().union(*map(_percents, parts))


def _has_stray_percent(ours: Sequence | Relation, theirs: Value) -> bool:
    """Whether only the answer writes per cent, on a bound or on some of several numbers."""
    mine = _percents(ours)
    if True not in mine or True in _percents(theirs):
        return False
    if isinstance(ours, Sequence):
        return False in mine
    return not {"=", r"\in", r"\approx"}.issuperset(ours.ops)


def _times(tree: Tree, factor: Fraction) -> Tree:
    return tree if factor == 1 else ("mul", tree, ("num", factor))


Algebra = Callable[[Opaque | Scalar | Words, Opaque | Scalar | Words], bool | None]
_KIND = {"alternatives": "list", "interval": "pair"}  # what compares as what
_OPTIONS, _TIME = re.compile("[A-J]{2,}"), re.compile(r"\d{1,2}:\d\d")
MAX_FORMS = 4  # of one value, joined by "or"


class Comparison:
    """The comparison of two values; every method takes the prediction first and the gold second."""

    def __init__(self, algebra: Algebra | None):
        self.algebra = algebra
        self.depth = 0  # of sequences around the values compared

    def same(self, ours: Value, theirs: Value) -> bool | None:
        """Whether two values of any kind are the same."""
        if ours.text == theirs.text and type(ours) is type(theirs):
            return True
        if not self.depth:
            ours, theirs = relations.with_single_labels(ours), relations.with_single_labels(theirs)
            if isinstance(ours, Sequence | Relation) and _has_stray_percent(ours, theirs):
                result = self.result_of(ours) if isinstance(ours, Relation) else None
                return bool(result) and self.same(result, theirs)
        if isinstance(ours, Choice) or isinstance(theirs, Choice):
            return self.choices(ours, theirs)
        if isinstance(ours, Relation) or isinstance(theirs, Relation):
            return self.relations(ours, theirs)
        if isinstance(ours, Opaque) or isinstance(theirs, Opaque):
            return self.opaque(ours, theirs)
        if isinstance(ours, Sequence) or isinstance(theirs, Sequence):
            return self.sequences(ours, theirs)
        if isinstance(ours, Words) and isinstance(theirs, Words):
            return _fold(ours.text) == _fold(theirs.text)
        return _same_scalars(ours, theirs)

    def choices(self, ours: Value, theirs: Value) -> bool | None:
        """Two options must agree in all that both write; another value may equal either part."""
        if isinstance(ours, Choice) and isinstance(theirs, Choice):
            if ours.letter != theirs.letter or None in (ours.value, theirs.value):
                return ours.letter == theirs.letter
            return self.same(ours.value, theirs.value)
        choice, other = (ours, theirs) if isinstance(ours, Choice) else (theirs, ours)
        if other.text == choice.letter or choice.value is None:
            return other.text == choice.letter
        return self.same(choice.value, other) if choice is ours else self.same(other, choice.value)

    def opaque(self, ours: Value, theirs: Value) -> bool | None:
        if ours.text == theirs.text:  # of another kind
            return True
        if isinstance(ours, Sequence) or isinstance(theirs, Sequence):
            return None
        return self.algebra(ours, theirs) if self.algebra else None

    def sequences(self, ours: Value, theirs: Value) -> bool | None:
        if not (isinstance(ours, Sequence) and isinstance(theirs, Sequence)):
            return self.one_and_several(ours, theirs)
        ours, theirs = relations.intersection(ours), relations.intersection(theirs)
        kinds = {_KIND.get(ours.kind, ours.kind), _KIND.get(theirs.kind, theirs.kind)}
        if kinds == {"list", "union"}:
            one = ours if theirs.kind == "union" else theirs
            if one.kind == "list" and labels(one):
                return False  # x < 1 and x > 3 is nothing
            are_intervals = all(map(_is_interval, ours.items + theirs.items))
            return are_intervals and self.unordered(ours, theirs)
        if kinds <= {"list", "set"} or kinds in ({"union"}, {"cases"}):
            return self.unordered(ours, theirs)
        if kinds == {"ratio"}:
            return self.ratios(ours, theirs)
        if kinds == {"matrix", "pair"}:
            matrix, pair = (ours, theirs) if ours.kind == "matrix" else (theirs, ours)
            is_vector = 1 in matrix.form[1:] and not matrix.form[0] and pair.form == ("(", ")")
            is_vector = is_vector and not {INFINITY, MINUS_INFINITY} & {*pair.items}
            return is_vector and self.ordered(ours, theirs)
        if kinds == {"list", "pair"}:
            listed, pair = (theirs, ours) if ours.kind in ("pair", "interval") else (ours, theirs)
            is_named = len(labels(listed) - {None}) == len(listed.items)  # x = 1, y = 2
            if listed.kind == "alternatives" or (listed is ours and not is_named):
                return False  # a tuple or an interval needs its brackets
            is_tuple = pair.kind == "pair" and pair.form == ("(", ")")
            return is_tuple and self.ordered(by_label(ours), by_label(theirs))
        return len(kinds) == 1 and ours.form == theirs.form and self.ordered(ours, theirs)

    def one_and_several(self, ours: Value, theirs: Value) -> bool | None:
        several, one = (ours, theirs) if isinstance(ours, Sequence) else (theirs, ours)
        if several.kind == "based":  # the question names the base: a prediction may omit it
            return several is theirs and one.text == several.items[0].text
        if _OPTIONS.fullmatch(one.text):  # A, B, D is ABD
            return sorted(one.text) == sorted(item.text for item in several.items)
        if several.kind == "set" and len(several.items) == 1 and not self.depth:
            return self.same(several.items[0], one)
        is_short = several.kind == "alternatives" and len(several.items) <= MAX_FORMS
        if is_short and len(self.distinct(several.items)) == 1:
            return self.same(several.items[0], one)  # one value in two forms
        if several.kind == "ratio" and len(several.items) == 2 and isinstance(one, Scalar):
            value = exact_value(one.tree)
            top, bottom = (item.tree for item in several.items)
            if _TIME.fullmatch(several.text):
                return False
            if is_number(top) and is_number(bottom) and (not value or value.denominator == 1):
                return False  # 5:1 is not 5
            return identical(("mul", top, ("pow", bottom, MINUS_ONE)), one.tree)
        return False

    def ratios(self, ours: Sequence, theirs: Sequence) -> bool | None:
        """a : b = c : d where a d = b c."""
        if len(ours.items) != len(theirs.items):
            return False
        if _TIME.fullmatch(theirs.text):
            return ours.text == theirs.text  # 10:20 may be a time of day
        a, c = ours.items[0].tree, theirs.items[0].tree
        if 0 in (exact_value(a), exact_value(c)):
            return self.ordered(ours, theirs)
        rest = zip(ours.items[1:], theirs.items[1:], strict=True)
        return all(identical(("mul", a, d.tree), ("mul", c, b.tree)) for b, d in rest)

    def items(self, ours: Value, theirs: Value) -> bool | None:
        self.depth += 1
        result = self.same(ours, theirs)
        self.depth -= 1
        return result

    def ordered(self, ours: Sequence, theirs: Sequence) -> bool | None:
        if len(ours.items) != len(theirs.items):
            return False
        results = [self.items(*pair) for pair in zip(ours.items, theirs.items, strict=True)]
        if False in results:
            return False
        return None if None in results else True

    def unordered(self, ours: Sequence, theirs: Sequence) -> bool | None:
        if labels(ours) != labels(theirs):
            num_names = [len(names(side)) for side in (ours, theirs)]
            if 0 in num_names and max(num_names) > 1:  # y = 2, x = 1 against 1, 2
                return self.ordered(by_label(ours), by_label(theirs))
            are_indexed = all("_" in (one or "") for one in labels(ours) | labels(theirs))
            are_alike = 0 in num_names or (names(ours) == names(theirs) and not are_indexed)
            if max(num_names) == 1 and are_alike:  # x_1 = 1, x_2 = 2 against 1, 2
                ours, theirs = self.without_names(ours), self.without_names(theirs)
        left, right = list(ours.items), list(theirs.items)
        if "set" in (ours.kind, theirs.kind):  # what a list has twice is meant twice
            left, right = self.distinct(ours.items), self.distinct(theirs.items)
        if len(left) != len(right):
            return False
        is_same: bool | None = True
        for item in left:
            results = [self.items(item, other) for other in right]
            if True in results:
                right.pop(results.index(True))
            elif None in results:
                is_same = None
            else:
                return False
        return is_same

    def without_names(self, side: Sequence) -> Sequence:
        values = [self.value_of(v) or v if isinstance(v, Relation) else v for v in side.items]
        return replace(side, items=tuple(values))

    def distinct(self, items: tuple) -> list:
        kept: list = []
        for item in items:
            if not any(self.items(item, other) for other in kept):
                kept.append(item)
        return kept

    def relations(self, ours: Value, theirs: Value) -> bool | None:
        if isinstance(ours, Relation) and isinstance(theirs, Relation):
            return self.two_relations(ours, theirs)
        if isinstance(ours, Relation):
            if _is_reflexive(ours) and not isinstance(theirs, Relation):
                return False
            if result := self.result_of(ours):
                return self.same(result, theirs)
            last = ours.parts[-1]
            is_decimal = ours.ops[-1] == r"\approx" and relations.has_digits(last)
            if is_decimal and self.value_of(ours) is not None and self.same(last, theirs):
                return True  # \\pi \\approx 3.142; of \\pi \\approx 3 the value is \\pi
        relation, other = (ours, theirs) if isinstance(ours, Relation) else (theirs, ours)
        heads, num_items = relation.parts[:-1], len(getattr(other, "items", ()))
        if len(heads) == num_items > 1 and set(relation.ops) == {"="} and all(map(is_label, heads)):
            return self.same(replace(other, text="", items=relation.parts[-1:] * num_items), other)
        value = self.value_of(relation) or as_interval(relation)
        if value is None or (relation is theirs and relations.is_sum(relation)):
            return False
        if _OPTIONS.fullmatch(value.text) and isinstance(other, Sequence):
            return False  # the segment AB, no options A and B
        return self.same(value, other) if relation is ours else self.same(other, value)

    def result_of(self, chain: Relation) -> Value | None:
        """The last part of a calculation, `5\\% = 1/20`, whose parts are all the same number."""
        numbers = [p for p in chain.parts if isinstance(p, Scalar) and is_number(p.tree)]
        if set(chain.ops) != {"="} or len(numbers) < len(chain.parts) or self.depth:
            return None
        if _is_reflexive(chain):
            return None  # 0 = 0
        is_true = all(self.same(one, numbers[-1]) for one in numbers[:-1])
        return numbers[-1] if is_true else None

    def value_of(self, relation: Relation) -> Value | None:
        """What `x = 5`, `x \\in \\{1, 2\\}` or `(3x)^2 = 9x^2` say the answer is, else None.

        Every further part must be the same value: `x = 3 = 5` and `4 = 5` say nothing.
        """
        parts, ops = list(relation.parts), list(relation.ops)
        if ops == ["="] and relations.label_of(relation) is not parts[0]:
            parts.reverse()
        while len(parts) > 2 and ops[:2] == ["=", "="] and all(map(_is_head, parts[:2])):
            parts, ops = parts[1:], ops[1:]  # x = y = 5
        if _is_head(parts[0]) and ops[0] in ("=", r"\in", r"\approx", r"\equiv"):
            parts, ops = parts[1:], ops[1:]
        elif not all(isinstance(p, Scalar) for p in parts) or parts[0].tree[0] == "num":
            return None  # 4 = 5, 0 = 0
        value = parts[0]
        is_function = isinstance(value, Scalar) and not is_number(value.tree)
        if relation.ops[0] == r"\approx" and is_function:
            return None  # a function that is near another is not it
        if relation.ops[-1] == r"\in" and relations.is_empty(value):
            return None
        if relations.is_equation(relation.parts[0], value):
            return None
        for op, part in zip(ops, parts[1:], strict=True):
            agrees = op == "=" and self.same(value, part) is True
            if not (agrees or (op == r"\approx" and relations.is_rounded(value, part))):
                return None
        return value

    def interval_of(self, relation: Relation) -> Sequence | None:
        """The interval or set of `x > 5` and of `x \\in (5, \\infty)`."""
        value = self.value_of(relation) if r"\in" in relation.ops else None
        return value if isinstance(value, Sequence) else as_interval(relation)

    def two_relations(self, ours: Relation, theirs: Relation) -> bool | None:
        if _is_reflexive(ours) and not _is_reflexive(theirs):
            return False
        ours, theirs = relations.turned(ours), relations.turned(theirs)
        if len(ours.parts) == len(theirs.parts) and ours.ops == theirs.ops:
            same = [self.same(*parts) for parts in zip(ours.parts, theirs.parts, strict=True)]
            is_stray = len(_percents(theirs)) > len(_percents(ours))  # 0.56 = 56 for 56%
            if all(same) and not is_stray:
                return True
        if ours.ops == theirs.ops == (r"\in",) and ours.parts[0].text != theirs.parts[0].text:
            return False
        our_interval, their_interval = self.interval_of(ours), self.interval_of(theirs)
        if our_interval and their_interval:
            if relations.all_variables(ours) != relations.all_variables(theirs):
                return False
            return self.same(our_interval, their_interval)
        our_value, their_value = self.value_of(ours), self.value_of(theirs)
        chains = [r.parts[:-1] for r in (ours, theirs) if len(r.parts) > 2]
        named = [{part.text for part in parts if is_label(part)} for parts in chains]
        if named[1:] and named[0] != named[1]:
            return False  # x = y = 3 names others than x = z = 3
        are_values = our_value is not None and their_value is not None
        may_be_one = relations.may_name_one(*map(relations.label_of, (ours, theirs)))
        if are_values and (named[1:] or may_be_one):
            return self.same(our_value, their_value)  # with their units
        if relations.is_solved(theirs) and not relations.is_solved(ours):
            return False  # 2x + 3 = 13 is the question that x = 5 answers
        return relations.same_equation(ours, theirs)


def _is_reflexive(relation: Relation) -> bool:
    """Whether both sides are one expression: `1 = 1` says less than `\\tan 45^\\circ = 1`."""
    first, *rest = (getattr(part, "tree", None) or part.text for part in relation.parts)
    return all(one == first for one in rest)


def _is_head(value: Value) -> bool:
    """Whether a part only names what follows, or is a sum that is worked out there."""
    if isinstance(value, Sequence):  # a determinant
        return (value.kind == "matrix" and value.form[0]) or is_label(value)
    is_sum = isinstance(value, Opaque) and any(t.text in _ITS_OWN for t in value.tokens)
    return is_sum or _is_calculation(value) or is_label(value)


def _is_calculation(value: Value) -> bool:
    """Whether a part that we cannot read is arithmetic of numbers: `65\\% \\cdot 420`."""
    if not isinstance(value, Opaque) or not value.tokens:
        return False
    texts = {token.text for token in value.tokens if token.kind != "num"}
    numbers = [token for token in value.tokens if token.kind == "num"]
    return len(numbers) > 1 and bool(texts & _OPERATORS) and texts <= _OPERATORS | _IN_CALCULATIONS


_OPERATORS = {"+", "-", "*", "/", r"\cdot", r"\times", r"\div", "times", "of"}
_IN_CALCULATIONS = {"%", r"\$", r"\ldots", "(", ")", "{", "}", "^", "."}


def _is_interval(item: Value) -> bool:
    if isinstance(item, Sequence):
        return item.kind in ("pair", "interval", "set")
    is_point = isinstance(item, Scalar) or (isinstance(item, Relation) and item.ops == ("=",))
    return is_point or as_interval(item) is not None


# What math-verify misreads it accepts: a list as a sum, a sentence as a product. So it is asked
# only about texts made of mathematics, and not about those whose size would cost the time limit.

_COMMANDS = FUNCTIONS | word_set("""
    frac sqrt cdot times div pi sum prod int lim infty to binom lfloor rfloor lceil rceil partial
    over alpha beta gamma delta theta lambda mu omega phi sigma arccot arcsec arccsc coth
""")
# Repeating decimals are misread, 1e999999999 is a bomb.
_READ_WELL = {"word": "[A-Za-z]|d[a-z]", "op": r"[-+*/^_!=(){}[\]|,']", "num": r"[^eE]*[^eE)]"}
_GROWING = {"^", r"\sum", r"\prod", r"\int", r"\lim"}
# Characters of a number outside, and inside an exponent or the bound of a sum, where every further
# digit multiplies the work.
_LONGEST = {False: 100, True: 4}
# What our own grammar lacks; whatever else it refuses is malformed, and math-verify would guess.
_ITS_OWN = {r"\sum", r"\prod", r"\int", r"\lim"}


def _is_mathematics(tokens: list[Token]) -> bool:
    """Whether the tokens are numbers, single letters, known commands and operators only."""
    if not tokens or tokens[-1].text in "+-*/^_=(":
        return False
    for token in tokens:
        pattern = _READ_WELL.get(token.kind)
        is_command = token.kind == "cmd" and token.text[1:] in _COMMANDS
        if not (is_command or (pattern and re.fullmatch(pattern, token.text))):
            return False
    if any(a.kind == b.kind == "num" for a, b in pairwise(tokens)):
        return False  # 5 6 is read as 11
    # A lone bar divides 4 | 8, or separates candidates.
    return [token.text for token in tokens].count("|") % 2 == 0


def _is_bomb(tokens: list[Token]) -> bool:
    """Whether exponents or bounds hold a power or a further sum, or numbers are huge."""
    open_at: list[bool] = []  # for each open bracket: is it, or is it inside, an exponent or bound
    raised = False
    for token in tokens:
        inside = raised or any(open_at)
        if token.text in ("{", "(", "["):
            open_at.append(inside)
        elif token.text in ("}", ")", "]") and open_at:
            open_at.pop()
        is_long = token.kind == "num" and len(token.text) > _LONGEST[inside]
        if is_long or token.text == "!" or (inside and token.text in _GROWING):
            return True
        raised = token.text in ("^", "_")
    return False


# math-verify guesses at operators without their bounds or operands, so each must be complete.
_WHOLE = re.compile(
    r"\\lim_\{[A-Za-z]\\to(?=[^{}=])"
    r"|\\(?:sum|prod)_\{[A-Za-z]=[^{}=]+\}\^(?:\{[^{}=]*\}|\\infty ?|[^{}\\])(?=[^\s=+)}*/^,-])"
    r"|\\int(?:_(?:\{[^{}=]*\}|[^{}\\])\^(?:\{[^{}=]*\}|\\infty|[^{}\\]))?(?=[^d].*d[a-z])"
)


def can_be_asked(value: Opaque | Scalar | Words) -> bool:
    """Whether a value may go to math-verify: complete mathematics of a sane size."""
    tokens = tokenise(value.text)
    num_operators = sum(token.text in _ITS_OWN for token in tokens)
    if not (num_operators or isinstance(value, Scalar)) or not is_balanced(tokens):
        return False
    found = [match[0] for match in _WHOLE.finditer(value.text)]
    bound = {match[6] for match in found if match.startswith(r"\lim")}
    if bound and not {t.text for t in tokens if t.kind == "word"} <= bound | {"e"}:
        return False  # a limit with free letters
    if num_operators and any(b.text == "_" and a.kind == "word" for a, b in pairwise(tokens)):
        return False  # a_k is no constant of a sum over k
    is_whole = len(found) == num_operators and value.text.count("=") == "".join(found).count("=")
    return is_whole and _is_mathematics(tokens) and not _is_bomb(tokens)


MAX_WORDS = 4  # a name or a short phrase can be a gold, a sentence cannot
# An integer or decimal, the short way of most golds; `$18$`, but no unit.
_PLAIN_NUMBER = re.compile(
    r"\s*(?:\\?\$)?\s*([+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?)\s*\.?\s*\$?\s*\.?\s*",
    re.ASCII,
)
# A letter before one letter or number in brackets; one before brackets that an "=" follows.
_CALL = re.compile(
    r"(?<![A-Za-z\\])[a-z]?([A-Za-z])(?:\\left)?\(\s*(?:[A-Za-z]|[\d.]+)\s*(?:\\right)?\)"
)
_DEFINED = re.compile(r"(?<![\w)}^])([A-Za-z])(?:\\left)?\([^()]*\)\s*=")


def _functions(prediction: str, gold: str) -> str:
    """The letters that brackets behind them apply to something: f, g, P in `P(x)`, no factors."""
    both = f"{prediction} ; {gold}"
    if "(" not in both:
        return ""
    plain = re.sub(r"\\[A-Za-z]+", "", both)
    defined = {
        letter
        for letter in _DEFINED.findall(both)
        if plain.count(letter) == len(re.findall(rf"{letter}\s*\(", plain))
    }
    return "".join(sorted({"f", "g", *_CALL.findall(both), *defined}))


Pair = tuple[Value, Value]  # a reading of a prediction and one of a gold


def compare(prediction: str, gold: str, algebra: Algebra | None = None) -> bool | None:
    """Whether two values are the same; None where that takes algebra that was not given.

    Raises TooLarge where the two differ as text and one is too large to compute with.
    """
    return find_equal(prediction, gold, algebra)[0]


@limited_work()
def find_equal(
    prediction: str, gold: str, algebra: Algebra | None = None
) -> tuple[bool | None, Pair | None]:
    """What `compare` gives, and the first readings that are equal.

    What the question forbids is asked of these, never of the text: a condition or a label that is
    left out cannot hide anything. There are none where plain numbers or equal texts are compared.
    """
    if prediction == gold or max(len(prediction), len(gold)) > MAX_CHARS:
        return bool(gold.strip()) and prediction.strip() == gold.strip(), None
    numbers = [_PLAIN_NUMBER.fullmatch(text) for text in (prediction, gold)]
    if all(numbers):
        ours, theirs = (number[1].replace(",", "") for number in numbers)
        return ours == theirs or Fraction(ours) == Fraction(theirs), None
    comparison = Comparison(algebra)
    is_known = True
    for pair in _pairs(prediction, gold):
        if not all(value.text for value in pair):
            return False, None
        is_same = comparison.same(*pair)
        if is_same:
            return True, pair
        is_known = is_known and is_same is not None
    return False if is_known else None, None


def _pairs(prediction: str, gold: str) -> Iterator[Pair]:
    """Each reading of a prediction with each of a gold.

    Those without conditions come last, and only then are they read: most pairs are decided before.
    """
    functions = _functions(prediction, gold)
    ours, theirs = read(prediction, False, functions), read(gold, True, functions)
    yield from product(ours, theirs)
    yield from product(read_bare(prediction, False, functions), theirs)
    yield from product(ours, read_bare(gold, True, functions))


def all_pairs(prediction: str, gold: str) -> list[Pair]:
    """Each reading of a prediction with each of a gold, for what only algebra found equal."""
    return [*_pairs(prediction, gold)]


def is_same_value(first: str, second: str) -> bool:
    """Whether two answers are one value as far as we can tell without math-verify."""
    try:
        return compare(first, second) is True
    except TooLarge:
        return False


def num_listed(gold: str) -> int:
    """How many values a gold lists in any order; 1 where it is no list or set."""
    try:
        value = read(gold, True)[0] if len(gold) <= MAX_CHARS else None
    except TooLarge:
        return 1
    if isinstance(value, Relation):
        value = value.parts[-1]  # y = \\pm 2x
    is_set = isinstance(value, Sequence) and value.kind == "set"
    return len(value.items) if is_set or is_several(value) else 1


def is_parseable(text: str) -> bool:
    """Whether a text can serve as a gold: a value of a kind that we or math-verify can compare."""
    if len(text) > MAX_CHARS:
        return False
    try:
        return any(map(_is_known, read(text, True)))
    except TooLarge:
        return False


def _is_known(value: Value) -> bool:
    if isinstance(value, Scalar):
        return is_defined(value.tree)
    if isinstance(value, Words):
        words = value.text.split()
        is_statement = len(words) > 1 and any(len(word) == 1 and word not in "aA" for word in words)
        return len(words) <= MAX_WORDS and not is_statement
    if isinstance(value, Choice):
        return value.value is None or _is_known(value.value)
    if isinstance(value, Sequence):
        return all(map(_is_known, value.items))
    if isinstance(value, Relation):
        return all(map(_is_known, value.parts))
    return isinstance(value, Opaque) and can_be_asked(value)
