"""A reward of the user's own: its result is checked, its inputs are copies, its errors one line."""

import asyncio
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from stages import own_reward
from stages.rewards import build_rewards
from stages.run import folders

SOURCES = {
    "raises": "raise KeyError('answers')",
    "exits": "raise SystemExit(0)",
    "cancels": "import asyncio; raise asyncio.CancelledError",
    "too few": "return [1.0]",
    "endless": "return iter(int, 1)",
    "nothing": "return None",
    "text": "return '10'",
    "texts": "return ['1.0', '0.0']",
    "a mapping": "return {0: 1.0, 1: 0.0}",
    "a set": "return {1.0, 0.0}",
    "nested": "return [[1.0, 0.0], [0.0, 1.0]]",
    "a table": "import torch; return torch.zeros(2, 3)",
    "NaN": "return [1.0, float('nan')]",
    "all NaN": "import torch; return torch.full((2,), torch.nan)",
    "infinite": "return [float('-inf'), 0.0]",
    "too large": "return [1e30, 0.0]",
    "larger still": "return [10**400, 0.0]",
    "complex": "return [1j, 0.0]",
    "late": "yield 1.0\n    raise ValueError('late')",
}
LINES = {"late": 4}


@pytest.fixture
def reward(tmp_path, monkeypatch):
    """Build the reward whose body is given; the run has one checkpoint."""
    checkpoint = tmp_path / "run" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 2}')
    folders.seal(checkpoint)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def build(body, prefix=""):
        monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
        __import__("importlib").invalidate_caches()
        source = f"# mine\n{prefix}def score(completions, **batch):\n    {body}\n"
        (tmp_path / "mine.py").write_text(source)
        args = SimpleNamespace(reward_funcs=["mine:score"], final_number=False)
        config = SimpleNamespace(output_dir=str(tmp_path / "run"), seed=0, process_index=0)
        (found,) = build_rewards(args, config, think_prefilled=False)
        return found

    return build


def batch(**columns):
    completions = [[{"role": "assistant", "content": text}] for text in ("a", "b")]
    state = SimpleNamespace(global_step=2)
    return {
        "completions": completions,
        "trainer_state": state,
        "completion_ids": [[1], [2]],
    } | columns


@pytest.mark.parametrize("prefix", ["", "async "])
@pytest.mark.parametrize("kind", SOURCES)
def test_a_fault_is_one_line_with_function_file_line_step_and_checkpoint(reward, kind, prefix):
    if kind == "late" and prefix:
        return  # an async generator is no list either
    call = reward(SOURCES[kind], prefix)
    with pytest.raises(UserError) as found:
        result = call(**batch())
        asyncio.run(result)
    message = str(found.value)
    assert message.startswith("reward_funcs: mine:score ("), message
    line = LINES.get(kind, 3 if kind in ("raises", "exits", "cancels") else 2)
    assert f"mine.py, line {line})" in message
    assert " at step 3; " in message and message.endswith("checkpoint-2")
    assert found.value.exit_code == 2


@pytest.mark.parametrize(
    "body",
    [
        "return [1, None]",
        "return (1.0, None)",
        "import torch; return [torch.tensor(1.0), None]",
        "import numpy as np; return [np.float32(1), None]",
        "return (None if number else True for number in range(2))",
    ],
)
def test_numbers_of_any_library_are_taken_and_none_stays(reward, body):
    assert reward(body)(**batch()) == [1.0, None]
    assert reward("return [None] * 2")(**batch()) == [None, None]


@pytest.mark.parametrize("values", [np.array([1.0, 0.5]), torch.tensor([1.0, 0.5])])
def test_so_are_arrays(reward, values):
    assert reward("return batch['own']")(**batch(own=values)) == [1.0, 0.5]


def test_it_works_on_copies(reward):
    body = "completions[0][0]['content'] = 'x'; batch['completion_ids'].clear(); "
    body += "batch['answers'][0].append('x'); return [0.0, 0.0]"
    given = batch(answers=[["1"], ["2"]])
    before = batch(answers=[["1"], ["2"]])
    reward(body)(**given)
    assert all(given[key] == before[key] for key in ("completions", "completion_ids", "answers"))


