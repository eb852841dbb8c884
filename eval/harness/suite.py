"""The benchmark suite: which tasks there are, their problems, and the harness's view of them.

A task is a YAML file in `eval/tasks/`: `<name>.yaml` is think-aware and ours,
`official_<name>.yaml` lists the harness's own on the same problems. A think-aware task is run in
two modes, greedy and sampled; an official one in a mode of its own, `official:<harness's name>`.
The files name this module's `load_rows`, `load_official` and `process_gpqa`, which the harness
calls with a task's `metadata` and what `load_think_tasks` and `load_official_tasks` add to it.
"""

import functools
import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from data_prep.decontamination.benchmarks import BENCHMARKS, find_benchmark_file, load_benchmark
from data_prep.schema import grpo_row, read_problems
from grading.own_grader import COLUMN
from grading.worker import Workers
from pipeline import strict_yaml
from pipeline.errors import UserError
from pipeline.models.tokenizer import load_tokenizer
from pipeline.prompts import apply_template, check_whole
from pipeline.rows import read_rows
from pipeline.stages import TASKS, known_tasks

FOLDER = TASKS
THINK_TASKS = known_tasks()
OFFICIAL_TASKS = sorted(path.stem[len("official_") :] for path in FOLDER.glob("official_*.yaml"))
OWN = {"held_out": "test_file", "transfer": "transfer_file"}  # tasks on files of the recipe's own
MODES = ("greedy", "sampled")
COLUMNS = ("id", "source", "level", "prompt", "question", "answers", "answer_form")
# The harness's folders that hold the official tasks: reading all of its folders takes ten seconds.
HARNESS_FOLDERS = ("gsm8k", "minerva_math", "hendrycks_math", "arc", "gpqa")
# Of the harness's parsers. Above the sum of the harness's own limits for one completion, so that
# those come first.
TIMEOUT_SECONDS = 30.0
MEMORY_BYTES = 3 << 30
# The harness's regular expressions take quadratic time on an answer, in its process; no benchmark
# has one as long, and no official task lets a model write as much.
MAX_CHARS = 100_000

load_tokenizer_once = functools.cache(load_tokenizer)  # however many tasks ask for it


def read_official_metadata(task: str) -> dict[str, dict[str, Any]]:
    """`{the harness's name: metadata}` of the official tasks on a benchmark."""
    file = FOLDER / f"official_{task}.yaml"
    text = file.read_text(encoding="utf-8").replace("!function ", "")
    tasks = strict_yaml.parse(text, str(file))["task"]
    return {one["task"]: one["metadata"] for one in tasks}


# The problems of a task.


def read_own(key: str, test_file: str) -> list[dict]:
    """Rows of one of the recipe's own test files, named by `key`, with exactly `COLUMNS`.

    And with the name of the user's own grader, where they need it.

    Raises:
        UserError: no rows, an id that occurs twice, or a value of a kind that no result can hold.
    """
    rows = [
        {key: row.get(key) for key in COLUMNS} | ({COLUMN: row[COLUMN]} if row.get(COLUMN) else {})
        for row in read_problems(test_file, COLUMNS)
    ]
    if not rows:
        raise UserError(f"{key}: {test_file} has no rows; `make data` builds it")
    seen = set()
    for row in rows:
        if not isinstance(row["id"], str):
            raise UserError(f"{test_file}: id {row['id']!r}: id: is not text; fix it")
        if (row["source"], row["id"]) in seen:
            raise UserError(
                f"{test_file}: the id {row['id']!r} occurs twice, and results are kept by id; "
                "rename or remove one"
            )
        seen.add((row["source"], row["id"]))
    return rows


def read_problem_rows(
    benchmark: str,
    data_root: str | None,
    prompt: str,
    answer_form: str | None = None,
    **files: Any,
) -> list[dict]:
    """The rows (`COLUMNS`) of one think-aware task, before any tokenizer is asked.

    Args:
        benchmark: one of `OWN`, whose file is one of `files`, or of `BENCHMARKS`.
        data_root: folder of the local files; None asks the hub.
        prompt, answer_form: see `data_prep.schema.grpo_row`; the test file has its own.
    """
    if key := OWN.get(benchmark):
        return read_own(key, files[key])
    problems = load_benchmark(BENCHMARKS[benchmark], data_root)
    return [grpo_row(one, prompt, answer_form) for one in problems]


def load_rows(tokenizer: str, **metadata: Any) -> dict:
    """Load a think-aware task's problems; the column `rendered` is the text the model continues.

    `metadata` has what `read_problem_rows` takes.
    """
    rows = read_problem_rows(**metadata)
    loaded = load_tokenizer_once(tokenizer, "checkpoints")
    prompts = render_prompts(rows, loaded)
    for row, text in zip(rows, prompts, strict=True):
        check_whole(row["prompt"], text, loaded)
    rendered = [row | {"rendered": text} for row, text in zip(rows, prompts, strict=True)]
    return {"test": build_dataset(rendered)}


def build_dataset(rows: list[dict]) -> Any:
    """The rows as a Dataset with the columns of all of them; `from_list` takes the first row's."""
    from datasets import Dataset

    columns = dict.fromkeys(key for row in rows for key in row)
    return Dataset.from_list([{key: row.get(key) for key in columns} for row in rows])


