"""Measure the built data in the recipe's own tokens, and compare with every limit."""

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from data_prep.build.recipe import check_source, find_file
from data_prep.config import Settings, UserError
from data_prep.prompts import render_completion, render_prompt
from data_prep.reading.rows import read_rows
from data_prep.schema import Problem, check_row, grpo_row, sft_row
from data_prep.sources.registry import BUILDERS
from stages.preflight.findings import ERROR, OK, UNCHECKED, WARNING, Finding
from stages.preflight.inputs import Recipe
from stages.preflight.needs import completion_room

ROWS = 1000  # of each file; a percentile of them is within 1.4 points at the 95th
MUCH, MOST = 0.01, 0.2  # share of rows over a limit that is worth a warning, or an error
COLUMNS = {"sft": ("prompt", "completion"), "grpo": ("prompt", "answers", "answer_form")}


def percentile(lengths: Sequence[int], share: float) -> int:
    """The smallest length that at least `share` (0..1) of the lengths do not exceed."""
    ordered = sorted(lengths)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


def describe(lengths: Sequence[int]) -> str:
    """Percentiles as a short text."""
    numbers = [f"{percentile(lengths, p):,}" for p in (0.5, 0.95, 0.99, 1.0)]
    return f"median {numbers[0]}, 95 % {numbers[1]}, 99 % {numbers[2]}, longest {numbers[3]} tokens"


def check_limits(recipe: Recipe, positions: dict[str, int]) -> list[Finding]:
    """Compare limits with each other and the model's positions (by stage); needs no data."""
    found = []
    sft, grpo = recipe.settings.get("sft"), recipe.settings.get("grpo")
    limit = sft.max_length or 0 if sft is not None else 0
    if limit > positions.get("sft", limit):
        text = f"max_length: {limit:,} is above the model's {positions['sft']:,} positions"
        found.append(Finding(ERROR, "sft.yaml", text, f"max_length: {positions['sft']}"))
    if grpo is None:
        return found
    completion, prompt = completion_room(grpo), grpo.max_prompt_length or 0
    room = completion + prompt
    if room > positions.get("grpo", room):
        text = f"{prompt:,} of prompt + {completion:,} exceed {positions['grpo']:,} positions"
        key = "max_prompt_length" if prompt > completion else "max_completion_length"
        found.append(Finding(ERROR, "grpo.yaml", text, f"lower {key}"))
    if not prompt:
        text = "max_prompt_length is not set: the longest prompt sets the memory of its batch"
        found.append(Finding(OK, "grpo.yaml", text))
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
        if not (rows := sample_rows(recipe, stage)):
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


def sample_rows(recipe: Recipe, stage: str) -> list[dict]:
    """Rows of the built file; else of the raw data below `data_root`, before any cleaning."""
    if is_built(recipe, stage):
        return read_some(recipe.settings[stage]["train_file"], ROWS, COLUMNS[stage])
    if recipe.data_root is None or "data" not in recipe.parsed:
        return []
    return raw_rows(recipe.settings["data"], stage, recipe.data_root)


def is_built(recipe: Recipe, stage: str) -> bool:
    """Whether the stage's data file is there."""
    path = recipe.settings[stage].get("train_file")
    return isinstance(path, str) and Path(path).is_file()


def read_some(path: str, limit: int, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """Read up to about `limit` rows of a built file, evenly over it and the last one."""
    rows = list(read_rows(path))
    step = max(1, math.ceil(len(rows) / limit))
    picked = rows[::step] + (rows[-1:] if (len(rows) - 1) % step else [])
    for where, row in picked:
        check_row(row, columns, where)
    return [row for _, row in picked]


def raw_rows(data: Settings, key: str, data_root: str) -> list[dict]:
    """Build up to `ROWS` rows of the sources of `data.yaml`'s list `key`, the first of each."""
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


def check_lengths(recipe: Recipe, lengths: dict, positions: dict[str, int]) -> list[Finding]:
    """Compare the measured lengths with the recipe's limits."""
    found = []
    for stage in recipe.stages():
        values = recipe.settings[stage]
        topic = f"{stage} lengths" + ("" if is_built(recipe, stage) else ", raw rows")
        if stage not in lengths:
            text = "no data: neither built nor below --data_root"
            found.append(Finding(UNCHECKED, topic, text, "make data, or --data_root FOLDER"))
            continue
        prompts = lengths[stage]["prompt"]
        if stage == "sft":
            limit = ("max_length", values.max_length, "SFT drops them")
            found.append(_compare(topic, "rows", row_lengths(lengths[stage]), *limit))
            if "grpo" in recipe.settings:
                written, cut = lengths[stage]["completion"], recipe.settings["grpo"]
                why = "what SFT teaches to write, GRPO cuts off and pays nothing for"
                limit = ("max_completion_length", completion_room(cut), why)
                found.append(_compare(topic, "completions", written, *limit, worst=WARNING))
            continue
        limit = values.max_prompt_length
        limits = ("max_prompt_length", limit, "GRPO drops them")
        found.append(_compare(topic, "prompts", prompts, *limits))
        room, most = completion_room(values), min(max(prompts), limit or max(prompts))
        windows = [n for n in (values.vllm_max_model_length, positions.get(stage)) if n is not None]
        if windows and most + room > min(windows):
            text = f"a prompt of {most:,} and {room:,} new tokens exceed the window of "
            text += f"{min(windows):,}"
            found.append(Finding(ERROR, topic, text, "lower max_prompt_length"))
    return found


def row_lengths(parts: dict[str, list[int]]) -> list[int]:
    """Lengths of prompt and completion together, where there is one."""
    if "completion" not in parts:
        return parts["prompt"]
    return [sum(pair) for pair in zip(parts["prompt"], parts["completion"], strict=True)]


def _compare(
    topic: str,
    what: str,
    lengths: list[int],
    key: str,
    limit: int | None,
    why: str,
    worst: str = ERROR,
) -> Finding:
    if limit is None:
        return Finding(OK, topic, f"{what}: {describe(lengths)}")
    share = sum(length > limit for length in lengths) / len(lengths)
    text = f"{what}: {describe(lengths)}; {key}: {limit:,}, {share:.1%} over"
    if share <= MUCH:
        return Finding(OK, topic, text)
    level = worst if share > MOST else WARNING
    return Finding(level, topic, f"{text}: {why}", f"{key}: {percentile(lengths, 0.99)} keeps 99 %")
