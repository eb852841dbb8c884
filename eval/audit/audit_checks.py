"""The audit's checks: golds and tricks through tokenizer, stop rules, reward and harness tasks.

Every completion takes the way of a generated one: rendered for its prompt, tokenised as SFT does,
ended by the first end-of-sequence token, cut at the token limit, decoded as an engine does.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.grading.rollouts import grade_rollouts
from data_prep.prompts import prefills_think, render_completion
from data_prep.sampling.samples import Completion, Settings
from eval.audit.audit_cases import (
    ENDINGS,
    TRICKS,
    ending_completion,
    gold_completion,
    trick_completions,
    wrong_answers,
)
from eval.audit.audit_inputs import NO_LIMIT, Channel, Recipe, collect_sets, load_recipe
from eval.audit.audit_prompts import (
    differing_systems,
    prompt_fault,
    render_prompts,
    shares_that_fit,
)
from eval.audit.parsers import parse_officially, run_scripted
from eval.harness.arguments import EvalArguments
from eval.harness.suite import load_think_tasks

CHOICES = ("gpqa", "arc")  # their official tasks compare options and read no text
MAX_FAILURES = 5  # kept for each set and check, and one for each trick there


def audit_recipe(args: Any, settings: EvalArguments) -> dict[str, Any]:
    """Push golds and tricks of every set through everything.

    Returns:
        `sets[name] = {"num_rows", "rates": {check: share or None}, "official": {parser: share}}`,
        `tricks[name] = {"num_rows", "num_paid"}`, `failures`, `notes`, `inputs`, `num_tricks`.
    """
    from eval.run import quiet

    quiet()
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(args, folder)
        sets, skipped = collect_sets(recipe, settings, args.num_rows)
        audit = Audit(recipe, settings, args)
        for name, rows in sets.items():
            audit.check_set(name, rows)
        audit.notes += find_notes(args, recipe, settings, sets, skipped)
    yamls = sorted(Path(args.recipe).glob("*.yaml"))
    files = [*recipe.files.values(), settings.test_file]
    return {
        "recipe": args.recipe,
        "tokenizer": args.tokenizer or "the recipe's",
        "max_new_tokens": settings.max_new_tokens,
        "sets": audit.sets,
        "tricks": audit.tricks,
        "num_tricks": sum(found["num_rows"] for found in audit.tricks.values()),
        "failures": audit.failures,
        "notes": audit.notes,
        "skipped": skipped,
        "inputs": manifest.hash_inputs([*yamls, *(f for f in files if f and Path(f).is_file())]),
    }


def find_notes(
    args: Any, recipe: Recipe, settings: EvalArguments, sets: dict, skipped: dict[str, str]
) -> list[str]:
    """What is worth knowing but fails no recipe, and what could not be audited."""
    from stages.settings.reward_arguments import GRADED

    found = [
        line
        for name in ("sft_train", "grpo_train")
        if name in sets and args.tokenizer != "bytes"  # a longer text for it than for the recipe
        for line in shares_that_fit(name, sets[name], recipe)
    ]
    if recipe.grpo:
        weights = recipe.config.reward_weights or [1.0] * len(recipe.grpo.reward_funcs)
        paid = [n for n, weight in zip(recipe.grpo.reward_funcs, weights, strict=True) if weight]
        if not GRADED.keys() & {*paid}:
            found.append(f"no reward tells right from wrong; paid for: {', '.join(paid) or '-'}")
        if recipe.grpo.final_number != settings.final_number:
            found.append("final_number differs between grpo.yaml and eval.yaml")
    if recipe.sft_config and recipe.grpo_model not in (None, recipe.sft_config.output_dir):
        found.append(f"GRPO starts from {recipe.grpo_model}, whose tokenizer was not audited")
    if args.tokenizer:
        found.append(f"not audited: the recipe's own tokenizer; {args.tokenizer} stood in for it")
    found += [line] if (line := differing_systems(sets)) else []
    return found + [f"not audited: {name}: {why}" for name, why in skipped.items()]


class Audit:
    """What was found so far; see `audit_recipe`."""

    def __init__(self, recipe: Recipe, settings: EvalArguments, args: Any) -> None:
        self._recipe, self._settings = recipe, settings
        self._num_tricked, self._num_parsed = args.num_tricked, args.num_parsed
        self._channel = Channel(recipe.tokenizer, recipe.end_ids)
        self.sets: dict[str, dict] = {}
        self.tricks = {name: {"num_rows": 0, "num_paid": 0} for name in TRICKS}
        self.failures: list[dict] = []
        self.notes: list[str] = []

    def check_set(self, name: str, rows: list[dict]) -> None:
        """Audit one set of problems."""
        prompts = render_prompts(rows, self._recipe.tokenizer)
        # SFT rows bring the very completions that will be trained on.
        written = [r.get("completion") or gold_completion(r["prompt"], r["answer"]) for r in rows]
        golds = [render_completion(text, p) for text, p in zip(written, prompts, strict=True)]
        some = rows[: self._num_tricked]
        wrong = wrong_answers([row["answer"] for row in some])
        tricks = [
            [
                render_completion(text, prompt)
                for text in trick_completions(row["prompt"], row["answer"], answer)
            ]
            for row, prompt, answer in zip(some, prompts, wrong, strict=False)
        ]
        rates = {
            "template": self._check_template(name, rows, prompts, golds),
            "reward": self._check_reward(name, rows, prompts, golds, tricks),
            "task": self._check_task(name, rows, golds, tricks),
        }
        self.sets[name] = {
            "num_rows": len(rows),
            "rates": rates,
            "official": self._ask_official(name, rows, prompts),
        }

    def _settings_of(self, limit: int) -> Settings:
        return Settings(max_new_tokens=limit)

    def _rate(self, name: str, check: str, rows: list[dict], found: Sequence[str]) -> float:
        """The share of rows without a fault; the first faults are kept."""
        faults = [(row, fault) for row, fault in zip(rows, found, strict=True) if fault]
        for row, fault in faults[:MAX_FAILURES]:
            self.failures.append({"set": name, "row": row["id"], "check": check, "fault": fault})
        return (len(rows) - len(faults)) / len(rows)

    def _check_template(
        self, name: str, rows: list[dict], prompts: list[str], golds: list[str]
    ) -> float:
        """Whether each prompt is whole, and each gold survives the tokenizer and ends in place."""
        found = []
        for row, prompt, text in zip(rows, prompts, golds, strict=True):
            fault = prompt_fault(name, row, prompt, self._recipe, self._settings)
            kept = str(self._channel.send(text, self._settings_of(NO_LIMIT)))
            if not fault and kept != text:
                pairs = enumerate(zip(text, kept, strict=False))
                at = next((i for i, (a, b) in pairs if a != b), min(len(text), len(kept)))
                fault = (
                    f"ends early, after {kept[-40:]!r}"
                    if at == len(kept)
                    else f"{text[at : at + 20]!r} becomes {kept[at : at + 20]!r}"
                )
            found.append(fault)
        return self._rate(name, "template", rows, found)

    def _check_reward(
        self,
        name: str,
        rows: list[dict],
        prompts: list[str],
        golds: list[str],
        tricks: list[list[str]],
    ) -> float | None:
        """Whether the recipe's rewards for right and for well-formed completions pay each gold."""
        if self._recipe.grpo is None:
            return None
        limit = self._settings_of(self._recipe.completion_limit)
        # Worked solutions: what SFT teaches may be longer than what GRPO lets a model write.
        own = limit if name != "sft_train" else self._settings_of(NO_LIMIT)
        prefilled = prefills_think(prompts[0])
        sent = [self._channel.send(text, own) for text in golds]
        paid = self._pay(rows, sent, prefilled)
        found = ["" for _ in rows]
        for reward, values in paid.items():
            for place, value in enumerate(values):
                if value <= 0 and not found[place]:
                    cut = f", cut off at {own.max_new_tokens} tokens" * sent[place].cut_off
                    found[place] = f"{reward} pays {value:g}{cut}"
        for place, trick in enumerate(TRICKS):
            texts = [self._channel.send(each[place], limit) for each in tricks]
            paid = self._pay(rows[: len(texts)], texts, prefilled)
            for values in (paid[reward] for reward in paid if reward != "think_format_reward"):
                found_paid = [value > 0 for value in values]
                self._count(trick, name, rows, texts, found_paid, "reward")
        is_graded = any(reward != "think_format_reward" for reward in paid)
        rate = self._rate(name, "reward", rows, found)
        return rate if is_graded else None

    def _pay(
        self, rows: list[dict], completions: list[Completion], prefilled: bool
    ) -> dict[str, list[float]]:
        """`{reward: its value for each completion}` of those that look at what is written.

        Times its weight, as a negative one pays for the opposite; 0 only has it logged.
        """
        from stages.rewards import build_rewards
        from stages.settings.reward_arguments import GRADED

        names = self._recipe.grpo.reward_funcs
        weights = self._recipe.config.reward_weights or [1.0] * len(names)
        functions = build_rewards(self._recipe.grpo, self._recipe.config, prefilled)
        batch = {
            "prompts": [row["prompt"] for row in rows],
            "completions": [[{"role": "assistant", "content": str(one)}] for one in completions],
            "completion_ids": [[0] * one.num_tokens for one in completions],
            "answer": [row["answer"] for row in rows],
            "log_metric": lambda name, value: None,
            "log_extra": lambda name, values: None,
        }
        return {
            name: [(weight or 1.0) * value for value in function(**batch)]
            for name, weight, function in zip(names, weights, functions, strict=True)
            if name in (*GRADED, "think_format_reward")
        }

    def _count(
        self,
        trick: str,
        name: str,
        rows: list[dict],
        texts: list[Completion],
        paid: list[bool],
        check: str,
    ) -> None:
        """Count what a trick was paid; where it was cut off it is no longer the trick."""
        tried = [place for place, text in enumerate(texts) if not text.cut_off]
        places = [place for place in tried if paid[place]]
        self.tricks[trick]["num_rows"] += len(tried)
        self.tricks[trick]["num_paid"] += len(places)
        for place in places[:1]:
            fault = f"{trick!r} is paid: {str(texts[place])[-60:]!r}"
            self.failures.append(
                {"set": name, "row": rows[place]["id"], "check": check, "fault": fault}
            )

    def _check_task(
        self, name: str, rows: list[dict], golds: list[str], tricks: list[list[str]]
    ) -> float | None:
        """Whether the harness's think-aware task scores each gold; None for training files."""
        if name not in self._settings.tasks:
            return None
        keys = ("test_file", "data_root", "system_prompt", "final_number")
        metadata = {key: getattr(self._settings, key) for key in keys}
        metadata["tokenizer"] = self._recipe.tokenizer_path
        generation = {"max_gen_toks": self._settings.max_new_tokens}

        def grade(texts: list[list[str]]) -> list[list[dict]]:
            """The task's records of the first problems, several completions for each."""
            tasks = load_think_tasks([name], metadata, generation, len(texts[0]))
            send = self._channel.send
            found = run_scripted(tasks, lambda at, turn: texts[at][turn], send, len(texts))[name]
            return [one["completions"] for one in sorted(found, key=lambda one: one["doc_id"])]

        cut = f", cut off at {self._settings.max_new_tokens} tokens"
        faults = [
            "" if one["score"] == 1 else one["verdict"] + cut * one["cut_off"]
            for (one,) in grade([[text] for text in golds])
        ]
        found = grade(tricks)
        for place, trick in enumerate(TRICKS):
            records = [each[place] for each in found]
            texts = [Completion(r["completion"], r["num_tokens"], r["cut_off"]) for r in records]
            self._count(trick, name, rows, texts, [r["score"] > 0 for r in records], "task")
        return self._rate(name, "task", rows, faults)

    def _ask_official(
        self, name: str, rows: list[dict], prompts: list[str]
    ) -> dict[str, dict[str, float]]:
        """The share of an evaluation set's golds that each parser scores, for each ending."""
        if name not in self._settings.tasks or rows[0]["source"] in CHOICES:
            return {}
        rows = rows[: self._num_parsed]
        first = [row["answer"][0] for row in rows]
        found = {}
        for ending in ENDINGS:
            texts = [
                render_completion(ending_completion(row["prompt"], row["answer"], ending), prompt)
                for row, prompt in zip(rows, prompts, strict=False)
            ]
            grades = grade_rollouts(
                [row["prompt"] for row in rows],
                texts,
                [row["answer"] for row in rows],
                think_prefilled=prefills_think(prompts[0]),
                final_number=self._settings.final_number,
            )
            scores = {"ours": [grade.verdict == "right" for grade in grades]}
            official, unscored = parse_officially(first, texts, self._channel.send)
            scores |= official
            found[ending] = {parser: sum(all_) / len(all_) for parser, all_ in scores.items()}
            if unscored:
                self.notes.append(
                    f"{name}: {len(unscored)} golds are too much for the harness's own parsers, "
                    f"which count them as not read, the first in row {rows[unscored[0]]['id']}"
                )
        return found
