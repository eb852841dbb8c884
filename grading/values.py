"""Values: the kinds of thing an answer can be."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from grading.tree import Tree
from grading.units import Unit


@dataclass(frozen=True, slots=True)
class Number:
    """A number or expression, with its unit or per cent sign."""

    tree: Tree
    unit: Unit | None = None
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Infinite:
    """Infinity, or with sign -1 minus infinity."""

    sign: int


@dataclass(frozen=True, slots=True)
class Words:
    """Words, or letters as written (AB is not BA); `tree` where they could be a product."""

    text: str
    tree: Tree | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """What the grammar does not know: it equals the same text only."""

    text: str


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a multiple-choice question: its letter, and its value where it is written."""

    letter: str
    value: "Value | None" = None


@dataclass(frozen=True, slots=True)
class Several:
    """Values in no order.

    `kind` is list, set, "or" or "and" where that word alone joins them, or near: an exact value
    and its decimal.
    """

    items: "tuple[Value, ...]"
    kind: str = "list"


@dataclass(frozen=True, slots=True)
class Bracketed:
    """A tuple or an interval, with its brackets."""

    opening: str
    items: "tuple[Value, ...]"
    closing: str


@dataclass(frozen=True, slots=True)
class Union:
    """Intervals and single points, of which a number may lie in any."""

    pieces: "tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class Matrix:
    rows: "tuple[tuple[Value, ...], ...]"
    is_determinant: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """`a : b : c`; `text` as it is written, for a time of day."""

    items: "tuple[Value, ...]"
    text: str


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a base, as written."""

    digits: str
    base: str


@dataclass(frozen=True, slots=True)
class Relation:
    """As read: parts[0] ops[0] parts[1] …, with ops of `parse.RELATIONS`, \\setminus or \\cap."""

    parts: "tuple[Value, ...]"
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """`x = 5`, `f(x) = 2x`, `x \\in (1, 2)`: a name and the value that it has."""

    name: str
    value: "Value"
    label: "Tree | None" = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Equation:
    """tree = 0, < 0, \\le 0 or \\ne 0, for what is no name and its value."""

    tree: Tree
    op: str


@dataclass(frozen=True, slots=True)
class Conditional:
    """A value, and what is said about its letters or its modulus."""

    value: "Value"
    condition: "Value"


@dataclass(frozen=True, slots=True)
class Modulus:
    tree: Tree


Value = (
    Number | Infinite | Words | Opaque | Option | Several | Bracketed | Union | Matrix | Ratio
    | Based | Relation | Named | Equation | Conditional | Modulus
)  # fmt: skip


def unnamed(value: Value) -> Value:
    """The value that a name has; any other value as it is."""
    return value.value if isinstance(value, Named) else value


def parts_of(value: Value) -> tuple[Value, ...]:
    """The values right inside one; a condition is about a value and not in it."""
    match value:
        case Several(parts) | Bracketed(_, parts, _) | Union(parts) | Ratio(parts):
            return parts
        case Relation(parts):
            return parts
        case Matrix(rows):
            return tuple(cell for row in rows for cell in row)
        case Named(_, inner) | Conditional(inner):
            return (inner,)
        case Option(_, inner) if inner is not None:
            return (inner,)
    return ()


def inside(value: Value) -> Iterator[Value]:
    """A value and all that is in it."""
    yield value
    for part in parts_of(value):
        yield from inside(part)


EMPTY = Several((), "set")
REALS = Bracketed("(", (Infinite(-1), Infinite(1)), ")")
