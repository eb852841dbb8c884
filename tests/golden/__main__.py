"""Golden values: what the pipeline computes, compared with what it computed before.

    python -m tests.golden             the shortened chain, settings, refusals, rewards
    python -m tests.golden --full      also the demo's full chain and a run of two processes
    python -m tests.golden --record    write what is found to expected.json

Weights and whatever is sampled from them depend on the processor and on torch; on another machine
than the one that recorded them they are counted as skipped, everything else is compared. A
difference is printed by its name, and the exit code is 1.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"
# Make the recipe short; every other key is tiny-cpu's.
NUM_ROWS = {"sft": 2400, "grpo": 40, "validation": 20, "test": 20}
SHORT = {
    "model": {"hidden_size": 64, "num_layers": 2, "intermediate_size": 128},
    "sft": {"max_steps": 300, "save_steps": 300, "logging_steps": 50},
    "difficulty": {"num_samples": 2, "max_new_tokens": 40},
    "distill": {"num_samples": 2, "max_new_tokens": 40},
    "grpo": {
        "num_generations": 4, "max_steps": 3,
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "save_steps": 1,
        "max_completion_length": 40, "eval_problems": 8, "eval_steps": 1,
        "curriculum": "predictive+refill", "beta": 0.04, "num_iterations": 2,
        "update_tokens": 512, "max_mean_ratio": 5.0, "max_refill_rounds": 1,
        # The model writes noise: only a length term gives its groups different rewards.
        "length_penalty_start": 1, "length_penalty_end": 40,
    },
    "eval": {"num_samples": 2, "max_new_tokens": 96},
}  # fmt: skip
VOLATILE = re.compile(r"seconds|time|version|commit|path|fingerprint|folder|sha|packages|hash")


def sha256(path: Path) -> str:
    """The first 16 hexadecimal digits of a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


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
    weights = b"".join(p.detach().numpy().tobytes() for p in layer.parameters())
    probe = hashlib.sha256(weights).hexdigest()[:8]
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, probe {probe}"


def numbers(value: Any, name: str = "") -> dict[str, Any]:
    """The numbers of a report by their dotted names, without times, versions and paths."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    else:
        is_number = isinstance(value, int | float) and not VOLATILE.search(name)
        return {name: round(value, 9)} if is_number else {}
    return {k: v for key, part in parts for k, v in numbers(part, f"{name}.{key}").items()}


def make(folder: Path, *goals: str, **variables: str) -> None:
    """Run make on the recipe in `folder/tiny-cpu`, its run in `folder/run`."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "SEED", "RECIPE", "DATA_ROOT")
    env = {key: value for key, value in os.environ.items() if key not in outer}
    values = {
        "CONFIG": f"{folder}/tiny-cpu", "RUN": f"{folder}/run", "VENV": f"{folder}/venv",
        "PY": sys.executable,
    } | variables  # fmt: skip
    (folder / "venv").mkdir(exist_ok=True)
    (folder / "venv/ready").touch()  # newer than pyproject.toml: make installs nothing
    done = subprocess.run(
        ["make", *goals, *(f"{key}={value}" for key, value in values.items())],
        cwd=ROOT,
        env=env | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"make {' '.join(goals)} failed\n{done.stdout}\n{done.stderr}")


def write_recipe(folder: Path, short: bool) -> None:
    """tiny-cpu, with the numbers of `SHORT` where `short` is set."""
    (folder / "tiny-cpu").mkdir(parents=True)
    for path in (ROOT / "configs/tiny-cpu").glob("*.yaml"):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if short:
            config |= SHORT.get(path.stem, {})
            for key, number in NUM_ROWS.items() if path.stem == "data" else ():
                config[key][0]["sample"] = number
            if path.stem == "sft":
                del config["num_train_epochs"]
        (folder / "tiny-cpu" / path.name).write_text(yaml.safe_dump(config), encoding="utf-8")


def chain(folder: Path) -> dict[str, Any]:
    """The run's data files, and what depends on the machine: weights, samples, scores."""
    run = folder / "run"
    data = {f"data/{p.name}": sha256(p) for p in sorted((run / "data").glob("*.jsonl"))}
    audit = json.loads((run / "audit/manifest.json").read_text())
    found = {"data": data, "audit": numbers(audit["counts"])}
    weights = {
        str(path.relative_to(run)): sha256(path)
        for stage in ("base", "sft", "grpo")
        for path in sorted((run / stage).rglob("model.safetensors"))
        if "checkpoint-" not in str(path)
    }
    rates = (run / "difficulty/pass_rates.jsonl").read_text().splitlines()
    counts = [[json.loads(line)[key] for key in ("id", "num_right", "verdicts")] for line in rates]
    weights["pass rates"] = hashlib.sha256(json.dumps(counts).encode()).hexdigest()[:16]
    if (run / "distill").is_dir():
        weights["traces"] = sha256(run / "distill/traces.jsonl")
    report = numbers(json.loads((run / "report/report.json").read_text()))
    return found | {"weights": weights, "report": report}


def short_chain() -> dict[str, Any]:
    """Every stage of the shortened demo."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_recipe(folder, short=True)
        make(folder, "report", "distill")
        return chain(folder)


def full_chain() -> dict[str, Any]:
    """Every stage of the demo as shipped, eight minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_recipe(folder, short=False)
        make(folder, "report")
        return chain(folder)


def two_processes() -> dict[str, Any]:
    """SFT and GRPO of the shortened demo with two data-parallel processes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_recipe(folder, short=True)
        make(folder, "grpo", ACCELERATE="cpu", NUM_PROCESSES="2")
        files = {stage: folder / "run" / stage / "model.safetensors" for stage in ("sft", "grpo")}
        return {"weights": {stage: sha256(path) for stage, path in files.items()}}


def settings() -> dict[str, Any]:
    """A hash of the resolved settings of each stage of each recipe."""
    from tests.golden import recipes

    return {
        f"{recipe}/{stage}": hashlib.sha256(
            json.dumps(values, sort_keys=True, default=str).encode()
        ).hexdigest()[:16]
        for (recipe, stage), values in recipes.resolved().items()
    }


def refusals() -> dict[str, Any]:
    """Exit code and named key of every wrong input in refused.yaml."""
    from tests.golden import recipes

    cases = yaml.safe_load((HERE / "refused.yaml").read_text(encoding="utf-8"))
    return {
        f"{stage}: {' '.join(flags)}": recipes.refusal(stage, flags)
        for stage, inputs in cases.items()
        for flags in map(str.split, inputs)
    }


def grades() -> dict[str, Any]:
    """Every reward of the frozen completions."""
    from tests.golden import recipes

    return recipes.rewards(HERE / "completions.jsonl")


QUICK: dict[str, Callable[[], dict[str, Any]]] = {
    "settings": settings,
    "refused": refusals,
    "rewards": grades,
    "short chain": short_chain,
}
FULL = {"two processes": two_processes, "full chain": full_chain}
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also the parts that take minutes")
    parser.add_argument("--record", action="store_true", help="write expected.json")
    parser.add_argument("--only", nargs="*", choices=[*QUICK, *FULL], help="these parts")
    args = parser.parse_args()
    parts = QUICK | (FULL if args.full or args.only else {})
    if args.only:
        parts = {name: parts[name] for name in args.only}
    expected = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
    same_machine = expected.get("machine") == machine()
    found: dict[str, Any] = {}
    failed = False
    for name, part in parts.items():
        with contextlib.redirect_stdout(io.StringIO()):
            value = json.loads(json.dumps(part()))
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
