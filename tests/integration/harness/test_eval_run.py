"""`eval.run` from its command line: what it writes, what it shows, and what it asks a model for."""

import json
from dataclasses import replace

import pytest

from data_prep.sampling.store import Settings
from eval.harness.cached_lm import read_settings
from pipeline.errors import UserError
from tests.integration.harness.eval_runs import (
    PROBLEMS,
    Scripted,
    counting,
    evaluate,
    read_evaluated,
    read_keys,
    read_rows,
    read_scores,
    recite,
    write_problems,
)
from tests.results import left_in

pytestmark = pytest.mark.integration


@pytest.fixture
def folder(tmp_path):
    write_problems(tmp_path / "test.jsonl")
    return tmp_path


def test_what_a_run_leaves(folder, tiny_model_dir, capsys):
    base = evaluate(folder, f"base={tiny_model_dir}", num_samples=3)
    out = capsys.readouterr().out
    assert out.startswith("eval: 1 checkpoint (1 now, in ") and out.count("\n") == 1
    assert "on 3 problems of held_out, 12 completions each; results in " in out
    assert sorted(path.name for path in base.iterdir()) == [
        "completions.parquet", "samples", "scores.json"
    ]  # fmt: skip

    rows = read_rows(base)
    expected = [(f"p{i}", "greedy", 0) for i in range(3)]
    expected += [(f"p{i}", "sampled", k) for i in range(3) for k in range(3)]
    assert [(row["id"], row["mode"], row["sample"]) for row in rows] == expected
    assert all(1 <= row["num_tokens"] <= 8 for row in rows)
    assert all(row["cut_off"] == (row["num_tokens"] == 8) for row in rows)
    sampled = [row for row in rows if row["mode"] == "sampled"]
    assert len({(row["id"], row["completion"]) for row in sampled}) == 9, "no two are alike"
    found = [(row["question"], row["gold"], row["level"]) for row in rows[:3]]
    assert found == [(q, [a], level) for level, (q, a) in enumerate(PROBLEMS.items(), 1)]

    scores = read_scores(base)
    assert scores["checkpoint"] == str(tiny_model_dir)
    assert (scores["num_problems"], scores["num_completions"]) == (3, 12)
    assert scores["num_tokens"] == sum(row["num_tokens"] for row in rows)
    modes = scores["tasks"]["held_out"]
    common = ["format_rate", "cut_off_rate", "completion_length", "answer_right"]
    assert [*modes["greedy"]["metrics"]] == ["accuracy", *common]
    assert [*modes["sampled"]["metrics"]] == ["avg@3", "pass@2", "pass@3", "maj@3", *common]

    manifest = json.loads((folder / "eval" / "manifest.json").read_text())
    assert manifest["counts"] == {"problems": 3, "completions": 12}
    assert manifest["inputs"] == {
        f"{folder}/test.jsonl": scores["fingerprint"]["data"][f"{folder}/test.jsonl"],
        str(tiny_model_dir): scores["fingerprint"]["checkpoint"],
    }


def test_only_what_changed_is_evaluated(folder, tiny_model_dir, capsys):
    """A checkpoint that is added, and one that is taken out."""
    evaluate(folder, f"base={tiny_model_dir}")
    evaluate(folder, f"base={tiny_model_dir}", f"sft={tiny_model_dir}")
    assert read_evaluated(folder / "eval") == ["sft"]
    evaluate(folder, f"sft={tiny_model_dir}")
    assert read_evaluated(folder / "eval") == []
    assert "sft: already evaluated with the same inputs, kept" in capsys.readouterr().out


def test_results_of_other_settings_stay(folder, tiny_model_dir):
    engine, checkpoint = Scripted(tiny_model_dir, lambda _: ("", False)), f"base={tiny_model_dir}"
    with recite(**{tiny_model_dir.name: engine}):
        evaluate(folder, checkpoint)
        before = left_in(folder / "eval")
        with pytest.raises(UserError, match=r"^temperature: 0\.5, not 1\.0: .*=(.*)/eval-2$"):
            evaluate(folder, checkpoint, temperature=0.5)
        assert left_in(folder / "eval") == before
        base = evaluate(folder, checkpoint, temperature=0.5, output_dir=folder / "eval-2")
        assert read_scores(base)["settings"]["temperature"] == 0.5
        evaluate(folder, checkpoint, num_samples=3)
    assert len(read_rows(folder / "eval/base")) == 3 * 4


def test_one_question_twice(folder, tiny_model_dir):
    """Equal prompts of two problems are samples of their own, numbered on."""
    lines = (folder / "test.jsonl").read_text().splitlines()
    twice = json.loads(lines[0]) | {"id": "again", "answers": ["8"]}
    (folder / "test.jsonl").write_text("\n".join([*lines, json.dumps(twice)]) + "\n")
    with counting() as asked:
        base = evaluate(folder, f"base={tiny_model_dir}")
    rows = [row for row in read_rows(base) if row["mode"] == "sampled"]
    texts = [row["completion"] for row in rows if row["id"] in ("p0", "again")]
    assert len(set(texts)) == 4
    assert len(read_keys(base)) == len(set(read_keys(base))) == len(asked) == 4 * 3


def test_text_that_utf_8_lacks(folder, tiny_model_dir):
    """Halves of surrogate pairs, zeros and line ends of other kinds, through store and tables."""
    text = "<think>\n\ud83d\0\u2028\x85\r\n</think>\n\n\\boxed{14}\udc00"
    with recite(**{tiny_model_dir.name: Scripted(tiny_model_dir, lambda _: (text, False))}):
        base = evaluate(folder, f"base={tiny_model_dir}")
        first = read_rows(base)
        (base / "scores.json").unlink()
        evaluate(folder, f"base={tiny_model_dir}")
    shown = text.replace("\ud83d", "\ufffd").replace("\udc00", "\ufffd")
    assert {row["completion"] for row in first} == {shown}
    assert read_rows(base) == first
    assert {row["score"] for row in first if row["id"] == "p0"} == {1.0}


def test_what_each_mode_asks_for(folder, tiny_model_dir):
    """From the recipe to the engine; nothing is left to a checkpoint's or the harness's taste."""
    settings = {"num_samples": 3, "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 11, "seed": 5}
    engine = Scripted(tiny_model_dir, lambda _: ("", False))
    with recite(**{tiny_model_dir.name: engine}):
        evaluate(folder, f"base={tiny_model_dir}", **settings)
    greedy = Settings(11)
    sampled = replace(greedy, temperature=0.6, top_p=0.9, seed=5)
    assert (greedy.until, greedy.rendered, greedy.temperature) == ((), True, 0.0)
    found = [(request.settings, request.sample) for request in engine.asked]
    assert found.count((greedy, 0)) == 3
    assert [found.count((sampled, k)) for k in range(3)] == [3, 3, 3]
    assert len(found) == 12


def test_each_request_knows_its_row(folder, tiny_model_dir):
    """For the line of an error: a row that is too long for the model."""
    engine = Scripted(tiny_model_dir, lambda _: ("", False))
    with recite(**{tiny_model_dir.name: engine}):
        evaluate(folder, f"base={tiny_model_dir}", num_samples=0)
    assert {one.place for one in engine.asked} == {f"held_out: p{i}: " for i in range(3)}


def test_generation_settings_of_a_task():
    """An official task's; those of ours are above."""
    from lm_eval.models.huggingface import HFLM

    official = {"do_sample": False, "temperature": 0.7, "top_p": 0.5, "until": "a"}
    limit = HFLM.max_gen_toks.fget(None)
    assert read_settings(official, 9) == Settings(limit, until=("a",), rendered=False)
