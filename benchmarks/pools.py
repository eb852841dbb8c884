"""Pools of problems without a label of difficulty, and a starting model for each.

    python -m benchmarks.pools --pool topics
    python -m benchmarks.pools --pool mild --start runs/pools/topics
    python -m benchmarks.pools --pool gym

`topics` and `mild` are the word problems of the embedded default, always seven lines long: lines
about other people distract. What is hard depends on the objects counted: in the SFT data the
solutions about pens are careful, those about plums nearly all hasty. Part of the pool is longer
than any SFT problem. Part has totals that never occurred, which no prompt shows.

`gym` mixes four generators of reasoning-gym (Apache-2.0, github.com/open-thought/reasoning-gym).
Install it with `pip install reasoning-gym==0.1.25`, in an environment of its own where its pillow
is not ours.

A call writes the rows, builds the data, trains the starting model, and measures pass rates on pool
and test set. Then, before any method has run, it says how skewed the pool is. It also says what
share of the variance of the pass rates the curriculum's features explain (ridge regression, five
folds).
"""

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.table import tell
from data_prep.sampling.problems import load_pass_counts
from data_prep.schema import question_of, read_problems
from data_prep.sources import synthetic
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.settings import parse

SIZES = {"sft": 28_000, "grpo": 1_000, "test": 2_000}
SPLITS = {"sft": "train", "grpo": "rl", "test": "test"}
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


# Generator -> keys of the SFT problems, and what the pool's change.
GYM: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "chain_sum": (
        {"min_terms": 2, "max_terms": 5, "min_digits": 1, "max_digits": 1},
        {"max_terms": 6},
    ),
    "leg_counting": (
        {"min_animals": 1, "max_animals": 4, "min_instances": 1, "max_instances": 3},
        {"max_animals": 5},
    ),
    "gcd": ({"min_numbers": 2, "max_numbers": 2, "min_value": 2, "max_value": 60}, {}),
    "count_bits": ({"min_n": 1, "max_n": 1023}, {}),
}
TURNS = ("chain_sum", "leg_counting", "chain_sum", "leg_counting", "chain_sum", "gcd", "count_bits")
GYM_HASTY = 0.7  # share of the SFT solutions of sums


def solve_gym(rng: random.Random, name: str, item: Row, is_hasty: bool) -> tuple[list[str], int]:
    """Lines of a solution, and how large the problem is."""
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    meta, lines = item["metadata"], []
    if name == "chain_sum":
        first, *rest = meta["expression"].split()
        signs, sizes = rest[::2], rest[1::2]
        terms = [int(first), *(int(s + n) for s, n in zip(signs, sizes, strict=True))]
    elif name == "leg_counting":
        legs = [(count, ANIMALS[animal]) for animal, count in meta["animals"].items()]
        lines = [] if is_hasty else [f"{n} * {each} = {n * each}" for n, each in legs]
        terms = [n * each for n, each in legs]
    else:
        return [f"So it is {item['answer']}."], 0
    num, total = len(terms), terms.pop(0)
    while terms:
        size = min(len(terms), rng.randint(2, 5)) if is_hasty else 1
        lines.append(synthetic.write_step(total, terms[:size]))
        total += sum(terms[:size])
        del terms[:size]
    return lines, num


def gym_problems(pool: str, kind: str) -> Iterator[Row]:
    """Problems of reasoning-gym, until every generator has come to its end."""
    try:
        import reasoning_gym
    except ImportError:
        raise UserError("pool: gym needs the package reasoning-gym==0.1.25") from None
    rng = random.Random(f"gym {kind}")
    made = {}
    for name, (keys, changes) in GYM.items():
        keys = keys if kind == "sft" else keys | changes
        data = reasoning_gym.create_dataset(name, size=800_000, seed=rng.randrange(2**31), **keys)
        made[name] = iter(data)
    low, high = synthetic.SPLITS[SPLITS[kind]]
    for turn in range(len(TURNS) * 800_000):
        name = TURNS[turn % len(TURNS)]
        item = next(made[name])
        question = item["question"].strip()
        place = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big") / 2**64
        if low <= place < high:
            lines, num = solve_gym(rng, name, item, kind == "sft" and rng.random() < GYM_HASTY)
            answer = "\n".join([*lines, f"#### {item['answer']}"])
            yield {"question": question, "answer": answer, "band": f"{name} {num or ''}".strip()}


POOLS: dict[str, Callable[[str, str], Iterator[Row]]] = {
    "topics": word_problems,
    "mild": word_problems,
    "gym": gym_problems,
}


def different(rows: Iterator[Row], num: int, patience: int = 100_000) -> list[Row]:
    """The first `num` rows with unlike questions; fewer where no new ones have come for long."""
    found, since = {}, 0
    for row in rows:
        since = 0 if found.setdefault(row["question"], row) is row else since + 1
        if len(found) == num or since > patience:
            break
    return [*found.values()]


