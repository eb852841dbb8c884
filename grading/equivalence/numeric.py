"""Numeric identity: whether two expression trees are the same number, or the same function.

Rationals are compared exactly. Everything else is compared with mpmath, first to 50 digits and,
where the two agree, to 300. Expressions with variables are compared at fixed pseudo-random rational
points (Schwartz, 1980: two different polynomials of degree d agree at a random point out of N with
probability at most d / N). A value past `MAX_BITS` raises `TooLarge` before it is computed. Roots,
powers and logarithms follow the school's real conventions unless the imaginary unit occurs.
"""

import contextlib
import functools
import math
import random
import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from grading.equivalence.tokens import TooLarge
from grading.equivalence.values import MINUS_ONE, ONE, Tree, at, subtrees, variables

MAX_BITS = 50_000  # of an exact integer: 2024^{4046} is a real gold, 9^{99999} is an attack
MAX_FACTORIAL = 3_000
MAX_MAGNITUDE = 8_305  # bits before and after the point of what is no fraction: 10^2500
MAX_GAMMA_DIGITS = 300  # the gamma function takes seconds at a few thousand
MOST_DIGITS = 2_100  # of a logarithm or sine, which take milliseconds there; roots do not
MAX_ARGUMENT = 400  # bits of an angle, of which every one costs a digit of pi
MAX_WORK = 1_000_000  # of all comparisons for one grade, in units of about a microsecond


class Undefined(ArithmeticError):
    """The expression has no (real) value at this point."""


_local = threading.local()


def context() -> Any:
    """This thread's mpmath context: precision is state, and rewards may run in threads."""
    if not hasattr(_local, "mp"):
        import mpmath  # late: integers and fractions never need it

        _local.mp = mpmath.MPContext()
    return _local.mp


def _refuse(is_too_large: bool, what: str) -> None:
    if is_too_large:
        raise TooLarge(f"{what} too large, small or long to compute with")


def _work() -> int | None:
    """The work so far in this thread; None where no limit is set."""
    return getattr(_local, "work", None)


@contextlib.contextmanager
def limited_work() -> Iterator[None]:
    """One limit of work for all comparisons within, past which they raise TooLarge.

    Inside another only that one counts. Steps are counted and no time is taken, so that the same
    texts always end alike.
    """
    if _work() is not None:
        yield
        return
    _local.work = 0
    try:
        yield
    finally:
        _local.work = None


def _check_work() -> None:
    _refuse((_work() or 0) > MAX_WORK, "a comparison")


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


