"""Which completions the report shows side by side, and in how many words."""

from eval.report import numbers as flips
from tests.unit.report.runs import both_modes, make_rows, solved


def grouped(rows):
    found = {}
    for place, row in enumerate(rows):
        found.setdefault((row["task"], row["mode"]), []).append(row | {"place": place})
    return found


def test_flips_take_turns_over_tasks_and_directions():
    before = both_modes(10, num_problems=40) + both_modes(0, "gsm8k", num_problems=40)
    after = [row | {"score": 1 - row["score"]} for row in before]
    found = flips.find_flips(grouped(before), grouped(after))
    kinds = [(row["task"], row["score"]) for _, row in found]
    # Three queues take turns: held_out's gains and losses, gsm8k's gains.
    assert kinds == [("held_out", 1)] * 4 + [("held_out", 0)] * 3 + [("gsm8k", 1)] * 3
    problems = {(row["task"], row["id"]) for _, row in found}
    assert len(problems) == flips.NUM_FLIPS
    assert all((a["id"], a["mode"], a["sample"]) == (b["id"], b["mode"], b["sample"])
               for a, b in found)  # fmt: skip


def test_flips_do_not_depend_on_the_order_of_the_rows():
    before, after = both_modes(0, num_problems=30), both_modes(20, num_problems=30)
    drawn = []
    for step in (1, -1):
        found = flips.find_flips(grouped(before[::step]), grouped(after[::step]))
        drawn.append([(row["id"], row["mode"], row["sample"]) for _, row in found])
    assert drawn[0] == drawn[1] and len(drawn[0]) == flips.NUM_FLIPS
    assert [id for id, *_ in drawn[0]] != [f"p{i}" for i in range(10)]  # not the first ones


def test_official_flips_have_turns_and_long_texts_lose_their_middle():
    before = both_modes(0, "gsm8k", num_problems=40)
    official = make_rows(solved(0, num_problems=40), "gsm8k", "official:gsm8k")
    before += [row | {"id": f"o{row['id']}"} for row in official]
    after = [row | {"score": 1.0} for row in before]
    found = flips.find_flips(grouped(before), grouped(after), 7)
    assert [flips.is_official(row["mode"]) for _, row in found] == [False] * 4 + [True] * 3
    text = flips.shorten("a" * flips.HEAD + "b" * 1234 + "c" * flips.TAIL)
    assert text.startswith("a" * flips.HEAD + "\n") and text.endswith("\n" + "c" * flips.TAIL)
    assert "1,234" in text and "bb" not in text


def test_loglikelihoods_and_equal_scores_do_not_flip():
    choices = make_rows(solved(0), mode="official:arc_challenge")
    choices = [row | {"completion": None, "verdict": None} for row in choices]
    after = [row | {"score": 1.0} for row in choices]
    same = both_modes(2)
    assert flips.find_flips(grouped(choices + same), grouped(after + same)) == []


def test_unread_are_right_for_us_and_not_for_the_official_parser():
    rows = make_rows(solved(9, num_problems=9), "gsm8k", "official:gsm8k")
    unread = [row | {"outcome": "unread", "score": 0.0} for row in rows]
    others = unread[0] | {"verdict": "no_answer"}, unread[1] | {"mode": "greedy"}, rows[2]
    assert flips.find_unread(grouped(others)) == []
    found = flips.find_unread(grouped(unread))
    assert len(found) == flips.MAX_UNREAD
    assert found == flips.find_unread({key: v[::-1] for key, v in grouped(unread).items()})
