"""PNG figures of the report, drawn from trainer logs and scores. matplotlib is imported late."""

from pathlib import Path

# What a trainer may have logged, and how a reader would name it: key, panel title, y axis.
GRPO_PANELS = [
    ("rollout/rewards", "Reward", "mean reward"),
    ("rollout/response_length", "Completion length", "tokens"),
    ("train/entropy_loss", "Entropy", "nats per token"),
    ("frac_reward_zero_std", "Groups without variance", "fraction of groups"),
    ("rollout/cut_off_rate", "Cut off at the limit", "fraction of completions"),
]
SFT_PANELS = [
    ("loss", "Training loss", "nats per token"),
    ("mean_token_accuracy", "Token accuracy", "fraction of tokens"),
]
FRACTIONS = ("frac_reward_zero_std", "mean_token_accuracy")  # on an axis from 0 to 1
LINE, PALE, GRID = "#1f5fa8", "#9dbde0", "#e3e3e3"
BARS = ("#9aa5b1", "#1f5fa8", "#e07b39", "#3a8f5c", "#8a63b0")


def read_curve(log_history: list[dict], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one logged key; both empty where it was never logged."""
    points = [(log["step"], log[key]) for log in log_history if log.get(key) is not None]
    return [step for step, _ in points], [value for _, value in points]


def moving_average(values: list[float], reach: int) -> list[float]:
    """Mean of each value with `reach` neighbours on either side, fewer (evenly) at the ends.

    Centred: a mean of past values runs beside a steep curve instead of through it.
    """
    means = []
    for place in range(len(values)):
        near = min(reach, place, len(values) - 1 - place)
        around = values[place - near : place + near + 1]
        means.append(sum(around) / len(around))
    return means


def _new_figure(num_panels: int):
    """A figure with room for the panels, three to a row, and its axes as a flat list."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(num_panels, 3)
    num_rows = -(-num_panels // columns)
    figure, axes = plt.subplots(
        num_rows,
        columns,
        figsize=(4.2 * columns, 3.1 * num_rows),  # inches
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color=GRID)
        axis.set_axisbelow(True)
    return figure, list(axes.flat)


def _save(figure, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_curves(path: Path, log_history: list[dict], panels: list[tuple], heading: str) -> bool:
    """Draw one panel per logged key, raw values pale and their moving average bold.

    Returns:
        Whether there was anything to draw; without it no file is written.
    """
    curves = [(key, title, unit, *read_curve(log_history, key)) for key, title, unit in panels]
    curves = [curve for curve in curves if curve[3]]
    if not curves:
        return False
    figure, axes = _new_figure(len(curves))
    for axis, (key, title, unit, steps, values) in zip(axes, curves, strict=False):
        axis.plot(steps, values, color=PALE, linewidth=1)
        axis.plot(steps, moving_average(values, len(values) // 24), color=LINE, linewidth=2)
        axis.set(title=title, xlabel="optimizer step", ylabel=unit)
        if key in FRACTIONS:
            axis.set_ylim(-0.02, 1.02)
        elif min(values) >= 0:
            axis.set_ylim(bottom=0)
    for axis in axes[len(curves) :]:
        axis.set_visible(False)
    figure.suptitle(heading)
    _save(figure, path)
    return True


def draw_scores(path: Path, scores: dict[str, dict]) -> None:
    """Bars of accuracy per checkpoint, greedy and sampled, with standard errors in per cent."""
    figure, (axis,) = _new_figure(1)
    figure.set_size_inches(5.6, 3.4)
    modes = [("greedy", "accuracy", "greedy"), ("sampled", "avg@k", "sampled, mean of k")]
    width = 0.8 / len(scores)
    for index, (name, tasks) in enumerate(scores.items()):
        values = [100 * tasks[mode][metric]["value"] for mode, metric, _ in modes]
        errors = [100 * (tasks[mode][metric]["stderr"] or 0) for mode, metric, _ in modes]
        places = [group + (index - (len(scores) - 1) / 2) * width for group in range(len(modes))]
        bars = axis.bar(
            places, values, width * 0.92, yerr=errors, capsize=3, label=name,
            color=BARS[index % len(BARS)], error_kw={"elinewidth": 1},
        )  # fmt: skip
        axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
    axis.set_xticks(range(len(modes)), [label for _, _, label in modes])
    axis.set_ylabel("problems solved (%)")
    axis.margins(y=0.18)
    axis.set_ylim(bottom=0)
    figure.legend(loc="outside upper center", ncols=len(scores), frameon=False)
    _save(figure, path)
