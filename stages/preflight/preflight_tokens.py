"""Preflight: tokenizer and chat template, without weights or network.

Each check is a function of a tokenizer; what they look for cost someone a run: a template that
strips the thought, an end token that generation does not know, a doubled BOS, a `<think>` that the
reward never sees.
"""

import json
import logging
from pathlib import Path
from typing import Any

from data_prep.prompts import SYSTEM_PROMPTS, THINK_CLOSE, THINK_OPEN, build_prompt
from stages.preflight.preflight_findings import ERROR, OK, UNCHECKED, WARNING, Finding, Recipe

TOPIC = "tokenizer"
TEXT = "<think>\n3 + 4·√2 = ½, 1,234.5 ≤ x\n</think>\n\n\\boxed{\\frac{1}{2}}"
MARK = "the answer is 42"


def load(recipe: Recipe) -> tuple[Any, list[Finding]]:
    """The tokenizer: `--tokenizer`, else a finished SFT's, else the first model's."""
    made = str(recipe.values.get("grpo.yaml", {}).get("model_name_or_path"))
    is_made = Path(made, "tokenizer_config.json").is_file()
    first = next((recipe.model(stage) for stage in recipe.stages()), None)
    name = recipe.tokenizer or (made if is_made else first)
    if name is None:
        return None, []
    from transformers import AutoTokenizer
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=True), []
    except Exception as error:  # whatever a broken or missing folder raises must not end the check
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if Path(name).is_dir():
            text = f"{name}: {type(error).__name__}: {reason}"
            level = ERROR if any(Path(name).glob("tokenizer*")) else UNCHECKED
            remedy = "save the model's tokenizer and config.json into the folder again"
            return None, [Finding(level, TOPIC, text, remedy)]
    remedy = "--tokenizer FOLDER (make: TOKENIZER=FOLDER) takes a folder with its tokenizer"
    if name.startswith(recipe.run):
        remedy = f"make base or make sft builds it; or {remedy}"
    text = f"{name} is not on this machine: template, end token and lengths"
    return None, [Finding(UNCHECKED, TOPIC, text, remedy)]


def check_tokenizer(recipe: Recipe, tokenizer: Any) -> list[Finding]:
    """All findings on a loaded tokenizer, and on the generation config beside it."""
    folder = tokenizer.name_or_path if Path(tokenizer.name_or_path).is_dir() else None
    if not tokenizer.chat_template:
        text = "no chat template: prompts cannot be rendered"
        remedy = "use an instruct checkpoint, or save one with a chat_template"
        return [Finding(ERROR, TOPIC, text, remedy)]
    if tokenizer.eos_token_id is None:
        return [Finding(ERROR, TOPIC, "no EOS: no completion would ever end", "set eos_token")]
    found = [*_pad(tokenizer), *_vocabulary(tokenizer, folder, recipe), *_round_trip(tokenizer)]
    prompts = {name: build_prompt("What is 6 x 7?", name) for name in _systems(recipe)}
    for system, messages in prompts.items():
        try:
            prompt = _render(tokenizer, messages)
        except Exception as error:  # jinja's own errors, or any that a template raises
            text = f"the template refuses system_prompt: {system} ({error})"
            remedy = "system_prompt: none in data.yaml and eval.yaml"
            found.append(Finding(ERROR, "template", text, remedy))
            continue
        found += _prompt(tokenizer, messages, prompt)
        found += _think(recipe, prompt, system)
        ends = end_ids(tokenizer, folder)
        found += _turn(tokenizer, messages, prompt, ends, "sft.yaml" in recipe.values)
    return found


def end_ids(tokenizer: Any, folder: str | None) -> set[int]:
    """The ids that end a generation: the generation config's, and the tokenizer's own for TRL."""
    ids: set[int] = set()
    path = Path(folder or "", "generation_config.json")
    if folder and path.is_file():
        try:
            value = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        except ValueError:
            value = None
        ids = set(value) if isinstance(value, list) else set() if value is None else {value}
    return ids or {tokenizer.eos_token_id}


def _systems(recipe: Recipe) -> list[str]:
    names = [
        recipe.values.get(file, {}).get("system_prompt", "none")
        for file in ("data.yaml", "eval.yaml")
        if file in recipe.values
    ]
    return list(dict.fromkeys(name for name in names if name in SYSTEM_PROMPTS)) or ["none"]


