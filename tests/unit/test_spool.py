"""Problems go to disk and come back as they were."""

from data_prep.build.spool import Spool
from data_prep.schema import Problem


def test_a_spool_gives_back_what_it_took_in_any_order(tmp_path):
    first = Problem("a-1", "math", "x\u2028y\ud83d", "1", "s", 2.5, ("2", "3"), "algebra", 0.25, 1)
    others = [Problem(f"b-{n}", "orz", "q" * n, str(n)) for n in range(50)]
    spool = Spool(tmp_path / "spool")
    assert spool.append(first, "f:1") == 0
    for number, problem in enumerate(others, 1):
        assert spool.append(problem, f"f:{number + 1}") == number
        assert spool.get(0) == (first, "f:1")  # reading between the writes
    assert len(spool) == 51
    for number in (50, 3, 27, 1):
        assert spool.get(number) == (others[number - 1], f"f:{number + 1}")
    spool.close()