class _Evaluation:
    """One evaluation at one point and precision."""

    def __init__(self, point: dict[str, Fraction], digits: int, is_complex: bool):
        self.point, self.digits, self.is_complex = point, digits, is_complex
        self.scale = 0  # largest magnitude on the way; rounding errors are relative to it
        self.bits = 0  # of the longest number on the way
        self.num_steps = 0

    @functools.cached_property
    def mp(self) -> Any:
        mp = context()
        mp.dps = self.digits
        return mp

    def to_mp(self, value: Any) -> Any:
        if isinstance(value, Fraction):
            value = self.mp.mpf(value.numerator) / value.denominator
            _refuse(value and abs(self.mp.mag(value)) > MAX_MAGNITUDE, "a number")
        return value

    def _is_tiny(self, value: Any) -> bool:
        value = self.to_mp(value)
        return bool(value == 0 or self.mp.mag(value) < -MAX_MAGNITUDE)

    def rounding(self) -> Any:
        """The largest error of a value of magnitude 1."""
        return self.mp.mpf(10) ** (5 - self.digits)

    def keep(self, value: Any, *factors: Any) -> Any:
        """Check one intermediate value, and remember its magnitude.

        A product of factors that is tiny although none of them is has no digits left.
        """
        if isinstance(value, Fraction):
            _refuse(_bits(value) > MAX_BITS, "a number")
            self.bits = max(self.bits, _bits(value))
            return value
        is_unreal = not self.is_complex and isinstance(value, self.mp.mpc)
        if is_unreal or not self.mp.isfinite(value):
            raise Undefined
        is_too_small = factors and self._is_tiny(value) and not any(map(self._is_tiny, factors))
        magnitude = self.mp.mag(value) if value else 0
        _refuse(is_too_small or magnitude > MAX_MAGNITUDE, "a number")
        self.bits = max(self.bits, magnitude)
        self.scale = max(self.scale, abs(value))
        return value

    def value(self, tree: Tree) -> Any:
        """A Fraction where the value is rational by exact steps, else an mpmath number."""
        self.num_steps += 1
        kind = tree[0]
        if kind == "num":
            return self.keep(tree[1])
        if kind == "var":
            if self.is_complex and tree[1] == "i":
                return self.mp.mpc(0, 1)
            return self.point[tree[1]]
        if kind == "const":
            return self.keep(+getattr(self.mp, tree[1]))  # pi, e, degree
        if kind == "call":
            return self.keep(self.call(tree[1], [self.value(part) for part in tree[2:]]))
        values = [self.value(part) for part in tree[1:]]
        if kind == "pow":
            return self.keep(self.power(*values), values[0])
        total = values[0]
        for value in values[1:]:
            if not (isinstance(total, Fraction) and isinstance(value, Fraction)):
                total, value = self.to_mp(total), self.to_mp(value)
            if kind == "add":
                total = self.keep(total + value)
            else:
                total = self.keep(total * value, total, value)
        return total

    def power(self, base: Any, exponent: Any) -> Any:
        if base == 0:
            if isinstance(exponent, Fraction) and exponent > 0:
                return Fraction(0)
            raise Undefined
        is_positive = isinstance(exponent, Fraction) and exponent > 0
        is_rounded = not isinstance(base, Fraction) and not is_positive
        if is_rounded and abs(base) < self.scale * self.rounding():
            raise Undefined  # 1 / sin(pi): zero but for rounding
        if isinstance(exponent, Fraction) and exponent.denominator == 1:
            exponent = int(exponent)
            if isinstance(base, Fraction):
                if abs(base) == 1:
                    return base ** (exponent % 2)
                _refuse(_bits(base) * abs(exponent) > 2 * MAX_BITS, "a power")
                return base**exponent
            magnitude = abs(self.mp.mag(base) * exponent)
            _refuse(abs(exponent) > MAX_BITS or magnitude > 4 * MAX_BITS, "a power")
            return base**exponent
        if not self.is_complex and base < 0:
            # (-8)^{1/3} is -2 in school, and has no real value for an even root
            if not isinstance(exponent, Fraction) or exponent.denominator % 2 == 0:
                raise Undefined
            sign = -1 if exponent.numerator % 2 else 1
            return sign * self.power(-base, exponent)
        if isinstance(exponent, Fraction) and exponent.denominator < 9 and abs(exponent) < 99:
            base = self.to_mp(base)
            return self.mp.root(base, exponent.denominator) ** exponent.numerator
        _refuse(self.digits > MOST_DIGITS, "a power")
        base, exponent = self.to_mp(base), self.to_mp(exponent)
        logarithm = exponent * self.mp.log(base)
        _refuse(abs(logarithm) > MAX_MAGNITUDE, "a power")
        return self.mp.exp(logarithm)

    def call(self, name: str, arguments: list[Any]) -> Any:
        if name == "root":
            base, exponent = arguments[0], 1 / arguments[1]  # by zero: undefined
            return Fraction(0) if base == 0 else self.power(base, exponent)
        if name in ("factorial", "binomial"):
            return self.combinatorial(name, arguments)
        if name in ("floor", "ceiling"):
            x = arguments[0]
            if isinstance(x, Fraction):
                return Fraction(math.floor(x) if name == "floor" else math.ceil(x))
            nearest = int(self.mp.nint(x.real))
            if abs(x - nearest) < self.mp.mpf(10) ** (15 - self.digits):
                return Fraction(nearest)
            below = int(self.mp.floor(x.real))
            return Fraction(below if name == "floor" else below + 1)
        if name == "abs":
            return abs(arguments[0])
        if name in ("max", "min"):
            if self.is_complex:
                raise Undefined
            choose = max if name == "max" else min
            return choose(arguments, key=self.to_mp)
        if name in ("gcd", "lcm"):
            if not all(isinstance(v, Fraction) and v.denominator == 1 for v in arguments):
                raise Undefined
            return Fraction(getattr(math, name)(*map(int, arguments)))
        if name.startswith("function "):  # unknown: any function without symmetry serves
            (x,) = map(self.to_mp, arguments)
            return self.mp.cos(x * x + x / 3 + ord(name[-1]))
        _refuse(self.digits > MOST_DIGITS, "a function")
        arguments = [self.to_mp(value) for value in arguments]
        if name in ("ln", "log", "lg"):
            return self.logarithm(name, arguments)
        if name == "exp":
            _refuse(abs(arguments[0]) > MAX_MAGNITUDE, "a power")
            return self.mp.exp(arguments[0])
        (x,) = arguments
        _refuse(self.mp.mag(x) > (12 if name.endswith("h") else MAX_ARGUMENT), "an argument")
        if name in ("tan", "sec", "cot", "csc"):
            # At a pole the computed value is huge, not infinite.
            divisor = self.mp.cos(x) if name in ("tan", "sec") else self.mp.sin(x)
            if abs(divisor) < self.mp.mpf(10) ** (10 - self.digits):
                raise Undefined
        return getattr(self.mp, name.replace("arc", "a"))(x)

    def logarithm(self, name: str, arguments: list[Any]) -> Any:
        if any(value == 0 or (not self.is_complex and value < 0) for value in arguments):
            raise Undefined
        logs = [self.mp.log(value) for value in arguments]
        if name == "lg":
            logs.append(self.mp.log(10))
        elif name == "log" and len(logs) == 1:
            # Base 10 or e, and only the question knows: any other base makes neither guess.
            logs.append(self.mp.mpf("1.618"))
        return logs[0] / logs[1] if logs[1:] else logs[0]  # by zero: undefined

    def combinatorial(self, name: str, arguments: list[Any]) -> Any:
        _refuse(any(abs(value) > MAX_FACTORIAL for value in arguments), "a factorial")
        if all(isinstance(v, Fraction) and v.denominator == 1 and v >= 0 for v in arguments):
            exact = math.factorial if name == "factorial" else math.comb
            return Fraction(exact(*(int(value) for value in arguments)))
        arguments = [self.to_mp(value) for value in arguments]
        if self.is_complex:
            raise Undefined
        _refuse(self.digits > MAX_GAMMA_DIGITS, "a factorial")
        try:
            return getattr(self.mp, name)(*arguments)  # by the gamma function
        except ValueError as error:
            raise Undefined from error  # a pole


