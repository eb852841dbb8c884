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

from pipeline.errors import UserError
from pipeline.own_code import load_own, own_files
from pipeline.settings import read_settings
from stages import own_reward
from stages.arguments import GRPO, GrpoArguments
from stages.rewards import build_rewards
from stages.rules import check_grpo_keys
from stages.run import folders
from stages.trainer.curriculum import build_curriculum

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
        with pytest.raises(UserError, match=rf"grpo\.yaml: {key}: .*ALLOW_CODE"):
            check(IN_YAML[key])
    Path("over.yaml").write_text(IN_YAML[key])
    with pytest.raises(UserError, match="ALLOW_CODE"):
        check("", "--overlay", "over.yaml")
    write(SOURCE)
    monkeypatch.setenv("ALLOW_CODE", "1")
    check(IN_YAML[key])


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("reward_funcs", "no_such_module:brief"),
        ("reward_funcs", "no_such.module.brief"),
        ("reward_funcs", "mine:none"),
        ("reward_funcs", "mine:limit"),
        ("reward_funcs", ":brief"),
        ("reward_funcs", "mine:"),
        ("reward_funcs", "correctness"),  # one of ours has another name
        ("curriculum", "mine:none"),
        ("curriculum", "mine:Other"),
        ("curriculum", "mine:TakesNothing"),
        ("curriculum", "mine:brief"),
        ("curriculum", "mine:instance"),
        ("curriculum", "mine:"),
    ],
)
def test_what_is_no_function_or_curriculum_is_refused(check, key, name):
    with pytest.raises(UserError, match=f"{key}: "):
        check("", f"--{key}", name)


def test_the_first_line_of_a_module_may_fail(write):
    write("raise SystemExit(0)")
    with pytest.raises(UserError, match="reward_funcs: mine:score cannot be loaded"):
        load_own("mine:score", "reward_funcs")


def test_the_command_line_names_a_curriculum(check):
    settings = check("", "--curriculum", CURRICULUM)
    args = GrpoArguments(train_file="f", curriculum=settings.curriculum)
    rows = [{"id": "a", "level": 1}, {"id": "b"}]
    found = build_curriculum(rows, args, 4, 7)
    assert (found.problems, found.num_generations, found.seed) == (rows, 4, 7)
    assert (found.choose(2), found.state_dict(), found.max_rounds) == (None, {}, 0)
    for key in ("half_life", "max_refill_rounds", "pass_rates"):  # it does not read them
        with pytest.raises(UserError, match=f"^{key}: "):
            check("", "--curriculum", CURRICULUM, f"--{key}", "3")
    with pytest.raises(ValueError, match="reward_funcs: "):  # it must learn what is correct
        GrpoArguments(train_file="f", curriculum=CURRICULUM, reward_funcs=["overlong"])


@pytest.mark.parametrize("name", [REWARD, "mine.brief"])  # TRL's own style, too
def test_the_command_line_names_a_reward_and_its_file_is_hashed(check, name):
    with pytest.raises(UserError, match=r"grpo\.yaml: reward_funcs: .*ALLOW_CODE"):
        check(f"reward_funcs: ['{name}']\n")
    settings = check("", "--reward_funcs", "correctness_reward", name)
    assert own_files(settings.reward_funcs) == [Path("mine.py")]
    reward = load_own(name, "reward_funcs")
    assert reward(completions=[[{"content": "ab"}], [{"content": "abcd"}]]) == [1.0, 0.0]


@pytest.mark.parametrize(
    "names",
    [
        ["correctness_reward", "correctness_reward"],
        [REWARD, "correctness_reward", "mine.brief"],
        [REWARD, "mine:same"],
    ],
)
def test_a_reward_that_is_listed_twice_is_refused(check, names):
    with pytest.raises(UserError, match=f"^reward_funcs: {names[-1]} is listed twice; "):
        check("", "--reward_funcs", *names)


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


