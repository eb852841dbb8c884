"""Numbers and names as the report writes them, and texts of others made safe to show."""

import unicodedata
from typing import Any

# Letters that change how their neighbours are shown rather than being shown: direction marks can
# make a wrong answer look right.
DIRECTION = {*range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def percent(score: dict | None) -> str:
    """`{"value": 0.123, "stderr": 0.01}` as "12.3 ± 1.0"; a hyphen for None."""
    if score is None:
        return "-"
    text = f"{100 * score['value']:.1f}"
    return text if score["stderr"] is None else f"{text} ± {100 * score['stderr']:.1f}"


def points(value: float) -> str:
    """A difference of shares in points, with its sign: 0.123 as "+12.3", 0 as "0.0"."""
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def interval(score: dict) -> str:
    """A difference's interval in points, " [10.0, 14.6]"; nothing where one problem gives none."""
    if score["low"] is None:
        return ""
    return f" [{_plain(score['low'])}, {_plain(score['high'])}]"


def change(score: dict) -> str:
    """A difference in points and its interval: "+12.3 [10.0, 14.6]"."""
    return points(score["value"]) + interval(score)


def _plain(value: float) -> str:
    text = f"{100 * value:.1f}"
    return "0.0" if text == "-0.0" else text


def metric_name(mode: str, metric: str, task: str = "") -> str:
    """A metric as a reader would call it: "greedy accuracy", "avg@4", "official exact_match".

    Args:
        task: ours; an official task of the same name is not named again.
    """
    if mode.startswith("official"):
        name, _, kind = metric.partition(",")
        kind = f" ({kind})" if kind not in ("", "none") else ""
        return f"{mode_name(mode, metric, task)} {name}{kind}"
    return f"greedy {metric}" if mode == "greedy" else metric


def mode_name(mode: str, main: str, task: str = "") -> str:
    """A mode in few words, `main` its metric: "greedy", "avg@4", "official minerva_math500"."""
    if mode == "sampled":
        return main
    return mode.removesuffix(f":{task}").replace(":", " ")


def clean(text: str) -> str:
    """A text with whatever a browser, editor or terminal would act on written out instead.

    Newlines and tabs stay. Other control characters, direction marks and halves of surrogate pairs
    become escapes such as `\\x1b`.
    """
    text = text.replace("\r\n", "\n")
    return "".join(
        letter if letter in "\n\t" or not _is_hidden(letter) else _escape(letter) for letter in text
    )


def _is_hidden(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs") or ord(letter) in DIRECTION


def _escape(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if ord(letter) < 256 else f"\\u{ord(letter):04x}"


def flatten(value: dict[str, Any], prefix: str = "") -> list[list[str]]:
    """Nested counts as `[["dropped, too long", "12"], ...]`."""
    rows = []
    for key, item in value.items():
        name = f"{prefix}, {key}" if prefix else str(key)
        rows += flatten(item, name) if isinstance(item, dict) else [[name, str(item)]]
    return rows
