"""Preflight: lengths of the built data in the recipe's own tokens, against every limit."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep.build.data_arguments import DataArguments
from data_prep.config import UserError
from data_prep.prompts import render_completion, render_prompt
from data_prep.schema import check_row
from stages.preflight.preflight_findings import (
    ERROR,
    OK,
    UNCHECKED,
    WARNING,
    Finding,
    Recipe,
    from_error,
    whole,
)

ROWS = 1000  # of each file; a percentile of them is within 1.4 points at the 95th
MUCH, MOST = 0.01, 0.2  # share of rows over a limit that is worth a warning, or an error


def percentile(lengths: Sequence[int], share: float) -> int:
    """The smallest length that at least `share` (0..1) of the lengths do not exceed."""
    ordered = sorted(lengths)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


def describe(lengths: Sequence[int]) -> str:
    """Percentiles as a short text."""
    numbers = [f"{percentile(lengths, p):,}" for p in (0.5, 0.95, 0.99, 1.0)]
    return f"median {numbers[0]}, 95 % {numbers[1]}, 99 % {numbers[2]}, longest {numbers[3]} tokens"


def check_limits(recipe: Recipe, context: dict[str, int]) -> list[Finding]:
    """Limits against each other and the model's context (by stage, tokens); needs no data."""
    found = []
    sft, grpo = (recipe.values.get(f"{stage}.yaml", {}) for stage in ("sft", "grpo"))
    if sft and (limit := whole(sft.get("max_length"), 1024)) > context.get("sft", limit):
        text = f"max_length: {limit:,} is above the model's {context['sft']:,} positions"
        found.append(Finding(ERROR, "sft.yaml", text, f"max_length: {context['sft']}"))
    if not grpo:
        return found
    completion = whole(grpo.get("max_completion_length"), 512)
    prompt = whole(grpo.get("max_prompt_length"), 0)
    room = completion + prompt
    if room > context.get("grpo", room):
        text = f"{prompt:,} of prompt + {completion:,} exceed {context['grpo']:,} positions"
        key = "max_prompt_length" if prompt > completion else "max_completion_length"
        found.append(Finding(ERROR, "grpo.yaml", text, f"lower {key}"))
    window = grpo.get("vllm_max_model_length")
    if window is not None and whole(window, 0) < room:
        text = f"vllm_max_model_length: {window} is below {prompt:,} of prompt + {completion:,}"
        found.append(Finding(ERROR, "grpo.yaml", text, f"vllm_max_model_length: {room}"))
    if not prompt:
        text = "max_prompt_length is not set: the longest prompt sets the memory of its batch"
        found.append(Finding(OK, "grpo.yaml", text))
    for file in ("eval.yaml", "difficulty.yaml"):
        new = recipe.values.get(file, {}).get("max_new_tokens")
        if new is not None and whole(new, 0) < completion:
            text = f"max_new_tokens: {new} cuts completions that GRPO lets run to {completion:,}"
            found.append(Finding(WARNING, file, text, f"max_new_tokens: {completion} or more"))
    return found


def measure(recipe: Recipe, tokenizer: Any) -> dict[str, dict[str, list[int]]]:
    """Lengths in tokens: `{stage: {"prompt": […], "completion": […]}}` of what data there is."""
    found: dict[str, dict[str, list[int]]] = {}
    for stage in ("sft", "grpo"):
        rows = _rows(recipe, stage)
        if not rows:
            continue
        prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
        found[stage] = {"prompt": _count(prompts, tokenizer)}
        if stage == "sft":
            pairs = zip(rows, prompts, strict=True)
            texts = [render_completion(row["completion"], prompt) for row, prompt in pairs]
            found[stage]["completion"] = [n + 1 for n in _count(texts, tokenizer)]  # EOS
    return found


def _count(texts: list[str], tokenizer: Any) -> list[int]:
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


def _rows(recipe: Recipe, stage: str) -> list[dict]:
    """Rows of the built file; else of the raw data below `data_root`, before any cleaning."""
    if is_built(recipe, stage):
        columns = ("prompt", "completion") if stage == "sft" else ("prompt", "answer")
        return read_some(recipe.values[f"{stage}.yaml"]["train_file"], ROWS, columns)
    data = recipe.parsed.get("data.yaml")
    if data is None or recipe.data_root is None:
        return []
    return raw_rows(data[0], stage, recipe.data_root)


