"""The report's numbers: results that were scored alike, what each stage changed, examples.

Reads the files that `eval.run` writes for each checkpoint to `<output_dir>/<name>/`: `scores.json`
has the metrics, `completions.parquet` a row for each completion. All rows become one table, and
every number is a group-by over it. The statistics are in `eval.harness.metrics`, the parts of a
change in `eval.report.decomposition`.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow.dataset import dataset

from eval.harness.metrics import OUTCOMES, mean_interval
from eval.harness.score import SCORES
from eval.report.decomposition import PARTS, PROBLEM, problem_shares, split_change, task_rates
from pipeline import json_files
from pipeline.errors import UserError

COMPLETIONS = "completions.parquet"
# The columns of the table, besides `place`, the row's number in its file. Texts are read for the
# few rows that are shown: a thought of 28k tokens takes a hundred kilobytes.
NUMBERS = [
    *("task", "mode", "source", "id", "level", "sample", "verdict", "well_formed", "cut_off"),
    *("num_tokens", "lenient", "outcome", "score"),
]
SAMPLE = ["task", "mode", *PROBLEM, "sample"]
# Of an example in `report.json`: of its problem, and of each checkpoint's completion.
SHOWN = ("task", "mode", "source", "id", "level", "sample", "gold")
SIDE = ("outcome", "verdict", "prediction", "num_tokens")
# The mode whose metric represents a task, best first: several samples say more than one, and our
# grader reads answers that an official parser may not.
HEADLINE = ("sampled", "greedy")
OFFICIAL = "official"  # or "official:<the harness's name>"
NUM_FLIPS, MAX_UNREAD = 10, 3
MAX_CHARACTERS = 8_000  # of a text that is shown

Pairs = list[tuple[str, str]]


@dataclass
class Result:
    """One checkpoint's results."""

    folder: Path
    scores: dict[str, Any]  # its `scores.json`
    rows: pd.DataFrame  # a row for each completion: `NUMBERS` and `place`


def read_result(folder: Path) -> Result:
    """Read a checkpoint's results; raises `UserError` where it has not been evaluated."""
    path = folder / "scores.json"
    if not path.is_file():
        raise UserError(f"{path} is missing; `make eval` makes it")
    scores = json_files.read(path, SCORES, "run `make eval` again")
    for mode in (mode for modes in scores["tasks"].values() for mode in modes.values()):
        for found in mode["metrics"].values():  # 0.2.0 gave official scores no interval
            found |= {"low": found.get("low"), "high": found.get("high")}
    rows = dataset(folder / COMPLETIONS, format="parquet").to_table(columns=NUMBERS).to_pandas()
    rows["source"] = rows["source"].fillna("")  # a user's own rows may have none
    return Result(folder, scores, rows.assign(place=range(len(rows))))


