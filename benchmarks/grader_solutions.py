"""What the grader refuses of human solutions, and what it accepts of other rows' golds.

    python -m benchmarks.grader_solutions [--limit N] [--data ../shared/data] [--out file.json]

A solution that a person wrote is read as a completion, with its answer in a box: behind the last
sentence, on a line of its own, or in display mode there. Every verdict but "right" is a refusal to
look at. Every gold is then graded against itself, and as the answer to other questions: what is
accepted there is one value in two spellings, or a fault.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.table import about, markdown, tell
from data_prep.build.filters import asks_for_proof
from data_prep.sources.base import is_sentinel
from grading.grade import grade_all
from pipeline.errors import run_cli
from pipeline.manifest import write_json
from pipeline.rows import read_rows

CHUNK, SEED = 8_000, 0
NUM_OTHERS = 40  # golds of other rows that each gold is held against
AS_IS = "as it is"
PLACES = {
    "last line": " \\boxed{%s}",
    "own line": "\n\\boxed{%s}",
    "display": "\n\\[ \\boxed{%s} \\]",
}
_NOTES = re.compile(r"<<[^<>\n]*>>")
_BOX = re.compile(r"\\boxed\s*\{")


class Case(NamedTuple):
    """A text to grade: its set and form, the question and the gold of its row."""

    set: str
    form: str
    question: str
    text: str
    gold: str


def find_boxes(text: str) -> list[tuple[int, int, str]]:
    """(start, end, content) of every balanced outermost box; no code of the grader's own."""
    found: list[tuple[int, int, str]] = []
    for box in _BOX.finditer(text):
        depth, at = 1, box.end()
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1 + (text[at] == "\\")  # an escaped brace is print
        if not depth and not (found and box.start() < found[-1][1]):
            found.append((box.start(), at, text[box.end() : at - 1]))
    return found


def unwrap(text: str, num: int | None = None) -> str:
    """A text with the contents of its last `num` boxes, or of all, in their places."""
    for start, end, content in find_boxes(text)[::-1][:num]:
        text = text[:start] + content + text[end:]
    return text


def put_box(name: str, question: str, text: str, gold: str) -> Iterator[Case]:
    """The solution with the answer's box in each of the three places."""
    for form, box in PLACES.items():
        yield Case(name, form, question, text.rstrip() + box % gold, gold)


def gsm8k(data: Path) -> Iterator[Case]:
    for split in ("train", "test"):
        for _, row in read_rows(data / f"gsm8k/{split}.jsonl"):
            text, _, gold = _NOTES.sub("", row["answer"]).rpartition("####")
            yield from put_box(f"GSM8K {split}", row["question"], text, gold.strip())


def hendrycks(data: Path) -> Iterator[Case]:
    files = {"MATH-500": "math500_test.jsonl", "MATH 4,500": "test_minus_math500_4500.jsonl.gz"}
    for name, file in files.items():
        for _, row in read_rows(data / "math" / file):
            question, text = row["problem"], row["solution"]
            gold = row.get("answer") or find_boxes(text)[-1][2]
            yield Case(name, AS_IS, question, text, gold)
            yield from put_box(name, question, unwrap(text, 1), gold)


def numina(data: Path) -> Iterator[Case]:
    for _, row in read_rows(data / "numinamath_cot/numina_cot_2k.jsonl"):
        question, text = row["instruction"], row["response"]
        gold = boxes[-1][2].strip() if (boxes := find_boxes(text)) else ""
        if gold and not is_sentinel(gold) and not asks_for_proof(question):
            yield Case("NuminaMath", AS_IS, question, text, gold)
            yield from put_box("NuminaMath", question, unwrap(text), gold)


def other_golds(data: Path) -> Iterator[Case]:
    """The golds of the sets without solutions."""
    rows = [("ORZ", row["conversations"]) for path in sorted((data / "orz").glob("*.json"))
            for _, row in read_rows(path)]  # fmt: skip
    found = [(name, human["value"], told["ground_truth"]["value"]) for name, (human, told) in rows]
    for _, row in read_rows(data / "deepscaler/deepscaler_preview_1209.jsonl.gz"):
        found.append(("DeepScaleR", row["problem"], row["answer"]))
    for name, question, gold in found:
        yield as_answer(name, "gold", question, gold.strip(), gold.strip())


def as_answer(name: str, form: str, question: str, answer: str, gold: str) -> Case:
    return Case(name, form, question, f"\\boxed{{{answer}}}", gold)


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
        others = rng.sample(golds, min(len(golds), NUM_OTHERS + 20))
        others = [other for other in others if other.gold != gold.gold][:NUM_OTHERS]
        pairs += [as_answer(o.set, "other's", o.question, gold.gold, o.gold) for o in others]
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
    verdicts = sorted(set().union(*found.values()) - {"right"})
    table = []
    for (name, form), counts in found.items():
        cells = {"set": name, "form": form, "rows": f"{counts.total():,}"}
        cells["recall, %"] = f"{100 * counts['right'] / counts.total():.2f}"
        table.append(cells | {verdict: str(counts[verdict]) for verdict in verdicts})
    return table


def main() -> None:
    """Grade solutions, golds and pairs of golds; print the tables, write what to look at."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=int, help="rows of a set")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, help="JSON for what is refused, and what is accepted")
    args = parser.parse_args()
    readers: tuple[Callable[[Path], Iterator[Case]], ...] = (gsm8k, hendrycks, numina)
    cases = [case for read in readers for case in first(read(args.data), args.limit)]
    rows = [c for c in cases if c.form == "own line" and not c.set.startswith("GSM8K")]
    golds = [as_answer(c.set, "gold", c.question, c.gold, c.gold) for c in rows]
    golds += first(other_golds(args.data), args.limit)
    graded, pairs = list(grade_cases(cases + golds)), others_golds(golds)
    accepted = [row for row in grade_cases(pairs) if row["verdict"] == "right"]
    table, totals = count(graded), Counter(row["verdict"] for row in graded)
    tell(f"\n{markdown(table)}\n\nVerdicts on solutions and golds: {dict(totals)}")
    tell(f"Another row's gold: {len(accepted)} of {len(pairs):,} pairs are accepted")
    if args.out:
        refused = [row for row in graded if row["verdict"] != "right"]
        made = {"about": about(), "table": table, "verdicts": totals, "refused": refused}
        write_json(args.out, made | {"pairs": len(pairs), "accepted": accepted})
        tell(f"{args.out} is written")


if __name__ == "__main__":
    run_cli(main)
