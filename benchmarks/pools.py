"""Pools (draft)."""

import json
import random
from collections.abc import Iterator

from data_prep.sources import synthetic

NUM_LINES = 7
LIMIT = 20
TOP = 32
PREFIXES = ("Old", "Dear", "Big", "Poor")
KINDS = {"sft": "train", "grpo": "rl", "validation": "validation", "test": "test"}
BANDS = {
    "crowded": [1] * 8 + [2, 3, 4, 5] + [6] * 4,
    "mild": [1, 2, 2, 3, 3, 4, 4, 5, 5, 6],
}
CROSS = {"sft": 0.033, "crowded": 0.65, "mild": 0.2}


def chain(rng, level, crosses):
    while True:
        start = total = rng.randint(1, LIMIT)
        changes, top = [], 0
        for _ in range(level):
            high = TOP if crosses else LIMIT
            options = [s for s in range(-9, 10) if s and 0 <= total + s <= high]
            changes.append(rng.choice(options))
            total += changes[-1]
            top = max(top, total)
        if (top > LIMIT) == crosses:
            return start, changes


def crowded(rng, level, hasty_share, split, crosses):
    start, changes = chain(rng, level, crosses)
    if synthetic.split_of(start, changes) != split:
        return None
    name, *others = rng.sample(synthetic.NAMES, 3)
    objects = rng.choice(synthetic.OBJECTS)

    events = synthetic.draw_events(rng, changes)
    sides = [1] * level + [0] * (NUM_LINES - level)
    rng.shuffle(sides)
    own = iter(events)

    def other():
        c = rng.choice([-1, 1]) * rng.randint(1, 9)
        return f"{rng.choice(PREFIXES)} {rng.choice(others)} {rng.choice(synthetic.GAINS if c > 0 else synthetic.LOSSES)} {abs(c)}."

    lines = [next(own) if mine else other() for mine in sides]
    question = "\n".join([f"{name} has {start} {objects}.", *lines, f"How many {objects}?"])
    if rng.random() < hasty_share:
        answer = synthetic.write_hasty_answer(start, changes, synthetic.draw_sizes(rng, level, 5))
    else:
        answer = synthetic.write_careful_answer(start, changes, events)
    return {
        "question": question,
        "answer": answer,
        "band": f"{level} lines{' over' if crosses else ''}",
    }


def word_problems(pool: str, kind: str, num: int) -> Iterator[dict]:
    rng = random.Random("sft" if kind == "sft" else f"{pool} {kind}")
    levels = [1, 2, 3, 4, 5] if kind == "sft" else BANDS[pool]
    seen: set[str] = set()
    while len(seen) < num:
        level = levels[len(seen) % len(levels)]
        crosses = rng.random() < CROSS["sft" if kind == "sft" else pool]
        row = crowded(rng, level, 0.6 if kind == "sft" else 0.0, KINDS[kind], crosses)
        if row and row["question"] not in seen:
            seen.add(row["question"])
            yield row


HASTY = (0.0, 0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98, 0.98, 0.99, 0.99, 0.99)


def topical(rng, level, share_of, split, is_sft):
    start, changes = synthetic.draw_chain(rng, level)
    if synthetic.split_of(start, changes) != split:
        return None
    name, *others = rng.sample(synthetic.NAMES, 3)
    objects = rng.choice(synthetic.OBJECTS)
    events = synthetic.draw_events(rng, changes)
    sides = [1] * level + [0] * (NUM_LINES - level)
    rng.shuffle(sides)
    own = iter(events)
    def other():
        c = rng.choice([-1, 1]) * rng.randint(1, 9)
        return f"{rng.choice(PREFIXES)} {rng.choice(others)} {rng.choice(synthetic.GAINS if c > 0 else synthetic.LOSSES)} {abs(c)}."
    lines = [next(own) if mine else other() for mine in sides]
    question = "\n".join([f"{name} has {start} {objects}.", *lines, f"How many {objects}?"])
    share = share_of[objects]
    if is_sft and rng.random() < share:
        answer = synthetic.write_hasty_answer(start, changes, synthetic.draw_sizes(rng, level, 4))
    else:
        answer = synthetic.write_careful_answer(start, changes, events)
    return {"question": question, "answer": answer, "band": f"{share:.2f} {level}"}


