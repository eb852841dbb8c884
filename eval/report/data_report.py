"""One page on a built data folder: what became of every row, and what the sets are made of.

    python -m eval.report.data_report --data runs/tiny-cpu/data

Reads the manifest, data files and logs that `data_prep.build` left in the folder, and the pass
rates of `stages.difficulty` next to it, if there are some. Writes to `<run>/data-report`:
`data-report.html`, one page that needs nothing else; `data-report.json` with every number; and,
last, `manifest.json`. Memory stays small and time grows with the rows: a file of 100,000 takes some
seconds.
"""

import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import manifest
from data_prep.build.filters import load_tokenizer
from data_prep.config import UserError, parse, run_cli
from data_prep.sampling.pass_rates import load_pass_counts
from eval.report import data_numbers
from eval.report.data_numbers import NOT_LISTED, ON_PURPOSE, REASONS
from eval.report.page import flatten
from eval.report.plots import INK, LINE, to_svg
from eval.report.render import Table, clean, html

STAGE = "data-report"
NUM_PAIRS = 20
NUM_TOKENIZED = 10_000  # rows of a file: tokenizing all of a large one would take minutes
MAX_LOST = 0.5  # share of a source's rows
MAX_REASON = 0.2  # share of a file's rows that one reason takes
NOT_CHECKED = "not checked: "  # as the builder begins its reason
KINDS = ("exact", "same letters", "embedded", "reworded")


@dataclass
class DataReportArguments:
    """Keys of the command line; there is no YAML for this one."""

    data: str = field(metadata={"help": "folder of a data build"})
    output_dir: str = field(
        default="", metadata={"help": "where the page goes; data-report next to it by default"}
    )
    rows: int = field(default=5, metadata={"help": "rows shown of each file and drop reason"})
    tokenizer: str | None = field(
        default=None,
        metadata={"help": "folder or hub id that measures lengths; the build's by default"},
    )
    pass_rates: str | None = field(
        default=None, metadata={"help": "pass_rates.jsonl; the run's or the build's by default"}
    )

    def __post_init__(self) -> None:
        self.data = self.data.rstrip("/") or "/"
        self.output_dir = self.output_dir or str(Path(self.data).resolve().parent / STAGE)
        if self.rows < 1:
            raise UserError(f"rows: {self.rows} must be at least 1")


def main() -> None:
    """Read the folder, count, draw, write the page and its numbers, then the manifest."""
    (args,) = parse(__doc__, DataReportArguments)
    data, folder = Path(args.data), Path(args.output_dir)
    build = data_numbers.read_build(data)
    check_output(folder)
    tokenizer = args.tokenizer or build["config"].get("tokenizer")
    measure = data_numbers.count_characters
    if tokenizer:
        measure = data_numbers.count_tokens(load_tokenizer(tokenizer))
    rates_file = find_pass_rates(args.pass_rates, data, build["config"].get("pass_rates"))
    rates = load_pass_counts(rates_file) if rates_file else {}
    started = manifest.start(folder)

    report: dict[str, Any] = {
        "title": f"Data of {data.resolve().parent.name}",
        "summary": "", "warnings": [],
        **{key: build[key] for key in ("rows_in", "rows_out", "dropped")},
        "adds_up": data_numbers.adds_up(build, build["outputs"].values()),
        "files": data_numbers.describe_files(build),
        "unit": "tokens" if tokenizer else "characters",
        "tokenizer": tokenizer,
        "num_measured": NUM_TOKENIZED if tokenizer else None,
        "pass_rates": rates_file,
        "decontamination": data_numbers.describe_benchmarks(build),
        "build": {key: build.get(key) for key in (
            "config", "git_commit", "inputs", "versions", "seconds", "wall_time_s")},
        "report_commit": manifest.git_commit(),
    }  # fmt: skip
    lengths: dict[str, Counter[int]] = {}
    for name, file in report["files"].items():
        counts, found = data_numbers.count_rows(data / name, measure, rates, report["num_measured"])
        file |= counts
        lengths |= {f"{name}: {text}": by_length for text, by_length in found.items()}
    read_logs(data, report, args.rows)
    report["summary"], report["warnings"] = summary(report), warnings(report)

    (folder / f"{STAGE}.html").write_text(build_page(report, lengths), encoding="utf-8")
    manifest.write_json(folder / f"{STAGE}.json", manifest.finite(report))
    inputs = [data / manifest.NAME, *([rates_file] if rates_file else [])]
    num_rows = {name: file["num_rows"] for name, file in report["files"].items()}
    manifest.write(folder, STAGE, asdict(args), manifest.hash_inputs(inputs), num_rows, started)
    for warning in report["warnings"]:
        sys.stdout.write(f"warning: {clean(warning)}\n")
    sys.stdout.write(f"{STAGE}: {report['summary']} {folder}/{STAGE}.html\n")