FAULTS = {  # the body, and the line that is blamed
    "raises": ("raise KeyError('answers')", 3),
    "exits": ("raise SystemExit(0)", 3),
    "cancels": ("import asyncio; raise asyncio.CancelledError", 3),
    "too few": ("return [1.0]", 2),
    "endless": ("return iter(int, 1)", 2),
    "nothing": ("return None", 2),
    "text": ("return '10'", 2),
    "texts": ("return ['1.0', '0.0']", 2),
    "a mapping": ("return {0: 1.0, 1: 0.0}", 2),
    "a set": ("return {1.0, 0.0}", 2),
    "nested": ("return [[1.0, 0.0], [0.0, 1.0]]", 2),
    "a table": ("import torch; return torch.zeros(2, 3)", 2),
    "NaN": ("return [1.0, float('nan')]", 2),
    "infinite": ("return [float('-inf'), 0.0]", 2),
    "too large": ("return [1e30, 0.0]", 2),
    "no float holds it": ("return [10**400, 0.0]", 2),
    "complex": ("return [1j, 0.0]", 2),
    "late": ("yield 1.0\n    raise ValueError('late')", 4),
}


@pytest.mark.parametrize("prefix", ["", "async "])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_one_line_with_function_file_line_step_and_checkpoint(reward, kind, prefix):
    body, line = FAULTS[kind]
    if kind == "late" and prefix:
        return  # an async generator is no list either
    call = reward(body, prefix)
    with pytest.raises(UserError) as found:
        asyncio.run(call(**batch()))
    message = str(found.value)
    assert message.startswith("reward_funcs: mine:score (") and f"mine.py, line {line})" in message
    assert " at step 3; " in message and message.endswith("checkpoint-2")
    assert found.value.exit_code == 2


@pytest.mark.parametrize(
    "values",
    [
        [1, None],
        (torch.tensor(1.0), None),
        [np.float32(1), None],
        (None if number else True for number in range(2)),
        np.array([1.0, 0.5]),
        torch.tensor([1.0, 0.5]),
        [None, None],
    ],
)
def test_numbers_of_any_library_are_taken_and_none_stays(reward, values):
    second = 0.5 if hasattr(values, "dtype") else None
    first = None if isinstance(values, list) and values[0] is None else 1.0
    assert reward("return batch['own']()")(**batch(own=lambda: values)) == [first, second]


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


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ("MemoryError()", MemoryError),
        ("RuntimeError('CUDA out of memory.')", RuntimeError),
        ("RuntimeError('gloo: Connection reset by peer')", RuntimeError),
        ("KeyboardInterrupt", KeyboardInterrupt),
    ],
)
def test_a_full_memory_a_lost_peer_and_ctrl_c_are_not_its_fault(reward, error, kept):
    with pytest.raises(kept):
        reward(f"raise {error}")(**batch())


@pytest.mark.parametrize(
    "call",
    [
        "log_metric']('x', 'text')",
        "log_metric']('x', [1, 2])",
        "log_extra']('x', [1])",
        "log_extra']('x', iter(int, 1))",
        "log_extra']('x', 3)",
        "log_extra']('completion', [1, 2])",
    ],
)
def test_what_trl_could_not_log_is_refused(reward, call):
    logged = []
    own = reward(f"batch['{call}; return [0.0, 1.0]")
    with pytest.raises(UserError, match=r"mine:score .*mine\.py, line 3\) (raised|called log_ex)"):
        own(**batch(log_metric=logged.append, log_extra=lambda *values: logged.append(values)))
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


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["own_a:correctness_reward", "correctness_reward"], ["own_a.correctness_reward"]),
        (["own_a:score", "own_a.verdict"], ["score", "own_a.verdict"]),
        (["own_a:overlong"], ["own_a.overlong"]),
        (["own_a:score", "own_b:score"], ["own_a.score", "own_b.score"]),
        (["own_a:strict", "own_a:lenient"], ["own_a.strict", "own_a.lenient"]),
    ],
)
def test_no_two_rewards_have_one_name_in_the_logs(write, given, found):
    """By the name the trainer finds the reward that says what is correct."""
    write(OWN + SCORE + PARTIAL, "own_a")
    write(SCORE, "own_b")
    names = [one.__name__ for one in rewards(*given)]
    assert [name for name in names if name != "correctness_reward"] == found
