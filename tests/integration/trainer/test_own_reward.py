"""GRPO with parts of the user's own, a reward and a curriculum; the manifest remembers both."""

import json
import os
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from trl import GRPOTrainer

from pipeline.errors import UserError
from stages import grpo
from tests.integration.fork_server import DIED
from tests.integration.trainer.recorders import read_steps, record_batches
from tests.integration.trainer.runs import read_extra, weights_of

pytestmark = pytest.mark.integration
DOCS = Path(__file__).parents[3] / "docs"
PAGES = {"brevity": "grpo.md", "in_order": "curriculum.md"}  # where each example stands
NOTES = """
seen = []
def note(completions, level, own, id, question, completion=None, held_out=None, **columns):
    kind = "train" if held_out is None else "held out"
    seen.extend((kind, *row) for row in zip(id, level, own, question))
    assert completion is None and "curriculum_row" in columns or held_out is not None
    return [0.0] * len(completions)
"""


def write_example(name, folder):
    """Write the example of that name, as its page has it; returns its source."""
    page = (DOCS / PAGES[name]).read_text("utf-8")
    source = re.search(rf"```python\n(# {name}\.py.*?)```", page, re.S)[1]
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return source


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder where the stage runs, with the user's modules as a new process finds them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALLOW_CODE", raising=False)
    for name in ("brevity", "in_order", "notes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


# Rewards


def test_the_example_of_the_docs_pays(run_stage, here, monkeypatch):
    write_example("brevity", here)
    monkeypatch.setenv("ALLOW_CODE", "1")
    funcs = ["correctness_reward", "brevity:few_lines"]
    folder = run_stage("grpo", reward_funcs=funcs, reward_weights=[1.0, 0.5], max_steps=1)
    made = json.loads((folder / "manifest.json").read_text())
    assert made["config"]["reward_funcs"] == funcs and len(made["inputs"]["brevity.py"]) == 64
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    log = {key: value for entry in history for key, value in entry.items()}
    assert log["rewards/few_lines/mean"] == pytest.approx(-0.1 * log["rollout/lines"])


def test_a_reward_sees_every_column(run_stage, here, pool, monkeypatch, capsys):
    """With values that no table of one type can hold, some rows without, in training and eval."""
    rows = [json.loads(line) for line in pool[0].read_text().splitlines()]
    for number, row in enumerate(rows):
        row["completion"] = "a name of TRL's"
        if number % 5:
            row["own"] = [number, str(number), {"a": number}, {"b": [2**70, None]}][number % 4]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("notes.py").write_text(NOTES)
    monkeypatch.setenv("ALLOW_CODE", "1")
    run_stage(
        "grpo", train_file="rows.jsonl", reward_funcs=["correctness_reward", "notes:note"],
        reward_weights=[1.0, 1.0], eval_strategy="steps", eval_steps=2, eval_problems=4,
        num_generations_eval=2, per_device_eval_batch_size=4,
    )  # fmt: skip
    expected = {row["id"]: (row["level"], row.get("own"), row["question"]) for row in rows}
    seen = sys.modules["notes"].seen
    assert all(expected[key] == tuple(columns) for _, key, *columns in seen)
    assert [kind for kind, *_ in seen] == ["train"] * 16 + ["held out"] * 8
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "rewards are not" in line]
    assert "rows.jsonl" in line and " completion:" in line


SOMETIMES_NONE = """
def graded(completions, **columns):
    return [None, 1.0, 0.0, 0.5] * (len(completions) // 4)
def penalty(completions, **columns):
    return [-1.0] * len(completions)
"""


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_none_means(run_stage, here, monkeypatch, is_alone):
    """From every function: out of the group's mean, advantage 0. Beside another reward: as 0."""
    Path("partly.py").write_text(SOMETIMES_NONE)
    monkeypatch.delitem(sys.modules, "partly", raising=False)
    monkeypatch.setenv("ALLOW_CODE", "1")
    found, generate_and_score = [], GRPOTrainer._generate_and_score_completions

    def keep_output(self, inputs):
        output = generate_and_score(self, inputs)
        found.append(output["advantages"])
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", keep_output)
    funcs = ["partly:graded"] if is_alone else ["partly:graded", "partly:penalty"]
    run_stage("grpo", reward_funcs=funcs, reward_weights=[1.0] * len(funcs), max_steps=1)
    counted = torch.tensor([1.0, 0.0, 0.5] if is_alone else [0.0, 1.0, 0.0, 0.5])
    expected = (counted - counted.mean()) / (counted.std() + 1e-4)
    if is_alone:
        expected = torch.cat([torch.zeros(1), expected])
    for group in found[0].view(-1, 4):
        torch.testing.assert_close(group.cpu(), expected)


