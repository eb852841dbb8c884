"""The audit's checks: golds and exploits through template, tokenizer, stop rules, reward and tasks.

Every completion is processed as a generated one. It is rendered for its prompt and tokenised as in
SFT. It ends at the first end-of-sequence token or the token limit, and is decoded as by an engine.
"""

import asyncio
import inspect
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.builder.filters import CHOICE_SOURCES
from data_prep.sampling.store import Completion, Settings
from data_prep.schema import grader_files, question_of
from data_prep.sources.base import stated_answers
from eval.audit import cases as audit_cases
from eval.audit.cases import ENDINGS, GENERAL_TRICKS, TRICKS
from eval.audit.inputs import NO_LIMIT, Recipe, collect_sets, load_recipe
from eval.audit.parsers import parse_officially, run_scripted
from eval.harness.settings import EvalArguments
from eval.harness.suite import load_think_tasks, render_prompts
from grading.compare import is_same_value
from grading.grade import grade_rollouts
from grading.own_grader import COLUMN, accepts
from pipeline import manifest
from pipeline.console import quiet
from pipeline.memory import memory_fault
from pipeline.own_code import own_files
from pipeline.prompts import prefills_think, render_completion
from stages.arguments import GRADED

LOOSE = "loose_think_format_reward"
FORMATS = ("think_format_reward", LOOSE)
# Rewards for the form or length of a completion, whatever its answer.
SHAPING = (*FORMATS, "soft_length_penalty", "repetition_penalty", "overlong")
CHANCE = "random_reward"
MARGIN = 0.1  # of a group's range of rewards, the least between its gold and any exploit
MAX_FAILURES = 5  # kept for each set and check, and one for each exploit there


def audit_recipe(args: Any, settings: EvalArguments) -> dict[str, Any]:
    """Send the golds and exploits of every set through all checks.

    Returns:
        `sets[name] = {"num_rows", "rates": {check: share or None}, "num_gold_in_question",
        "official": {ending: {parser: share}}}`, `tricks[name] = {"num_rows", "num_paid",
        "num_above"}` (rewarded; rewarded as much as the gold, or nearly), `failures`, `notes`,
        `inputs`, `num_tricks`, `form_only` (see `find_form_only`).
    """
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(args, folder)
        sets, skipped = collect_sets(recipe, settings, args.num_rows)
        audit = Audit(recipe, settings, args)
        for name, rows in sets.items():
            audit.check_set(name, rows)
        audit.notes += find_notes(args, recipe, settings, sets, skipped)
    yamls = sorted(Path(args.recipe).glob("*.yaml"))
    files = [*recipe.files.values(), settings.test_file, settings.transfer_file]
    files += grader_files(row for rows in sets.values() for row in rows)
    if recipe.grpo:
        files += own_files([name for name, _ in recipe.rewards])
    inputs = [*yamls, *(file for file in files if file and Path(file).is_file())]
    return {
        "recipe": args.recipe,
        "tokenizer": recipe.model,
        "max_new_tokens": settings.max_new_tokens,
        "sets": audit.sets,
        "tricks": audit.tricks,
        "is_chance_paid": bool(dict(recipe.rewards).get(CHANCE)),
        "form_only": find_form_only(recipe.rewards),
        "num_tricks": sum(found["num_rows"] for found in audit.tricks.values()),
        "failures": audit.failures,
        "notes": audit.notes,
        "skipped": skipped,
        "inputs": manifest.hash_inputs(inputs),
    }


def find_form_only(rewards: list[tuple[str, float]]) -> list[str]:
    """The recipe's rewards where none of them can look at correctness; else nothing.

    A reward of the user's own may: it is compared on golds and exploits. One with weight 0 is only
    logged.
    """
    names = [name for name, weight in rewards if weight]
    if rewards and {*names} <= {*SHAPING, CHANCE}:
        return names or [f"{name} with weight 0" for name, _ in rewards]
    return []


