"""Keys and source lists of a `data.yaml`: every mistake in them is found before anything is read.

docs/data.md explains every key.
"""

import dataclasses
import difflib
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.build.filters import BANDS, LANGUAGES, Bands, Mix, Policies
from data_prep.config import UserError
from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.prompts import ANSWER_FORMS, SYSTEM_PROMPTS
from data_prep.sources.registry import BUILDERS, known_options

# Evaluation sets first: the training sets are checked against them.
FILES = {
    "test": "test.jsonl",
    "validation": "validation.jsonl",
    "sft": "sft_train.jsonl",
    "grpo": "grpo_train.jsonl",
}
TRAINING = ("sft", "grpo")
CHOICES = {
    "system_prompt": tuple(SYSTEM_PROMPTS),
    "multiple_choice": ("drop", "keep"),
    "proofs": ("drop", "keep"),
    "near_duplicates": ("drop", "keep"),
    "on_bad_row": ("stop", "skip"),
}


@dataclass(frozen=True)
class Source:
    """One entry of a source list; see `data_prep.build`."""

    name: str
    hub: str | None = None
    config: str | None = None
    hub_file: str | None = None
    file: str | None = None
    split: str = "train"
    sample: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    difficulty: str | dict[str, Any] | None = None
    min_level: float | None = None
    max_level: float | None = None
    min_pass_rate: float | None = None
    max_pass_rate: float | None = None
    # Options of single builders, which name them as keyword-only arguments.
    prompt_key: str | None = None
    answer_key: str | None = None
    solution_key: str | None = None
    level_key: str | None = None
    apply_chat_template: bool | None = None
    trace: int | None = None

    def builder_options(self) -> dict[str, Any]:
        """The options that are set, for the builder."""
        options = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in options.items() if value is not None}

    def bands(self) -> Bands | None:
        """How its problems are sorted into easy, medium and hard, or None."""
        return check_bands(self.difficulty, self.name) if self.difficulty is not None else None


@dataclass
class DataArguments:
    """Keys of `data.yaml`."""

    output_dir: str = field(metadata={"help": "folder of the data files and the manifest"})
    sft: list[dict] = field(default_factory=list, metadata={"help": "sources of sft_train.jsonl"})
    grpo: list[dict] = field(default_factory=list, metadata={"help": "sources of grpo_train.jsonl"})
    validation: list[dict] = field(
        default_factory=list, metadata={"help": "sources of validation.jsonl"}
    )
    test: list[dict] = field(default_factory=list, metadata={"help": "sources of test.jsonl"})
    system_prompt: str = field(
        default="none", metadata={"help": f"one of {', '.join(SYSTEM_PROMPTS)}"}
    )
    answer_form: str | None = field(
        default=None,
        metadata={"help": f"{' or '.join(ANSWER_FORMS)}; unset: what the system prompt asks for"},
    )
    seed: int = field(
        default=0, metadata={"help": "seed of samples, shuffles, mixes and generators"}
    )
    data_root: str | None = field(default=None, metadata={"help": "folder of the local files"})
    decontaminate: list[str] = field(
        default_factory=list,
        metadata={"help": f"benchmarks to keep out of training: {', '.join(BENCHMARKS)}"},
    )
    decontaminate_if_found: list[str] = field(
        default_factory=list, metadata={"help": "the same, but only where they can be had"}
    )
    multiple_choice: str = field(
        default="drop", metadata={"help": "drop or keep multiple-choice questions in training sets"}
    )
    proofs: str = field(
        default="drop",
        metadata={"help": "drop or keep questions that ask for a proof in training sets"},
    )
    near_duplicates: str = field(
        default="drop", metadata={"help": "drop or keep near duplicates in training sets"}
    )
    languages: list[str] = field(
        default_factory=list,
        metadata={"help": "languages of the training questions, e.g. [en]; none: all"},
    )
    tokenizer: str | None = field(
        default=None, metadata={"help": "folder or hub id that counts the tokens"}
    )
    max_question_tokens: int | None = field(
        default=None, metadata={"help": "longest training question"}
    )
    max_solution_tokens: int | None = field(
        default=None, metadata={"help": "longest worked solution (sft)"}
    )
    pass_rates: str | None = field(
        default=None, metadata={"help": "pass_rates.jsonl of stages.difficulty"}
    )
    mix: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "{sft or grpo: {easy, medium, hard, size}}"}
    )
    on_bad_row: str = field(
        default="stop", metadata={"help": "stop at a row that cannot be read, or skip and count it"}
    )
    num_workers: int = field(default=0, metadata={"help": "processes; 0: one for each core"})

    def policies(self, key: str, source: Source) -> Policies:
        """What the problems of one source must be in one file."""
        return Policies(
            is_training=key in TRAINING,
            needs_solution=key == "sft",
            multiple_choice=self.multiple_choice,
            proofs=self.proofs,
            languages=tuple(self.languages),
            tokenizer=self.tokenizer,
            max_question_tokens=self.max_question_tokens,
            max_solution_tokens=self.max_solution_tokens,
            min_level=source.min_level,
            max_level=source.max_level,
            min_pass_rate=source.min_pass_rate,
            max_pass_rate=source.max_pass_rate,
        )

    def find_mix(self, key: str) -> Mix | None:
        """The mix of one file, or None."""
        return check_mix(self.mix[key], key) if key in self.mix else None


