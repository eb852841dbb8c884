"""Draw the pictures of README and docs, each for a light and for a dark page.

    python docs/pictures/draw.py

`accuracy` is drawn from `docs/results/smollm2.json`, which `make study RECIPE=smollm2-135m` writes.
`pipeline` shows the stages and who uses the grader. Nothing else is read, and no package beside
Python is needed.
"""

import json
import math
from pathlib import Path

HERE = Path(__file__).parent
STUDY = HERE.parent / "results/smollm2.json"
FONT = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
COLORS = {
    "light": {"text": "#1f2328", "soft": "#59636e", "line": "#d1d9e0", "box": "#f6f8fa",
              "correct": "#0969da", "control": "#afb8c1"},
    "dark": {"text": "#f0f6fc", "soft": "#9198a1", "line": "#3d444d", "box": "#151b23",
             "correct": "#4493f8", "control": "#59636e"},
}  # fmt: skip
# A row of the study's gains, its colour, its label.
ROWS = (
    ("GRPO - SFT, all seeds", "correct", "GRPO, three seeds"),
    ("SFT continued - SFT", "control", "SFT continued"),
    ("GRPO, format reward - SFT", "control", "GRPO, format reward"),
    ("GRPO, random reward - SFT", "control", "GRPO, random reward"),
)
SMALL_PRINT = "samples, paired by problem, with the 95 % interval; grey: one run each"
TESTS = (("test", "SVAMP, test problems"), ("transfer", "MAWPS, not trained on"))


