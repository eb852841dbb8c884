"""What the data report says, block by block; see `eval.pages` for the one of an evaluation."""

from typing import Any

from eval.blocks import (
    Bars,
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
from eval.drop_reasons import in_order, meaning
from eval.text import flatten

MAX_SUBJECTS = 15
MAX_LEVELS = 12


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
        Section("mix", "Sources, subjects, levels", _mix(report)),
        Section("difficulty", "Difficulty", _difficulty(report)),
        Section("decontamination", "Decontamination", _decontamination(report)),
        Section("dropped", "Rows that were left out", _dropped(report)),
        Section("provenance", "Provenance", _provenance(report)),
    ]
    sections = [section for section in sections if section.blocks]
    return Page(report["title"], ", ".join(report["files"]), opening, sections)


def share(part: int, whole: int) -> str:
    """A share in per cent, one digit; a hyphen of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "-"


def _built(report: dict) -> list:
    rows = [
        [name, one["label"], one["split"], one["place"] or "generated", f"{one['rows_in']:,}",
         f"{one['rows_out']:,}", share(one["rows_out"], one["rows_in"])]
        for name, file in report["files"].items() for one in file["sources"]
    ]  # fmt: skip
    header = ["file", "source", "split", "read from", "rows in", "rows out", "% kept"]
    return [Table(header, rows)]


def funnel_table(file: dict[str, Any]) -> Table:
    """The way of one file's rows: what each reason took, what was left, and of which source.

    Reasons are checked in this order for each row, and a row is counted where it failed first.
    """
    sources = file["sources"] if len(file["sources"]) > 1 else []
    left, whole = file["rows_in"], file["rows_in"]
    rows = [["rows in", f"{whole:,}", share(whole, whole), "", *_cells("rows_in", sources)]]
    for reason, number in file["dropped"].items():
        left -= number
        cells = [_part(one["dropped"].get(reason, 0), one["rows_in"]) for one in sources]
        rows.append([reason, f"{number:,}", share(number, whole), f"{left:,}", *cells])
    out = file["rows_out"]
    cells = [_part(one["rows_out"], one["rows_in"]) for one in sources]
    rows.append(["rows out", f"{out:,}", share(out, whole), f"{out:,}", *cells])
    return Table(["step", "rows", "%", "left", *(one["label"] for one in sources)], rows)


def _cells(key: str, sources: list[dict]) -> list[str]:
    return [f"{one[key]:,}" for one in sources]


def _part(part: int, whole: int) -> str:
    return f"{part:,} ({share(part, whole)} %)" if part else "-"


def _steps(report: dict) -> list:
    adds_up = report["adds_up"] and all(file["adds_up"] for file in report["files"].values())
    end = "They add up for every file and source." if adds_up else "They do not add up."
    words = (
        "Every row is written or dropped for one named reason, the first that it meets in this "
        f"order: rows in are rows out and all drops. {end}"
    )
    blocks: list = [Text(words)]
    for name, file in report["files"].items():
        blocks += [Heading(name), funnel_table(file)]
    reasons = in_order(reason for file in report["files"].values() for reason in file["dropped"])
    known = [[reason, words] for reason in reasons if (words := meaning(reason))]
    if known:
        table = Table(["reason", "a row is left out because"], known, facts=True)
        blocks.append(Folded("what the reasons say", {"reasons": table}))
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
        f"Lengths in {report['unit']}{of}, without chat template. 95 % of the texts are at most as "
        "long as the second number."
    )
    num, whole = report["num_measured"], [file["num_rows"] for file in report["files"].values()]
    if max(whole) > num:
        words += f" Of every file the first {num:,} rows count; training files are shuffled."
    header = ["text", "rows", "median", "95 % up to", "longest"]
    return [Text(words), figure, Table(header, rows)]


def _mix(report: dict) -> list:
    blocks: list = []
    files = report["files"]
    panels: dict[str, dict] = {"source": {}, "subject": {}, "level": {}}
    for name, file in files.items():
        if len(file["by_source"]) > 1:
            panels["source"][name] = list(file["by_source"].items())
        if set(file["subjects"]) - {""}:
            panels["subject"][name] = top(file["subjects"])
        for source, levels in file["levels"].items():
            panels["level"][f"{name}: {source}"] = group_levels(levels)
    for what, found in panels.items():
        if found:
            blocks += [Heading(f"By {what}"), Bars(what, found)]
    return blocks


def top(subjects: dict[str, int]) -> list[tuple[str, int]]:
    """The largest subjects, then the rest and what has none."""
    named = sorted(((n, k) for k, n in subjects.items() if k), key=lambda item: (-item[0], item[1]))
    rows = [(name, number) for number, name in named[:MAX_SUBJECTS]]
    if rest := named[MAX_SUBJECTS:]:
        rows.append((f"{len(rest):,} others", sum(number for number, _ in rest)))
    return rows + ([("(none)", subjects[""])] if subjects.get("") else [])


def group_levels(levels: list[list[float]]) -> list[tuple[str, int]]:
    """Levels with their counts, in ranges of one width where they are many.

    Args:
        levels: [level, rows], lowest first.
    """
    if len(levels) <= MAX_LEVELS:
        return [(f"{level:g}", number) for level, number in levels]
    low, high = levels[0][0], levels[-1][0]
    width = (high - low) / MAX_LEVELS
    counts = [0] * MAX_LEVELS
    for level, number in levels:
        counts[min(MAX_LEVELS - 1, int((level - low) / width))] += number
    edges = [f"{low + width * place:.4g}" for place in range(MAX_LEVELS + 1)]
    return [(f"{edges[i]} to {edges[i + 1]}", counts[i]) for i in range(MAX_LEVELS)]


def _difficulty(report: dict) -> list:
    blocks: list = []
    panels = {}
    for name, file in report["files"].items():
        if not file["solved"]:
            continue
        by_samples: dict[int, dict[int, int]] = {}
        for right, samples, number in file["solved"]:
            by_samples.setdefault(samples, {})[right] = number
        for samples, found in by_samples.items():
            title = f"{name}: right of {samples:,} samples"
            if samples <= MAX_SUBJECTS:
                panels[title] = [(f"{n}", found.get(n, 0)) for n in range(samples + 1)]
            else:
                panels[title] = group_levels([[n, found.get(n, 0)] for n in range(samples + 1)])
    if panels:
        known = {
            name: sum(number for _, _, number in file["solved"])
            for name, file in report["files"].items() if file["solved"]
        }  # fmt: skip
        parts = [
            f"{number:,} of {report['files'][name]['num_rows']:,} problems of {name}"
            for name, number in known.items()
        ]
        words = f"How often a checkpoint solves {', '.join(parts)}, by `{report['pass_rates']}`."
        blocks += [Heading("Pass rates"), Text(words), Bars("right", panels)]
    rows = []
    for name, file in report["files"].items():
        for band in file["shares"]:
            number = file["bands"].get(band, 0)
            wanted = f"{100 * file['shares'][band]:.1f}"
            rows.append([f"{name}, {band}", f"{number:,}", share(number, file["rows_out"]), wanted])
    if rows:
        header = ["difficulty", "problems", "%", "% asked for"]
        blocks += [Heading("Easy, medium, hard"), Table(header, rows)]
    return blocks


def _decontamination(report: dict) -> list:
    matches = report["matches"]
    files = list(dict.fromkeys(file for _, file, _, _ in matches))
    kinds = sorted({kind for _, _, kind, _ in matches})
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
            few = f"{len(rows)} of {count:,} rows" if len(rows) < count else f"{count:,} rows"
            inner += [Heading(f"{name}: {few}"), *map(_excerpt, rows)]
        words = f": {meaning(reason)}" if meaning(reason) else ""
        blocks.append(Details(f"`{reason}`, {number:,} rows{words}", inner))
    if blocks:
        words = (
            "Of each file and reason some rows, drawn at random; dropped.jsonl has all. Texts are "
            "cut after 1,000 characters."
        )
        blocks.insert(0, Text(words))
    return blocks


def _excerpt(row: dict) -> Excerpt:
    texts = {"Question": row["question"], "Gold": row["answer"]}
    shown = {label: text for label, text in texts.items() if text}
    title = f"{row['id']} ({row['where']})" if row["id"] else row["where"]
    return Excerpt(title, row["detail"], shown, ends_short=len(shown) == 2)


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
