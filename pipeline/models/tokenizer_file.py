"""A tokenizer as its `tokenizer.json` has it.

transformers 5 keeps only the vocabulary and the merges of that file where `tokenizer_config.json`
or the model's type names a class. The class brings its own pre-tokenizer and decoder: Llama's, over
the byte-level file of a Llama 3, loses spaces and newlines.
"""

from pathlib import Path
from typing import Any

from pipeline.errors import UserError

NAME = "tokenizer.json"
# What pre-tokenizers, normalizers and decoders treat differently: white space before digits too.
PROBE = (
    "Steps:\n\n1. 120 + 45 = 165,  2 of 1,234.5 < 20231\n   3 + 4·√2 = ½.\n\nIt's I'LL, they've; "
    "DON'T  stop.\r\n\tdef f(x_1):\n        return x_1**2  # naïve café, 数学, 🙂\n\n\n\\boxed{5}\n"
)


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
