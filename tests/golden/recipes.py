"""Settings, refusals and rewards for the golden values, through the stages' own entry points."""

import contextlib
import dataclasses
import importlib
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from data_prep import config
from data_prep.schema import grpo_row
from data_prep.sources import synthetic

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "data": "data_prep.build.__main__",
    "model": "stages.tiny_model",
    "sft": "stages.sft",
    "difficulty": "stages.difficulty",
    "distill": "stages.distill",
    "grpo": "stages.grpo",
    "eval": "eval.run",
}
# Named after the machine, the hour or the process.
VOLATILE = {"logging_dir", "run_name", "hub_token", "local_rank", "parallelism_config"}


class Parsed(Exception):
    """Carries what `parse` returned out of the stage's `main`."""


def run_main(stage: str, argv: list[str], checks: bool) -> tuple:
    """What a stage parses from `argv`, with or without its own checks.

    Raises:
        UserError: what the stage refuses.
    """
    module = importlib.import_module(MODULES[stage])

    def parse(*args: Any, check: Any = None, **kwargs: Any) -> None:
        if len(args) > 3:
            args, check = args[:3], args[3]
        raise Parsed(config.parse(*args, check=check if checks else None, **kwargs))

    with mock.patch.object(module, "parse", parse), mock.patch.object(sys, "argv", [stage, *argv]):
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
    return {k: v for k, v in as_dict.items() if k not in VOLATILE and v != defaults.get(k)}


def resolved() -> dict[tuple[str, str], dict[str, Any]]:
    """`{(recipe, stage): {key: value that is not the default}}`; LoRA twins are `<recipe>-lora`."""
    found = {}
    paths = [p for p in sorted((ROOT / "configs").glob("*/*.yaml")) if p.stem in MODULES]
    cpu = ("tiny-cpu", "skewed-cpu")  # they have no twin
    twins = [(path, "-lora") for path in paths if path.parent.name not in cpu]
    for path, twin in [*((path, "") for path in paths), *twins]:
        recipe, stage = path.parent.name + twin, path.stem
        argv = ["--config", str(path.relative_to(ROOT)), "--run_dir", f"runs/{recipe}"]
        if stage in ("sft", "grpo"):  # transformers wants a GPU for bf16 otherwise
            argv += ["--use_cpu", "true"] + (["--overlay", "configs/lora.yaml"] if twin else [])
        parts = run_main(stage, argv, checks=False)
        values = {key: value for part in parts for key, value in changed(part).items()}
        found[recipe, stage] = json.loads(json.dumps(values, default=str))
    return found


def refusal(stage: str, flags: list[str]) -> str:
    """`<exit code> <key>` for tiny-cpu's stage with wrong flags; "accepted" where it starts."""
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        for folder in ("data", "base", "sft", "grpo", "difficulty"):
            (run / folder).mkdir()
            (run / folder / "config.json").write_text("{}")
        problems = synthetic.load("rl", 80, 0, max_level=2)
        rows = "".join(json.dumps(grpo_row(problem, "none")) + "\n" for problem in problems)
        for file in ("data/sft_train", "data/grpo_train", "data/validation", "data/test"):
            (run / f"{file}.jsonl").write_text(rows)
        (run / "difficulty/pass_rates.jsonl").write_text("{}\n")
        argv = ["--config", f"configs/tiny-cpu/{stage}.yaml", "--run_dir", name, *flags]
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.chdir(ROOT):
            try:
                config.run_cli(lambda: run_main(stage, argv, checks=True))
            except SystemExit as end:
                text = err.getvalue()
                assert text.count("\n") == 1, text
                words = re.sub(r"^error: (command line: |configs/\S+: )?", "", text).split()
                key = words[2] if words[:2] == ["unknown", "key"] else words[0]
                return f"{end.code} {key.strip(':;,').strip(chr(39))}"
    return "accepted"


def rewards(path: Path) -> dict[str, Any]:
    """The value of every reward for each completion of a file, as one text of digits a reward."""
    from stages.arguments import GrpoArguments
    from stages.rewards import build_rewards

    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = [
        "correctness_reward", "rlinf_reward", "think_format_reward", "soft_length_penalty",
        "repetition_penalty", "overlong",
    ]  # fmt: skip
    args = GrpoArguments(train_file="f", reward_funcs=names, overlong_cache=40)
    args.length_penalty_start, args.length_penalty_end = 20, 60
    stub = SimpleNamespace(seed=0, process_index=0, max_completion_length=80)
    completions = [[{"role": "assistant", "content": row["completion"]}] for row in rows]
    golds = [row["gold"] for row in rows]
    answers = [gold if isinstance(gold, list) else [gold] for gold in golds]
    batch = {
        "completions": completions,
        "completion_ids": [list(row["completion"].encode())[:80] for row in rows],
        "answers": answers,
        "answer_form": ["box"] * len(rows),
        "trainer_state": SimpleNamespace(global_step=1),
        "log_metric": lambda *_: None,
        "log_extra": lambda *_: None,
    }
    functions = build_rewards(args, stub, False)
    return {f.__name__: " ".join(f"{x:.6g}" for x in f(**batch)) for f in functions}
