"""Combinations of a sweep, when a run counts as finished, and the table."""

import json

import pytest

from data_prep.config import UserError
from stages import sweep


def test_every_combination_in_the_order_of_the_keys():
    runs = sweep.combinations(["learning_rate=8e-8,1e-7", "beta=0.1,0.01,0.001"])
    assert list(runs)[:2] == ["learning_rate=8e-8,beta=0.1", "learning_rate=8e-8,beta=0.01"]
    assert runs["learning_rate=1e-7,beta=0.001"] == {"learning_rate": "1e-7", "beta": "0.001"}
    assert len(runs) == 6


@pytest.mark.parametrize(
    "entries, word",
    [
        ([], "nothing to vary"),
        (["beta"], "is not key=value"),
        (["beta=0.1,"], "is not key=value"),
        (["beta=../x"], "is not key=value"),
        (["beta=0.1,0.1"], "second time"),
        (["beta=0.1", "beta=0.2"], "second time"),
        (["output_dir=a,b"], "tells the runs apart"),
    ],
)
def test_a_mistake_is_one_line(entries, word):
    with pytest.raises(UserError, match=word) as refused:
        sweep.combinations(entries)
    assert "\n" not in str(refused.value)


def write_state(folder, logs):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": logs}))


def test_the_row_of_a_run(tmp_path):
    logs = [{"step": n, "rollout/rewards": n, "rollout/correctness": n / 20} for n in range(1, 21)]
    for step, value in ((10, 0.5), (20, 0.4)):
        logs.append({"step": step, "eval_avg@4": value, "eval_avg@4_stderr": 0.9})
    write_state(tmp_path, logs)
    events = [{"guard": "weights"}, {"guard": "eos"}, {"guard": "weights"}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    row = sweep.read_row(tmp_path, "beta=0.1", "finished")
    assert row == {
        "run": "beta=0.1", "steps": 20, "reward": pytest.approx(15.5),
        "correct": pytest.approx(0.775), "avg@k": 0.4, "best avg@k": 0.5,
        "guards": "eos 1, weights 2", "ended": "finished",
    }  # fmt: skip
    line = sweep.to_markdown([row], "A sweep").splitlines()[4]
    assert line.startswith("| beta=0.1 | 20 | 15.500 | 0.775 | 0.400 | 0.500 | eos 1, weights 2 |")


def test_a_run_that_ended_early_shows_what_its_last_checkpoint_knows(tmp_path):
    empty = sweep.to_markdown([sweep.read_row(tmp_path, "a", "exit 1")], "A sweep")
    assert empty.splitlines()[4] == "| a | 0 |  |  |  |  |  | exit 1 |"
    write_state(tmp_path / "checkpoint-4", [{"step": 4, "rollout/rewards": 0.25}])
    row = sweep.read_row(tmp_path, "a", "exit 1")
    assert (row["steps"], row["reward"]) == (4, 0.25)


def test_a_mistake_in_a_later_run_is_found_before_the_first(tmp_path, monkeypatch):
    (tmp_path / "grpo.yaml").write_text(
        f"train_file: {__file__}\nuse_cpu: true\nmodel_name_or_path: a/b\n"
    )
    flags = ["--grpo_config", tmp_path / "grpo.yaml", "--run", tmp_path / "run"]
    argv = [*flags, "--sweep", "num_generations=4,3"]
    monkeypatch.setattr("sys.argv", ["sweep", *map(str, argv)])
    with pytest.raises(UserError, match=r"^num_generations: 3 does not divide"):
        sweep.main()
    assert not (tmp_path / "run").exists()
