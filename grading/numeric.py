"""Numeric identity: whether two trees are the same number, or the same function.

Rationals are compared exactly. Everything else is compared with mpmath, first to 50 digits and,
where the two agree, to 300, and to 2,100 where those settle nothing. Expressions with variables are
compared at fixed pseudo-random rational points (Schwartz, 1980: two different polynomials of degree
d agree at a random point out of N with probability at most d / N). A value past `MAX_BITS` raises
`TooLarge` before it is computed. Roots, powers and logarithms follow the school's real conventions
unless the imaginary unit occurs.
"""

import functools
import math
import random
import threading
from fractions import Fraction
from typing import Any

from grading.tree import (
    Call,
    Const,
    Num,
    Power,
    Product,
    Sum,
    Tree,
    Var,
    at,
    children,
    functions,
    has_root_power,
    simplified,
    subtrees,
    variables,
)

MAX_BITS = 50_000  # of an exact integer: 2024^{4046} is a real gold, 9^{99999} is an attack
MAX_FACTORIAL = 3_000
MAX_MAGNITUDE = 8_305  # bits before and after the point of what is no fraction: 10^2500
MAX_ARGUMENT = 400  # bits of an angle, of which every one costs a digit of pi
MAX_NODES = 400  # of a tree that is compared
DIGITS, CONFIRMING_DIGITS, MANY_DIGITS = 50, 300, 2_100
SMALL_ERROR = 1e-30  # 5^{2278} x + 2 and 5^{2278} x + 1 agree to 1,500 digits
NUM_AGREEING = 3  # of 8 points; the others may lie where one side has no real value


class TooLarge(ValueError):
    """The value is too large to compute with."""


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


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


# The value at one point


