"""Distillation: a teacher's correct solutions of a problem set, by rejection sampling.

    python -m stages.distill --config configs/tiny-cpu/distill.yaml

Samples `num_samples` completions per problem from a teacher and grades them with the reward's
grader. At most `keep` correct and well-formed ones of a problem become rows of `traces.jsonl`. SFT
can train on that file. The source `traces` of `data_prep.builder` can clean it and mix it with
others. The teacher is a checkpoint (backend hf or vllm) or the model of an OpenAI-compatible server
(backend openai):

    vllm serve Qwen/QwQ-32B --generation-config vllm
    python -m stages.distill --config … --backend openai --base_url http://localhost:8000/v1 \\
      --model_name_or_path Qwen/QwQ-32B

Several `teachers` answer the same problems one after the other. Each row names its teacher.

Every finished sample is stored in `output_dir/samples`: a killed run resumes where it stopped, and
more samples extend those there. A server's model is known by its name only: for another model of
the same name take another `output_dir`.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from data_prep.sampling import ProblemSetArguments, check_inputs
from data_prep.sampling.keys import check_backends
from data_prep.sampling.openai import is_address
from data_prep.sampling.problems import SampledSet, load_engine, load_problems, prepare
from data_prep.sampling.store import Completion, Processes, SampleStore, fill
from data_prep.schema import grader_files
from data_prep.sources import generic
from data_prep.sources.base import Drop
from data_prep.sources.thoughts import read_thought
from grading.compare import is_same_value
from grading.grade import Grade
from grading.own_grader import COLUMN, judge
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.key_types import UNSET, known_keys
from pipeline.launched import in_launch
from pipeline.prompts import PROMPTS, PromptName, build_completion, build_prompt, form_of
from pipeline.settings import Settings, build, parse, setting, typed
from pipeline.values import Count, OneOf, Positive

RESULT = "traces.jsonl"
NOT_ASKED = (
    "teachers", "base_url", "concurrency", "timeout_s", "batch_size", "keep", "final_number"
)  # fmt: skip
SHARED = ("teachers", "problems_file", "output_dir", "limit")  # keys that all teachers have alike


@dataclass(kw_only=True)
class DistillArguments(ProblemSetArguments):
    """Keys of `distill.yaml`."""

    model_name_or_path: str = setting(
        "", "the teacher: checkpoint folder, hub id, or name at the server"
    )
    teachers: list[dict] = setting(
        [], "a list, in place of one teacher: of each its name, and the keys in which it differs"
    )
    backend: Annotated[str, OneOf(("hf", "vllm", "openai"))] = setting(
        "hf", "hf (transformers), vllm or openai"
    )
    base_url: str | None = setting(None, "openai: the server's API, http://localhost:8000/v1")
    concurrency: Count = setting(64, "openai: requests at a time")
    timeout_s: Positive = setting(1800.0, "openai: limit for one completion, seconds")
    prompt: PromptName | None = setting(
        None, f"prompt for the teacher, if not that of the rows: {', '.join(PROMPTS)}"
    )
    temperature: float = setting(0.6, "sampling temperature, above 0")
    top_p: float = setting(0.95, "nucleus sampling, 0..1")
    max_new_tokens: Count = setting(8192, "longest completion, tokens")
    keep: Count = setting(1, "most correct traces to keep of one problem")

    def __post_init__(self) -> None:
        if self.teachers:
            self.each_teacher()  # refuses what is wrong with one
            return
        if not self.model_name_or_path:
            raise UserError("model_name_or_path: missing; set the teacher, or list `teachers`")
        if self.keep > self.num_samples:
            raise UserError(
                f"keep: {self.keep} is more than num_samples: {self.num_samples}; raise num_samples"
            )
        if self.backend != "openai" and self.base_url:
            raise UserError("base_url: needs backend: openai; set that, or remove base_url")
        if self.backend == "openai" and not is_address(str(self.base_url)):
            raise UserError(
                f"base_url: {self.base_url!r} is not an address; set the server's API, such as "
                "http://localhost:8000/v1"
            )

    def each_teacher(self) -> dict[str, "DistillArguments"]:
        """The settings of each teacher, by its name: that in `teachers`, else the model's."""
        if not self.teachers:
            model = self.model_name_or_path
            return {Path(model).name if Path(model).is_dir() else model: self}
        known = {k: v for k, v in known_keys(DistillArguments).items() if k not in SHARED}
        found: dict[str, DistillArguments] = {}
        for entry in self.teachers:
            name = entry.get("name")
            if not isinstance(name, str) or not name:
                form = "{name: QwQ, model_name_or_path: Qwen/QwQ-32B-Preview}"
                raise UserError(f"teachers: {entry!r} has no name; write {form}")
            if name in found:
                raise UserError(f"teachers: two are named {name}; give each a name of its own")
            where = f"teachers: {name}"
            changes = {key: value for key, value in entry.items() if key != "name"}
            values = typed(changes, known, where)
            values = {k: known[k].default if v is UNSET else v for k, v in values.items()}
            with named(name):
                found[name] = replace(self, **values, teachers=[])
            for other, teacher in found.items():
                if other != name and teacher.asked() == found[name].asked():
                    raise UserError(
                        f"{where}: the same model, asked the same, as {other}; samples are kept by "
                        "the model's name, so serve it under another, or remove one"
                    )
        return found

    def asked(self) -> dict[str, Any]:
        """What decides a teacher's samples, not those of its server and of what is kept."""
        return {key: value for key, value in asdict(self).items() if key not in NOT_ASKED}


