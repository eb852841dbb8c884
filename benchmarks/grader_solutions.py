"""What the grader refuses of human solutions, and what it accepts of other rows' golds.

    python -m benchmarks.grader_solutions DATA [--limit N] [--out file.json]

A solution that a person wrote is read as a completion, with its answer in a box: behind the last
sentence, on a line of its own, or in display mode there. Every verdict but "right" is a refusal to
look at. Every gold is then graded against itself, and as the answer to other questions: what is
accepted there is one value in two spellings, or a fault.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.table import about, markdown, tell
from data_prep.builder.filters import asks_for_proof
from data_prep.sources.base import is_sentinel
from grading.grade import grade_all
from pipeline.errors import UserError, run_cli
from pipeline.manifest import write_json
from pipeline.rows import read_rows

CHUNK, SEED, NUM_OTHERS = 20_000, 0, 40  # other rows' golds that each gold is held against
BOX = "\\boxed{%s}"
PLACES = {"last line": " %s", "own line": "\n%s", "display": "\n\\[ %s \\]"}
_NOTES = re.compile(r"<<[^<>\n]*>>")
_PLAIN = _INSIDE = r"[^{}\\]|\\."
for _ in range(6):  # braces in braces
    _INSIDE = rf"{_PLAIN}|\{{(?:{_INSIDE})*\}}"
_BOX = re.compile(rf"\\boxed\s*\{{((?:{_INSIDE})*)\}}", re.DOTALL)  # no code of the grader's own


class Case(NamedTuple):
    """A text to grade: its set and form, the question and the gold of its row."""

    set: str
    form: str
    question: str
    text: str
    gold: str


def unwrap(text: str, start: int = 0) -> str:
    """A text with the contents of its boxes in their places; with -1 of the last one alone."""
    for found in reversed([*_BOX.finditer(text)][start:]):
        text = text[: found.start()] + found[1] + text[found.end() :]
    return text


def with_box(name: str, question: str, text: str, gold: str) -> Iterator[Case]:
    """The solution with the answer's box in each of the three places."""
    for form, place in PLACES.items():
        yield Case(name, form, question, text.rstrip() + place % (BOX % gold), gold)


def gsm8k(data: Path) -> Iterator[Case]:
    for split in ("train", "test"):
        for _, row in read_rows(data / f"gsm8k/{split}.jsonl"):
            text, _, gold = _NOTES.sub("", row["answer"]).rpartition("####")
            yield from with_box(f"GSM8K {split}", row["question"], text, gold.strip())


def competition(data: Path) -> Iterator[Case]:
    files = {"MATH-500": "math500_test.jsonl", "MATH 4,500": "test_minus_math500_4500.jsonl.gz"}
    for name, file in files.items():
        for _, row in read_rows(data / "math" / file):
            question, text = row["problem"], row["solution"]
            gold = row.get("answer") or _BOX.findall(text)[-1]
            yield Case(name, "as it is", question, text, gold)
            yield from with_box(name, question, unwrap(text, -1), gold)


def numina(data: Path) -> Iterator[Case]:
    for _, row in read_rows(data / "numinamath_cot/numina_cot_2k.jsonl"):
        question, text = row["instruction"], row["response"]
        gold = boxes[-1].strip() if (boxes := _BOX.findall(text)) else ""
        is_value = gold and "\\boxed" not in gold and not is_sentinel(gold)
        if is_value and not asks_for_proof(question):
            yield Case("NuminaMath", "as it is", question, text, gold)
            yield from with_box("NuminaMath", question, unwrap(text), gold)


def other_golds(data: Path) -> Iterator[Case]:
    """The golds of the sets without solutions."""
    for file in ("orz_math_57k_collected", "orz_math_72k_collection_extended"):
        for _, row in read_rows(data / f"orz/{file}.head.json"):
            asked, told = row["conversations"]
            gold = told["ground_truth"]["value"].strip()
            yield Case("ORZ", "gold", asked["value"], BOX % gold, gold)
    for _, row in read_rows(data / "deepscaler/deepscaler_preview_1209.jsonl.gz"):
        gold = row["answer"].strip()
        yield Case("DeepScaleR", "gold", row["problem"], BOX % gold, gold)


