"""The audit's result: rates, counts and failing rows of its table; does the recipe pass?"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from data_prep.schema import grader_files
from eval.audit.cases import GENERAL_TRICKS, TRICKS
from eval.audit.checks import GOLD, LOOSE, SHAPING, SUM, AuditedSet, Line
from eval.audit.inputs import Recipe, collect_sets, load_recipe
from eval.audit.page import percent
from eval.harness.settings import EvalArguments
from grading.own_grader import COLUMN
from pipeline import manifest
from pipeline.console import quiet
from pipeline.own_code import own_files
from pipeline.recipe_files import files_of
from stages.arguments import GRADED

CHECKS = ("question", "template", "reward", "task")
CHANCE = "random_reward"
THRESHOLD = 0.99
MAX_FAILURES = 5  # of golds, kept for each set and check; of each exploit there one


def audit_recipe(args: Any, settings: EvalArguments) -> dict[str, Any]:
    """Send the golds and exploits of every set through all checks.

    Returns:
        `passes`, `faults` (see `judge`); `sets[name] = {"num_rows", "rates": {check: share or
        None}, "official": {ending: {parser: share}}}`; `tricks[name] = {"num_rows", "num_paid",
        "num_above"}` (rewarded; rewarded as much as the gold, or nearly); `failures`, `notes`,
        `skipped`, `inputs`.
    """
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(args, folder)
        sets, skipped = collect_sets(recipe, settings, args.num_rows)
        audited = [AuditedSet(name, rows, recipe, settings, args) for name, rows in sets.items()]
        for one in audited:
            one.check()
        official = {one.name: one.ask_official() for one in audited}
    lines = [line for one in audited for line in one.lines]
    table = pd.DataFrame(lines, columns=Line._fields, dtype=object).astype({"applies": bool})
    notes = [note for one in audited for note in [*one.notes, *note_own_graders(one)]]
    files: list[str | Path | None] = [*recipe.files.values()]
    files += [settings.test_file, settings.transfer_file]
    files += grader_files(row for rows in sets.values() for row in rows)
    files += own_files([*recipe.rewards])
    report: dict[str, Any] = {
        "recipe": args.recipe,
        "tokenizer": recipe.model,
        "max_new_tokens": settings.max_new_tokens,
        "sets": {
            name: {
                "num_rows": len(rows),
                "rates": find_rates(table[table["set"] == name], recipe.rewards),
                "official": official[name],
            }
            for name, rows in sets.items()
        },
        "tricks": count_tricks(table),
        "failures": find_failures(table),
        "notes": [*dict.fromkeys(notes), *find_notes(args, recipe, settings, sets, skipped)],
        "skipped": skipped,
        "inputs": manifest.hash_inputs(
            [*files_of(args.recipe), *(f for f in files if f and Path(f).is_file())]
        ),
    }
    report["faults"] = judge(report, recipe.rewards)
    report["passes"] = not report["faults"]
    return report


def find_rates(table: pd.DataFrame, rewards: Iterable[str]) -> dict[str, float | None]:
    """The share of one set's golds that pass each check; None for one that it does not have."""
    golds = table[table["kind"] == GOLD]
    rates = golds["fault"].eq("").groupby(golds["check"]).mean().to_dict()
    if not {*GRADED} & {*rewards}:  # none looks at correctness
        rates.pop("reward", None)
    return {check: rates.get(check) for check in CHECKS}


def count_tricks(table: pd.DataFrame) -> dict[str, dict[str, int]]:
    """How often each exploit was tried, rewarded, and worth as much as the gold or nearly."""
    tried = table[(table["kind"] != GOLD) & table["applies"]]
    is_sum, is_fault = tried["reward"] == SUM, tried["fault"] != ""
    counts = pd.DataFrame(
        {"num_rows": ~is_sum, "num_paid": ~is_sum & is_fault, "num_above": is_sum & is_fault}
    )
    counts = counts.groupby(tried["kind"]).sum().reindex([*TRICKS], fill_value=0)
    return counts.to_dict("index")


def find_failures(table: pd.DataFrame) -> list[dict[str, str]]:
    """`set`, `row`, `check` and `fault` of the first faults of each kind, golds before exploits."""
    failing = table[table["applies"] & (table["fault"] != "")]
    golds, tricks = failing[failing["kind"] == GOLD], failing[failing["kind"] != GOLD]
    kept = pd.concat(
        [
            golds.groupby(["set", "check"], sort=False).head(MAX_FAILURES),
            tricks.groupby(["set", "check", "kind", "reward"], sort=False).head(1),
        ]
    )
    return kept[["set", "row", "check", "fault"]].to_dict("records")


