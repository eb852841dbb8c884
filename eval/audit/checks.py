"""The audit's table: what each completion must earn, and whether it does.

Each problem of a set has its gold in the recipe's own form, and the first problems have every
exploit. Template, rewards and think-aware task judge them as a model's completions. Each verdict is
a line of the table, and `eval.audit.verdict` groups it into rates, counts and failing rows.

A completion is rendered for its prompt and tokenised as in SFT. It ends at the first
end-of-sequence token or the token limit, and is decoded as by an engine.
"""

import asyncio
import inspect
from collections import defaultdict
from typing import Any, NamedTuple

import pandas as pd

from data_prep.builder.filters import CHOICE_SOURCES
from data_prep.decontamination.benchmarks import BENCHMARKS
from data_prep.sampling.store import Completion, Settings
from data_prep.schema import question_of
from data_prep.sources.base import stated_answers
from eval.audit import cases
from eval.audit.cases import ENDINGS, GENERAL_TRICKS, TRICKS
from eval.audit.inputs import NO_LIMIT, Recipe
from eval.audit.parsers import parse_officially, score_given
from eval.harness.settings import EvalArguments
from eval.harness.suite import load_think_tasks, render_prompts
from grading.grade import grade_rollouts
from grading.own_grader import COLUMN, accepts
from pipeline.memory import memory_fault
from pipeline.prompts import left_out, prefills_think, render_completion
from stages.arguments import GRADED

LOOSE = "loose_think_format_reward"
FORMATS = ("think_format_reward", LOOSE)
# Rewards for the form or length of a completion, whatever its answer.
SHAPING = (*FORMATS, "soft_length_penalty", "repetition_penalty", "overlong")
MARGIN = 0.1  # of a group's range of rewards, the least between its gold and any exploit
GOLD = "gold"
SUM = "sum of all rewards"


class Case(NamedTuple):
    """A completion as a model would write it after the rendered prompt."""

    at: int  # the problem's place in its set
    kind: str  # `GOLD` or one of `TRICKS`
    text: str


class Line(NamedTuple):
    """A verdict on one case: a line of the table."""

    set: str
    row: Any  # the problem's id
    kind: str
    check: str  # one of `eval.audit.verdict.CHECKS`
    reward: str  # that an exploit was tried on, or `SUM`; else ""
    applies: bool  # whether a fault counts: a grader of the user's own may be laxer than ours
    fault: str  # "" for a gold that passes and an exploit that earns nothing


