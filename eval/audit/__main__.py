"""Audit a recipe: do correct answers earn the reward, and only those?

    python -m eval.audit --recipe configs/tiny-cpu --run runs/tiny-cpu
    python -m eval.audit --recipe configs/grpo7b --run runs/grpo7b --data_root DIR --tokenizer bytes
    python -m eval.audit --recipe configs/grpo7b --completions outputs.jsonl

Gold answers, written as the recipe asks for them, go through its template, tokenizer, stop rules,
rewards and every think-aware task of its eval.yaml. The harness's own parsers read them for
comparison. Incorrect answers and known exploits follow. No weights are loaded.

The audit fails if fewer than 99 % of the golds earn the reward, if anything else is rewarded, or if
no reward looks at correctness. Then the exit code is 2, there is no `<run>/audit/manifest.json`,
and `make grpo` and `make eval` do not start. `audit.json` and `audit.txt` have the details.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from eval.audit import page
from eval.harness.settings import EvalArguments, check_data
from eval.harness.suite import OWN
from pipeline import manifest
from pipeline.console import quiet
from pipeline.errors import UserError, run_cli
from pipeline.keys import yaml_flags
from pipeline.settings import RecipeArguments, parse, setting
from pipeline.stages import ROOT, STAGES
from pipeline.values import Count

MAX_FAULTS = 5  # in the closing line


@dataclass
class AuditArguments(RecipeArguments):
    """Keys of the command line; there is no YAML for this one."""

    data_root: str | None = setting(None, "folder of their local files")
    model: str | None = setting(None, "folder or hub id to start from, not the recipe's model")
    tokenizer: str | None = setting(None, "path or hub id of another one; `bytes` needs no files")
    keys: list[str] = setting([], "of any stage, as grpo.top_p=0.8")
    limit: Count | None = setting(None, "only the first so many problems of each task")
    num_rows: Count = setting(300, "at most so many of each training file")
    num_tricked: Count = setting(100, "problems of each set that all exploits are tried on")
    num_parsed: Count = setting(100, "problems of each set that the harness's parsers read (slow)")
    reward_funcs: list[str] | None = setting(None, "in place of grpo.yaml's")
    reward_weights: list[float] | None = setting(None, "of these, in their order")
    opens_gate: bool = setting(True, "whether make grpo and make eval start after a pass")
    completions: str | None = setting(None, "only show how each parser scores this file's rows")


def main() -> None:
    (args,) = parse(__doc__, AuditArguments)
    folder = Path(args.run, "audit")
    if args.completions:
        audit_completions(args.completions, folder)
        return
    from eval.audit.verdict import audit_recipe

    settings = read_eval(args)
    started = manifest.start(folder)
    report = audit_recipe(args, settings)
    manifest.write_json(folder / "audit.json", report)
    page.write(report, f"{folder}/audit.txt")
    page.show(report)
    if faults := report["faults"]:
        more = [f"{len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
        raise UserError(
            f"{args.recipe}: {'; '.join([*faults[:MAX_FAULTS], *more])}; details in "
            f"{folder}/audit.txt; fix the recipe, or continue at your own risk with AUDIT=off"
        )
    if args.opens_gate:
        counts = {name: found["num_rows"] for name, found in report["sets"].items()}
        code = manifest.hash_code(*(ROOT / place for place in STAGES["audit"].code))
        inputs = report["inputs"]
        manifest.write(folder, "audit", asdict(args), inputs, counts, started, code=code)
    rates = [rate for found in report["sets"].values() for rate in found["rates"].values()]
    lowest = min(rate for rate in rates if rate is not None)
    num_tricks = sum(found["num_rows"] for found in report["tricks"].values())
    sys.stdout.write(
        f"audit: {args.recipe} passes: at least {page.percent(lowest)} % of the golds earn the "
        f"reward in each of {len(report['sets'])} sets, and none of {num_tricks:,} "
        f"incorrect answers and exploits does; {folder}/audit.txt\n"
    )
    if not args.opens_gate:
        sys.stdout.write(
            "audit: keys of its own changed the recipe, so make grpo and make eval audit it again\n"
        )


def read_eval(args: AuditArguments) -> EvalArguments:
    """The recipe's `eval.yaml` with the audit's own keys over it; raises `UserError`."""
    argv = ["--config", f"{args.recipe}/eval.yaml", "--run_dir", args.run]
    argv += yaml_flags(args.keys, args.recipe, "eval")
    for key in ("data_root", "limit"):
        value = getattr(args, key)
        if value is not None:
            argv += [f"--{key}", str(value)]
    (settings,) = parse(__doc__, EvalArguments, argv=argv)
    # The other sets may be on the hub only: those that cannot be read are reported.
    check_data(settings, [task for task in settings.tasks if task in OWN], [])
    return settings


def audit_completions(path: str, folder: Path) -> None:
    """Print how each parser scores a file's completions; write it for each row to `folder`."""
    from eval.audit.parsers import parse_rows, read_completions

    quiet()
    rows = list(read_completions(path))
    if not rows:
        raise UserError(f"{path}: has no completions; check the file")
    sys.stderr.write(
        f"audit: {len(rows):,} completions; the harness's own parsers take up to 0.2 s for each\n"
    )
    found = parse_rows(rows)
    page.show_parsed(path, found)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{Path(path).name}.parsed.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    sys.stdout.write(f"audit: each row's verdicts are in {out}\n")


if __name__ == "__main__":
    run_cli(main)
