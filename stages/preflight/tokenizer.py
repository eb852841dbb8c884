"""Check tokenizer and chat template for faults that spoil a run, without weights or network."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.console import quiet
from pipeline.errors import UserError
from pipeline.models import template_date
from pipeline.models.checkpoints import MODEL_STAGES, check_vocabulary, read_json, tokenizer_path
from pipeline.models.tokenizer import load_template, open_tokenizer, trained_tokenizer
from pipeline.models.weights import check_tokens
from pipeline.prompts import PROMPTS, THINK_CLOSE, THINK_OPEN, build_prompt, left_out
from stages.preflight import inputs
from stages.preflight.inputs import ERROR, LACKING, OK, UNCHECKED, WARNING, Finding, Recipe
from stages.preflight.narrow import asks_for_raw_prompts

TOPIC = "tokenizer"
ENDS = {"eos_token_id?": (int, [int], None)}  # of a generation_config.json
TEXT = "<think>\n3 + 4·√2 = ½, 1,234.5 ≤ x\n</think>\n\n\\boxed{\\frac{1}{2}}"
MARK = "the answer is 42"


def load(recipe: Recipe) -> tuple[Any, list[Finding]]:
    """Load the tokenizer of `--tokenizer`, or of the model that will be trained."""
    first = next((recipe.model(stage) for stage in recipe.stages()), None)
    template = getattr(recipe.settings.get("sft"), "chat_template_path", None)
    made = recipe.settings.get("grpo", LACKING).get("model_name_or_path")
    name = recipe.args.tokenizer or (first and trained_tokenizer(first, template, made or first))
    if name is None:
        return None, []
    quiet()
    try:
        if Path(name).is_dir():
            check_vocabulary(Path(tokenizer_path(name)), TOPIC)
        tokenizer, difference = open_tokenizer(name, "tokenizer", local_files_only=True)
        if template:
            tokenizer.chat_template = load_template(template)
        return tokenizer, [check_file(name, difference)]
    except UserError as error:
        if any(Path(name).glob("tokenizer*")):
            return None, [inputs.from_error(TOPIC, error)]
    if not recipe.args.tokenizer and inputs.is_own_folder(recipe, name):
        return None, []  # `check_inputs` tells what is wrong with it
    remedy = "TOKENIZER=FOLDER names a folder with its tokenizer"
    if name.startswith(recipe.run) and Path(name).name in MODEL_STAGES:
        remedy = f"make {Path(name).name} builds it; or {remedy}"
    text = f"{name} is not on this machine: template, end token and lengths"
    return None, [Finding(UNCHECKED, TOPIC, text, remedy)]


def check_tokenizer(recipe: Recipe, tokenizer: Any) -> Iterator[Finding]:
    """Check a loaded tokenizer, and the generation config in its folder."""
    raw = [asks_for_raw_prompts(recipe.args.recipe, stage) for stage in recipe.stages()]
    if not tokenizer.chat_template and not (raw and all(raw)):
        text = "no chat template: prompts cannot be rendered"
        where = "set chat_template_path in sft.yaml"
        if "sft" not in recipe.settings:
            where = (
                "give it another model's by `python examples/chat_template.py BASE OTHER FOLDER`"
            )
        remedy = f"{where}, or use an instruct checkpoint"
        yield Finding(ERROR, TOPIC, text, remedy)
        return
    if tokenizer.eos_token_id is None:
        yield Finding(ERROR, TOPIC, "no EOS: no completion would ever end", "set eos_token")
        return
    yield check_pad(tokenizer)
    yield check_round_trip(tokenizer)
    shape = recipe.known_shape(next(iter(recipe.stages()), "sft"))
    if num_rows := shape.get("text_config", shape).get("vocab_size"):
        yield from inputs.attempt(TOPIC, check_tokens, tokenizer, num_rows, TOPIC)
    # TRL generates to the generation config's ends, else to the tokenizer's own.
    config = read_json(Path(tokenizer.name_or_path, "generation_config.json"), TOPIC, ENDS)
    ends = config.get("eos_token_id", tokenizer.eos_token_id)
    ends = {*ends} if isinstance(ends, list) else {ends}
    if not tokenizer.chat_template:
        yield Finding(OK, "template", "none is needed: prompts go in as they are")
        return
    stages = [recipe.settings[name] for name in ("data", "eval") if name in recipe.settings]
    names = dict.fromkeys(getattr(values, "prompt", "none") for values in stages)
    for name in [name for name in names if name in PROMPTS] or ["none"]:
        messages = build_prompt("What is 6 x 7?", name)
        try:
            prompt = render(tokenizer, messages)
        except Exception as error:  # jinja's own errors, or any that a template raises
            text = f"the template refuses prompt: {name} ({error})"
            remedy = "prompt: none in data.yaml and eval.yaml"
            if name == "none":
                remedy = "fix it"
                if "sft" in recipe.settings:
                    remedy += ", or give SFT another with chat_template_path"
            yield Finding(ERROR, "template", text, remedy)
            continue
        yield from check_prompt(tokenizer, messages, prompt)
        yield check_think(recipe, prompt, name)
        yield from check_turn(tokenizer, messages, ends, "sft" in recipe.settings)


def render(tokenizer: Any, messages: list[dict], start: bool = True) -> str:
    """Messages as text; `start` opens the assistant's turn."""
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=start)


