"""What a check of `make gpu-check` found, in one line: figures, and what to change where it is bad.

A reader takes the folder of a check. It raises ValueError where a run is wrong. Each rule about
speed is a function of figures alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import show_interval
from pipeline import json_files

OTHERS = "TRL and its libraries"  # that wait, by the check `host-waits`
LIMIT = 1.05  # of `guard/alignment`, as the guard's
NEAR = 1e-2  # relative difference of losses and gradient norms in bf16, put down to rounding
MEMORY = 0.15  # relative difference of the memory plan


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Args:
        text: the figures, one line.
        remedy: what to change; "" where all is good.
        table: Markdown with more figures, or "".
    """

    text: str
    remedy: str = ""
    table: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy or 'nothing to change'}"


def judge_update(trainers: dict[str, Any], difference: float) -> Verdict:
    """Our update beside TRL's, and beside our own row by row.

    Args:
        trainers: name -> `attention`, and `ratio`: of stock's speed, with its interval.
        difference: the greatest relative one of losses and gradient norms.
    """
    ours, by_row = trainers["ours"], trainers.get("ours, by row")
    high = ours["ratio"][2]
    text = f"{ours['attention']}: {show_interval(ours['ratio'])} of TRL's speed"
    if by_row:
        text += f", by row {by_row['ratio'][0]:.2f}"
    text += f", losses and gradients within {difference:.1e}"
    if not difference <= NEAR:
        return Verdict(text, f"over {NEAR:g}: set update_tokens: null, and report it")
    if high < 1:
        return Verdict(text, "slower than TRL: set update_tokens: null, and report it")
    if by_row and ours["attention"] != "varlen":
        return Verdict(text, "torch has varlen_attn, and it was not taken: report it")
    if by_row and high < by_row["ratio"][0]:
        return Verdict(text, "row by row is faster: report it")
    return Verdict(text)


def judge_packing(trainers: dict[str, Any]) -> Verdict:
    """SFT's packed rows beside padded ones; arguments as those of `judge_update`."""
    packed = [name for name in trainers if name.startswith("packed")]
    best = max(packed, key=lambda name: trainers[name]["ratio"][0])
    ratio, attention = trainers[best]["ratio"], trainers[best]["attention"]
    text = f"rows {best} ({attention}): {show_interval(ratio)} of padded rows' speed"
    is_slower = ratio[2] < 1
    return Verdict(text, "slower: set packing: false, and report it" if is_slower else "")


def judge_waits(waits: dict[str, int], alone: dict[str, int]) -> Verdict:
    """Waits by function: of a step, and of the model's passes alone, which should have none."""
    ours = {name: number for name, number in waits.items() if name != OTHERS}
    text = f"{sum(ours.values())} waits of ours in a step, {waits.get(OTHERS, 0)} of TRL's"
    bad = [f"{name} waits {number} times" for name, number in ours.items() if number > 1]
    bad += [f"a pass waits in {name}" for name in alone]
    return Verdict(text, f"{', '.join(bad)}: report it" if bad else "")


def judge_generation(speeds: dict[str, float]) -> Verdict:
    """Tokens a second of each loop, all sizes together."""
    ratios = {name: speed / speeds["transformers"] for name, speed in speeds.items()}
    fastest = max(ratios, key=lambda name: ratios[name])
    others = [f"{name} {ratio:.2f}" for name, ratio in ratios.items() if name != "transformers"]
    is_ours = str(ratios["ours"] > 1).lower()
    text = f"{', '.join(others)} of transformers' speed, so fast_generation unset is {is_ours}"
    is_batched = fastest == "generate_batch"
    return Verdict(text, "set use_transformers_continuous_batching: true" if is_batched else "")


def judge_memory(ratios: list[float]) -> Verdict:
    """The plans' peaks over measured ones."""
    text = f"plans are {min(ratios):.2f} to {max(ratios):.2f} of the measured peaks"
    if min(ratios) < 1 - MEMORY:
        return Verdict(text, "leave the missing share of the memory free, and report it")
    return Verdict(text, "the plan is too high: report it" if max(ratios) > 1 + MEMORY else "")


