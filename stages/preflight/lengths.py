"""Measure the built data in the recipe's own tokens, and compare with every limit."""

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.build.recipe import check_source, find_file
from data_prep.config import Settings, UserError
from data_prep.prompts import render_completion, render_prompt
from data_prep.reading.rows import read_rows
from data_prep.schema import Problem, check_row, grpo_row, sft_row
from data_prep.sources.registry import BUILDERS
from stages.preflight.capacity import completion_room
from stages.preflight.inputs import ERROR, OK, UNCHECKED, WARNING, Finding, Recipe

ROWS = 1000  # of each file; a percentile of them is within 1.4 points at the 95th
MUCH, MOST = 0.01, 0.2  # share of rows over a limit that is worth a warning, or an error
COLUMNS = {"sft": ("prompt", "completion"), "grpo": ("prompt", "answers", "answer_form")}


def positions(recipe: Recipe, stage: str) -> int | None:
    """The positions that a stage's model has, where its shape is known."""
    try:
        return int(recipe.shape(stage)["max_position_embeddings"])
    except (UserError, KeyError, TypeError, ValueError):  # check_memory says so
        return None


def check_limits(recipe: Recipe) -> list[Finding]:
    """Compare limits with each other and the model's positions; needs no data."""
    found = []
    sft, grpo = recipe.settings.get("sft"), recipe.settings.get("grpo")
    limit = sft.max_length or 0 if sft is not None else 0
    if sft is not None and limit > (most := positions(recipe, "sft") or limit):
        text = f"max_length: {limit:,} is above the model's {most:,} positions"
        found.append(Finding(ERROR, "sft.yaml", text, f"max_length: {most}"))
    if grpo is None:
        return found
    completion, prompt = completion_room(grpo), grpo.max_prompt_length or 0
    room = completion + prompt
    if room > (most := positions(recipe, "grpo") or room):
        text = f"{prompt:,} of prompt + {completion:,} exceed {most:,} positions"
        key = "max_prompt_length" if prompt > completion else "max_completion_length"
        found.append(Finding(ERROR, "grpo.yaml", text, f"lower {key}"))
    for stage in ("eval", "difficulty"):
        new = getattr(recipe.settings.get(stage), "max_new_tokens", None)
        if new is not None and new < completion:
            text = f"max_new_tokens: {new} cuts completions that GRPO lets run to {completion:,}"
            remedy = f"max_new_tokens: {completion} or more"
            found.append(Finding(WARNING, f"{stage}.yaml", text, remedy))
    return found


def measure(recipe: Recipe, tokenizer: Any) -> dict[str, dict[str, list[int]]]:
    """Measure what data there is, in tokens: `{stage: {"prompt": […], "completion": […]}}`.

    Raises:
        UserError: a row cannot be read.
    """

    def count(texts: list[str]) -> list[int]:
        return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]

    found: dict[str, dict[str, list[int]]] = {}
    for stage in recipe.stages():
        values = recipe.settings[stage]
        rows = []
        if is_built(values):
            rows = read_some(values.train_file, ROWS, COLUMNS[stage])
        elif recipe.args.data_root and "data" in recipe.parsed:
            rows = raw_rows(recipe.settings["data"], stage, recipe.args.data_root)
        if not rows:
            continue
        try:
            prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
            found[stage] = {"prompt": count(prompts)}
            if stage == "sft":
                pairs = zip(rows, prompts, strict=True)
                texts = [render_completion(row["completion"], prompt) for row, prompt in pairs]
                found[stage]["completion"] = [n + 1 for n in count(texts)]  # EOS
        except (ValueError, KeyError, TypeError) as error:  # a row that no stage could read either
            text = f"a row cannot be read ({type(error).__name__}: {error}); make data"
            raise UserError(text) from error
    return found


def is_built(values: Settings) -> bool:
    """Whether the stage's data file is there."""
    return Path(values.get("train_file", "")).is_file()