def check_keys(settings: Settings) -> None:
    """Refuse keys that contradict each other, then keys of another backend.

    A key for all teachers is refused where no teacher has its backend. A key in a teacher's entry
    is refused where that teacher has another one.
    """
    (args,) = build(settings, DistillArguments)
    backends = {name: teacher.backend for name, teacher in args.each_teacher().items()}
    check_backends(settings, [*backends.values()])
    for entry in settings.get("teachers") or []:
        name = entry["name"]
        given = {key: value for key, value in entry.items() if value is not None}
        own = Settings(given | {"backend": backends[name]}, {}, known_keys(DistillArguments))
        with named(name):
            check_backends(own, [own.backend])


@contextmanager
def named(name: Any) -> Iterator[None]:
    """Name the teacher of a list whose mistake is refused inside; None for a teacher alone."""
    try:
        yield
    except UserError as error:
        if name is None:
            raise
        raise UserError(f"teachers: {name}: {error}") from error


def check_teachers(values: Settings) -> None:
    """Refuse a missing file or checkpoint of a teacher, and keys of another backend."""
    check_keys(values)
    for teacher in values.get("teachers") or [{}]:
        own = {"model_name_or_path": ""} | values | teacher
        with named(teacher.get("name")):
            check_inputs(own | {"model_name_or_path": str(own["model_name_or_path"] or "")})


def check_servers(args: DistillArguments) -> None:
    """Refuse a teacher's server that does not answer."""
    for name, teacher in args.each_teacher().items():
        if teacher.backend != "openai":
            continue
        model = teacher.model_name_or_path
        with (
            named(name if args.teachers else None),
            closing(load_engine(model, "", teacher, 0)) as engine,
        ):
            engine.check()


def main() -> None:
    """Sample what is not sampled yet, keep correct ones, then put traces and manifest in place."""
    (args,) = parse(__doc__, DistillArguments, check=check_teachers, owns="output_dir")
    rows = check_rows(load_problems(args.problems_file, args.limit), args.problems_file)
    processes = Processes.from_environment()
    folder = Path(args.output_dir)
    asked = {"config": asdict(args), "defaults": manifest.defaults_of(args)}
    if processes.ask_main(lambda: manifest.is_current(folder, **asked)):
        return
    teachers = args.each_teacher()
    own = [one.model_name_or_path for one in teachers.values() if one.backend != "openai"]
    inputs = manifest.hash_inputs([*own, args.problems_file, *grader_files(rows)])
    started = manifest.start(folder) if processes.is_main else 0.0
    sampled, models = {}, {}
    for name, teacher in teachers.items():
        models[name], model, problems, open_engine = prepare(teacher, ask(rows, teacher), processes)
        store = SampleStore(folder / "samples", model, processes.rank)
        label = f"distill: {name}" if args.teachers else "distill"
        fill(store, problems.all_requests(), open_engine, processes, label)
        sampled[name] = Sampled(problems, store, teacher.keep)
    if processes.is_main:
        numbers = write_traces(folder / RESULT, sampled)
        numbers |= {"started": started, "files": [RESULT], "teachers": models}
        manifest.write(folder, "distill", asdict(args), inputs, **numbers)
        counts, dropped = numbers["counts"], Counter(numbers["dropped"])
        lost = ", ".join(f"{reason} {n:,}" for reason, n in dropped.most_common()) or "none"
        sys.stdout.write(
            f"distill: {counts['problems']:,} problems, {numbers['samples_in']:,} samples, "
            f"{counts['traces']:,} traces kept, dropped {dropped.total():,}: {lost}; "
            f"{counts['problems_without_a_trace']:,} problems without a trace -> "
            f"{folder / RESULT}\n"
        )
    processes.meet()  # the main process holds the others' key-value store


