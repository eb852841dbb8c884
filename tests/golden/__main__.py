"""Golden values: what the pipeline computes, compared with what it computed before.

    python -m tests.golden             settings and the shortened chain
    python -m tests.golden --full      also the demo's full chain and a run of two processes
    python -m tests.golden --record    write what is found to expected.json

Weights and whatever is sampled from them depend on the processor and on torch; on another machine
than the one that recorded them they are counted as skipped, everything else is compared. A
difference is printed by its name, and the exit code is 1.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from pipeline import settings as config
from pipeline.console import quiet_imports
from pipeline.models import smollm2
from pipeline.stages import STAGES, config_name
from tests.demo import ROOT, make, write_recipe
from tests.recipes import ON_CPU, SHIPPED

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"
# Make the recipe short: numbers of rows, and keys by stage; every other key is tiny-cpu's.
NUM_ROWS, SHORT = yaml.safe_load((HERE / "short.yaml").read_text(encoding="utf-8")).values()
NO_NUMBERS = re.compile(r"seconds|time|version|commit|path|fingerprint|folder|sha|packages|hash")
MODULES = {config_name(stage): row.module for stage, row in STAGES.items() if row.arguments}
# Named after the machine, the hour or the process.
PERSONAL = {"logging_dir", "run_name", "hub_token", "local_rank", "parallelism_config"}


def digest(what: Path | str | bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a file, text or bytes."""
    data = what.read_bytes() if isinstance(what, Path) else what
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


def machine() -> str:
    """What decides the last bit: torch, its kernels, and a probe of what they give here."""
    import torch

    torch.set_num_threads(1)  # as the stages run
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 192, dropout=0.0, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    for length in (7, 32, 129):
        loss = layer(torch.randn(3, length, 64)).exp().log_softmax(-1).square().mean()
        loss.backward()
        optimizer.step()
    probe = digest(b"".join(p.detach().numpy().tobytes() for p in layer.parameters()))[:8]
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, probe {probe}"


def numbers(value: Any, name: str = "") -> dict[str, Any]:
    """The numbers of a report by their dotted names, without times, versions and paths."""
    if not isinstance(value, dict | list):
        is_number = isinstance(value, int | float) and not NO_NUMBERS.search(name)
        return {name: round(value, 9)} if is_number else {}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, part in parts for k, v in numbers(part, f"{name}.{key}").items()}


def chain(folder: Path) -> dict[str, Any]:
    """The run's data files, and what depends on the machine: weights, samples, scores."""
    run = folder / "run"
    data = {f"data/{p.name}": digest(p) for p in sorted((run / "data").glob("*.jsonl"))}
    audit = json.loads((run / "audit/manifest.json").read_text())
    found = {"data": data, "audit": numbers(audit["counts"])}
    weights = {
        str(path.relative_to(run)): digest(path)
        for stage in ("base", "sft", "grpo")
        for path in sorted((run / stage).rglob("model.safetensors"))
        if "checkpoint-" not in str(path)
    }
    rates = (run / "difficulty/pass_rates.jsonl").read_text().splitlines()
    counts = [[json.loads(line)[key] for key in ("id", "num_right", "verdicts")] for line in rates]
    weights["pass rates"] = digest(json.dumps(counts))
    if (run / "distill").is_dir():
        weights["traces"] = digest(run / "distill/traces.jsonl")
    report = numbers(json.loads((run / "report/report.json").read_text()))
    return found | {"weights": weights, "report": report}


def run_chain(*goals: str, is_short: bool = True, **variables: str) -> dict[str, Any]:
    """Make goals of the demo, shortened or as shipped (eight minutes)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_recipe(folder, *((NUM_ROWS, SHORT) if is_short else ({}, {})))
        done = make(folder, *goals, **variables)
        if done.returncode:
            sys.exit(f"make {' '.join(goals)} failed\n{done.stdout}\n{done.stderr}")
        if "report" in goals:
            return chain(folder)
        run = folder / "run"
        return {
            "weights": {one: digest(run / one / "model.safetensors") for one in ("sft", "grpo")}
        }


class Parsed(Exception):
    """Carries what `parse` returned out of the stage's `main`."""