def explained(features: np.ndarray, rates: np.ndarray, penalty: float = 10.0) -> float:
    """Share of the variance of pass rates, (N,), that features, (N, D), explain on unseen folds."""
    folds = np.random.default_rng(0).integers(0, 5, len(rates))
    with_constant = np.hstack([np.ones((len(rates), 1)), features])
    found = np.zeros(len(rates))
    for fold in range(5):
        x, y = with_constant[folds != fold], rates[folds != fold]
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
        found[folds == fold] = with_constant[folds == fold] @ weights
    return float(1 - ((rates - found) ** 2).sum() / ((rates - rates.mean()) ** 2).sum())


def read_pool(folder: Path, num_components: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Components of the prompts of a pool, (N, num), and right ones of all samples, (N,) each."""
    from types import SimpleNamespace

    from accelerate import Accelerator
    from transformers import AutoModelForCausalLM

    from stages.trainer.prompt_states import principal_components, prompt_states

    rows = list(read_problems(folder / "data/grpo_train.jsonl"))
    counts = load_pass_counts(folder / "difficulty/pass_rates.jsonl")
    right, total = np.array([counts[row["id"]] for row in rows]).T
    model = AutoModelForCausalLM.from_pretrained(folder / "sft")
    trainer = SimpleNamespace(
        accelerator=Accelerator(cpu=True), model=model, model_wrapped=model,
        processing_class=load_tokenizer(str(folder / "sft"), "sft"),
        train_dataset={"prompt": [row["prompt"] for row in rows]},
    )  # fmt: skip
    components, *_ = principal_components(prompt_states(trainer, range(len(rows))), num_components)
    return components, right, total


def measure(folder: Path) -> dict[str, float]:
    """Share of uniform groups of 8, and what components and question length explain."""
    components, right, total = read_pool(folder, 16)
    rows = read_problems(folder / "data/grpo_train.jsonl")
    lengths = np.array([[len(question_of(row))] for row in rows], dtype=float)
    lengths = (lengths - lengths.mean()) / (lengths.std() + 1e-9)
    return {
        "problems": len(right),
        "uniform": float(np.isin(right, (0, total[0])).mean()),
        "pass_rate": float((right / total).mean()),
        "components_r2": explained(components, right / total),
        "length_r2": explained(lengths, right / total),
    }


@dataclass
class PoolArguments:
    """Keys of the command line."""

    pool: Literal[*POOLS] = field(metadata={"help": ", ".join(POOLS)})
    out: str = field(default="runs/pools", metadata={"help": "folder of the pools"})
    start: str = field(default="", metadata={"help": "pool whose starting model is used too"})
    size: int = field(default=SIZES["grpo"], metadata={"help": "problems of the pool"})
    sft_batch: int = field(default=16, metadata={"help": "rows of an SFT step"})
    sft_epochs: int = field(default=2, metadata={"help": "epochs of SFT"})
    seed: int = field(default=0, metadata={"help": "of the starting model and its SFT"})


def main() -> None:
    """Rows, data, starting model, pass rates; what is there already is not made again."""
    (args,) = parse(__doc__, PoolArguments)
    folder = Path(args.out) / args.pool
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for kind, num in (SIZES | {"grpo": args.size}).items():
        rows = different(POOLS[args.pool](args.pool, kind), num)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (raw / f"{kind}.jsonl").write_text(text, encoding="utf-8")
    recipe = {"output_dir": "{run}/data", "seed": 0, "prompt": "none"}
    recipe |= {kind: [{"name": "gsm8k", "file": f"{raw}/{kind}.jsonl"}] for kind in SIZES}
    manifest.write_json(folder / "data.yaml", recipe)  # JSON is YAML
    if args.start and not (folder / "sft").exists():
        (folder / "sft").symlink_to(Path(args.start, "sft").resolve())
    recipes = "configs/skewed-cpu"
    steps = [["data_prep.builder", "--config", str(folder / "data.yaml")]]
    if not args.start:
        seed = ["--seed", str(args.seed)]
        steps.append(["stages.tiny_model", "--config", f"{recipes}/model.yaml", *seed])
        keys = {"num_train_epochs": args.sft_epochs, "per_device_train_batch_size": args.sft_batch}
        keys = seed + [word for key, value in keys.items() for word in (f"--{key}", str(value))]
        steps.append(["stages.sft", "--config", f"{recipes}/sft.yaml", *keys])
    steps.append(["stages.difficulty", "--config", f"{recipes}/difficulty.yaml"])
    where = ["--problems_file", f"{folder}/data/test.jsonl"]
    steps.append([*steps[-1], *where, "--output_dir", f"{folder}/test_difficulty"])
    for step in steps:
        subprocess.run([sys.executable, "-m", *step, "--run_dir", str(folder)], check=True)
    figures = measure(folder)
    manifest.write_json(folder / "pool.json", figures)
    tell(f"{args.pool}: " + ", ".join(f"{name} {value:.3g}" for name, value in figures.items()))


if __name__ == "__main__":
    run_cli(main)
