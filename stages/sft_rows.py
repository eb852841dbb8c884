"""SFT's rows as token ids: tokenized once, by the main process, and memory-mapped by every one.

    data.tokens/<key>/rows.arrow   input_ids and labels, 8 bytes a token
    data.tokens/<key>/about.json   what it was made from, its hash, and counts; written last

The key is a hash of the file, the tokenizer with its template, `max_length`, and the code that
renders and tokenizes. TRL puts its packed rows beside them. Rows are streamed on the way: neither
the file nor the ids are held in memory.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pyarrow
from accelerate.utils import broadcast_object_list
from datasets import Dataset

from data_prep.schema import check_row
from pipeline import json_files, manifest, prompts
from pipeline.console import say, tokenizers_on_all_cores
from pipeline.errors import UserError, size
from pipeline.prompts import render_completion, render_prompt
from pipeline.rows import read_rows
from stages.adapters import in_main

ROWS, ABOUT = "rows.arrow", "about.json"
IGNORED = -100  # the label of a token outside the loss
COLUMN = pyarrow.list_(pyarrow.int32())
SCHEMA = pyarrow.schema([("input_ids", COLUMN), ("labels", COLUMN)])
LONG_BYTES = 1 << 26  # of a file that takes long enough to say so
BATCH_CHARS = 1 << 20  # tokenized at a time; a tokenizer holds 100 bytes and more a token
VISIBLE_SECONDS = 60  # NFS may remember for a minute that a file was not there
LEFT_SECONDS = 24 * 3600  # after which what a kill has left is removed

Pair = tuple[list[int], list[int]]


class Limits(NamedTuple):
    """The longest row in tokens, and whether prompts are left out of the loss."""

    max_length: int | None
    completion_only_loss: bool


class SftRows(NamedTuple):
    """Tokenized rows of at most `max_length` tokens."""

    dataset: Dataset  # input_ids and labels
    num_tokens: int
    num_long: int  # longer ones, left out


def load(path: str, tokenizer: Any, sft: Any) -> SftRows:
    """The rows of a file, for every process of a launch; each must call it.

    Args:
        sft: the recipe's `SFTConfig`: `max_length`, `completion_only_loss`, `output_dir`.

    Raises:
        UserError: on every process, for a row that cannot be used, or where none is short enough.
    """
    limits = Limits(sft.max_length, bool(sft.completion_only_loss))
    found: list[Any] = [None, {}]

    def make_if_missing() -> None:
        found[:] = find_or_make(path, tokenizer, limits, folder_for(path, sft.output_dir))

    in_main(make_if_missing)
    place, about = broadcast_object_list(found)
    wait_for(place / ROWS, about["bytes"])
    return SftRows(Dataset.from_file(str(place / ROWS)), about["tokens"], about["over_max_length"])


def folder_for(path: str, output_dir: str) -> Path:
    """Where the ids of a file are kept: beside the stage's folder that it is in, else `output_dir`.

    The runs of a sweep share their recipe's data, and so its ids.
    """
    data = Path(path).absolute().parent
    if manifest.read(data) and os.access(data.parent, os.W_OK):
        return data.with_name(f"{data.name}.tokens")
    place = Path(output_dir).absolute()
    return place.with_name(f"{place.name}.tokens")


def wait_for(file: Path, num_bytes: int) -> None:
    """Wait until another host's file is there as a whole."""
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not file.is_file() or file.stat().st_size != num_bytes:
        if time.monotonic() > deadline:
            raise UserError(
                f"output_dir: {file} is not shared; all hosts must share the run's folder "
                "(--run_dir) at the same path"
            )
        time.sleep(0.1)


def find_or_make(
    path: str, tokenizer: Any, limits: Limits, folder: Path
) -> tuple[Path, dict[str, Any]]:
    """The place of a file's ids and its `about.json`; made where it is missing or damaged."""
    source = {"source": str(Path(path).resolve()), "sha256": manifest.sha256(path)}
    place = folder / fingerprint(source["sha256"], tokenizer, limits)
    about = read_about(place)
    if about is None:
        folder.mkdir(parents=True, exist_ok=True)
        num_bytes = Path(path).stat().st_size
        if num_bytes > LONG_BYTES:
            say(f"sft: tokenizing {path} ({size(num_bytes)}) once, into {place}")
        remove_old(folder, source)
        about = make(path, tokenizer, limits, place, source)
    return place, about


