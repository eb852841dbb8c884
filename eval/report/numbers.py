"""The report's numbers: results that were scored alike, what each stage changed, examples.

Reads the files that `eval.run` writes for each checkpoint to `<output_dir>/<name>/`: `scores.json`
has the metrics, `completions.parquet` one row per completion. The statistics are in
`eval.harness.metrics`, the parts of a change in `eval.report.decomposition`.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyarrow.dataset import dataset

from data_prep.sampling.hashes import hash_checkpoint
from eval.harness.metrics import (
    is_answer_right,
    mean_interval,
    outcome_rates,
    problem_means,
)
from eval.harness.score import SCORES
from eval.report.decomposition import PARTS, problem_shares, split_change, task_rates
from pipeline import json_files
from pipeline.errors import UserError

NUMBERS = (
    "task",
    "mode",
    "id",
    "source",
    "level",
    "sample",
    "gold",
    "verdict",
    "prediction",
    "well_formed",
    "cut_off",
    "num_tokens",
    "lenient",
    "outcome",
    "score",
)
COMPLETIONS = "completions.parquet"
# The mode whose metric represents a task, best first: several samples say more than one, and our
# grader reads answers that an official parser may not.
HEADLINE = ("sampled", "greedy")
OFFICIAL = "official"  # or "official:<the harness's name>"
NUM_FLIPS, MAX_UNREAD = 10, 3
SHOWN = 8_000  # characters of a text that are shown

Rows = list[dict[str, Any]]
Pairs = list[tuple[str, str]]


@dataclass
class Result:
    """One checkpoint's results; a row has the columns of `NUMBERS` and its `place` in the file."""

    folder: Path
    scores: dict[str, Any]  # its `scores.json`
    rows: dict[tuple[str, str], Rows]  # by task and mode


def read_result(folder: Path) -> Result:
    """Read a checkpoint's results; raises `UserError` where it has not been evaluated."""
    path = folder / "scores.json"
    if not path.is_file():
        raise UserError(f"{path} is missing; `make eval` makes it")
    scores = json_files.read(path, SCORES, "run `make eval` again")
    for modes in scores["tasks"].values():
        for mode in modes.values():  # earlier versions gave official scores no interval
            for name, found in mode["metrics"].items():
                mode["metrics"][name] = {"low": None, "high": None} | found
    rows: dict[tuple[str, str], Rows] = defaultdict(list)
    table = dataset(folder / COMPLETIONS, format="parquet").to_table(columns=list(NUMBERS))
    for place, row in enumerate(table.to_pylist()):
        if row["level"] is not None and row["level"] % 1 == 0:
            row["level"] = int(row["level"])  # which is shown without a decimal point
        rows[row["task"], row["mode"]].append(row | {"place": place})
    return Result(folder, scores, dict(rows))


def read_texts(folder: Path, places: set[int]) -> dict[int, dict[str, str]]:
    """`{place: {"question", "completion"}}` of the rows at `places` of `completions.parquet`.

    Only for the few rows that are shown: a thought of 28k tokens takes a hundred kilobytes.
    """
    path, wanted = folder / COMPLETIONS, sorted(places)
    texts = dataset(path, format="parquet").take(wanted, columns=["question", "completion"])
    return dict(zip(wanted, texts.to_pylist(), strict=True))


def check_results(results: dict[str, Result], checkpoints: dict[str, str]) -> None:
    """Check that all were scored alike, and that no checkpoint has changed since.

    A checkpoint that is gone, or only on the hub, cannot be checked and passes.

    Raises:
        UserError: naming the engine, data, code or checkpoint that differs.
    """
    check_alike(results)
    for name, result in results.items():
        prints, path = result.scores["fingerprint"], checkpoints[name]
        files = (Path(path) / file for file in ("config.json", "adapter_config.json"))
        if not any(file.is_file() for file in files):
            continue
        try:
            current = hash_checkpoint(path, "checkpoints")
        except UserError:  # an adapter, whose base is gone or on a hub that cannot be asked
            continue
        if current != prints["checkpoint"]:
            raise UserError(f"{name}: {path} has changed since it was evaluated; run `make eval`")


def check_alike(results: dict[str, Result]) -> None:
    """Check that all were scored alike; raises `UserError` naming the key that differs."""

    def settled(result: Result) -> dict[str, Any]:
        prints = result.scores["fingerprint"]
        # Of files their hashes: each run has its own copy.
        hashes = prints["data"] or {}
        data = sorted(name if hashes[name] == "hub" else hashes[name] for name in hashes)
        found = {"engine": prints["engine"], "data": data, "code": prints["code"]}
        return found | result.scores["settings"]

    (first, one), *others = results.items()
    wanted = settled(one)
    for name, result in others:
        for key, value in settled(result).items():
            if value != wanted.get(key):
                what = "on other problems" if key == "data" else f"with another {key}"
                raise UserError(
                    f"{key}: {name} was evaluated {what} than {first}; only what was scored alike "
                    "can be compared: give both the same recipe and run `make eval` again"
                )


