"""A grader of the user's own in every stage that judges completions, with a model of noise."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from data_prep.schema import grpo_row
from data_prep.sources import synthetic
from eval.audit import __main__ as audit
from grading import own_grader
from pipeline.errors import UserError
from pipeline.manifest import sha256
from stages import difficulty, distill
from tests.files import read_rows, write_rows
from tests.integration.harness import eval_runs
from tests.own_graders import SOURCES, write_task
from tests.unit.builder.helpers import run

pytestmark = pytest.mark.integration
AUDITED = Path(__file__).with_name("own_grader.yaml")
NAME = "code_grader:is_correct"
# Besides the golds, half of the noise is correct, so that rewards have something to tell apart.
LENIENT = f"""
{SOURCES["code"]}
is_gold = is_correct

def is_correct(text, answers):
    return bool(is_gold(text, answers)) or "<answer>" not in text and len(text) % 2 == 0
"""
# Gives a verdict on what has the form, as golds have, and fails on what the model writes.
FAULTY = """
def is_correct(text, answers):
    if "<answer>" in text:
        return answers[0] in text
    raise ValueError(text)
"""
SAMPLING = {"num_samples": 4, "max_new_tokens": 12, "dtype": "float32", "seed": 0}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder with data that were built with the lenient grader."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("ALLOW_CODE", "1")
    monkeypatch.delenv("FORCE", raising=False)
    own_grader._workers.cache_clear()
    yield tmp_path
    own_grader._workers.cache_clear()


@pytest.fixture
def build(folder, monkeypatch):
    def build(source):
        lists = write_task(folder, "code", sft=range(4), grpo=range(12, 24), test=range(30, 34))
        use(source)
        run(folder, lists | {"answer_form": "tags", "grader": NAME})
        return folder / "run/data"

    def use(source):
        """Put another source in the place of the module, as a new process finds it."""
        Path("code_grader.py").write_text(source)
        monkeypatch.setattr(own_grader, "_taken", {})
        monkeypatch.delitem(sys.modules, "code_grader", raising=False)
        own_grader._workers.cache_clear()

    build.use = use
    return build


@pytest.fixture
def stages(folder, tiny_model_dir, run_stage, monkeypatch):
    """`{stage: a function that runs it in this process and returns its folder}`."""
    data = folder / "run/data"

    def sample(module, name, **keys):
        values = {"model_name_or_path": tiny_model_dir, "output_dir": folder / name}
        values |= SAMPLING | {"problems_file": data / "grpo_train.jsonl"} | keys
        flags = [str(part) for key, value in values.items() for part in (f"--{key}", value)]
        monkeypatch.setattr(sys, "argv", [name, *flags])
        module.main()
        return folder / name

    def train():
        funcs = ["correctness_reward", "soft_length_penalty"]
        return run_stage(
            "grpo", train_file=str(data / "grpo_train.jsonl"), reward_funcs=funcs, max_steps=1,
            reward_weights=[1.0, 0.1], eval_strategy="steps", eval_steps=1, eval_problems=4,
            num_generations_eval=2, per_device_eval_batch_size=4,
        )  # fmt: skip

    def evaluate():
        test = data / "test.jsonl"
        eval_runs.evaluate(folder, f"tiny={tiny_model_dir}", tasks="held_out", test_file=test)
        return folder / "eval"

    return {
        "difficulty": lambda: sample(difficulty, "difficulty"),
        "distill": lambda: sample(distill, "distill", keep=2),
        "grpo": train,
        "eval": evaluate,
    }


def test_every_stage_asks_it(folder, build, stages):
    data = build(LENIENT)
    assert len(read_rows(data / "grpo_train.jsonl")) == 12
    made = {}
    for stage, start in stages.items():
        made[stage] = json.loads((start() / "manifest.json").read_text())
        assert made[stage]["inputs"]["code_grader.py"] == sha256("code_grader.py"), stage
    for stage in ("difficulty", "distill"):
        assert {*made[stage]["counts"]["verdicts"]} == {"right", "wrong"}
    history = json.loads(Path("grpo/trainer_state.json").read_text())["log_history"]
    log = {key: value for entry in history for key, value in entry.items()}
    assert 0 < log["rollout/correctness"] < 1 and 0 < log["eval_avg@2"] < 1
    rows = eval_runs.read_rows(folder / "eval/tiny")
    for row in rows:
        assert row["verdict"] == ("right" if len(row["completion"]) % 2 == 0 else "wrong")
        assert row["score"] == (row["verdict"] == "right") and row["outcome"] != "no answer"


def test_a_trace_keeps_its_grader_and_the_gold_that_was_found(build):
    build(SOURCES["code"])
    own_grader.take(NAME)
    row = {"id": "a", "question": "?", "answers": ["[1]", "(1, 2)"], "own_grader": NAME}
    row |= {"own_form": "tags", "own_prompt": [{"role": "user", "content": "?"}]}
    trace = distill.trace_row(row, 0, "teacher", "thought", "So <answer>(1,2)</answer>")
    assert trace["answers"] == ["(1, 2)", "[1]"] and trace["own_grader"] == NAME
    assert trace["completion"].endswith("<answer>(1, 2)</answer>")


def test_a_bad_grader_or_a_changed_one_ends_each_stage_with_one_line(build, stages):
    build(FAULTY)
    for source, line in (
        (FAULTY, r"code_grader\.py, line .* raised ValueError"),
        (FAULTY + "# changed\n", r"code_grader\.py\) has .*make data"),
    ):
        build.use(source)
        for stage, start in stages.items():
            with pytest.raises(UserError, match=rf"^grader: {NAME} \(.*{line}"):
                start()
            for name in ("manifest.json", "pass_rates.jsonl", "traces.jsonl", "tiny/scores.json"):
                assert not Path(stage, name).exists()


@pytest.fixture
def audited(folder, tiny_model_dir, monkeypatch):
    """Audit the data in `folder/run` with a recipe; returns the report."""
    (folder / "recipe").mkdir()
    text = AUDITED.read_text(encoding="utf-8").replace("{model}", str(tiny_model_dir))
    for stage, values in yaml.safe_load(text).items():
        (folder / f"recipe/{stage}.yaml").write_text(json.dumps(values))

    def call(*flags):
        argv = ["eval.audit", "--recipe", "recipe", "--run", "run", *flags]
        monkeypatch.setattr(sys, "argv", argv)
        audit.main()
        return json.loads(Path("run/audit/audit.json").read_text())

    return call


@pytest.mark.parametrize("is_mixed", [False, True])
def test_rows_are_audited_by_the_grader_that_they_name(build, audited, is_mixed):
    """The user's accepts a gold anywhere behind the thought, which ours must refuse."""
    data = build("def is_correct(text, answers):\n    return any(one in text for one in answers)\n")
    math = [grpo_row(one, "none") for one in synthetic.load("rl", 5, 0, max_level=2)]
    if is_mixed:
        (data / "manifest.json").unlink()  # as of files that the user has put together
        for name in ("grpo_train", "test"):
            own = read_rows(data / f"{name}.jsonl")
            write_rows(data / f"{name}.jsonl", [*own[:2], *math, *own[2:]])
    report = audited()
    assert report["passes"] and {*report["sets"]} == {"sft_train", "grpo_train", "held_out"}
    assert {found["rates"]["reward"] for found in report["sets"].values()} == {1.0}
    # By the reward twice and by the task once, for the rows of ours alone.
    num_ours = 3 * len(math) if is_mixed else 0
    assert report["tricks"]["gold denied"]["num_rows"] == num_ours
    assert report["tricks"]["a wrong answer"]["num_rows"] > num_ours
    official = report["sets"]["held_out"]["official"]
    assert official["own form"]["ours"] == 1.0 if is_mixed else official == {}
    notes = [one for one in report["notes"] if NAME in one and "'gold denied' (accepted" in one]
    assert {note.partition(":")[0] for note in notes} == {"sft_train", "grpo_train", "held_out"}
    assert not any("'a wrong answer'" in note for note in notes)
    made = json.loads(Path("run/audit/manifest.json").read_text())
    assert made["inputs"]["code_grader.py"] == sha256("code_grader.py")


def test_one_that_accepts_everything_fails_the_audit(build, audited):
    build("def is_correct(text, answers):\n    return True\n")
    with pytest.raises(UserError, match="'a wrong answer' is rewarded"):
        audited("--num_tricked", "3")
    assert not Path("run/audit/manifest.json").exists()
