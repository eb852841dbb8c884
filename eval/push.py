"""Upload a run's final model to the hub: weights, tokenizer, card and manifest, nothing else.

    python -m eval.push --config configs/tiny-cpu/eval.yaml --repo owner/name

The model is the last of eval.yaml's `checkpoints`. The token is HF_TOKEN's or `hf auth login`'s.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from eval.harness.settings import EvalArguments, split_checkpoints
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.models import card
from pipeline.models.hub import is_hub_id
from pipeline.settings import parse, setting

REMEDIES = {
    401: "the token is missing or wrong; set HF_TOKEN or run `hf auth login`",
    403: "the token may not write there; take one that may, or another owner",
    409: "it exists already; take another name, or add a commit to it: overwrite=true",
}


@dataclass(kw_only=True)
class PushArguments(EvalArguments):
    """Settings of the evaluation, which name the model, and where it goes."""

    repo: str = setting("", "owner/name on the hub")
    private: bool = setting(True, "whether only the owner sees a new repository")
    overwrite: bool = setting(False, "whether the repository may be there already")


def find_files(folder: Path) -> dict[str, Path]:
    """What the stage's manifest lists of a model's folder, unchanged; its card and the manifest.

    By the name that each has in the repository.
    """
    home = card.find_maker(folder)
    made = manifest.read(home)
    if not made or made["stage"] not in card.TRAINED:
        raise UserError(f"{folder}: no manifest of SFT or GRPO is there; `make grpo` writes it")
    manifest.check_made(home)
    listed = {home / name for name in made["files"]}
    files = [file for file in manifest.model_files(folder) if file in listed]
    named = {file.relative_to(folder).as_posix(): file for file in files}
    return named | {card.NAME: folder / card.NAME, manifest.NAME: home / manifest.NAME}


def main() -> None:
    (args,) = parse(__doc__, PushArguments)
    if not is_hub_id(args.repo):
        raise UserError(f"repo: {args.repo!r} is not owner/name; set REPO=owner/name")
    folder = Path([*split_checkpoints(args.checkpoints).values()][-1])
    files = find_files(folder)

    from httpx import HTTPError
    from huggingface_hub import CommitOperationAdd, HfApi

    try:
        HfApi().create_repo(args.repo, private=args.private, exist_ok=args.overwrite)
        parts = [CommitOperationAdd(name, file) for name, file in files.items()]
        HfApi().create_commit(args.repo, parts, commit_message="Model, card and manifest")
    except (HTTPError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        remedy = REMEDIES.get(status, "check the name and the network")
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"repo: {args.repo}: not uploaded: {remedy} ({why})") from error
    sys.stdout.write(f"push: {len(files)} files of {folder} -> {args.repo}\n")


if __name__ == "__main__":
    run_cli(main)