def summarise(
    checkpoints: dict[str, str], results: dict[str, Result], pairs: Pairs | None = None
) -> dict[str, Any]:
    """Compute every number of the report of `{name: path}`, in the order of the stages.

    Args:
        pairs: (before, after) names; default `stage_pairs`.

    Returns:
        `scores[name][task][mode]` as in `scores.json`.
        `changes[task][mode]`: `{"from", "to", "score", "finished", "readable", "correct"}` of each.
        By `[task][mode][name]`: `rates`, the factors of the score; `outcomes`, `verdicts`,
        `cut_off`, `no_thought`, shares of the completions; `shapes`; intervals by `levels` and by
        `sources`.
        `settings`, `fingerprints`, `costs`.
    """
    names = list(checkpoints)
    scores = {name: results[name].scores for name in names}
    first = scores[names[0]]
    measures = {
        "rates": factor_rates,
        "outcomes": outcome_rates,
        "shapes": shape,
        "verdicts": verdict_rates,
        "cut_off": cut_off_rate,
        "no_thought": no_thought_rate,
        "levels": level_scores,
        "sources": source_scores,
    }
    parts: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in ("changes", *measures)}
    for task, modes in first["tasks"].items():
        for part in parts.values():
            part[task] = {}
        for mode in order(modes):
            rows = {name: results[name].rows[task, mode] for name in names}
            parts["changes"][task][mode] = [
                {"from": before, "to": after} | split_change(rows[before], rows[after])
                for before, after in pairs or stage_pairs(names)
            ]
            for name, measure in measures.items():
                found = {checkpoint: measure(rows[checkpoint]) for checkpoint in names}
                parts[name][task][mode] = found
    costs = ("num_completions", "num_tokens", "wall_time_s")
    return {
        "checkpoints": checkpoints,
        "settings": first["settings"],
        "scores": {name: scores[name]["tasks"] for name in names},
        **parts,
        "fingerprints": {name: scores[name]["fingerprint"] for name in names},
        "costs": {name: {key: scores[name].get(key) for key in costs} for name in names},
    }


def headline_mode(modes: Iterable[str]) -> str:
    """The mode, of those there are, whose metric represents the task."""
    return min(modes, key=lambda mode: (*HEADLINE, mode).index(mode))


def order(modes: Iterable[str]) -> list[str]:
    """Greedy, sampled, then the official ones as they come."""
    return sorted(modes, key=lambda mode: (is_official(mode), mode == "sampled"))


def is_official(mode: str) -> bool:
    """Whether the harness's own task scored a mode's completions."""
    return mode.startswith(OFFICIAL)


def stage_pairs(names: list[str]) -> Pairs:
    """Consecutive checkpoints, then the first and the last where that is another pair."""
    found = list(pairwise(names))
    if len(names) > 2:
        found.append((names[0], names[-1]))
    return found


def factor_rates(rows: Rows) -> dict[str, float | None]:
    """`{"finished", "readable", "correct"}`, whose product is the score; None without evidence."""
    return dict(zip(PARTS, task_rates([*problem_shares(rows).values()]), strict=True))


def level_scores(rows: Rows) -> dict[float, dict]:
    """`{level: {"value", "stderr", "low", "high", "n"}}`, levels ascending; n problems."""
    return scores_by("level", rows)


def source_scores(rows: Rows) -> dict[str, dict]:
    """The same by the data set that a problem came from; empty where all came from one."""
    found = scores_by("source", rows)
    return found if len(found) > 1 else {}


def scores_by(column: str, rows: Rows) -> dict:
    """The mean score of the problems of each value of a column, without those that have none."""
    scores = defaultdict(list)
    for row in rows:
        scores[row[column]].append(((row["source"], row["id"]), row["score"]))
    means = {value: problem_means(scores[value]) for value in sorted(scores.keys() - {None})}
    return {value: mean_interval([*found.values()]) for value, found in means.items()}


def verdict_rates(rows: Rows) -> dict[str, float]:
    """Share of completions per verdict of the grader, most frequent first."""
    counts = Counter(row["verdict"] for row in rows if row["verdict"] is not None)
    return {verdict: count / counts.total() for verdict, count in counts.most_common()}


def shape(rows: Rows) -> dict[str, float | None]:
    """Further facts on the completions: shares, and the mean length in tokens.

    `answer_right`: the correct answer is anywhere in the text. `ours_right`: correct by our grader.
    `cut_off_right`: `answer_right` of those with the outcome "cut off". None where nothing was
    written, or nothing was cut off.
    """
    written = [row for row in rows if row["verdict"] is not None]  # no log-likelihoods
    cut_off = [row for row in written if row["outcome"] == "cut off"]
    return {
        "answer_right": _mean(map(is_answer_right, written)),
        "ours_right": _mean(row["verdict"] == "right" for row in written),
        "well_formed": _mean(row["well_formed"] for row in written),
        "num_tokens": _mean(row["num_tokens"] for row in written),
        "cut_off_right": _mean(map(is_answer_right, cut_off)),
    }


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None


