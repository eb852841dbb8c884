"""GRPO with parts of the user's own, a reward and a curriculum; the manifest remembers both."""

import json
import re
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from tests.files import read_rows, write_rows
from tests.integration.trainer.runs import read_extra

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
    """Write the example of that name, as its page has it."""
    page = (DOCS / PAGES[name]).read_text("utf-8")
    source = re.search(rf"```python\n(# {name}\.py.*?)```", page, re.S)[1]
    (folder / f"{name}.py").write_text(source, encoding="utf-8")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder where the stage runs, with the user's modules as a new process finds them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOW_CODE", "1")
    for name in ("brevity", "in_order", "notes", "faulty", "own_order"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


# Rewards


def test_the_example_of_the_docs_pays(run_stage, here):
    write_example("brevity", here)
    funcs = ["correctness_reward", "brevity:few_lines"]
    folder = run_stage("grpo", reward_funcs=funcs, reward_weights=[1.0, 0.5], max_steps=1)
    made = json.loads((folder / "manifest.json").read_text())
    assert made["config"]["reward_funcs"] == funcs and len(made["inputs"]["brevity.py"]) == 64
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    log = {key: value for entry in history for key, value in entry.items()}
    assert log["rewards/few_lines/mean"] == pytest.approx(-0.1 * log["rollout/lines"])


def test_a_reward_sees_every_column(run_stage, here, pool, capsys):
    """With values that no table of one type can hold, some rows without, in training and eval."""
    rows = read_rows(pool[0])
    for number, row in enumerate(rows):
        row["completion"] = "a name of TRL's"
        if number % 5:
            row["own"] = [number, str(number), {"a": number}, {"b": [2**70, None]}][number % 4]
    write_rows(Path("rows.jsonl"), rows)
    Path("notes.py").write_text(NOTES)
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


FAULTY = """
def score(completions, trainer_state, **columns):
    if trainer_state.global_step < 2:
        return [None] * len(completions)
    raise SystemExit(0)
"""


def test_a_fault_ends_the_run_at_its_step(run_stage, here):
    """With function, file, line, step and checkpoint; the bar stands a step that scored nothing."""
    Path("faulty.py").write_text(FAULTY)
    keys = {"reward_funcs": ["faulty:score"], "reward_weights": [1.0]}
    with pytest.raises(UserError) as error:
        run_stage("grpo", **keys, save_steps=2, max_steps=4)
    line = str(error.value)
    assert line.startswith("reward_funcs: faulty:score (") and "faulty.py, line" in line
    assert "SystemExit" in line and "at step 3;" in line
    assert re.search(r"grpo-\w{6}/checkpoint-2$", line)
    assert not Path("grpo/manifest.json").exists()


# Curricula


CURRICULA = {
    "raises": "def choose(self, count): raise SystemExit(0)",
    "too few": "def choose(self, count): return [0]",
    "no candidate": "num_components = 1\n    def candidates(self, count): return [-1]",
    "no JSON": "def state_dict(self): return {'weight': 1j}",
}


@pytest.mark.parametrize("kind", CURRICULA)
def test_so_does_a_fault_of_a_curriculum(run_stage, here, kind):
    head = "from stages.trainer import Curriculum\nclass Mine(Curriculum):\n    "
    Path("own_order.py").write_text(head + CURRICULA[kind])
    with pytest.raises(UserError, match=r"^curriculum: ") as error:
        run_stage("grpo", curriculum="own_order:Mine", max_steps=1)
    if kind == "raises":
        assert "own_order.py, line 3) raised" in str(error.value)


def test_the_curriculum_of_the_docs_chooses(run_stage, here, pool):
    """Two batches of four, the easiest first."""
    write_example("in_order", here)
    Path("notes.py").write_text(NOTES.replace("own,", ""))
    keys = {"train_file": str(pool[0]), "per_device_train_batch_size": 16, "save_steps": 1}
    keys |= {"reward_funcs": ["correctness_reward", "notes:note"], "reward_weights": [1.0, 0.0]}
    folder = run_stage("grpo", curriculum="in_order:InOrder", **keys)
    made = json.loads((folder / "manifest.json").read_text())
    assert made["config"]["curriculum"] == "in_order:InOrder"
    assert len(made["inputs"]["in_order.py"]) == 64
    assert read_extra(folder, 2)["extra"]["curriculum"] == {"position": 8}
    levels = [level for _, _, level, *_ in sys.modules["notes"].seen]
    assert levels[::4] == sorted(row["level"] for row in pool[1].values())[:8]
