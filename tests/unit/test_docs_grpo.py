"""docs/grpo.md and docs/curriculum.md list every reward, guard and mode."""

import re
from pathlib import Path

from stages.arguments import MODES, REWARD_FUNCS
from stages.trainer.guards import ACTIONS, RULES, GuardSettings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def table(page, head):
    """The rows below the table head that begins so, cell by cell without code marks."""
    text = (DOCS / page).read_text(encoding="utf-8")
    block = re.search(rf"^\|{re.escape(head)}[^\n]*\n\|[-|:]+\|\n((?:\|.*\n)+)", text, re.M)
    rows = [line[1:-1].split("|") for line in block[1].splitlines()]
    return [[cell.replace("`", "") for cell in row] for row in rows]


def test_every_reward_and_guard_is_listed():
    assert [row[0] for row in table("grpo.md", "name|value")] == [*REWARD_FUNCS]
    assert {row[0].split()[0] for row in table("grpo.md", "action")} == {*ACTIONS}
    defaults = GuardSettings()
    limits = {row[0]: row[2] for row in table("grpo.md", "`guard_…`")}
    assert limits == {
        name: f"guard_{rule.limit}, {getattr(defaults, rule.limit):g}"
        for name, rule in RULES.items()
    }


def test_every_mode_is_listed():
    assert {row[0].split()[0] for row in table("curriculum.md", "mode")} == {*MODES}
