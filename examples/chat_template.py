"""Give a base model the chat template and the end tokens of another model, in a folder of its own.

    python chat_template.py BASE OTHER FOLDER
    python chat_template.py meta-llama/Llama-3.1-8B meta-llama/Llama-3.1-8B-Instruct my-base

BASE and OTHER are folders or hub ids. FOLDER must not exist. It gets links to the weights of BASE,
copies of its configuration and tokenizer, and the template of OTHER. A generation then ends where
that of OTHER ends. Every token of the template must have the same id in both tokenizers.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from pipeline.errors import UserError, run_cli
from pipeline.models.checkpoints import check_checkpoint, read_json
from pipeline.models.hub import TEXTS, fetch
from pipeline.models.tokenizer import NEEDS, load_tokenizer
from pipeline.models.weights import check_start

WEIGHTS = ("*.safetensors", "*.bin", "*.index.json")
LEFT_OUT = ("manifest.json", "files.json", "run.json")  # a stage's word for other files than these


def find_ends(folder, tokenizer):
    """The ids at which a model's generation ends, of the tokenizer too."""
    values = read_json(folder / "config.json", "OTHER")
    values |= read_json(folder / "generation_config.json", "OTHER")  # in transformers this counts
    found = values.get("eos_token_id")
    ends = found if isinstance(found, list) else [found]
    return [*dict.fromkeys(one for one in (*ends, tokenizer.eos_token_id) if one is not None)]


def check_tokens(base, other, ends):
    """Refuse a template or an end with a special token that has no or another id in BASE."""
    names = {name for name in other.get_added_vocab() if name in other.chat_template}
    names |= {*other.convert_ids_to_tokens(ends)}
    ids, wanted = base.get_vocab(), other.get_vocab()
    for name in sorted(names):
        if ids.get(name) != wanted[name]:
            raise UserError(
                f"OTHER: {other.name_or_path}: {name!r} of its template or end is token "
                f"{wanted[name]} there, and {ids.get(name, 'none')} in {base.name_or_path}; take "
                "the chat model of the same family"
            )


def fill(folder, base, tokenizer, ends):
    """Put the files of the new model into an empty folder."""
    for file in (file for pattern in WEIGHTS for file in base.glob(pattern)):
        (folder / file.name).symlink_to(file.resolve())
    for file in (file for pattern in TEXTS for file in base.glob(pattern)):
        target = folder / file.name
        if not target.exists() and file.name not in LEFT_OUT and file.suffix != ".jinja":
            shutil.copyfile(file, target)
    (folder / "chat_template.jinja").write_text(tokenizer.chat_template, encoding="utf-8")
    of_tokenizer = {"eos_token": tokenizer.eos_token}
    of_model = {"eos_token_id": ends[0] if len(ends) == 1 else ends}
    for name, changes in (
        ("tokenizer_config.json", of_tokenizer),
        ("special_tokens_map.json", of_tokenizer),
        ("config.json", of_model),
        ("generation_config.json", of_model),
    ):
        values = read_json(folder / name, "BASE")
        if values or name != "special_tokens_map.json":  # newer tokenizers have none
            values.pop("chat_template", None)  # the jinja file has it
            text = json.dumps(values | changes, indent=2, ensure_ascii=False)
            (folder / name).write_text(f"{text}\n", encoding="utf-8")


def make(base, other, folder):
    """Make the folder, whole or not at all; returns the ids at which its generation ends."""
    place = Path(folder)
    if place.exists() or place.is_symlink():
        raise UserError(f"FOLDER: {folder} exists; remove it, or name another")
    donor = fetch(other, "OTHER", TEXTS)
    tokenizer = load_tokenizer(str(donor), "OTHER", (*NEEDS,))
    if not isinstance(tokenizer.chat_template, str):
        raise UserError(f"OTHER: {other} has several chat templates; give a model with one")
    ends = find_ends(donor, tokenizer)
    source = fetch(base, "BASE", (*WEIGHTS, *TEXTS))
    check_checkpoint(str(source), "BASE")
    check_tokens(load_tokenizer(str(source), "BASE", ()), tokenizer, ends)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        fill(unfinished, source, tokenizer, ends)
        check_start(str(unfinished), "FOLDER", load_tokenizer(str(unfinished), "FOLDER"), {})
        unfinished.chmod(0o755)
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return ends


def main():
    if len(sys.argv) != 4:
        raise UserError("give three words: python chat_template.py BASE OTHER FOLDER")
    base, other, folder = sys.argv[1:]
    ends = make(base, other, folder)
    print(f"template: {base} with that of {other}, ends at {ends} -> {folder}")


if __name__ == "__main__":
    run_cli(main)
