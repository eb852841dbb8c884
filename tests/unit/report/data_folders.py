"""Made-up data folders, in the files and shapes that `data_prep.build` leaves."""

import json
import sys

from eval.report import data_report

EVIL = (
    "<script>alert(1)</script></pre></details>\n```\n`````\n<img src=http://evil.example/x>"
    "\x1b[31m \u202e ![x](http://evil.example/x) ```<img src=http://evil.example/y>` $\\frac{1}{2}$"
)


def make_source(name="gsm8k", rows_out=4, dropped=None, **more):
    """A source as the manifest lists it."""
    dropped = dropped or {}
    rows_in = rows_out + sum(dropped.values())
    entry = {"name": name, "split": "train", "place": f"{name}/train.jsonl", "rows_in": rows_in}
    return entry | {"rows_out": rows_out, "dropped": dropped} | more


def add_up(sources):
    """The counts of several sources or files."""
    dropped = {}
    for one in sources:
        for reason, number in one["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + number
    counts = {key: sum(one[key] for one in sources) for key in ("rows_in", "rows_out")}
    return counts | {"dropped": dict(sorted(dropped.items()))}


def make_rows(file, sources, **more):
    """Rows of one data file; every third has a level, and its id as the subject."""
    rows = []
    for source in sources:
        for number in range(source["rows_out"]):
            name, third = f"{source['name']}-{source['split']}-{number}", number % 3 == 0
            question = f"What is {name}?" + "?" * number
            row = {"id": name, "source": source["name"], "question": question, "answers": ["4"]}
            row |= {"answer_form": "box"}
            row |= {"prompt": [{"role": "user", "content": question}]}
            row |= {"level": number if third else None, "subject": f"s {number}" if third else ""}
            row |= {"completion": f"so {name}"} if "sft" in file else {}
            rows.append(row | more)
    return rows


def make_drop(file, reason, number, **more):
    """A row of dropped.jsonl."""
    row = {"file": file, "reason": reason, "where": f"raw.jsonl:{number}", "detail": "so it is"}
    row |= {"id": f"p{number}", "question": f"Dropped {number}?", "answers": ["7"]}
    return row | more


def make_pair(file="sft_train.jsonl", score=0.9, **more):
    """A row of contamination.jsonl."""
    row = {"file": file, "where": "raw.jsonl:1", "id": "p1", "question": "Leak?", "answers": ["7"]}
    row |= {"benchmark": "math500", "benchmark_id": "m1", "benchmark_question": "A leak?"}
    return row | {"score": score, "kind": "reworded"} | more


def write_lines(path, rows):
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_build(folder, files, pairs=(), config=None, rows=None, drops=None, **more):
    """A data folder of `{file: sources}`; rows and drops are made up where none are given."""
    folder.mkdir(parents=True, exist_ok=True)
    outputs = {name: add_up(sources) | {"sources": sources} for name, sources in files.items()}
    if drops is None:
        drops = [
            make_drop(name, reason, number)
            for name, found in outputs.items()
            for reason, count in found["dropped"].items()
            for number in range(count)
            if reason != "not_sampled"
        ]
    for name, sources in files.items():
        write_lines(folder / name, (rows or {}).get(name) or make_rows(name, sources))
    write_lines(folder / "dropped.jsonl", drops)
    write_lines(folder / "contamination.jsonl", pairs)
    value = {
        "stage": "data", "git_commit": "abc123", "versions": {"torch": "0.1"}, "wall_time_s": 5.5,
        "config": {"seed": 3, "mix": {}} | (config or {}),
        "inputs": {"gsm8k/train.jsonl": "0" * 64}, **add_up(list(outputs.values())),
        "outputs": outputs, "decontamination": {"gsm8k": 1319}, "seconds": {"build": 3.0},
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(value | more))
    return folder


def run_report(monkeypatch, data, *flags):
    """`python -m eval.report.data_report` on a folder; returns the report's folder."""
    monkeypatch.setattr(sys, "argv", ["data_report", "--data", str(data), *flags])
    data_report.main()
    return data.parent / "data-report"