def ask(rows: list[dict[str, Any]], teacher: DistillArguments) -> list[dict[str, Any]]:
    """The rows with the prompt for a teacher, beside `own_prompt` and `own_form`, their own.

    A model trained on the traces will see its own, and answer in its form.
    """
    asked = [row | {"own_prompt": row["prompt"], "own_form": row["answer_form"]} for row in rows]
    if teacher.prompt is None:
        return asked
    form = form_of(teacher.prompt)
    return [
        row | {"prompt": build_prompt(row["question"], teacher.prompt), "answer_form": form}
        for row in asked
    ]


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


def trace_row(
    row: dict[str, Any], number: int, teacher: str, thought: str, prediction: str
) -> dict[str, Any]:
    """The row of a problem's trace, with the problem's prompt, whatever the teacher was asked."""
    # First the gold that the thought arrives at: an SFT row has one answer after its thought.
    golds = sorted(row["answers"], key=lambda gold: not is_matched(row, prediction, gold))
    trace = {
        "id": row["id"],
        "source": row.get("source") or "",
        "question": row["question"],
        "answers": golds,
        "answer_form": row["own_form"],
        "solution": thought,
        "teacher": teacher,
        "trace": number,
        "level": row.get("level"),
        "subject": row.get("subject") or "",
        "prompt": row["own_prompt"],
        "completion": build_completion(thought, golds[0], row["own_form"]),
    }
    return trace | {COLUMN: row[COLUMN]} if row.get(COLUMN) else trace


def is_matched(row: dict[str, Any], prediction: str, gold: str) -> bool:
    """Whether a prediction that is correct equals this gold of a row."""
    if len(row["answers"]) == 1:
        return True
    if not row.get(COLUMN):
        return is_same_value(prediction, gold)
    ((is_correct, _),) = judge([(row[COLUMN], prediction, [gold])])
    return is_correct


@dataclass(frozen=True)
class Sampled:
    """The problems as one teacher was asked, its samples, and how many of a problem to keep."""

    problems: SampledSet
    store: SampleStore
    keep: int


def write_traces(path: Path, sampled: dict[str, Sampled]) -> dict[str, Any]:
    """Write the kept traces, those of a problem together; returns the manifest's numbers.

    Args:
        sampled: by the teacher's name; all have the same problems in the same order.
    """
    dropped: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    num_kept = dict.fromkeys(sampled, 0)
    num_problems = num_solved = num_tokens = 0
    with manifest.open_whole(path) as file:
        each = (one.problems.grade(one.store) for one in sampled.values())
        for found in zip(*each, strict=True):
            number = 0  # of the problem's traces, whoever wrote them: a part of their ids
            for name, (row, completions, grades) in zip(sampled, found, strict=True):
                kept, lost = choose_traces(completions, grades, sampled[name].keep)
                for thought, prediction in kept.items():
                    trace = trace_row(row, number, name, thought, prediction)
                    file.write(json.dumps(trace) + "\n")
                    number += 1
                dropped += lost
                verdicts.update(grade.verdict for grade in grades)
                num_kept[name] += len(kept)
                num_tokens += sum(one.num_tokens for one in completions)
            num_problems += 1
            num_solved += bool(number)
    num_samples, num_traces = verdicts.total(), sum(num_kept.values())
    assert num_samples == num_traces + dropped.total()
    return {
        "counts": {
            "problems": num_problems,
            "problems_without_a_trace": num_problems - num_solved,
            "traces": num_traces,
            "traces_by_teacher": num_kept,
            "verdicts": dict(verdicts.most_common()),
            "tokens": num_tokens,
        },
        "samples_in": num_samples,
        "samples_out": num_traces,
        "dropped": dict(sorted(dropped.items())),
    }


if __name__ == "__main__":
    run_cli(in_launch(main))
