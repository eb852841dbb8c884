"""The audit's look at prompts: whether a template renders all of a prompt, and what fits where.

The golds (`audit_checks`) tell what becomes of a completion. What a model is never shown, and
what is dropped or cut for its length, they cannot tell.
"""

from collections.abc import Sequence
from typing import Any

from data_prep.config import UserError
from data_prep.prompts import render_completion, render_prompt
from eval.audit.audit_inputs import Recipe
from eval.audit.audit_page import percent
from eval.harness.arguments import EvalArguments


def render_prompts(rows: Sequence[dict], tokenizer: Any) -> list[str]:
    """The text of each row's prompt.

    Raises:
        UserError: the template refuses the messages, as some do any system message.
    """
    from jinja2 import TemplateError

    try:
        return [render_prompt(row["prompt"], tokenizer) for row in rows]
    except TemplateError as error:
        roles = ", ".join(message["role"] for message in rows[0]["prompt"])
        raise UserError(
            f"chat_template: refuses messages of {roles}: {error}; "
            "choose another system_prompt in data.yaml and eval.yaml, or another checkpoint"
        ) from error


def prompt_fault(name: str, row: dict, prompt: str, recipe: Recipe, settings: EvalArguments) -> str:
    """What is wrong with a rendered prompt of the set `name`, or nothing."""
    for message in row["prompt"]:
        if message["content"].strip() not in prompt:  # templates strip contents
            return f"the template leaves out the {message['role']} message"
    tokenizer = recipe.tokenizer
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    start = tokenizer.bos_token_id
    if start is not None and ids[:2] == [start, start]:
        return f"the template writes {tokenizer.bos_token!r} twice"
    room = _room_after(name, len(ids), recipe, settings)
    if recipe.context is not None and len(ids) + room > recipe.context:
        return (
            f"a prompt of {len(ids)} tokens and {room} new ones exceed the model's context of "
            f"{recipe.context}"
        )
    return ""


def _room_after(name: str, length: int, recipe: Recipe, settings: EvalArguments) -> int:
    """The tokens that may follow a prompt; 0 where nothing is generated after it."""
    if name in settings.tasks:
        return settings.max_new_tokens
    if recipe.grpo is None or name != "grpo_train":
        return 0
    limit = recipe.grpo.max_prompt_length
    is_dropped = limit is not None and length > limit
    return 0 if is_dropped else recipe.config.max_completion_length or 0


def shares_that_fit(name: str, rows: Sequence[dict], recipe: Recipe) -> list[str]:
    """A line for each limit of the recipe that some of the training rows exceed."""

    def count(text: str) -> int:
        return len(recipe.tokenizer(text, add_special_tokens=False)["input_ids"])

    prompts = [render_prompt(row["prompt"], recipe.tokenizer) for row in rows]
    limits: list[tuple[str, list[int], int | None, str]] = []
    if name == "grpo_train" and recipe.grpo:
        lengths = [count(prompt) for prompt in prompts]
        limit = recipe.grpo.max_prompt_length
        limits.append(("prompts fit max_prompt_length", lengths, limit, "GRPO drops the others"))
    if name == "sft_train" and recipe.sft_config:
        written = [
            count(render_completion(row["completion"], prompt)) + 1
            for row, prompt in zip(rows, prompts, strict=True)
        ]
        whole = [count(prompt) + more for prompt, more in zip(prompts, written, strict=True)]
        limit = recipe.sft_config.max_length
        limits.append(("rows fit sft.yaml's max_length", whole, limit, "SFT drops the others"))
        if recipe.grpo:
            limit = recipe.config.max_completion_length
            why = "a model that learns to write the others is cut off there"
            limits.append(("completions fit GRPO's max_completion_length", written, limit, why))
    found = []
    for what, lengths, limit, why in limits:
        fits = sum(length <= limit for length in lengths) / len(lengths) if limit else 1.0
        if fits < 1:
            found.append(f"{name}: {percent(fits)} % of its {what} {limit}: {why}")
    return found


def differing_systems(sets: dict[str, list[dict]]) -> str | None:
    """A line where training and evaluation do not ask in the same words."""
    systems: dict[str, list[str]] = {}
    for name, rows in sets.items():
        texts = {m["content"] for row in rows for m in row["prompt"] if m["role"] == "system"}
        shown = " and ".join(f"{text[:40]!r}…" for text in sorted(texts)) or "none"
        systems.setdefault(shown, []).append(name)
    if len(systems) < 2:
        return None
    parts = "; ".join(f"{', '.join(names)}: {shown}" for shown, names in systems.items())
    return f"the system prompts differ: {parts}"