def fingerprint(file_hash: str, tokenizer: Any, limits: Limits) -> str:
    """A name that changes with everything that decides the ids."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        files = sorted(one for one in Path(folder).rglob("*") if one.is_file())
        names = {str(one.relative_to(folder)): manifest.sha256(one) for one in files}
    code = [manifest.sha256(str(one)) for one in (__file__, prompts.__file__)]
    versions = manifest.versions(("transformers", "tokenizers"))
    parts = json.dumps([file_hash, names, limits, code, versions], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def read_about(place: Path) -> dict[str, Any] | None:
    """`about.json` of whole and undamaged ids, None for any other."""
    shape = {"rows_sha256": str, "bytes": int, "tokens": int, "over_max_length": int}
    try:
        about = json_files.read(place / ABOUT, shape, "")
    except (OSError, ValueError):
        return None
    return about if manifest.is_as(place / ROWS, about["rows_sha256"]) else None


def remove_old(folder: Path, source: dict[str, str]) -> None:
    """Remove what is a day old: ids of earlier contents of the file, and what a kill has left."""
    for one in folder.glob(f"*{manifest.PARTIAL}"):
        if manifest.is_older(one, LEFT_SECONDS):
            shutil.rmtree(one, ignore_errors=True)
    for one in folder.glob(f"*/{ABOUT}"):
        if not manifest.is_older(one, LEFT_SECONDS):
            continue  # a run may have them mapped
        with contextlib.suppress(OSError, ValueError):
            made = json_files.read(one, {"source": str, "sha256": str}, "")
            if made["source"] == source["source"] and made["sha256"] != source["sha256"]:
                shutil.rmtree(one.parent, ignore_errors=True)


def make(
    path: str, tokenizer: Any, limits: Limits, place: Path, source: dict[str, str]
) -> dict[str, Any]:
    """Tokenize a file into a folder of its own, which takes its place when it is whole.

    Two starts at once both write; the second finds the place taken by the same ids.
    """
    work = place.with_name(f"{place.name}.{uuid.uuid4().hex}{manifest.PARTIAL}")
    work.mkdir()
    try:
        with tokenizers_on_all_cores():
            num_tokens, num_long = write(path, tokenizer, limits, work / ROWS)
        if not num_tokens:
            raise UserError(
                f"max_length: {limits.max_length} is shorter than every row of {path}; raise it"
            )
        about = source | {
            "rows_sha256": manifest.sha256(work / ROWS),
            "bytes": (work / ROWS).stat().st_size,
            "tokens": num_tokens,
            "over_max_length": num_long,
        }
        manifest.write_json(work / ABOUT, about)
        if read_about(place) is None:
            shutil.rmtree(place, ignore_errors=True)
            manifest.put_in_place(work, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return about


def write(path: str, tokenizer: Any, limits: Limits, file: Path) -> tuple[int, int]:
    """Write a file's rows of at most `max_length` tokens; the numbers of tokens and longer rows."""
    max_length = limits.max_length
    num_tokens = num_long = 0
    with file.open("wb") as target, pyarrow.ipc.new_stream(target, SCHEMA) as writer:
        for rows in batches(path, tokenizer):
            pairs = tokenize(rows, tokenizer)
            short = [pair for pair in pairs if not max_length or sum(map(len, pair)) <= max_length]
            num_long += len(pairs) - len(short)
            num_tokens += sum(len(part) for pair in short for part in pair)
            writer.write_batch(to_arrow(short, limits.completion_only_loss))
        target.flush()
        os.fsync(target.fileno())
    return num_tokens, num_long


def batches(path: str, tokenizer: Any) -> Iterator[list[dict[str, Any]]]:
    """The rows of a file, about `BATCH_CHARS` of completions at a time."""
    ends = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token} - {None}
    rows, num_chars = [], 0
    for where, row in read_rows(path):
        check_row(row, ("prompt", "completion"), where)
        check_completion(row["completion"], ends, where)
        rows.append(row)
        num_chars += len(row["completion"])
        if num_chars >= BATCH_CHARS:
            yield rows
            rows, num_chars = [], 0
    if rows:
        yield rows


def check_completion(completion: str, ends: set[str], where: str) -> None:
    """Refuse a blank completion, and one whose text becomes the token of a beginning or an end."""
    if not completion.strip():
        raise UserError(f"{where}: completion: is blank; write it, or remove the row")
    for token in ends:
        if token in completion:
            raise UserError(
                f"{where}: completion: has the text {token!r}, which becomes the token itself; "
                "remove it (SFT adds the EOS)"
            )


def tokenize(rows: list[dict[str, Any]], tokenizer: Any) -> list[Pair]:
    """For each row the ids of its prompt, and those of its completion and EOS."""
    prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
    completions = [
        render_completion(row["completion"], prompt)
        for row, prompt in zip(rows, prompts, strict=True)
    ]
    # The template wrote its own special tokens: adding BOS again would double it.
    options = {"add_special_tokens": False, "return_attention_mask": False}
    prompt_ids = tokenizer(prompts, **options)["input_ids"]
    completion_ids = tokenizer(completions, **options)["input_ids"]
    return [
        (before, [*after, tokenizer.eos_token_id])
        for before, after in zip(prompt_ids, completion_ids, strict=True)
    ]


def to_arrow(pairs: list[Pair], completion_only_loss: bool = True) -> pyarrow.RecordBatch:
    """Rows with `input_ids`, and `labels` that are `IGNORED` on the prompt, or the same."""
    lengths = [len(before) + len(after) for before, after in pairs]
    ids = numpy.empty(sum(lengths), numpy.int32)
    labels = numpy.full(sum(lengths), IGNORED, numpy.int32)
    at = 0
    for before, after in pairs:
        middle, end = at + len(before), at + len(before) + len(after)
        ids[at:middle] = before
        ids[middle:end] = labels[middle:end] = after
        at = end
    if not completion_only_loss:
        labels = ids
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32)
    columns = [pyarrow.ListArray.from_arrays(offsets, values) for values in (ids, labels)]
    return pyarrow.record_batch(columns, schema=SCHEMA)