ALL_CORRECT = """
import torch
def correctness_reward(completions, log_extra, **columns):
    log_extra("length", torch.tensor([float(len(one[-1]["content"])) for one in completions]))
    return [1.0] * len(completions)
"""


def test_a_reward_with_a_name_of_ours_is_not_the_grader(run_stage, here, monkeypatch):
    Path("all_correct.py").write_text(ALL_CORRECT)
    monkeypatch.delitem(sys.modules, "all_correct", raising=False)
    monkeypatch.setenv("ALLOW_CODE", "1")
    folder = run_stage(
        "grpo", reward_funcs=["all_correct:correctness_reward", "correctness_reward"],
        reward_weights=[1.0, 1.0], max_steps=1, log_completions=True, num_completions_to_print=0,
    )  # fmt: skip
    log = json.loads((folder / "trainer_state.json").read_text())["log_history"][0]
    assert log["rewards/all_correct.correctness_reward/mean"] == 1.0
    # A model with random weights writes no correct answer.
    assert log["rollout/correctness"] == log["rewards/correctness_reward/mean"] < 1.0
    (table,) = (folder / "completions").glob("*.parquet")
    rows = pd.read_parquet(table)
    assert (rows["all_correct.correctness_reward"] == 1.0).all() and rows["length"].dtype == float
    assert (rows["completion"].map(lambda one: len(one[-1]["content"])) == rows["length"]).all()


