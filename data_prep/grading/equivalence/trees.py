"""Trees: an expression as nested tuples.

("num", Fraction), ("var", name), ("const", "pi"), ("add", a, b, …), ("mul", a, b, …),
("pow", base, exponent), ("call", name, a, …).
"""

from fractions import Fraction

Tree = tuple
ONE, MINUS_ONE = ("num", Fraction(1)), ("num", Fraction(-1))
INVERSE = ("mul", MINUS_ONE, ONE)  # ^{-1}, as it is read; a fraction has MINUS_ONE itself


def variables(tree: Tree) -> set[str]:
    """Names of the variables in a tree."""
    if tree[0] == "var":
        return {tree[1]}
    return set().union(*(variables(part) for part in tree[1:] if isinstance(part, tuple)))


def keep_order(factors: list[Tree]) -> list[Tree]:
    """A product of capitals with an inverse is one of matrices: A^{-1}B becomes one name."""

    def is_capital(tree: Tree) -> bool:
        return tree[0] == "var" and tree[1].isupper()

    inverses = [f for f in factors if f[0] == "pow" and is_capital(f[1]) and f[2] == INVERSE]
    matrices = [f for f in factors if is_capital(f) or f in inverses]
    if not inverses or len(matrices) == 1:
        return factors
    return [*(f for f in factors if f not in matrices), ("var", repr(matrices))]
