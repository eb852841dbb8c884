"""Distillation: a teacher's correct solutions of a problem set, by rejection sampling.

    python -m stages.distill --config configs/tiny-cpu/distill.yaml

Samples `num_samples` completions per problem from a teacher and grades them with the reward's
grader. At most `keep` correct and well-formed ones of a problem become rows of `traces.jsonl`. SFT
can train on that file. The source `traces` of `data_prep.build` can clean it and mix it with
others. The teacher is a checkpoint (backend hf or vllm) or the model of an OpenAI-compatible server
(backend openai):

    vllm serve Qwen/QwQ-32B --generation-config vllm
    python -m stages.distill --config … --backend openai --base_url http://localhost:8000/v1 \\
      --model_name_or_path Qwen/QwQ-32B

Every finished sample is stored in `output_dir/samples`: a killed run resumes where it stopped, and
more samples extend those there. A server's model is known by its name only: for another model of
the same name take another `output_dir`.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from data_prep.sampling import ProblemSetArguments, check_inputs
from data_prep.sampling.problems import SampledSet, load_problems, prepare
from data_prep.sampling.store import Completion, Processes, SampleStore, fill
from data_prep.sources import generic
from data_prep.sources.base import Drop
from data_prep.sources.thoughts import read_thought
from grading.equivalence.compare import is_same_value
from grading.grade import Grade
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.prompts import PROMPTS, build_completion, build_prompt, form_of
from pipeline.settings import parse, setting
from stages.restarts import in_launch

RESULT = "traces.jsonl"


@dataclass(kw_only=True)
class DistillArguments(ProblemSetArguments):
    """Keys of `distill.yaml`."""

    backends: ClassVar[tuple[str, ...]] = ("hf", "vllm", "openai")

    model_name_or_path: str = field(
        metadata={"help": "the teacher: checkpoint folder, hub id, or name at the server"}
    )
    backend: str = setting("hf", "hf (transformers), vllm or openai")
    base_url: str | None = setting(None, "openai: the server's API, http://localhost:8000/v1")
    concurrency: int = setting(64, "openai: requests at a time")
    timeout_s: float = setting(1800.0, "openai: limit for one completion, seconds")
    prompt: str | None = setting(
        None, f"prompt for the teacher, if not that of the rows: {', '.join(PROMPTS)}"
    )
    temperature: float = setting(0.6, "sampling temperature, above 0")
    top_p: float = setting(0.95, "nucleus sampling, 0..1")
    max_new_tokens: int = setting(8192, "longest completion, tokens")
    keep: int = setting(1, "most correct traces to keep of one problem")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep > self.num_samples:
            raise UserError(
                f"keep: {self.keep} is more than num_samples: {self.num_samples}; raise num_samples"
            )
        if self.prompt is not None:
            self.check_one_of("prompt", tuple(PROMPTS))
        if self.backend != "openai" and self.base_url:
            raise UserError("base_url: needs backend: openai; set that, or remove base_url")
        if self.backend == "openai" and not str(self.base_url).startswith(("http://", "https://")):
            raise UserError(
                f"base_url: {self.base_url!r} is not an address; set the server's API, such as "
                "http://localhost:8000/v1"
            )


def main() -> None:
    """Sample what is not sampled yet, keep correct ones, then put traces and manifest in place."""
    (args,) = parse(__doc__, DistillArguments, check=check_inputs, owns="output_dir")
    rows = check_rows(load_problems(args.problems_file, args.limit), args.problems_file)
    for row in rows:
        # What a model trained on the traces will see, and how it is to answer.
        row["own_prompt"], row["own_form"] = row["prompt"], row["answer_form"]
        if args.prompt is not None:
            row["prompt"] = build_prompt(row["question"], args.prompt)
            row["answer_form"] = form_of(args.prompt)
    processes = Processes.from_environment()
    folder = Path(args.output_dir)
    if processes.ask_main(lambda: manifest.is_current(folder, asdict(args))):
        return
    models = [] if args.backend == "openai" else [args.model_name_or_path]
    inputs = manifest.hash_inputs([*models, args.problems_file])
    started = manifest.start(folder) if processes.is_main else 0.0
    _, teacher, problems, open_engine = prepare(args, rows, processes)
    store = SampleStore(folder / "samples", teacher, processes.rank)
    fill(store, problems.all_requests(), open_engine, processes, "distill")
    if processes.is_main:
        numbers = write_traces(folder / RESULT, problems, store, args.keep)
        end = {"started": started, "files": [RESULT], "teacher": teacher}
        manifest.write(folder, "distill", asdict(args), inputs, **end, **numbers)
        counts, dropped = numbers["counts"], Counter(numbers["dropped"])
        lost = ", ".join(f"{reason} {n:,}" for reason, n in dropped.most_common()) or "none"
        sys.stdout.write(
            f"distill: {counts['problems']:,} problems, {numbers['samples_in']:,} samples, "
            f"{counts['traces']:,} traces kept, dropped {dropped.total():,}: {lost}; "
            f"{counts['problems_without_a_trace']:,} problems without a trace -> "
            f"{folder / RESULT}\n"
        )
    processes.meet()  # the main process holds the others' key-value store


def check_rows(rows: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """The rows, if the source `traces` could read what becomes of each; raises `UserError`."""
    for row in rows:
        where = f"problems_file: {path}: id {row['id']!r:.80}"
        if not isinstance(row.get("question"), str) or not row["question"].strip():
            raise UserError(f"{where}: question: missing; run `make data` again")
        as_trace = row | {"trace": 0, "solution": "", "source": row.get("source") or ""}
        generic.build_trace(as_trace, "", where)
    return rows


def choose_traces(
    completions: Sequence[Completion], grades: Sequence[Grade], keep: int
) -> tuple[dict[str, str], Counter[str]]:
    """The first `keep` correct traces of one problem, and how many samples are dropped, by reason.

    Returns:
        `{thought without tags: the answer after it}`, and counts of cut_off, each verdict, the
        reasons of `read_thought`, duplicate (the same thought again) and not_needed (correct, but
        one too many).
    """
    found: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    for completion, grade in zip(completions, grades, strict=True):
        if completion.cut_off or grade.verdict != "right":
            dropped["cut_off" if completion.cut_off else grade.verdict] += 1
            continue
        try:
            thought = read_thought(str(completion))
        except Drop as drop:
            dropped[drop.reason] += 1
            continue
        if thought in found:
            dropped["duplicate"] += 1
        else:
            found[thought] = grade.prediction or ""
    kept = dict(islice(found.items(), keep))
    if len(found) > keep:
        dropped["not_needed"] = len(found) - keep
    return kept, dropped


def trace_row(row: dict[str, Any], number: int, thought: str, prediction: str) -> dict[str, Any]:
    """The row of a problem's trace, with the problem's prompt, whatever the teacher was asked."""
    # First the gold that the thought arrives at: an SFT row has one answer after its thought.
    golds = sorted(row["answers"], key=lambda gold: not is_same_value(prediction, gold))
    return {
        "id": row["id"],
        "source": row.get("source") or "",
        "question": row["question"],
        "answers": golds,
        "answer_form": row["own_form"],
        "solution": thought,
        "trace": number,
        "level": row.get("level"),
        "subject": row.get("subject") or "",
        "prompt": row["own_prompt"],
        "completion": build_completion(thought, golds[0], row["own_form"]),
    }


def write_traces(path: Path, problems: SampledSet, store: SampleStore, keep: int) -> dict[str, Any]:
    """Write the kept traces; returns the manifest's numbers, which add up."""
    dropped: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    num_kept = num_solved = num_tokens = 0
    with manifest.open_whole(path) as file:
        for row, completions, grades in problems.grade(store):
            kept, lost = choose_traces(completions, grades, keep)
            for number, (thought, prediction) in enumerate(kept.items()):
                file.write(json.dumps(trace_row(row, number, thought, prediction)) + "\n")
            dropped += lost
            verdicts.update(grade.verdict for grade in grades)
            num_kept += len(kept)
            num_solved += bool(kept)
            num_tokens += sum(one.num_tokens for one in completions)
    num_samples = verdicts.total()
    assert num_samples == num_kept + dropped.total()
    return {
        "counts": {
            "problems": len(problems.rows),
            "problems_without_a_trace": len(problems.rows) - num_solved,
            "traces": num_kept,
            "verdicts": dict(verdicts.most_common()),
            "tokens": num_tokens,
        },
        "samples_in": num_samples,
        "samples_out": num_kept,
        "dropped": dict(sorted(dropped.items())),
    }


if __name__ == "__main__":
    run_cli(in_launch(main))