def judge_varlen(cases: list[dict[str, Any]]) -> Verdict:
    """`varlen_attn` beside SDPA row by row.

    Args:
        cases: `name`, `is_equal`: what the trial said, and `varlen` and `by_row`: relative
            differences to float32, None where torch refuses.
    """
    taken = [case for case in cases if case["varlen"] is not None]
    bad = [c for c in taken if not (c["is_equal"] and c["varlen"] <= max(NEAR, 2 * c["by_row"]))]
    refused = ", ".join(case["name"] for case in cases if case["varlen"] is None)
    text = f"equals SDPA in {len(taken) - len(bad)} of {len(cases)} cases"
    if taken:
        text += f", within {max(case['varlen'] for case in taken):.1e}"
    if refused:
        text += f"; refused, so row by row: {refused}"
    return Verdict(text, f"{', '.join(c['name'] for c in bad)} differ: report it" if bad else "")


def losses(folder: Path) -> list[dict[str, float]]:
    """The logged steps of a check that trained."""
    history = json_files.read_log(folder / "model/trainer_state.json")
    return [log for log in history if "grad_norm" in log]


def read_training(folder: Path) -> Verdict:
    """First and last loss, and alignment; raises without a gradient, or where the engine is off."""
    logs = losses(folder)
    if not logs or not all(log["grad_norm"] > 0 for log in logs):
        raise ValueError(f"gradient norms are {[log['grad_norm'] for log in logs]}")
    alignments = [log["guard/alignment"] for log in logs if "guard/alignment" in log]
    if alignments and not max(alignments) < LIMIT:
        raise ValueError(f"guard/alignment {max(alignments):.4f}, {LIMIT} is allowed")
    step = f", {logs[-1]['step_time']:.2f} s the last step" if "step_time" in logs[-1] else ""
    align = f", alignment {max(alignments):.6f} at most" if alignments else ""
    change = f"loss {logs[0]['loss']:.4g} to {logs[-1]['loss']:.4g}"
    return Verdict(f"{len(logs)} steps, {change}{step}{align}")


def compare(mine: Path, theirs: Path, near: float) -> str:
    """The greatest relative difference of two runs' losses; raises above `near`."""
    pairs = zip(losses(mine), losses(theirs), strict=True)
    far = [abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in pairs]
    if not all(one <= near for one in far):  # NaN is not
        raise ValueError(f"losses are {max(far):.1e} off those of {theirs.name}, over {near:g}")
    return f"within {max(far):.1e} of {theirs.name}"


def read_tests(folder: Path) -> Verdict:
    """The last line that pytest printed."""
    log = folder.with_name(f"{folder.name}.log").read_text(encoding="utf-8")
    return Verdict(log.strip().rpartition("\n")[2])


def read_scores(folder: Path) -> Verdict:
    """What an evaluation generated, and how fast, with the start of its engine."""
    shape = {"num_completions": int, "num_tokens": int, "wall_time_s": float}
    found = json_files.read(folder / "eval/base/scores.json", shape, "see the log")
    if not found["num_completions"]:
        raise ValueError("no completion was scored")
    speed = found["num_tokens"] / found["wall_time_s"]
    return Verdict(f"{found['num_completions']:,} completions, {speed:,.0f} tokens/s")


def of_page(judge: Callable[[dict[str, Any]], Verdict]) -> Callable[[Path], Verdict]:
    """The reader of a benchmark's page: its table, and the rule over its figures."""

    def read(folder: Path) -> Verdict:
        found = judge(json_files.read(folder / "page.json", object, "see the log"))
        lines = (folder / "page.md").read_text(encoding="utf-8").splitlines()
        table = "\n".join(line for line in lines if line.startswith("|"))
        return Verdict(found.text, found.remedy, table)

    return read


READERS: dict[str, Callable[[Path], Verdict]] = {
    "": lambda folder: Verdict("done"),
    "training": read_training,
    "scores": read_scores,
    "tests": read_tests,
    "update": of_page(
        lambda page: judge_update(page["figures"]["update"], page["differences"]["update"])
    ),
    "packing": of_page(lambda page: judge_packing(page["figures"]["sft"])),
    "waits": of_page(lambda page: judge_waits(page["waits"], page["alone"])),
    "generation": of_page(lambda page: judge_generation(page["tokens_per_second"])),
    "memory": of_page(lambda page: judge_memory(page["ratios"])),
    "varlen": of_page(lambda page: judge_varlen(page["cases"])),
}