def first(cases: Iterable[Case], limit: int | None) -> Iterator[Case]:
    """The cases of the first `limit` rows of each set."""
    seen: Counter[tuple[str, str]] = Counter()
    for case in cases:
        seen[case.set, case.form] += 1
        if limit is None or seen[case.set, case.form] <= limit:
            yield case


def others_golds(golds: list[Case]) -> list[Case]:
    """Each gold as the answer to some other rows, of all sets, whose golds differ as text."""
    rng, pairs = random.Random(SEED), []
    for gold in golds:
        drawn = rng.sample(golds, min(len(golds), NUM_OTHERS + 20))
        others = [other for other in drawn if other.gold != gold.gold][:NUM_OTHERS]
        pairs += [Case(o.set, "other's", o.question, gold.text, o.gold) for o in others]
    return list(dict.fromkeys(pairs))


def grade_cases(cases: list[Case]) -> Iterator[dict[str, Any]]:
    """Each case with its verdict, in order; of its text the end."""
    for at in range(0, len(cases), CHUNK):
        part = cases[at : at + CHUNK]
        completions = [f"<think>\nso\n</think>\n\n{case.text}" for case in part]
        graded = grade_all(completions, [c.gold for c in part], [c.question for c in part])
        for case, one in zip(part, graded, strict=True):
            row = case._asdict() | {"text": case.text[-300:], "verdict": one.verdict}
            yield row | {"prediction": one.prediction}
        tell(f"{at + len(part):,} of {len(cases):,} graded")


def count(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """A row of the table for each set and form: recall, and how many have each other verdict."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        found.setdefault((row["set"], row["form"]), Counter())[row["verdict"]] += 1
    verdicts, table = sorted(set().union(*found.values()) - {"right"}), []
    for (name, form), counts in found.items():
        recall = f"{100 * counts['right'] / counts.total():.2f}"
        cells = {"set": name, "form": form, "rows": f"{counts.total():,}", "recall, %": recall}
        table.append(cells | {verdict: str(counts[verdict]) for verdict in verdicts})
    return table


def _refuse(message: str) -> None:
    raise UserError(f"command line: {message}; see --help")


def main(argv: list[str] | None = None) -> None:
    """Grade solutions, golds and pairs of golds; print the tables, write what to look at."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.error = _refuse  # argparse would print its usage as well
    parser.add_argument("data", type=Path, help="the folder of the sets")
    parser.add_argument("--limit", type=int, help="rows of a set")
    parser.add_argument("--out", type=Path, help="JSON for what is refused, and what is accepted")
    args = parser.parse_args(argv)
    if args.limit is not None and args.limit < 1:
        raise UserError(f"command line: --limit {args.limit}: must be 1 or more")
    if not (args.data / "gsm8k").is_dir():
        raise UserError(f"{args.data}: has no folder gsm8k; give the folder of the sets")
    solutions = chain(gsm8k(args.data), competition(args.data), numina(args.data))
    cases = [*first(solutions, args.limit)]
    golds = [case._replace(form="gold", text=BOX % case.gold) for case in cases]
    golds = [case for case in dict.fromkeys(golds) if not case.set.startswith("GSM8K")]
    golds += first(other_golds(args.data), args.limit)
    graded, pairs = [*grade_cases(cases + golds)], others_golds(golds)
    accepted = [row for row in grade_cases(pairs) if row["verdict"] == "right"]
    table, totals = count(graded), Counter(row["verdict"] for row in graded)
    tell(f"\n{markdown(table)}\n\nVerdicts on solutions and golds: {dict(totals)}")
    tell(f"Another row's gold: {len(accepted)} of {len(pairs):,} pairs are accepted")
    if args.out:
        made = {"about": about(), "table": table, "verdicts": totals, "pairs": len(pairs)}
        made["refused"] = [row for row in graded if row["verdict"] != "right"]
        write_json(args.out, made | {"accepted": accepted})
        tell(f"{args.out} is written")


if __name__ == "__main__":
    run_cli(main)