def check_file(name: str, difference: str) -> Finding:
    """Find a tokenizer that other programs would load otherwise; `difference`: in what."""
    if not difference:
        return Finding(OK, TOPIC, "text is split as tokenizer.json says")
    remedy = "load it with PreTrainedTokenizerFast in other programs; the stages do"
    return Finding(WARNING, TOPIC, f"{name}: {difference}", remedy)


def check_pad(tokenizer: Any) -> Finding:
    """Find a tokenizer that pads with its EOS."""
    if tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
        text = f"pad_token is eos_token ({tokenizer.eos_token!r}): masks by id drop the end, too"
        return Finding(WARNING, TOPIC, text, "give the tokenizer a pad_token of its own")
    return Finding(OK, TOPIC, f"EOS {tokenizer.eos_token!r} and pad {tokenizer.pad_token!r} differ")


def check_round_trip(tokenizer: Any) -> Finding:
    """Find text that encoding and decoding changes."""
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    back = tokenizer.decode(ids, skip_special_tokens=True)
    if back == TEXT:
        return Finding(OK, TOPIC, "text, tags and mathematics survive a round trip")
    if THINK_OPEN not in back or THINK_CLOSE not in back:
        text = "decoding drops <think> or </think> (special tokens): the format reward is always 0"
        return Finding(ERROR, TOPIC, text, "add the tags as tokens with special=False")
    remedy = "check normalizer, byte fallback and clean_up_tokenization_spaces"
    return Finding(ERROR, TOPIC, f"a round trip changes {TEXT!r} to {back!r}", remedy)


def check_prompt(tokenizer: Any, messages: list[dict], prompt: str) -> Iterator[Finding]:
    """Check what the template makes of a prompt."""
    if role := left_out(messages, prompt):
        text = f"the template leaves out the {role} message"
        yield Finding(ERROR, "template", text, "choose another prompt, or another template")
    if template_date.is_fixed(tokenizer.chat_template):
        date = template_date.DATE.strftime("%d %B %Y")
        text = f"the template writes today's date: all stages, and what they save, write {date}"
        yield Finding(WARNING, "template", text, "for another date write that into the template")
    if render(tokenizer, messages, start=False) == prompt:
        text = "the template ignores add_generation_prompt: a prompt does not open the answer"
        remedy = "let it write the assistant's heading where it is set"
        yield Finding(WARNING, "template", text, remedy)
    ids, bos = tokenizer(prompt, add_special_tokens=False)["input_ids"], tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        text = f"the template writes {tokenizer.bos_token!r} twice"
        yield Finding(ERROR, "template", text, "remove one from it")
    begins = bos is not None and tokenizer(MARK)["input_ids"][:1] == [bos]
    if begins and ids[:1] != [bos]:
        text = f"prompts lack {tokenizer.bos_token!r}, which the tokenizer puts before other text"
        yield Finding(WARNING, "template", text, "let the template begin with {{ bos_token }}")


