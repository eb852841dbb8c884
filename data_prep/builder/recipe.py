"""Keys and source lists of a `data.yaml`: every mistake is found before anything is read."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, StrictFloat, StrictInt

from data_prep.decontamination.benchmarks import BENCHMARKS, find_benchmark
from data_prep.sources.equations import THOUGHTS
from data_prep.sources.registry import BUILDERS, known_options
from grading import own_grader
from grading.own_grader import KEY
from pipeline.errors import UserError
from pipeline.key_types import UNSET, known_keys
from pipeline.own_code import check_own
from pipeline.prompts import ANSWER_FORMS, PROMPTS, AnswerForm, PromptName, form_of
from pipeline.rows import list_files
from pipeline.settings import Settings, setting, typed
from pipeline.values import Count, Natural, OneOf

TRAINING = ("sft", "grpo", "distill")
# Evaluation sets first: the training sets are checked against them.
FILES = {key: f"{key}.jsonl" for key in ("test", "transfer", "validation")}
FILES |= {key: f"{key}_train.jsonl" for key in TRAINING}
BANDS = ("easy", "medium", "hard")
# What question sets of mathematics come in; more would only add confusions.
_LANGUAGES = "en zh ja ko ru uk es fr de pt it nl pl cs hu ro tr vi id ar fa he hi th el sv bg"
LANGUAGES = tuple(_LANGUAGES.split())
PLACES = ("hub", "config", "hub_file", "file")
BenchmarkName = Annotated[str, OneOf(tuple(BENCHMARKS))]
OPTIONS = {option for name in BUILDERS for option in known_options(name)}


class ByLevel(BaseModel, extra="forbid", frozen=True):
    """From which level on a problem of a source is of medium difficulty, and hard."""

    by: Literal["level"]
    medium: StrictInt | StrictFloat
    hard: StrictInt | StrictFloat


def _check_shares(mix: dict[str, int | float]) -> dict[str, int | float]:
    shares = shares_of(mix).values()
    if not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError("have shares that add up to 1, such as {easy: 0.2, medium: 0.8}")
    size = mix.get("size", 1)
    if type(size) is not int or size < 1:
        raise ValueError("have a size above 0, or none")
    return mix


# Shares of the difficulties, or of all sources by name, and perhaps a `size`.
Mix = Annotated[dict[str, StrictInt | StrictFloat], AfterValidator(_check_shares)]


@dataclass(frozen=True)
class Source:
    """One entry of a source list; see `data_prep.builder`."""

    name: Annotated[str, OneOf((*BUILDERS, "synthetic"))]
    hub: str | None = None
    config: str | None = None
    hub_file: str | None = None
    file: str | None = None
    split: str = "train"
    sample: Count | None = None
    options: dict[str, Any] = field(default_factory=dict)
    difficulty: Annotated[str, OneOf(BANDS)] | ByLevel | None = None
    min_level: float | None = None
    max_level: float | None = None
    prompt_key: str | None = None
    question: str | None = None
    answer_key: str | None = None
    solution_key: str | None = None
    solution_if: list[str] | None = None
    level_key: str | None = None
    apply_chat_template: bool | None = None
    trace: Natural | None = None
    thought: Annotated[str, OneOf(THOUGHTS)] | None = None

    def builder_options(self) -> dict[str, Any]:
        """The options that are set, for the builder."""
        values = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class DataArguments:
    """Keys of `data.yaml`."""

    output_dir: str = field(metadata={"help": "folder of the data files and the manifest"})
    sft: list[dict] = setting([], "sources of sft_train.jsonl")
    grpo: list[dict] = setting([], "sources of grpo_train.jsonl")
    distill: list[dict] = setting(
        [], "sources of distill_train.jsonl, problems for a teacher to solve"
    )
    validation: list[dict] = setting([], "sources of validation.jsonl")
    test: list[dict] = setting([], "sources of test.jsonl")
    transfer: list[dict] = setting([], "sources of transfer.jsonl, a test unlike the training set")
    prompt: PromptName = setting("none", f"one of {', '.join(PROMPTS)}")
    eval_prompt: PromptName | None = setting(
        None, "prompt of validation and test, if it is another"
    )
    answer_form: AnswerForm | None = setting(
        None, f"{' or '.join(ANSWER_FORMS)}; default: that of the prompt"
    )
    grader: str | None = setting(
        None, "your own grader as module:function, in place of ours; see docs/grader.md"
    )
    seed: int = setting(0, "seed of samples, shuffles, mixes and generators")
    data_root: str | None = setting(None, "folder of the local data files")
    decontaminate: list[BenchmarkName] = setting(
        [], f"benchmarks whose questions are removed from training sets: {', '.join(BENCHMARKS)}"
    )
    decontaminate_if_found: list[BenchmarkName] = setting(
        [], "further benchmarks to remove, skipped if they cannot be loaded"
    )
    languages: list[Annotated[str, OneOf(LANGUAGES)]] = setting(
        [], "keep training questions in these, e.g. [en]; none: all"
    )
    mix: dict[Annotated[str, OneOf(TRAINING)], Mix] = setting(
        {}, "shares by difficulty, or by name of source: {sft: {easy, medium, hard, size}}"
    )
    on_bad_row: Literal["stop", "skip"] = setting(
        "stop", "a row that cannot be read: stop, or skip and count it"
    )
    num_workers: Natural = setting(0, "processes; 0: one for each core")

    def prompt_of(self, key: str) -> str:
        """The prompt of a file's rows, a key of `PROMPTS`; `key` is one of `FILES`."""
        return self.prompt if key in TRAINING else self.eval_prompt or self.prompt

    def form_of(self, key: str) -> str:
        """The one of `ANSWER_FORMS` in which a file's rows want their answers."""
        return self.answer_form or form_of(self.prompt_of(key))