def check_output(folder: Path) -> None:
    """Refuse a folder that another stage's result is in: its manifest would be removed."""
    try:
        found = manifest.read(folder)
    except ValueError:
        found = {}
    if found is not None and found.get("stage") != STAGE:
        raise UserError(
            f"output_dir: {folder} holds the result of another stage; choose another folder"
        )


def find_pass_rates(given: str | None, data: Path, of_build: str | None) -> str | None:
    """The file of pass rates: the one given, the run's own, or the one that the build used.

    Raises:
        UserError: the given file does not exist.
    """
    if given:
        if not Path(given).is_file():
            raise UserError(f"pass_rates: {given} does not exist; run `make difficulty`, or "
                            "leave it out")  # fmt: skip
        return given
    own = data.resolve().parent / "difficulty" / "pass_rates.jsonl"
    return next((str(path) for path in (own, of_build) if path and Path(path).is_file()), None)


def read_logs(data: Path, report: dict[str, Any], num_rows: int) -> None:
    """Add what the build's two logs say: `num_logged` and `samples` of the files.

    And `matches`, [benchmark, file, kind, number] of the pairs that decontamination found, with
    `pairs`, the least certain of the pairs themselves.
    """
    wanted = [(name, reason) for name, file in report["files"].items() for reason in _logged(file)]
    counts, samples = data_numbers.sample_dropped(data, wanted, num_rows)
    for name, file in report["files"].items():
        file["num_logged"] = {reason: counts[name, reason] for reason in _logged(file)}
        file["samples"] = {
            reason: samples[name, reason] for reason in _logged(file) if (name, reason) in samples
        }
    matches, report["pairs"] = data_numbers.read_matches(data, NUM_PAIRS)
    report["matches"] = [[*kind, number] for kind, number in sorted(matches.items())]


def _logged(file: dict[str, Any]) -> dict[str, int]:
    """The drops that are logged; rows that a sample did not draw are only counted."""
    return {reason: n for reason, n in file["dropped"].items() if reason != "not_sampled"}


def summary(report: dict[str, Any]) -> str:
    """One paragraph: rows in, problems out, and the three reasons that took most."""

    def count(number: int, what: str) -> str:
        return f"{number:,} {what}{'s' * (number != 1)}"

    files = report["files"]
    num_sources = sum(len(file["sources"]) for file in files.values())
    made = ", ".join(f"{name} with {file['rows_out']:,}" for name, file in files.items())
    text = (
        f"{count(report['rows_in'], 'row')} of {count(num_sources, 'source')} became "
        f"{count(report['rows_out'], 'problem')}: {made}."
    )
    dropped = Counter(report["dropped"])
    if not dropped:
        return f"{text} None was left out."
    most = [f"{reason} ({number:,})" for reason, number in dropped.most_common(3)]
    words = "most of them as" if len(dropped) > 3 else "as"
    was = "was" if dropped.total() == 1 else "were"
    return f"{text} {dropped.total():,} {was} left out, {words} {_join(most)}."


