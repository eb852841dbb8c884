"""Parse: an answer's tokens as a value, by one grammar.

The precedences are list < relation < union < ratio < quantity < sum < product < power < atom. A
side of a relation or an item of a list that is outside the grammar is `Opaque`.
"""

import re
import string
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from grading import units, values
from grading.latex import (
    AGGREGATES,
    CLOSING,
    END,
    FUNCTIONS,
    OPENING,
    Token,
    Unreadable,
    joined,
    normalise,
    read_number_words,
    tokenise,
    word_set,
)
from grading.tree import (
    DEGREE,
    MINUS_ONE,
    ONE,
    PI,
    TWO,
    Call,
    E,
    Num,
    Power,
    Product,
    Sum,
    Tree,
    Var,
    children,
    functions,
    inverse,
    minus,
    rebuilt,
    simplified,
    subtrees,
)
from grading.values import (
    Based,
    Bracketed,
    Conditional,
    Infinite,
    Matrix,
    Modulus,
    Number,
    Opaque,
    Option,
    Ratio,
    Relation,
    Several,
    Union,
    Value,
    Words,
)

MAX_DEPTH = 40  # nested groups; keeps recursion far from Python's own limit
MAX_ITEMS = 64
RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\approx", r"\in", r"\equiv", r"\to"}
_CONJUNCTIONS = {"and", "or", "或", "和", "или", "и", "oder", "und", "ou", "et"}
_SEPARATORS = {",", ";", r"\\", r"\vee", r"\wedge"}
_CONDITION = re.compile(r"\\forall|(?:for|if|when|where|with)\b.*", re.IGNORECASE)
# Words that say nothing of a condition: `for all integers k`, `if x > 0`.
CONDITION_WORDS = word_set(r"""
    for if when where with all any every each is are be an a the integer integers number numbers
    real reals and \forall""")
# Greek letters, as variables.
_LETTERS = word_set("""
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau
    phi chi psi omega Delta Omega Sigma Gamma Theta Lambda Phi Psi ell hbar""")
# Words that are no products of letters: 0 (or 1) is not 0.
_ENGLISH = word_set("""
    or and not is it to of in if no by be so we do go us up my me he as are for the was but can may
    one two six ten four five nine zero half both else none any all yes also even odd then
    than with from mod plus pct""")
