"""The nearest name for a typo, with the standard library alone.

MAKE_GOALS=gpro python3 -m pipeline.names    the message of make for an unknown target
"""

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pipeline.stages import ROOT

LONGEST = 40  # letters of a name that may be a typo of one of ours


@cache
def distance(one: str, other: str) -> int:
    """Letters to insert, drop, replace or swap with a neighbour to make one name of the other."""
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return distance(one[1:], other[1:])
    rests = [(one[1:], other), (one, other[1:]), (one[1:], other[1:])]
    if one[:2] == other[1::-1]:
        rests.append((one[2:], other[2:]))
    return 1 + min(distance(*rest) for rest in rests)


def nearest(given: str, names: Sequence[str]) -> str:
    """The nearest name within two letters, of three letters within one; "" where none is near."""
    if len(given) > LONGEST:
        return ""
    far = {name: distance(given.upper(), name.upper()) for name in names}
    near = [name for name in names if far[name] <= min(2, len(given) - 2, len(name) - 2)]
    return min(near, key=far.__getitem__, default="")


def unknown(what: str, given: str, names: Sequence[str]) -> str:
    """The line for a name that is none of those known, with the nearest of them."""
    near = nearest(given, names)
    if near:
        return f"{what}: {given!r} is unknown; did you mean {near!r}?"
    return f"{what}: {given!r} is unknown; choose one of {', '.join(names)}"


def targets() -> list[str]:
    """The targets of the Makefile, by the menu at its head."""
    menu = Path(ROOT, "Makefile").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^#   make ([a-z-]+(?:, [a-z-]+)*)", menu)
    return ", ".join(lines).split(", ")


if __name__ == "__main__":
    for target in os.environ.get("MAKE_GOALS", "").split():
        if target not in targets():
            sys.stderr.write(f"error: {unknown('target', target, targets())}\n")
    sys.exit(2)