def text(x: float, y: float, words: str, color: str, size: int = 15, more: str = "") -> str:
    """A line of text whose baseline starts at (x, y)."""
    return f"<text x='{x}' y='{y}' fill='{color}' font-size='{size}' {more}>{words}</text>"


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """The whole picture, with a title for screen readers."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' "
        f"{FONT}><title>{title}</title>"
    )
    return "\n".join([head, *parts, "</svg>\n"])


def draw_accuracy(theme: str) -> str:
    """The points that each training adds to its SFT model."""
    colors, width, height = COLORS[theme], 640, 264
    gains = json.loads(STUDY.read_text(encoding="utf-8"))["gains"]
    lefts, panel, top, row = (196, 428), 176, 82, 36
    bottom = top + row * len(ROWS)
    ends = [gains[label][test][1:] for label, *_ in ROWS for test, _ in TESTS]
    low = 5 * math.floor(min(0.0, *(start for start, _ in ends)) / 5)
    high = 5 * math.ceil(max(end for _, end in ends) / 5)

    def place(left: float, value: float) -> float:
        return round(left + panel * (value - low) / (high - low), 1)

    parts = [
        text(8, 22, "Points added to the accuracy of the SFT model", colors["text"], 17),
        text(8, 41, SMALL_PRINT, colors["soft"], 13),
    ]
    for left, (test, title) in zip(lefts, TESTS, strict=True):
        parts.append(text(left, top - 14, title, colors["text"], 14, "font-weight='600'"))
        for value in range(low, high + 1, 5):
            x, color = place(left, value), colors["line" if value else "soft"]
            parts.append(f"<path d='M{x} {top - 4}V{bottom}' stroke='{color}'/>")
            sign = f"{value:+d}" if value else "0"
            parts.append(text(x, bottom + 19, sign, colors["soft"], 13, "text-anchor='middle'"))
        for number, (label, key, _) in enumerate(ROWS):
            value, *ends = gains[label][test]
            y, zero, end = top + row * number + 6, place(left, 0), place(left, value)
            low_x, high_x = (place(left, each) for each in ends)
            middle = y + 10
            parts += [
                f"<rect x='{min(zero, end)}' y='{y}' width='{abs(round(end - zero, 1))}' "
                f"height='20' fill='{colors[key]}'/>",
                f"<path d='M{low_x} {middle}H{high_x}M{low_x} {middle - 4}v8"
                f"M{high_x} {middle - 4}v8' stroke='{colors['text']}' fill='none'/>",
                text(max(zero, high_x) + 5, middle + 5, f"{value:+.1f}", colors["text"], 13),
            ]
    for number, (_, key, words) in enumerate(ROWS):
        color = colors["text" if key == "correct" else "soft"]
        parts.append(text(8, top + row * number + 21, words, color, 14))
    return svg(width, height, "What GRPO adds to the SFT model, beside its control runs", parts)


def draw_pipeline(theme: str) -> str:
    """The stages in their order, and the grader that five of them use."""
    colors, width, height = COLORS[theme], 640, 372
    box_width, box_height = 184, 84
    columns, rows = (8, 228, 448), (8, 144, 280)
    boxes = [
        (0, 0, "1 Data", "clean, keep", "benchmarks out"),
        (1, 0, "2 Audit", "are only correct", "answers rewarded?"),
        (2, 0, "3 SFT", "cold start, loss on", "the completion"),
        (2, 1, "4 Pass rates", "how hard is each", "problem?"),
        (2, 2, "5 GRPO", "rewards, curriculum,", "guards"),
        (1, 2, "6 Evaluation", "lm-eval: avg@k,", "pass@k, maj@k"),
        (0, 2, "7 Report", "what changed, and", "how sure is it?"),
    ]
    parts = []
    for column, row, name, first, second in boxes:
        x, y = columns[column], rows[row]
        parts += [
            f"<rect x='{x}' y='{y}' width='{box_width}' height='{box_height}' rx='8' "
            f"fill='{colors['box']}' stroke='{colors['line']}' stroke-width='1.5'/>",
            text(x + 14, y + 28, name, colors["text"], 18, "font-weight='600'"),
            text(x + 14, y + 50, first, colors["soft"], 15),
            text(x + 14, y + 69, second, colors["soft"], 15),
        ]
    x, y, wide = columns[0], rows[1], columns[1] + box_width - columns[0]
    parts += [
        f"<rect x='{x}' y='{y}' width='{wide}' height='{box_height}' rx='8' fill='none' "
        f"stroke='{colors['correct']}' stroke-width='2'/>",
        text(x + 14, y + 28, "One grader", colors["correct"], 18, "font-weight='600'"),
        text(x + 14, y + 50, "reads gold answers, gives the reward of GRPO,", colors["soft"], 15),
        text(x + 14, y + 69, "and scores the benchmarks", colors["soft"], 15),
    ]
    centre = [column + box_width / 2 for column in columns]
    plain, blue = colors["soft"], colors["correct"]
    arrows = [
        (columns[0] + box_width, 50, columns[1], 50, plain),
        (columns[1] + box_width, 50, columns[2], 50, plain),
        (centre[2], rows[0] + box_height, centre[2], rows[1], plain),
        (centre[2], rows[1] + box_height, centre[2], rows[2], plain),
        (columns[2], 322, columns[1] + box_width, 322, plain),
        (columns[1], 322, columns[0] + box_width, 322, plain),
        (centre[0], rows[1], centre[0], rows[0] + box_height, blue),
        (centre[1], rows[1], centre[1], rows[0] + box_height, blue),
        (columns[1] + box_width, 186, columns[2], 186, blue),
        (centre[1], rows[1] + box_height, centre[1], rows[2], blue),
        (columns[1] + box_width - 8, rows[1] + box_height, columns[2] + 8, rows[2], blue),
    ]
    for x1, y1, x2, y2, color in arrows:
        parts.append(draw_arrow(x1, y1, x2, y2, color))
    return svg(width, height, "The stages of the pipeline, and the grader they share", parts)


def draw_arrow(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    """An arrow that ends at (x2, y2)."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    back_x, back_y = x2 - 9 * dx, y2 - 9 * dy
    head = f"M{x2:.1f} {y2:.1f}L{back_x - 5 * dy:.1f} {back_y + 5 * dx:.1f}"
    head += f"L{back_x + 5 * dy:.1f} {back_y - 5 * dx:.1f}Z"
    line = f"M{x1:.1f} {y1:.1f}L{back_x:.1f} {back_y:.1f}"
    return f"<path d='{line}' stroke='{color}' stroke-width='2'/><path d='{head}' fill='{color}'/>"


if __name__ == "__main__":
    for each in COLORS:
        (HERE / f"accuracy-{each}.svg").write_text(draw_accuracy(each), encoding="utf-8")
        (HERE / f"pipeline-{each}.svg").write_text(draw_pipeline(each), encoding="utf-8")
