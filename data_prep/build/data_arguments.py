"""Keys of `data.yaml`, checked before anything is read."""

from dataclasses import dataclass, field
from typing import Any

from data_prep.build.language import LANGUAGES
from data_prep.build.mixing import Mix, check_mix
from data_prep.build.policies import Policies
from data_prep.build.recipe import FILES, TRAINING, Source, check_sources
from data_prep.config import UserError
from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.prompts import SYSTEM_PROMPTS

CHOICES = {
    "system_prompt": tuple(SYSTEM_PROMPTS),
    "multiple_choice": ("drop", "keep"),
    "proofs": ("drop", "keep"),
    "near_duplicates": ("drop", "keep"),
    "on_bad_row": ("stop", "skip"),
}


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

    def policies(self, key: str) -> Policies:
        """What the problems of one file must be."""
        return Policies(
            is_training=key in TRAINING,
            needs_solution=key == "sft",
            multiple_choice=self.multiple_choice,
            proofs=self.proofs,
            languages=tuple(self.languages),
            tokenizer=self.tokenizer,
            max_question_tokens=self.max_question_tokens,
            max_solution_tokens=self.max_solution_tokens,
        )

    def find_mix(self, key: str) -> Mix | None:
        """The mix of one file, or None."""
        return check_mix(self.mix[key], key) if key in self.mix else None


def check_data(values: dict[str, Any]) -> dict[str, list[Source]]:
    """Refuse values that no build could use; returns the checked source lists."""
    for key, choices in CHOICES.items():
        if values.get(key, choices[0]) not in choices:
            value = values[key]
            raise UserError(f"{key}: {value!r} is not known; choose {', '.join(choices)}")
    for key in ("output_dir", "data_root", "pass_rates", "tokenizer"):
        if isinstance(values.get(key), bool) or not str(values.get(key)).strip():
            raise UserError(f"{key}: {values[key]!r} is no path; set it, or remove the key")
    for key in (*FILES, "mix"):
        if str(values.get(key)).startswith(("[{", "{")) and isinstance(values[key], str):
            raise UserError(f"{key}: {values[key]!r:.80} is text; such keys belong in the YAML")
    sources = check_sources(values)
    for key, known in (
        ("decontaminate", BENCHMARKS), ("decontaminate_if_found", BENCHMARKS),
        ("languages", LANGUAGES),
    ):  # fmt: skip
        names = values.get(key) or []
        # The command line gives a list of one as text.
        for name in [names] if isinstance(names, str) else names:
            if name not in known:
                raise UserError(f"{key}: {name!r} is not known; choose of {', '.join(known)}")
    for key in ("max_question_tokens", "max_solution_tokens"):
        if values.get(key) is None:
            continue
        if int(values[key]) < 1:
            raise UserError(f"{key}: {values[key]} is not above 0")
        if not values.get("tokenizer"):
            raise UserError(f"{key}: needs 'tokenizer'; set it to the folder or hub id of one")
    if int(values.get("num_workers", 0)) < 0:
        raise UserError(f"num_workers: {values['num_workers']} is below 0")
    _check_mixes(values, sources)
    return sources


def _check_mixes(values: dict[str, Any], sources: dict[str, list[Source]]) -> None:
    mixes = values.get("mix") or {}
    if not isinstance(mixes, dict):
        raise UserError(f"mix: {mixes!r}: write {{grpo: {{easy: 0.2, medium: 0.5, hard: 0.3}}}}")
    for key, value in mixes.items():
        if key not in TRAINING or key not in sources:
            built = [name for name in TRAINING if name in sources]
            raise UserError(f"mix: {key!r} is no training set of this recipe; choose of {built}")
        mix = check_mix(value, key)
        for source in sources[key]:
            if source.bands() is None:
                raise UserError(
                    f"{key}: {source.name}: missing key 'difficulty', which the mix needs; set it "
                    "to easy, medium or hard"
                )
        bands = {source.bands().by for source in sources[key]}
        if bands <= mix.shares.keys():  # whole sources only: what is there is known now
            for band, share in mix.shares.items():
                if share > 0 and band not in bands:
                    raise UserError(f"mix: {key}: {band}: {share:g}, but no source is {band}")
    for key in TRAINING:
        for source in sources.get(key, ()):
            if source.difficulty is not None and key not in mixes:
                raise UserError(
                    f"{key}: {source.name}: difficulty has no effect without 'mix: {{{key}: …}}'"
                )