def read_some(path: str, limit: int, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """Up to about `limit` rows of a built file, evenly over it and the last one.

    Raises:
        UserError: one of them is no JSON, or lacks a column.
    """
    # Not `splitlines`: it breaks rows that hold U+2028 or U+0085.
    text = Path(path).read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line.strip()]
    numbers = range(0, len(lines), max(1, math.ceil(len(lines) / limit)))
    rows = []
    for number in sorted({*numbers, len(lines) - 1} - {-1}):
        where = f"{path}:{number + 1}"
        try:
            row = json.loads(lines[number])
        except ValueError as error:
            raise UserError(f"{where}: not valid JSON ({error}); run `make data` again") from error
        check_row(row, columns, where)
        rows.append(row)
    return rows


def is_built(recipe: Recipe, stage: str) -> bool:
    """Whether the stage's data file is there."""
    path = recipe.values.get(f"{stage}.yaml", {}).get("train_file")
    return isinstance(path, str) and Path(path).is_file()


def raw_rows(data: DataArguments, key: str, data_root: str) -> list[dict]:
    """Up to `ROWS` rows of the sources of `data.yaml`'s list `key`, the first of each file."""
    from itertools import islice

    from data_prep.build.recipe import check_source, find_file
    from data_prep.reading.reading import read_rows
    from data_prep.schema import Problem, grpo_row, sft_row
    from data_prep.sources.builders import BUILDERS

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
                rows.append(make(problem, data.system_prompt))
    return rows


def check_lengths(recipe: Recipe, lengths: dict, context: dict[str, int]) -> list[Finding]:
    """The measured lengths against the recipe's limits."""
    found = []
    for stage in recipe.stages():
        topic = f"{stage} lengths"
        values = recipe.values[f"{stage}.yaml"]
        if not is_built(recipe, stage):
            topic += ", raw rows"
        if stage not in lengths:
            text = "no data: neither built nor below --data_root"
            found.append(Finding(UNCHECKED, topic, text, "make data, or --data_root FOLDER"))
            continue
        prompts = lengths[stage]["prompt"]
        if stage == "sft":
            pairs = zip(prompts, lengths[stage]["completion"], strict=True)
            rows = [prompt + completion for prompt, completion in pairs]
            limit = whole(values.get("max_length"), 1024)
            found.append(_over(topic, "rows", rows, limit, "max_length", "SFT drops them"))
            cut = whole(recipe.values.get("grpo.yaml", {}).get("max_completion_length"), 0)
            if cut:
                why = "what SFT teaches to write, GRPO cuts off and pays nothing for"
                written = lengths[stage]["completion"]
                found.append(
                    _over(topic, "completions", written, cut, "max_completion_length", why, WARNING)
                )
            continue
        limit = whole(values.get("max_prompt_length"), 0)
        if limit:
            why = "GRPO drops them"
            found.append(_over(topic, "prompts", prompts, limit, "max_prompt_length", why))
        else:
            found.append(Finding(OK, topic, f"prompts: {describe(prompts)}"))
        room = whole(values.get("max_completion_length"), 512)
        longest = min(max(prompts), limit or max(prompts))
        window = whole(values.get("vllm_max_model_length"), context.get(stage, 1 << 30))
        if longest + room > min(window, context.get(stage, window)):
            text = (
                f"a prompt of {longest:,} and {room:,} new tokens exceed the window of {window:,}"
            )
            found.append(Finding(ERROR, topic, text, "lower max_prompt_length"))
    return found


def _over(
    topic: str, what: str, lengths: list[int], limit: int, key: str, why: str, worst: str = ERROR
) -> Finding:
    share = sum(length > limit for length in lengths) / len(lengths)
    text = f"{what}: {describe(lengths)}; {key}: {limit:,}"
    if share <= MUCH:
        return Finding(OK, topic, f"{text}, {share:.1%} over")
    level = worst if share > MOST else WARNING
    remedy = f"{key}: {percentile(lengths, 0.99)} keeps 99 %"
    return Finding(level, topic, f"{text}, {share:.1%} over: {why}", remedy)


def safe_measure(recipe: Recipe, tokenizer: Any) -> tuple[dict, list[Finding]]:
    """`measure`, with what is wrong with a data file as a finding."""
    try:
        return measure(recipe, tokenizer), []
    except UserError as error:
        return {}, [from_error("data", error)]
    except (ValueError, KeyError, TypeError) as error:  # a row that no stage could read either
        text = f"a row cannot be read ({type(error).__name__}: {error})"
        return {}, [Finding(ERROR, "data", text, "make data")]


def longest(lengths: dict[str, dict[str, list[int]]]) -> dict[str, int]:
    """By stage, the longest row (sft) or prompt (grpo) that was measured, tokens."""
    found = {}
    for stage, parts in lengths.items():
        rows = zip(
            parts["prompt"], parts.get("completion", [0] * len(parts["prompt"])), strict=True
        )
        found[stage] = max(sum(row) for row in rows)
    return found
