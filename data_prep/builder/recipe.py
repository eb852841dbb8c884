"""Keys and source lists of a `data.yaml`: every mistake is found before anything is read."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from data_prep.decontamination.benchmarks import BENCHMARKS, find_benchmark
from data_prep.sources.equations import THOUGHTS
from data_prep.sources.registry import BUILDERS, known_options
from grading import own_grader
from grading.own_grader import KEY
from pipeline.errors import UserError
from pipeline.key_types import UNSET, known_keys
from pipeline.own_code import check_own
from pipeline.prompts import ANSWER_FORMS, PROMPTS, form_of
from pipeline.rows import list_files
from pipeline.settings import Settings, setting, typed
from pipeline.values import Count, Natural

TRAINING = ("sft", "grpo", "distill")
# Evaluation sets first: the training sets are checked against them.
FILES = {key: f"{key}.jsonl" for key in ("test", "transfer", "validation")}
FILES |= {key: f"{key}_train.jsonl" for key in TRAINING}
BANDS = ("easy", "medium", "hard")
# What question sets of mathematics come in; more would only add confusions.
_LANGUAGES = "en zh ja ko ru uk es fr de pt it nl pl cs hu ro tr vi id ar fa he hi th el sv bg"
LANGUAGES = tuple(_LANGUAGES.split())
PLACES = ("hub", "config", "hub_file", "file")
OPTIONS = {option for name in BUILDERS for option in known_options(name)}


@dataclass(frozen=True)
class Source:
    """One entry of a source list; see `data_prep.builder`."""

    name: str
    hub: str | None = None
    config: str | None = None
    hub_file: str | None = None
    file: str | None = None
    split: str = "train"
    sample: Count | None = None
    options: dict[str, Any] = field(default_factory=dict)
    difficulty: str | dict[str, Any] | None = None
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
    thought: Literal[THOUGHTS] | None = None

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
    prompt: Literal[*PROMPTS] = setting("none", f"one of {', '.join(PROMPTS)}")
    eval_prompt: Literal[*PROMPTS] | None = setting(
        None, "prompt of validation and test, if it is another"
    )
    answer_form: Literal[ANSWER_FORMS] | None = setting(
        None, f"{' or '.join(ANSWER_FORMS)}; default: that of the prompt"
    )
    grader: str | None = setting(
        None, "your own grader as module:function, in place of ours; see docs/grader.md"
    )
    seed: int = setting(0, "seed of samples, shuffles, mixes and generators")
    data_root: str | None = setting(None, "folder of the local data files")
    decontaminate: list[Literal[*BENCHMARKS]] = setting(
        [], f"benchmarks whose questions are removed from training sets: {', '.join(BENCHMARKS)}"
    )
    decontaminate_if_found: list[Literal[*BENCHMARKS]] = setting(
        [], "further benchmarks to remove, skipped if they cannot be loaded"
    )
    languages: list[Literal[LANGUAGES]] = setting(
        [], "keep training questions in these, e.g. [en]; none: all"
    )
    mix: dict[str, Any] = setting(
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
    if "name" not in entry:
        raise UserError(f"{key}: {entry!r} is not a source; write {{name: …, file: …}}")
    name, known = entry["name"], known_keys(Source)
    where = f"{key}: {name}"
    if name != "synthetic" and name not in BUILDERS:
        names = ", ".join([*BUILDERS, "synthetic"])
        raise UserError(f"{key}: name: must be one of {names} (got {name!r})")
    if name == "synthetic":
        options = {"sample": True}
        unused = {*PLACES, *OPTIONS}
    else:
        options = known_options(name)
        unused = {"options", *OPTIONS} - options.keys()
    given = {k: v for k, v in typed(entry, known, where).items() if v not in (None, UNSET)}
    for each in entry:
        if each in unused:
            raise UserError(f"{where}: {each}: has no effect on this source; remove it")
    source = Source(**given)
    for each, is_needed in options.items():
        if is_needed and each not in given:
            raise UserError(f"{where}: missing key {each!r}; set it")
    if name == "generic" and (source.prompt_key is None) == (source.question is None):
        raise UserError(f"{where}: missing key 'prompt_key' or 'question'; set one of the two")
    if source.solution_if and not source.solution_key:
        raise UserError(
            f"{where}: missing key 'solution_key', of which solution_if chooses; set it"
        )
    if name != "synthetic" and not (source.hub or source.file):
        raise UserError(f"{where}: missing key 'file' or 'hub'; set one of the two")
    difficulty = source.difficulty
    if difficulty not in (None, *BANDS) and not _are_bounds(difficulty):
        forms = "easy, medium or hard, or {by: level, medium: 3, hard: 5}"
        raise UserError(f"{where}: difficulty: {difficulty!r} is not a difficulty; write {forms}")
    return source


def _are_bounds(difficulty: Any) -> bool:
    """Whether it says from which level on a problem is of medium difficulty, and hard."""
    if not isinstance(difficulty, dict) or difficulty.keys() != {"by", "medium", "hard"}:
        return False
    medium, hard = difficulty["medium"], difficulty["hard"]
    if type(medium) not in (int, float) or type(hard) not in (int, float):
        return False
    return difficulty["by"] == "level" and medium <= hard


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
        if key not in TRAINING or key not in sources:
            built = [name for name in TRAINING if name in sources]
            raise UserError(f"mix: must name training sets of this recipe, {built} (got {key!r})")
        _check_mix(mix, key, [source.name for source in sources[key]])
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


def _is_mix(mix: Any) -> bool:
    """Whether it has shares that add up to 1, and perhaps a size."""
    if not isinstance(mix, dict) or not all(isinstance(name, str) for name in mix):
        return False
    shares = shares_of(mix).values()
    if not all(type(share) in (int, float) and 0 <= share <= 1 for share in shares):
        return False
    size = mix.get("size", 1)
    return abs(sum(shares) - 1) <= 1e-6 and type(size) is int and size >= 1


def _check_mix(mix: Any, key: str, names: list[str]) -> None:
    """Refuse what is not shares of difficulties or of all sources that add up to 1, and a size."""
    if not _is_mix(mix):
        wanted = "shares that add up to 1, and a size above 0"
        form = "{easy: 0.2, medium: 0.5, hard: 0.3, size: 10000}, or leave out the size"
        raise UserError(f"mix: {key}: {mix!r} is not {wanted}; write {form}")
    if not is_by_source(mix):
        return
    for name in shares_of(mix):
        if name not in names:
            known = ", ".join(dict.fromkeys(names))
            fault = f"{name} is no source of this list ({known}); shares are by source or by "
            fault += "difficulty, not both"
            raise UserError(f"mix: {key}: {fault}; correct the name")
    for name in names:
        if name not in mix:
            raise UserError(
                f"mix: {key}: the source {name} has no share; give it one, or remove it"
            )
