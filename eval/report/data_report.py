"""One page on a built data folder: what became of every row, and what the sets are made of.

    python -m eval.report.data_report --data runs/tiny-cpu/data

Reads the manifest, data files and logs that `data_prep.build` left in the folder, and the pass
rates of `stages.difficulty` beside it, if there are some. Writes to `<run>/data-report`:
`data-report.html`, one page that needs nothing else; its twin `data-report.md` with the figure as
PNG; `data-report.json` with every number; and, last, `manifest.json`. Memory stays small and time
grows with the rows: a file of 100,000 takes some seconds.
"""

import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.build.policies import load_tokenizer
from data_prep.config import UserError, parse, run_cli
from data_prep.sampling.pass_rates import load_pass_counts
from eval.report import data_findings, data_pages
from eval.report.data_build import describe_benchmarks, describe_files, read_build, totals_add_up
from eval.report.data_figures import draw_lengths
from eval.report.data_mix import largest
from eval.report.data_rows import (
    FileCounts,
    count_characters,
    count_rows,
    count_tokens,
    quantile,
    read_matches,
    sample_dropped,
)
from eval.report.html_page import render_html
from eval.report.markdown_page import render_markdown
from eval.report.text import clean

STAGE = "data-report"
NUM_PAIRS = 20
NUM_TOKENIZED = 10_000  # rows of a file: tokenizing all of a large one would take minutes


@dataclass
class DataReportArguments:
    """Keys of the command line; there is no YAML for this one."""

    data: str = field(metadata={"help": "folder of a data build"})
    output_dir: str = field(
        default="", metadata={"help": "where the page goes; data-report beside it by default"}
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
    """Read the folder, count, draw, write the page and its twins, then the manifest."""
    (args,) = parse(__doc__, DataReportArguments)
    data, folder = Path(args.data), Path(args.output_dir)
    build = read_build(data)
    check_output(folder)
    tokenizer = args.tokenizer or build["config"].get("tokenizer")
    measure = count_tokens(load_tokenizer(tokenizer)) if tokenizer else count_characters
    rates_file = find_pass_rates(args.pass_rates, data, build["config"].get("pass_rates"))
    rates = load_pass_counts(rates_file) if rates_file else {}
    started = manifest.start(folder)

    report: dict[str, Any] = {
        "title": f"Data of {data.resolve().parent.name}",
        "summary": "", "warnings": [],
        **{key: build[key] for key in ("rows_in", "rows_out", "dropped")},
        "adds_up": totals_add_up(build),
        "files": describe_files(build),
        "unit": "tokens" if tokenizer else "characters",
        "tokenizer": tokenizer,
        "num_measured": NUM_TOKENIZED if tokenizer else None,
        "pass_rates": rates_file,
        "decontamination": describe_benchmarks(build),
        "build": {key: build.get(key) for key in (
            "config", "git_commit", "inputs", "versions", "seconds", "wall_time_s")},
        "report_commit": manifest.git_commit(),
    }  # fmt: skip
    lengths: dict[str, Counter[int]] = {}
    for name, file in report["files"].items():
        counts = count_rows(data / name, measure, rates, report["num_measured"])
        file |= describe_counts(counts)
        lengths |= {f"{name}: {text}": found for text, found in counts.lengths.items()}
    report |= read_logs(data, report["files"], args.rows)
    report["summary"] = data_findings.summary(report)
    report["warnings"] = data_findings.warnings(report)

    figure = None
    if lengths:
        caption = "How long the texts are; the axis is logarithmic where a few are very long"
        figure = draw_lengths(folder / "lengths.png", lengths, report["unit"], caption)
    page = data_pages.build_page(report, figure)
    (folder / f"{STAGE}.html").write_text(render_html(page), encoding="utf-8")
    (folder / f"{STAGE}.md").write_text(render_markdown(page), encoding="utf-8")
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


def describe_counts(counts: FileCounts) -> dict[str, Any]:
    """The counts of a file's rows as `data-report.json` has them."""
    lengths = {
        text: {
            "num": found.total(),
            "mean": sum(length * number for length, number in found.items()) / found.total(),
            "median": quantile(found, 0.5),
            "p95": quantile(found, 0.95),
            "longest": max(found),
        }
        for text, found in counts.lengths.items()
    }
    return {
        "num_rows": counts.num_rows,
        "lengths": lengths,
        "by_source": dict(counts.sources.most_common()),
        "subjects": largest(counts.subjects),
        "levels": {source: sorted(map(list, found.items())) for source, found in
                   sorted(counts.levels.items())},
        "solved": sorted([*rate, number] for rate, number in counts.solved.items()),
    }  # fmt: skip


def read_logs(data: Path, files: dict[str, dict], num_rows: int) -> dict[str, Any]:
    """What the build's two logs say: `num_logged` and `samples` go into the files.

    Returns:
        `matches`, [benchmark, file, kind, number] of the pairs that decontamination found, and the
        least certain of the pairs themselves.
    """
    wanted = [
        (name, reason)
        for name, file in files.items()
        for reason in file["dropped"]
        if reason != "not_sampled"  # counted, and not logged
    ]
    dropped = sample_dropped(data, wanted, num_rows)
    for name, file in files.items():
        reasons = [reason for kind, reason in wanted if kind == name]
        file["num_logged"] = {r: dropped.counts[name, r] for r in reasons}
        file["samples"] = {r: rows for r in reasons if (rows := dropped.samples.get((name, r)))}
    matches, pairs = read_matches(data, NUM_PAIRS)
    return {
        "matches": [[*kind, number] for kind, number in sorted(matches.items())],
        "pairs": pairs,
    }


if __name__ == "__main__":
    run_cli(main)
