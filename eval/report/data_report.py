"""One page on a built data folder: why each row was kept or dropped, and the files' contents.

    python -m eval.report.data_report --data runs/tiny-cpu/data

Reads the manifest, data files and logs of `data_prep.builder`. Writes to `<run>/data-report`:
`data-report.html`, one page that needs nothing else; `data-report.json`, its numbers; and, last,
`manifest.json`.
"""

import random
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.builder.recipe import FILES, TRAINING, is_by_source
from data_prep.builder.write import CONTAMINATION, DROPPED
from data_prep.decontamination.benchmarks import BENCHMARKS
from eval.report import plots
from eval.report.browse import as_text
from eval.report.numbers import shorten
from eval.report.render import Table, render
from pipeline import manifest
from pipeline.console import one_line
from pipeline.errors import run_cli
from pipeline.models.tokenizer import load_tokenizer
from pipeline.prompts import render_completion, render_prompt
from pipeline.rows import read_rows
from pipeline.settings import parse, setting

STAGE = "data-report"
ORDER = [FILES[key] for key in ("sft", "grpo", "distill", "validation", "test", "transfer")]
NUM_MEASURED = 10_000  # rows of a file: tokenizing all of a large one would take minutes
NUM_SAMPLES = 5  # rows shown of each file and drop reason
NUM_KEPT = 3  # rows shown of each file
NUM_PAIRS = 20
KINDS = ("rows", "source", "subject", "level", "difficulty")  # of the mix of a file
MAX_SHOWN = 15  # sources, subjects or levels of a file
MAX_LOST = 0.5  # share of a source's rows
NOT_CHECKED = "not checked: "  # as the builder begins its reason
NOT_LISTED = "not listed in `decontaminate`"
NOT_DRAWN = "not_sampled"  # only counted: no such row is logged
ON_PURPOSE = (NOT_DRAWN, "not_in_mix")  # good rows that the recipe does not ask for

# What the page reads of a build's manifest.
_ROWS = {"rows_in": int, "rows_out": int, "dropped": {str: int}}
_SOURCE = {**_ROWS, "name": str, "place": (str, None), "split": (str, None)}
BUILD = {
    **_ROWS,
    "outputs": {
        f"{file}?": {**_ROWS, "sources": [_SOURCE], "bands?": ({str: object}, None)}
        for file in FILES.values()
    },
    "decontamination": {str: (int, str)},
}


@dataclass
class DataReportArguments:
    """Keys of the command line; there is no YAML for this one."""

    data: str = field(metadata={"help": "folder of a data build"})
    tokenizer: str | None = setting(
        None, "folder or hub id that measures lengths; unset: characters"
    )


def main() -> None:
    (args,) = parse(__doc__, DataReportArguments)
    data = Path(args.data)
    build = manifest.read_made(data, "data", BUILD)
    tokenizer = load_tokenizer(args.tokenizer, "tokenizer", needs=()) if args.tokenizer else None
    folder = data.resolve().parent / STAGE
    started = manifest.start(folder)

    files = {name: describe_file(name, build) for name in sorted(build["outputs"], key=ORDER.index)}
    kept = ("config", "git_commit", "inputs", "versions", "seconds", "wall_time_s")
    report: dict[str, Any] = {
        "title": f"Data of {data.resolve().parent.name}",
        **{key: build[key] for key in ("rows_in", "rows_out", "dropped")},
        "files": files,
        "unit": "tokens" if tokenizer else "characters",
        "tokenizer": args.tokenizer,
        "decontamination": describe_benchmarks(build),
        "build": {key: build.get(key) for key in kept},
        "report_commit": manifest.git_commit(),
    }
    figures = []
    for name, file in files.items():
        counts, lengths = count_rows(data / name, tokenizer)
        file |= counts
        if lengths:
            figures.append(plots.draw_lengths(lengths, name, report["unit"]))
    add_samples(files, data / DROPPED)
    report |= read_matches(data / CONTAMINATION)
    report["summary"], report["warnings"] = summary(report), warnings(report)

    values = {"report": report, "tables": tables(report), "figures": figures}
    page = render("data_report", num_measured=NUM_MEASURED, **values)
    (folder / f"{STAGE}.html").write_text(page, encoding="utf-8")
    manifest.write_json(folder / f"{STAGE}.json", manifest.finite(report))
    num_rows = {name: file["num_rows"] for name, file in files.items()}
    inputs = manifest.hash_inputs([data / manifest.NAME])
    manifest.write(folder, STAGE, asdict(args), inputs, num_rows, started)
    for warning in report["warnings"]:
        sys.stdout.write(f"warning: {one_line(warning)}\n")
    sys.stdout.write(f"{STAGE}: {one_line(report['summary'])} {folder}/{STAGE}.html\n")


