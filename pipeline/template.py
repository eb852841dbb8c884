"""Give a base model the chat template and the end tokens of another model, in a folder of its own.

    python -m pipeline.template BASE OTHER FOLDER
    python -m pipeline.template meta-llama/Llama-3.1-8B meta-llama/Llama-3.1-8B-Instruct my-base

BASE and OTHER are folders or hub ids. FOLDER must not exist. It gets links to the weights of BASE,
copies of its configuration and tokenizer, and the template of OTHER. A generation then ends where
that of OTHER ends. Every token of the template must have the same id in both tokenizers.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipeline.errors import UserError, run_cli
from pipeline.folders import check_output
from pipeline.models.checkpoints import check_checkpoint, check_weights, load_tokenizer, read_json
from pipeline.models.hub import is_hub_id

WEIGHTS = ("*.safetensors", "*.bin", "*.index.json")
TEXTS = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "README.md")  # with the licence
LEFT_OUT = ("manifest.json", "files.json", "run.json")  # a stage's word for other files than these


def fetch(model: str, key: str, patterns: tuple[str, ...]) -> Path:
    """The folder of a model; that of a hub id is downloaded, of its files those that fit.

    Raises:
        UserError: there is no such folder, or the hub does not give it.
    """
    if Path(model).is_dir():
        return Path(model).resolve()
    if not is_hub_id(model):
        raise UserError(f"{key}: {model} is no folder; give a model's folder or hub id")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(model, allow_patterns=list(patterns)))
    except (HfHubHTTPError, OSError, ValueError) as error:
        cause = " ".join(str(error).split())[:300]
        remedy = "check the name and the network; a gated model needs `hf auth login`"
        raise UserError(f"{key}: {model}: {type(error).__name__} ({cause}); {remedy}") from error


def ends_of(folder: Path, key: str) -> list[int]:
    """The ids at which a model's generation ends, as its configuration says; [] where it does not.

    As in transformers, generation_config.json counts before config.json.
    """
    for name in ("generation_config.json", "config.json"):
        found = read_json(folder / name, key).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        if ids and all(type(one) is int for one in ids):
            return ids
    return []


def check_tokens(base: Any, other: Any, ends: list[int]) -> None:
    """Refuse a template or an end with a special token that has no or another id in BASE."""
    names = {name for name in other.get_added_vocab() if name in other.chat_template}
    names |= {*other.convert_ids_to_tokens(ends)}
    ids, wanted = base.get_vocab(), other.get_vocab()
    for name in sorted(names):
        if ids.get(name) != wanted[name]:
            fault = f"{name!r} of its template or end is token {wanted[name]} there"
            raise UserError(
                f"OTHER: {other.name_or_path}: {fault}, and {ids.get(name, 'none')} in "
                f"{base.name_or_path}; take the chat model of the same family"
            )


def fill(folder: Path, base: Path, template: str, eos_token: str, ends: list[int]) -> None:
    """Put the files of the new model into an empty folder."""
    for pattern in WEIGHTS:
        for file in base.glob(pattern):
            (folder / file.name).symlink_to(file.resolve())
    for pattern in TEXTS:
        for file in base.glob(pattern):
            target = folder / file.name
            if not target.exists() and file.name not in LEFT_OUT and file.suffix != ".jinja":
                shutil.copyfile(file, target)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    end = ends[0] if len(ends) == 1 else ends
    for name, changes in (
        ("tokenizer_config.json", {"eos_token": eos_token}),
        ("special_tokens_map.json", {"eos_token": eos_token}),
        ("config.json", {"eos_token_id": end}),
        ("generation_config.json", {"eos_token_id": end}),
    ):
        values = read_json(folder / name, "BASE")
        if not values and name == "special_tokens_map.json":
            continue  # newer tokenizers have none
        values.pop("chat_template", None)  # the jinja file has it
        text = json.dumps(values | changes, indent=2, ensure_ascii=False)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def make(base: str, other: str, folder: str) -> list[int]:
    """Make the folder, whole or not at all; returns the ids at which its generation ends.

    Raises:
        UserError: the folder exists, a model cannot be read, or the two do not fit.
    """
    check_output(folder, "FOLDER")
    place = Path(folder)
    if place.exists() or place.is_symlink():
        raise UserError(f"FOLDER: {folder} exists; remove it, or name another")
    donor = fetch(other, "OTHER", TEXTS)
    donor_tokenizer = load_tokenizer(str(donor), "OTHER", ("chat_template", "eos_token"))
    if not isinstance(donor_tokenizer.chat_template, str):
        raise UserError(f"OTHER: {other} has several chat templates; give a model with one")
    ends = ends_of(donor, "OTHER") or [donor_tokenizer.eos_token_id]
    if donor_tokenizer.eos_token_id not in ends:
        ends.append(donor_tokenizer.eos_token_id)
    source = fetch(base, "BASE", (*WEIGHTS, *TEXTS))
    check_weights(source, "BASE")
    check_tokens(load_tokenizer(str(source), "BASE", ()), donor_tokenizer, ends)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        fill(unfinished, source, donor_tokenizer.chat_template, donor_tokenizer.eos_token, ends)
        check_checkpoint(str(unfinished), "FOLDER")
        unfinished.chmod(0o755)
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return ends


def main() -> None:
    """Make the folder that the command line names."""
    if {"-h", "--help"} & {*sys.argv}:
        sys.stdout.write(f"{(__doc__ or '').strip()}\n")
        return
    if len(sys.argv) != 4:
        raise UserError("give three words: python -m pipeline.template BASE OTHER FOLDER")
    base, other, folder = sys.argv[1:]
    ends = make(base, other, folder)
    sys.stdout.write(f"template: {base} with that of {other}, ends at {ends} -> {folder}\n")


if __name__ == "__main__":
    run_cli(main)