def cut_off_rate(rows: Rows) -> float | None:
    """Share of completions that were cut off at the token limit."""
    return _mean(bool(row["cut_off"]) for row in rows)


def no_thought_rate(rows: Rows) -> float | None:
    """Share of completions without one closed thought; see `has_no_thought`."""
    return _mean(map(has_no_thought, rows))


def has_no_thought(row: dict) -> bool:
    """Whether a completion ended without exactly one closed thought, so that no answer is read."""
    return row["verdict"] in ("no_think", "unclosed_think") and not row["cut_off"]


def find_flips(
    before: dict[tuple[str, str], Rows], after: dict[tuple[str, str], Rows], count: int = NUM_FLIPS
) -> list[tuple[dict, dict]]:
    """Choose up to `count` pairs of rows of the same problem and sample whose scores differ.

    Tasks, ours and official completions, gains and losses take turns, so that few flips show losses
    as well as gains. Each problem occurs once, and they are sorted in that order. Within a turn a
    hash decides, not the file's order: the first problems of a benchmark are often its easiest.
    """

    def sample(row: dict) -> tuple:
        return row["source"], row["id"], row["sample"]

    flips = []
    for key, rows in before.items():
        earlier = {sample(row): row for row in rows}
        for new in after[key]:
            old = earlier[sample(new)]
            # No verdict is a log-likelihood: nothing was written.
            if new["verdict"] is not None and old["score"] != new["score"]:
                flips.append((old, new))
    flips.sort(key=lambda flip: _draw(flip[1]))
    tasks = list(dict.fromkeys(task for task, _ in before))
    queues: dict[tuple, dict[tuple, tuple[dict, dict]]] = defaultdict(dict)  # by kind and problem
    for old, new in flips:
        kind = tasks.index(new["task"]), is_official(new["mode"]), new["score"] < old["score"]
        problem = new["task"], new["source"], new["id"]
        queues[kind].setdefault(problem, (old, new))
    turns = []
    for kind, queue in queues.items():
        for turn, problem in enumerate(queue):
            turns.append((turn, kind, problem))
    kind_of: dict[tuple, tuple] = {}  # of the problems that are chosen
    for _, kind, problem in sorted(turns):
        if len(kind_of) < count and problem not in kind_of:
            kind_of[problem] = kind
    chosen = sorted(kind_of, key=lambda problem: kind_of[problem])
    return [queues[kind_of[problem]][problem] for problem in chosen]


def find_unread(rows: dict[tuple[str, str], Rows]) -> Rows:
    """Up to `MAX_UNREAD` completions that only our grader counts as correct, no official parser."""
    found = [
        row
        for (_, mode), kind in rows.items()
        for row in kind
        if is_official(mode) and row["outcome"] == "unread" and row["verdict"] == "right"
    ]
    return sorted(found, key=_draw)[:MAX_UNREAD]


def _draw(row: dict) -> str:
    """A fixed random key of each row, so that the choice depends on the rows alone."""
    text = "/".join(str(row[key]) for key in ("task", "mode", "source", "id", "sample"))
    return hashlib.sha256(text.encode()).hexdigest()


def describe_examples(examples: list[tuple[dict, ...]], results: dict[str, Result]) -> Rows:
    """Flips, or completions that are not read, as `report.json` has them.

    An example has the rows of one problem, one for each of `results`. Long texts lack their middle.
    """
    texts = [
        read_texts(result.folder, {rows[side]["place"] for rows in examples})
        for side, result in enumerate(results.values())
    ]
    found, keys = [], ("task", "mode", "source", "id", "level", "sample")
    for rows in examples:
        question = texts[-1][rows[-1]["place"]]["question"]
        sides = [
            {"checkpoint": name}
            | {key: row[key] for key in ("outcome", "verdict", "prediction", "num_tokens")}
            | {"completion": shorten(text[row["place"]]["completion"] or "")}
            for name, row, text in zip(results, rows, texts, strict=True)
        ]
        found.append(
            {key: rows[-1][key] for key in keys}
            | {"question": shorten(question), "gold": rows[-1]["gold"], "sides": sides}
        )
    return found


def shorten(text: str, length: int = SHOWN) -> str:
    """The text, or its beginning and end, where the answer is, of `length` characters in all."""
    left_out, head = len(text) - length, length * 3 // 8
    if left_out <= 0:
        return text
    return f"{text[:head]}\n\n[… {left_out:,} characters left out …]\n\n{text[head + left_out :]}"
