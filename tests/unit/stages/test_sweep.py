"""Combinations of a sweep, when a run counts as finished, and the table."""

import json
import re

import pytest

from eval.report import __main__ as report
from eval.report import plots
from pipeline.errors import UserError
from stages import published_sweeps, sweep, sweep_page


def test_every_combination_in_the_order_of_the_keys():
    runs = sweep.combinations(["learning_rate=8e-8,1e-7", "beta=0.1,0.01,0.001"])
    assert list(runs)[:2] == ["learning_rate=8e-8,beta=0.1", "learning_rate=8e-8,beta=0.01"]
    assert runs["learning_rate=1e-7,beta=0.001"] == {"learning_rate": "1e-7", "beta": "0.001"}
    assert len(runs) == 6


@pytest.mark.parametrize(
    "entries, word",
    [
        ([], "no key to vary"),
        (["beta"], "is not key=value"),
        (["beta=0.1,"], "is not key=value"),
        (["beta="], "is not key=value"),
        (["a/b=1"], "is not key=value"),
        (["sft.output_dir=a"], "cannot be varied"),
        (["rewards=own,other"], "choose from own, random, format"),
        (["rewards=own", "reward_weights=1"], "vary only one of them"),
        (["beta=0.1,0.1"], "repeats a key"),
        (["beta=0.1", "beta=0.2"], "repeats a key"),
        (["output_dir=a,b"], "cannot be varied"),
        (["sft.data=own,own"], "repeats a key"),
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
    row = sweep.read_row(tmp_path, "beta=0.1", "finished") | {"values": {"beta": "0.1"}}
    assert row == {
        "run": "beta=0.1", "steps": 20, "reward": pytest.approx(15.5),
        "correct": pytest.approx(0.775), "first avg@k": 0.5, "avg@k": 0.4, "best avg@k": 0.5,
        "guards": "eos 1, weights 2", "ended": "finished",
        "curve": [(10, 0.5), (20, 0.4)], "values": {"beta": "0.1"},
    }  # fmt: skip
    line = sweep_page.to_markdown([row], "A sweep").splitlines()[4]
    cells = "| 20 | 15.500 | 0.775 | 0.500 | 0.400 | 0.500 | eos 1, weights 2 |"
    assert line.startswith(f"| beta=0.1 {cells}")


def test_a_run_that_ended_early_shows_what_its_last_checkpoint_knows(tmp_path):
    row = sweep.read_row(tmp_path, "a", "exit 1") | {"values": {}}
    empty = sweep_page.to_markdown([row], "A sweep")
    assert empty.splitlines()[4] == "| a | 0 |  |  |  |  |  |  | exit 1 |"
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


def refusal_of(tmp_path, monkeypatch, *flags):
    """The line that refuses a sweep; its recipe has a model and a file."""
    data = tmp_path / "data.jsonl"
    data.write_text("")
    for stage in ("sft", "grpo"):
        (tmp_path / f"{stage}.yaml").write_text(
            f"train_file: {data}\nuse_cpu: true\nmodel_name_or_path: a/b\n"
        )
    for name in ("check_sft", "check_grpo", "check_sft_keys", "check_grpo_keys"):
        monkeypatch.setattr(sweep, name, lambda settings: None)
    monkeypatch.setattr(sweep, "build", lambda *_: ())
    argv = ["--grpo_config", f"{tmp_path}/grpo.yaml", "--run", f"{tmp_path}/run", *flags]
    (args,) = sweep.parse("", sweep.SweepArguments, argv=argv)
    try:
        sweep.check(args, sweep.combinations(args.sweep))
    except UserError as error:
        assert "\n" not in str(error)
        return str(error)
    return None


@pytest.mark.parametrize(
    ("entry", "is_refused"),
    [
        ("learning_rate=1e-6,0.000001", True),
        ("num_generations=8,4,8.0", True),
        ("bf16=false,no", True),
        ("temperature=0.9,1.0,null", True),  # its default
        ("sft.learning_rate=1e-6,1.0e-6", True),
        ("model_name_or_path=base,./base", True),
        ("learning_rate=1e-6,1e-5", False),
        ("sft.learning_rate=1e-6,1e-5", False),
        ("loss_type=grpo,dapo", False),
        ("rewards=own,random", False),
    ],
)
def test_one_value_in_two_spellings_is_refused(tmp_path, monkeypatch, entry, is_refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    found = refusal_of(tmp_path, monkeypatch, "--sweep", entry, "seed=0,1")
    key, first, *_, last = re.split("[=,]", entry)
    if is_refused:
        first = "1.0" if last == "null" else first
        assert found == f"sweep: {key}: {first} and {last} are one value; remove one of them"
    else:
        assert found is None


def test_runs_at_a_time_do_not_share_a_vllm_server(tmp_path, monkeypatch):
    flags = ["--sweep", "seed=0,1", "--keys", "grpo.use_vllm=true"]
    found = {
        (mode, num): refusal_of(
            tmp_path, monkeypatch, *flags, f"grpo.vllm_mode={mode}", "--parallel", num
        )
        for mode in ("server", "colocate")
        for num in "12"
    }
    assert found.pop(("server", "2")).startswith("parallel: 2 runs at a time ")
    assert not any(found.values())


def test_any_value_has_a_folder_of_its_own_within_the_sweeps():
    values = ["m/a", "m_a", "m+a", "m%2Fa", "m%2Ba", "../a", "m/" + "a" * 300, "m/" + "a" * 301]
    runs = sweep.combinations(["model_name_or_path=" + ",".join(values)])
    assert [run["model_name_or_path"] for run in runs.values()] == values
    assert len(runs) == len(values) and not any("/" in name for name in runs)
    assert max(map(len, runs)) <= 200


def commands_of(*entries):
    args = sweep.SweepArguments(grpo_config="c/grpo.yaml", run="r", sweep=[*entries])
    ((name, values),) = sweep.combinations([*entries]).items()
    return {key: " ".join(line) for key, line in sweep.commands(args, name, values)}


def test_a_key_of_sft_has_a_run_that_grpo_starts_from():
    found, made = commands_of("sft.seed=1", "beta=0.1"), "r/sweep/sft.seed=1/sft"
    assert found["sft"] == f"--config c/sft.yaml --run_dir r --seed 1 --output_dir {made}"
    end = "--beta 0.1 --output_dir r/sweep/sft.seed=1,beta=0.1/grpo"
    assert found["grpo"] == f"--config c/grpo.yaml --run_dir r --model_name_or_path {made} {end}"


def test_the_twins_differ_in_their_rewards_alone():
    plain = "--config c/grpo.yaml --run_dir r --seed 1"
    for name, paid in (("random", "random_reward"), ("format", "think_format_reward")):
        line = commands_of("seed=1", f"rewards={name}")["grpo"]
        changed = f" --reward_funcs {paid} correctness_reward --reward_weights 1 0"
        assert line == f"{plain}{changed} --output_dir r/sweep/seed=1,rewards={name}/grpo"
    own = commands_of("seed=1", "rewards=own")["grpo"]
    assert own == f"{plain} --output_dir r/sweep/seed=1,rewards=own/grpo"


def rows_of(*entries, last):
    empty = dict.fromkeys(sweep_page.COLUMNS) | {"first avg@k": 0.0}
    return [
        empty
        | {"run": name, "avg@k": last(one), "values": one, "curve": [(0, 0.0), (1, last(one))]}
        for name, one in sweep.combinations([*entries]).items()
    ]


def test_seeds_are_what_means_and_intervals_are_over():
    def last(run):
        return float(run["beta"]) + int(run["seed"])

    _, found = sweep_page.seeds_table(rows_of("seed=0,1,2", "beta=0.5,0", last=last))
    # Student's t(2) is 4.30; paired by seed, the seeds' differences cancel out.
    assert found[0][-3:] == ["1.500 ± 2.483", "1.500 ± 2.483", ""]
    assert found[1][-3:] == ["1.000 ± 2.483", "1.000 ± 2.483", "-0.500 ± 0.000"]


def test_two_keys_are_a_grid(tmp_path):
    rows = rows_of("beta=1,0", "temperature=0.7,0.8", "epsilon=1", last=lambda run: 0.25)
    rows[-1]["avg@k"] = None  # it failed
    sweep_page.write(tmp_path, rows, "A sweep")
    page = (tmp_path / "table.md").read_text()
    assert "| 1 | 0.250 | 0.250 |\n| 0 | 0.250 |  |" in page
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG") and "(curves.png)" in page
    assert sweep_page.grid_table(rows_of("beta=1,0", last=lambda run: 0.25)) is None


def test_published_scores_stand_beside_ours(tmp_path):
    published = published_sweeps.find("perplexity-gsm8k", ["learning_rate", "beta"])
    rows = rows_of("beta=0.10,0.01", "learning_rate=8.0e-8,8e-7", last=lambda run: 0.25)
    rows[1]["avg@k"] = None  # beta 0.10 at 8e-7 failed
    sweep_page.write(tmp_path, rows, "A sweep", published=published)
    page = (tmp_path / "table.md").read_text()
    ours = ["ours, avg@k: 0.10", "ours, avg@k: 0.01", "ours, avg@k: 0.001"]
    theirs = ["published: 0.10", "published: 0.01", "published: 0.001"]
    lines = [
        ["learning_rate \\ beta", *ours, *theirs],
        ["8.0e-8", "0.250", "0.250", "", "0.426", "0.434", "0.422"],
        ["1e-7", "", "", "", "0.432", "0.492", "0.414"],
        ["8e-7", "", "0.250", "", "", "", ""],
    ]
    assert all(f"| {' | '.join(line)} |" in page for line in lines)
    assert "validation score" in page and "Llama 3.1 8B" in page and "ended early" in page


def test_published_scores_of_one_key_and_before_the_first_run_has_one(tmp_path):
    published = published_sweeps.find("perplexity-gsm8k", ["temperature"])
    rows = rows_of("temperature=0.7,1", "max_steps=2", "seed=0,1", last=lambda run: None)
    rows = [row | {"curve": []} for row in rows]  # no run has got as far
    sweep_page.write(tmp_path, rows, "A sweep", published=published)
    page = (tmp_path / "table.md").read_text()
    assert "| temperature | ours, correct | published |" in page
    assert "| 1 |  | 0.452 |" in page and "| 1.3 |  | 0.082 |" in page
    assert ".png" not in page


def test_a_published_sweep_is_found_by_the_keys_that_vary(tmp_path):
    def found(*entries, recipe="perplexity-gsm8k"):
        args = sweep.SweepArguments(grpo_config=f"c/{recipe}/grpo.yaml", run="r", sweep=[])
        return sweep.find_published(args, sweep.combinations([*entries]))

    grid = ("learning_rate=8e-8,1e-7", "beta=0.1,0.01")
    assert len(found(*grid, "max_steps=2", "seed=0,1").scores) == 12
    assert found("temperature=0.7,1.3") and found("learning_rate=8e-8", "beta=0.1")
    assert found("learning_rate=8e-7,3e-7") is None
    assert found(*grid, recipe="grpo7b") is None


def test_the_report_shows_the_control_where_it_is(tmp_path):
    file = tmp_path / "seeds.json"
    assert report.read_control(file) is None and plots.draw_control({}) == []
    sweep_page.write(tmp_path, rows_of("seed=0", "beta=1,0", last=lambda run: 0.5), "One seed")
    plots.draw_control(report.read_control(file)["curves"])
    rows = rows_of("seed=0,1", "rewards=own,random", last=lambda run: 0.5)
    sweep_page.write(tmp_path, rows, "Control")
    found = report.read_control(file)
    assert "rewards=random" in plots.draw_control(found["curves"])[0]
    assert found["rows"][0][0] == "rewards=own" and len(found["header"]) == len(found["rows"][0])
    file.write_text("{")
    with pytest.raises(UserError, match="run `make control` again"):
        report.read_control(file)
