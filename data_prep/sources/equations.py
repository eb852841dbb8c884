"""A set's own arithmetic as a short worked solution: `290 / 2 = 145`, one line an operation.

Equations are data of others: they are parsed, never run. Values are exact fractions.
"""

import ast
from collections.abc import Callable, Sequence
from fractions import Fraction

from data_prep.sources.base import Drop
from grading.compare import is_same_value

THOUGHTS = ("equation",)  # values of a source's key `thought`
LONGEST = 200  # characters of an equation; keeps parsing shallow and numbers small
OPERATIONS: dict[type, tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", lambda left, right: left + right),
    ast.Sub: ("-", lambda left, right: left - right),
    ast.Mult: ("*", lambda left, right: left * right),
    ast.Div: ("/", lambda left, right: left / right),
}


def write_thought(equations: Sequence[str], golds: Sequence[str]) -> list[str]:
    """A line for each operation of the equations, whose last value must be a gold.

    Args:
        equations: such as `( ( 8.0 + 3.0 ) * 2.0 )`, without an equals sign.

    Raises:
        Drop: no_solution: there is no equation, or one cannot be read; solution_disagrees: the last
            value is none of the golds.
    """
    if not equations:
        raise Drop("no_solution")
    lines: list[str] = []
    value = Fraction(0)
    for equation in equations:
        try:
            value = _evaluate(_parse(equation), lines)
        except (ValueError, ArithmeticError) as error:
            raise Drop("no_solution", f"{equation!r:.80}: {error}") from error
    if not any(is_same_value(write_number(value), gold) for gold in golds):
        raise Drop("solution_disagrees", f"{write_number(value)}, gold {', '.join(golds)}")
    return lines or [write_number(value)]


def _parse(equation: str) -> ast.expr:
    if len(equation) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    try:
        return ast.parse(equation.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("not arithmetic") from error


def _evaluate(node: ast.expr, lines: list[str]) -> Fraction:
    """The value of an expression; appends a line for each of its operations, inner ones first."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, lines)
    if not isinstance(node, ast.BinOp) or type(node.op) not in OPERATIONS:
        raise ValueError("not arithmetic")
    sign, compute = OPERATIONS[type(node.op)]
    left, right = _evaluate(node.left, lines), _evaluate(node.right, lines)
    value = compute(left, right)
    second = write_number(right)
    if right < 0 or "/" in second:
        second = f"({second})"
    lines.append(f"{write_number(left)} {sign} {second} = {write_number(value)}")
    return value


def write_number(value: Fraction) -> str:
    """A number as people write it: 3, 0.25, or 2/3 where its decimals do not end."""
    for digits in range(7):
        scaled = value * 10**digits
        if scaled.denominator == 1:
            sign, whole = "-" if value < 0 else "", str(abs(scaled.numerator)).zfill(digits + 1)
            return f"{sign}{whole[:-digits]}.{whole[-digits:]}" if digits else f"{sign}{whole}"
    return str(value)
