"""What the Makefile asks about its variables: with the standard library alone, before `.venv`.

python3 -IS pipeline/make_variables.py meant "recipe RNU" "RECIPE RUN"
"""

import json
import os
import re
import shlex
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256


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


def meant(given: str, ours: list[str]) -> str:
    """Our nearest name within two letters; where one has three letters within one."""
    far = {name: distance(given.upper(), name) for name in ours}
    near = [name for name in ours if far[name] <= min(2, len(given) - 2, len(name) - 2)]
    return min(near, key=far.__getitem__, default="")


def name(model: str) -> str:
    """A model's last name, plain, for its run's folder; with a hash, as other folders may share it.

    A folder has the same name however its path is written.
    """
    path = os.path.realpath(model) if os.path.isdir(model) else model
    plain = re.sub(r"[^\w-]+", ".", os.path.basename(path), flags=re.ASCII).strip(".")
    return f"{plain}-{sha256(path.encode()).hexdigest()[:6]}"


def trained(model: str, run: str) -> str:
    """Say that a run was trained from another model than this; empty where it was not."""
    for stage in ("sft", "grpo"):
        with suppress(OSError, ValueError, LookupError, TypeError):
            with open(os.path.join(run, stage, "manifest.json"), encoding="utf-8") as file:
                start = json.load(file)["config"]["model_name_or_path"]
            is_other = os.path.realpath(start) != os.path.realpath(model)
            return f"{run} was trained from {start}; give MODEL={model} another RUN" * is_other
    return ""


if __name__ == "__main__":
    verb, text, *ours = sys.argv[1:]
    if verb == "words":  # each quoted for a shell
        with suppress(ValueError):  # a quote that is not closed: no line
            sys.stdout.write(shlex.join(map(os.path.expanduser, shlex.split(text))))
    if verb in ("name", "trained"):
        sys.stdout.write(name(text) if verb == "name" else trained(text, *ours))
    for given in set(text.split()) - {*os.environ} if verb == "meant" else ():
        if guess := meant(given, ours[0].split()):
            sys.stdout.write(f"{given}= is no variable of ours; {guess}= was probably meant\n")
