"""The data sets that a sweep varies: files, or variants of the recipe's data.yaml.

    make sweep RECIPE=perplexity SWEEP="sft.data=own,math,gsm8k"

`own` is the recipe's `data.yaml`, `math` is `data-math.yaml` beside it. The files of a variant are
built in `<run>/sweep/data-math/data`. Where SFT trains on a teacher's traces, the teacher answers
the variant's problems, and the traces are in `<run>/sweep/data-math/distill`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.builder.recipe import (
    FILES,
    TRAINING,
    DataArguments,
    Source,
    check_data,
    check_settings,
)
from pipeline import manifest
from pipeline.chain import reads_folder
from pipeline.errors import UserError
from pipeline.settings import Settings, read_settings, read_yaml
from pipeline.stages import has_file

OWN = "own"
# The keys of a sweep that name a variant, and those that name a file instead.
VARIANT_OF = {"sft": "sft.data", "grpo": "data"}
FILE_OF = {"sft": "sft.train_file", "grpo": "train_file"}
Line = tuple[str, list[str]]  # a stage, and its command line behind the name


@dataclass(frozen=True)
class Variants:
    """The variants of a recipe's data.

    Args:
        recipe: its folder.
        run: the recipe's run folder.
        root: the sweep's folder, which gets a folder for each variant.
        data_root: folder of the local data files, or None.
    """

    recipe: str
    run: str
    root: str
    data_root: str | None = None

    def config(self, name: str) -> str:
        """The data.yaml of a variant."""
        return f"{self.recipe}/data.yaml" if name == OWN else f"{self.recipe}/data-{name}.yaml"

    def folder(self, name: str) -> str:
        """Where a variant's data and traces are: its `{run}`."""
        return self.run if name == OWN else f"{self.root}/data-{name}"

    def known(self) -> list[str]:
        """The names that a sweep may give."""
        found = sorted(Path(self.recipe).glob("data-*.yaml"))
        return [OWN, *(path.stem.removeprefix("data-") for path in found)]

    def has_teacher(self, stage: str) -> bool:
        """Whether a stage trains on a teacher's traces."""
        return stage == "sft" and reads_folder("sft", "distill", self.recipe)

    def input_of(self, stage: str, key: str, name: str) -> str:
        """The file that a stage's YAML names under a key, in the variant's folder."""
        values = read_yaml(f"{self.recipe}/{stage}.yaml", self.folder(name))
        return str(values.get(key, ""))

    def build(self, name: str, stage: str) -> list[Line]:
        """What makes the file that a stage trains on: data, and a teacher's traces of them."""
        if name == OWN:
            return []
        folder = self.folder(name)
        root = ["--data_root", self.data_root] if self.data_root else []
        lines: list[Line] = [("data", ["--config", self.config(name), "--run_dir", folder, *root])]
        if self.has_teacher(stage):
            problems = self.input_of("distill", "problems_file", name)
            line = ["--config", f"{self.recipe}/distill.yaml", "--run_dir", self.run]
            line += ["--problems_file", problems, "--output_dir", f"{folder}/distill"]
            lines.append(("distill", line))
        return lines

    def read(self, name: str) -> tuple[Settings, dict[str, list[Source]]]:
        """The keys of a variant's YAML and its sources, checked; raises `UserError`."""
        lines = self.build(name, "grpo") or [
            ("data", ["--config", self.config(name), "--run_dir", self.run])
        ]
        settings = read_settings(DataArguments, (), lines[0][1])
        try:
            check_settings(settings)
            return settings, check_data(settings)
        except UserError as error:
            raise UserError(f"{self.config(name)}: {error}") from error

    def check(self, stage: str, name: str) -> None:
        """Refuse a variant that does not exist, or does not build what the stage reads."""
        if name == OWN:
            return
        config = self.config(name)
        if name not in self.known():
            fault = f"{VARIANT_OF[stage]}={name}: {config} does not exist"
            raise UserError(f"sweep: {fault}; write it, or choose from {', '.join(self.known())}")
        settings, sources = self.read(name)
        if settings.output_dir != f"{self.folder(name)}/data":
            fault = f"output_dir: {settings.output_dir} is the folder of other data"
            raise UserError(f'{config}: {fault}; set output_dir: "{{run}}/data"')
        folder, reader = self.folder(name), ("distill", "problems_file")
        trained = self.input_of(stage, "train_file", name)
        if not self.has_teacher(stage):
            reader = (stage, "train_file")
        elif not trained.startswith(f"{folder}/distill/"):
            fault = f"train_file: {trained} is not of {{run}}/distill"
            raise UserError(f"{self.recipe}/{stage}.yaml: {fault}; name the traces there")
        wanted = self.input_of(*reader, name)
        made = {f"{folder}/data/{FILES[key]}": key for key in FILES}
        place = f"{self.recipe}/{reader[0]}.yaml"
        if wanted not in made:
            fault = f"{reader[1]}: {wanted} is not of {{run}}/data, so {VARIANT_OF[stage]} would "
            fault += "change nothing"
            raise UserError(f"{place}: {fault}; vary {FILE_OF[stage]}")
        if made[wanted] not in sources:
            fault = f"has no list {made[wanted]}, which {place} reads as {reader[1]}"
            raise UserError(f"{config}: {fault}; add it")
        self.check_benchmarks(config, settings)

    def check_benchmarks(self, config: str, settings: Settings) -> None:
        """Refuse a variant that keeps fewer benchmarks out of training than the recipe does."""
        own, _ = self.read(OWN)
        for key in FILES.keys() - {*TRAINING}:
            if settings.get(key) != own.get(key):
                fault = f"{key}: not as in {self.config(OWN)}, so copies of its problems would stay"
                raise UserError(f"{config}: {fault} in the training set; copy the list")
        kept = {*settings.decontaminate, *settings.decontaminate_if_found}
        if missing := [name for name in own.decontaminate if name not in kept]:
            fault = f"decontaminate: lacks {', '.join(missing)}, which {self.config(OWN)} keeps out"
            raise UserError(f"{config}: {fault}; add them")

    def describe(self, stage: str, key: str, value: str) -> list[str]:
        """A row of the page: key=value, its YAML or file, its sources, the rows trained on."""
        place, names = value, ""
        train_file = value
        if key == VARIANT_OF[stage]:
            train_file = self.input_of(stage, "train_file", value)
            reader = ("distill", "problems_file") if self.has_teacher(stage) else None
            wanted = Path(self.input_of(*(reader or (stage, "train_file")), value)).name
            _, sources = self.read(value)
            found = [one for name in sources if FILES[name] == wanted for one in sources[name]]
            place, names = self.config(value), ", ".join(dict.fromkeys(s.name for s in found))
        return [f"{key}={value}", place, names, count_rows(Path(train_file))]


