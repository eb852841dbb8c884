"""A user's own code by `module:name`: only with consent, checked, its errors one line."""

import asyncio
import importlib
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.own_code import load_own, own_files
from pipeline.settings import read_settings
from stages import own_reward
from stages.arguments import GRPO, GrpoArguments
from stages.rewards import build_rewards
from stages.rules import check_grpo_keys
from stages.run import folders
from stages.trainer.curriculum import build_curriculum
from tests.refused import refused
from tests.tables import tables_beside

table = tables_beside(__file__)

GRPO_YAML = "train_file: t.jsonl\noutput_dir: out\nnum_generations: 4\n"
SOURCE = """
from stages.trainer import Curriculum
limit = 3
def brief(completions, **_):
    return [float(len(c[-1]["content"]) < limit) for c in completions]
same = brief
class Mine(Curriculum): ...
class Other: ...
class TakesNothing(Curriculum):
    def __init__(self): ...
instance = Mine([], 4, 0)
"""
REWARD, CURRICULUM = "mine:brief", "mine:Mine"
IN_YAML = {
    "reward_funcs": f"reward_funcs: [correctness_reward, '{REWARD}']\n",
    "curriculum": f"curriculum: '{CURRICULUM}'\n",
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module into the working folder, as a new process finds it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("ALLOW_CODE", raising=False)

    def call(source, name="mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        Path(f"{name}.py").write_text(source)

    call(SOURCE)
    return call


@pytest.fixture
def check(write):
    """Check a recipe in whose folder the module is."""

    def call(in_yaml="", *flags):
        Path("grpo.yaml").write_text(GRPO_YAML + in_yaml)
        settings = read_settings(GrpoArguments, GRPO, ["--config", "grpo.yaml", *flags])
        check_grpo_keys(settings)
        return settings

    return call


@pytest.mark.parametrize("key", IN_YAML)
def test_a_file_names_code_only_where_the_user_allows_it(check, write, key, monkeypatch):
    write("raise SystemExit('was run')")
    for allowed in ("", "0"):
        monkeypatch.setenv("ALLOW_CODE", allowed)
        refused(rf"grpo\.yaml: {key}: .*ALLOW_CODE", check, IN_YAML[key])
    Path("over.yaml").write_text(IN_YAML[key])
    refused("ALLOW_CODE", check, "", "--overlay", "over.yaml")
    write(SOURCE)
    monkeypatch.setenv("ALLOW_CODE", "1")
    check(IN_YAML[key])


@table
def test_what_is_no_function_or_curriculum_is_refused(check, key, name):
    refused(f"{key}: ", check, "", f"--{key}", name)


def test_the_first_line_of_a_module_may_fail(write):
    write("raise SystemExit(0)")
    refused("reward_funcs: mine:score cannot be loaded", load_own, "mine:score", "reward_funcs")


def test_the_command_line_names_a_curriculum(check):
    settings = check("", "--curriculum", CURRICULUM)
    args = GrpoArguments(train_file="f", curriculum=settings.curriculum)
    rows = [{"id": "a", "level": 1}, {"id": "b"}]
    found = build_curriculum(rows, args, 4, 7)
    assert (found.problems, found.num_generations, found.seed) == (rows, 4, 7)
    assert (found.choose(2), found.state_dict(), found.max_rounds) == (None, {}, 0)
    for key in ("half_life", "max_refill_rounds", "pass_rates"):  # it does not read them
        refused(f"^{key}: ", check, "", "--curriculum", CURRICULUM, f"--{key}", "3")
    with pytest.raises(ValueError, match="reward_funcs: "):  # it must learn what is correct
        GrpoArguments(train_file="f", curriculum=CURRICULUM, reward_funcs=["overlong"])


@pytest.mark.parametrize("name", [REWARD, "mine.brief"])  # TRL's own style, too
def test_the_command_line_names_a_reward_and_its_file_is_hashed(check, name):
    refused(r"grpo\.yaml: reward_funcs: .*ALLOW_CODE", check, f"reward_funcs: ['{name}']\n")
    settings = check("", "--reward_funcs", "correctness_reward", name)
    assert own_files(settings.reward_funcs) == [Path("mine.py")]
    reward = load_own(name, "reward_funcs")
    assert reward(completions=[[{"content": "ab"}], [{"content": "abcd"}]]) == [1.0, 0.0]


def test_a_reward_that_is_listed_twice_is_refused(check):
    for names in (
        ["correctness_reward", "correctness_reward"],
        [REWARD, "correctness_reward", "mine.brief"],
        [REWARD, "mine:same"],
    ):
        told = f"^reward_funcs: {names[-1]} is listed twice; "
        refused(told, check, "", "--reward_funcs", *names)


def test_the_files_beside_own_code_are_hashed_too(write, monkeypatch):
    for name in ("beside.py", "folder/other.py", "site-packages/my_installed.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(SOURCE)
    monkeypatch.syspath_prepend(Path("site-packages").resolve())
    found = own_files([REWARD, "mine.other", "my_installed:brief", "correctness_reward"])
    assert [*map(str, found)] == ["mine.py", "beside.py", "site-packages/my_installed.py"]
    monkeypatch.delitem(sys.modules, "my_installed")
    monkeypatch.chdir(Path(__file__).parents[3])  # of this project's modules the named one alone
    assert own_files(["stages.rewards:correctness_reward"]) == [Path("stages/rewards.py")]


@pytest.fixture
def reward(tmp_path, write):
    """Build the reward whose body is given; the run has one checkpoint."""
    checkpoint = tmp_path / "run" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 2}')
    folders.seal(checkpoint)

    def build(body, prefix=""):
        write(f"# mine\n{prefix}def score(completions, **batch):\n    {body}\n")
        return rewards("mine:score")[0]

    return build


def rewards(*names):
    """The rewards of a recipe, as the trainer gets them."""
    args = SimpleNamespace(reward_funcs=[*names], final_number=False)
    config = SimpleNamespace(output_dir="run", seed=0, process_index=0)
    return build_rewards(args, config, think_prefilled=False)


def batch(**columns):
    completions = [[{"role": "assistant", "content": text}] for text in ("a", "b")]
    state = SimpleNamespace(global_step=2)
    given = {"completions": completions, "trainer_state": state, "completion_ids": [[1], [2]]}
    return given | columns


@pytest.mark.parametrize("prefix", ["", "async "])
@table
def test_a_fault_is_one_line_with_function_file_line_step_and_checkpoint(
    reward, body, line, prefix
):
    if "yield" in body and prefix:
        return  # an async generator is no list either
    call = reward(body, prefix)
    told = rf"^reward_funcs: mine:score \(.*mine\.py, line {line}\).* at step 3; .*checkpoint-2$"
    refused(told, lambda: asyncio.run(call(**batch())))


def test_numbers_of_any_library_are_taken_and_none_stays(reward):
    for values, expected in (
        ([1, None], [1.0, None]),
        ((torch.tensor(1.0), None), [1.0, None]),
        ([np.float32(1), None], [1.0, None]),
        ((one for one in (True, None)), [1.0, None]),
        (np.array([1.0, 0.5]), [1.0, 0.5]),
        (torch.tensor([1.0, 0.5]), [1.0, 0.5]),
        ([None, None], [None, None]),
    ):
        found = reward("return batch['own']()")(**batch(own=lambda values=values: values))
        assert found == expected


def test_a_reward_changes_nothing_around_it(reward):
    logged, given = [], {"answers": [["1"], ["2"]]}
    mine = batch(log_metric=lambda *values: logged.append(values), **given)
    body = (
        "import torch; torch.set_grad_enabled(False); batch['trainer_state'].global_step = 99; "
        "completions[0][0]['content'] = 'x'; batch['completion_ids'][0].clear(); "
        "batch['answers'][0].append('x'); batch['log_metric']('x', 3); return [0.0, 1.0]"
    )
    assert reward(body)(**mine) == [0.0, 1.0]
    assert torch.is_grad_enabled() and logged == [("x", 3.0)]
    wanted = batch(answers=[["1"], ["2"]])
    assert mine == wanted | {"log_metric": mine["log_metric"]}


def test_a_full_memory_a_lost_peer_and_ctrl_c_are_not_its_fault(reward):
    for error, kept in (
        ("MemoryError()", MemoryError),
        ("RuntimeError('CUDA out of memory.')", RuntimeError),
        ("RuntimeError('gloo: Connection reset by peer')", RuntimeError),
        ("KeyboardInterrupt", KeyboardInterrupt),
    ):
        with pytest.raises(kept):
            reward(f"raise {error}")(**batch())


@table
def test_what_trl_could_not_log_is_refused(reward, call):
    logged = []
    own = reward(f"log_metric, log_extra = batch['log_metric'], batch['log_extra']; {call}")
    take = {"log_metric": logged.append, "log_extra": lambda *values: logged.append(values)}
    told = r"mine:score .*mine\.py, line 3\) (raised|called log_ex)"
    refused(told, own, **batch(**take))
    assert not logged


def test_anything_else_is_logged(reward):
    logged = []
    body = "batch['log_metric']('own/x', 2); batch['log_extra']('x', (n for n in 'ab'))"
    take = lambda *values: logged.append(values)  # noqa: E731
    reward(f"{body}; return [0.0, 1.0]")(**batch(log_metric=take, log_extra=take))
    assert logged == [("own/x", 2.0), ("x", ["a", "b"])]


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_reward_that_may_hang_is_told_of(reward, prefix, monkeypatch, capsys):
    monkeypatch.setattr(own_reward, "SLOW_SECONDS", 0.05)
    slow = reward("import time; time.sleep(0.5); return [0.0, 1.0]", prefix)
    result = slow(**batch())
    assert (asyncio.run(result) if prefix else result) == [0.0, 1.0]
    line = capsys.readouterr().err
    assert "mine:score has not returned" in line and "at step 3" in line
    assert "checkpoint-2" in line and line.count("\n") == 1
    reward("return [0.0, 1.0]")(**batch())
    time.sleep(0.2)
    assert not capsys.readouterr().err


SCORE = "def score(completions, **batch):\n    return [1.0] * len(completions)\n"
OWN = "".join(
    f"{name} = lambda **_: []\n{name}.__name__ = {name!r}\n"
    for name in ("correctness_reward", "overlong", "verdict")
)
PARTIAL = "import functools\nstrict, lenient = functools.partial(score), functools.partial(score)\n"


@table
def test_no_two_rewards_have_one_name_in_the_logs(write, given, found):
    """By the name the trainer finds the reward that says what is correct."""
    write(OWN + SCORE + PARTIAL, "own_a")
    write(SCORE, "own_b")
    names = [one.__name__ for one in rewards(*given)]
    assert [name for name in names if name != "correctness_reward"] == found
