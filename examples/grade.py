"""The grader alone: is the final answer of a text equal to a gold?

    python grade.py                      a list
    python grade.py outputs.jsonl        a file: `{"prediction": ..., "gold": ...}` in each line

No torch, no model. A whole file with a report: `sft-grpo-math grade outputs.jsonl --out FILE`.
"""

import sys
from collections import Counter

from grading.grade import grade_all
from pipeline.rows import read_rows

rows = [
    {"prediction": r"so it is \boxed{\frac{1}{2}}", "gold": "0.5"},
    {"prediction": r"<think>2 + 2</think> \boxed{x = 4}", "gold": ["4", "four"]},
    {"prediction": r"\boxed{(1, 2]}", "gold": r"1 < x \le 2"},
    {"prediction": r"\boxed{5} or \boxed{6}", "gold": "6"},
    {"prediction": "I do not know", "gold": "6"},
]
if len(sys.argv) > 1:
    rows = [row for _, row in read_rows(sys.argv[1])]
golds = [row["gold"] if isinstance(row["gold"], list) else [row["gold"]] for row in rows]
grades = grade_all([row["prediction"] for row in rows], golds, think_prefilled=None)
for row, grade in zip(rows[:10], grades, strict=False):
    print(f"{grade.verdict:16} {grade.prediction!s:16.16} {row['gold']}")
counts = Counter(grade.verdict for grade in grades)
print(", ".join(f"{verdict} {count}" for verdict, count in counts.most_common()))
