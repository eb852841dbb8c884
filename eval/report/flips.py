"""Which completions the report shows side by side: those whose score two checkpoints disagree on.

The choice is deterministic and takes turns over tasks and both directions, so that ten flips show
what was lost beside what was gained; completions of official tasks take turns of their own. Within
a turn a hash decides, not the file's order: the first problems of a benchmark are often its
easiest. Beside them stand right completions that an official parser does not read.
"""

import hashlib
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from eval.report.blocks import Flip, Side, Text
from eval.report.compare import OFFICIAL

COUNT, MAX_UNREAD = 10, 3
HEAD, TAIL = 3_000, 5_000  # characters of a text that are shown; the answer is at the end


def find_flips(
    before: dict[tuple[str, str], list[dict]],
    after: dict[tuple[str, str], list[dict]],
    count: int = COUNT,
) -> list[tuple[dict, dict]]:
    """Choose up to `count` pairs of rows of the same problem and sample whose scores differ.

    Args:
        before: `{(task, mode): rows}` of the earlier checkpoint.
        after: the same of the later one.
        count: how many at most.

    Returns:
        `(row before, row after)`, sorted by task, ours before official ones, then gains before
        losses; each problem once.
    """
    tasks = list(dict.fromkeys(task for task, _ in before))
    queues: dict[tuple[str, bool, bool], dict[tuple, tuple[dict, dict]]] = {
        (task, official, gain): {}
        for task in tasks
        for official in (False, True)
        for gain in (True, False)
    }
    for old, new in sorted(_disagreements(before, after), key=lambda flip: _draw(flip[1])):
        queue = queues[new["task"], is_official(new), new["score"] > old["score"]]
        queue.setdefault((new["task"], new["source"], new["id"]), (old, new))
    chosen: dict[tuple, tuple[int, tuple[dict, dict]]] = {}
    for turn in zip_longest(*(queue.items() for queue in queues.values())):
        for number, item in enumerate(turn):
            if item is not None and len(chosen) < count:
                chosen.setdefault(item[0], (number, item[1]))
    return [flip for _, flip in sorted(chosen.values(), key=lambda found: found[0])]


def find_unread(rows: dict[tuple[str, str], list[dict]]) -> list[dict]:
    """Up to `MAX_UNREAD` completions that our grader calls right and an official parser misses."""
    found = [
        row
        for kind in rows.values()
        for row in kind
        if is_official(row) and row["outcome"] == "unread" and row["verdict"] == "right"
    ]
    return sorted(found, key=_draw)[:MAX_UNREAD]


def is_official(row: dict) -> bool:
    return row["mode"].startswith(OFFICIAL)


def show_unread(rows: list[dict], name: str, texts: dict[int, dict[str, str]]) -> list[dict]:
    """`find_unread` of the checkpoint `name` in the shape of `show_flips`, with a single side."""
    return [_show((row,), (name,), (texts,)) for row in rows]


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
        outcome, verdict, prediction, num_tokens, completion`. Long texts lack their middle.
    """
    return [_show(rows, names, texts) for rows in flips]


def _show(rows: tuple[dict, ...], names: tuple[str, ...], texts: tuple[dict, ...]) -> dict:
    row = rows[-1]
    value = {key: row[key] for key in ("task", "mode", "source", "id", "level", "sample")}
    value["question"] = shorten(texts[-1][row["place"]]["question"])
    value["gold"] = row["gold"]
    value["sides"] = [
        {"checkpoint": name}
        | {key: side[key] for key in ("outcome", "verdict", "prediction", "num_tokens")}
        | {"completion": shorten(text[side["place"]]["completion"] or "")}
        for name, side, text in zip(names, rows, texts, strict=True)
    ]
    return value


def shorten(text: str) -> str:
    """The text, or its beginning and end where it is longer than `HEAD` + `TAIL` characters."""
    left_out = len(text) - HEAD - TAIL
    if left_out <= 0:
        return text
    return f"{text[:HEAD]}\n\n[… {left_out:,} characters left out …]\n\n{text[-TAIL:]}"


def _disagreements(before: dict, after: dict) -> Iterator[tuple[dict, dict]]:
    for key in before:
        earlier = {_sample(row): row for row in before[key]}
        for row in after[key]:
            old = earlier[_sample(row)]
            is_written = row["verdict"] is not None  # a log-likelihood is no completion
            if is_written and old["score"] != row["score"]:
                yield old, row


def _sample(row: dict) -> tuple:
    return row["source"], row["id"], row["sample"]


def _draw(row: dict) -> str:
    """A fixed lot for each row, so that the choice depends on nothing else than what flipped."""
    text = "/".join(str(row[key]) for key in ("task", "mode", "source", "id", "sample"))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def flip_blocks(report: dict[str, Any]) -> list:
    """The section of the report: what changed, then what an official parser misses."""
    names = list(report["checkpoints"])
    blocks: list = []
    count = len(report["flips"])
    if len(names) > 1 and not count:
        blocks.append(Text(f"No completion changed from {names[-2]} to {names[-1]}."))
    elif count:
        blocks.append(
            Text(
                f"{count} problem{'s' if count > 1 else ''} on which {names[-2]} and {names[-1]} "
                "disagree, drawn by lot in equal parts from the tasks and from gains and losses: "
                "their number says nothing about how frequent either is."
            )
        )
    blocks += map(_block, report["flips"])
    if report["unread"]:
        blocks.append(
            Text(
                f"Drawn by lot from {names[-1]}'s completions of official tasks: right for our "
                "grader, but not read by the official parser."
            )
        )
    return [*blocks, *map(_block, report["unread"])]


def _block(flip: dict) -> Flip:
    which = f"sample {flip['sample'] + 1}" if flip["mode"] == "sampled" else flip["mode"]
    which = which.removesuffix(f":{flip['task']}").replace(":", " ")
    facts = [f"problem {flip['id']}", f"from {flip['source']}"]
    facts += [f"level {flip['level']}"] if flip["level"] is not None else []
    return Flip(
        f"{flip['task']}, {which}: {' → '.join(side['outcome'] for side in flip['sides'])}",
        ", ".join(facts),
        flip["question"],
        "\n".join(flip["gold"]),
        [_side(side, is_official(flip)) for side in flip["sides"]],
    )


def _side(side: dict, official: bool) -> Side:
    facts = [] if side["num_tokens"] is None else [f"{side['num_tokens']:,} tokens"]
    if official:
        verdict = "right" if side["outcome"] == "right" else "not right"
        facts += [f"official parser: {verdict}", f"our grader: {side['verdict']}"]
    facts += ["nothing read"] if side["prediction"] is None else [f"read: {side['prediction']}"]
    return Side(side["checkpoint"], side["outcome"], ", ".join(facts), side["completion"])
