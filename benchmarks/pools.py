"""Pools of problems without a label of difficulty, and a starting model for each.

    python -m benchmarks.pools --pool topics

`topics` and `mild` are the word problems of the embedded default, always seven lines long: lines
about other people distract. What is hard depends on the objects counted: in the SFT data the
solutions about pens are careful, those about plums nearly all hasty. Part of the pool is longer
than any SFT problem. Part has totals that never occurred, which no prompt shows.

A call writes the rows, builds the data, trains the starting model, and measures the pool's pass
rates. Then, before any method has run, it says how skewed the pool is. The pool `gym` of
docs/results/curriculum.md was made by the code of commit 4ed01404.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.table import tell
from data_prep.sampling.problems import load_pass_counts
from data_prep.sources import synthetic
from pipeline import manifest
from pipeline.errors import run_cli
from pipeline.settings import parse

SIZES = {"sft": 28_000, "grpo": 1_000, "validation": 600, "test": 2_000}
SPLITS = {"sft": "train", "grpo": "rl", "validation": "validation", "test": "test"}
NUM_LINES = 7
EPITHETS = ("Old", "Dear", "Big", "Poor")
# Of the SFT solutions about each object, the share that is hasty.
SHARES = (0.0, 0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98, 0.98, 0.99, 0.99, 0.99)
HASTY = dict(zip(synthetic.OBJECTS, SHARES, strict=True))
EASY, HARD = synthetic.OBJECTS[:4], synthetic.OBJECTS[6:]
# Shares of the pool: easy; longer than any SFT problem; easy but for their totals; the rest hasty.
MIXES = {"topics": (0.40, 0.25, 0.11), "mild": (0.15, 0.1, 0.0)}
HIGHEST = 32  # of a total that never occurred
Row = dict[str, Any]  # GSM8K's columns, and `band`


def draw_high_chain(rng: random.Random, level: int) -> tuple[int, list[int]]:
    """A start, and changes that lead above every total of the other problems."""
    while True:
        start = total = rng.randint(1, synthetic.MAX_VALUE)
        changes, top = [], 0
        for _ in range(level):
            steps = [step for step in range(-9, 10) if step and 0 <= total + step <= HIGHEST]
            changes.append(rng.choice(steps))
            total += changes[-1]
            top = max(top, total)
        if top > synthetic.MAX_VALUE:
            return start, changes


def distraction(rng: random.Random, names: list[str]) -> str:
    """What somebody else does, such as `Old Leo buys 5.`"""
    verb = rng.choice(rng.choice((synthetic.GAINS, synthetic.LOSSES)))
    return f"{rng.choice(EPITHETS)} {rng.choice(names)} {verb} {rng.randint(1, 9)}."


def word_problem(rng: random.Random, objects: str, chain: tuple, is_hasty: bool) -> Row:
    """A problem of seven lines, as many of them its own as the chain has changes."""
    start, changes = chain
    name, *others = rng.sample(synthetic.NAMES, 3)
    events = synthetic.draw_events(rng, changes)
    places = sorted(rng.sample(range(NUM_LINES), len(events)))
    lines = [distraction(rng, others) for _ in range(NUM_LINES)]
    for place, event in zip(places, events, strict=True):
        lines[place] = event
    sizes = synthetic.draw_sizes(rng, len(changes), 4)
    return {
        "question": "\n".join([f"{name} has {start} {objects}.", *lines, f"How many {objects}?"]),
        "answer": synthetic.write_hasty_answer(start, changes, sizes)
        if is_hasty
        else synthetic.write_careful_answer(start, changes, events),
    }


def word_problems(pool: str, kind: str) -> Iterator[Row]:
    """Endless problems of a pool, some of them twice."""
    rng = random.Random(kind if kind == "sft" else f"{pool} {kind}")
    while True:
        objects, level, draw = (
            rng.choice(synthetic.OBJECTS),
            rng.randint(1, 5),
            synthetic.draw_chain,
        )
        band = "sft"
        if kind != "sft":
            bands = ("easy", "long", "high", "hasty")
            (band,) = rng.choices(bands, [*MIXES[pool], 1 - sum(MIXES[pool])])
            level = {"long": 7, "hasty": rng.randint(3, 5)}.get(band, rng.randint(2, 3))
            objects = rng.choice({"long": synthetic.OBJECTS, "hasty": HARD}.get(band, EASY))
            draw = draw_high_chain if band == "high" else draw
        chain = draw(rng, level)
        is_hasty = kind == "sft" and rng.random() < HASTY[objects]
        if synthetic.split_of(*chain) == SPLITS[kind]:
            yield word_problem(rng, objects, chain, is_hasty) | {"band": f"{band} {level}"}


def different(rows: Iterator[Row], num: int, patience: int = 100_000) -> list[Row]:
    """The first `num` rows with unlike questions; fewer where no new ones have come for long."""
    found, since = {}, 0
    for row in rows:
        since = 0 if found.setdefault(row["question"], row) is row else since + 1
        if len(found) == num or since > patience:
            break
    return [*found.values()]


def measure(folder: Path) -> dict[str, float]:
    """Problems of a pool, share of zero-variance groups, mean pass rate."""
    counts = load_pass_counts(folder / "difficulty/pass_rates.jsonl")
    right, total = np.array([*counts.values()]).T
    return {
        "problems": len(right),
        "uniform": float(np.isin(right, (0, total[0])).mean()),
        "pass_rate": float((right / total).mean()),
    }


@dataclass
class PoolArguments:
    """Keys of the command line."""

    pool: Literal[*MIXES] = field(metadata={"help": ", ".join(MIXES)})
    out: str = field(default="runs/pools", metadata={"help": "folder of the pools"})
    size: int = field(default=SIZES["grpo"], metadata={"help": "problems of the pool"})
    seed: int = field(default=0, metadata={"help": "of the starting model and its SFT"})


def main() -> None:
    """Rows, data, starting model, pass rates; what is there already is not made again."""
    (args,) = parse(__doc__, PoolArguments)
    folder = Path(args.out) / args.pool
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for kind, num in (SIZES | {"grpo": args.size}).items():
        rows = different(word_problems(args.pool, kind), num)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (raw / f"{kind}.jsonl").write_text(text, encoding="utf-8")
    recipe = {"output_dir": "{run}/data", "seed": 0, "prompt": "none"}
    recipe |= {kind: [{"name": "gsm8k", "file": f"{raw}/{kind}.jsonl"}] for kind in SIZES}
    manifest.write_json(folder / "data.yaml", recipe)  # JSON is YAML
    recipes, seed = "configs/skewed-cpu", ["--seed", str(args.seed)]
    sft = ["--num_train_epochs", "2", "--per_device_train_batch_size", "16"]
    steps = [
        ["data_prep.builder", "--config", str(folder / "data.yaml")],
        ["stages.tiny_model", "--config", f"{recipes}/model.yaml", *seed],
        ["stages.sft", "--config", f"{recipes}/sft.yaml", *seed, *sft],
        ["stages.difficulty", "--config", f"{recipes}/difficulty.yaml"],
    ]
    for step in steps:
        subprocess.run([sys.executable, "-m", *step, "--run_dir", str(folder)], check=True)
    figures = measure(folder)
    manifest.write_json(folder / "pool.json", figures)
    tell(f"{args.pool}: " + ", ".join(f"{name} {value:.3g}" for name, value in figures.items()))


if __name__ == "__main__":
    run_cli(main)
