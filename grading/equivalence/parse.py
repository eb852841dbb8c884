"""Parse: the tokens of one scalar, with its unit, base, ratio or words, as a value.

What is no plain algebra raises `Unreadable`, rather than be guessed: it can still equal as text.
"""

import re
import string
from collections.abc import Callable
from fractions import Fraction

from grading.equivalence.tokens import (
    AGGREGATES,
    FUNCTIONS,
    MAX_DEPTH,
    Token,
    Unreadable,
    canonical,
    read_number_words,
    split,
    word_set,
)
from grading.equivalence.values import (
    INFINITIES,
    INVERSE,
    MINUS_ONE,
    Scalar,
    Sequence,
    Tree,
    Value,
    Words,
    ratio,
    split_unit,
)

# Greek letters, as variables.
_LETTERS = word_set("""
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma
    tau phi chi psi omega Delta Omega Sigma Gamma Theta Lambda Phi Psi ell
""")
# Words that are no products of letters: 0 (or 1) is not 0.
_ENGLISH = word_set("""
    or and not is it to of in if no by be so we do go us up my me he as are for the was but can
    may one two six ten four five nine zero half both else none any all yes also even odd then
    than with from mod plus pct
""")
# Commands that make a name of what is in their braces.
_MARKS = word_set("overline vec hat mathbf angle triangle widehat mathcal tilde")
# Commands that a factor may start with.
_STARTS = word_set("frac sqrt binom pi lfloor lceil") | FUNCTIONS | AGGREGATES | _LETTERS | _MARKS
# C_{10}^{3}, as its tokens with spaces between.
_COMBINATIONS = re.compile(r"_ (?:\{ (\d+) \}|(\d+)) \^ (?:\{ (\d+) \}|(\d+))(?!\S)")
_SUM = {*"+0123456789", *string.ascii_letters}
_PAIRS = {"(": ")", "[": "]", "{": "}", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_REPEATING_PART = re.compile(r"\\(?:overline|dot)\s*\{?|\(")


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


def _keep_order(factors: list[Tree]) -> list[Tree]:
    """A product of capitals with an inverse is one of matrices: A^{-1}B becomes one name."""

    def is_capital(tree: Tree) -> bool:
        return tree[0] == "var" and tree[1].isupper()

    inverses = [f for f in factors if f[0] == "pow" and is_capital(f[1]) and f[2] == INVERSE]
    matrices = [f for f in factors if is_capital(f) or f in inverses]
    if not inverses or len(matrices) == 1:
        return factors
    return [*(f for f in factors if f not in matrices), ("var", repr(matrices))]


class _Parser:
    """Recursive descent over tokens; / and implicit products bind alike, from left to right."""

    def __init__(self, tokens: list[Token]):
        self.tokens = list(tokens)
        self.at = self.depth = 0
        self.in_bars = False  # inside |…|, where the next bar closes

    def peek(self, ahead: int = 0) -> Token:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else Token("end", "")

    def take(self, text: str | None = None) -> Token:
        token = self.peek()
        if token.kind == "end" or (text is not None and token.text != text):
            raise Unreadable(token.text)
        self.at += 1
        return token

    def accept(self, *texts: str) -> bool:
        """Take the next token if it is one of these."""
        if self.peek().text not in texts:
            return False
        self.at += 1
        return True

    def expression(self) -> Tree:
        terms = [self.signed(self.term)]
        while self.peek().text in ("+", "-"):
            if self.peek().text == "+" and self.peek(1).text == "-":
                self.at += 1  # 2+-3
            terms.append(self.signed(self.term))
        tree = terms[0] if len(terms) == 1 else ("add", *terms)
        if self.accept(r"\over"):
            tree = ("mul", tree, ("pow", self.expression(), MINUS_ONE))
        elif self.accept(r"\choose"):
            tree = ("call", "binomial", tree, self.expression())
        return tree

    def signed(self, part: Callable[[], Tree]) -> Tree:
        """A term or factor, with a sign before it or none; two signs are `Unreadable`."""
        is_negative = False
        if self.peek().text in ("+", "-"):
            is_negative = self.take().text == "-"
        tree = part()
        return ("mul", MINUS_ONE, tree) if is_negative else tree

    def term(self) -> Tree:
        factors = [self.mixed_number() or self.power()]
        while True:
            if self.accept("*", r"\cdot", r"\times"):
                factors.append(self.signed(self.power))
            elif self.accept("/", r"\div"):
                factors.append(("pow", self.signed(self.power), MINUS_ONE))
            elif self.starts_factor(self.peek()):
                if self.is_digit_run():
                    raise Unreadable("two numbers side by side")
                factors.append(self.power())
            else:
                factors = _keep_order(factors)
                return factors[0] if len(factors) == 1 else ("mul", *factors)

    def is_digit_run(self) -> bool:
        """Whether a number follows a number, either perhaps in braces: `{1}22` is printed 122."""
        before = self.tokens[max(0, self.at - 4) : self.at]
        kinds = [token.kind if token.kind == "num" else token.text for token in before]
        is_group = kinds[-3:] == ["{", "num", "}"] and kinds[:-3] not in (["^"], ["_"], ["}"])
        is_group = is_group and not (len(kinds) > 3 and kinds[0].startswith("\\"))
        follows = self.peek().kind == "num" or (
            self.peek().text == "{" and self.peek(1).kind == "num"
        )
        return follows and (kinds[-1:] == ["num"] or is_group)

    def starts_factor(self, token: Token) -> bool:
        if token.kind in ("num", "word", "call"):
            return True
        if token.kind == "cmd":
            return token.text[1:] in _STARTS
        return token.text in ("(", "[", "{") or (token.text == "|" and not self.in_bars)

    def mixed_number(self) -> Tree | None:
        """`1\\frac{1}{2}` and `1 1/2`: an integer before a fraction of integers is a sum."""
        first, second = self.peek(), self.peek(1)
        if first.kind != "num" or not first.text.isdigit():
            return None
        if second.text == r"\frac":
            start = self.at
            self.at += 1
            fraction = self.base()
            _, top, inverse = fraction
            is_integer = top[0] == "num" and top[1].denominator == 1
            if is_integer and inverse[0] == "pow" and inverse[1][0] == "num":
                if top[1] >= inverse[1][1] or self.peek().text in ("^", "!"):
                    raise Unreadable("neither a mixed number nor a product")
                return ("add", ("num", _to_fraction(first.text)), fraction)
            self.at = start
        elif second.kind == "num" and second.spaced and second.text.isdigit():
            slash, bottom = self.peek(2), self.peek(3)
            if slash.text == "/" and bottom.kind == "num" and bottom.text.isdigit():
                self.at += 4
                if int(bottom.text) <= int(second.text):
                    raise Unreadable("an improper fraction beside a number")
                top, inverse = ("num", Fraction(second.text)), ("num", Fraction(bottom.text))
                fraction = ("mul", top, ("pow", inverse, MINUS_ONE))
                return ("add", ("num", Fraction(first.text)), fraction)
        return None

    def power(self) -> Tree:
        base = self.base()
        while True:
            if self.accept("^"):
                base = ("pow", base, self.exponent())
            elif self.accept("!"):
                if self.peek().text == "!":
                    raise Unreadable("a double factorial")
                base = ("call", "factorial", base)
            elif self.accept(r"\degree"):
                base = ("mul", base, ("const", "degree"))
            else:
                return base

    def exponent(self) -> Tree:
        negative = self.accept("-")
        tree = self.base()
        if self.accept("^"):
            tree = ("pow", tree, self.exponent())
        return ("mul", MINUS_ONE, tree) if negative else tree

    def group(self) -> Tree:
        """A macro's argument: a brace group, or one token (of digits, the first: `\\frac12`)."""
        token = self.peek()
        if token.kind == "num" and len(token.text) > 1:
            if not token.text.isdigit():
                raise Unreadable(token.text)
            first, rest = Token("num", token.text[0]), Token("num", token.text[1:])
            self.tokens[self.at : self.at + 1] = [first, rest]
        return self.base()

    def base(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        tree = self.base_at(self.take())
        self.depth -= 1
        return tree

    def base_at(self, token: Token) -> Tree:
        if token.kind == "num":
            return ("num", _to_fraction(token.text))
        if token.kind == "word":
            return self.letters(token)
        if token.kind == "call":
            return ("call", "function " + token.text, self.base())  # P(2x) is not 2P(x)
        if token.text in _PAIRS:
            return self.enclosed(token.text)
        if token.kind != "cmd":
            raise Unreadable(token.text)
        name = token.text[1:]
        if name == "frac":
            top, bottom = self.group(), self.group()
            return ("mul", top, ("pow", bottom, MINUS_ONE))
        if name == "binom":
            return ("call", "binomial", self.group(), self.group())
        if name == "sqrt":
            degree = self.base() if self.peek().text == "[" else ("num", Fraction(2))
            plain = self.peek().kind == "num"  # nobody means \sqrt{1}2 by \sqrt12
            return ("call", "root", self.base() if plain else self.group(), degree)
        if name == "pi":
            return ("const", "pi")
        if name in FUNCTIONS:
            return self.function(name)
        if name in AGGREGATES:
            return self.aggregate(name)
        if name in _LETTERS:
            return self.subscripted(name)
        if name in _MARKS:
            return self.subscripted(f"{name}:{self.raw_group()}")
        raise Unreadable(token.text)

    def enclosed(self, opening: str) -> Tree:
        outer, self.in_bars = self.in_bars, opening == "|"
        inner = self.expression()
        self.in_bars = outer
        self.take(_PAIRS[opening])
        calls = {"|": "abs", r"\lfloor": "floor", r"\lceil": "ceiling"}
        return ("call", calls[opening], inner) if opening in calls else inner

    def letters(self, token: Token) -> Tree:
        """One letter is a variable, adjacent capitals are one name, few others a product."""
        word = token.text
        if word == "e" and self.peek().text != "_":
            return ("const", "e")
        if word == "C" and (binomial := self.combinations()):
            return binomial
        if len(word) == 1 or word.isupper():
            return self.subscripted(word)
        if len(word) > 4 or word.lower() in _ENGLISH:
            raise Unreadable(word)
        self.tokens[self.at - 1 : self.at] = [Token("word", letter) for letter in word]
        self.at -= 1
        return self.base()

    def combinations(self) -> Tree | None:
        """`C_{10}^{3}`: 10 choose 3."""
        texts = " ".join(token.text for token in self.tokens[self.at : self.at + 8])
        if not (match := _COMBINATIONS.match(texts)):
            return None
        self.at += len(match[0].split())
        n, k = (Fraction(number) for number in match.groups() if number)
        if k > n:
            raise Unreadable("neither a power nor a number of combinations")
        return ("call", "binomial", ("num", n), ("num", k))

    def subscripted(self, name: str) -> Tree:
        while self.peek().text == "'":
            name += self.take().text
        if self.peek().text == "_":
            name += self.take().text + self.raw_group()
        return ("var", name)

    def raw_group(self) -> str:
        """A group or token as written: subscripts and \\overline{AB} name things."""
        token = self.take()
        if token.text != "{":
            return token.text
        pieces = []
        while self.peek().text != "}":
            if self.peek().kind == "op" and self.peek().text not in ",'+-":
                raise Unreadable(self.peek().text)
            pieces.append(self.take().text.lstrip("\\"))
        self.take("}")
        text = "".join(pieces)
        return "+".join(sorted(text.split("+"))) if set(text) <= _SUM else text  # k+1 is 1+k

    def function(self, name: str) -> Tree:
        base = self.subscript() if name == "log" and self.accept("_") else None
        power = self.exponent() if self.accept("^") else None
        argument = self.argument()
        if power == INVERSE:
            if "arc" + name not in FUNCTIONS:
                raise Unreadable(f"inverse of {name}")
            return ("call", "arc" + name, argument)
        call = ("call", name, argument) if base is None else ("call", "log", argument, base)
        return call if power is None else ("pow", call, power)

    def subscript(self) -> Tree:
        """The base of a logarithm: `\\log_28` is that of 8, but `\\log_10 100` that of 100."""
        has_argument = self.starts_factor(self.peek(1)) and self.peek(1).spaced
        return self.base() if has_argument else self.group()

    def aggregate(self, name: str) -> Tree:
        """`\\gcd(12, 18)` and `\\max\\{3, 5\\}`."""
        closing = {"(": ")", r"\{": r"\}"}.get(self.take().text, "")
        arguments = [self.expression()]
        while self.accept(","):
            arguments.append(self.expression())
        self.take(closing)
        return ("call", name, *arguments)

    def argument(self) -> Tree:
        """What a function applies to: a group, or the product of plain factors after it."""
        if self.peek().text in _PAIRS:
            return self.base()
        factors = []
        while not factors or self.starts_factor(self.peek()):
            token = self.peek()
            if factors and (token.text in _PAIRS or token.text[1:] in FUNCTIONS):
                break
            factors.append(self.power())
        return factors[0] if len(factors) == 1 else ("mul", *factors)


def parse(tokens: list[Token]) -> Tree:
    """The tokens of one scalar as a tree; `Unreadable` unless every token has its place."""
    parser = _Parser(tokens)
    tree = parser.expression()
    if parser.peek().kind != "end":
        raise Unreadable(parser.peek().text)
    return tree


_CONJUNCTIONS = {"and", "or", "或", "和", "или", "и", "oder", "und", "ou", "et"}


def is_conjunction(token: Token) -> bool:
    """Whether a token is "and" or "or"."""
    is_word = token.kind in ("text", "word")
    return is_word and token.text.strip(" ,").lower() in _CONJUNCTIONS


def read_words(tokens: list[Token]) -> Value | None:
    """Words, adjacent letters, or a number in words; None for anything else."""
    is_date = tokens[0].kind != "num" and len(tokens[0].text) > 2  # June 20
    kinds = ("word", "text", "num") if is_date else ("word", "text")
    if not all(t.kind in kinds or t.text in ("'", "-", ".", "!", ":") for t in tokens):
        return None
    is_variable = len(tokens) == 1 and len(tokens[0].text) == 1
    if is_variable or not any(t.kind in ("word", "text") for t in tokens):
        return None
    if any(is_conjunction(t) or t.text == "-" for t in tokens) and len(tokens) > 1:
        return None
    text = canonical(tokens)
    if (number := read_number_words(text)) is not None:
        return Scalar(text, ("num", number))
    try:
        tree = parse(tokens)
    except Unreadable:
        tree = None
    return Words(text, tree)


_BASED = re.compile(
    r"(-?)[({]?([0-9A-Za-f]*\d[0-9A-Za-f]*(?:\.\d+)?|[A-F]+)[)}]?(?:_\{?(-?\w+)\}?|\(?base(-?\w+)\)?)",
    re.ASCII,
)


def read_based(tokens: list[Token]) -> Value | None:
    """`1011_2`, `(3B)_{16}`, `12 base 5`; None for anything else."""
    text = canonical(tokens).replace(" ", "")
    if not (match := _BASED.fullmatch(text)):
        return None
    sign, digits, base = match[1], match[2], match[3] or match[4]
    base = str(read_number_words(base) or base)
    if not base.lstrip("-").isdecimal() or (digits.isalpha() and int(base) < 11):
        return None
    return Sequence(text, "based", (Words(sign + digits.upper()),), (base,))


_TO = {("to", "text"), ("to", "word")}


def read_ratio(tokens: list[Token]) -> Value | None:
    """`2:3`, `2 to 3`, or a time of day as words; None for anything else."""
    pieces, separators = split(tokens, lambda t: t.text == ":" or (t.text, t.kind) in _TO)
    if not separators or not all(pieces):
        return None
    if re.fullmatch(r"\d{1,2}(?::\d{1,2})+\D+", canonical(tokens)):
        return Words(canonical(tokens))  # 2:30 pm
    items = tuple(map(read_scalar, pieces))
    if not all(isinstance(item, Scalar) for item in items):
        return None
    return Sequence(canonical(tokens), "ratio", items)


_, _DEGREE, _ = split_unit([Token("num", "1"), Token("cmd", r"\degree")])
_ANGLE = re.compile(r"(\d+)\\degree(\d+)'(?:(\d+)'')?")


def _read_angle(text: str, tokens: list[Token]) -> Value | None:
    """`45^\\circ` and `7^\\circ 30'` as a number of degrees; `\\sin 30^\\circ` is no angle."""
    if match := _ANGLE.fullmatch(text):
        whole, minutes, seconds = (int(part or 0) for part in match.groups())
        degrees = whole + Fraction(minutes, 60) + Fraction(seconds, 3600)
        return Scalar(text, ("num", degrees), _DEGREE)
    is_function = any(token.text[1:] in FUNCTIONS for token in tokens)
    if tokens[-1].text != r"\degree" or is_function:
        return None
    try:
        return Scalar(text, parse([t for t in tokens if t.text != r"\degree"]), _DEGREE)
    except Unreadable:
        return None


def read_compound(tokens: list[Token]) -> Scalar | None:
    """`5 feet 6 inches`: measured parts that fall in size, each below one of the unit before."""
    if not tokens or tokens[0].kind != "num":
        return None
    pieces: list[list[Token]] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        is_first = not before or before.kind in ("word", "text") or before.text == ","
        if is_first and token.kind == "num":
            pieces.append([])
        if token.text != "," and not is_conjunction(token):
            pieces[-1].append(token)
    parts = [split_unit(piece) for piece in pieces] if len(pieces) > 1 else []
    if not parts or any(not unit or unit.things or scale != 1 for _, unit, scale in parts):
        return None
    first, total, above = parts[0][1], Fraction(0), None
    for value, unit, _ in parts:
        size = ratio(unit, first) if unit.dimensions else None
        if len(value) > 1 or not size or not value[0].text.replace(".", "", 1).isdecimal():
            return None
        part = _to_fraction(value[0].text) * size
        if above and part >= above:
            return None
        total, above = total + part, size
    return Scalar(canonical(tokens), ("num", total), first)


def _is_one_term(tokens: list[Token]) -> bool:
    """Whether a sign behind the tokens is about all of them: no sum, word or option."""
    terms, _ = split(tokens, lambda token: token.text in "+-")
    is_name = all(token.kind in ("word", "text") or token.text in "()" for token in tokens)
    return not is_name and len([term for term in terms if term]) == 1


_PERCENT = ("%", "pct", "percent", "percentage", "per cent")
SIGNS = {r"\pm": "+-", r"\mp": "-+"}


def with_sign(tokens: list[Token], at: int) -> list[Token]:
    """The tokens with the upper (0) or lower (1) of each double sign."""
    return [Token("op", SIGNS[t.text][at], t.spaced) if t.text in SIGNS else t for t in tokens]


def _read_measured_sum(tokens: list[Token]) -> Scalar | None:
    """`8 cm + 12 cm`, `24% + 9%`: terms of one unit; None for anything else."""
    pieces, signs = split(tokens, lambda token: token.text in ("+", "-"))
    if not signs or not all(pieces):
        return None
    terms = [read_scalar(piece) for piece in pieces]
    first = terms[0]
    if not isinstance(first, Scalar) or not (first.unit or first.percent):
        return None
    trees = [first.tree]
    for sign, term in zip(signs, terms[1:], strict=True):
        if not isinstance(term, Scalar) or (term.unit, term.percent) != (first.unit, first.percent):
            return None
        trees.append(("mul", MINUS_ONE, term.tree) if sign == "-" else term.tree)
    return Scalar(canonical(tokens), ("add", *trees), first.unit, first.percent)


def read_scalar(tokens: list[Token]) -> Value | None:
    """A number or expression with its unit, or the two of a \\pm; None for anything else."""
    text = canonical(tokens)
    if text in INFINITIES:
        return INFINITIES[text]
    if any(token.text in SIGNS for token in tokens):
        both = [read_scalar(with_sign(tokens, at)) for at in (0, 1)]
        return Sequence(text, "list", tuple(both)) if all(both) else None
    if angle := _read_angle(text, tokens):
        return angle
    try:
        return Scalar(text, parse(tokens))
    except Unreadable:
        pass
    if summed := _read_measured_sum(tokens):
        return summed
    percent = tokens[-1].text.lower() in _PERCENT
    if percent and not _is_one_term(tokens[:-1]):
        return None
    value, unit, scale = split_unit(tokens[:-1] if percent else tokens)
    if percent and unit:
        return None
    try:
        tree = parse(value)
    except Unreadable:
        return read_compound(tokens)
    if scale != 1:
        tree = ("mul", tree, ("num", Fraction(scale)))
    return Scalar(text, tree, unit, percent, is_scaled=scale != 1)