def evaluate(
    tree: Tree, point: dict, digits: int, is_complex: bool, is_counted: bool = False
) -> tuple[Any, Any, int]:
    """(value, scale of rounding errors, bits of the longest number); or Undefined, TooLarge.

    With `is_counted` it counts towards the limit of work. Reading does not: its results are kept.
    """
    evaluation = _Evaluation(point, digits, is_complex)
    try:
        return evaluation.value(tree), evaluation.scale, evaluation.bits
    except (ZeroDivisionError, OverflowError) as error:
        raise Undefined from error
    finally:
        if is_counted and _work() is not None:
            microseconds = 5 + digits // 10 + int(evaluation.bits) // 1500  # of a step
            _local.work += evaluation.num_steps * microseconds


DIGITS, CONFIRMING_DIGITS, MANY_DIGITS = 50, 300, 2_000
SMALL_ERROR = 1e-20  # e^{200} x + 2 and e^{200} x + 1 agree to 80 digits
NUM_AGREEING = 3  # of 8 points; the others may lie where one side has no real value


def _agree(left: Tree, right: Tree, point: dict, is_complex: bool) -> bool:
    """Whether two trees agree at one point; raises Undefined where either has no value there."""
    # The rounding error is at most the largest number on the way times 10^(5 - digits). Where that
    # hides the values (10^{99} x - 10^{99} x + 5), and for numbers (3.14159… is not pi), more.
    # Sums of two roots of n-bit integers may agree to 4 n bits.
    needed = 0
    are_functions = bool(variables(left)) and bool(variables(right))
    for least in (DIGITS, CONFIRMING_DIGITS, MANY_DIGITS):
        _refuse(needed > 1.25 * MAX_MAGNITUDE, "a number")
        digits = max(least, needed if least == MANY_DIGITS else 0)
        a, scale_a, bits_a = evaluate(left, point, digits, is_complex, True)
        b, scale_b, bits_b = evaluate(right, point, digits, is_complex, True)
        needed = int(1.25 * max(bits_a, bits_b))
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a == b
        mp = context()
        a, b = mp.convert(a), mp.convert(b)
        error = max(scale_a, scale_b, abs(a), abs(b)) * mp.mpf(10) ** (5 - digits)
        if abs(a - b) > error:
            return False
        is_confirmed = digits > max(DIGITS, needed) or (are_functions and error < SMALL_ERROR)
        if is_confirmed and error <= max(abs(a), abs(b)) * mp.mpf(10) ** -30:
            return True
    return True  # both are zero: nothing smaller is computed with


