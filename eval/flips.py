"""Which completions the report shows side by side: those whose score two checkpoints disagree on.

The choice is deterministic and takes turns over tasks and both directions, so that ten flips show
what was lost beside what was gained. Within a turn a hash decides, not the file's order: the first
problems of a benchmark are often its easiest.
"""

import hashlib
from collections.abc import Iterator
from itertools import zip_longest

MODES = ("greedy", "sampled")  # ours; an official task's completion is no answer to our prompt
COUNT = 10
HEAD, TAIL = 3_000, 5_000  # characters of a text that are shown; the answer is at the end


def find_flips(
    before: dict[tuple[str, str], list[dict]], after: dict[tuple[str, str], list[dict]]
) -> list[tuple[dict, dict]]:
    """Choose up to `COUNT` pairs of rows of the same problem and sample whose scores differ.

    Args:
        before: `{(task, mode): rows}` of the earlier checkpoint.
        after: the same of the later one.

    Returns:
        `(row before, row after)`, sorted by task, then gains before losses; each problem once.
    """
    tasks = list(dict.fromkeys(task for task, mode in before if mode in MODES))
    queues: dict[tuple[str, bool], dict[tuple, tuple[dict, dict]]] = {
        (task, is_gain): {} for task in tasks for is_gain in (True, False)
    }
    for old, new in sorted(_disagreements(before, after), key=lambda flip: _draw(flip[1])):
        queue = queues[new["task"], new["score"] > old["score"]]
        queue.setdefault((new["task"], new["source"], new["id"]), (old, new))
    chosen: dict[tuple, tuple[int, tuple[dict, dict]]] = {}
    for turn in zip_longest(*(queue.items() for queue in queues.values())):
        for number, item in enumerate(turn):
            if item is not None and len(chosen) < COUNT:
                chosen.setdefault(item[0], (number, item[1]))
    return [flip for _, flip in sorted(chosen.values(), key=lambda found: found[0])]


def show_flips(
    flips: list[tuple[dict, dict]],
    names: tuple[str, str],
    texts: tuple[dict[int, dict[str, str]], dict[int, dict[str, str]]],
) -> list[dict]:
    """The flips as the report's pages and `report.json` have them.

    Args:
        flips: `find_flips(...)`.
        names: the two checkpoints'.
        texts: `{place: {"question", "completion"}}` of each checkpoint.

    Returns:
        `task, mode, source, id, level, sample, question, gold, sides`; a side has `checkpoint,
        outcome, prediction, num_tokens, completion`. Long texts lack their middle.
    """
    found = []
    for rows in flips:
        row = rows[1]
        value = {key: row[key] for key in ("task", "mode", "source", "id", "level", "sample")}
        value["question"] = shorten(texts[1][row["place"]]["question"])
        value["gold"] = row["gold"]
        value["sides"] = [
            {"checkpoint": name}
            | {key: side[key] for key in ("outcome", "prediction", "num_tokens")}
            | {"completion": shorten(text[side["place"]]["completion"] or "")}
            for name, side, text in zip(names, rows, texts, strict=True)
        ]
        found.append(value)
    return found


def shorten(text: str) -> str:
    """The text, or its beginning and end where it is longer than `HEAD` + `TAIL` characters."""
    left_out = len(text) - HEAD - TAIL
    if left_out <= 0:
        return text
    return f"{text[:HEAD]}\n\n[… {left_out:,} characters left out …]\n\n{text[-TAIL:]}"


def _disagreements(before: dict, after: dict) -> Iterator[tuple[dict, dict]]:
    for key in before:
        if key[1] in MODES:
            earlier = {_sample(row): row for row in before[key]}
            for row in after[key]:
                old = earlier[_sample(row)]
                if old["score"] != row["score"]:
                    yield old, row


def _sample(row: dict) -> tuple:
    return row["source"], row["id"], row["sample"]


def _draw(row: dict) -> str:
    """A fixed lot for each row, so that the choice depends on nothing else than what flipped."""
    text = "/".join(str(row[key]) for key in ("task", "mode", "source", "id", "sample"))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
