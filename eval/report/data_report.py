"""One page on a built data folder: what became of every row, and what the files are made of.

    python -m eval.report.data_report --data runs/tiny-cpu/data

Reads the manifest, data files and logs that `data_prep.build` left in the folder. Writes to
`<run>/data-report`: `data-report.html`, one page that needs nothing else; `data-report.json`, its
numbers; and, last, `manifest.json`.
"""

import heapq
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import manifest
from data_prep.build.recipe import FILES, TRAINING
from data_prep.checkpoints import load_tokenizer
from data_prep.config import UserError, parse, run_cli
from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.reading.rows import read_rows
from eval.report.page import flatten
from eval.report.plots import BARS, INK, to_svg
from eval.report.render import Table, clean, html

STAGE = "data-report"
KEYS = ("config", "rows_in", "rows_out", "dropped", "outputs", "decontamination", "seconds")
COUNTS = ("rows_in", "rows_out", "dropped", "sources")  # of each file
ORDER = [FILES[key] for key in ("sft", "grpo", "validation", "test")]
TEXTS = ("question", "completion")  # whose lengths are measured, where a row has them
NUM_MEASURED = 10_000  # rows of a file: tokenizing all of a large one would take minutes
BATCH = 512  # texts that are tokenized together
NUM_BINS = 32  # of a histogram
NUM_PAIRS = 20
MAX_SHOWN = 15  # sources, subjects or levels of a file
MAX_LOST = 0.5  # share of a source's rows
NOT_CHECKED = "not checked: "  # as the builder begins its reason
NOT_LISTED = "not listed in `decontaminate`"

# Why rows are left out, in the order of the builder's steps; docs/data.md says what each means. A
# source may have reasons of its own, which are found while it is read.
READING = (
    "not_sampled", "bad_row", "invalid_problem", "unknown_template", "not_math", "no_answer",
    "no_boxed_answer", "unbalanced_box", "empty_box", "text_answer",
)  # fmt: skip
CLEANING = (
    "empty_question", "no_solution", "sentinel_answer", "image", "proof", "multiple_choice",
    "shows_answer", "gold_not_parseable", "level", "foreign_language", "in_eval_set",
    "duplicate_question", "conflicting_gold", "near_duplicate", "unknown_difficulty", "not_in_mix",
)  # fmt: skip
ON_PURPOSE = ("not_sampled", "not_in_mix")  # good rows that the recipe does not ask for


@dataclass
class DataReportArguments:
    """Keys of the command line; there is no YAML for this one."""

    data: str = field(metadata={"help": "folder of a data build"})
    rows: int = field(default=5, metadata={"help": "rows shown of each file and drop reason"})
    tokenizer: str | None = field(
        default=None, metadata={"help": "folder or hub id that measures lengths; unset: characters"}
    )

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise UserError(f"rows: {self.rows} must be at least 1")


def main() -> None:
    """Read the folder, count, write the page and its numbers, then the manifest."""
    (args,) = parse(__doc__, DataReportArguments)
    data = Path(args.data)
    folder = data.resolve().parent / STAGE
    build = read_build(data)
    path, tokenizer = args.tokenizer, None
    if path:
        tokenizer = load_tokenizer(path, "tokenizer", needs=()).backend_tokenizer
    started = manifest.start(folder)

    files, lengths = {}, {}
    for name in sorted(build["outputs"], key=ORDER.index):
        counts, lengths[name] = count_rows(data / name, tokenizer)
        files[name] = describe_file(name, build) | counts
    add_dropped(files, data, args.rows)
    matches, pairs = read_matches(data)
    report: dict[str, Any] = {
        "title": f"Data of {data.resolve().parent.name}",
        **{key: build[key] for key in ("rows_in", "rows_out", "dropped")},
        "adds_up": adds_up(build, files.values()),
        "files": files,
        "unit": "tokens" if tokenizer else "characters",
        "tokenizer": path,
        "decontamination": describe_benchmarks(build),
        "matches": [[*kind, number] for kind, number in sorted(matches.items())],
        "pairs": pairs,
        "build": {key: build.get(key) for key in (
            "config", "git_commit", "inputs", "versions", "seconds", "wall_time_s")},
        "report_commit": manifest.git_commit(),
    }  # fmt: skip
    report["summary"], report["warnings"] = summary(report), warnings(report)

    (folder / f"{STAGE}.html").write_text(build_page(report, lengths), encoding="utf-8")
    manifest.write_json(folder / f"{STAGE}.json", manifest.finite(report))
    num_rows = {name: file["num_rows"] for name, file in files.items()}
    inputs = manifest.hash_inputs([data / manifest.NAME])
    manifest.write(folder, STAGE, asdict(args), inputs, num_rows, started)
    for warning in report["warnings"]:
        sys.stdout.write(f"warning: {clean(warning)}\n")
    sys.stdout.write(f"{STAGE}: {report['summary']} {folder}/{STAGE}.html\n")


