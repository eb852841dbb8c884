"""Builds in this process, and what `functions.yaml` asks of the filters."""

import ast
import contextlib
import json
import sys
from pathlib import Path

import pytest
import yaml

from data_prep.builder import __main__ as build
from data_prep.builder import filters
from data_prep.builder.filters import check_damage, check_problem, find_band, find_foreign
from data_prep.builder.recipe import BANDS, LANGUAGES, ByLevel, Source
from data_prep.builder.sets import plan_counts
from data_prep.schema import Problem
from data_prep.sources.base import Drop
from pipeline import manifest

# Function -> texts that are such; behind "not" those that are not.
KINDS = json.loads(Path(__file__).with_name("kinds.json").read_text(encoding="utf-8"))
FRENCH = "Trouver tous les entiers naturels dont la somme des chiffres est égale au produit."


def run(tmp_path, recipe, *flags):
    """Build a recipe with one worker, unless it says otherwise; (its folder, the manifest)."""
    config = tmp_path / "data.yaml"
    recipe = {"output_dir": "{run}/data", "data_root": str(tmp_path), "num_workers": 1} | recipe
    config.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        argv = ["build", "--config", str(config), "--run_dir", str(tmp_path / "run"), *flags]
        patch.setattr(sys, "argv", argv)
        build.main()
    return tmp_path / "run/data", manifest.read(tmp_path / "run/data")


def check(question="q", gold="7", solution="", level=None, key="grpo", **bounds):
    """The golds that can serve, or why the problem is dropped: the reason and its detail."""
    problem = Problem("a", "math", question, (gold,), solution, level)
    try:
        return check_problem(problem, Source("math", **bounds), key)
    except Drop as drop:
        return drop.reason, drop.detail


def check_level(bounds, level):
    return check(level=level, **bounds)


def band(difficulty, level):
    if isinstance(difficulty, dict):
        difficulty = ByLevel(**difficulty)
    return find_band(difficulty, level)


def counts(available, shares, size):
    """Of each band."""
    mix = dict(zip(BANDS, shares, strict=True)) | ({"size": size} if size else {})
    found = plan_counts(dict(zip(BANDS, available, strict=True)), mix)
    return [found.get(name, 0) for name in BANDS]


def languages_around(opening, closing):
    """Of English around French, of French behind, of French in what is not closed."""
    texts = (
        f"How many? {opening} {FRENCH} {closing} And 5?",
        f"{opening} x {closing} {FRENCH} $y$",
        f"{opening} {FRENCH}",
    )
    return [find_foreign(text, ("en",)) for text in texts]


def shows_answer(question, gold):
    return check(question, gold)[0] == "shows_answer"


def damage(question):
    """Why a question is dropped, from training sets and tests alike; None where it stays."""
    found = check(question)
    assert found == check(question, key="test")
    return None if found == ("7",) else found[0]


def disagreement(solution):
    """What a solution says where SFT drops it for that; GRPO has no solutions."""
    assert check("What is 3 + 4?", solution=solution) == ("7",)
    found = check("What is 3 + 4?", solution=solution, key="sft")
    if found == ("7",):
        return None
    reason, detail = found
    assert reason == "solution_disagrees" and detail.endswith(", gold '7'")
    return ast.literal_eval(detail.removesuffix(", gold '7'"))


def ends(hostile):
    """As a question, a solution, a gold, for every filter."""
    for kind in KINDS:
        if not kind.startswith("not "):
            assert getattr(filters, kind)(hostile) in (True, False)
    with contextlib.suppress(Drop):
        check_damage(hostile)
    check(hostile, "1", "x", key="sft")
    check("How many?", "1", hostile, key="sft")
    check("How many?", hostile, "x", key="sft")
    return find_foreign(f"How many? {hostile}", ("en", "fr")) in (None, *LANGUAGES)