def _render(tokenizer: Any, messages: list[dict], start: bool = True) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=start)


def _pad(tokenizer: Any) -> list[Finding]:
    if tokenizer.pad_token_id is None:
        return [Finding(WARNING, TOPIC, "no pad token: EOS pads", "give the tokenizer a pad_token")]
    if tokenizer.pad_token_id == tokenizer.eos_token_id:
        text = f"pad_token is eos_token ({tokenizer.eos_token!r}): tools that mask padding by id"
        remedy = "give the tokenizer a pad_token of its own"
        return [Finding(WARNING, TOPIC, f"{text} take the loss off the end as well", remedy)]
    text = f"EOS {tokenizer.eos_token!r} and pad {tokenizer.pad_token!r} differ"
    return [Finding(OK, TOPIC, text)]


def _vocabulary(tokenizer: Any, folder: str | None, recipe: Recipe) -> list[Finding]:
    from stages.preflight.model_shapes import SHAPES

    path = Path(folder or "", "config.json")
    size = None
    if folder and path.is_file():
        try:
            size = json.loads(path.read_text(encoding="utf-8")).get("vocab_size")
        except ValueError:
            return [Finding(ERROR, TOPIC, f"{path}: no JSON", "save the model's config again")]
    for stage in recipe.stages():
        size = size or SHAPES.get(str(recipe.model(stage)), {}).get("vocab_size")
    if size and len(tokenizer) > size:
        text = f"{len(tokenizer):,} tokens, but the model's embedding has {size:,} rows"
        return [Finding(ERROR, TOPIC, text, "use the tokenizer that belongs to the model")]
    return []


def _round_trip(tokenizer: Any) -> list[Finding]:
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    back = tokenizer.decode(ids, skip_special_tokens=True)
    if back == TEXT:
        return [Finding(OK, TOPIC, "text, tags and mathematics survive a round trip")]
    if THINK_OPEN not in back or THINK_CLOSE not in back:
        text = "decoding drops <think> or </think> (special tokens): the format reward is always 0"
        return [Finding(ERROR, TOPIC, text, "add the tags as tokens with special=False")]
    where = next(
        (i for i, (a, b) in enumerate(zip(TEXT, back, strict=False)) if a != b),
        min(len(TEXT), len(back)),
    )
    text = f"a round trip changes {TEXT[where : where + 12]!r} to {back[where : where + 12]!r}"
    remedy = "check normalizer, byte fallback and clean_up_tokenization_spaces"
    return [Finding(ERROR, TOPIC, text, remedy)]


def _prompt(tokenizer: Any, messages: list[dict], prompt: str) -> list[Finding]:
    found = []
    for message in messages:
        if message["content"].strip() not in prompt:
            text = f"the template leaves out the {message['role']} message"
            remedy = "choose another system_prompt, or another template"
            found.append(Finding(ERROR, "template", text, remedy))
    if _render(tokenizer, messages) != prompt:
        text = "rendering twice gives two texts"
        found.append(Finding(ERROR, "template", text, "take what changes out of the template"))
    if "strftime_now" in str(tokenizer.chat_template):
        text = "the template writes today's date: prompts change from day to day"
        found.append(Finding(WARNING, "template", text, "set a fixed date in the template"))
    if _render(tokenizer, messages, start=False) == prompt:
        text = (
            "the template ignores add_generation_prompt: a prompt does not open the answer's turn"
        )
        remedy = "let it write the assistant's heading where add_generation_prompt is set"
        found.append(Finding(WARNING, "template", text, remedy))
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    start = tokenizer.bos_token_id
    if start is not None and ids[:2] == [start, start]:
        text = f"the template writes {tokenizer.bos_token!r} twice"
        found.append(Finding(ERROR, "template", text, "remove one from the template"))
    elif start is not None and ids[:1] == [start]:
        twice = tokenizer(prompt)["input_ids"][:2] == [start, start]
        text = f"the template writes {tokenizer.bos_token!r}"
        if twice:
            text += ", and tokenizing a rendered prompt again would double it (not done here)"
        found.append(Finding(OK, "template", text))
    return found