def read_build(folder: Path) -> dict[str, Any]:
    """The manifest of the data build in `folder`.

    Raises:
        UserError: no build has finished there, another stage has, or one too old to be shown.
    """
    path = folder / manifest.NAME
    try:
        found = manifest.read(folder)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); run `make data` again") from error
    if found is None:
        raise UserError(f"data: {folder} has no {manifest.NAME}; run `make data`, or set --data "
                        "to the folder of a finished build")  # fmt: skip
    if not isinstance(found, dict) or found.get("stage") != "data":
        raise UserError(f"{path}: is not of the stage data; set --data to the folder of a build")
    outputs = found.get("outputs", {})
    missing = [key for key in KEYS if key not in found]
    missing += [name for name in outputs if name not in ORDER]
    missing += [key for file in outputs.values() for key in COUNTS if key not in file]
    if missing or not outputs:
        raise UserError(f"{path}: {', '.join(missing) or 'outputs'}: missing or unknown, as in "
                        "builds of another version; run `make data` again")  # fmt: skip
    return found


def describe_file(name: str, build: dict[str, Any]) -> dict[str, Any]:
    """The manifest's counts of a data file and of its sources, drops in the builder's order.

    A source has a `label`, unique in its file, and the manifest's keys; `mix` is the share of each
    difficulty that the recipe asks for.
    """
    found = build["outputs"][name]
    key = next(key for key in FILES if FILES[key] == name)
    names = [one["name"] for one in found["sources"]]
    sources = []
    for number, one in enumerate(found["sources"], 1):
        label = one["name"] if names.count(one["name"]) == 1 else f"{one['name']} {number}"
        sources.append(one | {"label": label, "dropped": in_order(one["dropped"])})
    return {
        "is_training": key in TRAINING,
        "rows_in": found["rows_in"],
        "rows_out": found["rows_out"],
        "dropped": in_order(found["dropped"]),
        "sources": sources,
        "adds_up": adds_up(found, sources) and all(adds_up(one, [one]) for one in sources),
        "bands": found.get("bands") or {},
        "mix": (build["config"].get("mix") or {}).get(key) or {},
    }


def in_order(dropped: dict[str, int]) -> dict[str, int]:
    """Counts by reason in the order of the builder's steps; unknown ones are a source's own."""
    unknown = sorted(dropped.keys() - {*READING, *CLEANING})
    return {reason: dropped[reason] for reason in [*READING, *unknown, *CLEANING]
            if reason in dropped}  # fmt: skip


def adds_up(counts: dict[str, Any], parts: Iterable[dict[str, Any]]) -> bool:
    """Whether rows in are rows out and named drops, and the sums over the parts."""
    parts = list(parts)
    dropped = sum((Counter(part["dropped"]) for part in parts), Counter())
    return (
        counts["rows_in"] == counts["rows_out"] + dropped.total()
        and dropped == Counter(counts["dropped"])
        and all(counts[key] == sum(part[key] for part in parts) for key in ("rows_in", "rows_out"))
    )


