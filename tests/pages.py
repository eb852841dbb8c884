"""The pages that a reader opens, and what is in them: commands, headings, tables, sentences."""

import ast
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.recipes import SCORING, SHIPPED

ROOT = Path(__file__).resolve().parents[1]
RESULTS = sorted((ROOT / "docs/results").glob("*.md"))
DOCS = sorted((ROOT / "docs").glob("*.md"))
RECIPES = [ROOT / "configs" / name / "README.md" for name in (*SHIPPED, *SCORING)]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS, *RESULTS, *RECIPES]
TOOLS = (
    "make|python3?|sft-grpo-math|accelerate|vllm|pip|sbatch|tensorboard|trackio|curl|cp|git|hf|trl"
    "|wandb|docker|ray|torchrun|deepspeed|wget|bash|nvidia-smi|pre-commit"
)
COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ +)*(?:\.venv[\w-]*/bin/)?(?:{TOOLS})(?= |$)")


def name_of(page: Path) -> str:
    """A page's path in the repository, for the names of tests."""
    return str(page.relative_to(ROOT))


class Command(NamedTuple):
    """A command of a page; `around` is its line, and of a block all of the block."""

    text: str
    around: str


def split(text: str) -> tuple[list[str], list[str]]:
    """The blocks of a page that hold commands, fenced or indented, and the lines of its prose."""
    blocks, prose, language = [""], [], None
    for line in text.splitlines():
        if line.startswith("```"):
            language = line[3:] if language is None else None
            blocks.append("")
        elif language in ("", "bash", "sh") or (language is None and line.startswith("    ")):
            blocks[-1] += f"{line.strip()}\n"
        elif language is None:
            blocks.append("")
            prose.append(line)
    return [block for block in blocks if block], prose


def find_commands(text: str) -> list[Command]:
    """The commands of a page: lines of its blocks, and whole `code` in its prose."""
    blocks, prose = split(text)
    lines = [(line, block) for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [(code, line) for line in prose for code in re.findall(r"`([^`]+)`", line)]
    parts = [(part, around) for line, around in lines for part in re.split("; |&& ", line)]
    return [Command(part.strip(), around) for part, around in parts if COMMAND.match(part.strip())]


def words_of(text: str) -> list[str]:
    """A command's words without its comment, its program's folder and the environment before it."""
    words = shlex.split(text, comments=True)
    while "=" in words[0]:
        del words[0]
    return [words[0].rpartition("/")[2], *words[1:]]


def read_make(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The targets of a make command, and the environment that make gives to what it starts."""
    given = dict(word.split("=", 1) for word in words if re.match(r"[\w.]+=", word))
    targets = [word for word in words if "=" not in word and not word.startswith(("-", "."))]
    escaped = " ".join(f"{k}={re.sub(r'([ ])', chr(92) + ' ', v)}" for k, v in given.items())
    return targets, {"MAKE_GOALS": " ".join(targets), "MAKE_WORDS": escaped, **given}


def commands_of_pages() -> list[Command]:
    """The commands of all pages, and of what the examples say at their heads."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    for path in sorted((ROOT / "examples").glob("*.py")):
        texts.append(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))
    return list(dict.fromkeys(one for text in texts for one in find_commands(text)))
