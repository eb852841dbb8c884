"""What the audit reads, and what it says of files that are not there."""

from types import SimpleNamespace

from eval.audit.inputs import collect_sets


def test_a_missing_file_names_the_goal_that_makes_it(tmp_path):
    files = {"sft_train": "distill/traces.jsonl", "grpo_train": "data/grpo_train.jsonl"}
    paths = {name: str(tmp_path / file) for name, file in files.items()}
    recipe, settings = SimpleNamespace(files=paths | {"grpo_eval": None}), SimpleNamespace(tasks=[])
    sets, skipped = collect_sets(recipe, settings, 10)
    assert sets == {} and {*skipped} == {*files}
    for name, goal in (("sft_train", "`make distill`"), ("grpo_train", "`make data`")):
        assert paths[name] in skipped[name] and goal in skipped[name]