def _think(recipe: Recipe, prompt: str, system: str) -> list[Finding]:
    """Whether prompt, data and reward agree on who writes `<think>`."""
    values = recipe.values.get("grpo.yaml", {})
    funcs = values.get("reward_funcs", ["think_format_reward"])
    wants = "think_format_reward" in ([funcs] if isinstance(funcs, str) else funcs or [])
    end = prompt.rstrip()
    if end.endswith(THINK_CLOSE):
        level = ERROR if wants else WARNING
        text = "the template closes the thought (</think>) before the model writes"
        remedy = "use the template's thinking mode, or take think_format_reward out"
        return [Finding(level, "think", text, remedy)]
    if end.endswith(THINK_OPEN):
        text = "the template opens <think>: SFT leaves it off, the reward counts it as written"
        return [Finding(OK, "think", text)]
    asked = THINK_OPEN in SYSTEM_PROMPTS.get(system, "")
    if wants and not asked and "sft.yaml" not in recipe.values:
        text = (
            f"think_format_reward pays for <think>, but nothing asks for it: the template does not "
            f"open it, system_prompt: {system} does not name it, and there is no SFT"
        )
        remedy = "system_prompt: think, a template that opens <think>, or another reward"
        return [Finding(WARNING, "think", text, remedy)]
    return [Finding(OK, "think", "the model writes <think> itself")]


def _turn(
    tokenizer: Any, messages: list[dict], prompt: str, ends: set[int], has_sft: bool
) -> list[Finding]:
    """How the template renders an answer, beside what the stages train on: prompt, text, EOS."""
    answer = f"{THINK_OPEN}\nsix times seven\n{THINK_CLOSE}\n\n{MARK}"
    whole = _render(tokenizer, [*messages, {"role": "assistant", "content": answer}], start=False)
    found = []
    if tokenizer.eos_token_id not in ends:
        names = ", ".join(map(repr, tokenizer.convert_ids_to_tokens(sorted(ends))))
        text = f"SFT ends rows with {tokenizer.eos_token!r}, generation_config.json ends at {names}"
        remedy = "make eos_token one of the generation config's eos_token_id"
        found.append(Finding(ERROR, "template", text, remedy))
    tail = whole.rpartition(MARK)[2]
    ids = tokenizer(tail, add_special_tokens=False)["input_ids"]
    known = ends | {tokenizer.eos_token_id}
    if not tail.strip():
        text = f"the template ends no turn; the stages add {tokenizer.eos_token!r} themselves"
        found.append(Finding(WARNING, "template", text, "let it write the EOS after each turn"))
    elif not set(ids) & known and has_sft and tokenizer.eos_token_id in ends:
        # As in Qwen2.5's base models, whose EOS is <|endoftext|>.
        text = (
            f"the template ends a turn with {tail.strip()!r}, which ends no generation; SFT "
            f"teaches {tokenizer.eos_token!r}, which does"
        )
        remedy = f"eos_token: {tail.strip()!r} only if the model has to stop in other chats as well"
        found.append(Finding(WARNING, "template", text, remedy))
    elif not set(ids) & known:
        text = f"the template ends a turn with {tail.strip()!r}, which ends no generation"
        remedy = f"set eos_token to {tail.strip()!r}, in tokenizer and generation config"
        found.append(Finding(ERROR, "template", text, remedy))
    elif tokenizer.eos_token_id not in ids:
        text = f"the template ends a turn with {tail.strip()!r}, SFT with {tokenizer.eos_token!r}"
        found.append(Finding(WARNING, "template", text, f"eos_token: {tail.strip()!r}"))
    if "six times seven" not in whole:
        text = "the template strips <think> from answers; the stages render them themselves"
        remedy = "render with data_prep.prompts, as they do, wherever you train with other tools"
        found.append(Finding(WARNING, "think", text, remedy))
    elif not found and not whole.startswith(prompt) and not prompt.rstrip().endswith(THINK_OPEN):
        text = "a conversation does not start with the text of its prompt"
        remedy = "train with these stages, which render prompt and answer apart"
        found.append(Finding(WARNING, "template", text, remedy))
    if not found:
        found.append(Finding(OK, "template", f"turns end with {tail.strip()!r}, which is the EOS"))
    return found