_KINDS = ["positive", "large", "integer", "negative", "small", "mixed", "large", "negative integer"]


def _points(names: list[str]) -> list[dict[str, Fraction]]:
    """Fixed rational points of every sign and size, integers among them."""
    generator = random.Random(20260501)
    points = []
    for kind in _KINDS:
        point = {}
        scale = {"small": Fraction(1, 4), "large": 23}.get(kind, 1)
        for name in names:
            value = scale * Fraction(generator.randrange(1009, 9973), 3571)  # scale * 0.28 to 2.8
            if "integer" in kind:
                value = Fraction(generator.randrange(2, 12))
            if "negative" in kind or (kind == "mixed" and generator.random() < 0.5):
                value = -value
            point[name] = value
        points.append(point)
    return points


_INTEGRAL = {"floor", "ceiling", "gcd", "lcm"}  # these may differ at integers alone
NUM_INTEGERS = 200
_COUNTING = set("ijklmnMN")  # letters that are integers where something is rounded
_BENDS = {"abs", "max", "min", "root"}  # these may follow an expression in some places only


def _calls(tree: Tree) -> list[str]:
    """The functions in a tree, u^{1/2} as a root."""
    calls = []
    for part in subtrees(tree):
        if part[0] == "call":
            calls.append(part[1])
        elif part[0] == "pow" and part[2][0] == "mul":
            calls.append("root")
    return sorted(calls)


def _names(*trees: Tree) -> list[str]:
    """The variables in trees without the imaginary unit."""
    return sorted(variables(*trees) - {"i"})


def is_number(tree: Tree) -> bool:
    """Whether a tree has no variables (the imaginary unit is none)."""
    return not _names(tree)


def exact_value(tree: Tree) -> Fraction | None:
    """The value of a rational number, None for anything else."""
    if variables(tree):
        return None
    try:
        value, *_ = evaluate(tree, {}, DIGITS, False)
    except Undefined:
        return None
    return value if isinstance(value, Fraction) else None


def is_defined(tree: Tree) -> bool:
    """Whether a tree has a value anywhere; raises TooLarge where no point is small enough."""
    names = _names(tree)
    points = _points(names) if names else [{}]
    for point in points:
        with contextlib.suppress(Undefined):
            evaluate(tree, point, DIGITS, "i" in variables(tree))
            return True
    return False