def count_rows(file: Path) -> str:
    """The rows of a data file or of traces, as its manifest counts them; "" where none does."""
    found: dict[str, Any] = manifest.read(file.parent) or {}
    if found.get("stage") == "distill":
        return f"{found['counts']['traces']:,}"
    outputs = found.get("outputs", {}) if found.get("stage") == "data" else {}
    return f"{outputs[file.name]['rows_out']:,}" if file.name in outputs else ""


def check_values(values: dict[str, list[str]], variants: Variants) -> None:
    """Refuse data sets that are missing or the same, before anything is trained.

    A file inside the run's folder may still be made by an earlier stage.

    Args:
        values: those of each key that the sweep varies.
    """
    for stage in VARIANT_OF:
        variant, file = VARIANT_OF[stage], FILE_OF[stage]
        if variant in values and file in values:
            raise UserError(f"sweep: {variant} sets {file}; vary only one of them")
        if variant in values and not has_file(stage, variants.recipe):
            fault = f"{variant}: {variants.recipe} has no {stage}.yaml"
            raise UserError(f"sweep: {fault}; write it, or vary another key")
        for name in values.get(variant, []):
            variants.check(stage, name)
        check_distinct(variant, {one: variants.config(one) for one in values.get(variant, [])})
        for path in values.get(file, []):
            if not Path(path).is_file() and not path.startswith(f"{variants.run}/"):
                raise UserError(f"sweep: {file}={path}: is not a file; correct the path")
        check_distinct(file, {one: one for one in values.get(file, [])})


def check_distinct(key: str, files: dict[str, str]) -> None:
    """Refuse two values of a key that are one file."""
    seen: dict[str, str] = {}
    for value, path in files.items():
        first = seen.setdefault(os.path.realpath(path), value)
        if first != value:
            raise UserError(f"sweep: {key}: {first} and {value} are the same file; remove one")
