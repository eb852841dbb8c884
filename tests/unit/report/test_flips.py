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
    before = both_modes(0, num_problems=30)
    after = both_modes(20, num_problems=30)
    first = flips.find_flips(grouped(before), grouped(after))
    again = flips.find_flips(grouped(before[::-1]), grouped(after[::-1]))

    def ids(found):
        return [(row["id"], row["mode"], row["sample"]) for _, row in found]

    assert ids(first) == ids(again) and len(first) == flips.NUM_FLIPS
    assert [row["id"] for _, row in first] != [f"p{i}" for i in range(10)]  # not the first ones


def test_loglikelihoods_and_equal_scores_do_not_flip():
    choices = make_rows(solved(0), mode="official:arc_challenge")
    choices = [row | {"completion": None, "verdict": None} for row in choices]
    after = [row | {"score": 1.0} for row in choices]
    same = both_modes(2)
    assert flips.find_flips(grouped(choices + same), grouped(after + same)) == []


def test_official_completions_take_turns_of_their_own():
    before = both_modes(0, "gsm8k", num_problems=40)
    before += [
        row | {"id": f"o{row['id']}"}
        for row in make_rows(solved(0, num_problems=40), "gsm8k", "official:gsm8k")
    ]
    after = [row | {"score": 1.0} for row in before]
    found = flips.find_flips(grouped(before), grouped(after), 7)
    assert [flips.is_official(row["mode"]) for _, row in found] == [False] * 4 + [True] * 3


def test_unread_are_right_for_us_and_not_for_the_official_parser():
    rows = make_rows(solved(9, num_problems=9), "gsm8k", "official:gsm8k")
    unread = [row | {"outcome": "unread", "score": 0.0} for row in rows]
    others = unread[0] | {"verdict": "no_answer"}, unread[1] | {"mode": "greedy"}, rows[2]
    assert flips.find_unread(grouped(others)) == []
    found = flips.find_unread(grouped(unread))
    assert len(found) == flips.MAX_UNREAD
    assert found == flips.find_unread({key: v[::-1] for key, v in grouped(unread).items()})


def test_shorten_keeps_beginning_and_end():
    long = "a" * flips.HEAD + "b" * 1234 + "c" * flips.TAIL
    found = flips.shorten(long)
    assert found.startswith("a" * flips.HEAD + "\n") and found.endswith("\n" + "c" * flips.TAIL)
    assert "1,234 characters left out" in found and "b" not in found.replace("out", "")
    assert flips.shorten("x" * (flips.HEAD + flips.TAIL)) == "x" * (flips.HEAD + flips.TAIL)
