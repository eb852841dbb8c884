"""Combinations of a sweep, their commands, the table, and published scores beside ours."""

import json
import re
from pathlib import Path

import pytest

from eval.report import __main__ as report
from eval.report import plots
from pipeline.request import read
from stages import published_sweeps, sweep, sweep_page
from stages.preflight import rehearsal
from tests.recipes import FULL
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)


def test_every_combination_in_the_order_of_the_keys():
    runs = sweep.combinations(["learning_rate=8e-8,1e-7", "beta=0.1,0.01,0.001"])
    assert list(runs)[:2] == ["learning_rate=8e-8,beta=0.1", "learning_rate=8e-8,beta=0.01"]
    assert runs["learning_rate=1e-7,beta=0.001"] == {"learning_rate": "1e-7", "beta": "0.001"}
    assert len(runs) == 6


@table
def test_a_mistake_is_one_line(entries, word):
    refused(word, sweep.combinations, entries)


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
        "guards": {"eos": 1, "weights": 2}, "ended": "finished",
        "curve": [(10, 0.5), (20, 0.4)], "values": {"beta": "0.1"},
    }  # fmt: skip
    line = sweep_page.to_markdown([row], "A sweep").splitlines()[4]
    cells = "| all | 1 | 20 | 15.500 | 0.775 | 0.500 | 0.400 | 0.500 | -0.100 | eos 1, weights 2 |"
    assert line == f"{cells} finished 1 |"


def test_a_run_that_ended_early_shows_what_its_last_checkpoint_knows(tmp_path):
    row = sweep.read_row(tmp_path, "a", "exit 1") | {"values": {}}
    empty = sweep_page.to_markdown([row], "A sweep")
    assert empty.splitlines()[4] == "| all | 1 | 0 | exit 1 1 |"
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
    refused(r"^num_generations: 3 does not divide", sweep.main)
    assert not (tmp_path / "run").exists()


def test_runs_at_a_time_do_not_share_a_vllm_server(tmp_path, monkeypatch):
    (tmp_path / "grpo.yaml").write_text(f"train_file: {__file__}\nuse_cpu: true\n")
    monkeypatch.setattr(sweep, "check_grpo", lambda settings: None)
    monkeypatch.setattr(sweep, "build", lambda *_: ())

    def check(mode, parallel):
        args = sweep.SweepArguments(
            grpo_config=f"{tmp_path}/grpo.yaml", run=f"{tmp_path}/run", sweep=["seed=0,1"],
            keys=["grpo.use_vllm=true", f"grpo.vllm_mode={mode}"], parallel=parallel,
        )  # fmt: skip
        sweep.check(args, sweep.combinations(args.sweep))

    refused(r"^parallel: 2 runs at a time ", check, "server", 2)
    check("server", 1)
    check("colocate", 2)


def test_any_value_has_a_folder_of_its_own_within_the_sweeps():
    values = ["m/a", "m_a", "m+a", "m%2Fa", "m%2Ba", "../a", "m/" + "a" * 300, "m/" + "a" * 301]
    runs = sweep.combinations(["model_name_or_path=" + ",".join(values)])
    assert [run["model_name_or_path"] for run in runs.values()] == values
    assert len(runs) == len(values) and not any("/" in name for name in runs)
    assert max(map(len, runs)) <= 200


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    """Two recipes with SFT and GRPO, `mine` and `configs/hard`; the working folder is theirs."""
    monkeypatch.chdir(tmp_path)
    sources = [{"name": "synthetic", "split": "train"}]
    start = {"model_name_or_path": "a/b", "use_cpu": True, "bf16": False}
    made = {"train_file": "{run}/data/sft_train.jsonl", "output_dir": "{run}/sft"}
    grpo = {"train_file": "{run}/data/grpo_train.jsonl", "output_dir": "{run}/grpo"}
    for recipe in ("mine", "configs/hard"):
        files = {"data": {"output_dir": "{run}/data", "sft": sources, "grpo": sources}}
        files |= {"sft": start | made}
        files |= {"grpo": start | grpo | {"model_name_or_path": "{run}/sft"}}
        Path(recipe).mkdir(parents=True)
        for name, keys in files.items():
            Path(recipe, f"{name}.yaml").write_text(json.dumps(keys))  # JSON is YAML
    return tmp_path