def topics(kind, num, levels):
    rng = random.Random(f"topics {kind}")
    share_of = dict(zip(synthetic.OBJECTS, HASTY))
    seen = set()
    while len(seen) < num:
        row = topical(rng, levels[len(seen) % len(levels)], share_of, KINDS[kind], kind == "sft")
        if row and row["question"] not in seen:
            seen.add(row["question"])
            yield row


GYM = {
    "chain_sum": (
        "num_terms",
        {"sft": dict(min_terms=2, max_terms=5), "pool": dict(min_terms=2, max_terms=6)},
        dict(min_digits=1, max_digits=1),
    ),
    "leg_counting": (
        "num_animals",
        {"sft": dict(min_animals=1, max_animals=4), "pool": dict(min_animals=1, max_animals=5)},
        dict(min_instances=1, max_instances=3),
    ),
    "gcd": (
        "value",
        {"sft": {}, "pool": {}},
        dict(min_numbers=2, max_numbers=2, min_value=2, max_value=60),
    ),
    "products": (
        "num_digits",
        {"sft": {}, "pool": {}},
        dict(min_terms=2, max_terms=2, min_digits=1, max_digits=2),
    ),
    "count_bits": ("n", {"sft": {}, "pool": {}}, dict(min_n=1, max_n=1023)),
}


def steps(rng, terms, hasty):
    """Lines `4 - 1 = <<4-1=3>>3` over signed numbers."""
    lines, total, rest = [], terms[0], terms[1:]
    while rest:
        size = min(len(rest), rng.randint(2, 5)) if hasty else 1
        lines.append(synthetic.write_step(total, rest[:size]))
        total += sum(rest[:size])
        rest = rest[size:]
    return lines, total


ORDER = ("chain_sum", "leg_counting", "chain_sum", "leg_counting", "chain_sum", "gcd", "count_bits")


def gym(kind, num):
    import hashlib
    import reasoning_gym
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    rng = random.Random(f"gym {kind}")
    side = "sft" if kind == "sft" else "pool"
    made = {
        name: iter(
            reasoning_gym.create_dataset(
                name, size=40 * num, seed=rng.randrange(2**31), **fixed, **knobs[side]
            )
        )
        for name, (_, knobs, fixed) in GYM.items()
    }
    seen = set()
    for turn in range(10**9):
        name = ORDER[turn % len(ORDER)]
        row = next(made[name], None)
        if row is None:
            continue
        q, meta = row["question"].strip(), row["metadata"]
        share = int.from_bytes(hashlib.sha256(q.encode()).digest()[:8], "big") / 2**64
        low, high = synthetic.SPLITS[KINDS[kind]]
        if name == "products" and int(row["answer"]) > 99:
            continue
        if not low <= share < high or q in seen:
            if len(seen) and turn > 400 * num:
                return
            continue
        seen.add(q)
        hasty = rng.random() < (0.7 if kind == "sft" else 0)
        if name == "chain_sum":
            parts = meta["expression"].split()
            terms = [int(parts[0])] + [int(a + b) for a, b in zip(parts[1::2], parts[2::2])]
            lines, _ = steps(rng, terms, hasty)
            knob = len(terms)
        elif name == "leg_counting":
            legs = [(n, count, ANIMALS[n]) for n, count in meta["animals"].items()]
            lines = (
                [f"{count} * {each} = {count * each}" for _, count, each in legs]
                if not hasty
                else []
            )
            lines += steps(rng, [c * e for _, c, e in legs], hasty)[0]
            knob = len(legs)
        else:
            lines, knob = [f"So it is {row['answer']}."], ""
        yield {
            "question": q,
            "answer": "\n".join([*lines, f"#### {row['answer']}"]),
            "band": f"{name} {knob}",
        }
        if len(seen) == num:
            return