def check_source(entry: dict[str, Any], key: str) -> Source:
    """Turn one entry of list `key` into a `Source`; raises `UserError`."""
    name = entry.get("name")
    where = f"{key}: {name or 'source'}"
    found = typed(entry, known_keys(Source), where)
    given = {each: value for each, value in found.items() if value not in (None, UNSET)}
    if name is None:
        raise UserError(f"{key}: {entry!r} is not a source; write {{name: …, file: …}}")
    is_synthetic = name == "synthetic"
    options = {"sample": True} if is_synthetic else known_options(name)
    unused = {*PLACES, *OPTIONS} if is_synthetic else {"options", *OPTIONS} - options.keys()
    for each in entry:
        if each in unused:
            raise UserError(f"{where}: {each}: has no effect on this source; remove it")
    source = Source(**given)
    missing = [repr(each) for each, is_needed in options.items() if is_needed and each not in given]
    if name == "generic" and (source.prompt_key is None) == (source.question is None):
        missing.append("'prompt_key' or 'question', one of the two")
    if source.solution_if and not source.solution_key:
        missing.append("'solution_key', of which solution_if chooses")
    if not (is_synthetic or source.hub or source.file):
        missing.append("'file' or 'hub'")
    if missing:
        raise UserError(f"{where}: missing key {missing[0]}; set it")
    levels = source.difficulty
    if isinstance(levels, ByLevel) and levels.medium > levels.hard:
        raise UserError(f"{where}: difficulty: hard begins below medium; exchange the levels")
    return source


def id_parts(sources: list[Source]) -> list[str]:
    """The middle of each source's ids: its split, numbered where two share name and split."""
    seen: Counter[tuple[str, str]] = Counter()
    parts = []
    for source in sources:
        seen[source.name, source.split] += 1
        number = seen[source.name, source.split]
        parts.append(source.split if number == 1 else f"{source.split}{number}")
    return parts


def find_files(source: Source, data_root: str | None) -> list[Path]:
    """The local files a source is read from, none where it comes from the hub or a generator."""
    if source.file is None or (data_root is None and source.hub):
        return []
    return list_files(Path(data_root or "", source.file), source.split)


def local_files(values: dict[str, Any]) -> list[Path]:
    """The local files that a build with these keys would read now: of sources and benchmarks."""
    root = values.get("data_root")
    sources = [source for entries in check_data(values).values() for source in entries]
    names = [*values.get("decontaminate", ()), *values.get("decontaminate_if_found", ())]
    found = [find_benchmark(name, root) for name in names]
    files = [path for source in sources for path in find_files(source, root)]
    return files + [place for place in found if isinstance(place, Path)]


def check_data(values: dict[str, Any]) -> dict[str, list[Source]]:
    """Refuse values that no build could use; returns {key of FILES: sources}, in their order."""
    root = values.get("data_root")
    if root is not None and not Path(root).is_dir():
        raise UserError(f"data_root: {root} is not a folder; set it to the folder of the data")
    sources = {
        key: [check_source(entry, key) for entry in values[key]] for key in FILES if values.get(key)
    }
    if not sources:
        raise UserError(f"no sources: set at least one of {', '.join(FILES)}")
    for key, entries in sources.items():
        for source in entries:
            try:
                find_files(source, root)
            except UserError as error:
                raise UserError(f"{key}: {source.name}: file: {error}") from error
    mixes = values.get("mix") or {}
    for key, mix in mixes.items():
        if key not in sources:
            raise UserError(f"mix: {key}: this recipe has no such list; add it, or remove the mix")
        names = list(dict.fromkeys(source.name for source in sources[key]))
        if is_by_source(mix) and shares_of(mix).keys() != {*names}:
            fault = f"has shares of {', '.join(shares_of(mix))}"
            raise UserError(f"mix: {key}: {fault}; give one to each source: {', '.join(names)}")
    for key in TRAINING:
        is_by_difficulty = key in mixes and not is_by_source(mixes[key])
        for source in sources.get(key, ()):
            has_difficulty = source.difficulty is not None
            if has_difficulty != is_by_difficulty:
                fault = f"goes together with 'mix: {{{key}: {{easy: …}}}}'; set both or neither"
                raise UserError(f"{key}: {source.name}: difficulty: {fault}")
    return sources


def is_by_source(mix: dict[str, Any]) -> bool:
    """Whether a mix names sources; without any name of its own it is one by difficulty."""
    return not mix.keys() <= {*BANDS, "size"}


def shares_of(mix: dict[str, Any]) -> dict[str, float]:
    """`{easy, medium or hard, or a source's name: its share}` of a mix."""
    names = sorted(mix.keys() - {"size"}) if is_by_source(mix) else BANDS
    return {name: mix.get(name, 0) for name in names}


def check_settings(settings: Settings) -> None:
    """`check_data`, and the user's own grader."""
    if settings.grader is not None:
        check_own(settings, KEY)
        own_grader.take(settings.grader)
    check_data(settings)