def render_prompts(rows: list[dict], tokenizer: Any) -> list[str]:
    """The text of each row's prompt.

    Raises:
        UserError: there is no template, or it refuses the messages; some refuse a system message.
    """
    from jinja2 import TemplateError

    try:
        return [apply_template(row["prompt"], tokenizer) for row in rows]
    except (ValueError, TemplateError) as error:
        roles = ", ".join(message["role"] for message in rows[0]["prompt"])
        raise UserError(
            f"chat_template: {tokenizer.name_or_path}: cannot render messages of {roles} "
            f"({error!s:.120}); choose another prompt in data.yaml and eval.yaml, or a "
            "checkpoint with another chat_template"
        ) from error


def load_official(
    hub: str,
    files: dict[str, list[str]],
    data_root: str | None,
    config: str | None = None,
    **_: Any,
) -> dict:
    """`{split: Dataset}` of an official task: what the harness would load, or local files like it.

    Args:
        files: for each split the local files that may hold it.
        data_root: folder of the local files; None asks the hub.
    """
    import datasets

    if data_root is None:
        try:
            return datasets.load_dataset(hub, config)
        except (OSError, ValueError) as error:
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"hub: {hub} (config {config}): {message}; set data_root to a folder of local files"
            ) from error
    return {
        split: build_dataset([row for _, row in read_rows(path)])
        for split, path in find_official(hub, files, data_root).items()
    }


def find_official(hub: str, files: dict[str, list[str]], data_root: str) -> dict[str, Path]:
    """The local file of each split of an official task; raises `UserError` where there is none."""
    found: dict[str, Path] = {}
    for split, names in files.items():
        path = find_benchmark_file(names, data_root)
        if path is None:
            raise UserError(
                f"data_root: {data_root} holds no {' or '.join(names)} for the split "
                f"{split} of {hub}; put it there, or leave data_root out to ask the hub"
            )
        found[split] = path
    return found


def process_gpqa(dataset: Any) -> Any:
    """The harness's own `process_docs` of GPQA with its shuffle of the options seeded.

    It is called twice: the second order would score the answers to the first.
    """
    # That of the written task: the columns of the other, and `choices`.
    from lm_eval.tasks.gpqa.cot_zeroshot.utils import process_docs

    state = random.getstate()
    random.seed(0)
    try:
        return process_docs(dataset)
    finally:
        random.setstate(state)


# The tasks as the harness runs them.


def load_think_tasks(
    names: list[str], metadata: dict[str, Any], generation: dict[str, Any], num_samples: int
) -> dict[str, Any]:
    """Load think-aware tasks for one mode: `{name: task}`.

    Args:
        metadata: what `load_rows` needs besides the tasks' own, and `final_number` for the scoring.
        generation: `generation_kwargs` of the mode, over those of the YAML.
    """
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=FOLDER, include_defaults=False, metadata=metadata)
    loaded = manager.load([f"{name}_think" for name in names])["tasks"]
    for task in loaded.values():
        own = task.config.process_results
        score = functools.partial(own, final_number=metadata["final_number"])
        task.set_config("process_results", score)
        task.set_config("generation_kwargs", generation, update=True)
        task.set_config("repeats", num_samples)
    return {name: loaded[f"{name}_think"] for name in names}


def load_official_tasks(
    names: list[str], metadata: dict[str, Any]
) -> tuple[dict[str, Any], list[dict]]:
    """The harness's own tasks of the benchmarks, as `{its name: task}`, and `protect`'s list."""
    import lm_eval.tasks
    from lm_eval.defaults import DEFAULT_OTHER_SEED

    folders = [Path(lm_eval.tasks.__file__).parent / name for name in HARNESS_FOLDERS]
    manager = lm_eval.tasks.TaskManager(
        include_path=[FOLDER, *folders], include_defaults=False, metadata=metadata
    )
    loaded = manager.load([f"official_{name}" for name in names])["tasks"]
    for task in loaded.values():
        # As the harness's command line does; without it every process draws other examples.
        task.set_fewshot_seed(DEFAULT_OTHER_SEED)
    return loaded, protect(loaded)


def protect(tasks: dict[str, Any]) -> list[dict]:
    """Make the harness's tasks `{name: task}`, in place, safe for any completion.

    The official MATH-500 tasks hand a model's text to sympy. The harness's time limits are signals,
    which long C code does not hear, and it has no limit for memory. Their parsers therefore run in
    a child process with limits. The others are regular expressions; too long a text scores 0.
    Returns a list that the scoring fills with the rows (`doc`) on which a parser was stopped, once
    for each task. They score 0, as those do on which the harness gives up.
    """
    stopped: list[dict] = []

    def parse(task: Any, here: Callable, own: Any, doc: dict, results: list) -> dict:
        if callable(own):
            code = own.__code__
            (outcome,) = _worker().map([(results, doc, code.co_filename, code.co_name)])
            if outcome.status == "ok":
                return outcome.value
        elif not any(isinstance(one, str) and len(one) > MAX_CHARS for one in results):
            return here(doc, results)
        stopped.append(doc)
        return {metric["metric"]: 0 for metric in task.config.metric_list}

    for task in tasks.values():
        own = task.config.process_results
        task.process_results = functools.partial(parse, task, task.process_results, own)
    return stopped


@functools.cache
def _worker() -> Workers:
    # One, as the harness asks for one completion at a time.
    return Workers("eval.harness.suite:call_harness", 1, TIMEOUT_SECONDS, MEMORY_BYTES)


@functools.cache
def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"harness_{Path(path).parent.name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call_harness(results: list[str], doc: dict, path: str, name: str) -> dict:
    """What a worker runs: the function `name` of the harness's file `path`."""
    return getattr(_load(path), name)(doc, results)