def find_notes(
    args: Any, recipe: Recipe, settings: EvalArguments, sets: dict, skipped: dict[str, str]
) -> list[str]:
    """Facts that fail no recipe, and everything that could not be audited."""
    found = []
    if recipe.grpo:
        names = [name for name, weight in recipe.rewards if weight]
        if not {*GRADED} & {*names} and not find_form_only(recipe.rewards):
            found.append(
                "only a reward of your own can look at correctness; the audit checks that golds "
                f"earn more than exploits; rewards: {', '.join(names)}"
            )
        if LOOSE in names:
            found.append(
                f"{LOOSE} also rewards empty and repeated blocks, into which runs collapse"
            )
        if recipe.grpo.final_number != settings.final_number:
            found.append("final_number differs between grpo.yaml and eval.yaml")
    if args.tokenizer:
        found.append(f"not audited: the recipe's own tokenizer; {args.tokenizer} took its place")
    prompts = defaultdict(list)
    for name, rows in sets.items():
        messages = [message for row in rows for message in row["prompt"]]
        systems = {f"{m['content'][:40]!r}…" for m in messages if m["role"] == "system"}
        prompts[" and ".join(sorted(systems)) or "none"].append(name)
    if len(prompts) > 1:
        parts = "; ".join(f"{', '.join(names)}: {text}" for text, names in prompts.items())
        found.append(f"the system prompts differ: {parts}")
    return found + [f"not audited: {name}: {why}" for name, why in skipped.items()]


@dataclass
class Cases:
    """One set of problems and its completions, as a model would have written them."""

    name: str
    rows: list[dict]
    prompts: list[str]  # rendered, one for each row, as are the golds
    golds: list[str]
    tricks: list[list[str]]  # of the first rows, one completion for each of `TRICKS`

    @property
    def own_graders(self) -> list[str]:
        """The names of the user's own graders that judge some of the rows."""
        return list(dict.fromkeys(row[COLUMN] for row in self.rows if row.get(COLUMN)))


def applies(trick: str, row: dict) -> bool:
    """Whether an exploit must earn nothing in a row: a grader of the user's own may be laxer."""
    return not row.get(COLUMN) or trick in GENERAL_TRICKS


