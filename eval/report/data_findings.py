"""The data report in words: what was built, and what a reader should doubt."""

from collections import Counter
from typing import Any

from eval.report.data_build import NOT_LISTED
from eval.report.drop_reasons import ON_PURPOSE

MAX_LOST = 0.5  # share of a source's rows
MAX_REASON = 0.2  # share of a file's rows that one reason takes
NOT_CHECKED = "not checked: "  # as the builder begins its reason


def summary(report: dict[str, Any]) -> str:
    """One paragraph: rows in, problems out, and the three reasons that took most."""
    files = report["files"]
    num_sources = sum(len(file["sources"]) for file in files.values())
    made = ", ".join(f"{name} with {file['rows_out']:,}" for name, file in files.items())
    text = (
        f"{_count(report['rows_in'], 'row')} of {_count(num_sources, 'source')} became "
        f"{_count(report['rows_out'], 'problem')}: {made}."
    )
    dropped = Counter(report["dropped"])
    if not dropped:
        return f"{text} None was left out."
    most = [f"{reason} ({number:,})" for reason, number in dropped.most_common(3)]
    words = "most of them as" if len(dropped) > 3 else "as"
    was = "was" if dropped.total() == 1 else "were"
    return f"{text} {dropped.total():,} {was} left out, {words} {_join(most)}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _join(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def warnings(report: dict[str, Any]) -> list[str]:
    """What a reader should doubt, most serious first; none where all is well."""
    return [
        *_counts(report),
        *_contamination(report),
        *_unreadable(report),
        *_losses(report),
        *_mixes(report),
        *_pass_rates(report),
    ]


def _counts(report: dict) -> list[str]:
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
        logged = {r: n for r, n in file["dropped"].items() if r != "not_sampled"}
        if file["num_logged"] != logged:
            found.append(
                f"dropped.jsonl has other rows of {name} than the manifest counts: one of them was "
                "changed after the build."
            )
    return found


def is_real(file: dict[str, Any]) -> bool:
    """Whether a training file has other problems than generated ones."""
    return file["is_training"] and any(one["name"] != "synthetic" for one in file["sources"])


def _contamination(report: dict) -> list[str]:
    """Evaluation sets that may stand in a training file."""
    listed = report["decontamination"]
    real = [name for name, file in report["files"].items() if is_real(file)]
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
        found.append(
            f"{_join(unlisted)} {'was' if len(unlisted) == 1 else 'were'} not kept out of the "
            "training files: `decontaminate` does not list "
            f"{'it' if len(unlisted) == 1 else 'them'}."
        )
    return found


def _unreadable(report: dict) -> list[str]:
    found = []
    for name, file in report["files"].items():
        for source in file["sources"]:
            if number := source["dropped"].get("bad_row"):
                found.append(
                    f"{name}: {number:,} of {source['rows_in']:,} rows of {source['label']} could "
                    "not be used as they are (bad_row) and were skipped; see below what was wrong."
                )
    return found


def _losses(report: dict) -> list[str]:
    """Sources that lost most of their rows, and reasons that took a large part of a file."""
    found = []
    for name, file in report["files"].items():
        told = set()
        for source in file["sources"]:
            taken, lost = losses(source)
            if taken and lost.total() / taken > MAX_LOST:
                reason, number = lost.most_common(1)[0]
                told.add(reason)
                if reason == "bad_row":  # has a warning of its own
                    continue
                found.append(
                    f"{name}: {source['label']} lost {_share(lost.total(), taken)} of its "
                    f"{taken:,} rows, most of them as {reason} ({number:,})."
                )
        taken, lost = losses(file)
        for reason, number in lost.most_common():
            # Said already, if it is a single source's.
            if number / taken > MAX_REASON and not (told == {reason} and len(file["sources"]) == 1):
                found.append(f"{name}: {reason} took {_share(number, taken)} of all {taken:,} rows "
                             f"({number:,}).")  # fmt: skip
    return found


def losses(counts: dict[str, Any]) -> tuple[int, Counter[str]]:
    """Rows of a file or source that its samples took, and those of them that were unusable."""
    taken = counts["rows_in"] - counts["dropped"].get("not_sampled", 0)
    lost = Counter({r: n for r, n in counts["dropped"].items() if r not in ON_PURPOSE})
    return taken, lost


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"


def _mixes(report: dict) -> list[str]:
    return [
        f"{name}: the mix asks for {file['size']:,} problems and got {file['rows_out']:,}: there "
        "are too few of one difficulty."
        for name, file in report["files"].items()
        if file["size"] and file["rows_out"] < file["size"]
    ]


def _pass_rates(report: dict) -> list[str]:
    """A file of pass rates that knows none of the problems."""
    rates = report["pass_rates"]
    if rates and not any(file["solved"] for file in report["files"].values()):
        return [f"{rates} has no problem of any file here; run `make difficulty` again."]
    return []
