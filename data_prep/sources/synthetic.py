"""Procedural word problems in the GSM8K schema: the embedded default data set.

    Mia has 14 pens.                    Monday buys 5. 14 + 5 = <<14+5=19>>19
    Monday buys 5.                      Tuesday loses 3. 19 - 3 = <<19-3=16>>16
    Tuesday loses 3.                    #### 16
    How many pens?

A problem's level is its number of days. Real corpora mix careful and terse solutions, so a share of
the training solutions is *hasty*: bare equations that merge several days (`14 + 5 - 3 = 16`). A
small model cannot compute them reliably. GRPO mainly learns to prefer the careful steps.

The splits are disjoint by construction: a problem's numbers (start and changes, not its wording)
are hashed to a split. So no arithmetic chain of `test` occurs in `train`, under any name or object.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace

from data_prep.schema import Problem
from data_prep.sources import gsm8k

_NAMES = "Mia Leo Ana Ben Zoe Max Eva Sam Ida Tom Lia Jon Amy Kai Uma Ray Fay Gus Ivy Ned"
NAMES = tuple(_NAMES.split())
_OBJECTS = (
    "pens books coins cards stamps apples marbles shells stickers buttons beads balls keys cups"
    " nuts plums"
)
OBJECTS = tuple(_OBJECTS.split())
GAINS = ("buys", "finds", "gets", "wins", "makes", "earns", "picks")
LOSSES = ("loses", "sells", "gives", "uses", "drops", "breaks", "lends")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MAX_VALUE = 20  # every running total stays in 0..20
MAX_CHANGE = 9

# Share of the hash space of each split. "rl" keeps GRPO's problems apart from SFT's.
SPLITS = {"train": (0.0, 0.6), "rl": (0.6, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


def split_of(start: int, changes: list[int]) -> str:
    """The one split to which a chain of numbers belongs."""
    digest = hashlib.sha256(repr((start, changes)).encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    return next(name for name, (low, high) in SPLITS.items() if low <= position < high)


def draw_chain(rng: random.Random, level: int) -> tuple[int, list[int]]:
    """A start in 1..MAX_VALUE and `level` non-zero changes that keep the total in 0..MAX_VALUE."""
    start = total = rng.randint(1, MAX_VALUE)
    changes, steps = [], range(-MAX_CHANGE, MAX_CHANGE + 1)
    for _ in range(level):
        options = [step for step in steps if step and 0 <= total + step <= MAX_VALUE]
        changes.append(rng.choice(options))
        total += changes[-1]
    return start, changes


def draw_events(rng: random.Random, changes: list[int]) -> list[str]:
    """One sentence a day, such as `Monday buys 5.`, no verb twice in a problem."""
    first = rng.randrange(len(DAYS))
    days = DAYS[first:] + DAYS[:first]
    gains, losses = rng.sample(GAINS, len(GAINS)), rng.sample(LOSSES, len(LOSSES))
    events = []
    for day, change in zip(days, changes, strict=False):
        verb = gains.pop() if change > 0 else losses.pop()
        events.append(f"{day} {verb} {abs(change)}.")
    return events


def write_question(rng: random.Random, start: int, events: list[str]) -> str:
    """The word problem, with a name and objects drawn from `rng`."""
    name, objects = rng.choice(NAMES), rng.choice(OBJECTS)
    return "\n".join([f"{name} has {start} {objects}.", *events, f"How many {objects}?"])


def write_careful_answer(start: int, changes: list[int], events: list[str]) -> str:
    """Worked answer in GSM8K's form: each line states one event again, then computes it."""
    *lines, end = write_hasty_answer(start, changes, [1] * len(changes)).split("\n")
    return "\n".join([*map(" ".join, zip(events, lines, strict=True)), end])


def write_hasty_answer(start: int, changes: list[int], sizes: list[int]) -> str:
    """Worked answer in GSM8K's form: bare equations, the i-th over `sizes[i]` changes at once."""
    assert sum(sizes) == len(changes)
    lines, total, position = [], start, 0
    for size in sizes:
        merged = changes[position : position + size]
        lines.append(write_step(total, merged))
        position, total = position + size, total + sum(merged)
    return "\n".join([*lines, f"#### {total}"])


def write_step(total: int, changes: list[int]) -> str:
    """`14 + 5 - 3 = <<14+5-3=16>>16`: an equation with GSM8K's calculator mark."""
    terms = ""
    for change in changes:
        sign = "+" if change > 0 else "-"
        terms += f" {sign} {abs(change)}"
    after = total + sum(changes)
    return f"{total}{terms} = <<{total}{terms.replace(' ', '')}={after}>>{after}"


def draw_sizes(rng: random.Random, level: int, max_merge: int) -> list[int]:
    """Sizes of the equations of a hasty answer: 2..`max_merge` days each, as far as they go."""
    sizes: list[int] = []
    while (left := level - sum(sizes)) > 0:
        sizes.append(min(left, rng.randint(2, max_merge)))
    return sizes


def _check_within(name: str, value: float, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}: {value} is not within {low}..{high}")


def load(
    split: str,
    sample: int,
    seed: int,
    max_level: int = 5,
    hasty_share: float = 0.0,
    max_merge: int = 3,
    levels: list[int] | None = None,
) -> Iterator[Problem]:
    """Generate `sample` problems of one split, their questions all different.

    Args:
        split: one of `SPLITS`.
        hasty_share: share of the solutions written as bare merged equations, in [0, 1].
        max_merge: most days a hasty equation merges, 2 to 7.
        levels: levels in the order in which they come round, in place of 1..`max_level`;
            `[1, 1, 6]` makes two thirds of the problems easy and the others hard.
    """
    if split not in SPLITS:
        raise ValueError(f"split: {split!r} is not one of {', '.join(SPLITS)}")
    levels = levels or list(range(1, max_level + 1))
    _check_within("max_level", max_level, 1, len(DAYS))
    for level in levels:
        _check_within("levels", level, 1, len(DAYS))
    _check_within("hasty_share", hasty_share, 0, 1)
    _check_within("max_merge", max_merge, 2, len(DAYS))
    rng = random.Random(f"{split}-{seed}")
    seen: set[str] = set()
    num_misses = 0
    while len(seen) < sample:
        num_misses += 1
        if num_misses > 10_000:
            raise ValueError(f"sample: {sample} is more than split {split!r} holds; lower it")
        level = levels[len(seen) % len(levels)]
        start, changes = draw_chain(rng, level)
        hasty = rng.random() < hasty_share
        if split_of(start, changes) != split:
            continue
        events = draw_events(rng, changes)
        question = write_question(rng, start, events)
        if question in seen:
            continue
        if hasty:
            answer = write_hasty_answer(start, changes, draw_sizes(rng, level, max_merge))
        else:
            answer = write_careful_answer(start, changes, events)
        name = f"synthetic-{split}-{len(seen)}"
        problem = gsm8k.build_problem({"question": question, "answer": answer}, name, name)
        seen.add(question)
        num_misses = 0
        yield replace(problem, source="synthetic", level=level)