TEXTS = (
    "hub", "hub_file", "config", "file", "split", "prompt_key", "answer_key", "solution_key",
    "level_key",
)  # fmt: skip
NUMBERS = ("min_level", "max_level", "min_pass_rate", "max_pass_rate")
OPTIONS = (
    "prompt_key", "answer_key", "solution_key", "level_key", "apply_chat_template", "trace",
)  # fmt: skip


def check_source(entry: Any, key: str) -> Source:
    """Turn one entry of list `key` into a `Source`; raises `UserError`."""
    if "name" not in entry:
        raise UserError(f"{key}: {entry!r} is not a source; write {{name: …, file: …}}")
    known = [f.name for f in dataclasses.fields(Source)]
    for name in entry:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise UserError(f"{key}: unknown key {name!r} in source {entry['name']!r}; {hint}")
    source = Source(**entry)
    names = [*BUILDERS, "synthetic"]
    where = f"{key}: {source.name}"
    if source.name not in names:
        raise UserError(f"{key}: name: must be one of {', '.join(names)} (got {source.name!r})")
    for name in TEXTS:
        if not isinstance(entry.get(name, ""), str):
            raise UserError(f"{where}: {name}: {entry[name]!r} is not text; quote it")
    for name in NUMBERS:
        if type(entry.get(name, 0)) not in (int, float) or not math.isfinite(entry.get(name, 0)):
            raise UserError(f"{where}: {name}: {entry[name]!r} is not a number")
    for name in ("level", "pass_rate"):
        low, high = entry.get(f"min_{name}"), entry.get(f"max_{name}")
        if low is not None and high is not None and low > high:
            raise UserError(f"{where}: min_{name}: {low} is above max_{name}: {high}; swap them")
    if not isinstance(source.options, dict):
        raise UserError(f"{where}: options: {source.options!r} is not a mapping; write {{key: 1}}")
    if source.sample is not None and (type(source.sample) is not int or source.sample < 1):
        raise UserError(f"{where}: sample: {source.sample!r} is not a number of rows above 0")
    source.bands()
    if source.name == "synthetic":
        if source.sample is None:
            raise UserError(f"{where}: missing key 'sample'; set the number of problems")
        if source.hub or source.file:
            raise UserError(f"{where}: is generated, so 'hub' and 'file' have no use; remove them")
        unknown = source.builder_options()
    else:
        if source.options:
            raise UserError(f"{where}: options: only synthetic has options; remove them")
        if not source.hub and not source.file:
            raise UserError(f"{where}: set 'file' or 'hub'")
        if source.hub_file and (source.config or not source.hub):
            raise UserError(f"{where}: hub_file: needs 'hub', and no 'config': it is one file")
        unknown = source.builder_options().keys() - known_options(source.name)
        _check_options(source, where)
    if unknown:
        raise UserError(f"{where}: {min(unknown)}: has no effect on this source; remove it")
    return source


def _check_options(source: Source, where: str) -> None:
    for name, is_needed in known_options(source.name).items():
        value = getattr(source, name)
        if is_needed and value is None:
            raise UserError(f"{where}: missing key {name!r}; set it to the name of the column")
        if name == "apply_chat_template" and value not in (None, True, False):
            raise UserError(f"{where}: {name}: {value!r} is not true or false")
        if name == "trace" and value is not None and value not in (1, 2, 3):
            raise UserError(f"{where}: {name}: must be one of 1, 2, 3 (got {value!r})")


def id_parts(sources: list[Source]) -> list[str]:
    """The middle of each source's ids: its split, numbered where two share name and split."""
    seen: Counter[tuple[str, str]] = Counter()
    parts = []
    for source in sources:
        seen[source.name, source.split] += 1
        number = seen[source.name, source.split]
        parts.append(source.split if number == 1 else f"{source.split}{number}")
    return parts


def find_file(source: Source, data_root: str | None) -> Path | None:
    """The local file a source is read from, or None where it comes from the hub or a generator."""
    if source.file is None or (data_root is None and source.hub):
        return None
    return Path(data_root or "", source.file)


def check_sources(values: dict[str, Any]) -> dict[str, list[Source]]:
    """The checked source lists `{key of FILES: sources}`; raises `UserError` before any reading."""
    root = values.get("data_root")
    if root is not None and not Path(root).is_dir():
        raise UserError(f"data_root: {root} is not a folder; set it to the folder of the data")
    sources = {}
    for key in FILES:
        entries = values.get(key) or []
        if entries:
            sources[key] = [check_source(entry, key) for entry in entries]
    if not sources:
        raise UserError(f"no sources: set at least one of {', '.join(FILES)}")
    for key, entries in sources.items():
        for source in entries:
            path = find_file(source, root)
            if path is not None and not path.is_file():
                raise UserError(
                    f"{key}: {source.name}: file: {path} does not exist; check file and data_root"
                )
    return sources