def check_think(recipe: Recipe, prompt: str, name: str) -> Finding:
    """Check that prompt, data and reward agree on who writes `<think>`."""
    grpo = recipe.settings.get("grpo")
    names = grpo.reward_funcs if grpo is not None else []
    wanted = next((name for name in names if name.endswith("think_format_reward")), None)
    if prompt.rstrip().endswith(THINK_CLOSE):
        text = "the template closes the thought (</think>) before the model writes"
        remedy = f"use the template's thinking mode, or take {wanted or 'think_format_reward'} out"
        return Finding(ERROR if wanted else WARNING, "think", text, remedy)
    if prompt.rstrip().endswith(THINK_OPEN):
        text = "the template opens <think>: SFT leaves it off, the reward counts it as written"
        return Finding(OK, "think", text)
    asks = THINK_OPEN in "".join(message["content"] for message in build_prompt("", name))
    if wanted and not asks and "sft" not in recipe.settings:
        text = f"{wanted} wants <think>, and neither template nor prompt asks for it"
        remedy = "prompt: think, a template that opens <think>, or another reward"
        return Finding(WARNING, "think", text, remedy)
    return Finding(OK, "think", "the model writes <think> itself")


def check_turn(
    tokenizer: Any, messages: list[dict], ends: set[int], has_sft: bool
) -> list[Finding]:
    """Check how the template renders an answer; `ends` are the ids that end a generation."""
    answer = f"{THINK_OPEN}\nsix times seven\n{THINK_CLOSE}\n\n{MARK}"
    turns = render(tokenizer, [*messages, {"role": "assistant", "content": answer}], start=False)
    found, eos, is_end = [], tokenizer.eos_token, tokenizer.eos_token_id in ends

    def add(level: str, text: str, remedy: str, topic: str = "template") -> None:
        found.append(Finding(level, topic, text, remedy))

    if not is_end:
        names = ", ".join(map(repr, tokenizer.convert_ids_to_tokens(sorted(ends))))
        text = f"SFT ends rows with {eos!r}, generation_config.json ends at {names}"
        add(ERROR, text, "make eos_token one of the generation config's eos_token_id")
    end = turns.rpartition(MARK)[2]
    ids, end = tokenizer(end, add_special_tokens=False)["input_ids"], end.strip()
    says = f"the template ends a turn with {end!r}"
    if not end:
        text = f"the template ends no turn; the stages add {eos!r} themselves"
        add(WARNING, text, "let it write the EOS after each turn")
    elif not {*ids} & {*ends, tokenizer.eos_token_id}:
        if has_sft and is_end:  # as in Qwen2.5's base models, whose EOS is <|endoftext|>
            text = f"{says}, which ends no generation; SFT teaches {eos!r}, which does"
            add(WARNING, text, f"eos_token: {end!r} only if it has to stop in other chats as well")
        else:
            remedy = f"set eos_token to {end!r}, in tokenizer and generation config"
            add(ERROR, f"{says}, which ends no generation", remedy)
    elif tokenizer.eos_token_id not in ids:
        add(WARNING, f"{says}, SFT with {eos!r}", f"eos_token: {end!r}")
    if "six times seven" not in turns:
        text = "the template strips <think> from answers; the stages render them themselves"
        remedy = "render with pipeline.prompts, as they do, wherever you train with other tools"
        add(WARNING, text, remedy, "think")
    return found or [Finding(OK, "template", f"turns end with {end!r}, which is the EOS")]