def _join(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def warnings(report: dict[str, Any]) -> list[str]:
    """What a reader should doubt, most serious first; none where all is well."""
    files = report["files"]
    found = [*_contradictions(report), *_contamination(report)]
    found += [
        f"{name}: {number:,} of {source['rows_in']:,} rows of {source['label']} could not be used "
        "as they are (bad_row) and were skipped; see below what was wrong."
        for name, file in files.items()
        for source in file["sources"]
        if (number := source["dropped"].get("bad_row"))
    ]
    found += [warning for name, file in files.items() for warning in _losses(name, file)]
    found += [
        f"{name}: the mix asks for {file['size']:,} problems and got {file['rows_out']:,}: there "
        "are too few of one difficulty."
        for name, file in files.items()
        if file["size"] and file["rows_out"] < file["size"]
    ]
    rates = report["pass_rates"]
    if rates and not any(file["solved"] for file in files.values()):
        found.append(f"{rates} has no problem of any file here; run `make difficulty` again.")
    return found


def _contradictions(report: dict) -> list[str]:
    """Counts that contradict each other, or the files."""
    broken = [name for name, file in report["files"].items() if not file["adds_up"]]
    if not (broken or report["adds_up"]):
        broken = ["the totals"]
    found = []
    if broken:
        found.append(f"The counts of {', '.join(broken)} do not add up: rows in are not rows out "
                     "and named drops.")  # fmt: skip
    for name, file in report["files"].items():
        if file["num_rows"] != file["rows_out"]:
            found.append(
                f"{name} has {file['num_rows']:,} rows where the manifest says "
                f"{file['rows_out']:,}: it was changed after the build."
            )
        if file["num_logged"] != _logged(file):
            found.append(
                f"dropped.jsonl has other rows of {name} than the manifest counts: one of them was "
                "changed after the build."
            )
    return found


def _contamination(report: dict) -> list[str]:
    """Evaluation sets that may have questions in a training file of real problems."""
    listed = report["decontamination"]
    real = [
        name
        for name, file in report["files"].items()
        if file["is_training"] and any(one["name"] != "synthetic" for one in file["sources"])
    ]
    if not real:
        return []
    if not any(isinstance(number, int) for number in listed.values()):
        return [
            f"No benchmark was kept out of {_join(real)}, whose problems are real ones: a "
            "score of a model trained on them may be a score of its memory. Set `decontaminate`."
        ]
    found = [
        f"{name} was not kept out of the training files: {why.removeprefix(NOT_CHECKED)}."
        for name, why in listed.items()
        if not isinstance(why, int) and why != NOT_LISTED
    ]
    if unlisted := [name for name, why in listed.items() if why == NOT_LISTED]:
        was, them = ("was", "it") if len(unlisted) == 1 else ("were", "them")
        found.append(
            f"{_join(unlisted)} {was} not kept out of the training files: `decontaminate` does not "
            f"list {them}."
        )
    return found


def _losses(name: str, file: dict) -> list[str]:
    """Sources that lost most of their rows, and reasons that took a large part of a file."""
    found, told = [], set()
    for source in file["sources"]:
        taken, lost = losses(source)
        if taken and lost.total() / taken > MAX_LOST:
            reason, number = lost.most_common(1)[0]
            told.add(reason)
            if reason != "bad_row":  # which has a warning of its own
                found.append(
                    f"{name}: {source['label']} lost {100 * lost.total() / taken:.0f} % of its "
                    f"{taken:,} rows, most of them as {reason} ({number:,})."
                )
    taken, lost = losses(file)
    for reason, number in lost.most_common():
        is_told = told == {reason} and len(file["sources"]) == 1  # it is a single source's
        if number / taken > MAX_REASON and not is_told:
            share = 100 * number / taken
            found.append(f"{name}: {reason} took {share:.0f} % of all {taken:,} rows ({number:,}).")
    return found


def losses(counts: dict[str, Any]) -> tuple[int, Counter[str]]:
    """Rows of a file or source that its samples took, and those of them that were unusable."""
    taken = counts["rows_in"] - counts["dropped"].get("not_sampled", 0)
    lost = Counter({r: n for r, n in counts["dropped"].items() if r not in ON_PURPOSE})
    return taken, lost


def build_page(report: dict[str, Any], lengths: dict[str, Counter[int]]) -> str:
    """The whole page as HTML.

    Args:
        report: the content of `data-report.json`.
        lengths: `{title: {length: rows}}` of every kind of text; none is empty.
    """
    opening = [html.text(report["summary"], lead=True)]
    if report["warnings"]:
        opening.append(html.warnings(report["warnings"]))
    sections = {
        "built": ("What was built", _built(report)),
        "steps": ("Step by step", _steps(report)),
        "lengths": ("Lengths", _lengths(report, lengths) if lengths else []),
        "mix": ("Sources, subjects, levels", _mix(report)),
        "difficulty": ("Difficulty", _difficulty(report)),
        "decontamination": ("Decontamination", _decontamination(report)),
        "dropped": ("Rows that were left out", _dropped(report)),
        "provenance": ("Provenance", _provenance(report)),
    }
    return html.page(report["title"], ", ".join(report["files"]), opening, sections)


def share(part: int, whole: int) -> str:
    """A share in per cent, one digit; a hyphen of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "-"


def _built(report: dict) -> list:
    rows, places = [], []
    for name, file in report["files"].items():
        numbers = [f"{number:,}" for number in (file["rows_in"], file["rows_out"])]
        rows.append([name, *numbers, share(file["rows_out"], file["rows_in"])])
        for one in file["sources"]:
            place = f"{one['place']}, split {one['split']}" if one["place"] else "generated"
            places.append([f"{name}: {one['label']}", place])
    read_from = html.table(["source", "read from"], places, facts=True)
    return [
        html.table(["file", "rows in", "rows out", "% kept"], rows),
        html.details("where the sources are read from", [read_from]),
    ]


def funnel_table(file: dict[str, Any]) -> Table:
    """The way of one file's rows: what each reason took, what was left, and of which source.

    Reasons are checked in this order for each row, and a row is counted where it failed first.
    """

    def part(number: int, source: dict) -> str:
        return f"{number:,} ({share(number, source['rows_in'])} %)" if number else "-"

    sources = file["sources"] if len(file["sources"]) > 1 else []
    left, whole, out = file["rows_in"], file["rows_in"], file["rows_out"]
    rows = [["rows in", f"{whole:,}", share(whole, whole), f"{whole:,}",
             *(f"{one['rows_in']:,}" for one in sources)]]  # fmt: skip
    for reason, number in file["dropped"].items():
        left -= number
        cells = [part(one["dropped"].get(reason, 0), one) for one in sources]
        rows.append([reason, f"{number:,}", share(number, whole), f"{left:,}", *cells])
    cells = [part(one["rows_out"], one) for one in sources]
    rows.append(["rows out", f"{out:,}", share(out, whole), f"{out:,}", *cells])
    return ["step", "rows", "%", "left", *(one["label"] for one in sources)], rows


def _steps(report: dict) -> list:
    adds_up = report["adds_up"] and all(file["adds_up"] for file in report["files"].values())
    holds = "holds" if adds_up else "does not hold"
    words = (
        "Every row is written or left out for one reason, the first that it meets in this order; "
        f"below are rows of each. Rows in = rows out + drops {holds} for every file and source."
    )
    blocks = [html.text(words)]
    for name, file in report["files"].items():
        blocks += [html.heading(name), html.table(*funnel_table(file))]
    return blocks


def _lengths(report: dict, lengths: dict[str, Counter[int]]) -> list:
    rows = []
    for name, file in report["files"].items():
        for text, found in file["lengths"].items():
            numbers = (found[key] for key in ("num", "median", "p95", "longest"))
            rows.append([f"{name}, {text}", *(f"{number:,}" for number in numbers)])
    of = f" of `{report['tokenizer']}`" if report["tokenizer"] else ""
    words = (
        f"In {report['unit']}{of}, without chat template: the median, the length that 95 % of the "
        "texts do not exceed, and the longest."
    )
    num, longest = report["num_measured"], max(f["num_rows"] for f in report["files"].values())
    if num is not None and longest > num:
        words += f" Of every file the first {num:,} rows count; training files are shuffled."
    svgs = [
        to_svg(partial(_draw_lengths, counts=found, unit=report["unit"], title=title), (4.2, 2.9),
               f"lengths-{number}", f"Length: {title}")
        for number, (title, found) in enumerate(lengths.items())
    ]  # fmt: skip
    caption = "How long the texts are; the axis is logarithmic where a few are very long"
    table = html.table(["text", "rows", "median", "95 % up to", "longest"], rows)
    return [html.text(words), html.figure(caption, svgs), table]


def _draw_lengths(axis: Any, counts: Counter[int], unit: str, title: str) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    edges, is_log = data_numbers.bin_edges(counts)
    values = np.maximum(list(counts), 1) if is_log else list(counts)
    heights, *_ = axis.hist(
        values, edges, weights=list(counts.values()), color=LINE, alpha=0.75, linewidth=0
    )
    for quantile, style, name in ((0.5, "-", "median"), (0.95, "--", "95 % up to")):
        value = data_numbers.quantile(counts, quantile)
        axis.plot(
            [value, value], [0, 1.08 * max(heights)], style, color=INK, linewidth=1.2,
            label=f"{name} {value:,}",
        )  # fmt: skip
    axis.plot([], [], " ", label=f"longest {max(counts):,}")
    if is_log:
        axis.set_xscale("log")
        is_wide = edges[-1] / edges[0] > 60  # numbers every 1, 2, 5 would run into each other
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3) if is_wide else (1, 2, 5), numticks=8))
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_ylim(0, 1.3 * max(heights))  # room for the legend
    axis.legend(
        frameon=False, fontsize=9, labelcolor=INK, loc="upper right", ncols=3, columnspacing=1.0,
        handlelength=1.2, handletextpad=0.5, borderaxespad=0,
    )  # fmt: skip
    axis.set(title=title, xlabel=unit, ylabel="rows")


def _mix(report: dict[str, Any]) -> list:
    """How many rows each source, subject and level of a file has."""
    panels: dict[str, dict] = {"source": {}, "subject": {}, "level": {}}
    for name, file in report["files"].items():
        if len(file["by_source"]) > 1:
            panels["source"][name] = list(file["by_source"].items())
        if file["subjects"]:
            panels["subject"][name] = file["subjects"]
        for source, levels in file["levels"].items():
            panels["level"][f"{name}: {source}"] = data_numbers.group_levels(levels)
    blocks = []
    for what, found in panels.items():
        if found:
            blocks += [html.heading(f"By {what}"), html.bars(what, found)]
    return blocks


def _difficulty(report: dict[str, Any]) -> list:
    """Measured pass rates, and the shares of easy, medium and hard problems."""
    known, panels, rows = [], {}, []
    for name, file in report["files"].items():
        if file["solved"]:
            number = sum(number for _, _, number in file["solved"])
            known.append(f"{number:,} of {file['num_rows']:,} problems of {name}")
        by_samples: dict[int, dict[int, int]] = {}
        for right, samples, number in file["solved"]:
            by_samples.setdefault(samples, {})[right] = number
        for samples, found in by_samples.items():
            title = f"{name}: right of {samples:,} samples"
            panels[title] = data_numbers.group_rates(found, samples)
        for band, wanted in file["shares"].items():
            number = file["bands"].get(band, 0)
            part = share(number, file["rows_out"])
            rows.append([f"{name}, {band}", f"{number:,}", part, f"{100 * wanted:.1f}"])
    blocks = []
    if panels:
        words = f"How often a checkpoint solves {', '.join(known)}, by `{report['pass_rates']}`."
        blocks += [html.heading("Pass rates"), html.text(words), html.bars("right", panels)]
    if rows:
        table = html.table(["difficulty", "problems", "%", "% asked for"], rows)
        blocks += [html.heading("Easy, medium, hard"), table]
    return blocks


def _decontamination(report: dict) -> list:
    matches, pairs = report["matches"], report["pairs"]
    files = [name for name in report["files"] if any(match[1] == name for match in matches)]
    kinds = {kind for _, _, kind, _ in matches}
    kinds = [kind for kind in KINDS if kind in kinds] + sorted(kinds - {*KINDS})
    rows = []
    for benchmark, number in report["decontamination"].items():
        if isinstance(number, int):
            counts: Counter[str] = Counter()
            for _, file, kind, found in (match for match in matches if match[0] == benchmark):
                counts.update({file: found, kind: found})
            numbers = [number, *(counts[column] for column in files + kinds)]
            rows.append([benchmark, *(f"{number:,}" for number in numbers)])
        else:
            rows.append([benchmark, str(number).partition(":")[0], *["-"] * len(files + kinds)])
    words = (
        "A training problem that is in one of these sets is left out: in the same words (exact), "
        "inside a longer text (embedded) or in other words (reworded)."
    )
    blocks = [html.text(words), html.table(["evaluation set", "questions", *files, *kinds], rows)]
    if pairs:
        number = sum(match[3] for match in matches)
        least = "" if number == len(pairs) else f"the {len(pairs)} least certain of "
        title = f"{least}{number:,} pairs side by side; contamination.jsonl has all"
        blocks.append(html.details(title, [_pair(pair) for pair in pairs]))
    return blocks


def _pair(pair: dict) -> str:
    return html.example(
        f"{pair['id']} and {pair['benchmark_id']}",
        f"{pair['kind']}, score {pair['score']:.2f}; left out of {pair['file']}; {pair['where']}",
        {
            f"Training problem, gold {' or '.join(pair['answers'])}": pair["question"],
            f"Question of {pair['benchmark']}": pair["benchmark_question"],
        },
    )


def _dropped(report: dict) -> list:
    """Samples of the rows that were left out, by reason."""
    by_reason: dict[str, dict[str, list]] = {}
    for name, file in report["files"].items():
        for reason, rows in file["samples"].items():
            by_reason.setdefault(reason, {})[name] = rows
    if not by_reason:
        return []
    words = (
        "Of each file and reason some rows, drawn at random; dropped.jsonl has all. Texts are cut "
        "after 1,000 characters."
    )
    if number := report["dropped"].get("not_sampled"):
        words += f" The {number:,} that `sample` did not draw are only counted."
    blocks = [html.text(words)]
    for reason in data_numbers.in_order(by_reason):
        inner, total = [], 0
        for name, rows in by_reason[reason].items():
            count = report["files"][name]["dropped"][reason]
            few = f"{len(rows)} of {count:,} rows" if len(rows) < count else f"all {count:,}"
            inner += [html.heading(f"{name}: {few}"), *map(_dropped_row, rows)]
            total += count
        meaning = f": {REASONS[reason]}" if reason in REASONS else ""
        blocks.append(html.details(f"`{reason}`, {total:,} rows{meaning}", inner))
    return blocks


def _dropped_row(row: dict) -> str:
    texts = {"Question": row["question"], "Gold": " or ".join(row["answers"])}
    shown = {label: text for label, text in texts.items() if text}
    title = f"{row['id']} ({row['where']})" if row["id"] else row["where"]
    facts = row["detail"].removeprefix(f"{row['where']}: ")  # as messages begin
    return html.example(title, facts, shown, ends_short=len(shown) == 2)


def _provenance(report: dict) -> list:
    found = report["build"]
    facts = [
        ["commit of the build", found.get("git_commit") or "not in a git checkout"],
        ["commit of this report", report["report_commit"] or "not in a git checkout"],
        ["seed", str(found["config"].get("seed"))],
        ["wall time", f"{found.get('wall_time_s') or 0:,.0f} s"],
        ["versions", ", ".join(f"{k} {v}" for k, v in found.get("versions", {}).items())],
    ]
    spent = sum(found["seconds"].values())
    steps = sorted(found["seconds"].items(), key=lambda item: -item[1])
    rows = [[name, f"{seconds:,.1f}", share(seconds, spent)] for name, seconds in steps if spent]
    config = html.table(["key", "value"], flatten(found["config"]), facts=True)
    folded = [html.heading("configuration"), config]
    inputs = [[path, digest] for path, digest in found.get("inputs", {}).items()]
    if inputs:
        folded.append(html.heading("inputs"))
        folded.append(html.table(["file", "SHA-256"], inputs, facts=True))
    return [
        html.table(["what", "value"], facts, facts=True),
        html.text("Seconds of work by step, over all processes."),
        html.table(["step", "seconds", "%"], rows),
        html.details("configuration and inputs", folded),
    ]


if __name__ == "__main__":
    run_cli(main)
