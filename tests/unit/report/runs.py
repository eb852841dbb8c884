"""Made-up results of an evaluation, in the files and shapes that `eval.run` leaves."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from statistics import fmean

import pyarrow as pa
from pyarrow import parquet

from eval.harness.metrics import mean_interval
from eval.harness.score import official_metrics, think_metrics, write_parquet
from eval.report import __main__ as report
from eval.report import page, plots
from pipeline.manifest import sha256

SETTINGS = {"num_samples": 2, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 96, "seed": 0}
VERDICTS = {
    "right": "right", "wrong": "wrong", "unread": "no_answer", "unclosed": "unclosed_think",
    "no answer": "no_answer", "cut off": "unclosed_think",
}  # fmt: skip


def make_rows(outcomes, task="held_out", mode="sampled", level=None):
    """Rows of `completions.parquet`; `outcomes` is `{id: [outcome of each completion]}`."""
    return [
        {
            "task": task, "mode": mode, "id": id, "source": "s", "level": level, "sample": sample,
            "question": f"What is {id}?", "prompt": "", "gold": ["4"],
            "completion": f"<think>so</think> {outcome} {id} {sample}",
            "verdict": VERDICTS[outcome], "well_formed": outcome not in ("unclosed", "cut off"),
            "prediction": {"right": "4", "wrong": "5"}.get(outcome), "num_tokens": 20,
            "cut_off": outcome == "cut off", "outcome": outcome,
            "lenient": {"no answer": None, "cut off": None, "wrong": "wrong"}.get(outcome, "right"),
            "score": float(outcome == "right"),
        }
        for id, found in outcomes.items()
        for sample, outcome in enumerate(found)
    ]  # fmt: skip


def solved(right, num_problems=4, k=1, other="wrong"):
    """Outcomes of problems `p0`, `p1`, … of which the first `right` are solved k times of k."""
    return {f"p{i}": ["right" if i < right else other] * k for i in range(num_problems)}


def both_modes(right, task="held_out", **options):
    """Greedy and sampled rows of one task; see `solved`."""
    level = options.pop("level", None)
    return make_rows(solved(right, **options), task, "greedy", level) + make_rows(
        solved(right, k=2, **options), task, "sampled", level
    )


def write_result(folder, rows, code="c"):
    """`scores.json` and `completions.parquet` of one checkpoint; the evaluation's manifest."""
    tasks = {}
    for task, mode in dict.fromkeys((row["task"], row["mode"]) for row in rows):
        found = [row for row in rows if (row["task"], row["mode"]) == (task, mode)]
        if mode.startswith("official"):
            main, scores = "exact_match,flexible-extract", [row["score"] for row in found]
            results = {"alias": task, "exact_match,strict-match": 0.0}
            results |= {main: fmean(scores)}
            results |= {"exact_match_stderr,flexible-extract": mean_interval(scores)["stderr"]}
            value = official_metrics(results, found, main)
        else:
            value = think_metrics(found, mode)
        tasks.setdefault(task, {})[mode] = value
    folder.mkdir(parents=True)
    write_parquet(folder / "completions.parquet", rows)
    scores = {
        "checkpoint": folder.name,
        "fingerprint": {"checkpoint": f"hash of {folder.name}", "code": code}
        | {"engine": "hf", "data": None},
        "settings": SETTINGS,
        "num_problems": len({row["id"] for row in rows}),
        "num_completions": len(rows),
        "num_tokens": 20 * len(rows),
        "wall_time_s": 1.5,
        "tasks": tasks,
    }
    (folder / "scores.json").write_text(json.dumps(scores))
    seal(folder.parent)


def seal(folder, config=None):
    """The manifest of an evaluation, with the hashes of the results that are there."""
    names = [str(path.relative_to(folder)) for path in folder.glob("*/*")]
    value = {"stage": "eval", "config": config or {"title": "as evaluated"}, "counts": {}}
    value |= {"git_commit": "abc123", "versions": {"torch": "0.1"}}
    value |= {"files": {name: sha256(folder / name) for name in names}}
    (folder / "manifest.json").write_text(json.dumps(value))


