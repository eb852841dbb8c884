"""Draw the pictures of README and docs, each for a light and for a dark page.

    python docs/pictures/draw.py

`accuracy` is drawn from `docs/results/study.json`, which `make study` writes. `pipeline` shows the
stages and who uses the grader. Nothing else is read, and no package beside Python is needed.
"""

import json
from pathlib import Path

HERE = Path(__file__).parent
STUDY = HERE.parent / "results/study.json"
FONT = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
COLORS = {
    "light": {"text": "#1f2328", "soft": "#59636e", "line": "#d1d9e0", "box": "#f6f8fa",
              "correct": "#0969da", "format": "#bc4c00", "random": "#6e7781"},
    "dark": {"text": "#f0f6fc", "soft": "#9198a1", "line": "#3d444d", "box": "#151b23",
             "correct": "#4493f8", "format": "#f0883e", "random": "#9198a1"},
}  # fmt: skip
# The arm of the study, its colour, its label, and how far the label is moved to keep clear.
ARMS = (
    ("own", "correct", "correctness reward", 0),
    ("format", "format", "format-only reward", -8),
    ("random", "random", "random reward", 10),
)


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
    """Accuracy on validation problems over the steps of GRPO, for three rewards."""
    colors, width, height = COLORS[theme], 640, 320
    left, right, top, bottom = 48, 440, 52, 270
    curves = json.loads(STUDY.read_text(encoding="utf-8"))["curves"]
    curves = {name.rpartition("=")[2]: points for name, points in curves.items()}
    low, high, last_step = 40.0, 80.0, max(step for step, *_ in curves["own"])

    def place(step: float, value: float) -> tuple[float, float]:
        x = left + (right - left) * step / last_step
        return round(x, 1), round(bottom - (bottom - top) * (value - low) / (high - low), 1)

    parts = [
        text(left - 40, 22, "Accuracy on validation problems, %", colors["text"], 17),
        text(left - 40, 40, "mean of five seeds, with the 95 % interval", colors["soft"], 13),
    ]
    for value in range(int(low), int(high) + 1, 10):
        y = place(0, value)[1]
        parts.append(f"<path d='M{left} {y}H{right}' stroke='{colors['line']}'/>")
        parts.append(text(left - 8, y + 5, str(value), colors["soft"], 14, "text-anchor='end'"))
    for step, *_ in curves["own"]:
        x = place(step, 0)[0]
        parts.append(text(x, bottom + 22, str(step), colors["soft"], 14, "text-anchor='middle'"))
    middle = (left + right) / 2
    parts.append(text(middle, bottom + 43, "GRPO steps", colors["soft"], 14,
                      "text-anchor='middle'"))  # fmt: skip
    for arm, key, label, shift in reversed(ARMS):
        points = [(step, 100 * mean, 100 * half) for step, mean, half in curves[arm]]
        upper = [place(step, mean + half) for step, mean, half in points]
        lower = [place(step, mean - half) for step, mean, half in reversed(points)]
        band = " ".join(f"{x},{y}" for x, y in upper + lower)
        line = " ".join(f"{x},{y}" for x, y in (place(step, mean) for step, mean, _ in points))
        x, y = place(points[-1][0], points[-1][1])
        parts += [
            f"<polygon points='{band}' fill='{colors[key]}' opacity='0.15'/>",
            f"<polyline points='{line}' fill='none' stroke='{colors[key]}' stroke-width='3'/>",
            f"<circle cx='{x}' cy='{y}' r='4' fill='{colors[key]}'/>",
            text(x + 12, y + 5 + shift, f"{points[-1][1]:.0f} {label}", colors[key], 15),
        ]
    title = "GRPO with a correctness reward raises accuracy; with a random reward it does not"
    return svg(width, height, title, parts)


def draw_pipeline(theme: str) -> str:
    """The stages in their order, the audit before GRPO, and the grader that three of them use."""
    colors, width, height = COLORS[theme], 640, 372
    box_width, box_height = 184, 84
    columns, rows = (8, 228, 448), (8, 144, 280)
    boxes = [
        (0, 0, "1 Data", "clean, keep", "benchmarks out"),
        (1, 0, "2 SFT", "cold start, loss on", "the completion"),
        (2, 0, "3 Pass rates", "how hard is each", "problem?"),
        (2, 1, "4 Audit", "are only correct", "answers rewarded?"),
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