def read_some(path: str, limit: int, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """Read up to about `limit` rows of a built file, evenly over it and the last one."""
    rows = list(read_rows(path))
    step = max(1, math.ceil(len(rows) / limit))
    picked = rows[::step] + (rows[-1:] if (len(rows) - 1) % step else [])
    for where, row in picked:
        check_row(row, columns, where)
    return [row for _, row in picked]


def raw_rows(data: Settings, key: str, data_root: str) -> list[dict]:
    """Build up to `ROWS` rows of the sources of `data.yaml`'s list `key`, before any cleaning."""
    sources = [check_source(entry, key) for entry in getattr(data, key)]
    make = sft_row if key == "sft" else grpo_row
    rows = []
    for source in sources:
        path = find_file(source, data_root)
        if path is None or not path.is_file():
            continue
        build = BUILDERS[source.name]
        for number, (where, row) in enumerate(islice(read_rows(path), ROWS // len(sources))):
            try:
                problem = build(row, f"{number}", where, **source.builder_options())
            except UserError:
                continue  # make data says what is wrong with it
            if isinstance(problem, Problem) and (key == "grpo" or problem.solution):
                rows.append(make(problem, data.system_prompt, data.answer_form))
    return rows


def check_lengths(recipe: Recipe, lengths: dict[str, dict[str, list[int]]]) -> list[Finding]:
    """Compare the measured lengths with the recipe's limits."""
    found = []
    for stage in recipe.stages():
        values = recipe.settings[stage]
        topic = f"{stage} lengths" + ("" if is_built(values) else ", raw rows")
        if stage not in lengths:
            text = "no data: neither built nor below --data_root"
            found.append(Finding(UNCHECKED, topic, text, "make data, or --data_root FOLDER"))
            continue
        prompts = lengths[stage]["prompt"]
        if stage == "sft":
            rows = row_lengths(lengths[stage])
            found.append(
                compare(topic, "rows", rows, "max_length", values.max_length, "SFT drops them")
            )
            if "grpo" in recipe.settings:
                written, room = (
                    lengths[stage]["completion"],
                    completion_room(recipe.settings["grpo"]),
                )
                why = "what SFT teaches to write, GRPO cuts off and pays nothing for"
                key = "max_completion_length"
                found.append(compare(topic, "completions", written, key, room, why, worst=WARNING))
            continue
        limit, room = values.max_prompt_length, completion_room(values)
        found.append(
            compare(topic, "prompts", prompts, "max_prompt_length", limit, "GRPO drops them")
        )
        most = min(max(prompts), limit or max(prompts))
        windows = [n for n in (values.vllm_max_model_length, positions(recipe, stage)) if n]
        if windows and most + room > min(windows):
            text = f"a prompt of {most:,} and {room:,} new tokens exceed the window of "
            text += f"{min(windows):,}"
            found.append(Finding(ERROR, topic, text, "lower max_prompt_length"))
    return found


def row_lengths(parts: dict[str, list[int]]) -> list[int]:
    """Lengths of prompt and completion together, where there is one."""
    return [sum(pair) for pair in zip(*parts.values(), strict=True)]


def compare(
    topic: str,
    what: str,
    lengths: Sequence[int],
    key: str,
    limit: int | None,
    why: str,
    worst: str = ERROR,
) -> Finding:
    """Show percentiles of lengths, in tokens; find where many are over the limit."""
    shares = (50, 95, 99, 100)
    numbers = [int(n) for n in np.percentile(lengths, shares, method="inverted_cdf")]
    text = "{}: median {:,}, 95 % {:,}, 99 % {:,}, longest {:,} tokens".format(what, *numbers)
    if limit is None:
        return Finding(OK, topic, text)
    share = sum(length > limit for length in lengths) / len(lengths)
    text += f"; {key}: {limit:,}, {share:.1%} over"
    if share <= MUCH:
        return Finding(OK, topic, text)
    level = worst if share > MOST else WARNING
    return Finding(level, topic, f"{text}: {why}", f"{key}: {numbers[2]} keeps 99 %")