def describe_file(name: str, build: dict[str, Any]) -> dict[str, Any]:
    """The manifest's counts of a data file and of its sources, each with a `label` of its own."""
    found = build["outputs"][name]
    key = next(key for key in FILES if FILES[key] == name)
    mix = (build["config"].get("mix") or {}).get(key) or {}
    return {
        "is_training": key in TRAINING,
        "rows_in": found["rows_in"],
        "rows_out": found["rows_out"],
        "dropped": dict(Counter(found["dropped"]).most_common()),
        "sources": [
            one | {"label": label}
            for label, one in zip(name_sources(found["sources"]), found["sources"], strict=True)
        ],
        # Those of a mix by source are in the rows by source.
        "bands": {} if is_by_source(mix) else found.get("bands") or {},
        "mix": mix,
    }


def name_sources(sources: list[dict[str, Any]]) -> list[str]:
    """Distinct names of a file's sources: their names, else with file, place or split."""
    found = [{**one, "file": Path(one["place"] or "").name} for one in sources]
    names: list[str] = []
    for keys in (("name",), ("name", "file"), ("name", "place"), ("name", "place", "split")):
        names = [" ".join(one[key] for key in keys if one[key]) for one in found]
        if len({*names}) == len(names) and "generic" not in names:  # that names no data
            return names
    return [f"{name} {number}" for number, name in enumerate(names, 1)]


def describe_benchmarks(build: dict[str, Any]) -> dict[str, Any]:
    """`{benchmark: number of questions, or why it was not compared}`, own sets included."""
    own = {}
    for key, file in FILES.items():
        if file in build["outputs"] and key not in TRAINING:
            own[key] = build["outputs"][file]["rows_out"]
    return dict.fromkeys(BENCHMARKS, NOT_LISTED) | build["decontamination"] | own


