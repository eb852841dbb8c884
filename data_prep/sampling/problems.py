"""A problem set's samples: the requests to the engine, and the grades of the completions.

`stages.difficulty` counts the correct ones, `stages.distill` keeps them.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from data_prep.sampling import ProblemSetArguments, SamplingArguments
from data_prep.sampling.hashes import hash_checkpoint, hash_engine
from data_prep.sampling.store import Completion, Processes, Request, SampleStore, Settings
from data_prep.schema import question_of, read_problems
from grading.grade import Grade, grade_rollouts
from grading.own_grader import COLUMN
from pipeline.console import quiet
from pipeline.errors import UserError
from pipeline.models.tokenizer import load_tokenizer
from pipeline.prompts import prefills_think, render_prompt
from pipeline.rows import read_rows

GRADED_AT_ONCE = 1024  # completions
KEY = "model_name_or_path"


@dataclass(frozen=True)
class SampledSet:
    """The problems of a set and, for each, the prompt that an engine completes."""

    rows: list[dict[str, Any]]
    prompts: list[str]
    think_prefilled: bool  # whether the prompts end with `<think>`
    args: ProblemSetArguments

    def requests(self, number: int) -> list[Request]:
        """The samples of problem `number`."""
        args = self.args
        temperature, top_p = float(args.temperature), float(args.top_p)
        settings = Settings(args.max_new_tokens, temperature, top_p, seed=args.seed)
        prompt, place = self.prompts[number], f"{args.problems_file}: {self.rows[number]['id']}: "
        return [Request(prompt, settings, k, place) for k in range(args.num_samples)]

    def all_requests(self) -> list[Request]:
        """Those of all problems, in order."""
        return [one for number in range(len(self.rows)) for one in self.requests(number)]

    def grade(
        self, store: SampleStore
    ) -> Iterator[tuple[dict[str, Any], list[Completion], list[Grade]]]:
        """Yield each row with its completions and their grades, all of them from the store."""
        size = max(1, GRADED_AT_ONCE // self.args.num_samples)
        for start in range(0, len(self.rows), size):
            rows = self.rows[start : start + size]
            found = [[store.get(one) for one in self.requests(start + n)] for n in range(len(rows))]
            each = [(row, one) for row, some in zip(rows, found, strict=True) for one in some]
            graded = grade_rollouts(
                [str(one) for _, one in each],
                [row["answers"] for row, _ in each],
                [row["answer_form"] for row, _ in each],
                [question_of(row) for row, _ in each],
                own_graders=[row.get(COLUMN) for row, _ in each],
                think_prefilled=self.think_prefilled,
                final_number=self.args.final_number,
            )
            grades = iter(graded)
            for row, completions in zip(rows, found, strict=True):
                yield row, completions, [next(grades) for _ in completions]


def load_problems(problems_file: str, limit: int | None) -> list[dict[str, Any]]:
    """The first `limit` problems of a file, None for all; each has an id of its own."""
    rows = list(islice(read_problems(problems_file), limit))
    if not rows:
        raise UserError(f"problems_file: {problems_file} has no rows; run `make data` again")
    seen = set()
    for row in rows:
        if not isinstance(row["id"], str) or row["id"] in seen:
            raise UserError(
                f"problems_file: {problems_file}: the id {row['id']!r:.80} is not text or occurs "
                "twice; results are found by id, so give each row its own"
            )
        seen.add(row["id"])
    return rows


def prepare(
    args: ProblemSetArguments, rows: list[dict[str, Any]], processes: Processes
) -> tuple[str, str, SampledSet, Callable[[], AbstractContextManager[Any]]]:
    """Render the problems; a server gets messages as JSON and is known by its model's name.

    Returns the checkpoint's hash, the name of checkpoint and engine in the samples' keys, the
    problems with their prompts, and a function that loads the engine.
    """
    quiet()
    path = args.model_name_or_path
    if args.backend == "openai":
        checkpoint = model = f"openai {path}"
        prompts = [json.dumps(row["prompt"]) for row in rows]
        think_prefilled = False
    else:
        checkpoint = processes.ask_main(lambda: hash_checkpoint(path, KEY))
        model = f"{checkpoint} {hash_engine(args.backend, args.dtype)}"
        tokenizer = load_tokenizer(path, KEY)
        prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
        think_prefilled = prefills_think(prompts[0])

    def open_engine() -> AbstractContextManager[Any]:
        return closing(load_engine(path, KEY, args, processes.local_rank))

    return checkpoint, model, SampledSet(rows, prompts, think_prefilled, args), open_engine


def load_engine(checkpoint: str, key: str, args: SamplingArguments, local_rank: int) -> Any:
    """The checkpoint (openai: the name at the server) in the backend that the recipe names.

    `key` is the YAML key that names it, `local_rank` the number of this process's GPU.
    """
    if args.backend == "openai":
        from data_prep.sampling.openai import OpenAIEngine

        server: Any = args  # of `stages.distill`, which alone takes openai
        return OpenAIEngine(checkpoint, server.base_url, server.concurrency, server.timeout_s)
    if args.backend == "vllm":
        from data_prep.sampling.vllm import VllmEngine

        return VllmEngine(checkpoint, args, local_rank)
    from data_prep.sampling.hf import HfEngine

    return HfEngine(checkpoint, key, args, local_rank)


def load_pass_counts(path: str) -> dict[str, tuple[int, int]]:
    """`{problem id: (num_right, num_samples)}` of a file written by `stages.difficulty`."""
    counts = {}
    for where, row in read_rows(path):
        try:
            right, samples = row["num_right"], row["num_samples"]
            if not (type(right) is type(samples) is int and 0 <= right <= samples > 0):
                raise ValueError
            counts[row["id"]] = (right, samples)
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{where}: needs id, num_right and num_samples > 0; run `make difficulty` again"
            ) from None
    return counts
