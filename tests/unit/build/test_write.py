"""Rows on disk: their problems come back as they were, and their lines as they are written."""

import json

from data_prep.build.write import Spool
from data_prep.schema import Problem


def test_a_spool_gives_back_what_it_took_in_any_order(tmp_path):
    first = Problem("a-1", "math", "x\u2028y\ud83d", ("1", "2"), "", 2.5, "algebra", 0.25, 1)
    others = [Problem(f"b-{n}", "orz", "q" * n, (str(n),), f"s{n}") for n in range(50)]
    spool = Spool(
        tmp_path / "spool", lambda problem: {"q": problem.question, "s": problem.solution}
    )
    assert spool.append(first, "f:1") == 0
    for number, problem in enumerate(others, 1):
        assert spool.append(problem, f"f:{number + 1}") == number
        assert spool.get(0) == (first, "f:1")  # reading between the writes
    assert spool.line(0) == b'{"q": "x\\u2028y\\ud83d", "s": ""}\n'
    for number in (50, 3, 27, 1):
        problem, where = spool.get(number)
        assert (problem.id, where) == (f"b-{number - 1}", f"f:{number + 1}")
        assert json.loads(spool.line(number))["s"] == f"s{number - 1}"
    assert len(spool) == 51
    spool.close()
