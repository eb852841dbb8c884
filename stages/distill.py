"""Distillation: a teacher's right traces for a problem set, by rejection sampling.

    python -m stages.distill --config configs/tiny-cpu/distill.yaml

Samples `num_samples` completions per problem from a teacher, grades them with the reward's grader
and keeps at most `keep` right and well-formed ones. `traces.jsonl` has one row for each: the
problem's id, source, question, answer, level and subject, the thought as `solution`, and `trace`,
its number from 0. It is an SFT file as it is (`prompt`, `completion`), and the source `traces` of
`data_prep.build` reads it, to be cleaned and mixed with others. The teacher is a checkpoint
(backend hf or vllm) or the model of an OpenAI-compatible server (backend openai):

    vllm serve Qwen/QwQ-32B --generation-config vllm
    python -m stages.distill --config … --backend openai --base_url http://localhost:8000/v1 \\
      --model_name_or_path Qwen/QwQ-32B

Every finished sample is stored in `output_dir/samples`: a killed run goes on where it stopped, and
more samples extend those there. A server's samples are known by the model's name: for another model
under the same name take another `output_dir`.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from data_prep import manifest
from data_prep.checkpoints import check_checkpoint
from data_prep.config import UserError, parse, run_cli
from data_prep.prompts import SYSTEM_PROMPTS, build_prompt, prefills_think, render_prompt
from data_prep.sampling import load_engine, quiet
from data_prep.sampling.arguments import SamplingArguments
from data_prep.sampling.processes import Processes
from data_prep.sources import traces
from stages.rejection import PREFERENCES, write_traces

RESULT, KEY = "traces.jsonl", "model_name_or_path"


@dataclass(kw_only=True)
class DistillArguments(SamplingArguments):
    """Keys of `distill.yaml`."""

    backends: ClassVar[tuple[str, ...]] = ("hf", "vllm", "openai")

    model_name_or_path: str = field(
        metadata={"help": "the teacher: checkpoint folder, hub id, or name at the server"}
    )
    problems_file: str = field(metadata={"help": "JSON lines as data_prep.build writes for GRPO"})
    output_dir: str = field(metadata={"help": "where traces.jsonl and the samples go"})
    backend: str = field(default="hf", metadata={"help": "hf (transformers), vllm or openai"})
    base_url: str | None = field(
        default=None, metadata={"help": "openai: the server's API, http://localhost:8000/v1"}
    )
    api_key_env: str = field(
        default="OPENAI_API_KEY", metadata={"help": "openai: environment variable with the key"}
    )
    concurrency: int = field(default=64, metadata={"help": "openai: requests under way at once"})
    timeout_s: float = field(
        default=1800.0, metadata={"help": "openai: the longest that a completion may take, seconds"}
    )
    system_prompt: str | None = field(
        default=None,
        metadata={"help": f"instead of the problems' own: {', '.join(SYSTEM_PROMPTS)}"},
    )
    temperature: float = field(default=0.6, metadata={"help": "of the samples, above 0"})
    top_p: float = field(default=0.95, metadata={"help": "nucleus of the samples, 0..1"})
    max_new_tokens: int = field(default=8192, metadata={"help": "a longer completion is cut off"})
    keep: int = field(default=1, metadata={"help": "right traces kept of one problem, at most"})
    prefer: str = field(
        default="first", metadata={"help": f"which of the right traces: {', '.join(PREFERENCES)}"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("keep", "concurrency", "timeout_s"):
            if not getattr(self, key) > 0:
                raise UserError(f"{key}: {getattr(self, key)!r} must be above 0")
        if self.keep > self.num_samples:
            raise UserError(
                f"keep: {self.keep} traces of {self.num_samples} samples; raise num_samples"
            )
        if self.prefer not in PREFERENCES:
            raise UserError(f"prefer: {self.prefer!r} is not one of {', '.join(PREFERENCES)}")
        if self.system_prompt not in (None, *SYSTEM_PROMPTS):
            known = ", ".join(SYSTEM_PROMPTS)
            raise UserError(f"system_prompt: {self.system_prompt!r} is not one of {known}")
        if self.backend != "openai" and self.base_url:
            raise UserError("base_url: has no use but with backend: openai; remove one of them")
        if self.backend == "openai" and not str(self.base_url).startswith(("http://", "https://")):
            raise UserError(
                f"base_url: {self.base_url!r} is no address; set it to the server's API, such as "
                "http://localhost:8000/v1"
            )


def check(values: dict[str, Any]) -> None:
    """Refuse missing inputs before torch is imported."""
    if not Path(values["problems_file"]).is_file():
        raise UserError(
            f"problems_file: {values['problems_file']} does not exist; run `make data` first"
        )
    if values.get("backend") != "openai":
        check_checkpoint(values[KEY], KEY, None)


def main() -> None:
    """Sample what is not sampled yet, keep what is right, then put traces and manifest in place."""
    (args,) = parse(__doc__, DistillArguments, check=check)
    from data_prep.sampling.filling import fill
    from data_prep.sampling.sampled import SampledSet, read_rows
    from data_prep.sampling.samples import SampleStore

    rows = check_rows(read_rows(args.problems_file, args.limit), args.problems_file)
    for row in rows:
        row["own_prompt"] = row["prompt"]  # what a model trained on the traces will see
        if args.system_prompt is not None:
            row["prompt"] = build_prompt(row["question"], args.system_prompt)
    processes = Processes.from_environment()
    folder = Path(args.output_dir)
    started = manifest.start(folder) if processes.is_main else 0.0
    teacher, prompts, think_prefilled, load = prepare_teacher(rows, args, processes)
    problems = SampledSet(rows, prompts, think_prefilled, args)
    store = SampleStore(folder / "samples", teacher, processes.rank)
    fill(store, problems.all_requests(), load, processes, "distill")
    if processes.is_main:
        numbers = write_traces(folder / RESULT, problems, store, args.keep, args.prefer)
        models = [] if args.backend == "openai" else [args.model_name_or_path]
        inputs = manifest.hash_inputs([*models, args.problems_file])
        manifest.write(
            folder, "distill", asdict(args), inputs, started=started, teacher=teacher, **numbers
        )
        say(numbers, folder / RESULT)
    processes.meet()  # the main process holds the others' key-value store


def check_rows(rows: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """The rows, if the source `traces` could read what becomes of each; raises `UserError`."""
    for row in rows:
        where = f"problems_file: {path}: id {row['id']!r:.80}"
        if not isinstance(row.get("question"), str) or not row["question"].strip():
            raise UserError(f"{where}: question: missing; run `make data` again")
        as_trace = row | {"trace": 0, "solution": "", "source": row.get("source") or ""}
        traces.build_problem(as_trace, "", where)
    return rows


def prepare_teacher(
    rows: list[dict[str, Any]], args: DistillArguments, processes: Processes
) -> tuple[str, list[str], bool, Callable[[], Any]]:
    """What the backend makes of the problems.

    Returns:
        What the samples are known by, the prompts for the engine, whether those end with
        `<think>`, and a function that loads the engine.
    """
    if args.backend == "openai":
        from data_prep.sampling.openai_server import OpenAIEngine

        def connect() -> OpenAIEngine:
            return OpenAIEngine(
                args.model_name_or_path,
                base_url=args.base_url,
                api_key_env=args.api_key_env,
                concurrency=args.concurrency,
                timeout_s=args.timeout_s,
            )

        messages = [json.dumps(row["prompt"]) for row in rows]
        return f"openai {args.model_name_or_path}", messages, False, connect
    quiet()
    from data_prep.sampling.hashes import hash_checkpoint, hash_engine
    from data_prep.sampling.hf import load_tokenizer

    checkpoint = processes.ask_main(lambda: hash_checkpoint(args.model_name_or_path, KEY))
    tokenizer = load_tokenizer(args.model_name_or_path, KEY)
    prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
    teacher = f"{checkpoint} {hash_engine(args.backend, args.dtype)}"

    def load() -> Any:
        return load_engine(args.model_name_or_path, KEY, args, processes.local_rank)

    return teacher, prompts, prefills_think(prompts[0]), load


def say(numbers: dict[str, Any], path: Path) -> None:
    """One line about the result."""
    counts, dropped = numbers["counts"], Counter(numbers["dropped"])
    lost = ", ".join(f"{reason} {n:,}" for reason, n in dropped.most_common()) or "none"
    sys.stdout.write(
        f"distill: {counts['problems']:,} problems, {numbers['samples_in']:,} samples, "
        f"{counts['traces']:,} traces kept, dropped {dropped.total():,}: {lost}; "
        f"{counts['problems_without_a_trace']:,} problems without a trace -> {path}\n"
    )


if __name__ == "__main__":
    run_cli(main)
