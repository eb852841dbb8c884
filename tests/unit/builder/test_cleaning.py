"""What the build does to rows: every drop named and logged, bad rows, mixes."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from data_prep.builder.write import REMEDIES
from pipeline.errors import UserError
from tests.files import read_rows, write_rows
from tests.unit.builder.helpers import run

HERE = Path(__file__).parent
BUILDS = yaml.safe_load((HERE / "builds.yaml").read_text(encoding="utf-8"))
del BUILDS["shared"]
REASONS = yaml.safe_load((HERE / "reasons.yaml").read_text(encoding="utf-8"))
SOURCES = yaml.safe_load((HERE.parent / "sources/builders.yaml").read_text(encoding="utf-8"))
GENERIC = {"name": "generic", "file": "a.jsonl", "prompt_key": "q", "answer_key": "a"}
ALGEBRA = "A train leaves the station at noon and travels {} miles in {} hours. How fast is it?"


def generic(*pairs, **more):
    return [{"q": question, "a": answer} | more for question, answer in pairs]


def sums(numbers, sign="plus"):
    return [(f"What is {n} {sign} 1?", str(n)) for n in numbers]


def kept(folder):
    """The bytes of a build's sets and manifest, without what it logs."""
    names = [*folder.glob("*_train.jsonl"), *folder.glob("test.jsonl"), *folder.glob("*.json")]
    return {path.name: path.read_bytes() for path in names}


@pytest.mark.parametrize("rule", BUILDS)
def test_a_build_leaves_what_its_table_says(tmp_path, capsys, rule):
    folder = tmp_path / "run/data"
    for build in BUILDS[rule]:
        for name, rows in build.get("files", {}).items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            write_rows(tmp_path / name, rows)
        if "error" in build:
            before = kept(folder)
            with pytest.raises(UserError) as error:
                run(tmp_path, build["recipe"])
            said = str(error.value)
            assert "\n" not in said and kept(folder) == before
        else:
            _, made = run(tmp_path, build["recipe"])
            said = capsys.readouterr().err
            assert made["rows_out"] == build.get("rows_out", made["rows_out"])
            assert made["dropped"] == build.get("dropped", made["dropped"])
        for words in build.get("says", []):
            assert re.search(words, said)
        logged = read_rows(folder / "dropped.jsonl")
        reasons = [row["reason"] for row in logged]
        assert reasons == build.get("logged", reasons)
        details = {row["id"]: row["detail"] for row in logged if "id" in row}
        for id, words in build.get("details", {}).items():
            assert words in details[id]
        for name, columns in build.get("values", {}).items():
            for column, values in columns.items():
                found = [row[column] for row in read_rows(folder / f"{name}.jsonl")]
                assert sorted({json.dumps(one): one for one in found}.values()) == values


def test_each_reason_is_counted_and_logged_by_name(tmp_path):
    write_rows(tmp_path / "a.jsonl", generic(*(pair for *pair, _ in REASONS)))
    folder, written = run(tmp_path, {"grpo": [GENERIC], "languages": ["en"]})
    dropped = [(at, *row) for at, row in enumerate(REASONS, 1) if row[-1]]
    assert written["dropped"] == Counter(reason for *_, reason in dropped)
    logged = {row["where"]: row for row in read_rows(folder / "dropped.jsonl")}
    assert len(logged) == len(dropped)
    for line, question, _, reason in dropped:
        row = logged[f"{tmp_path}/a.jsonl:{line}"]
        assert (row["reason"], row["file"]) == (reason, "grpo_train.jsonl")
        assert question.strip() in row["question"]  # or in the row, which a source dropped
    # Evaluation sets are not filtered by kind or language, whatever is asked for.
    write_rows(tmp_path / "a.jsonl", generic(REASONS[8][:2], REASONS[11][:2]))
    assert run(tmp_path, {"test": [GENERIC], "languages": ["en"]})[1]["rows_out"] == 2


def test_every_reason_has_a_remedy_unless_another_source_is_it():
    reasons = {reason for *_, reason in REASONS + SOURCES["drops"] if reason}
    assert reasons - REMEDIES.keys() == {"image", "proof", "not_math", "invalid_problem"}


BAD_LINES = [
    b'{"q": "What is 1 plus 1?", "a": ',  # cut off
    b'{"q": "caf\xe9", "a": "1"}',  # Latin-1
    b"[1, 2]",  # no object
    b'{"question": "What is 1 plus 1?"}',  # another data set's
]