FORM = "write easy, medium or hard, or {by: level, medium: 3, hard: 5}"


def check_bands(value: Any, where: str) -> Bands:
    """Read a source's `difficulty`; raises `UserError`."""
    if value in BANDS:
        return Bands(value)
    if not isinstance(value, dict) or value.keys() != {"by", "medium", "hard"}:
        raise UserError(f"{where}: difficulty: {value!r}: {FORM}")
    numbers = (value["medium"], value["hard"])
    if value["by"] not in ("level", "pass_rate") or any(
        type(number) not in (int, float) or not math.isfinite(number) for number in numbers
    ):
        raise UserError(f"{where}: difficulty: {value!r}: {FORM}")
    if (value["medium"] > value["hard"]) == (value["by"] == "level"):
        order = "above hard" if value["by"] == "level" else "below hard: a low pass rate is hard"
        raise UserError(f"{where}: difficulty: medium: {value['medium']} is {order}; swap them")
    return Bands(value["by"], *numbers)


def check_mix(value: Any, key: str) -> Mix:
    """Read one set's `mix`; raises `UserError`."""
    where = f"mix: {key}"
    if not isinstance(value, dict):
        raise UserError(f"{where}: {value!r}: write {{easy: 0.2, medium: 0.5, hard: 0.3}}")
    for name, number in value.items():
        if name not in (*BANDS, "size"):
            raise UserError(f"{where}: unknown key {name!r}; known are {', '.join(BANDS)}, size")
        if name == "size" and (type(number) is not int or number < 1):
            raise UserError(f"{where}: size: {number!r} is not a number of problems above 0")
        if name in BANDS and (type(number) not in (int, float) or not 0 <= number <= 1):
            raise UserError(f"{where}: {name}: {number!r} is not a share within 0..1")
    shares = {name: float(value.get(name, 0)) for name in BANDS}
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise UserError(f"{where}: the shares add up to {sum(shares.values()):g}; make it 1")
    return Mix(shares, value.get("size"))


def check_data(values: dict[str, Any]) -> dict[str, list[Source]]:
    """Refuse values that no build could use; returns the checked source lists."""
    for key, choices in CHOICES.items():
        if values.get(key, choices[0]) not in choices:
            raise UserError(f"{key}: must be one of {', '.join(choices)} (got {values[key]!r})")
    form = values.get("answer_form")
    if form is not None and form not in ANSWER_FORMS:
        raise UserError(f"answer_form: must be one of {', '.join(ANSWER_FORMS)} (got {form!r})")
    for key in ("output_dir", "data_root", "pass_rates", "tokenizer"):
        if not str(values.get(key)).strip():
            raise UserError(
                f"{key}: must be a path (got {values[key]!r}); set it, or remove the key"
            )
    sources = check_sources(values)
    for key, known in (
        ("decontaminate", BENCHMARKS), ("decontaminate_if_found", BENCHMARKS),
        ("languages", LANGUAGES),
    ):  # fmt: skip
        for name in values.get(key) or []:
            if name not in known:
                raise UserError(f"{key}: must be some of {', '.join(known)} (got {name!r})")
    for key in ("max_question_tokens", "max_solution_tokens"):
        if values.get(key) is None:
            continue
        if values[key] < 1:
            raise UserError(f"{key}: must be above 0 (got {values[key]})")
        if not values.get("tokenizer"):
            raise UserError(f"{key}: needs 'tokenizer'; set it to the folder or hub id of one")
    if values.get("num_workers", 0) < 0:
        raise UserError(f"num_workers: must be 0 or more (got {values['num_workers']})")
    _check_mixes(values, sources)
    return sources


def _check_mixes(values: dict[str, Any], sources: dict[str, list[Source]]) -> None:
    mixes = values.get("mix") or {}
    if not isinstance(mixes, dict):
        raise UserError(f"mix: {mixes!r}: write {{grpo: {{easy: 0.2, medium: 0.5, hard: 0.3}}}}")
    for key, value in mixes.items():
        if key not in TRAINING or key not in sources:
            built = [name for name in TRAINING if name in sources]
            raise UserError(f"mix: must be for training sets of this recipe, {built} (got {key!r})")
        mix = check_mix(value, key)
        for source in sources[key]:
            if source.bands() is None:
                raise UserError(
                    f"{key}: {source.name}: missing key 'difficulty', which the mix needs; set it "
                    "to easy, medium or hard"
                )
        bands = {source.bands().by for source in sources[key]}
        if bands <= mix.shares.keys():  # bands of sources, not of rows: known before reading
            for band, share in mix.shares.items():
                if share > 0 and band not in bands:
                    raise UserError(f"mix: {key}: {band}: {share:g}, but no source is {band}")
    for key in TRAINING:
        for source in sources.get(key, ()):
            if source.difficulty is not None and key not in mixes:
                raise UserError(
                    f"{key}: {source.name}: difficulty has no effect without 'mix: {{{key}: …}}'"
                )
