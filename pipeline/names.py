"""The nearest name for a typo.

MAKE_GOALS=gpro python3 -m pipeline.names    the message of make for an unknown target
"""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.stages import ROOT

ALIKE = 0.66  # of 1: how like a typo must be to a name; OTU is that to OUT


def nearest(given: str, names: Sequence[str]) -> str:
    """The name that is most like the given one; "" where none is near."""
    folded = {name.upper(): name for name in names}
    found = difflib.get_close_matches(given.upper(), folded, 1, ALIKE)
    return folded[found[0]] if found else ""


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