def run_main(stage: str, argv: list[str]) -> tuple:
    """What a stage parses from `argv`, without its own checks."""
    name = MODULES[stage]
    is_package = importlib.util.find_spec(name).submodule_search_locations is not None
    module = importlib.import_module(f"{name}.__main__" if is_package else name)

    def parse(*args: Any, check: Any = None, **kwargs: Any) -> None:
        raise Parsed(config.parse(*args[:3], **kwargs))

    change, argv = mock.patch.object, [stage, *argv]
    with contextlib.ExitStack() as stack:
        stack.enter_context(change(module, "parse", parse))
        stack.enter_context(change(sys, "argv", argv))
        stack.enter_context(change(config, "claim"))
        # The name of a model stays: its folder is another one on each machine.
        stack.enter_context(change(smollm2, "find", lambda model: model))
        stack.enter_context(change(smollm2, "resolve", lambda model, key: model))
        try:
            module.main()
        except Parsed as found:
            return found.args[0]
    raise AssertionError(f"{stage} parsed nothing")


def changed(part: Any) -> dict[str, Any]:
    """The values of a dataclass that are not its defaults."""
    as_dict = part.to_dict() if hasattr(part, "to_dict") else vars(part)
    try:
        default = type(part)(**({"use_cpu": True} if hasattr(part, "use_cpu") else {}))
        defaults = default.to_dict() if hasattr(default, "to_dict") else vars(default)
    except TypeError:  # a key has no default
        defaults = {
            f.name: f.default_factory() if f.default is dataclasses.MISSING else f.default
            for f in dataclasses.fields(part)
            if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
        }
    return {k: v for k, v in as_dict.items() if k not in PERSONAL and v != defaults.get(k)}


def settings() -> dict[str, str]:
    """A hash of each stage's settings by `recipe/stage`; LoRA twins are `<recipe>-lora`."""
    found = {}
    paths = [p for name in SHIPPED for p in sorted((ROOT / "configs" / name).glob("*.yaml"))]
    twins = [(path, "-lora") for path in paths if path.parent.name not in ON_CPU]  # have no twin
    for path, twin in [*((path, "") for path in paths), *twins]:
        recipe, stage = path.parent.name + twin, path.stem
        argv = ["--config", str(path.relative_to(ROOT)), "--run_dir", f"runs/{recipe}"]
        if stage in ("sft", "grpo"):  # transformers wants a GPU for bf16 otherwise
            argv += ["--use_cpu", "true"] + (["--overlay", "configs/lora.yaml"] if twin else [])
        parts = run_main(stage, argv)
        values = {key: value for part in parts for key, value in changed(part).items()}
        found[f"{recipe}/{stage}"] = digest(json.dumps(values, sort_keys=True, default=str))
    return found


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "settings": settings,
    "short chain": lambda: run_chain("report", "distill"),
    "two processes": lambda: run_chain("grpo", ACCELERATE="cpu", NUM_PROCESSES="2"),
    "full chain": lambda: run_chain("report", is_short=False),
}
QUICK = [*PARTS][:2]
ON_THIS_MACHINE = ("weights", "report")


def differences(expected: Any, found: Any, name: str, same_machine: bool) -> tuple[list[str], int]:
    """Names of the values that differ, and how many were not compared."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if not same_machine and name.split("/")[-1] in ON_THIS_MACHINE:
            return [], len(expected)
        parts = [
            differences(expected.get(key), found.get(key), f"{name}/{key}", same_machine)
            for key in sorted({*expected, *found})
        ]
        return [line for lines, _ in parts for line in lines], sum(count for _, count in parts)
    if expected == found:
        return [], 0
    return [f"{name}: {found!r}, expected {expected!r}"], 0


def main() -> None:
    """Compute the parts, then record or compare them."""
    quiet_imports()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also the parts that take minutes")
    parser.add_argument("--record", action="store_true", help="write expected.json")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="these parts")
    args = parser.parse_args()
    expected = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
    same_machine = expected.get("machine") == machine()
    found: dict[str, Any] = {}
    failed = False
    for name in args.only or (PARTS if args.full else QUICK):
        with contextlib.redirect_stdout(io.StringIO()):
            value = json.loads(json.dumps(PARTS[name]()))
        found[name] = value
        if args.record:
            continue
        lines, skipped = differences(expected.get(name), value, name, same_machine)
        verdict = f"{len(lines)} differ" if lines else "equal"
        note = f", {skipped} not compared on this machine" if skipped else ""
        sys.stdout.write(f"{name}: {verdict}{note}\n" + "".join(f"  {x}\n" for x in lines[:40]))
        failed |= bool(lines)
    if args.record:
        kept = expected if same_machine or not expected else {}
        text = json.dumps(kept | found | {"machine": machine()}, indent=1, sort_keys=True)
        EXPECTED.write_text(text + "\n", encoding="utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
