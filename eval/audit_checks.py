"""The audit's checks: golds and tricks through tokenizer, stop rules, reward and harness tasks.

Every completion takes the way of a generated one: rendered for its prompt, tokenised as SFT does,
ended by the first end-of-sequence token, cut at the token limit, decoded as an engine does.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.prompts import prefills_think, render_completion, render_prompt
from data_prep.rollouts import grade_rollouts
from eval.arguments import EvalArguments
from eval.audit_cases import (
    ENDINGS,
    TRICKS,
    ending_completion,
    gold_completion,
    trick_completions,
    wrong_answers,
)
from eval.audit_inputs import Channel, Recipe, collect_sets, load_recipe
from eval.parsers import parse_officially, run_scripted
from eval.samples import Completion, Settings
from eval.suite import load_think_tasks

CHOICES = ("gpqa", "arc")  # their official tasks compare options and read no text
NO_LIMIT = 1 << 30
MAX_FAILURES = 5  # shown for each set and check


def audit_recipe(args: Any, settings: EvalArguments) -> dict[str, Any]:
    """Push golds and tricks of every set through everything.

    Returns:
        `sets[name] = {"num_rows", "rates": {check: share or None}, "official": {parser: share}}`,
        `tricks[name] = {"num_rows", "num_paid"}`, `failures`, `skipped`, `inputs`, `num_tricks`.
    """
    from eval.run import quiet

    quiet()
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(args, folder)
        sets, skipped = collect_sets(recipe, settings, args.num_rows)
        audit = Audit(recipe, settings, args)
        for name, rows in sets.items():
            audit.check_set(name, rows)
    yamls = sorted(Path(args.recipe).glob("*.yaml"))
    files = [f for f in (recipe.sft_file, recipe.grpo_file, settings.test_file) if f]
    return {
        "recipe": args.recipe,
        "tokenizer": args.tokenizer or "the recipe's",
        "max_new_tokens": settings.max_new_tokens,
        "max_completion_length": recipe.config.max_completion_length if recipe.config else None,
        "sft_fits": audit.sft_fits,
        "sets": audit.sets,
        "tricks": audit.tricks,
        "num_tricks": sum(found["num_rows"] for found in audit.tricks.values()),
        "failures": audit.failures,
        "skipped": skipped,
        "inputs": manifest.hash_inputs([*yamls, *(f for f in files if Path(f).is_file())]),
    }


class Audit:
    """What was found so far; see `audit_recipe`."""

    def __init__(self, recipe: Recipe, settings: EvalArguments, args: Any) -> None:
        self._recipe, self._settings = recipe, settings
        self._num_tricked, self._num_parsed = args.num_tricked, args.num_parsed
        self._channel = Channel(recipe.tokenizer, recipe.end_ids)
        self.sets: dict[str, dict] = {}
        self.tricks = {name: {"num_rows": 0, "num_paid": 0} for name in TRICKS}
        self.failures: list[dict] = []
        self.sft_fits: float | None = None

    def check_set(self, name: str, rows: list[dict]) -> None:
        """Audit one set of problems."""
        tokenizer = self._recipe.tokenizer
        prompts = [render_prompt(row["prompt"], tokenizer) for row in rows]
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
            "template": self._check_template(name, rows, golds),
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
        return 1 - len(faults) / len(rows)

    def _check_template(self, name: str, rows: list[dict], golds: list[str]) -> float:
        """Whether each gold survives the tokenizer, and ends where it should and not before."""
        found = []
        for text in golds:
            kept = self._channel.send(text, self._settings_of(NO_LIMIT))
            if str(kept) == text:
                found.append("")
            elif text.startswith(str(kept)):
                found.append(f"ends early, after {str(kept)[-40:]!r}")
            else:
                place = next(i for i, (a, b) in enumerate(zip(text, kept, strict=False)) if a != b)
                found.append(
                    f"{text[place : place + 20]!r} becomes {str(kept)[place : place + 20]!r}"
                )
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
        limit = self._settings_of(self._recipe.config.max_completion_length)
        prefilled = prefills_think(prompts[0])
        sent = [self._channel.send(text, limit) for text in golds]
        if name == "sft_train":  # worked solutions: SFT has a limit of its own
            self.sft_fits = 1 - sum(one.cut_off for one in sent) / len(sent)
            sent = [self._channel.send(text, self._settings_of(NO_LIMIT)) for text in golds]
        paid = self._pay(rows, sent, prefilled)
        found = ["" for _ in rows]
        for reward, values in paid.items():
            for place, value in enumerate(values):
                if value <= 0 and not found[place]:
                    cut = f", cut off at {limit.max_new_tokens} tokens" * sent[place].cut_off
                    found[place] = f"{reward} pays {value:g}{cut}"
        for place, trick in enumerate(TRICKS):
            texts = [self._channel.send(each[place], limit) for each in tricks]
            paid = self._pay(rows[: len(texts)], texts, prefilled)
            for values in (paid[reward] for reward in paid if reward != "think_format_reward"):
                found_paid = [value > 0 for value in values]
                self._count(trick, name, rows, texts, found_paid, "reward")
        return self._rate(name, "reward", rows, found) if paid else None

    def _pay(
        self, rows: list[dict], completions: list[Completion], prefilled: bool
    ) -> dict[str, list[float]]:
        """`{reward: its value for each completion}` of those that look at what is written."""
        from stages.rewards import GRADED, build_rewards

        reading = (*GRADED, "think_format_reward")
        wanted = [name for name in self._recipe.grpo.reward_funcs if name in reading]
        functions = build_rewards(self._recipe.grpo, self._recipe.config, prefilled)
        batch = {
            "prompts": [row["prompt"] for row in rows],
            "completions": [[{"role": "assistant", "content": str(one)}] for one in completions],
            "completion_ids": [[0] * one.num_tokens for one in completions],
            "answer": [row["answer"] for row in rows],
            "log_metric": lambda name, value: None,
            "log_extra": lambda name, values: None,
        }
        return {f.__name__: f(**batch) for f in functions if f.__name__ in wanted}

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
        for place in places[:MAX_FAILURES]:
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
        by_id = {row["id"]: [text] for row, text in zip(rows, golds, strict=True)}

        def samples(num: int, limit: int) -> list[dict]:
            tasks = load_think_tasks([name], metadata, generation, num)
            found = run_scripted(
                tasks, lambda _, doc, turn: by_id[doc["id"]][turn], self._channel.send, limit
            )[name]
            return sorted(found, key=lambda sample: sample["doc_id"])

        records = [sample["completions"][0] for sample in samples(1, len(rows))]
        cut = f", cut off at {self._settings.max_new_tokens} tokens"
        faults = ["" if r["score"] == 1 else r["verdict"] + cut * r["cut_off"] for r in records]
        by_id = {row["id"]: texts for row, texts in zip(rows, tricks, strict=False)}
        found = samples(len(TRICKS), len(tricks))
        for place, trick in enumerate(TRICKS):
            records = [sample["completions"][place] for sample in found]
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
        questions = [row["question"] for row in rows]
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
            scores |= parse_officially(questions, first, texts, self._channel.send)
            found[ending] = {parser: sum(all_) / len(all_) for parser, all_ in scores.items()}
        return found
