"""The audit as text: Markdown for the file, rich tables for the terminal."""

from typing import Any

from eval.audit_cases import TRICKS

Table = tuple[list[str], list[list[str]]]  # header, rows


def percent(share: float | None) -> str:
    """A share in per cent, rounded so that only all of them are 100."""
    if share is None:
        return "-"
    shown = f"{100 * share:.1f}"
    return shown if shown != "100.0" or share == 1 else "99.9"


def gold_table(report: dict[str, Any]) -> Table:
    """Header and rows: the share of the golds that passes each check, a row for each set."""
    rows = [
        [name, f"{found['num_rows']:,}", *(percent(rate) for rate in found["rates"].values())]
        for name, found in report["sets"].items()
    ]
    return ["set", "golds", "template", "reward", "think-aware task"], rows


def official_table(report: dict[str, Any]) -> Table:
    """Header and rows: the share of the golds, ended as models end, that each parser reads."""
    read = {name: found["official"] for name, found in report["sets"].items() if found["official"]}
    rows = [
        [name, ending, *(percent(share) for share in shares.values())]
        for name, endings in read.items()
        for ending, shares in endings.items()
    ]
    parsers = list(next(iter(next(iter(read.values())).values()))) if read else []
    return ["set", "ending", *parsers], rows


def trick_table(report: dict[str, Any]) -> Table:
    """Header and rows: how often each trick was tried and paid."""
    found = report["tricks"]
    return ["trick", "tried", "paid"], [
        [name, f"{found[name]['num_rows']:,}", str(found[name]["num_paid"])] for name in TRICKS
    ]


def failure_lines(report: dict[str, Any]) -> list[str]:
    """One line for each of the first failing rows."""
    return [
        f"{one['set']}, row {one['row']}: {one['check']}: {one['fault']}"
        for one in report["failures"]
    ]


def notes(report: dict[str, Any]) -> list[str]:
    """What is worth knowing but fails no recipe, and what could not be audited."""
    found = []
    fits, limit = report["sft_fits"], report["max_completion_length"]
    if fits is not None and fits < 1:
        found.append(
            f"sft_train: {percent(fits)} % of its completions fit GRPO's max_completion_length "
            f"{limit}: a model that learns to write the others is cut off there"
        )
    return found + [f"not audited: {name}: {why}" for name, why in report["skipped"].items()]


TITLES = (
    ("Golds that pass, %", gold_table),
    ("Right answers that our parser and the harness's own read, %", official_table),
    ("Wrong answers and tricks that are paid", trick_table),
)


def to_markdown(report: dict[str, Any]) -> str:
    """The whole audit."""
    verdict = "passes" if report["passes"] else "**fails**: " + "; ".join(report["faults"])
    parts = [f"# Audit of {report['recipe']}", f"The recipe {verdict}."]
    for title, make in TITLES:
        header, rows = make(report)
        if rows:
            lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
            table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
            parts += [f"## {title}", table]
    if report["failures"]:
        lines = "\n".join(f"- `{line}`" for line in failure_lines(report))
        parts += ["## First failing rows", lines]
    if notes(report):
        parts += ["## Notes", "\n".join(f"- {line}" for line in notes(report))]
    tokenizer, limit = report["tokenizer"], report["max_new_tokens"]
    parts.append(f"Tokenizer: {tokenizer}; at most {limit} new tokens in the tasks.")
    return "\n\n".join(parts) + "\n"


def show(report: dict[str, Any]) -> None:
    """Print the tables, the first failing rows, and what could not be audited."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    for title, make in TITLES:
        header, rows = make(report)
        is_unpaid = all(found["num_paid"] == 0 for found in report["tricks"].values())
        if not rows or (make is trick_table and is_unpaid):  # one line says so at the end
            continue
        table = RichTable(
            title=title, title_justify="left", title_style="bold", box=SIMPLE, pad_edge=False
        )
        for index, name in enumerate(header):
            is_text = index == 0 or name == "ending"
            justify = "left" if is_text else "right"
            table.add_column(name.replace(" ", "\n", not is_text), justify=justify)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in failure_lines(report):
        console.print(f"failed: {line}", highlight=False, soft_wrap=True, markup=False)
    for line in notes(report):
        console.print(f"note: {line}", highlight=False, soft_wrap=True, markup=False)