# Commands that make a name of what is in their braces.
_MARKS = word_set("overline vec hat mathbf angle triangle widehat mathcal tilde dot ddot")
# Commands that a factor may start with.
_STARTS = word_set("frac sqrt binom pi lfloor lceil") | FUNCTIONS | AGGREGATES | _LETTERS | _MARKS
_SUM = {*"+0123456789", *string.ascii_letters}
_PAIRS = {"(": ")", "[": "]", "{": "}", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_ROUNDED = {"|": "abs", r"\lfloor": "floor", r"\lceil": "ceiling"}
_REPEATING_PART = re.compile(r"\\(?:overline|dot)\s*\{?|\(")
_PERCENT = ("%", "pct", "percent", "percentage")
_MATRICES = {"pmatrix", "bmatrix", "matrix", "array", "smallmatrix", "Bmatrix", "vmatrix"}
_SYSTEMS = {"cases", "aligned", "align", "gathered", "split"}
_BEFORE_UNIT = {")", "}", "]", "%", "!", "|", r"\pi", r"\degree"}  # besides numbers and words


def _to_fraction(number: str) -> Fraction:
    """Exact value of a number token: digits, a repeating part, or a decimal exponent."""
    if number.isdecimal():
        return Fraction(int(number))
    plain, *repeating = _REPEATING_PART.split(number.rstrip("})"))
    if abs(int(plain.lower().partition("e")[2] or 0)) > 999:
        raise Unreadable(number)
    value = Fraction(f"0{plain}")
    for digits in repeating:  # at most one
        num_decimals = len(plain.partition(".")[2])
        value += Fraction(int(digits), 10**num_decimals * (10 ** len(digits) - 1))
    return value


def is_conjunction(token: Token) -> bool:
    """Whether a token is "and" or "or"."""
    return token.is_word and token.text.strip(" ,").lower() in _CONJUNCTIONS


def opens_condition(token: Token) -> bool:
    """Whether a token is a word that a condition begins with."""
    return (token.is_word or token.text == r"\forall") and bool(_CONDITION.fullmatch(token.text))


class _Parser:
    """Recursive descent over tokens; / and implicit products bind alike, from left to right.

    Args:
        tokens: what is read.
        calls: letters of which brackets behind them make a call: P(x) is no product.
        letters: what is no unit: `5 m` with m is five times m.
    """

    def __init__(self, tokens: list[Token], calls: str, letters: frozenset[str]):
        self.tokens, self.calls, self.letters = list(tokens), calls, letters
        self.at = self.depth = 0
        self.in_bars = False  # where the next bar closes, or divides a set
        self.sign = 0  # of \pm: 1 the upper one, 0 none yet
        self.has_double_sign = False

    def peek(self, ahead: int = 0) -> Token:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else END

    def take(self, text: str | None = None) -> Token:
        token = self.peek()
        if token is END or (text is not None and token.text != text):
            raise Unreadable(token.text)
        self.at += 1
        return token

    def accept(self, *texts: str) -> bool:
        """Take the next token if it is one of these."""
        if self.peek().text not in texts:
            return False
        self.at += 1
        return True

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")

    # Lists, relations, unions

    def answer(self) -> Value:
        """All tokens as one value; `Unreadable` unless every token has its place."""
        value = self.condition(self.listed())
        if self.peek() is not END:
            raise Unreadable(self.peek().text)
        return value

    def listed(self) -> Value:
        items, joints = [self.piece()], set()
        while self.is_separator(self.peek()):
            while self.is_separator(self.peek()):
                joints.add(self.take().text.strip(" ,").lower())
            if self.is_end(self.peek()) and self.peek().text not in CLOSING:
                break  # a separator before a condition, or before nothing
            items.append(self.piece())
        if len(items) > MAX_ITEMS:
            raise Unreadable("a long list")
        kind = "or" if joints == {"or"} else "and" if joints == {"and"} else "list"
        return items[0] if len(items) == 1 else Several(tuple(items), kind)

    def piece(self) -> Value:
        """An item of a list; where several have conditions, as in `1 if x > 0, 2 if x < 0`, its."""
        value = self.relation()
        is_condition = [opens_condition(token) for token in self.tokens]
        if not opens_condition(self.peek()) or is_condition.count(True) < 2:
            return value
        said = self.take().text
        rest = self.attempt(self.relation) if said.lower() in CONDITION_WORDS else None
        words = "" if rest is not None else joined(self.raw())
        return Conditional(value, rest or Words(f"{said} {words}".strip()))

    def is_separator(self, token: Token) -> bool:
        return token.text in _SEPARATORS or is_conjunction(token)

    def is_end(self, token: Token) -> bool:
        """Whether a list ends here."""
        if token is END or token.text in CLOSING or token.text in ("}", "&", r"\pmod"):
            return True
        if token.text in ("|", ":"):
            return self.in_bars
        return opens_condition(token) or self.is_condition()

    def is_condition(self) -> bool:
        """Whether brackets with a relation in them are next: `(k \\in \\mathbb{Z})`."""
        if self.peek().text != "(" or not self.at:
            return False
        before = self.tokens[self.at - 1].text
        if not self.peek().spaced and len(before) == 1 and before.isupper():
            return False  # P(X = 2)
        following = self.tokens[self.at + 1 : self.at + 30]
        texts = [token.text for token in following]
        return ")" in texts and any(text in RELATIONS for text in texts[: texts.index(")")])

    def condition(self, value: Value) -> Value:
        """The value with the condition that follows it, if one does."""
        token = self.peek()
        if self.is_condition():
            self.take("(")
            value = Conditional(value, self.listed())
            self.take(")")
            return value
        if self.accept(r"\pmod"):
            return Conditional(value, Modulus(self.expression()))
        if (
            token is END
            or token.text in CLOSING | {"}", "&"}
            or (token.text in ("|", ":") and self.in_bars)
        ):
            return value
        start = self.at
        self.take()
        self.skip_words(2)
        words = {word for token in self.tokens[start : self.at] for word in token.text.split()}
        is_said = words <= CONDITION_WORDS  # for even k is not for k
        condition = self.attempt(self.listed) if is_said else None
        if condition is None or self.peek() is not END:
            said = " ".join(token.text for token in self.tokens[start:])
            condition, self.at = Words(said), len(self.tokens)
        return Conditional(value, condition)

    def relation(self) -> Value:
        if (name := self.label()) is not None:
            return Relation((name, self.side()), ("=",))
        parts, ops = [self.side()], []
        while self.peek().text in RELATIONS:
            ops.append(self.take().text)
            parts.append(self.side())
        return Relation(tuple(parts), tuple(ops)) if ops else parts[0]

    def label(self) -> Words | None:
        """A name and its colon, if one is next and is not the only one: `Ann: 12, Ben: 24`."""
        start = self.at
        texts = [token.text for token in self.tokens]
        is_list = any(texts.count(separator) for separator in _SEPARATORS) and not self.in_bars
        if not self.peek().is_word or texts.count(":") < 2 or not is_list:
            return None
        self.skip_words(1)
        if self.accept(":"):
            return Words(joined(self.tokens[start : self.at - 1]).rstrip(":"))
        self.at = start
        return None

    def side(self) -> Value:
        """One side of a relation; both values of a double sign."""
        if self.sign:
            return self.one_side()
        start, outer = self.at, self.has_double_sign
        self.sign, self.has_double_sign = 1, False
        upper = self.one_side()
        if self.has_double_sign:
            self.at, self.sign = start, -1
            upper = Several((upper, self.one_side()))
        self.sign, self.has_double_sign = 0, outer
        return upper

    def is_end_of_side(self) -> bool:
        token = self.peek()
        return token.text in RELATIONS or self.is_separator(token) or self.is_end(token)

    def one_side(self) -> Value:
        value = self.attempt(self.union)
        tokens = [] if value is not None else self.raw()
        if value is None and not tokens:
            raise Unreadable(self.peek().text)
        return value if value is not None else Opaque(joined(_with_one_letter(tokens)))

    def attempt(self, read: Callable[[], Any], *ends: str) -> Any:
        """What `read` makes of this side up to its end; None, with nothing taken, if it fails."""
        state = self.at, self.depth, self.in_bars, list(self.tokens)
        try:
            value = read()
            if self.is_end_of_side() or self.peek().text in ends:
                return value
        except Unreadable:
            pass
        self.at, self.depth, self.in_bars, self.tokens = state
        return None

    def raw(self) -> list[Token]:
        """The tokens up to the end of this side, brackets as they are."""
        start, open_brackets = self.at, 0
        while self.peek() is not END:
            text = self.peek().text
            if not open_brackets and self.is_end_of_side():
                break
            open_brackets += (text in OPENING or text == "{") - (text in CLOSING or text == "}")
            self.at += 1
        return self.tokens[start : self.at]

    def union(self) -> Value:
        pieces = [self.ratio()]
        if self.accept(r"\setminus"):
            return Relation((pieces[0], self.ratio()), (r"\setminus",))
        while self.accept(r"\cup"):
            pieces.append(self.ratio())
        return pieces[0] if len(pieces) == 1 else Union(tuple(pieces))

    def ratio(self) -> Value:
        start = self.at
        items = [self.quantity()]
        while (self.peek().text == ":" and not self.in_bars) or self.peek().text == "to":
            self.take()
            items.append(self.quantity())
        if len(items) == 1:
            return items[0]
        if not all(isinstance(item, Number) and not item.unit for item in items):
            raise Unreadable(":")
        return Ratio(tuple(items), joined(self.tokens[start : self.at]))

    # Quantities, words, brackets

    def quantity(self) -> Value:
        """A number with its unit, words, or what is in brackets."""
        if (words := self.words()) is not None:
            return words
        if (value := self.whole_bracket()) is not None:
            return value
        texts = {token.text for token in self.tokens[self.at + 1 :]}
        if r"\begin" in texts or {"(", ","} <= texts:
            start = self.at
            if (scaled := self.attempt(self.scaled)) is not None:
                return scaled
            self.at = start
        signed = self.peek().text in ("+", "-")
        if self.peek(1 if signed else 0).text == r"\infty":
            is_negative = signed and self.take().text == "-"
            self.take()
            return Infinite(-1 if is_negative else 1)
        number = self.measured()
        while number.unit and self.peek().text in ("+", "-"):
            sign = self.take().text
            number = self.added(number, self.measured(), -1 if sign == "-" else 1)
        while number.unit and number.unit.dimensions and self.is_next_part():
            if is_conjunction(self.peek()) or self.peek().text == ",":
                self.take()
            number = self.added(number, self.measured(), 1, is_part=True)
        return number

    def is_next_part(self) -> bool:
        """Whether a smaller part follows: 5 feet 6 inches."""
        ahead = 1 if is_conjunction(self.peek()) or self.peek().text == "," else 0
        following = self.tokens[self.at + ahead + 1 : self.at + ahead + 2]
        is_unit = bool(following) and following[0].is_word
        return self.peek(ahead).kind == "num" and is_unit and units.is_measure(following[0].text)

    def added(self, first: Number, second: Number, sign: int, is_part: bool = False) -> Number:
        """The sum of two measured numbers in the unit of the first."""
        size = units.ratio(second.unit, first.unit) if first.unit and second.unit else None
        if size is None or (is_part and size >= 1):
            raise Unreadable("a sum of two units")
        if isinstance(first.tree, Num) and isinstance(second.tree, Num) and is_part:
            return Number(Num(first.tree.value + size * second.tree.value), first.unit)
        return Number(Sum((first.tree, Product((Num(sign * size), second.tree)))), first.unit)

    def measured(self) -> Number:
        """An expression, with its unit, currency or per cent sign."""
        negative = self.peek(1).text.rstrip(".") in units.CURRENCY and self.accept("-")
        currency = []
        if self.peek().text.rstrip(".") in units.CURRENCY:
            currency = [units.CURRENCY[self.take().text.rstrip(".")]]
            self.accept(".")  # Rs. 5
        tree = self.expression()
        tree = minus(tree) if negative else tree
        percent = self.peek().text.lower() in _PERCENT
        if percent:
            self.take()
            return Number(tree, None, True)
        before = self.tokens[self.at - 1].text if self.at else ""
        is_degree = before in (r"\degree", "'") and DEGREE in subtrees(tree)
        is_degree = is_degree and not functions(tree) & FUNCTIONS
        words: list[str] = []
        if self.starts_unit():
            words, length = units.unit_words(self.unit_tokens())
            self.at += length
        if is_degree:
            tree, words = _without_degrees(tree), ["degree", *words]
        if not words + currency:
            return Number(tree)
        found = units.read_unit(words + currency)
        if found is None:
            raise Unreadable(" ".join(words))
        unit, scale = found
        if scale != 1:
            tree = Num(tree.value * scale) if isinstance(tree, Num) else Product((tree, Num(scale)))
        return Number(tree, unit)

    def unit_tokens(self) -> list[Token]:
        """The tokens up to the next condition, conjunction or measured part."""
        tokens: list[Token] = []
        for token in self.tokens[self.at :]:
            if tokens and (opens_condition(token) or is_conjunction(token)):
                break
            tokens.append(token)
        return tokens

    def starts_unit(self) -> bool:
        token, before = self.peek(), self.tokens[self.at - 1]
        if before.kind in ("op", "cmd") and before.text not in _BEFORE_UNIT:
            return False
        if token.kind == "text":
            return not (is_conjunction(token) or opens_condition(token) or token.text == "to")
        if token.kind == "word":
            return before.text == r"\degree" or self.is_unit(token, before)
        return token.text in units.CURRENCY

    def is_unit(self, token: Token, before: Token) -> bool:
        """Whether letters behind a number are a unit and no factor."""
        text = token.text
        if len(text) == 1:
            is_behind_number = before.kind == "num" or before.text == "}"
            return token.spaced and is_behind_number and text in units.LETTERS - self.letters
        if is_conjunction(token) or opens_condition(token) or text == "to":
            return False
        is_mixed = not text.islower() and text[0].islower()  # eV
        return units.is_unit_word(text) or (token.spaced and (len(text) > 3 or is_mixed))

    def words(self) -> Value | None:
        """Words up to the end of this side; None where it is no words alone."""
        start, token = self.at, self.peek()
        if not token.is_word or token.text.rstrip(".") in units.CURRENCY:
            return None
        self.skip_introduction()
        if self.at > start:
            return self.quantity()
        tokens = self.raw()
        is_date = len(token.text) > 2  # June 20
        kinds = ("word", "text", "num") if is_date else ("word", "text")
        text = joined(tokens)
        is_plain = all(t.kind in kinds or t.text in ("'", "-", ".", "!", ":") for t in tokens)
        if not tokens or not is_plain or (len(tokens) == 1 and len(token.text) == 1):
            self.at = start
            return None
        if (number := read_number_words(text)) is not None:
            return Number(Num(number))
        end, self.at = self.at, start
        tree = self.attempt(self.expression) if len(text) < 9 else None
        self.at = end if tree is None else self.at
        return Words(text, tree)

    def skip_words(self, shortest: int) -> None:
        """Pass over upright text and words of so many letters."""
        while self.peek().kind == "text" or (
            self.peek().kind == "word" and len(self.peek().text) >= shortest
        ):
            self.at += 1

    def skip_introduction(self) -> None:
        """Pass over words that only introduce what follows: `\\text{The point }(2, -1)`."""
        start = self.at
        self.skip_words(4)
        words, token = joined(self.tokens[start : self.at]), self.peek()
        is_label = self.accept(":")
        if (
            token is END
            or not (is_label or _INTRODUCTION.fullmatch(words))
            or _BLURRING.search(words)
        ):
            self.at = start

    def whole_bracket(self) -> Value | None:
        """What is in brackets, where they are the whole of this operand; else None."""
        token, start = self.peek(), self.at
        name = joined(self.tokens[start : start + 4])
        if name.startswith((r"\mathbb{R}", r"\mathbf{R}")):
            self.at += 4
            return values.REALS
        if name.startswith(r"\mathbb{"):
            self.at += 4
            if self.accept("^") and not self.accept("+", r"\cdot"):
                self.raw_group()
            return Words(name)
        if self.accept(r"\emptyset"):
            return values.EMPTY
        is_point = (
            token.kind == "word" and re.fullmatch("[A-Z]", token.text) and self.peek(1).text == "("
        )
        if is_point and self.commas() and token.text not in self.calls:
            self.take()  # the point P(1, 2)
        elif token.text not in ("(", "[", "{", r"\{", r"\langle", r"\begin"):
            return None
        value = self.attempt(self.matrix_or_bracket, r"\cup", r"\setminus")
        self.at = start if value is None else self.at
        return value

    def matrix_or_bracket(self) -> Value:
        self.deeper()
        value = self.matrix() if self.peek().text == r"\begin" else self.bracketed()
        self.depth -= 1
        return value

    def scaled(self) -> Value:
        """A number times a matrix or a vector."""
        factors: list[Tree] = [MINUS_ONE] if self.is_minus() else []
        while not (self.peek().text == r"\begin" or (self.peek().text == "(" and self.commas())):
            factors.append(self.power())
            self.accept(r"\cdot")
        value = self.matrix_or_bracket()
        if not factors:
            raise Unreadable("no factor")
        factor = factors[0] if len(factors) == 1 else Product(tuple(factors))
        match value:
            case Matrix(rows, False):
                return Matrix(tuple(tuple(_multiplied(factor, c) for c in row) for row in rows))
            case Bracketed("(", items, ")"):
                return Bracketed("(", tuple(_multiplied(factor, one) for one in items), ")")
        raise Unreadable("a factor")

    def commas(self) -> bool:
        """Whether a comma is before the next closing bracket."""
        texts = [token.text for token in self.tokens[self.at :]]
        return ")" in texts and "," in texts[: texts.index(")")]

    def bracketed(self) -> Value:
        opening = self.take().text
        outer, self.in_bars = self.in_bars, opening == r"\{"
        outer_sign = self.sign
        if opening == r"\{":
            self.sign = 0
            if self.accept(r"\}"):
                self.in_bars, self.sign = outer, outer_sign
                return values.EMPTY
        inner = self.listed()
        if opening == r"\{" and self.peek().text in ("|", ":"):
            self.take()
            self.in_bars = False
            inner = Conditional(inner, self.listed())
        self.in_bars, self.sign = outer, outer_sign
        if opening != "{" and self.peek().text in CLOSING:
            closing = self.take().text
        else:
            closing = self.take("}").text
        if joined(self.tokens[self.at : self.at + 4]).startswith(
            ("^T", r"^\top", "^{T}", r"^{\top}")
        ):
            self.take("^")
            self.raw_group()  # a column, written as a row
        if opening == r"\{":
            if closing != r"\}":
                raise Unreadable(closing)
            return inner if isinstance(inner, Conditional) else Several(_items(inner), "set")
        if opening == "{" or (not isinstance(inner, Several) and opening in ("(", "[")):
            if closing != _PAIRS[opening]:
                raise Unreadable(closing)
            return inner
        brackets = {r"\langle": "(", r"\rangle": ")"}
        return Bracketed(
            brackets.get(opening, opening), _items(inner), brackets.get(closing, closing)
        )

    def matrix(self) -> Value:
        self.take(r"\begin")
        name = self.raw_group()
        if name not in _MATRICES | _SYSTEMS:
            raise Unreadable(name)
        if name == "array" and self.peek().text == "{":
            self.raw_group()
        rows: list[list[Value]] = [[]]
        while self.peek().text != r"\end":
            if self.accept(r"\\"):
                rows.append([])
            elif not self.accept("&"):
                rows[-1].append(self.cell(name))
        self.take(r"\end")
        self.raw_group()
        rows = [row for row in rows if row]
        if len({len(row) for row in rows}) != 1:
            raise Unreadable(name)
        if name in _SYSTEMS and len(rows[0]) < 3:
            return Several(tuple(row[0] if len(row) == 1 else Conditional(*row) for row in rows))
        return Matrix(tuple(map(tuple, rows)), name == "vmatrix")

    def cell(self, name: str) -> Value:
        """A cell of a matrix, or a row of a system without its & signs."""
        if name in _SYSTEMS - {"cases"}:
            end = self.at
            while end < len(self.tokens) and self.tokens[end].text not in (r"\\", r"\end"):
                end += 1
            self.tokens[self.at : end] = [t for t in self.tokens[self.at : end] if t.text != "&"]
        if self.peek().text.lower() in ("if", "for", "when"):
            self.take()
        value = self.relation()
        self.accept(",", ";")
        return value

    # Expressions

    def expression(self) -> Tree:
        terms = [self.signed_term()]
        while self.peek().text in ("+", "-", r"\pm", r"\mp"):
            if self.peek().text == "+" and self.peek(1).text == "-":
                self.at += 1  # 2+-3
            terms.append(self.signed_term())
        tree = terms[0] if len(terms) == 1 else Sum(tuple(terms))
        if self.accept(r"\over"):
            tree = Product((tree, inverse(self.expression())))
        elif self.accept(r"\choose"):
            tree = Call("binomial", (tree, self.expression()))
        return tree

    def is_minus(self) -> bool:
        """Take a sign, if one is next; whether it is a minus."""
        token = self.peek()
        if token.text in (r"\pm", r"\mp"):
            self.has_double_sign = True
            self.take()
            return (self.sign < 0) != (token.text == r"\mp")
        return not self.accept("+") and self.accept("-")

    def signed_term(self) -> Tree:
        is_negative = self.is_minus()
        tree = self.term()
        return minus(tree) if is_negative else tree

    def signed_power(self) -> Tree:
        is_negative = self.is_minus()
        tree = self.power()
        return minus(tree) if is_negative else tree

    def term(self) -> Tree:
        factors = [self.mixed_number() or self.power()]
        while True:
            if self.accept(r"\cdot"):
                factors.append(self.signed_power())
            elif self.accept("/", r"\div"):
                factors.append(inverse(self.signed_power()))
            elif self.starts_factor(self.peek()):
                if self.peek().kind == self.tokens[self.at - 1].kind == "num":
                    raise Unreadable("two numbers side by side")
                factors.append(self.power())
            else:
                return factors[0] if len(factors) == 1 else Product(tuple(factors))

    def starts_factor(self, token: Token) -> bool:
        if token.kind == "num":
            return True
        if token.kind == "word":
            before = self.tokens[self.at - 1]
            is_other = self.is_end(token) or self.is_separator(token) or token.text in _PERCENT
            return before.text != r"\degree" and not is_other and not self.is_unit(token, before)
        if token.kind == "cmd":
            return token.text[1:] in _STARTS
        if token.text == "(":
            return not self.is_condition()
        return token.text in ("[", "{") or (token.text == "|" and not self.in_bars)

    def mixed_number(self) -> Tree | None:
        """`1\\frac{1}{2}` and `1 1/2`: an integer before a fraction of integers is a sum."""
        texts = [self.peek(ahead).text for ahead in range(4)]
        is_plain = self.peek(1).spaced and texts[2] == "/"
        is_plain = is_plain and all(text.isdigit() for text in (texts[0], texts[1], texts[3]))
        if not is_plain and not (texts[0].isdigit() and texts[1] == r"\frac"):
            return None
        start = self.at
        self.take()
        fraction = self.atom() if texts[1] == r"\frac" else self.plain_fraction()
        match fraction:
            case Product((Num(top), Power(Num(bottom), _))):
                if top >= bottom or self.peek().text in ("^", "!"):
                    raise Unreadable("neither a mixed number nor a product")
                return Sum((Num(Fraction(texts[0])), fraction))
        self.at = start
        return None

    def plain_fraction(self) -> Tree:
        """`1/2`, of two integers."""
        top = Num(Fraction(self.take().text))
        self.take("/")
        return Product((top, inverse(Num(Fraction(self.take().text)))))

    def power(self) -> Tree:
        base = self.atom()
        while True:
            if self.accept("^"):
                base = Power(base, self.exponent())
            elif self.accept("!"):
                if self.peek().text == "!":
                    raise Unreadable("a double factorial")
                base = Call("factorial", (base,))
            elif self.accept(r"\degree"):
                base = Product((base, DEGREE))
                if self.peek().kind == "num" and self.peek(1).text == "'":  # 7 degrees 30 minutes
                    degrees = base.parts[0]
                    if not isinstance(degrees, Num):
                        raise Unreadable("minutes")
                    minutes = _to_fraction(self.take().text) / 60
                    self.take("'")
                    base = Product((Num(degrees.value + minutes), DEGREE))
            else:
                return base

    def exponent(self) -> Tree:
        self.deeper()
        negative = self.accept("-")
        tree = self.atom()
        if self.accept("^"):
            tree = Power(tree, self.exponent())
        self.depth -= 1
        return minus(tree) if negative else tree

    def group(self) -> Tree:
        """A macro's argument: a brace group, or one token (of digits, the first: `\\frac12`)."""
        token = self.peek()
        if token.kind == "num" and len(token.text) > 1:
            if not token.text.isdigit():
                raise Unreadable(token.text)
            self.tokens[self.at : self.at + 1] = [
                Token("num", token.text[0]),
                Token("num", token.text[1:]),
            ]
        return self.atom()

    def atom(self) -> Tree:
        self.deeper()
        tree = self.atom_at(self.take())
        self.depth -= 1
        return tree

    def atom_at(self, token: Token) -> Tree:
        if token.kind == "num":
            return Num(_to_fraction(token.text))
        if token.kind == "word":
            return self.letters_of(token)
        if token.text in _PAIRS:
            return self.enclosed(token.text)
        if token.kind != "cmd":
            raise Unreadable(token.text)
        name = token.text[1:]
        if name == "frac":
            top, bottom = self.group(), self.group()
            return Product((top, inverse(bottom)))
        if name == "binom":
            return Call("binomial", (self.group(), self.group()))
        if name == "sqrt":
            degree = self.atom() if self.peek().text == "[" else TWO
            plain = self.peek().kind == "num"  # nobody means \sqrt{1}2 by \sqrt12
            return Call("root", (self.atom() if plain else self.group(), degree))
        if name == "pi":
            return PI
        if name in FUNCTIONS:
            return self.function(name)
        if name in AGGREGATES:
            return self.aggregate(name)
        if name in _LETTERS:
            return self.subscripted(name)
        if name == "mathbf" and self.peek(1).kind != "word":
            return self.atom()  # \mathbf{12}
        if name in _MARKS:
            return self.subscripted(f"{name}:{self.raw_group()}")
        raise Unreadable(token.text)

    def enclosed(self, opening: str) -> Tree:
        outer, self.in_bars = self.in_bars, opening == "|"
        inner = self.expression()
        self.in_bars = outer
        self.take(_PAIRS[opening])
        return Call(_ROUNDED[opening], (inner,)) if opening in _ROUNDED else inner

    def letters_of(self, token: Token) -> Tree:
        """One letter is a variable, adjacent capitals are one name, few others a product."""
        word = token.text
        if word == "e" and self.peek().text != "_":
            return E
        is_call = self.peek().text == "(" and word[-1] in self.calls
        if len(word) == 1 or (word.isupper() and not is_call):
            variable = self.subscripted(word)
            if word not in self.calls or not self.is_applied():
                return variable
            inverse_mark = self.raw_group() if self.accept("^") else ""  # f^{-1}(x)
            self.take("(")
            return Call(f"function {variable.name}{inverse_mark}", tuple(self.arguments(")")))
        if len(word) > 4 or word.lower() in _ENGLISH:
            raise Unreadable(word)
        self.tokens[self.at - 1 : self.at] = [Token("word", letter) for letter in word]
        self.at -= 1
        return self.atom()

    def is_applied(self) -> bool:
        """Whether brackets follow, or an inverse and brackets."""
        following = joined(self.tokens[self.at : self.at + 6])
        return following.startswith("(") or following.startswith("^{-1}(")

    def arguments(self, closing: str) -> list[Tree]:
        arguments = [self.expression()]
        while self.accept(","):
            arguments.append(self.expression())
        self.take(closing)
        return arguments

    def subscripted(self, name: str) -> Var:
        while self.peek().text == "'":
            name += self.take().text
        if self.peek().text == "_":
            name += self.take().text + self.raw_group()
        return Var(name)

    def raw_group(self) -> str:
        """A group or token as written: subscripts and \\overline{AB} name things."""
        token = self.take()
        if token.text != "{":
            return token.text
        pieces = []
        while self.peek().text != "}":
            if self.peek().kind == "op" and self.peek().text not in ",'+-|":
                raise Unreadable(self.peek().text)
            pieces.append(self.take().text.lstrip("\\"))
        self.take("}")
        text = "".join(pieces)
        return "+".join(sorted(text.split("+"))) if set(text) <= _SUM else text  # k+1 is 1+k

    def function(self, name: str) -> Tree:
        base = None
        if name == "log" and self.accept("_"):
            # The base of a logarithm: `\\log_28` is that of 8, but `\\log_10 100` that of 100.
            has_argument = self.starts_factor(self.peek(1)) and self.peek(1).spaced
            base = self.atom() if has_argument else self.group()
        power = self.exponent() if self.accept("^") else None
        argument = self.argument()
        if power == MINUS_ONE:
            if "arc" + name not in FUNCTIONS:
                raise Unreadable(f"inverse of {name}")
            return Call("arc" + name, (argument,))
        call = Call(name, (argument,) if base is None else (argument, base))
        return call if power is None else Power(call, power)

    def aggregate(self, name: str) -> Tree:
        """`\\gcd(12, 18)` and `\\max\\{3, 5\\}`."""
        closing = {"(": ")", r"\{": r"\}"}.get(self.take().text, "")
        return Call(name, tuple(self.arguments(closing)))

    def argument(self) -> Tree:
        """What a function applies to: a group, or the product of plain factors after it."""
        if self.peek().text in _PAIRS:
            return self.atom()
        factors: list[Tree] = []
        while not factors or self.starts_factor(self.peek()):
            token = self.peek()
            if factors and (token.text in _PAIRS or token.text[1:] in FUNCTIONS):
                break
            factors.append(self.power())
        return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _items(value: Value) -> tuple[Value, ...]:
    """The items of a list, what is several in itself (\\pm) as so many."""
    if not isinstance(value, Several) or value.kind == "set":
        return (value,)
    return tuple(one for item in value.items for one in _items(item))


def _multiplied(factor: Tree, value: Value) -> Value:
    """A number of a vector, multiplied; plain numbers as one."""
    if not isinstance(value, Number) or value.unit or value.percent:
        raise Unreadable("no number")
    tree = Product((factor, value.tree))
    has_sum = any(isinstance(part, Sum) for part in subtrees(tree))
    short = simplified(tree)
    return Number(short if isinstance(short, Num) and not has_sum else tree)


def _without_degrees(tree: Tree) -> Tree:
    if isinstance(tree, Product) and tree.parts[-1] == DEGREE and len(tree.parts) == 2:
        return _without_degrees(tree.parts[0])
    return rebuilt(tree, tuple(map(_without_degrees, children(tree)))) if tree != DEGREE else ONE


_BOUND = re.compile(
    r"\\(?:sum|prod|bigcup|bigcap)(?:\^\{?[^{}]*\}?)?_\{?([A-Za-z])(?:=|\\in)"
    r"|\\int.*[^A-Za-z\\]d([A-Za-z])\b"
)


def _with_one_letter(tokens: list[Token]) -> list[Token]:
    """The tokens with one name for the letter that a sum or an integral binds."""
    if not (found := _BOUND.search(joined(tokens))):
        return tokens
    letter = found[1] or found[2]
    words = {letter: "\u25a1", f"d{letter}": "d\u25a1"}
    return [replace(token, text=words.get(token.text, token.text)) for token in tokens]


_INTRODUCTION = re.compile(
    r"exactly|only|just|about|approximately|roughly|around|.*\b(?:is|are)"
    r"|(?:the )?(?:remainder|quotient|sum|difference|product|probability|perimeter|radius|diameter"
    r"|distance|speed|cost|price|profit|average|mean|median|mode|slope)"
    r"|the (?:\w+ ){0,2}(?:answer|value|point|number|solution|result|total|area|volume|length"
    r"|vector|set|interval|function|equation|range|domain|angle)s?",
    re.IGNORECASE,
)
# Words that deny or blur the value after them: `not 5`, `at least 5`.
_BLURRING = re.compile(
    r"\b(?:cannot|but|anything|everything|negative|root|square|cube|reciprocal|opposite|inverse|half"
    r"|double|twice|triple|impossible|unless|not?|never|least|most|more|less|n?either|maybe|if"
    r"|than|between|except|without|or)\b"
)
_BASED = re.compile(
    r"(-?)[({]?([0-9A-Fa-f]*\d[0-9A-Fa-f]*(?:\.\d+)?|[A-F]+)[)}]?(?:_\{?(-?\w+)\}?|\(?base(-?\w+)\)?)",
    re.ASCII,
)
_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?([ap])\.?m\.?", re.IGNORECASE)
_CHOICE = re.compile(r"(?:\(([A-Ka-k])\)|([A-K])[).:]|([a-k])\)$)")
_OPTION = re.compile(r"(?:option|choice|answer)\s*\(?([A-K])\)?", re.IGNORECASE)
_NO_SOLUTION = re.compile(r"(?:there (?:is|are) )?no (?:real )?solutions?(?: exists?)?")
_ALL_REALS = {"all real numbers", "all reals", "all real values"}
_REASON = re.compile(r"(yes|no)\s?[,.;:](.*)", re.IGNORECASE)
_OPPOSITE = {
    "yes": re.compile(r"\bno\b(?! \w)|\b(?:or|maybe|actually) not?\b"),
    "no": re.compile(r"\byes\b"),
}


def _whole(text: str) -> Value | None:
    """What a text is that has a form of its own: digits in a base, a time, words for a set."""
    squeezed = text.replace(" ", "")
    if match := _BASED.fullmatch(squeezed):
        base = str(read_number_words(match[3] or match[4]) or match[3] or match[4])
        if base.lstrip("-").isdecimal() and not (match[2].isalpha() and int(base) < 11):
            return Based(match[1] + match[2].upper(), base)
    if match := _TIME.fullmatch(squeezed):
        hour = int(match[1]) % 12 + (12 if match[3] in "pP" else 0)
        return Words(f"{hour}:{match[2] or '00'} o'clock")
    if match := _REASON.fullmatch(text.lower()):
        return None if _OPPOSITE[match[1]].search(match[2]) else Words(match[1])
    if _NO_SOLUTION.fullmatch(text.lower()):
        return values.EMPTY
    if text.lower() in _ALL_REALS:
        return values.REALS
    if match := _OPTION.fullmatch(text):
        return Option(match[1].upper())
    return None


def _split_choice(tokens: list[Token]) -> tuple[str, list[Token]]:
    """(letter, the tokens of its value) of `(C) 12`, `C. 12` and `C)`; ("", []) for no option."""
    if not (match := _CHOICE.match(joined(tokens[:3]))):
        return "", []
    letter, rest = match[match.lastindex or 0], tokens[3 if match[1] else 2 :]
    if not rest:
        return letter, []
    # (c) may be a variable
    is_factor = not rest[0].spaced and (rest[0].kind == "op" or letter.islower())
    is_letters = rest[0].kind == "word" and len(rest[0].text) < 3
    if is_letters or is_factor or any(re.fullmatch("[A-K]", token.text) for token in rest):
        return "", []
    return letter.upper(), rest


def _spelled_minus(token: Token) -> Token:
    if token.is_word and token.text.lower() in ("minus", "negative"):
        return Token("op", "-", token.spaced)
    return token


def parse(text: str, calls: str, letters: frozenset[str], thousands: bool) -> Value:
    """The value that a text is; see `_Parser` for the arguments."""
    tokens = list(map(_spelled_minus, tokenise(normalise(text), thousands)))
    plain = joined(tokens)
    if (value := _whole(plain)) is not None:
        return value
    letter, rest = _split_choice(tokens)
    if letter:
        inner = parse_tokens(rest, calls, letters) if rest else None
        if not isinstance(inner, Several):
            return Option(letter, inner)
    return parse_tokens(tokens, calls, letters)


def parse_tokens(tokens: list[Token], calls: str, letters: frozenset[str]) -> Value:
    """The value that tokens are; `Opaque` where they are outside the grammar."""
    if tokens and tokens[0].text == "]" and tokens[-1].text in ("[", "]"):  # ]a, b[
        closing = ")" if tokens[-1].text == "[" else "]"
        tokens = [Token("op", "("), *tokens[1:-1], Token("op", closing)]
    try:
        return _Parser(tokens, calls, letters).answer()
    except Unreadable:
        return Opaque(joined(tokens))
