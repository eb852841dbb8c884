"""What is up to date: by manifests and hashes, never by the times of files."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline import manifest
from pipeline.errors import UserError
from pipeline.stages import ROOT, STAGES
from pipeline.variables import Request


def folder_of(request: Request, stage: str) -> Path:
    """The folder in a run where a stage leaves its result."""
    return Path(request.run, stage)


def is_current(request: Request, stage: str, words: Sequence[str]) -> bool:
    """Whether a stage that others need is left alone: its result is that of its command line."""
    if stage == "eval" and request["data_root"]:  # which may hold other problems than before
        return False
    code = [ROOT / place for place in STAGES[stage].code]
    return manifest.looks_current(folder_of(request, stage), words, code)


def check_start_model(request: Request) -> None:
    """Refuse a run that was trained from another model than is given now."""
    model = request["model"]
    for stage in ("sft", "grpo") if model else ():
        with suppress(OSError, ValueError, LookupError, TypeError):
            text = (folder_of(request, stage) / manifest.NAME).read_text(encoding="utf-8")
            start = json.loads(text)["config"]["model_name_or_path"]
            if start.startswith(f"{request.run}/"):  # GRPO starts from the run's own SFT
                continue
            if os.path.realpath(start) != os.path.realpath(model):
                break
    else:
        return
    raise UserError(f"{request.run} was trained from {start}; give MODEL={model} another RUN")