def describe_benchmarks(build: dict[str, Any]) -> dict[str, Any]:
    """`{benchmark: its number of questions, or why it was not compared}`, own sets included."""
    outputs = build["outputs"]
    own = {key: outputs[FILES[key]]["rows_out"] for key in ("test", "validation")
           if FILES[key] in outputs}  # fmt: skip
    return dict.fromkeys(BENCHMARKS, NOT_LISTED) | build["decontamination"] | own


def count_rows(path: Path, tokenizer: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Count the rows of one data file by source, subject and level, and measure its texts.

    Args:
        tokenizer: of the tokenizers library; None measures characters. The first `NUM_MEASURED`
            rows are measured: the builder has shuffled training files, so they are a random sample.

    Returns:
        The counts as `data-report.json` has them; and `{"question" or "completion": lengths}`.

    Raises:
        UserError: the file is missing, or a row is damaged; names file and line.
    """
    num_rows, counts = 0, {kind: Counter() for kind in ("source", "subject", "level")}
    texts: dict[str, list[str]] = defaultdict(list)
    for where, row in _read(path):
        num_rows += 1
        source, level = _get(row, "source", where), row.get("level")
        counts["source"][source] += 1
        counts["subject"][_get(row, "subject", where) or "(none)"] += 1
        if level is not None:
            counts["level"][f"{source} {_get(row, 'level', where, (int, float)):.3g}"] += 1
        if num_rows <= NUM_MEASURED:
            for name in TEXTS:
                if name == "question" or name in row:
                    texts[name].append(_get(row, name, where))
    lengths = {name: measure(found, tokenizer) for name, found in texts.items()}
    described = {
        name: {"num": len(found), "median": quantile(found, 0.5), "p95": quantile(found, 0.95),
               "longest": int(found.max())}
        for name, found in lengths.items()
    }  # fmt: skip
    tables = {kind: largest(found) for kind, found in counts.items()}
    return {"num_rows": num_rows, "lengths": described, "made_of": tables}, lengths


def measure(texts: list[str], tokenizer: Any) -> np.ndarray:
    """The length of each text, in characters or in the tokenizer's tokens."""
    if tokenizer is None:
        return np.array([len(text) for text in texts])
    batches = (texts[start : start + BATCH] for start in range(0, len(texts), BATCH))
    return np.array([
        len(one)
        for batch in batches
        for one in tokenizer.encode_batch_fast(batch, add_special_tokens=False)
    ])  # fmt: skip


def quantile(lengths: np.ndarray, share: float) -> int:
    """The smallest length that at least `share` of the texts do not exceed (nearest rank)."""
    return int(np.quantile(lengths, share, method="inverted_cdf"))


def largest(counts: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent names with their counts, then all others together."""
    rows = counts.most_common(MAX_SHOWN)
    if rest := len(counts) - len(rows):
        rows.append((f"{rest:,} others", counts.total() - sum(number for _, number in rows)))
    return rows


def add_dropped(files: dict[str, dict[str, Any]], folder: Path, size: int) -> None:
    """Add `num_logged` and `samples`, up to `size` dropped rows drawn at random, by reason.

    Only reasons of the manifest: a log that does not belong to it could have any number.

    Raises:
        UserError: the log is missing, or a row is damaged; names file and line.
    """
    for file in files.values():
        file["num_logged"] = dict.fromkeys(logged(file), 0)
        file["samples"] = {reason: [] for reason in logged(file)}
    draw = random.Random(0)
    columns = ("where", "detail", "id", "question")
    for where, row in _read(folder / "dropped.jsonl"):
        name, reason = (_get(row, key, where) for key in ("file", "reason"))
        if name not in files or reason not in files[name]["samples"]:
            continue
        kept, counts = files[name]["samples"][reason], files[name]["num_logged"]
        counts[reason] += 1
        # Reservoir sampling (Vitter's algorithm R): every row is kept with the same chance.
        place = len(kept) if counts[reason] <= size else draw.randrange(counts[reason])
        if place < size:
            shown = {key: _get(row, key, where) for key in columns}
            kept[place : place + 1] = [shown | {"answers": _get(row, "answers", where, list)}]


def logged(file: dict[str, Any]) -> dict[str, int]:
    """The drops that are logged; rows that a sample did not draw are only counted."""
    return {reason: n for reason, n in file["dropped"].items() if reason != "not_sampled"}


def read_matches(folder: Path) -> tuple[Counter, list[dict[str, Any]]]:
    """Matches with evaluation sets: their counts, and the `NUM_PAIRS` least certain of them.

    Returns:
        `{(benchmark, file, kind): pairs}`, and pairs as the builder logs them, lowest score first.

    Raises:
        UserError: the log is missing, or a row is damaged; names file and line.
    """
    counts: Counter[tuple[str, str, str]] = Counter()

    def pairs() -> Iterator[dict[str, Any]]:
        names = ("file", "where", "id", "question",
                 "benchmark", "benchmark_id", "benchmark_question", "kind")  # fmt: skip
        for where, row in _read(folder / "contamination.jsonl"):
            pair: dict[str, Any] = {name: _get(row, name, where) for name in names}
            pair["answers"] = _get(row, "answers", where, list)
            counts[pair["benchmark"], pair["file"], pair["kind"]] += 1
            yield pair | {"score": float(_get(row, "score", where, (int, float)))}

    least = heapq.nsmallest(NUM_PAIRS, pairs(), key=lambda pair: pair["score"])
    return counts, least


def _read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file, though the build has finished; run `make data`")
    yield from read_rows(path)


def _get(row: dict[str, Any], name: str, where: str, kind: Any = str) -> Any:
    value = row.get(name)
    is_kind = isinstance(value, kind)
    if kind is list and is_kind:
        is_kind = all(isinstance(one, str) for one in value)
    if not is_kind:
        wanted = {str: "text", list: "a list of texts"}.get(kind, "a number")
        raise UserError(f"{where}: {name}: {value!r:.80} is not {wanted}; run `make data` again")
    return value


def summary(report: dict[str, Any]) -> str:
    """One paragraph: rows in, problems out, and the reasons that took most."""
    made = ", ".join(f"{file['rows_out']:,} in {name}" for name, file in report["files"].items())
    text = f"Rows in: {report['rows_in']:,}. Problems: {report['rows_out']:,} ({made})."
    most = Counter(report["dropped"]).most_common(3)
    reasons = ", ".join(f"{reason} ({number:,})" for reason, number in most)
    dropped = sum(report["dropped"].values())
    return f"{text} Left out: {dropped:,}{', most of all as ' if most else ''}{reasons}."


def warnings(report: dict[str, Any]) -> list[str]:
    """What a reader should doubt, most serious first; none where all is well."""
    found = [] if report["adds_up"] else ["The totals do not add up to those of the files."]
    for name, file in report["files"].items():
        if not file["adds_up"]:
            found.append(f"{name}: rows in are not rows out and named drops.")
        if file["num_rows"] != file["rows_out"] or file["num_logged"] != logged(file):
            found.append(
                f"{name} or dropped.jsonl has other rows than the manifest counts: it was changed "
                "after the build."
            )
    if any(file["is_training"] and {one["name"] for one in file["sources"]} != {"synthetic"}
           for file in report["files"].values()):  # fmt: skip
        found += [
            f"{name} was not kept out of the training files: {why.removeprefix(NOT_CHECKED)}."
            for name, why in report["decontamination"].items()
            if not isinstance(why, int)
        ]
    for name, file in report["files"].items():
        for source in file["sources"]:
            if number := source["dropped"].get("bad_row"):
                found.append(f"{name}: {number:,} rows of {source['label']} cannot be read.")
            taken = source["rows_in"] - source["dropped"].get("not_sampled", 0)
            lost = sum(n for r, n in source["dropped"].items() if r not in ON_PURPOSE)
            if lost > MAX_LOST * taken:
                found.append(f"{name}: {source['label']} lost {lost:,} of {taken:,} rows.")
    return found


def build_page(report: dict[str, Any], lengths: dict[str, dict[str, np.ndarray]]) -> str:
    """The HTML page.

    Args:
        report: the content of `data-report.json`.
        lengths: `{file: {"question" or "completion": lengths}}`.
    """
    opening = [html.text(report["summary"], lead=True)]
    if report["warnings"]:
        opening.append(html.warnings(report["warnings"]))
    sections = {
        "steps": ("Step by step", _steps(report)),
        "lengths": ("Lengths", _lengths(report, lengths)),
        "mix": ("Sources, subjects, levels", _mix(report)),
        "decontamination": ("Decontamination", _decontamination(report)),
        "dropped": ("Rows that were left out", _dropped(report)),
        "provenance": ("Provenance", _provenance(report)),
    }
    return html.page(report["title"], ", ".join(report["files"]), opening, sections)


def share(part: float, whole: float) -> str:
    """A share in per cent, one digit; a hyphen of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "-"


def funnel_table(file: dict[str, Any]) -> Table:
    """What each reason took of one file's rows, what was left, and of which source."""
    sources = file["sources"] if len(file["sources"]) > 1 else []
    left, total = file["rows_in"], file["rows_in"]
    rows = [["rows in", total, share(total, total), left, *(one["rows_in"] for one in sources)]]
    for reason, number in file["dropped"].items():
        left -= number
        taken = (one["dropped"].get(reason, 0) for one in sources)
        rows.append([reason, number, share(number, total), left, *taken])
    out = file["rows_out"]
    rows.append(["rows out", out, share(out, total), out, *(one["rows_out"] for one in sources)])
    header = ["step", "rows", "%", "left", *(one["label"] for one in sources)]
    return header, [[f"{x:,}" if isinstance(x, int) else x for x in row] for row in rows]


def _steps(report: dict) -> list:
    words = "Every row is written or left out for one reason, the first that it meets in this order"
    blocks = [html.text(f"{words}; below are rows of each.")]
    for name, file in report["files"].items():
        blocks += [html.heading(name), html.table(*funnel_table(file))]
    places = [
        [f"{name}: {one['label']}",
         f"{one['place']}, split {one['split']}" if one["place"] else "generated"]
        for name, file in report["files"].items()
        for one in file["sources"]
    ]  # fmt: skip
    table = html.table(["source", "read from"], places, facts=True)
    return [*blocks, html.details("where the sources are read from", [table])]


def _lengths(report: dict, lengths: dict[str, dict[str, np.ndarray]]) -> list:
    rows = [
        [f"{name}, {text}", *(f"{number:,}" for number in found.values())]
        for name, file in report["files"].items()
        for text, found in file["lengths"].items()
    ]
    of = f" of `{report['tokenizer']}`" if report["tokenizer"] else ""
    words = (
        f"In {report['unit']}{of}, without chat template, of the first {NUM_MEASURED:,} rows of "
        "each file (training files are shuffled): the median, the length that 95 % of the texts do "
        "not exceed, and the longest."
    )
    svgs = [
        to_svg(partial(_draw_lengths, lengths=found, title=name, unit=report["unit"]), (4.2, 2.9),
               f"lengths-{number}", f"Lengths: {name}")
        for number, (name, found) in enumerate(lengths.items())
        if found
    ]  # fmt: skip
    caption = f"Lengths of {', '.join(lengths)}; the axis is logarithmic"
    table = html.table(["text", "rows", "median", "95 % up to", "longest"], rows)
    return [html.text(words), html.figure(caption, svgs), table] if svgs else []


def _draw_lengths(axis: Any, lengths: dict[str, np.ndarray], title: str, unit: str) -> None:
    for color, (name, found) in zip(BARS[1:], lengths.items(), strict=False):
        found = np.maximum(found, 1)  # an empty text has no logarithm
        # Edges at halves: every bin has a whole number in it.
        edges = np.geomspace(found.min(), found.max() + 1, NUM_BINS + 1).round()
        axis.hist(found, np.unique(edges) - 0.5, color=color, alpha=0.6, label=name)
    axis.set_xscale("log")
    axis.set_xticks(np.unique(np.geomspace(*axis.get_xlim(), 6).round()[1:-1]))
    axis.minorticks_off()
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.legend(frameon=False, fontsize=9, labelcolor=INK)
    axis.set(title=title, xlabel=unit, ylabel="rows")


def _mix(report: dict[str, Any]) -> list:
    """How many rows each source, subject, level and band of difficulty of a file has."""
    blocks = []
    for name, file in report["files"].items():
        rows = [
            [kind, label, f"{number:,}", share(number, file["num_rows"])]
            for kind, found in (file["made_of"] | {"difficulty": file["bands"].items()}).items()
            for label, number in found
        ]
        asked = ", ".join(f"{key} {value}" for key, value in file["mix"].items())
        blocks += [html.heading(name), html.table(["by", "", "rows", "%"], rows)]
        blocks += [html.text(f"The mix asks for {asked}.")] if asked else []
    return blocks


def _decontamination(report: dict) -> list:
    sets = [
        [name, f"{number:,}" if isinstance(number, int) else number]
        for name, number in report["decontamination"].items()
    ]
    words = (
        "A training problem that is in one of these sets is left out: in the same words (exact), "
        "inside a longer text (embedded) or in other words (reworded)."
    )
    blocks = [html.text(words), html.table(["evaluation set", "questions"], sets)]
    if report["matches"]:
        counts = [[*kind, f"{number:,}"] for *kind, number in report["matches"]]
        blocks.append(html.table(["evaluation set", "file", "kind", "pairs"], counts))
        title = f"{len(report['pairs'])} pairs, the least certain first (contamination.jsonl)"
        blocks.append(html.details(title, map(_pair, report["pairs"])))
    return blocks


def _pair(pair: dict) -> str:
    facts = f"{pair['kind']}, score {pair['score']:.2f}; {pair['file']}; {pair['where']}"
    texts = {
        f"Training problem, gold {' or '.join(pair['answers'])}": pair["question"],
        f"Question of {pair['benchmark']}": pair["benchmark_question"],
    }
    return html.example(f"{pair['id']} and {pair['benchmark_id']}", facts, texts)


def _dropped(report: dict) -> list:
    """Samples of the rows that were left out, by file and reason."""
    blocks = []
    for name, file in report["files"].items():
        for reason, rows in file["samples"].items():
            title = f"{name}: `{reason}`, {len(rows)} of {file['dropped'][reason]:,} rows"
            blocks.append(html.details(title, map(_dropped_row, rows)))
    words = "Of each file and reason some rows, drawn at random; dropped.jsonl has all."
    return [html.text(words), *blocks] if blocks else []


def _dropped_row(row: dict) -> str:
    texts = {"Question": row["question"], "Gold": " or ".join(row["answers"])}
    shown = {label: text for label, text in texts.items() if text}
    facts = row["detail"].removeprefix(f"{row['where']}: ")  # as messages begin
    title = f"{row['id']} ({row['where']})".strip()
    return html.example(title, facts, shown, ends_short=len(shown) == 2)


def _provenance(report: dict) -> list:
    found = report["build"]
    facts = {
        "commit of the build": found["git_commit"] or "not in a git checkout",
        "commit of this report": report["report_commit"] or "not in a git checkout",
        "wall time": f"{found['wall_time_s'] or 0:,.0f} s",
        "seconds of all processes": found["seconds"],
        "version": found["versions"] or {},
    }
    rest = {"configuration": found["config"], "inputs": found["inputs"] or {}}
    folded = [html.table(["key", "value"], flatten(rest), facts=True)]
    return [
        html.table(["what", "value"], flatten(facts), facts=True),
        html.details("configuration and inputs (SHA-256)", folded),
    ]


if __name__ == "__main__":
    run_cli(main)