def write_run(folder, rows, seed=0, steps=(1, 2)):
    """An evaluated run with one checkpoint, `grpo`, its trainer's log, and TRL's completions."""
    write_result(folder / "eval/grpo", rows)
    config = {"checkpoints": [f"grpo={folder}/grpo"], "output_dir": f"{folder}/eval"}
    seal(folder / "eval", config)
    (folder / "grpo/completions").mkdir(parents=True)
    logs = [{"step": s, "rollout/rewards": 0.5, "kl": seed, "grad_norm": s} for s in steps]
    (folder / "grpo/trainer_state.json").write_text(json.dumps({"log_history": logs}))
    made = {"stage": "grpo", "config": {"seed": seed, "output_dir": f"{folder}/grpo"}, "counts": {}}
    (folder / "grpo/manifest.json").write_text(json.dumps(made))
    for step in steps:
        write_log(folder / f"grpo/completions/completions_{step:05}.parquet", step)
    return folder


def write_log(path, step, size=4, text="so", **columns):
    """A table as TRL's `log_completions` writes it: every other completion is right."""
    messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": "2 + 2?"}]
    columns = {"step": [step] * size, "verdict": ["right", "wrong"] * (size // 2),
               "reward": [1.0, float("nan")] * (size // 2)} | columns  # fmt: skip
    columns |= {"prompt": [messages] * size}
    columns["completion"] = [[{"role": "assistant", "content": f"{text} {n}"}] for n in range(size)]
    parquet.write_table(pa.table(columns), path)


def run_report(tmp_path, monkeypatch, names, *more):
    """`python -m eval.report` on `<tmp_path>/eval`; returns the report's folder."""
    made = tmp_path / "eval/manifest.json"
    with suppress(OSError, ValueError):
        evaluated = {"checkpoints": [f"{Path(name).parts[0]}={tmp_path}/{name}" for name in names]}
        evaluated["test_file"] = f"{tmp_path}/data/test.jsonl"
        made.write_text(json.dumps(json.loads(made.read_text()) | {"config": evaluated}))
    argv = ["report", "--checkpoints", "base=owner/recipes-own", "--test_file", "not/read.jsonl"]
    argv += ["--output_dir", f"{tmp_path}/eval", "--report_dir", f"{tmp_path}/report", *more]
    monkeypatch.setattr(sys, "argv", argv)
    report.main()
    return tmp_path / "report"


HOSTILE = (
    "<script>document.title = 'ran'</script></details></pre></title>-->'\" onload='x`$\\x$ $"
    "<img src=x onerror=\"document.title = 'ran'\"><svg onload=\"document.title = 'ran'\">"
    "\n\x1b]0;ran\x07\x1b[2J\x9b31m\x7f\r\u202e {{ 7 * 191 }}"
)


def poisoned(value, names=()):
    """The same with hostile text behind every string, and behind keys that are anybody's names."""
    if isinstance(value, dict):
        return {
            poisoned(k) if k in names else k: v if k == "main" else poisoned(v, names)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [poisoned(one, names) for one in value]
    return value + HOSTILE if isinstance(value, str) else value


def hostile_page(folder):
    """The page of a finished report, every field of which is hostile; names and figures too."""
    made = json.loads((folder / "report.json").read_text())
    found = poisoned(made, {*made["checkpoints"], *made["changes"], *made["stages"]})
    lines = [plots.Line(HOSTILE, [1, 2], [1, 2]), plots.Line(f"{HOSTILE}2", [1, 2], [2, 3])]
    panel = plots.Panel(HOSTILE, HOSTILE, lines)
    curves = {HOSTILE: plots.draw_curves([panel], HOSTILE)}
    figures = {
        "outcomes": plots.draw_outcomes(page.bars(found, [*found["scores"]])),
        "parts": plots.draw_parts(page.steps(found)),
        "curves": curves,
    }
    (folder.parent / "hostile.html").write_text(page.build_page(found, figures), "utf-8")
    return folder.parent / "hostile.html"