class AuditedSet:
    """One set of problems, its cases, and the table's `lines` that the checks make of them.

    `cases`: the golds of all problems, then each exploit of the first problems.
    """

    def __init__(
        self, name: str, rows: list[dict], recipe: Recipe, settings: EvalArguments, args: Any
    ) -> None:
        self.name, self.rows = name, rows
        self.lines: list[Line] = []
        self.notes: list[str] = []
        self._recipe, self._settings, self._num_parsed = recipe, settings, args.num_parsed
        self._prompts = render_prompts(rows, recipe.tokenizer)
        forms = [(row["answers"], row["answer_form"]) for row in rows]
        wrong = cases.wrong_answers(rows[: args.num_tricked])
        tricks = [cases.trick_completions(*forms[at], answer) for at, answer in enumerate(wrong)]
        # SFT rows have the completions that will be trained on.
        golds = [
            row.get("completion") or cases.gold_completion(*form)
            for row, form in zip(rows, forms, strict=True)
        ]
        written = [(at, GOLD, text) for at, text in enumerate(golds)]
        written += [(at, kind, one[kind]) for kind in TRICKS for at, one in enumerate(tricks)]
        self.cases = [
            Case(at, kind, render_completion(text, self._prompts[at])) for at, kind, text in written
        ]

    def check(self) -> None:
        """Fill `lines` with the verdicts of every check that the set and the recipe have."""
        self._check_questions()
        self._check_template()
        if self._recipe.grpo is not None:
            self._check_rewards()
        if self.name in self._settings.tasks:
            self._check_task()

    def _applies(self, at: int, kind: str) -> bool:
        return kind in (GOLD, *GENERAL_TRICKS) or not self.rows[at].get(COLUMN)

    def _add(self, check: str, at: int, kind: str, fault: str, reward: str = "") -> None:
        applies = self._applies(at, kind)
        line = Line(self.name, self.rows[at]["id"], kind, check, reward, applies, fault)
        self.lines.append(line)

    def _check_questions(self) -> None:
        """Whether no question states its own answer, which a model would only have to copy."""
        for at, row in enumerate(self.rows):
            stated = stated_answers(question_of(row))
            shown = next((one for one in stated if is_answer(one, row)), None)
            fault = "" if shown is None else f"the question states its answer: {shown!r}"
            if fault and self.name in BENCHMARKS:  # published so, and scored whole
                self.notes.append(f"{self.name}: row {row['id']}: {fault}")
                fault = ""
            self._add("question", at, GOLD, fault)

    def _check_template(self) -> None:
        """Whether each prompt is whole, and each gold survives the tokenizer and ends in place."""
        for at, kind, text in self.cases[: len(self.rows)]:
            kept = str(self._recipe.send(text, Settings(NO_LIMIT)))
            fault = self._prompt_fault(at) or difference(text, kept)
            self._add("template", at, kind, fault)

    def _prompt_fault(self, at: int) -> str:
        """What is wrong with a rendered prompt, or nothing."""
        if role := left_out(self.rows[at]["prompt"], self._prompts[at]):
            return f"the template leaves out the {role} message"
        tokenizer = self._recipe.tokenizer
        ids = tokenizer(self._prompts[at], add_special_tokens=False)["input_ids"]
        start = tokenizer.bos_token_id
        if start is not None and ids[:2] == [start, start]:
            return f"the template writes {tokenizer.bos_token!r} twice"
        return ""

    def _check_rewards(self) -> None:
        """Whether each gold earns the rewards for correctness and form, and no exploit the former.

        The sums of all rewards are compared for each problem, as GRPO does within a group.
        """
        limit = self._recipe.config.max_completion_length or NO_LIMIT
        # Worked solutions of SFT may be longer than GRPO lets a model write.
        own_limit = NO_LIMIT if self.name == "sft_train" else limit
        sent = [
            self._recipe.send(text, Settings(own_limit if kind == GOLD else limit))
            for _, kind, text in self.cases
        ]
        earned: list[dict[str, float]] = []
        for kind in (GOLD, *TRICKS):
            some = [text for one, text in zip(self.cases, sent, strict=True) if one.kind == kind]
            earned += self._earn(some)
        names = {*earned[0]}
        graded = [name for name in self._recipe.rewards if name in GRADED]
        # The loose one knows `<answer>` alone, and a benchmark may be asked for a box.
        is_trained = self.name in ("sft_train", "grpo_train")
        formats = [name for name in FORMATS if name in names and (is_trained or name != LOOSE)]
        weights = self._recipe.rewards
        sums: dict[int, dict[str, float]] = defaultdict(dict)
        for (at, kind, _), text, values in zip(self.cases, sent, earned, strict=True):
            fault = ""
            if kind == GOLD:
                if missed := [name for name in (*graded, *formats) if values[name] <= 0]:
                    fault = f"{missed[0]} is {values[missed[0]]:g}{cut_note(text, own_limit)}"
                self._add("reward", at, kind, fault)
            elif not text.cut_off:  # what was cut off is no longer the exploit
                for name in graded:
                    self._add("reward", at, kind, trick_fault(kind, text, values[name]), name)
            if not fault and not text.cut_off and self._applies(at, kind):
                sums[at][kind] = sum(value for name, value in values.items() if weights[name])
        if names - {*SHAPING}:
            for at, found in sums.items():
                if GOLD in found:  # else it failed, which is reported
                    self._compare(at, found)

    def _compare(self, at: int, sums: dict[str, float]) -> None:
        """Whether an exploit earns as much as the gold in all, or nearly."""
        margin = MARGIN * (max(sums.values()) - min(sums.values()))
        gold = sums.pop(GOLD)
        for trick, value in sums.items():
            fault = f"{trick!r} earns {value:g}, the gold {gold:g} ({SUM})"
            self._add("reward", at, trick, fault if gold - value <= margin else "", SUM)

    def _earn(self, completions: list[Completion]) -> list[dict[str, float]]:
        """The values of each reward for a completion of each of the first problems.

        Values are times the weight, as a negative one rewards the opposite. A reward with weight 0
        is only logged, and counts with weight 1 here. Rewards that cannot be run here are left out.
        """
        from stages.rewards import build_rewards, reward_columns

        recipe, rows = self._recipe, self.rows[: len(completions)]
        functions = build_rewards(recipe.grpo, recipe.config, prefills_think(self._prompts[0]))
        (whole,) = reward_columns(self.rows)
        names = [name for name in whole[0] if name != "prompt"]
        batch: dict[str, Any] = {name: [row[name] for row in whole[: len(rows)]] for name in names}
        tokenizer, texts = recipe.tokenizer, list(map(str, completions))
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        batch |= {
            "question": list(map(question_of, rows)),
            "prompts": [row["prompt"] for row in rows],
            "completions": [
                text if isinstance(row["prompt"], str) else [{"role": "assistant", "content": text}]
                for row, text in zip(rows, texts, strict=True)
            ],
            "completion_ids": [[*some, tokenizer.eos_token_id] for some in ids],
            "log_metric": lambda name, value: None,
            "log_extra": lambda name, values: None,
        }
        earned: list[dict[str, float]] = [{} for _ in rows]
        for (name, weight), function in zip(recipe.rewards.items(), functions, strict=True):
            try:
                values = function(**batch)
                if inspect.iscoroutine(values):
                    values = asyncio.run(values)
                paid = [(weight or 1.0) * (value or 0.0) for value in values]  # None is 0
            except Exception as error:  # a user's function; it may need a trainer
                if name in (*GRADED, *SHAPING) or memory_fault(error):
                    raise
                self.notes.append(f"not audited: {name}: {type(error).__name__}: {error}")
                continue
            for found, value in zip(earned, paid, strict=True):
                found[name] = value
        return earned

    def _check_task(self) -> None:
        """Whether the harness's think-aware task scores each gold, and no exploit."""
        settings = self._settings
        metadata = settings.problem_keys() | {"tokenizer": self._recipe.tokenizer.name_or_path}
        limits = {"max_gen_toks": settings.max_new_tokens}
        (task,) = load_think_tasks([self.name], metadata, limits, 1).values()
        texts: list[list[str]] = [[] for _ in self.rows]
        for at, _, text in self.cases:
            texts[at].append(text)
        (scores,) = score_given(task, texts, self._recipe.send).values()
        for at, score in enumerate(scores):
            for kind, one in zip([GOLD, *TRICKS], score["completions"], strict=False):
                text = Completion(one["completion"], one["num_tokens"], one["cut_off"])
                if kind == GOLD:
                    fault = one["verdict"] + cut_note(text, settings.max_new_tokens)
                    self._add("task", at, kind, "" if one["score"] else fault)
                elif not text.cut_off:
                    self._add("task", at, kind, trick_fault(kind, text, one["score"]))

    def ask_official(self) -> dict[str, dict[str, float]]:
        """The share of an evaluation set's golds that each parser scores, for each ending."""
        # They read mathematics, and not what a grader of the user's own is for.
        some = [at for at, row in enumerate(self.rows) if not row.get(COLUMN)][: self._num_parsed]
        # The official tasks on options compare them and read no text.
        is_choice = self.rows[0]["source"] in CHOICE_SOURCES
        if self.name not in self._settings.tasks or not some or is_choice:
            return {}
        asked = [(ending, at) for ending in ENDINGS for at in some]
        rows = [self.rows[at] for _, at in asked]
        prompts = [self._prompts[at] for _, at in asked]
        golds, forms = ([row[key] for row in rows] for key in ("answers", "answer_form"))
        endings = [ending for ending, _ in asked]
        written = map(cases.ending_completion, golds, forms, endings)
        texts = list(map(render_completion, written, prompts))
        scores, unscored = parse_officially([gold[0] for gold in golds], texts, self._recipe.send)
        if unscored:
            places = {asked[place][1] for place in unscored}
            self.notes.append(
                f"{self.name}: {len(places)} golds are too much for the harness's own parsers, "
                f"which count them as incorrect, the first in row {self.rows[min(places)]['id']}"
            )
        grades = grade_rollouts(
            texts,
            golds,
            forms,
            list(map(question_of, rows)),
            think_prefilled=prefills_think(prompts[0]),
            final_number=self._settings.final_number,
        )
        table = pd.DataFrame({"ours": [grade.verdict == "right" for grade in grades]} | scores)
        return table.groupby(endings, sort=False).mean().to_dict("index")


def is_answer(text: str, row: dict) -> bool:
    """Whether a text equals a gold of a row, for the grader that judges it."""
    if row.get(COLUMN):
        return accepts(row[COLUMN], text, row["answers"], row["answer_form"])
    return not cases.is_other_value(text, row["answers"])


def difference(text: str, kept: str) -> str:
    """How a text was changed, at the first character that differs; "" where it was not."""
    if kept == text:
        return ""
    pairs = enumerate(zip(text, kept, strict=False))
    start = next((at for at, (one, other) in pairs if one != other), min(len(text), len(kept)))
    if start == len(kept):
        return f"ends early, after {kept[-40:]!r}"
    return f"{text[start : start + 20]!r} becomes {kept[start : start + 20]!r}"


def trick_fault(trick: str, text: str, earned: float) -> str:
    return f"{trick!r} is rewarded: {text[-60:]!r}" if earned > 0 else ""


def cut_note(text: Completion, limit: int) -> str:
    return f", cut off at {limit} tokens" if text.cut_off else ""