def judge(report: dict[str, Any], rewards: dict[str, float]) -> list[str]:
    """Why a recipe fails by a report of `audit_recipe`, the most serious reasons first.

    Args:
        rewards: the weight of each of the recipe's rewards.
    """
    faults = []
    if only := find_form_only(rewards):
        faults.append(
            f"reward_funcs: nothing rewards correctness: {', '.join(only)} cannot tell a correct "
            "answer from an incorrect one; add correctness_reward, or compare with such a reward "
            "by `make control`"
        )
    for name, found in report["sets"].items():
        for check, rate in found["rates"].items():
            least = 1.0 if check == "question" else THRESHOLD
            if rate is not None and rate < least:
                faults.append(
                    f"{name}: {check} passes {percent(rate)} % of the golds "
                    f"(at least {100 * least:.0f} % must pass)"
                )
    for trick, found in report["tricks"].items():
        if found["num_paid"]:
            faults.append(f"{trick!r} is rewarded {found['num_paid']} of {found['num_rows']} times")
        if found["num_above"]:
            faults.append(
                f"the sum of all rewards is as high for {trick!r} as for the gold, or nearly, "
                f"{found['num_above']} times"
            )
    if rewards.get(CHANCE):
        faults.append(
            "reward_funcs: random_reward has a weight; leave it to `make control`, or remove it"
        )
    if not report["sets"]:
        faults.append("no set could be audited")
    elif report["skipped"] and all(f["rates"]["task"] is None for f in report["sets"].values()):
        faults.append(f"no task could be audited: {next(iter(report['skipped'].values()))}")
    return faults


def find_form_only(rewards: dict[str, float]) -> list[str]:
    """The recipe's rewards where none of them can look at correctness; else nothing.

    A reward of the user's own may: it is compared on golds and exploits. One with weight 0 is only
    logged.
    """
    names = [name for name, weight in rewards.items() if weight]
    if rewards and {*names} <= {*SHAPING, CHANCE}:
        return names or [f"{name} with weight 0" for name in rewards]
    return []


def note_own_graders(one: AuditedSet) -> list[str]:
    """What does not apply to the user's own graders in a set, and how much of it they accept."""
    graders = dict.fromkeys(row[COLUMN] for row in one.rows if row.get(COLUMN))
    if not graders:
        return []
    accepted = Counter(line.kind for line in one.lines if line.fault and not line.applies)
    left_out = [trick for trick in TRICKS if trick not in GENERAL_TRICKS]
    shown = [f"{trick!r} (accepted {accepted[trick]:,} times)" for trick in left_out]
    return [
        f"{one.name}: where {', '.join(graders)} decides, the harness's parsers and the exploits "
        f"of our own grader's rules do not apply: {', '.join(shown)}"
    ]


def find_notes(
    args: Any, recipe: Recipe, settings: EvalArguments, sets: dict, skipped: dict[str, str]
) -> list[str]:
    """Facts that fail no recipe, and everything that could not be audited."""
    found = []
    names = [name for name, weight in recipe.rewards.items() if weight]
    if names and not {*GRADED} & {*names} and not find_form_only(recipe.rewards):
        found.append(
            "only a reward of your own can look at correctness; the audit checks that golds earn "
            f"more than exploits; rewards: {', '.join(names)}"
        )
    if LOOSE in names:
        found.append(f"{LOOSE} also rewards empty and repeated blocks, into which runs collapse")
    if recipe.grpo and recipe.grpo.final_number != settings.final_number:
        found.append("final_number differs between grpo.yaml and eval.yaml")
    if args.tokenizer:
        found.append(f"not audited: the recipe's own tokenizer; {args.tokenizer} took its place")
    prompts = defaultdict(list)
    for name, rows in sets.items():
        chats = [row["prompt"] for row in rows if not isinstance(row["prompt"], str)]
        messages = [message for chat in chats for message in chat]
        systems = {f"{m['content'][:40]!r}…" for m in messages if m["role"] == "system"}
        prompts[" and ".join(sorted(systems)) or "none"].append(name)
    if len(prompts) > 1:
        parts = "; ".join(f"{', '.join(names)}: {text}" for text, names in prompts.items())
        found.append(f"the system prompts differ: {parts}")
    return found + [f"not audited: {name}: {why}" for name, why in skipped.items()]
