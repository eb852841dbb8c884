"""The tokenizer of a checkpoint, as its `tokenizer.json` has it, with a template of one date.

transformers 5 keeps only the vocabulary and the merges of that file where `tokenizer_config.json`
or the model's type names a class. The class brings its own pre-tokenizer and decoder: Llama's, over
the byte-level file of a Llama 3, loses spaces and newlines.
"""

from pathlib import Path
from typing import Any

from pipeline import manifest
from pipeline.console import say
from pipeline.errors import UserError
from pipeline.models import template_date
from pipeline.models.checkpoints import loading, tokenizer_path

NAME = "tokenizer.json"
# What pre-tokenizers, normalizers and decoders treat differently: white space before digits too.
PROBE = (
    "Steps:\n\n1. 120 + 45 = 165,  2 of 1,234.5 < 20231\n   3 + 4·√2 = ½.\n\nIt's I'LL, they've; "
    "DON'T  stop.\r\n\tdef f(x_1):\n        return x_1**2  # naïve café, 数学, 🙂\n\n\n\\boxed{5}\n"
)
# Attributes that a tokenizer must have -> what is said where it has not. Rows of messages need a
# template, raw prompts do not: `pipeline.prompts` says so as it renders them.
NEEDS = {
    "chat_template": (
        "has no chat_template; put a chat_template.jinja there (SFT also takes "
        "chat_template_path), or use an instruct checkpoint"
    ),
    "eos_token": (
        "has no eos_token; set it in its tokenizer_config.json, or use an instruct checkpoint"
    ),
}


def find(path: str, revision: str | None = None, local_files_only: bool = False) -> Path | None:
    """The `tokenizer.json` of a folder or hub id; None where there is none."""
    from transformers.utils import cached_file

    found = cached_file(
        path,
        NAME,
        revision=revision,
        local_files_only=local_files_only,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return Path(found) if found else None


def reads_as(tokenizer: Any, file: Path) -> bool:
    """Whether a loaded tokenizer encodes and decodes `PROBE` as its file does."""
    from tokenizers import Tokenizer

    written = Tokenizer.from_file(str(file))
    written.no_truncation()
    written.no_padding()
    ids = written.encode(PROBE, add_special_tokens=False).ids
    if tokenizer(PROBE, add_special_tokens=False)["input_ids"] != ids:
        return False
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    return text == written.decode(ids, skip_special_tokens=False)


def as_written(tokenizer: Any, path: str, key: str, **kwargs: Any) -> tuple[Any, str]:
    """A tokenizer that reads text as its file does, and what `AutoTokenizer` does instead or "".

    Args:
        tokenizer: what `AutoTokenizer` has loaded from `path`. One of the folder's own code stays.
        key: the YAML key, for the message.
        kwargs: the arguments of `from_pretrained`.
    """
    from transformers import PreTrainedTokenizerFast

    kwargs.pop("trust_remote_code", None)
    is_own_code = not type(tokenizer).__module__.startswith("transformers.")
    if is_own_code or not tokenizer.is_fast:
        return tokenizer, ""
    file = find(path, kwargs.get("revision"), kwargs.get("local_files_only", False))
    if file is None or reads_as(tokenizer, file):
        return tokenizer, ""
    written = PreTrainedTokenizerFast.from_pretrained(path, **kwargs)
    if not reads_as(written, file):
        raise UserError(
            f"{key}: {path}: transformers splits text otherwise than its {NAME}; copy {NAME} and "
            "tokenizer_config.json of the model again"
        )
    return written, f"AutoTokenizer ({type(tokenizer).__name__}) splits text otherwise than {NAME}"


def open_tokenizer(checkpoint: str, key: str, **kwargs: Any) -> tuple[Any, str]:
    """Load a tokenizer, which reads text as its `tokenizer.json` does, and prints one date.

    Returns:
        The tokenizer, and what `AutoTokenizer` does instead, "" where it does the same.
    """
    from transformers import AutoTokenizer

    kwargs.setdefault("trust_remote_code", False)  # else transformers asks on the terminal
    path = str(tokenizer_path(checkpoint))
    if path.startswith((".", "/")) and not Path(path).exists():  # no name that the hub may know
        raise UserError(f"{key}: {checkpoint} is not there; make this folder, or name another")
    with loading("tokenizer", checkpoint, key):
        tokenizer = AutoTokenizer.from_pretrained(path, **kwargs)
        tokenizer, difference = as_written(tokenizer, path, key, **kwargs)
    tokenizer.chat_template = template_date.fix(tokenizer.chat_template)
    return tokenizer, difference


def load_tokenizer(
    checkpoint: str, key: str, needs: tuple[str, ...] = ("eos_token",), **kwargs: Any
) -> Any:
    """Load the tokenizer of a model folder, adapter folder or hub id.

    Args:
        key: the YAML key that names the checkpoint, for messages.
        needs: attributes that it must have, of `NEEDS`.
    """
    tokenizer, difference = open_tokenizer(checkpoint, key, **kwargs)
    if difference:
        say(f"{key}: {checkpoint}: {difference}; {NAME} is used")
    for need in needs:
        if not getattr(tokenizer, need):
            raise UserError(f"{key}: the tokenizer of {checkpoint} {NEEDS[need]}")
    return tokenizer


def load_template(path: str) -> str:
    """The chat template of a jinja file, or of the tokenizer of a folder or hub id; of one date."""
    key = "chat_template_path"
    if Path(path).is_file():
        try:
            return template_date.fix(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise UserError(f"{key}: {path} is not text ({error}); give a jinja file") from error
    return load_tokenizer(path, key, ("chat_template",)).chat_template


def trained_tokenizer(start: str, template: str | None, result: str) -> str:
    """Whose tokenizer the training stages of a recipe use, `start`'s or that of SFT's `result`.

    They are the same, but for a result of another recipe than today's. It is taken where the start
    is a hub id, which need not be on this machine.

    Args:
        start: the model that the first training stage starts from; template: what it adds.
        result: the model that the last one starts from.
    """
    if Path(start).is_dir() or not Path(result, "tokenizer_config.json").is_file():
        return start
    made = manifest.read(Path(result))
    config = made["config"] if made else {}
    is_of_start = config.get("model_name_or_path") == start
    is_current = is_of_start and config.get("chat_template_path") == template
    return result if made is None or is_current else start
