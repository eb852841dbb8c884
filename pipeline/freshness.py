"""What is up to date: by manifests and hashes, never by the times of files."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.stages import ROOT, STAGES, TRAINED
from pipeline.variables import Request


def is_current(request: Request, stage: str, words: Sequence[str]) -> bool:
    """Whether a stage that others need is left alone: its result is that of its command line."""
    if stage == "eval" and request["data_root"]:  # which may hold other problems than before
        return False
    code = [ROOT / place for place in STAGES[stage].code]
    return manifest.matches_command(Path(request.run, stage), words, code)


def check_start_model(request: Request) -> None:
    """Refuse a run that was trained from another model than is given now."""
    model = request["model"]
    if not model:
        return
    for stage in TRAINED:
        start = start_model(Path(request.run, stage))
        is_own = start.startswith(f"{request.run}/")  # GRPO starts from the run's own SFT
        if start and not is_own and os.path.realpath(start) != os.path.realpath(model):
            raise UserError(
                f"{request.run} was trained from {start}; give MODEL={model} another RUN"
            )


def start_model(folder: Path) -> str:
    """The model that a stage was trained from; "" where no manifest says it."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        text = (folder / manifest.NAME).read_text(encoding="utf-8")
        return json.loads(text)["config"]["model_name_or_path"] or ""
    return ""
