"""False accepts and recall of the grader on generated rows: one table for each class of mistake.

    python -m benchmarks.grader_classes [--tree DIR] [--seed N] [--rows N] [--classes F1,F2]
        [--failures FILE]

The rows are drawn in `grader_rows.py` (false accepts) and `grader_rows_lost.py` (right answers that
are easily lost); those on which two mathematicians could differ are left out. `--tree` grades the
same rows with another checkout too, each in a process of its own.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import grader_rows_lost  # noqa: F401 (enters its classes)
from benchmarks.grader_rows import CLASSES, Random
from benchmarks.table import markdown, tell
from pipeline.errors import run_cli
from pipeline.settings import parse

WHOLE = {"F12", "boxes", "final"}  # the prediction is a text, not what is in a box
SENTENCES = (
    r"So the answer is $\boxed{%s}$.", r"Therefore, we get \[\boxed{%s}\]", r"\boxed{%s}",
    "Putting it together:\n\n$$\\boxed{%s}$$", r"**Final answer:** $\boxed{%s}$",
    r"The final answer is: $\boxed{%s}$. I hope it is correct.", r"Answer: \(\boxed{%s}\)",
)  # fmt: skip
# Runs in the tree that it grades with: rows on standard input, verdicts on standard output.
GRADE = r"""
import inspect, json, os, sys
if __name__ == "__main__":
    # An installed checkout lends its modules to one that lacks them: no trying of imports.
    if os.path.exists("data_prep/answers.py"):
        from data_prep.answers import grade_all
    else:
        from grading.grade import grade_all
    assert os.path.realpath(inspect.getfile(grade_all)).startswith(os.path.realpath(".") + "/")
    rows, found = json.load(sys.stdin), {}
    takes_questions = "questions" in inspect.signature(grade_all).parameters
    for final in (False, True):
        mine = [row for row in rows if row["final_number"] == final]
        more = {"questions": [row["question"] for row in mine]} if takes_questions else {}
        texts, golds = [row["completion"] for row in mine], [row["gold"] for row in mine]
        found[final] = iter(grade_all(texts, golds, final_number=final, **more))
    json.dump([next(found[row["final_number"]]).verdict for row in rows], sys.stdout)
"""


@dataclass
class ClassesArguments:
    """Keys of the command line, or of a YAML file."""

    tree: str | None = field(default=None, metadata={"help": "another checkout to grade with"})
    seed: int = field(default=0, metadata={"help": "of the rows"})
    rows: int = field(default=1200, metadata={"help": "of a class, at least"})
    classes: str | None = field(default=None, metadata={"help": "some of them: F1,F2"})
    failures: str | None = field(default=None, metadata={"help": "JSON lines file to write"})


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to grade."""

    cls: str
    kind: str
    prediction: str
    gold: str
    right: bool
    question: str
    completion: str
    final_number: bool


def make_rows(name: str, seed: int, num: int) -> list[Row]:
    """At least `num` different rows of a class; what follows from the class and the seed only."""
    rng, rows = Random(f"{name} {seed}"), {}
    while len(rows) < num:
        for kind, prediction, gold, right, *question in CLASSES[name][1](rng):
            text = prediction if name in WHOLE else rng.choice(SENTENCES) % prediction
            thought = rng.choice(("Let me work this out.", "First, I look at what is given."))
            completion = f"<think>\n{thought}\n</think>\n\n{text}"
            asked = question[0] if question else ""
            row = Row(name, kind, prediction, gold, right, asked, completion, name == "final")
            rows.setdefault((prediction, gold, asked), row)
    return list(rows.values())


def grade_rows(rows: list[Row], tree: Path) -> list[str]:
    """The verdicts of the checkout in `tree`."""
    run = subprocess.run(
        [sys.executable, "-c", GRADE], input=json.dumps([asdict(row) for row in rows]),
        env=os.environ | {"PYTHONPATH": str(tree)}, cwd=tree, text=True, capture_output=True,
        check=True,
    )  # fmt: skip
    return json.loads(run.stdout)


def main() -> None:
    """Draw the rows, grade them, print the table."""
    (args,) = parse(__doc__, ClassesArguments)
    names = args.classes.split(",") if args.classes else [*CLASSES]
    rows = [row for name in names for row in make_rows(name, args.seed, args.rows)]
    trees = {"": Path(__file__).parents[1]} | ({args.tree: Path(args.tree)} if args.tree else {})
    verdicts = {label: grade_rows(rows, tree) for label, tree in trees.items()}
    lines = []
    for name in names:
        at = [i for i, row in enumerate(rows) if row.cls == name]
        right = [i for i in at if rows[i].right]
        line = {"class": name, "about": CLASSES[name][0], "rows": f"{len(at):,}"}
        line["right"] = f"{len(right):,}"
        for label, found in verdicts.items():
            paid = [i for i in at if found[i] == "right"]
            of = f", {Path(label).name}" if label else ""
            line[f"false accepts{of}"] = f"{sum(not rows[i].right for i in paid):,}"
            line[f"recall{of}"] = f"{sum(rows[i].right for i in paid) / len(right):.3f}"
        lines.append(line)
    tell(markdown(lines))
    if args.failures:
        with open(args.failures, "w", encoding="utf-8") as file:
            for row, verdict in zip(rows, verdicts[""], strict=True):
                if (verdict == "right") != row.right:
                    file.write(json.dumps(asdict(row) | {"verdict": verdict}) + "\n")


if __name__ == "__main__":
    run_cli(main)