def read_places(folder: Path, places: list[int]) -> list[dict[str, Any]]:
    """Whole rows of `completions.parquet`, texts included, in the order of `places`."""
    return dataset(folder / COMPLETIONS, format="parquet").take(places).to_pylist()


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
        By `[task][mode][name]`: what each of `MEASURES` says of the completions.
        `settings`, `fingerprints`, `costs`.
    """
    scores = {name: results[name].scores for name in checkpoints}
    first = next(iter(scores.values()))
    tables = {name: results[name].rows for name in checkpoints}
    rows = pd.concat(tables, names=["checkpoint"]).reset_index("checkpoint")
    sides = dict(iter(rows.groupby(["task", "mode", "checkpoint"], sort=False)))
    parts: dict[str, dict[str, dict[str, Any]]] = {}
    for task, modes in first["tasks"].items():
        for part in ("changes", *MEASURES):
            parts.setdefault(part, {})[task] = {}
        for mode in order(modes):
            parts["changes"][task][mode] = [
                {"from": before, "to": after}
                | split_change(sides[task, mode, before], sides[task, mode, after])
                for before, after in pairs or stage_pairs([*checkpoints])
            ]
            for part, measure in MEASURES.items():
                found = {name: measure(sides[task, mode, name]) for name in checkpoints}
                parts[part][task][mode] = found
    costs = ("num_completions", "num_tokens", "wall_time_s")
    return {
        "checkpoints": checkpoints,
        "settings": first["settings"],
        "scores": {name: one["tasks"] for name, one in scores.items()},
        **parts,
        "fingerprints": {name: one["fingerprint"] for name, one in scores.items()},
        "costs": {name: {key: one.get(key) for key in costs} for name, one in scores.items()},
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


def factor_rates(rows: pd.DataFrame) -> dict[str, float | None]:
    """`{"finished", "readable", "correct"}`, whose product is the score; None without evidence."""
    return dict(zip(PARTS, task_rates(problem_shares(rows)), strict=True))


def outcome_rates(rows: pd.DataFrame) -> dict[str, float]:
    """Share of completions per outcome, in the order of `OUTCOMES`; they sum to 1."""
    return {name: float((rows["outcome"] == name).mean()) for name in OUTCOMES}


def verdict_rates(rows: pd.DataFrame) -> dict[str, float]:
    """Share of completions per verdict of the grader, most frequent first."""
    return rows["verdict"].value_counts(normalize=True).to_dict()


def scores_by(column: str, rows: pd.DataFrame) -> dict[Any, dict]:
    """`{value: mean_interval}` over the problems of each value of a column, ascending."""
    by = [*dict.fromkeys([column, *PROBLEM])]
    means = rows.groupby(by)["score"].mean()
    return {value: mean_interval(found.tolist()) for value, found in means.groupby(level=0)}


def level_scores(rows: pd.DataFrame) -> dict[str, dict]:
    """The scores by level; a whole one has no decimal point."""
    return {f"{level:g}": found for level, found in scores_by("level", rows).items()}


def source_scores(rows: pd.DataFrame) -> dict[str, dict]:
    """The scores by the data set that a problem came from; empty where all came from one."""
    found = scores_by("source", rows[rows["source"] != ""])
    return found if len(found) > 1 else {}


def shape(rows: pd.DataFrame) -> dict[str, float | None]:
    """Further facts on the completions: shares, and the mean length in tokens.

    `answer_right`: the correct answer is anywhere in the text. `ours_right`: correct by our grader.
    `cut_off_right`: `answer_right` of those with the outcome "cut off". None where nothing was
    written, or nothing was cut off.
    """
    written = rows[rows["verdict"].notna()]  # no log-likelihoods
    ours = written["verdict"] == "right"
    anywhere = ours | (written["lenient"] == "right")
    return {
        "answer_right": _mean(anywhere),
        "ours_right": _mean(ours),
        "well_formed": _mean(written["well_formed"]),
        "num_tokens": _mean(written["num_tokens"]),
        "cut_off_right": _mean(anywhere[written["outcome"] == "cut off"]),
    }


def _mean(values: pd.Series) -> float | None:
    return float(values.mean()) if len(values) else None


def cut_off_rate(rows: pd.DataFrame) -> float | None:
    """Share of completions that were cut off at the token limit."""
    return _mean(rows["cut_off"].eq(True))


def no_thought_rate(rows: pd.DataFrame) -> float | None:
    """Share of completions that ended without exactly one closed thought: no answer is read."""
    unclosed = rows["verdict"].isin(["no_think", "unclosed_think"])
    return _mean(unclosed & ~rows["cut_off"].eq(True))


MEASURES = {
    "rates": factor_rates,
    "outcomes": outcome_rates,
    "shapes": shape,
    "verdicts": verdict_rates,
    "cut_off": cut_off_rate,
    "no_thought": no_thought_rate,
    "levels": level_scores,
    "sources": source_scores,
}


def find_flips(before: pd.DataFrame, after: pd.DataFrame, count: int = NUM_FLIPS) -> pd.DataFrame:
    """Choose up to `count` completions of the same problem and sample whose scores differ.

    Tasks, ours and official completions, gains and losses take turns, so that few flips show losses
    as well as gains. Each problem occurs once, and they are sorted in that order. Within a turn a
    hash decides, not the file's order: the first problems of a benchmark are often its easiest.

    Returns:
        The columns `place_before` and `place`, of the rows in the two files.
    """
    both = before.merge(after, on=SAMPLE, suffixes=("_before", ""))
    # No verdict is a log-likelihood: nothing was written.
    flips = both[both["verdict"].notna() & (both["score"] != both["score_before"])].copy()
    flips["task_number"] = flips["task"].map(
        {name: at for at, name in enumerate(before["task"].unique())}
    )
    flips["is_official"] = flips["mode"].map(is_official)
    flips["is_loss"] = flips["score"] < flips["score_before"]
    kind, problem = ["task_number", "is_official", "is_loss"], ["task", *PROBLEM]
    flips = flips.assign(draw=draw(flips)).sort_values("draw").drop_duplicates([*kind, *PROBLEM])
    flips["turn"] = flips.groupby(kind).cumcount()
    chosen = flips.sort_values(["turn", *kind]).drop_duplicates(problem).head(count)
    return chosen.sort_values(kind, kind="stable")[["place_before", "place"]]


def find_unread(rows: pd.DataFrame) -> pd.DataFrame:
    """Up to `MAX_UNREAD` completions that only our grader counts as correct, no official parser."""
    official = rows["mode"].map(is_official)
    found = rows[official & (rows["outcome"] == "unread") & (rows["verdict"] == "right")]
    found = found.assign(draw=draw(found)).sort_values("draw")
    return found.drop_duplicates(["task", *PROBLEM]).head(MAX_UNREAD)[["place"]]


def draw(rows: pd.DataFrame) -> list[str]:
    """A fixed random key of each row, so that a choice depends on the rows alone."""
    texts = ("/".join(map(str, row)) for row in rows[SAMPLE].itertuples(index=False))
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def describe_examples(places: pd.DataFrame, results: dict[str, Result]) -> list[dict[str, Any]]:
    """Flips, or completions that are not read, as `report.json` has them.

    `places` has a column for each of `results`. Long texts lack their middle.
    """
    sides = [
        read_places(result.folder, places[column].tolist())
        for column, result in zip(places, results.values(), strict=True)
    ]
    found = []
    for rows in zip(*sides, strict=True):
        shown = {key: rows[-1][key] for key in SHOWN}
        shown["question"] = shorten(rows[-1]["question"])
        shown["sides"] = [
            {"checkpoint": name}
            | {key: row[key] for key in SIDE}
            | {"completion": shorten(row["completion"] or "")}
            for name, row in zip(results, rows, strict=True)
        ]
        found.append(shown)
    return found


def shorten(text: str, length: int = MAX_CHARACTERS) -> str:
    """The text, or its beginning and end, where the answer is, of `length` characters in all."""
    left_out, head = len(text) - length, length * 3 // 8
    if left_out <= 0:
        return text
    return f"{text[:head]}\n\n[… {left_out:,} characters left out …]\n\n{text[head + left_out :]}"