class _Evaluation:
    """One evaluation at one point and precision."""

    def __init__(self, point: dict[str, Fraction], digits: int, is_complex: bool):
        self.point, self.digits, self.is_complex = point, digits, is_complex
        self.scale = 0  # largest magnitude on the way; rounding errors are relative to it
        self.bits = 0  # of the longest exact number on the way

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

    def keep(self, value: Any) -> Any:
        """Check one intermediate value, and remember its magnitude."""
        if isinstance(value, Fraction):
            self.bits = max(self.bits, _bits(value))
            _refuse(self.bits > MAX_BITS, "a number")
            return value
        is_unreal = not self.is_complex and isinstance(value, self.mp.mpc)
        if is_unreal or not self.mp.isfinite(value):
            raise Undefined
        _refuse(value and abs(self.mp.mag(value)) > MAX_MAGNITUDE, "a number")
        self.scale = max(self.scale, abs(value))
        return value

    def value(self, tree: Tree) -> Any:
        """A Fraction where the value is rational by exact steps, else an mpmath number."""
        match tree:
            case Num(value):
                return self.keep(value)
            case Var(name):
                is_unit = self.is_complex and name == "i"
                return self.mp.mpc(0, 1) if is_unit else self.point[name]
            case Const(name):
                return self.keep(+getattr(self.mp, name))
            case Power(base, exponent):
                return self.keep(self.power(self.value(base), self.value(exponent)))
            case Call(name, parts):
                return self.keep(self.call(name, [self.value(part) for part in parts]))
        total, *values = map(self.value, children(tree))
        for value in values:
            if not (isinstance(total, Fraction) and isinstance(value, Fraction)):
                total, value = self.to_mp(total), self.to_mp(value)
            total = self.keep(total + value if isinstance(tree, Sum) else total * value)
        return total

    def power(self, base: Any, exponent: Any) -> Any:
        is_exact = isinstance(exponent, Fraction)
        if base == 0 and is_exact and exponent > 0:
            return Fraction(0)
        is_zero = not isinstance(base, Fraction) and abs(base) < self.scale * self.error()
        if base == 0 or (is_zero and not (is_exact and exponent > 0)):
            raise Undefined  # 1 / sin(pi): zero but for rounding
        if is_exact and exponent.denominator == 1:
            number = int(exponent)
            if isinstance(base, Fraction):
                if abs(base) == 1:
                    return base ** (number % 2)
                _refuse(_bits(base) * abs(number) > 2 * MAX_BITS, "a power")
            else:
                magnitude = abs(self.mp.mag(base) * number)
                _refuse(abs(number) > MAX_BITS or magnitude > 4 * MAX_BITS, "a power")
            return base**number
        if not self.is_complex and base < 0:
            # (-8)^{1/3} is -2 in school, and has no real value for an even root
            if not is_exact or exponent.denominator % 2 == 0:
                raise Undefined
            return (-1) ** (exponent.numerator % 2) * self.power(-base, exponent)
        if is_exact and exponent.denominator == 2 and isinstance(base, Fraction) and base > 0:
            roots = Fraction(math.isqrt(base.numerator), math.isqrt(base.denominator))
            if roots * roots == base:
                return self.power(roots, Fraction(exponent.numerator))
        if is_exact and exponent.denominator < 9 and abs(exponent) < 99:
            return self.mp.root(self.to_mp(base), exponent.denominator) ** exponent.numerator
        logarithm = self.to_mp(exponent) * self.mp.log(self.to_mp(base))
        _refuse(abs(logarithm) > MAX_MAGNITUDE, "a power")
        return self.mp.exp(logarithm)

    def error(self) -> Any:
        """The largest error of a value of magnitude 1."""
        return self.mp.mpf(10) ** (5 - self.digits)

    def call(self, name: str, arguments: list[Any]) -> Any:
        if name == "root":
            return self.power(arguments[0], 1 / arguments[1])  # by zero: undefined
        if name in ("factorial", "binomial"):
            return self.combinatorial(name, arguments)
        if name in ("floor", "ceiling"):
            return self.rounded(name, arguments[0])
        if name == "abs":
            return abs(arguments[0])
        if name in ("max", "min"):
            if any(isinstance(value, self.mp.mpc) for value in arguments):
                raise Undefined
            return (max if name == "max" else min)(arguments, key=self.to_mp)
        if name in ("gcd", "lcm"):
            if not all(isinstance(v, Fraction) and v.denominator == 1 for v in arguments):
                raise Undefined
            return Fraction(getattr(math, name)(*map(int, arguments)))
        arguments = [self.to_mp(value) for value in arguments]
        x = arguments[0]
        if name.startswith("function "):  # unknown: any function without symmetry serves
            return self.mp.cos(
                sum((n + 2) * y * y + y / 3 for n, y in enumerate(arguments)) + ord(name[-1])
            )
        if name in ("ln", "log", "lg"):
            return self.logarithm(name, arguments)
        if name == "exp":
            _refuse(abs(x) > MAX_MAGNITUDE, "a power")
            return self.mp.exp(x)
        _refuse(self.mp.mag(x) > (12 if name.endswith("h") else MAX_ARGUMENT), "an argument")
        if name in ("tan", "sec", "cot", "csc"):
            # At a pole the computed value is huge, not infinite.
            divisor = self.mp.cos(x) if name in ("tan", "sec") else self.mp.sin(x)
            if abs(divisor) < self.mp.mpf(10) ** (10 - self.digits):
                raise Undefined
        return getattr(self.mp, name.replace("arc", "a"))(x)

    def rounded(self, name: str, x: Any) -> Fraction:
        if isinstance(x, Fraction):
            return Fraction(math.floor(x) if name == "floor" else math.ceil(x))
        nearest = int(self.mp.nint(x.real))
        if abs(x - nearest) < self.mp.mpf(10) ** (15 - self.digits):
            return Fraction(nearest)
        below = int(self.mp.floor(x.real))
        return Fraction(below if name == "floor" else below + 1)

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
        if self.is_complex:
            raise Undefined
        _refuse(self.digits > CONFIRMING_DIGITS, "a factorial of no integer")
        try:
            return getattr(self.mp, name)(*map(self.to_mp, arguments))  # by the gamma function
        except ValueError as error:
            raise Undefined from error  # a pole


def evaluate(tree: Tree, point: dict, digits: int, is_complex: bool) -> tuple[Any, _Evaluation]:
    """(value, how large numbers were on the way); or Undefined, TooLarge."""
    evaluation = _Evaluation(point, digits, is_complex)
    try:
        return evaluation.value(tree), evaluation
    except (ZeroDivisionError, OverflowError) as error:
        raise Undefined from error


# Identity


def _agree(left: Tree, right: Tree, point: dict, is_complex: bool) -> bool:
    """Whether two trees agree at one point; raises Undefined where either has no value there."""
    for digits in (DIGITS, CONFIRMING_DIGITS, MANY_DIGITS):
        a, ours = evaluate(left, point, digits, is_complex)
        b, theirs = evaluate(right, point, digits, is_complex)
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a == b
        mp, exact = context(), (a, b)
        a, b = mp.convert(a), mp.convert(b)
        largest = max(ours.scale, theirs.scale, abs(a), abs(b))
        error = largest * mp.mpf(10) ** (5 - digits)
        if abs(a - b) > error:
            return False
        is_small = error < SMALL_ERROR and error <= max(abs(a), abs(b)) * SMALL_ERROR
        # \sqrt{3^{800} + 1} differs from 3^{400} where twice as many digits are looked at
        is_deep = digits * 3 > 2 * max(ours.bits, theirs.bits)
        if digits > DIGITS and is_small and is_deep:
            return True
    _refuse(error > SMALL_ERROR, "a number")
    # Nothing smaller is computed with: both are zero, unless one is a fraction that is not.
    return not any(isinstance(one, Fraction) and one for one in exact)


