"""What the harness's own parsers make of completions: of any, whoever wrote them.

The completions are handed to the official tasks as if a model had just written them; questions and
golds are put into the shape of the tasks' data. Only stop strings and token limit act on the text.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from eval.samples import Completion
from eval.stored_lm import read_settings
from eval.suite import load_official_tasks

# The benchmarks whose official tasks read what a model writes, and their rows' shape.
SHAPES = {
    "gsm8k": ("gsm8k/{}.jsonl", lambda q, gold: {"question": q, "answer": f"#### {gold}"}),
    "math500": (
        "math/math500.jsonl",
        lambda q, gold: {"problem": q, "solution": f"\\boxed{{{gold}}}", "answer": gold},
    ),
}  # fmt: skip
PARSERS = {
    ("gsm8k", "strict-match", "exact_match"): "gsm8k strict",
    ("gsm8k", "flexible-extract", "exact_match"): "gsm8k flexible",
    ("minerva_math500", "none", "exact_match"): "minerva",
    ("minerva_math500", "none", "math_verify"): "minerva math_verify",
    ("hendrycks_math500", "none", "exact_match"): "hendrycks",
}


class ScriptedLM(LM):
    """Says what it is told: `say(task, doc, turn)` is the completion number `turn` of a problem.

    The task's stop strings and token limit act on it as they would on a model's.
    """

    def __init__(self, say: Any, cut: Any) -> None:
        super().__init__()
        self._say, self._cut = say, cut

    def generate_until(self, requests: list[Instance]) -> list[Completion]:
        """One completion per request, in order."""
        turns: dict[tuple, int] = {}
        found = []
        for request in requests:
            place = (request.task_name, request.doc_id)
            turns[place] = turns.get(place, -1) + 1
            settings = read_settings(request.args[1], 0, False)
            text = self._say(request.task_name, request.doc, turns[place])
            found.append(self._cut(text, settings))
        return found

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError("options are compared without writing: there is nothing to say")

    loglikelihood_rolling = loglikelihood


def run_scripted(tasks: dict[str, Any], say: Any, cut: Any, limit: int | None = None) -> dict:
    """The harness's samples of each task with completions that were given."""
    import lm_eval
    import lm_eval.api.task

    lm_eval.api.task.tqdm = lambda items, **_: items  # its bar for building prompts
    loaded = {"tasks": tasks, "groups": {}, "group_map": {}}
    return lm_eval.evaluate(ScriptedLM(say, cut), loaded, limit=limit, bootstrap_iters=1)["samples"]


def parse_officially(
    questions: Sequence[str], golds: Sequence[str], completions: Sequence[str], cut: Any
) -> dict[str, list[bool]]:
    """For each of `PARSERS` whether it scores each completion.

    Args:
        questions, golds: for each completion; no prompt is built from them.
        cut: `cut(text, settings) -> Completion`, the stop rules.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in SHAPES.values():
            lines = [
                json.dumps(shape(q, gold)) + "\n" for q, gold in zip(questions, golds, strict=True)
            ]
            for split in ("train", "test"):
                path = Path(folder, name.format(split))
                path.parent.mkdir(exist_ok=True)
                path.write_text("".join(lines), encoding="utf-8")
        tasks = load_official_tasks(list(SHAPES), {"data_root": folder})
    for task in tasks.values():
        task.set_config("num_fewshot", 0)
    by_task: dict[str, dict[int, str]] = {name: dict(enumerate(completions)) for name in tasks}
    places = {name: iter(range(len(completions))) for name in tasks}

    def say(task: str, doc: dict, turn: int) -> str:
        return by_task[task][next(places[task])]

    samples = run_scripted(tasks, say, cut)
    found = {}
    for (task, chosen, metric), name in PARSERS.items():
        scores = {s["doc_id"]: s[metric] for s in samples[task] if s["filter"] == chosen}
        found[name] = [bool(scores[place]) for place in range(len(completions))]
    return found
