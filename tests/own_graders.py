"""Two tasks that are no mathematics, each with a grader of the user's own."""

import json
import re
from pathlib import Path

from tests.files import write_rows

PAGE = Path(__file__).resolve().parents[1] / "docs/grader.md"
JSON = re.search(r"```python\n(# records\.py.*?)```", PAGE.read_text("utf-8"), re.S)[1]
CODE = """
import ast

import numpy as np

def is_correct(text, answers):
    given = text.partition("<answer>")[2].partition("</answer>")[0]
    try:
        value = ast.literal_eval(given.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return np.bool_(False)
    return np.bool_(any(value == ast.literal_eval(answer) for answer in answers))
"""
SOURCES = {"json": JSON, "code": CODE}


def problem(kind: str, number: int) -> dict[str, str]:
    """A question, its worked solution and its gold, which our grammar would read otherwise."""
    if kind == "json":
        gold = json.dumps({"n": number, "tags": ["b", "a"], "old": None})
    else:
        gold = f"['x', {number}, {{'k': -{number}}}]"
    question = f"Write record {number} as {kind}."
    return {"question": question, "answer": gold, "steps": f"The number is {number}."}


def write_task(folder: Path, kind: str, **sets: range) -> dict[str, list[dict]]:
    """Write `<kind>_grader.py` and a file for each set; returns the lists of data.yaml."""
    (folder / f"{kind}_grader.py").write_text(SOURCES[kind], encoding="utf-8")
    lists = {}
    for name, numbers in sets.items():
        path = folder / f"{kind}_{name}.jsonl"
        write_rows(path, [problem(kind, number) for number in numbers])
        source = {"name": "generic", "file": str(path), "prompt_key": "question"}
        source |= {"answer_key": "answer", "solution_key": "steps"}
        lists[name] = [source]
    return lists
