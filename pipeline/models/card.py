"""The model card, `README.md` beside the weights, from the manifests of the model's run.

TRL writes a draft at every save. Ours replaces it at the end of a training stage, and again when
the report has scores. A fact that no manifest has is called unknown. The text: `card.md.jinja`.
"""

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2
import yaml

from pipeline import json_files, manifest, strict_yaml
from pipeline.figures import percent
from pipeline.models.hub import is_hub_id
from pipeline.stages import TRAINED

NAME = "README.md"


def find_licence(name: str | None) -> str:
    """The licence of a hub id by `licences.yaml`, of a folder by its card; else "unknown"."""
    from huggingface_hub import ModelCard

    known = strict_yaml.read(Path(__file__).with_name("licences.yaml"))
    # Another owner's file, read after hours of training: a damaged one counts as missing.
    with contextlib.suppress(OSError, ValueError, TypeError, yaml.YAMLError):
        if name and Path(name, NAME).is_file():
            return str(ModelCard.load(Path(name, NAME)).data.license or "unknown")
    return known.get(name, "unknown")


def find_maker(folder: str | Path) -> Path:
    """The folder of the stage that made a model; those of `best` and `adapter` lie in it."""
    path = Path(folder)
    while path.name in ("best", "adapter") and not manifest.read(path):
        path = path.parent
    return path


def find_stages(folder: str | Path) -> tuple[list[dict[str, Any]], str | None]:
    """The manifests of the stages that made a model, the first one first, and what they began with.

    Each has the `file` that it trained on and the manifest of its `build`.
    """
    name: str | None = str(folder)
    stages: list[dict[str, Any]] = []
    seen = set()
    while name and name not in seen:  # an edited manifest may name itself
        seen.add(name)
        made = manifest.read(find_maker(name))
        if not made:
            break
        file = Path(made["config"].get("train_file") or "")
        stages.insert(0, made | {"file": file, "build": manifest.read(file.parent)})
        name = made["config"].get("model_name_or_path")
    return stages, name


def count_guards(events: Path) -> Counter[str]:
    """How often each guard has fired, by a run's `events.jsonl`."""
    found: Counter[str] = Counter()
    for line in events.read_bytes().splitlines() if events.is_file() else ():
        with contextlib.suppress(ValueError):  # torn by a kill
            found[json_files.parse(line, {"guard": str})["guard"]] += 1
    return found


def write(folder: str | Path, scores: dict[str, dict] | None = None) -> None:
    """Write the card of a model that SFT or GRPO made; no other gets one.

    `scores`: by task and mode, as in `scores.json`.
    """
    stages, base = find_stages(folder)
    if not stages or stages[-1]["stage"] not in TRAINED:
        return
    home = find_maker(folder)
    run = home.parent
    values = {
        "base": base,
        "is_hub": is_hub_id(base) if base else False,
        "run": run.name,
        "stages": [made for made in stages if made["stage"] in TRAINED],
        "audit": manifest.read(run / "audit"),
        "scores": scores or {},
        "guards": count_guards(home / "events.jsonl"),
    }
    text = Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8")
    silent = jinja2.ChainableUndefined  # about what a manifest lacks
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=silent)
    environment.filters["percent"] = percent
    page = environment.from_string(text).render(values, find_licence=find_licence)
    with manifest.open_whole(Path(folder, NAME)) as file:
        file.write(page + "\n")
