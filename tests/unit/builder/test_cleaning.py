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
KEYS = {
    "files", "recipe", "error", "made", "bands", "logged", "details", "values", "says", "nothing",
}  # fmt: skip
GENERIC = {"name": "generic", "file": "a.jsonl", "prompt_key": "q", "answer_key": "a"}


def generic(*pairs, **more):
    return [{"q": question, "a": answer} | more for question, answer in pairs]


def kept(folder):
    """The bytes of a build's sets and manifest, without what it logs."""
    names = [*folder.glob("*_train.jsonl"), *folder.glob("test.jsonl"), *folder.glob("*.json")]
    return {path.name: path.read_bytes() for path in names}


def write(path, content):
    """Rows, or a text in Latin-1."""
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, str):
        path.write_bytes(content.encode("latin-1"))
    else:
        write_rows(path, content)


@pytest.mark.parametrize("rule", BUILDS)
def test_a_build_leaves_what_its_table_says(tmp_path, capsys, rule):
    folder = tmp_path / "run/data"
    for build in BUILDS[rule]:
        assert build.keys() <= KEYS
        for name, content in build.get("files", {}).items():
            write(tmp_path / name, content)
        if "error" in build:
            before = kept(folder)
            with pytest.raises(UserError) as error:
                run(tmp_path, build["recipe"])
            said = str(error.value)
            assert "\n" not in said and kept(folder) == before
        else:
            _, made = run(tmp_path, build["recipe"])
            said = capsys.readouterr().err
            assert build.get("made", {}).items() <= made.items()
            if "bands" in build:
                (output,) = made["outputs"].values()
                assert output["bands"] == build["bands"]
        for words in build.get("says", []):
            assert re.search(words, said)
        assert build.get("says") != [] or said == ""
        if "nothing" in build:
            assert list(folder.iterdir()) == []
            continue
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
