"""The rows of one source: counts; and on disk, their problems as they were."""

import json

from data_prep.builder.recipe import DataArguments, Source
from data_prep.builder.rows import Job, read_source
from data_prep.builder.write import Spool
from data_prep.schema import Problem


def test_a_file_of_the_hub_is_fetched_and_read_as_a_local_one(tmp_path, monkeypatch):
    path = tmp_path / "boba.jsonl"
    path.write_text('{"prompt": "q", "solutions": ["1"]}\n' * 3)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: path)
    source = Source("areal_boba", hub="owner/set", hub_file="boba.jsonl")
    found = read_source(Job(source, "train", "grpo", DataArguments("out")))
    assert [where for _, where, _ in found] == [f"{path}:{n}" for n in (1, 2, 3)]


def test_a_spool_gives_back_what_it_took_in_any_order(tmp_path):
    first = Problem("a-1", "math", "x\u2028y\ud83d", ("1", "2"), "", 2.5, "algebra", 1)
    others = [Problem(f"b-{n}", "orz", "q" * n, (str(n),), f"s{n}") for n in range(50)]
    file = (tmp_path / "spool").open("w+b")
    spool = Spool(file, lambda problem: {"q": problem.question, "s": problem.solution})
    spool.append(first, "f:1")
    for number, problem in enumerate(others, 1):
        spool.append(problem, f"f:{number + 1}")
        assert spool.get(0) == (first, "f:1")  # reading between the writes
    assert spool.line(0) == b'{"q": "x\\u2028y\\ud83d", "s": ""}\n'
    for number in (50, 3, 27, 1):
        problem, where = spool.get(number)
        assert (problem.id, where) == (f"b-{number - 1}", f"f:{number + 1}")
        assert json.loads(spool.line(number))["s"] == f"s{number - 1}"
    file.close()