def test_bad_rows_stop_the_build_or_are_counted(tmp_path, capsys):
    good = [json.dumps(row).encode() for row in generic(("How many legs have 3 dogs?", "12"))]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([good[0], *BAD_LINES]) + b"\n")
    with pytest.raises(UserError, match=r"a\.jsonl:2: .*--on_bad_row skip"):
        run(tmp_path, {"grpo": [GENERIC]})
    assert list((tmp_path / "run/data").iterdir()) == []
    folder, written = run(tmp_path, {"grpo": [GENERIC]}, "--on_bad_row", "skip")
    assert written["rows_in"] == 5 and written["rows_out"] == 1
    assert written["dropped"] == {"bad_row": 4}
    logged = read_rows(folder / "dropped.jsonl")
    assert [row["where"].rpartition(":")[2] for row in logged] == ["2", "3", "4", "5"]
    err = capsys.readouterr().err
    assert "grpo: generic: 4 rows cannot be used and are left out; the first: " in err
    assert "a.jsonl:2" in err


def test_a_mix_by_level_and_by_whole_sources(tmp_path, capsys):
    write_rows(tmp_path / "easy.jsonl", generic(*sums(range(50))))
    rows = generic(*sums(range(100, 140), "minus"))
    rows = [row | {"level": number % 4 + 2 if number else None} for number, row in enumerate(rows)]
    write_rows(tmp_path / "hard.jsonl", rows)
    recipe = {
        "grpo": [
            GENERIC | {"file": "easy.jsonl", "difficulty": "easy"},
            GENERIC | {
                "file": "hard.jsonl", "level_key": "level",
                "difficulty": {"by": "level", "medium": 3, "hard": 5},
            },
        ],
        "mix": {"grpo": {"easy": 0.4, "medium": 0.4, "hard": 0.2}},
    }  # fmt: skip
    folder, written = run(tmp_path, recipe)
    # Levels 2 to 5 in turn: 9 easy (one is unknown), 20 medium, 10 hard; and 50 easy ones.
    # N = min(59 / 0.4, 20 / 0.4, 10 / 0.2) = 50
    output = written["outputs"]["grpo_train.jsonl"]
    assert output["bands"] == {"easy": 20, "hard": 10, "medium": 20}
    assert output["dropped"] == {"not_in_mix": 39, "unknown_difficulty": 1}
    assert Counter(row["level"] for row in read_rows(folder / "grpo_train.jsonl"))[5] == 10
    recipe["mix"]["grpo"]["size"] = 100
    run(tmp_path, recipe)
    assert "notice: mix: grpo: 50 problems instead of 100" in capsys.readouterr().err
    write_rows(tmp_path / "hard.jsonl", generic(("What is 1 plus 1?", "1"), level=1))
    with pytest.raises(UserError, match=r"shares .* left are easy 50, cleaning dropped dup"):
        run(tmp_path, recipe)


def test_a_mix_by_source_of_problems_for_a_teacher(tmp_path):
    for name, sign in (("dapo", "plus"), ("orz", "minus")):
        rows = [{"prompt": question, "answer": gold} for question, gold in sums(range(60), sign)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    sources = [{"name": name, "file": f"{name}.jsonl"} for name in ("dapo", "orz")]
    mix = {"orz": 0.75, "dapo": 0.25}
    recipe = {"distill": sources, "mix": {"distill": mix | {"size": 40}}}
    folder, written = run(tmp_path, recipe)
    rows = read_rows(folder / "distill_train.jsonl")
    assert Counter(row["source"] for row in rows) == {"orz": 30, "dapo": 10}
    assert written["outputs"]["distill_train.jsonl"]["bands"] == {"dapo": 10, "orz": 30}
    recipe["mix"]["distill"] = mix
    assert run(tmp_path, recipe)[1]["rows_out"] == 80  # 60 are all of ORZ


def test_benchmarks_are_kept_out_and_the_pairs_written(tmp_path, capsys):
    gold = ALGEBRA.format(60, 2)
    (tmp_path / "gsm8k").mkdir()
    write_rows(tmp_path / "gsm8k/test.jsonl", [{"question": gold, "answer": "60/2\n#### 30"}])
    repeat = "Solve this. " + gold.replace("How fast is it?", "How fast does it go?")
    write_rows(tmp_path / "a.jsonl", generic((repeat, "30"), (ALGEBRA.format(90, 3), "30")))
    recipe = {"grpo": [GENERIC], "decontaminate": ["gsm8k"]}
    folder, written = run(tmp_path, recipe)
    assert written["decontamination"] == {"gsm8k": 1} and written["dropped"] == {"in_eval_set": 1}
    (pair,) = read_rows(folder / "contamination.jsonl")
    assert pair["benchmark"] == "gsm8k" and pair["benchmark_question"] == gold
    assert pair["question"] == repeat and 0 < pair["score"] <= 1
    assert capsys.readouterr().err == ""
    recipe |= {"decontaminate": [], "decontaminate_if_found": ["aime24"]}
    _, written = run(tmp_path, recipe)
    assert written["decontamination"]["aime24"].startswith("not checked: aime: data_root")
    err = capsys.readouterr().err
    assert "not checked against aime24" in err and "generic may hold problems of benchmarks" in err