def of_mine(*entries, **keys):
    return sweep.SweepArguments(grpo_config="mine/grpo.yaml", run="r", sweep=[*entries], **keys)


@table
def test_the_commands_of_a_combination(recipes, entries, name, lines):
    args = of_mine(*entries)
    runs = sweep.combinations(args.sweep)
    found = sweep.commands(args, name, runs[name])
    assert {stage: " ".join(words) for stage, words in found} == lines
    has_other = any("hard" in entry for entry in entries)
    others = {"r/sweep/recipe=hard": "configs/hard"} if has_other else {}
    assert sweep.other_recipes(args, runs) == others


def test_what_another_recipe_needs_is_made_by_the_pipeline(recipes):
    launcher = "python -m stages.run.launch --config_file a.yaml -m"
    args = of_mine(model="m", overlay="lora.yaml", launcher=launcher)
    args.keys = ["grpo.top_p=0.8", "sft.max_length=64", "sft.learning_rate=1e-5"]
    words = sweep.preparation(args, "configs/hard", "place")
    assert words == [
        "pipeline", "data", "audit", "sft", "RECIPE=configs/hard", "RUN=place", "MODEL=m",
        "LORA=1", "ACCELERATE=--config_file a.yaml", *args.keys,
    ]  # fmt: skip
    request = read(words[1:], {})
    assert request.recipe == "configs/hard" and request.run == "place"
    assert request.stages == ["data", "audit", "sft"]


def test_a_run_is_not_started_where_its_recipe_failed(recipes, monkeypatch):
    started = []

    def run(_, words, **__):
        started.append(words[2])
        return 3 if words[2] == "pipeline" else 0

    monkeypatch.setattr(sweep.Runner, "run", run)
    monkeypatch.setattr(sweep.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sweep, "check", lambda *_: None)
    flags = ["--grpo_config", "mine/grpo.yaml", "--run", "r"]
    monkeypatch.setattr("sys.argv", ["sweep", *flags, "--sweep", "recipe=hard,mine", "seed=0,1"])
    refused("4 of 4 runs did not finish", sweep.main)  # nothing was trained
    assert started == ["pipeline", "stages.grpo", "stages.grpo"]
    table = json.loads(Path("r/sweep/table.json").read_text())
    assert [row["ended"] for row in table] == ["exit 3"] * 2 + ["exit 0"] * 2


@table
def test_a_mistake_of_another_recipe_is_found_before_anything_runs(
    recipes, monkeypatch, entry, change, words
):
    for stage, keys in change.items():
        file = Path(f"configs/hard/{stage}.yaml")
        file.write_text(json.dumps(json.loads(file.read_text()) | (keys or {})))
        if keys is None:
            file.unlink()
    flags = ["--recipe", "mine", "--run", "r", "--goal", "grpo", "--sweep", entry]
    monkeypatch.setattr("sys.argv", ["rehearsal", *flags])
    refused(words, rehearsal.main)
    assert not Path("r").exists()


def rows_of(*entries, last):
    empty = dict.fromkeys(sweep_page.MEANS) | {"first avg@k": 0.0}
    empty |= {"steps": 1, "guards": {}, "ended": "finished"}
    return [
        empty
        | {"run": name, "avg@k": last(one), "values": one, "curve": [(0, 0.0), (1, last(one))]}
        for name, one in sweep.combinations([*entries]).items()
    ]