def count_rows(path: Path, tokenizer: Any) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Count the rows of one data file by source, subject and level, and measure its texts.

    Only the first `NUM_MEASURED` rows are measured, in characters where there is no tokenizer. The
    builder shuffles training files, so these rows are a random sample.

    Returns:
        `num_rows`; `made_of`, (name, count) pairs; `lengths`, quantiles of questions and
        completions; `kept`, some rows at random, as a model sees them. And the lengths themselves.
    """
    num_rows = 0
    counts: dict[str, Counter] = {kind: Counter() for kind in ("source", "subject", "level")}
    draw, kept = random.Random(0), []
    lengths: dict[str, list[int]] = defaultdict(list)

    def measure(text: str) -> int:
        if not tokenizer:
            return len(text)
        return len(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False))

    for _, row in read_rows(path):
        num_rows += 1
        keep(kept, row, NUM_KEPT, num_rows, draw)
        counts["source"][row["source"]] += 1
        counts["subject"][row["subject"] or "(none)"] += 1
        if row["level"] is not None:
            counts["level"][row["source"], float(f"{row['level']:.3g}")] += 1
        if num_rows <= NUM_MEASURED:
            for name in row.keys() & {"question", "completion"}:
                lengths[name].append(measure(row[name]))
    described = {}
    for name, found in sorted(lengths.items(), reverse=True):
        median, p95, longest = np.quantile(found, [0.5, 0.95, 1], method="inverted_cdf").tolist()
        described[name] = {"num": len(found), "median": median, "p95": p95, "longest": longest}
    made_of = {kind: largest(found) for kind, found in counts.items()}
    found = {"num_rows": num_rows, "lengths": described, "made_of": made_of}
    return found | {"kept": [show_row(row, tokenizer) for row in kept]}, lengths


def keep(kept: list, row: Any, size: int, number: int, draw: random.Random) -> None:
    """Reservoir sampling (Vitter's algorithm R): every row is kept with the same probability."""
    place = len(kept) if len(kept) < size else draw.randrange(number)
    if place < size:
        kept[place : place + 1] = [row]


def show_row(row: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """A row as a model sees it: in the tokenizer's chat template, else message by message."""
    prompt, completion = as_text(row["prompt"]), row.get("completion") or ""
    if tokenizer and tokenizer.chat_template:
        prompt = render_prompt(row["prompt"], tokenizer)
        completion = render_completion(completion, prompt)
    texts = {"Prompt": shorten(prompt), "Completion": shorten(completion)}
    return {"id": row["id"], "texts": texts | {"Gold": " or ".join(row["answers"])}}


def largest(counts: Counter[Any]) -> list[tuple[str, int]]:
    """The most frequent names, or levels in their order, with their counts; then all others."""
    rows = counts.most_common(MAX_SHOWN)
    if not isinstance(next(iter(counts), ""), str):
        rows = [(f"{source} {level:.3g}", number) for (source, level), number in sorted(rows)]
    rest = len(counts) - len(rows)
    if rest:
        rows.append((f"{rest:,} others", counts.total() - sum(number for _, number in rows)))
    return rows


def add_samples(files: dict[str, dict[str, Any]], path: Path) -> None:
    """Add `samples` to each file: by reason up to `NUM_SAMPLES` logged rows, drawn at random."""
    for file in files.values():
        file["samples"] = {reason: [] for reason in file["dropped"] if reason != NOT_DRAWN}
    draw, seen = random.Random(0), Counter()
    for _, row in read_rows(path):
        kind = row["file"], row["reason"]
        seen[kind] += 1
        sample = {key: row[key] for key in ("where", "detail", "id", "question", "answers")}
        keep(files[kind[0]]["samples"][kind[1]], sample, NUM_SAMPLES, seen[kind], draw)


def read_matches(path: Path) -> dict[str, Any]:
    """`matches`, rows (benchmark, file, kind, number); `pairs`, the `NUM_PAIRS` least certain."""
    pairs = [row for _, row in read_rows(path)]
    counts = Counter((pair["benchmark"], pair["file"], pair["kind"]) for pair in pairs)
    return {
        "matches": [[*kind, number] for kind, number in sorted(counts.items())],
        "pairs": sorted(pairs, key=lambda pair: pair["score"])[:NUM_PAIRS],
    }


def summary(report: dict[str, Any]) -> str:
    """One paragraph: rows in, problems out, and the most frequent reasons for dropping a row."""
    made = ", ".join(f"{file['rows_out']:,} in {name}" for name, file in report["files"].items())
    text = f"Rows in: {report['rows_in']:,}. Problems: {report['rows_out']:,} ({made})."
    dropped = Counter(report["dropped"])
    text += f" Left out: {dropped.total():,}"
    if dropped:
        reasons = [f"{reason} ({number:,})" for reason, number in dropped.most_common(3)]
        text += f", most of all as {', '.join(reasons)}"
    return f"{text}."


def warnings(report: dict[str, Any]) -> list[str]:
    """Reasons to doubt the data, most serious first; none where all is well."""
    found = []
    names = set()  # of the sources that are trained on
    for file in report["files"].values():
        if file["is_training"]:
            names.update(source["name"] for source in file["sources"])
    if names - {"synthetic"}:
        unchecked: dict[str, list[str]] = defaultdict(list)
        for name, why in report["decontamination"].items():
            if not isinstance(why, int):
                unchecked[why.removeprefix(NOT_CHECKED)].append(name)
        found += [
            f"Not kept out of the training files ({why}): {', '.join(names)}."
            for why, names in unchecked.items()
        ]
    for name, file in report["files"].items():
        for source in file["sources"]:
            number = source["dropped"].get("bad_row")
            if number:
                found.append(f"{name}: {number:,} rows of {source['label']} cannot be read.")
            rows_in, dropped = source["rows_in"], source["dropped"]
            lost = sum(dropped[reason] for reason in dropped if reason not in ON_PURPOSE)
            if lost > MAX_LOST * rows_in:
                found.append(f"{name}: {source['label']} lost {lost:,} of {rows_in:,} rows.")
    return found


def tables(report: dict[str, Any]) -> dict[str, Any]:
    """The page's tables: `reasons`, by heading; `made_of`, `places` and `lengths` of all files."""
    files = report["files"]
    alone, reasons = {}, {}
    for name, file in files.items():
        if len(file["sources"]) == 1:
            alone[f"{name}, {file['sources'][0]['label']}"] = file
        else:
            parts = {"all": file} | {one["label"]: one for one in file["sources"]}
            reasons[name] = reason_table(parts)
    if alone:
        which = "Other files" if reasons else "Files"
        reasons[f"{which} of one source each"] = reason_table(alone)
    places = []
    for name, file in files.items():
        for one in file["sources"]:
            place = f"{one['place']}, split {one['split']}" if one["place"] else "generated"
            places.append([f"{name}: {one['label']}", place])
    lengths = [
        [f"{name}, {text}", *found.values()]
        for name, file in files.items()
        for text, found in file["lengths"].items()
    ]
    return {
        "reasons": reasons,
        "made_of": mix_table(files),
        "places": (["source", "read from"], places),
        "lengths": (["text", "rows", "median", "95 % up to", "longest"], lengths),
    }


def reason_table(parts: dict[str, dict[str, Any]]) -> Table:
    """How many rows of files or sources each reason dropped."""
    columns = {}
    for label, part in parts.items():
        counts = {"rows in": part["rows_in"], "rows out": part["rows_out"]}
        columns[label] = counts | part["dropped"]
    return share_table(columns)


def mix_table(files: dict[str, dict[str, Any]]) -> Table:
    """How many rows each source, subject, level and band of difficulty of the files has."""
    columns = {}
    for name, file in files.items():
        columns[name] = {"rows": file["num_rows"]}
        for kind, found in file["made_of"].items():
            columns[name] |= {f"{kind} {label}": number for label, number in found}
        for band, number in file["bands"].items():
            columns[name][f"difficulty {band}"] = number
    header, rows = share_table(columns)
    return header, sorted(rows, key=lambda row: KINDS.index(row[0].split(" ")[0]))


def share_table(columns: dict[str, dict[str, int]]) -> Table:
    """Counts by column and name, each with its share, in per cent, of the column's first."""
    rows = {name: [name] for column in columns.values() for name in column}
    for column in columns.values():
        whole = next(iter(column.values()))
        for name, row in rows.items():
            number = column.get(name, 0)
            row.append(f"{number:,} ({100 * number / whole:.1f})" if number else "-")
    return ["", *(f"{name} (%)" for name in columns)], list(rows.values())


if __name__ == "__main__":
    run_cli(main)
