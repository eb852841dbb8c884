"""The checks that the processes of a launch would make, before anything is started."""

import os
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from pipeline.errors import UserError
from pipeline.settings import Settings, read_yaml
from pipeline.stages import RECIPES
from stages.launch import check_launch, keep_batch

ACCELERATE = RECIPES / "accelerate"


def read_launch(name: str | None, processes: int) -> dict[str, Any]:
    """Read the keys of a file of configs/accelerate; none for one process without a file."""
    if name is None and processes == 1:
        return {}
    path = ACCELERATE / f"{name or 'ddp'}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in ACCELERATE.glob("*.yaml")))
        fault = f"{name!r} is not a file of configs/accelerate"
        raise UserError(f"accelerate: {fault}; choose one of {known}")
    return read_yaml(str(path)) | {"config_file": path.name}


def launch_environment(asked: Mapping[str, Any], processes: int) -> dict[str, str]:
    """What `accelerate launch` with these keys sets for the processes that it starts."""
    kind = asked.get("distributed_type")
    kind = str(getattr(kind, "value", kind))  # a text of the file, or accelerate's enum
    env = {"WORLD_SIZE": "1" if kind == "NO" else str(processes), "LOCAL_RANK": "0"}
    if kind in ("FSDP", "DEEPSPEED"):
        env[f"ACCELERATE_USE_{kind}"] = "true"
    env |= {key.upper(): str(value) for key, value in asked.get("fsdp_config", {}).items()}
    for key, value in asked.get("deepspeed_config", {}).items():
        env[f"ACCELERATE_DEEPSPEED_{key.upper()}"] = str(value)
    return env


def as_launched(
    check: Callable[[Settings], Settings | None], asked: Mapping[str, Any], processes: int
) -> Callable[[Settings], Settings]:
    """The check of a stage, as each of its `processes` makes it.

    Args:
        check: of the stage's keys.
        asked: the keys of the launch file, of `read_launch` or `asked_of_launcher`.
        processes: of all hosts together.
    """
    env = launch_environment(asked, processes)

    def check_both(settings: Settings) -> Settings:
        settings = keep_batch(settings, processes)
        with mock.patch.dict(os.environ, env):
            check_launch(settings, env, {**asked, "num_processes": processes})
            return check(settings) or settings

    return check_both
