"""What the data report says, block by block; see `pages` for the one of an evaluation."""

from typing import Any

from eval.report.blocks import (
    Details,
    Excerpt,
    Figure,
    Folded,
    Heading,
    Page,
    Section,
    Table,
    Text,
    Warnings,
)
from eval.report.data_mix import difficulty_blocks, mix_blocks, share
from eval.report.drop_reasons import in_order, meaning
from eval.report.text import flatten

KINDS = ("exact", "same letters", "embedded", "reworded")


def build_page(report: dict[str, Any], lengths: Figure | None) -> Page:
    """The whole page.

    Args:
        report: the content of `data-report.json`.
        lengths: the histograms, or None where no file has a row.
    """
    opening: list = [Text(report["summary"], lead=True)]
    if report["warnings"]:
        opening.append(Warnings(report["warnings"]))
    sections = [
        Section("built", "What was built", _built(report)),
        Section("steps", "Step by step", _steps(report)),
        Section("lengths", "Lengths", _lengths(report, lengths)),
        Section("mix", "Sources, subjects, levels", mix_blocks(report)),
        Section("difficulty", "Difficulty", difficulty_blocks(report)),
        Section("decontamination", "Decontamination", _decontamination(report)),
        Section("dropped", "Rows that were left out", _dropped(report)),
        Section("provenance", "Provenance", _provenance(report)),
    ]
    sections = [section for section in sections if section.blocks]
    return Page(report["title"], ", ".join(report["files"]), opening, sections)


def _built(report: dict) -> list:
    rows, places = [], []
    for name, file in report["files"].items():
        numbers = [f"{number:,}" for number in (file["rows_in"], file["rows_out"])]
        rows.append([name, *numbers, share(file["rows_out"], file["rows_in"])])
        for one in file["sources"]:
            place = f"{one['place']}, split {one['split']}" if one["place"] else "generated"
            places.append([f"{name}: {one['label']}", place])
    return [
        Table(["file", "rows in", "rows out", "% kept"], rows),
        Details(
            "where the sources are read from", [Table(["source", "read from"], places, facts=True)]
        ),
    ]


def funnel_table(file: dict[str, Any]) -> Table:
    """The way of one file's rows: what each reason took, what was left, and of which source.

    Reasons are checked in this order for each row, and a row is counted where it failed first.
    """
    sources = file["sources"] if len(file["sources"]) > 1 else []
    left, whole = file["rows_in"], file["rows_in"]
    rows = [["rows in", f"{whole:,}", share(whole, whole), f"{whole:,}"]]
    rows[0] += [f"{one['rows_in']:,}" for one in sources]
    for reason, number in file["dropped"].items():
        left -= number
        cells = [_part(one["dropped"].get(reason, 0), one["rows_in"]) for one in sources]
        rows.append([reason, f"{number:,}", share(number, whole), f"{left:,}", *cells])
    out = file["rows_out"]
    cells = [_part(one["rows_out"], one["rows_in"]) for one in sources]
    rows.append(["rows out", f"{out:,}", share(out, whole), f"{out:,}", *cells])
    return Table(["step", "rows", "%", "left", *(one["label"] for one in sources)], rows)


def _part(part: int, whole: int) -> str:
    return f"{part:,} ({share(part, whole)} %)" if part else "-"


def _steps(report: dict) -> list:
    adds_up = report["adds_up"] and all(file["adds_up"] for file in report["files"].values())
    holds = "holds" if adds_up else "does not hold"
    words = (
        "Every row is written or left out for one reason, the first that it meets in this order; "
        f"below are rows of each. Rows in = rows out + drops {holds} for every file and source."
    )
    blocks: list = [Text(words)]
    for name, file in report["files"].items():
        blocks += [Heading(name), funnel_table(file)]
    return blocks


def _lengths(report: dict, figure: Figure | None) -> list:
    if figure is None:
        return []
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
    num, whole = report["num_measured"], [file["num_rows"] for file in report["files"].values()]
    if num is not None and max(whole) > num:
        words += f" Of every file the first {num:,} rows count; training files are shuffled."
    header = ["text", "rows", "median", "95 % up to", "longest"]
    return [Text(words), figure, Table(header, rows)]