_KINDS = ["positive", "large", "integer", "negative", "small", "mixed", "large", "negative integer"]


@functools.lru_cache(maxsize=256)
def _points(names: tuple[str, ...]) -> tuple[dict[str, Fraction], ...]:
    """Fixed rational points of every sign and size, integers among them."""
    generator = random.Random(20260501)
    points = []
    for kind in _KINDS:
        point = {}
        scale = Fraction({"small": 1, "large": 92}.get(kind, 4), 4)
        for name in names:
            value = scale * Fraction(generator.randrange(1009, 9973), 3571)  # scale * 0.28 to 2.8
            if "integer" in kind:
                value = Fraction(generator.randrange(2, 12))
            if "negative" in kind or (kind == "mixed" and generator.random() < 0.5):
                value = -value
            point[name] = value
        points.append(point)
    return tuple(points)


# These may follow an expression in some places only.
_BENDS = {"abs", "max", "min", "root", "floor", "ceiling"}


def _bends(tree: Tree) -> set[str]:
    """The functions in a tree that have bends, u^{1/2} as a root."""
    return functions(tree) & _BENDS | ({"root"} if has_root_power(tree) else set())


def _all_points(left: Tree, right: Tree, names: tuple[str, ...]) -> list[dict[str, Fraction]]:
    """Where two expressions are compared: more points where they may agree in some places only."""
    points = list(_points(names))
    calls = functions(left) | functions(right)
    if _bends(left) != _bends(right) and not calls & {"binomial", "factorial"}:
        quarters = [Fraction(n - 40, 4) for n in range(81)]
        far = [Fraction(sign * 10**n) for n in range(2, 7) for sign in (1, -1)]
        points += [{x: n / (i + 1) for i, x in enumerate(names)} for n in quarters + far]
    return points


def exact_value(tree: Tree) -> Fraction | None:
    """The value of a rational number, None for anything else."""
    if variables(tree):
        return None
    try:
        value, _ = evaluate(tree, {}, DIGITS, False)
    except (Undefined, TooLarge):
        return None
    return value if isinstance(value, Fraction) else None


def size(tree: Tree) -> float | None:
    """About how large a real number is, None for anything else."""
    if variables(tree):
        return None
    try:
        return float(evaluate(tree, {}, DIGITS, False)[0])
    except (Undefined, TooLarge, OverflowError, TypeError):
        return None


def is_defined(tree: Tree, is_complex: bool = False) -> bool:
    """Whether a tree has a value anywhere."""
    is_complex = is_complex or "i" in variables(tree)
    names = tuple(sorted(variables(tree) - {"i"}))
    for point in _points(names) if names else ({},):
        try:
            evaluate(tree, point, DIGITS, is_complex)
        except (Undefined, TooLarge):
            continue
        return True
    return False


def identical(left: Tree, right: Tree) -> bool:
    """Whether two trees are the same number, or agree wherever both are defined; else TooLarge."""
    if left == right:
        return True
    if isinstance(left, Num) and isinstance(right, Num):
        return False
    is_complex = "i" in variables(left, right)
    if simplified(left) == simplified(right):
        return is_defined(left, is_complex) and is_defined(right, is_complex)
    _refuse(sum(1 for tree in (left, right) for _ in subtrees(tree)) > MAX_NODES, "a tree")
    names = tuple(sorted(variables(left, right) - {"i"}))
    if not names:
        try:
            return _agree(left, right, {}, is_complex)
        except Undefined:
            return False  # a number without a value equals nothing
    num_agreeing = num_too_large = 0
    for point in _all_points(left, right, names):
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


def proportional(left: Tree, right: Tree, positive: bool) -> bool:
    """Whether left = c * right for one constant c other than 0 (above 0 with `positive`)."""
    names, is_complex = tuple(sorted(variables(left, right) - {"i"})), "i" in variables(left, right)
    first, agreeing = None, 0
    for point in _points(names) if names else ():  # of numbers any two are proportional
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
            ours, theirs = Product((left, at(right, first))), Product((right, at(left, first)))
            try:
                if not _agree(ours, theirs, point, is_complex):
                    return False
            except Undefined:
                continue
        agreeing += 1
    return agreeing >= NUM_AGREEING


def _without_rounding(tree: Tree, point: dict[str, Fraction], is_complex: bool) -> Any:
    """The value at a point; 0 where it is within the rounding errors: tan 45 degrees - 1."""
    value, done = evaluate(tree, point, DIGITS, is_complex)
    is_exact = isinstance(value, Fraction)
    return value if is_exact or abs(value) > done.scale * context().mpf(10) ** (5 - DIGITS) else 0