FAULTY = """
def score(completions, trainer_state, **columns):
    if trainer_state.global_step < 2:
        return [None if TEXT else float(number % 3) for number in range(len(completions))]
    BODY
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("raise SystemExit(0)", "SystemExit"),
        ("return [float('nan')] * len(completions)", "nan"),
        ("return [float('inf')] + [0.0] * (len(completions) - 1)", "inf"),
    ],
)
def test_a_fault_ends_the_run_at_its_step(run_stage, here, monkeypatch, body, found):
    """With function, file, line, step and checkpoint; the bar stands a step that scored nothing."""
    source = FAULTY.replace("TEXT", str(found == "nan")).replace("BODY", body)
    Path("faulty.py").write_text(source)
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    monkeypatch.setenv("ALLOW_CODE", "1")
    keys = {"reward_funcs": ["faulty:score"], "reward_weights": [1.0]}
    with pytest.raises(UserError) as error:
        run_stage("grpo", **keys, save_steps=2, max_steps=4)
    line = str(error.value)
    assert line.startswith("reward_funcs: faulty:score (") and "faulty.py, line" in line
    assert found in line and "at step 3;" in line and re.search(r"grpo-\w{6}/checkpoint-2$", line)
    assert not Path("grpo/manifest.json").exists()


# Curricula


CURRICULA = {
    "raises": "def choose(self, count): raise SystemExit(0)",
    "too few": "def choose(self, count): return [0]",
    "no numbers": "def choose(self, count): return 'ab'[:count]",
    "no row": "def choose(self, count): return [-1] * count",
    "no candidate": "num_components = 1\n    def candidates(self, count): return [-1]",
    "no JSON": "def state_dict(self): return {'weight': 1j}",
    "keys of numbers": "def state_dict(self): return {'seen': [{7: 1}]}",
    "observe": "def observe(self, problems, num_right, num_generations): self.seen[0] += 1",
}


@pytest.mark.parametrize("kind", CURRICULA)
def test_so_does_a_fault_of_a_curriculum(run_stage, here, monkeypatch, kind):
    head = "from stages.trainer import Curriculum\nclass Mine(Curriculum):\n    "
    Path("own_order.py").write_text(head + CURRICULA[kind])
    monkeypatch.delitem(sys.modules, "own_order", raising=False)
    monkeypatch.setenv("ALLOW_CODE", "1")
    with pytest.raises(UserError, match=r"^curriculum: ") as error:
        run_stage("grpo", curriculum="own_order:Mine", max_steps=1)
    if kind in ("raises", "observe"):
        assert "own_order.py, line 3) raised" in str(error.value)


@pytest.mark.parametrize("is_typed", [False, True])
def test_the_curriculum_of_the_docs_chooses(
    run_stage, write_recipe, here, pool, monkeypatch, is_typed
):
    """Named in the YAML, and on the command line: two batches of four, the easiest first."""
    source = write_example("in_order", here)
    assert len([line for line in source.splitlines() if line.strip()]) < 20
    Path("notes.py").write_text(NOTES.replace("own,", ""))
    keys = {"train_file": str(pool[0]), "per_device_train_batch_size": 16, "save_steps": 1}
    if is_typed:
        flags = ["--curriculum", "in_order:InOrder", "--reward_weights", "1", "0"]
        flags += ["--reward_funcs", "correctness_reward", "notes:note"]
        recipe = write_recipe("grpo", **keys)
        monkeypatch.setattr(sys, "argv", ["grpo", "--config", str(recipe), *flags])
        grpo.main()
        folder = here / "grpo"
    else:
        monkeypatch.setenv("ALLOW_CODE", "1")
        keys |= {"reward_funcs": ["correctness_reward", "notes:note"], "reward_weights": [1.0, 0.0]}
        folder = run_stage("grpo", curriculum="in_order:InOrder", **keys)
    made = json.loads((folder / "manifest.json").read_text())
    assert made["config"]["curriculum"] == "in_order:InOrder"
    assert len(made["inputs"]["in_order.py"]) == 64
    assert read_extra(folder, 2)["extra"]["curriculum"] == {"position": 8}
    levels = [level for _, _, level, *_ in sys.modules["notes"].seen]
    assert levels[::4] == sorted(row["level"] for row in pool[1].values())[:8]


def record_in(folder):
    """Set up a process that runs in the folder of the user's modules."""
    os.chdir(folder)
    record_batches()


def test_two_processes_go_on_with_a_curriculum_of_ones_own(fork_server, write_recipe, pool, here):
    """Killed and resumed as if nothing had been; with another file it is another run."""
    source = write_example("in_order", here)
    keys = {"curriculum": "in_order:InOrder", "train_file": str(pool[0]), "max_steps": 4}
    keys |= {"per_device_train_batch_size": 8, "save_steps": 2}
    allow = {"setup": (record_in, str(here)), "envs": {n: {"ALLOW_CODE": "1"} for n in range(2)}}
    straight, killed = here / "straight", here / "killed"
    fork_server.finish(write_recipe("grpo", **keys, output_dir=str(straight)), 2, **allow)
    recipe = write_recipe("grpo", **keys, output_dir=str(killed))
    codes, logs = fork_server.run(recipe, 2, die_at=2, **allow)
    assert codes == [DIED] * 2, logs
    fork_server.finish(recipe, 2, **allow)
    assert weights_of(killed) == weights_of(straight)
    assert read_extra(killed, 4)["extra"]["curriculum"] == {"position": 16}
    chosen = []
    for rank in range(2):
        steps = read_steps(f"{straight}.rank{rank}.jsonl")[:-1]
        resumed = read_steps(f"{killed}.rank{rank}.jsonl")[:-1]
        assert [step["rounds"] for step in steps[2:]] == [step["rounds"] for step in resumed]
        chosen.append([pool[1][key]["level"] for step in steps for key in step["rounds"][0]["ids"]])
    assert min(map(len, chosen)) == 32 and sorted(chosen[0] + chosen[1]) == sorted(
        level for level in sorted(row["level"] for row in pool[1].values())[:16] for _ in range(4)
    )
    (here / "in_order.py").write_text(source + "# changed\n")
    codes, logs = fork_server.run(recipe, 2, die_at=2, **allow)
    assert codes == [DIED] * 2 and "up to date" not in logs[0], logs
