"""Small evaluations for the tests of `eval.run`: problems, engines that recite, results."""

import json
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow.parquet

from data_prep.sampling.store import Completion
from eval import run
from pipeline.prompts import build_prompt, form_of
from tests.files import write_rows

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "num_samples": 2, "max_new_tokens": 8, "batch_size": 4, "dtype": "float32",
    "temperature": 1.0, "top_p": 1.0,
}  # fmt: skip
PROBLEMS = {
    "Mia has 14 pens.": "14",
    "Mia has 3.": "3",
    "Tuesday: loses 3. Monday: buys 5. How many pens?": "2",
}


def write_problems(path, problems=PROBLEMS, prompt_name="none"):
    """A test file of `{question: answer or answers}`; ids `p0`, `p1`, … and levels 1, 2, …"""
    rows = [
        {"id": f"p{i}", "source": "toy", "level": i + 1, "question": question}
        | {"prompt": build_prompt(question, prompt_name)}
        | {"answers": answer if isinstance(answer, list) else [answer]}
        | {"answer_form": form_of(prompt_name)}
        for i, (question, answer) in enumerate(problems.items())
    ]
    write_rows(path, rows)


def copy_with(folder, model, file="config.json", **values):
    """A copy of a model with these values in one of its files of JSON."""
    shutil.copytree(model, folder)
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def flags(folder, *checkpoints, **settings):
    """The command line of an evaluation of `folder/test.jsonl` into `folder/eval`."""
    values = SETTINGS | {"output_dir": f"{folder}/eval", "report_dir": f"{folder}/report"}
    values |= {"test_file": f"{folder}/test.jsonl"} | settings
    found = ["--checkpoints", *map(str, checkpoints)]
    for key, value in values.items():
        found += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
    return found


def evaluate(folder, *checkpoints, **settings):
    """`python -m eval.run` in this process; returns the folder of the first checkpoint."""
    argv = ["eval.run", *flags(folder, *checkpoints, **settings)]
    with mock.patch.object(sys, "argv", argv), mock.patch.dict(os.environ):
        run.main()
    output_dir = Path(settings.get("output_dir", folder / "eval"))
    return output_dir / checkpoints[0].partition("=")[0]


def read_rows(folder):
    return pyarrow.parquet.read_table(folder / "completions.parquet").to_pylist()


def read_scores(folder):
    return json.loads((folder / "scores.json").read_text())


def read_evaluated(output_dir):
    """The checkpoints that the last run evaluated and did not keep."""
    return json.loads((output_dir / "manifest.json").read_text())["evaluated"]


def read_store(folder):
    """`{file: [keys of its whole lines]}` of a checkpoint's samples, without what a kill tore."""
    found = {}
    for path in sorted((folder / "samples").glob("*.jsonl")):
        lines = path.read_bytes().split(b"\n")
        found[path.name] = [json.loads(line)[0] for line in lines if line.endswith(b"]")]
    return found


def read_keys(folder):
    return [key for keys in read_store(folder).values() for key in keys]


@contextmanager
def counting():
    """Within `with`, the list of every request that reaches the engine of transformers."""
    from data_prep.sampling.hf import HfEngine

    asked = []

    def count(method):
        def call(engine, requests):
            asked.extend(requests)
            return method(engine, requests)

        return call

    methods = {name: count(getattr(HfEngine, name)) for name in ("complete", "loglikelihood")}
    with mock.patch.multiple(HfEngine, **methods):
        yield asked


class Scripted:
    """An engine that recites: `write(request)` is `(text, whether it was cut off)`."""

    max_length = 4096  # tokens

    def __init__(self, checkpoint, write):
        from transformers import AutoTokenizer

        self.tokenizer, self.checkpoint = AutoTokenizer.from_pretrained(checkpoint), checkpoint
        self._write, self.asked = write, []

    def complete(self, requests):
        for index, request in reversed(list(enumerate(requests))):  # any order will do
            self.asked.append(request)
            text, is_cut = self._write(request)
            yield index, Completion(text, 32 if is_cut else 10, cut_off=is_cut)

    def loglikelihood(self, pairs):
        for index, pair in reversed(list(enumerate(pairs))):
            self.asked.append(pair)
            yield index, (-9.0, False)

    @property
    def pair_length(self):
        return self.max_length

    def close(self):
        pass

    def evaluate(self, folder, name="base", **settings):
        """`evaluate`, with this engine in place of the checkpoint's."""
        with mock.patch("eval.run.load_engine", lambda *_: self):
            return evaluate(folder, f"{name}={self.checkpoint}", **settings)
