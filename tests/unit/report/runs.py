"""Made-up results of an evaluation, in the files and shapes that `eval.run` leaves."""

import json
import sys
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import pyarrow as pa
from pyarrow import parquet

from eval.harness.metrics import mean_interval
from eval.harness.score import official_metrics, think_metrics, write_parquet
from eval.report import __main__ as report
from eval.report import page, plots
from eval.report.browse import PAGE
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


def both_modes(right, task="held_out", level=None, **options):
    """Greedy and sampled rows of one task; see `solved`."""
    greedy = make_rows(solved(right, **options), task, "greedy", level)
    return greedy + make_rows(solved(right, k=2, **options), task, "sampled", level)


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_result(folder, rows, code="c"):
    """`scores.json` and `completions.parquet` of one checkpoint; the evaluation's manifest."""
    tasks = {}
    for task, mode in dict.fromkeys((row["task"], row["mode"]) for row in rows):
        found = [row for row in rows if (row["task"], row["mode"]) == (task, mode)]
        if mode.startswith("official"):
            main, scores = "exact_match,flexible-extract", [row["score"] for row in found]
            results = {"alias": task, "exact_match,strict-match": 0.0, main: fmean(scores)}
            results["exact_match_stderr,flexible-extract"] = mean_interval(scores)["stderr"]
            value = official_metrics(results, found, main)
        else:
            value = think_metrics(found, mode)
        tasks.setdefault(task, {})[mode] = value
    prints = {"checkpoint": f"hash of {folder.name}", "code": code, "engine": "hf", "data": None}
    scores = {
        "checkpoint": folder.name, "fingerprint": prints, "settings": SETTINGS, "tasks": tasks,
        "num_problems": len({row["id"] for row in rows}), "num_completions": len(rows),
        "num_tokens": 20 * len(rows), "wall_time_s": 1.5,
    }  # fmt: skip
    write_json(folder / "scores.json", scores)
    write_parquet(folder / "completions.parquet", rows)
    seal(folder.parent)


def seal(folder, config=None):
    """The manifest of an evaluation, with the hashes of the results that are there."""
    names = [str(path.relative_to(folder)) for path in folder.glob("*/*")]
    value = {"stage": "eval", "config": config or {"title": "as evaluated"}, "counts": {}}
    value |= {"git_commit": "abc123", "versions": {"torch": "0.1"}}
    value |= {"files": {name: sha256(folder / name) for name in names}}
    write_json(folder / "manifest.json", value)


def write_run(folder, rows, seed=0, steps=(1, 2)):
    """An evaluated run with one checkpoint, `grpo`, its trainer's log, and TRL's completions."""
    write_result(folder / "eval/grpo", rows)
    config = {"checkpoints": [f"grpo={folder}/grpo"], "output_dir": f"{folder}/eval"}
    seal(folder / "eval", config)
    logs = [{"step": s, "rollout/rewards": 0.5, "kl": seed, "grad_norm": s} for s in steps]
    write_json(folder / "grpo/trainer_state.json", {"log_history": logs})
    config = {"seed": seed, "output_dir": f"{folder}/grpo"}
    write_json(folder / "grpo/manifest.json", {"stage": "grpo", "config": config, "counts": {}})
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
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path)


def run_report(tmp_path, monkeypatch, names, *more):
    """`python -m eval.report` on `<tmp_path>/eval`; returns the report's folder."""
    made = tmp_path / "eval/manifest.json"
    with suppress(OSError, ValueError):
        evaluated = {"checkpoints": [f"{Path(name).parts[0]}={tmp_path}/{name}" for name in names]}
        evaluated["test_file"] = f"{tmp_path}/data/test.jsonl"
        write_json(made, json.loads(made.read_text()) | {"config": evaluated})
    argv = ["report", "--checkpoints", "base=owner/recipes-own", "--test_file", "not/read.jsonl"]
    argv += ["--output_dir", f"{tmp_path}/eval", "--report_dir", f"{tmp_path}/report", *more]
    monkeypatch.setattr(sys, "argv", argv)
    report.main()
    return tmp_path / "report"


def read_report(folder):
    return json.loads((folder / "report.json").read_text())


class Reader(HTMLParser):
    """A page's tags, attributes and the texts of its `<pre>`; every tag must be closed."""

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.tags, self.attributes, self.open, self.pres = set(), [], [], []
        self.feed(self.text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br", "img", "input"):
            self.open.append(tag)
        if tag == "pre":
            self.pres.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.pres[-1] += data

    def check_safe(self):
        """It loads nothing and runs nothing; ids are unique and every reference has one."""
        loading = "script img link iframe object embed base form"
        assert not self.tags & {*loading.split()}
        assert not [name for name, _ in self.attributes if name.startswith("on")]
        targets = {value for name, value in self.attributes if name.endswith(("href", "src"))}
        targets |= {value[4:-1] for name, value in self.attributes if name == "clip-path"}
        ids = [value for name, value in self.attributes if name == "id"]
        assert len(ids) == len({*ids})
        assert targets and targets <= {PAGE, *(f"#{id}" for id in ids)}
        assert "default-src 'none'" in self.text
        assert "url(" not in self.text.partition("</style>")[0] and "@import" not in self.text
        assert "\x1b" not in self.text and "\u202e" not in self.text


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
    made = read_report(folder)
    found = poisoned(made, {*made["checkpoints"], *made["changes"], *made["stages"]})
    lines = [plots.Line(HOSTILE, [1, 2], [1, 2]), plots.Line(f"{HOSTILE}2", [1, 2], [2, 3])]
    figures = {
        "outcomes": plots.draw_outcomes(page.bars(found, [*found["scores"]])),
        "parts": plots.draw_parts(page.steps(found)),
        "curves": {HOSTILE: plots.draw_curves([plots.Panel(HOSTILE, HOSTILE, lines)], HOSTILE)},
    }
    path = folder.parent / "hostile.html"
    path.write_text(page.build_page(found, figures), "utf-8")
    return path
