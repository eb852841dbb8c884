"""The messages that docs/trouble.md and docs/evaluation.md name are in the code."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pipeline", "grading", "data_prep", "stages", "eval")


def messages():
    """Every text of the code, with a mark where a value is put in."""
    found = []
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    texts = [
                        part.value if isinstance(part, ast.Constant) else "…"
                        for part in node.values
                    ]
                    found.append("".join(map(str, texts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def test_the_messages_of_the_pages_exist():
    page = (ROOT / "docs/trouble.md").read_text(encoding="utf-8")
    evaluation = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    page += evaluation.partition("### The audit failed")[2].partition("\n## ")[0]
    symptoms = re.findall(r"^\|([^|]+)\|", page, re.M)
    quoted = [text for symptom in symptoms for text in re.findall(r"`([^`]+)`", symptom)]
    parts = {part.strip(" '") for text in quoted for part in text.split("…")}
    parts = {part for part in parts if len(part.split()) > 2 and not part.startswith("make ")}
    known = messages()
    assert len(parts) > 10
    assert {part for part in parts if not any(part in text for text in known)} == set()
