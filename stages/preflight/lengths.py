"""Measure the built data in the recipe's own tokens, and compare with every limit."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.schema import check_row
from pipeline.prompts import render_completion, render_prompt
from pipeline.rows import read_rows
from pipeline.settings import Settings
from stages.preflight.inputs import ERROR, OK, UNCHECKED, WARNING, Finding, Recipe

ROWS = 1000  # of each file; a percentile of them is within 1.4 points at the 95th
MUCH, MOST = 0.01, 0.2  # share of rows over a limit that is worth a warning, or an error
COLUMNS = {"sft": ("prompt", "completion"), "grpo": ("prompt", "answers", "answer_form")}


def check_limits(recipe: Recipe) -> Iterator[Finding]:
    """Compare limits with each other and the model's positions; needs no data."""
    rooms = {}
    sft, grpo = recipe.settings.get("sft"), recipe.settings.get("grpo")
    if sft is not None:
        rooms["sft"] = ("max_length", sft.max_length or 0)
    if grpo is not None:
        completion = grpo.max_completion_length or 1
        room = (grpo.max_prompt_length or 0) + completion
        rooms["grpo"] = ("max_prompt_length + max_completion_length", room)
        for stage in ("eval", "difficulty"):
            new = getattr(recipe.settings.get(stage), "max_new_tokens", completion)
            if new < completion:
                text = f"max_new_tokens: {new} cuts what GRPO lets run to {completion:,}"
                remedy = f"max_new_tokens: {completion} or more"
                yield Finding(WARNING, f"{stage}.yaml", text, remedy)
    for stage, (key, room) in rooms.items():
        if room > (most := recipe.known_shape(stage).get("max_position_embeddings", room)):
            text = f"{key}: {room:,} is above the model's {most:,} positions"
            yield Finding(ERROR, f"{stage}.yaml", text, f"{key}: {most} or less")


def check_samples(recipe: Recipe, longest: dict[str, int]) -> Iterator[Finding]:
    """Find a stage that samples completions longer than the model's context leaves room for.

    `longest`: of `check_lengths`. Pass rates are of GRPO's problems, so their prompts are known.
    """
    for stage in ("difficulty", "eval"):
        if stage in recipe.settings:
            # The stages share the model's architecture; eval names several checkpoints.
            shape = recipe.known_shape("difficulty" if stage == "difficulty" else "grpo")
            prompt = longest.get("grpo", 1) if stage == "difficulty" else 1
            yield from find_no_room(stage, recipe.settings[stage], shape, prompt)


def find_no_room(
    stage: str, settings: Settings, shape: dict[str, Any], prompt: int = 1
) -> Iterator[Finding]:
    """An error where `max_new_tokens` behind a prompt exceeds the context that a stage has.

    Args:
        shape: the model's config.json; empty where it is not known.
        prompt: tokens of the longest prompt that is known.
    """
    contexts = {"the model's positions": shape.get("max_position_embeddings")}
    if settings.backend == "vllm":
        contexts["vllm_max_model_length"] = settings.vllm_max_model_length
    for name, most in contexts.items():
        if most is not None and settings.max_new_tokens + prompt > most:
            text = (
                f"max_new_tokens: {settings.max_new_tokens:,} and a prompt of {prompt:,} tokens "
                f"exceed {name}, {most:,}"
            )
            yield Finding(ERROR, f"{stage}.yaml", text, f"max_new_tokens: {most - prompt} or less")


def read_some(recipe: Recipe, stage: str) -> list[dict[str, Any]]:
    """About `ROWS` rows, evenly over the stage's file; none where it is not built."""
    path = recipe.settings[stage].get("train_file", "")
    if not Path(path).is_file():
        return []
    rows = list(read_rows(path))
    rows = rows[:: len(rows) // ROWS + 1]
    for where, row in rows:
        check_row(row, COLUMNS[stage], where)
    return [row for _, row in rows]


def check_lengths(recipe: Recipe, tokenizer: Any, longest: dict[str, int]) -> Iterator[Finding]:
    """Measure the data in tokens, by stage its `longest`; compare with the recipe's limits."""

    def count(texts: list[str]) -> list[int]:
        return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]

    for stage in recipe.stages():
        values, topic = recipe.settings[stage], f"{stage} lengths"
        rows = read_some(recipe, stage)
        if not rows:
            yield Finding(UNCHECKED, topic, "the data is not built", "make data RECIPE=…")
            continue
        texts = [render_prompt(row["prompt"], tokenizer) for row in rows]
        lengths = count(texts)
        longest[stage] = max(lengths)
        if stage == "grpo":
            limit = values.max_prompt_length
            why = "prompts over it: GRPO drops them"
            yield compare(topic, lengths, "max_prompt_length", limit, why, ERROR)
            continue
        pairs = zip(rows, texts, strict=True)
        texts = [render_completion(row["completion"], prompt) for row, prompt in pairs]
        written = [number + 1 for number in count(texts)]  # EOS
        lengths = [sum(pair) for pair in zip(lengths, written, strict=True)]
        longest[stage] = max(lengths)
        why = "rows over it: SFT drops them"
        yield compare(topic, lengths, "max_length", values.max_length, why, ERROR)
        if "grpo" in recipe.settings:
            room = recipe.settings["grpo"].max_completion_length
            why = "completions over it: SFT teaches them, GRPO cuts them off, without a reward"
            yield compare(topic, written, "max_completion_length", room, why, WARNING)


def compare(
    topic: str, lengths: Sequence[int], key: str, limit: int | None, over: str, worst: str
) -> Finding:
    """Show percentiles of lengths, in tokens; find where many are over the limit."""
    numbers = np.percentile(lengths, (50, 95, 99, 100), method="inverted_cdf").astype(int)
    text = "median {:,}, 95 % {:,}, 99 % {:,}, longest {:,} tokens".format(*numbers)
    share = sum(length > limit for length in lengths) / len(lengths) if limit is not None else 0
    text += f"; {key}: {limit}, {share:.1%} of {over}"
    if share <= MUCH:
        return Finding(OK, topic, text)
    level = worst if share > MOST else WARNING
    return Finding(level, topic, text, f"{key}: {numbers[2]} keeps 99 %")