@pytest.mark.parametrize("error", ["MemoryError()", "RuntimeError('CUDA out of memory.')"])
def test_a_full_memory_and_a_lost_peer_are_not_its_fault(reward, error):
    with pytest.raises((MemoryError, RuntimeError)):
        reward(f"raise {error}")(**batch())
    with pytest.raises(RuntimeError):
        reward("raise RuntimeError('gloo: Connection reset by peer')")(**batch())


def test_ctrl_c_is_not_either(reward):
    with pytest.raises(KeyboardInterrupt):
        reward("raise KeyboardInterrupt")(**batch())


def test_the_first_line_of_a_module_may_fail_too(reward, tmp_path, monkeypatch):
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text("raise SystemExit(0)")
    with pytest.raises(UserError, match="reward_funcs: mine:score cannot be loaded"):
        from pipeline.own_code import load_own

        load_own("mine:score", "reward_funcs")


@pytest.mark.parametrize(
    "call",
    [
        *("log_metric']('x', 'text')", "log_metric']('x', [1, 2])", "log_metric']('x', None)"),
        *("log_extra']('x', [1])", "log_extra']('x', iter(int, 1))", "log_extra']('x', 3)"),
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


def test_a_reward_changes_nothing_around_it(reward):
    logged, mine = [], batch(log_metric=lambda *values: logged.append(values))
    body = (
        "import torch; torch.set_grad_enabled(False); batch['trainer_state'].global_step = 99; "
        "batch['log_metric']('x', 3); return [0.0, 1.0]"
    )
    assert reward(body)(**mine) == [0.0, 1.0]
    assert torch.is_grad_enabled() and mine["trainer_state"].global_step == 2
    assert logged == [("x", 3.0)]


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_reward_that_may_hang_is_told_of(reward, prefix, monkeypatch, capsys):
    monkeypatch.setattr(own_reward, "SLOW_SECONDS", 0.05)
    slow = reward("import time; time.sleep(0.5); return [0.0, 1.0]", prefix)
    result = slow(**batch())
    assert (asyncio.run(result) if prefix else result) == [0.0, 1.0]
    line = capsys.readouterr().err
    assert "mine:score has not returned" in line and "at step 3" in line
    assert "checkpoint-2" in line and line.count("\n") == 1
    quick = reward("return [0.0, 1.0]")
    quick(**batch())
    time.sleep(0.2)
    assert not capsys.readouterr().err


def names_of(tmp_path, monkeypatch, *reward_funcs, **sources):
    """The names by which TRL logs the functions of a recipe."""
    monkeypatch.syspath_prepend(tmp_path)
    for module, source in sources.items():
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)
        (tmp_path / f"{module}.py").write_text(source)
    __import__("importlib").invalidate_caches()
    args = SimpleNamespace(reward_funcs=[*reward_funcs], final_number=False)
    config = SimpleNamespace(output_dir=str(tmp_path), seed=0, process_index=0)
    return [one.__name__ for one in build_rewards(args, config, think_prefilled=False)]


SCORE = "def score(completions, **batch):\n    return [1.0] * len(completions)\n"


def test_no_two_rewards_have_one_name_in_the_logs(tmp_path, monkeypatch):
    """By the name the trainer finds the reward that says what is correct."""
    own = SCORE
    for name in ("correctness_reward", "overlong", "verdict"):
        own += f"{name} = lambda **_: []\n{name}.__name__ = {name!r}\n"
    given = ["own_a:correctness_reward", "correctness_reward", "own_a:score", "own_a.verdict"]
    found = names_of(tmp_path, monkeypatch, *given, own_a=own)
    assert found == [
        "own_a.correctness_reward", "correctness_reward", "score", "own_a.verdict"
    ]  # fmt: skip
    alone = names_of(tmp_path, monkeypatch, "own_a:overlong", own_a=own)
    assert alone == ["own_a.overlong"]
    both = names_of(tmp_path, monkeypatch, "own_a:score", "own_b:score", own_a=own, own_b=SCORE)
    assert both == ["own_a.score", "own_b.score"]
    partials = "import functools\n" + SCORE
    partials += "strict, lenient = functools.partial(score), functools.partial(score)\n"
    found = names_of(tmp_path, monkeypatch, "own_c:strict", "own_c:lenient", own_c=partials)
    assert found == ["own_c.strict", "own_c.lenient"]