def identical(left: Tree, right: Tree) -> bool:
    """Whether two trees are the same number, or agree wherever both are defined; else TooLarge."""
    if left == right:
        return True
    try:
        return _identical(left, right)
    except TooLarge:
        (ours, rest), (theirs, others) = _rational_part(left), _rational_part(right)
        if not ours or not theirs or (ours, theirs) == (1, 1):
            raise
        return _identical(("mul", ("num", ours / theirs), *rest), ("mul", ONE, *others))


def _rational_part(tree: Tree) -> tuple[Fraction, list[Tree]]:
    """(the product of the rational factors, the others): 5^{4000} and \\sqrt{2}."""
    if tree[0] != "mul":
        value = exact_value(tree)
        return (Fraction(1), [tree]) if value is None else (value, [])
    parts = [_rational_part(part) for part in tree[1:]]
    return math.prod(value for value, _ in parts), [one for _, rest in parts for one in rest]


def _identical(left: Tree, right: Tree) -> bool:
    is_complex = "i" in variables(left, right)
    names = _names(left, right)
    _check_work()
    if not names:
        try:
            return _agree(left, right, {}, is_complex)
        except Undefined:
            return False  # a number without a value equals nothing
    num_agreeing = 0
    points = _points(names)
    ours, theirs = _calls(left), _calls(right)
    calls = {*ours, *theirs}
    if calls & _INTEGRAL:  # every integer for one, others beside it
        integers = range(1, NUM_INTEGERS + 1)
        points = [] if set(names) <= _COUNTING else points
        points += [{x: Fraction(n * 37**i % 211) for i, x in enumerate(names)} for n in integers]
    bends = [[name for name in side if name in _BENDS] for side in (ours, theirs)]
    if bends[0] != bends[1] and not calls & {"binomial", "factorial"}:
        quarters = [Fraction(n - 40, 4) for n in range(81)]
        far = [Fraction(sign * 10**n) for n in range(2, 7) for sign in (1, -1)]
        points += [{x: n / (i + 1) for i, x in enumerate(names)} for n in quarters + far]
    num_too_large = 0
    for point in points:
        _check_work()
        try:  # where one does not serve, another may
            if not _agree(left, right, point, is_complex):
                return False
            num_agreeing += 1
        except TooLarge:
            num_too_large += 1
        except Undefined:
            continue
    # x^{50000} is known at 0 and 1 only; others are defined together almost nowhere
    _refuse(num_agreeing < max(NUM_AGREEING, num_too_large), "a function")
    return True


def proportional(left: Tree, right: Tree, positive: bool = False) -> bool:
    """Whether left = c * right for one constant c other than 0 (above 0 with `positive`)."""
    names, is_complex = _names(left, right), "i" in variables(left, right)
    first, agreeing = None, 0
    if not names:
        return False  # of numbers any two are proportional
    for point in _points(names):
        _check_work()
        try:
            a, b = (_without_rounding(tree, point, is_complex) for tree in (left, right))
        except (Undefined, TooLarge):
            continue
        if bool(a) != bool(b):
            return False
        if not a:
            continue  # 0 = 0 everywhere: a tautology, which is proportional to nothing
        if first is None:
            first = point
            if positive and (is_complex or (a > 0) != (b > 0)):
                return False
        else:  # left(p) * right(p0) = right(p) * left(p0), with the constants as trees
            ours, theirs = ("mul", left, at(right, first)), ("mul", right, at(left, first))
            if not _agree(ours, theirs, point, is_complex):
                return False
        agreeing += 1
    return agreeing >= NUM_AGREEING


def _without_rounding(tree: Tree, point: dict[str, Fraction], is_complex: bool) -> Any:
    """The value at a point; 0 where it is within the rounding errors: tan 45 degrees - 1."""
    value, scale, _ = evaluate(tree, point, DIGITS, is_complex, True)
    is_exact = isinstance(value, Fraction)
    return value if is_exact or abs(value) > scale * context().mpf(10) ** (5 - DIGITS) else 0


def difference(left: Tree, right: Tree) -> Tree:
    """left - right."""
    return ("add", left, ("mul", MINUS_ONE, right))