class Audit:
    """The findings so far; see `audit_recipe`."""

    def __init__(self, recipe: Recipe, settings: EvalArguments, args: Any) -> None:
        self._recipe, self._settings, self._args = recipe, settings, args
        self._send = recipe.send
        self.sets: dict[str, dict] = {}
        counts = ("num_rows", "num_paid", "num_above")
        self.tricks = {name: dict.fromkeys(counts, 0) for name in TRICKS}
        self.failures: list[dict] = []
        self.notes: list[str] = []
        self._accepted: dict[str, int] = {}  # by exploit that does not apply, of one set

    def check_set(self, name: str, rows: list[dict]) -> None:
        prompts = render_prompts(rows, self._recipe.tokenizer)
        # SFT rows have the completions that will be trained on.
        golds = [
            row.get("completion") or audit_cases.gold_completion(row["answers"], row["answer_form"])
            for row in rows
        ]
        some = rows[: self._args.num_tricked]
        wrong = audit_cases.wrong_answers_of(some)
        tricks = []
        for row, prompt, answer in zip(some, prompts, wrong, strict=False):
            texts = audit_cases.trick_completions(row["answers"], row["answer_form"], answer)
            tricks.append([render_completion(text, prompt) for text in texts])
        cases = Cases(name, rows, prompts, _render(golds, prompts), tricks)
        self._accepted = dict.fromkeys(TRICKS, 0)
        rates = {
            "question": self._check_question(cases),
            "template": self._check_template(cases),
            "reward": self._check_reward(cases),
            "task": self._check_task(cases),
        }
        official = self._ask_official(cases)
        if cases.own_graders:
            self._note_own_graders(cases)
        occurs = sum(row["answers"][0] in question_of(row) for row in rows)
        self.sets[name] = {"num_rows": len(rows), "rates": rates, "official": official}
        self.sets[name]["num_gold_in_question"] = occurs

    def _note_own_graders(self, cases: Cases) -> None:
        """Say which cases do not apply to a grader of the user's own, and which it accepts."""
        left_out = [trick for trick in TRICKS if trick not in GENERAL_TRICKS]
        shown = [f"{one!r} (accepted {self._accepted[one]:,} times)" for one in left_out]
        self.notes.append(
            f"{cases.name}: where {', '.join(cases.own_graders)} decides, the harness's parsers "
            f"and the exploits of our own grader's rules do not apply: {', '.join(shown)}"
        )

    def _rate(self, cases: Cases, check: str, found: list[str]) -> float:
        """The share of rows without a fault; the first faults are kept."""
        faults = [(row, fault) for row, fault in zip(cases.rows, found, strict=True) if fault]
        for row, fault in faults[:MAX_FAILURES]:
            self._fail(cases, row, check, fault)
        return (len(found) - len(faults)) / len(found)

    def _fail(self, cases: Cases, row: dict, check: str, fault: str) -> None:
        self.failures.append({"set": cases.name, "row": row["id"], "check": check, "fault": fault})

    def _check_question(self, cases: Cases) -> float:
        """Whether no question states its own answer, which a model would only have to copy."""
        found = []
        for row in cases.rows:
            stated = stated_answers(question_of(row))
            shown = [one for one in stated if is_answer(one, row)]
            found.append(f"the question states its answer: {shown[0]!r}" if shown else "")
        return self._rate(cases, "question", found)

    def _check_template(self, cases: Cases) -> float:
        """Whether each prompt is whole, and each gold survives the tokenizer and ends in place."""
        found = []
        for row, prompt, text in zip(cases.rows, cases.prompts, cases.golds, strict=True):
            fault = self._prompt_fault(row, prompt)
            kept = str(self._send(text, Settings(max_new_tokens=NO_LIMIT)))
            if not fault and kept != text:
                at = _first_difference(text, kept)
                fault = f"{text[at : at + 20]!r} becomes {kept[at : at + 20]!r}"
                if at == len(kept):
                    fault = f"ends early, after {kept[-40:]!r}"
            found.append(fault)
        return self._rate(cases, "template", found)

    def _prompt_fault(self, row: dict, prompt: str) -> str:
        """What is wrong with a rendered prompt, or nothing."""
        for message in row["prompt"]:
            if message["content"].strip() not in prompt:  # templates strip contents
                return f"the template leaves out the {message['role']} message"
        tokenizer = self._recipe.tokenizer
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        start = tokenizer.bos_token_id
        if start is not None and ids[:2] == [start, start]:
            return f"the template writes {tokenizer.bos_token!r} twice"
        return ""

    def _check_reward(self, cases: Cases) -> float | None:
        """Whether each gold earns the recipe's rewards for correctness and for the form."""
        if self._recipe.grpo is None:
            return None
        limit = Settings(self._recipe.config.max_completion_length or NO_LIMIT)
        # Worked solutions of SFT may be longer than GRPO lets a model write.
        own = limit if cases.name != "sft_train" else Settings(NO_LIMIT)
        sent = [self._send(text, own) for text in cases.golds]
        found = [""] * len(sent)
        earned = self._reward(cases, sent)
        graded = [reward for reward in earned if reward in GRADED]
        # The loose one knows `<answer>` alone, and a benchmark may be asked for a box.
        is_trained = cases.name in ("sft_train", "grpo_train")
        owed = [name for name in FORMATS if name in earned and (is_trained or name != LOOSE)]
        for reward in [*graded, *owed]:
            for place, value in enumerate(earned[reward]):
                if value <= 0 and not found[place]:
                    found[place] = f"{reward} is {value:g}"
                    if sent[place].cut_off:
                        found[place] += f", cut off at {own.max_new_tokens} tokens"
        others = {}
        for trick, texts in zip(TRICKS, zip(*cases.tricks, strict=True), strict=True):
            written = [self._send(text, limit) for text in texts]
            others[trick] = written, self._reward(cases, written)
            for reward in graded:
                self._count(cases, trick, written, others[trick][1][reward], "reward")
        if {*earned} - {*SHAPING}:
            self._compare(cases, found, sent, earned, others)
        rate = self._rate(cases, "reward", found)
        return rate if graded else None

    def _compare(
        self, cases: Cases, found: list[str], sent: list[Completion], earned: dict, others: dict
    ) -> None:
        """Compare each gold with its exploits by the sum of all rewards, as GRPO does."""
        weights = dict(self._recipe.rewards)

        def total(earned: dict[str, list[float]], place: int) -> float:
            return sum(values[place] for reward, values in earned.items() if weights[reward])

        for place, row in enumerate(cases.rows[: len(cases.tricks)]):
            if found[place] or sent[place].cut_off:
                continue  # reported already
            gold = total(earned, place)
            sums = {
                trick: total(values, place)
                for trick, (written, values) in others.items()
                if not written[place].cut_off and applies(trick, row)
            }
            margin = MARGIN * (max(gold, *sums.values()) - min(gold, *sums.values()))
            for trick, value in sums.items():
                if gold - value <= margin:
                    self.tricks[trick]["num_above"] += 1
                    if self.tricks[trick]["num_above"] == 1:
                        text = f"{trick!r} earns {value:g}, the gold {gold:g} (sum of all rewards)"
                        self._fail(cases, row, "reward", text)

    def _reward(self, cases: Cases, completions: list[Completion]) -> dict[str, list[float]]:
        """`{reward: its value for each completion}`, without rewards that cannot be run here.

        Values are times the weight, as a negative one rewards the opposite. A reward with weight 0
        is only logged, and counts with weight 1 here.
        """
        from stages.rewards import build_rewards, reward_columns

        prefilled = prefills_think(cases.prompts[0])
        functions = build_rewards(self._recipe.grpo, self._recipe.config, prefilled)
        rows = cases.rows[: len(completions)]
        (whole,) = reward_columns(cases.rows)
        names = [name for name in whole[0] if name != "prompt"]
        batch = {name: [row[name] for row in whole[: len(rows)]] for name in names}
        batch["question"] = list(map(question_of, rows))
        tokenizer, texts = self._recipe.tokenizer, list(map(str, completions))
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        batch |= {
            "prompts": [row["prompt"] for row in rows],
            "completions": [[{"role": "assistant", "content": text}] for text in texts],
            "completion_ids": [[*some, tokenizer.eos_token_id] for some in ids],
            "log_metric": lambda name, value: None,
            "log_extra": lambda name, values: None,
        }
        earned = {}
        for (name, weight), function in zip(self._recipe.rewards, functions, strict=True):
            try:
                values = function(**batch)
                if inspect.isawaitable(values):
                    values = asyncio.run(values)
                earned[name] = [(weight or 1.0) * (value or 0.0) for value in values]  # None is 0
            except Exception as error:  # a user's function; it may need a trainer
                if name in (*GRADED, *SHAPING) or memory_fault(error):
                    raise
                note = f"not audited: {name}: {type(error).__name__}: {error}"
                if note not in self.notes:
                    self.notes.append(note)
        return earned

    def _count(
        self, cases: Cases, trick: str, texts: list[Completion], earned: Iterable[float], check: str
    ) -> None:
        """Count the rewards of an exploit; one that was cut off is no longer the exploit."""
        tried = [
            (row, text, value > 0)
            for row, text, value in zip(cases.rows, texts, earned, strict=False)
            if not text.cut_off
        ]
        others = [one for one in tried if not applies(trick, one[0])]
        self._accepted[trick] += sum(is_rewarded for *_, is_rewarded in others)
        tried = [one for one in tried if applies(trick, one[0])]
        won = [(row, text) for row, text, is_rewarded in tried if is_rewarded]
        self.tricks[trick]["num_rows"] += len(tried)
        self.tricks[trick]["num_paid"] += len(won)
        for row, text in won[:1]:
            self._fail(cases, row, check, f"{trick!r} is rewarded: {str(text)[-60:]!r}")

    def _check_task(self, cases: Cases) -> float | None:
        """Whether the harness's think-aware task scores each gold; None for training files."""
        name, settings = cases.name, self._settings
        if name not in settings.tasks:
            return None
        metadata = settings.problem_keys() | {"tokenizer": self._recipe.tokenizer.name_or_path}
        length = {"max_gen_toks": settings.max_new_tokens}

        def grade(texts: list[list[str]]) -> list[list[dict]]:
            """The task's records of the first problems, several completions for each."""
            tasks = load_think_tasks([name], metadata, length, len(texts[0]))
            found = run_scripted(tasks, lambda at, turn: texts[at][turn], self._send, len(texts))
            return [one["completions"] for one in sorted(found[name], key=lambda s: s["doc_id"])]

        faults = []
        for (one,) in grade([[text] for text in cases.golds]):
            fault = "" if one["score"] == 1 else one["verdict"]
            if fault and one["cut_off"]:
                fault += f", cut off at {settings.max_new_tokens} tokens"
            faults.append(fault)
        for trick, found in zip(TRICKS, zip(*grade(cases.tricks), strict=True), strict=True):
            texts = [Completion(one["completion"], 0, one["cut_off"]) for one in found]
            self._count(cases, trick, texts, [one["score"] for one in found], "task")
        return self._rate(cases, "task", faults)

    def _ask_official(self, cases: Cases) -> dict[str, dict[str, float]]:
        """The share of an evaluation set's golds that each parser scores, for each ending."""
        # They read mathematics, and not what a grader of the user's own is for.
        ours = [at for at, row in enumerate(cases.rows) if not row.get(COLUMN)]
        ours = ours[: self._args.num_parsed]
        rows = [cases.rows[at] for at in ours]
        if cases.name not in self._settings.tasks or not rows:
            return {}
        # The official tasks on options compare them and read no text.
        if rows[0]["source"] in CHOICE_SOURCES:
            return {}
        prompts = [cases.prompts[at] for at in ours]
        golds, forms = [[row[key] for row in rows] for key in ("answers", "answer_form")]
        how = {"think_prefilled": prefills_think(prompts[0])}
        how["final_number"] = self._settings.final_number
        found = {}
        for ending in ENDINGS:
            written = [
                audit_cases.ending_completion(*one, ending)
                for one in zip(golds, forms, strict=True)
            ]
            texts = _render(written, prompts)
            official, unscored = parse_officially([gold[0] for gold in golds], texts, self._send)
            grades = grade_rollouts(texts, golds, forms, list(map(question_of, rows)), **how)
            scores = {"ours": [grade.verdict == "right" for grade in grades]} | official
            found[ending] = {parser: sum(all_) / len(all_) for parser, all_ in scores.items()}
            if unscored:
                self.notes.append(
                    f"{cases.name}: {len(unscored)} golds are too much for the harness's own "
                    "parsers, which count them as incorrect, the first in row "
                    f"{rows[unscored[0]]['id']}"
                )
        return found


def is_answer(text: str, row: dict) -> bool:
    """Whether a text equals a gold of a row, for the grader that judges it."""
    if row.get(COLUMN):
        return accepts(row[COLUMN], text, row["answers"], row["answer_form"])
    return any(is_same_value(text, gold) for gold in row["answers"])


def _first_difference(one: str, other: str) -> int:
    """The place of the first character in which two texts differ."""
    for at, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return at
    return min(len(one), len(other))


def _render(completions: list[str], prompts: list[str]) -> list[str]:
    return [render_completion(*one) for one in zip(completions, prompts, strict=False)]