def _decontamination(report: dict) -> list:
    matches = report["matches"]
    files = [name for name in report["files"] if any(match[1] == name for match in matches)]
    kinds = sorted({kind for _, _, kind, _ in matches}, key=_place_of_kind)
    rows = []
    for benchmark, number in report["decontamination"].items():
        own = [match for match in matches if match[0] == benchmark]
        is_checked = isinstance(number, int)
        row = [benchmark, f"{number:,}" if is_checked else str(number).partition(":")[0]]
        row += [_sum(own, 1, file) if is_checked else "-" for file in files]
        row += [_sum(own, 2, kind) if is_checked else "-" for kind in kinds]
        rows.append(row)
    words = (
        "A training problem that stands in one of these sets is left out: in the same words "
        "(exact), inside a longer text (embedded) or in other words (reworded)."
    )
    blocks: list = [Text(words), Table(["evaluation set", "questions", *files, *kinds], rows)]
    pairs = report["pairs"]
    number = sum(match[3] for match in matches)
    if pairs:
        least = "" if number == len(pairs) else f"the {len(pairs)} least certain of "
        summary = f"{least}{number:,} pairs side by side; contamination.jsonl has all"
        blocks.append(Details(summary, [_pair(pair) for pair in pairs]))
    return blocks


def _place_of_kind(kind: str) -> tuple[int, str]:
    return (KINDS.index(kind) if kind in KINDS else len(KINDS), kind)


def _sum(matches: list, place: int, value: str) -> str:
    return f"{sum(match[3] for match in matches if match[place] == value):,}"


def _pair(pair: dict) -> Excerpt:
    return Excerpt(
        f"{pair['id']} and {pair['benchmark_id']}",
        f"{pair['kind']}, score {pair['score']:.2f}; left out of {pair['file']}; {pair['where']}",
        {
            f"Training problem, gold {pair['answer']}": pair["question"],
            f"Question of {pair['benchmark']}": pair["benchmark_question"],
        },
    )


def _dropped(report: dict) -> list:
    by_reason: dict[str, dict[str, list]] = {}
    for name, file in report["files"].items():
        for reason, rows in file["samples"].items():
            by_reason.setdefault(reason, {})[name] = rows
    blocks: list = []
    for reason in in_order(by_reason):
        found, inner = by_reason[reason], []
        number = sum(report["files"][name]["dropped"][reason] for name in found)
        for name, rows in found.items():
            count = report["files"][name]["dropped"][reason]
            few = f"{len(rows)} of {count:,} rows" if len(rows) < count else f"all {count:,}"
            inner += [Heading(f"{name}: {few}"), *map(_excerpt, rows)]
        words = f": {meaning(reason)}" if meaning(reason) else ""
        blocks.append(Details(f"`{reason}`, {number:,} rows{words}", inner))
    if blocks:
        words = (
            "Of each file and reason some rows, drawn at random; dropped.jsonl has all. Texts are "
            "cut after 1,000 characters."
        )
        if number := report["dropped"].get("not_sampled"):
            words += f" The {number:,} that `sample` did not draw are only counted."
        blocks.insert(0, Text(words))
    return blocks


def _excerpt(row: dict) -> Excerpt:
    texts = {"Question": row["question"], "Gold": row["answer"]}
    shown = {label: text for label, text in texts.items() if text}
    title = f"{row['id']} ({row['where']})" if row["id"] else row["where"]
    facts = row["detail"].removeprefix(f"{row['where']}: ")  # as messages begin
    return Excerpt(title, facts, shown, ends_short=len(shown) == 2)


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
    rows = [[name, f"{seconds:,.1f}", f"{100 * seconds / spent:.1f}"] for name, seconds in steps
            if spent]  # fmt: skip
    config = {"configuration": Table(["key", "value"], flatten(found["config"]), facts=True)}
    inputs = [[path, digest] for path, digest in found.get("inputs", {}).items()]
    if inputs:
        config["inputs"] = Table(["file", "SHA-256"], inputs, facts=True)
    return [
        Table(["what", "value"], facts, facts=True),
        Text("Seconds of work by step, over all processes."),
        Table(["step", "seconds", "%"], rows),
        Folded("configuration and inputs", config),
    ]
