"""Bring what a recipe takes from the hub into its cache, for hosts without a network.

    make fetch RECIPE=grpo7b      on a login node: the data files, the models, the benchmark sets

`make fetch` builds the data files first. Then come the models that the YAML files start from, and
each set that evaluation reads. On the other hosts set HF_HUB_OFFLINE=1 and the same HF_HOME.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from eval.harness import suite
from eval.harness.settings import OWN, EvalArguments
from pipeline.commands import named_in
from pipeline.errors import UserError, run_cli
from pipeline.keys import yaml_flags
from pipeline.models.hub import TEXTS, fetch, is_hub_id
from pipeline.recipe_files import read_yaml
from pipeline.settings import RecipeArguments, parse, setting

WEIGHTS = ("*.safetensors", *TEXTS)


@dataclass
class FetchArguments(RecipeArguments):
    """Keys of the command line; there is no YAML for this one."""

    model: str | None = setting(None, "folder or hub id to start from, not the recipe's model")
    data_root: str | None = setting(None, "folder of local data files, in place of the hub")
    keys: list[str] = setting([], "of any stage, as eval.tasks=math500")


def hub_models(args: FetchArguments) -> dict[str, str]:
    """The hub ids that the stages start from: `{id: file and key}`."""
    found = [("MODEL", args.model)] if args.model else named_in(args.recipe)
    # `named_in` reads {run}/sft as run/sft.
    hub = [(name, place) for place, name in found if not str(name).startswith("run/")]
    return {name: place for name, place in hub if is_hub_id(str(name))}


def hub_templates(args: FetchArguments) -> dict[str, str]:
    """The hub ids whose chat template alone is taken: `{id: file and key}`."""
    found = {}
    for path in sorted(Path(args.recipe).glob("*.yaml")):
        name = str(read_yaml(str(path)).get("chat_template_path"))
        if is_hub_id(name) and not Path(name).is_file():
            found[name] = f"{path}: chat_template_path"
    return found


def read_sets(args: FetchArguments) -> list[str]:
    """Read each set of `eval.yaml` as evaluation does; returns what was read.

    Raises:
        UserError: a set cannot be had, with its name.
    """
    path = Path(args.recipe, "eval.yaml")
    if not path.is_file():
        return []
    argv = [
        "--config",
        str(path),
        "--run_dir",
        args.run,
        *yaml_flags(args.keys, args.recipe, "eval"),
    ]
    argv += ["--data_root", args.data_root] if args.data_root else []
    argv += ["--checkpoints", "any=any"]  # `configs/evaluate` leaves them to MODEL
    (settings,) = parse(__doc__ or "", EvalArguments, argv=argv)
    found = []
    for task in settings.tasks:
        if task not in OWN:  # those are files that `make data` builds
            rows = suite.read_problem_rows(task, **settings.problem_keys())
            found.append(f"{task} ({len(rows):,} problems)")
    if settings.official:
        suite.load_official_tasks(settings.official, {"data_root": settings.data_root})
        found += [f"official {name}" for name in settings.official]
    return found


def main() -> None:
    """Fetch the models, then the sets; a line for each."""
    (args,) = parse(__doc__, FetchArguments)
    for name, place in hub_models(args).items():
        folder = fetch(name, place, WEIGHTS)
        if not any(folder.glob("*.safetensors")):
            raise UserError(f"{place}: {name} has no .safetensors files; name another copy of it")
        sys.stdout.write(f"fetch: model {name} -> {folder}\n")
    for name, place in hub_templates(args).items():
        sys.stdout.write(f"fetch: template of {name} -> {fetch(name, place, TEXTS)}\n")
    for text in read_sets(args):
        sys.stdout.write(f"fetch: set {text}\n")
    sys.stdout.write("fetch: complete; on hosts without a network set HF_HUB_OFFLINE=1\n")


if __name__ == "__main__":
    run_cli(main)