def test_seeds_are_what_means_and_intervals_are_over():
    def last(run):
        return float(run["beta"]) + int(run["seed"])

    header, found = sweep_page.table(rows_of("seed=0,1,2", "beta=0.5,0", last=last))
    first, second = (dict(zip(header, row, strict=True)) for row in found)
    # Student's t(2) is 4.30; paired by seed, the seeds' differences cancel out.
    assert first["avg@k"] == first["change"] == "1.500 ± 2.483"
    assert second["avg@k"] == second["change"] == "1.000 ± 2.483"
    less = "less the first's"
    assert (first[less], second[less]) == ("", "-0.500 ± 0.000")
    assert first["seeds"] == "3" and first["ended"] == "finished 3" and "reward" not in first


def test_published_scores_stand_beside_ours(tmp_path):
    published = published_sweeps.find("perplexity-gsm8k", ["learning_rate", "beta"])
    rows = rows_of("beta=0.10,0.01", "learning_rate=8.0e-8,8e-7", last=lambda run: 0.25)
    rows[1]["avg@k"] = None  # beta 0.10 at 8e-7 failed
    sweep_page.write(tmp_path, rows, "A sweep", published)
    header, body = sweep_page.table(rows, published)
    columns = [header.index(name) for name in ("runs", "avg@k", "published")]
    assert [[row[at] for at in columns] for row in body] == [
        ["beta=0.10, learning_rate=8.0e-8", "0.250", "0.426"],
        ["beta=0.10, learning_rate=8e-7", "", ""],
        ["beta=0.01, learning_rate=8.0e-8", "0.250", "0.434"],
        ["beta=0.01, learning_rate=8e-7", "0.250", ""],
    ]
    page = (tmp_path / "table.md").read_text()
    assert all(f"| {' | '.join(line)} |" in page for line in [header, *body])
    assert "validation score" in page and "Llama 3.1 8B" in page and "ended early" in page
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG") and "(curves.png)" in page


def test_before_the_first_evaluation_there_is_no_picture(tmp_path):
    published = published_sweeps.find("perplexity-gsm8k", ["temperature"])
    rows = rows_of("temperature=0.7,1", "max_steps=2", "seed=0,1", last=lambda run: None)
    rows = [row | {"curve": []} for row in rows]  # no run has got as far
    sweep_page.write(tmp_path, rows, "A sweep", published)
    page = (tmp_path / "table.md").read_text()
    assert "| runs | seeds | steps | first avg@k | published | ended |" in page
    assert "| temperature=1 | 2 | 1 | 0.000 ± 0.000 | 0.452 | finished 2 |" in page
    assert ".png" not in page


RECIPE = "perplexity-gsm8k"


def test_a_published_sweep_is_found_by_the_keys_that_vary_in_any_order():
    def found(*entries, recipe=RECIPE):
        args = sweep.SweepArguments(grpo_config=f"c/{recipe}/grpo.yaml", run="r", sweep=[])
        return sweep.find_published(args, sweep.combinations([*entries]))

    grid = ("beta=0.1,0.01", "learning_rate=8e-8,1e-7")
    assert len(found(*grid, "max_steps=2", "seed=0,1").scores) == 12
    row = found("temperature=0.7,1.3")
    assert list(row.scores.values()) == [0.502, 0.48, 0.452, 0.442, 0.184, 0.082]
    assert found("learning_rate=8e-7,3e-7") is None
    assert found(*grid, recipe="grpo7b") is None
    for one in published_sweeps.read_all():
        assert one.recipe in FULL and one.source and one.metric and "ended early" in one.note


def test_the_commands_of_its_recipe_give_each_published_score():
    readme = (Path(__file__).parents[3] / "configs" / RECIPE / "README.md").read_text("utf-8")
    entries = [line.split() for line in re.findall(r'SWEEP="(.*?)"', readme)]
    assert entries
    for one in entries:
        published = published_sweeps.find(RECIPE, [entry.partition("=")[0] for entry in one])
        scores = [published.score(values) for values in sweep.combinations(one).values()]
        assert None not in scores and len(scores) == len(published.scores)


@table
def test_a_run_has_the_score_of_its_values(values, score):
    assert published_sweeps.find(RECIPE, ["learning_rate", "beta"]).score(values) == score


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
    refused("run `make control` again", report.read_control, file)
