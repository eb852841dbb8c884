"""The key that a refusal names, and settings from a plain mapping."""

import json
import re

from pipeline.errors import UserError
from stages.arguments import GRPO, SFT, GrpoArguments, SftArguments
from tests.settings import settings_of


def grpo(values):
    return settings_of({"train_file": "f"} | values, GrpoArguments, GRPO)


def sft(values):
    return settings_of({"train_file": "f"} | values, SftArguments, SFT)


def named(call, *args):
    """What stands before the colon of the one line that refuses; None where nothing is refused."""
    try:
        call(*args)
    except (UserError, ValueError) as error:
        assert "\n" not in str(error)
        return re.sub(r"^(recipe|command line|\S+\.yaml): ", "", str(error)).partition(":")[0]
    return None


NO_TENSORS = "\2" + 7 * "\0" + "{}"  # a whole file of safetensors


def write_model(folder, files=None):
    """A folder with all the files of a model, empty; `files`: others, None for one to leave out."""
    tokenizer = {"chat_template": "x", "eos_token": "a"}
    whole = {"config.json": {}, "model.safetensors": NO_TENSORS, "tokenizer.json": {}}
    whole |= {"tokenizer_config.json": tokenizer} | (files or {})
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in whole.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text)
