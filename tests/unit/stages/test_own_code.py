"""A user's own function by `module:function`: run only where the user has said so."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.own_code import load_own, own_files
from pipeline.settings import read_settings
from stages.arguments import GRPO, GrpoArguments
from stages.rules import check_grpo_keys
from stages.trainer.curriculum import build_curriculum

GRPO_YAML = "train_file: t.jsonl\noutput_dir: out\nnum_generations: 4\n"
NAME = "my_own_rewards:brief"
SOURCE = """
limit = 3
def brief(completions, **_):
    return [float(len(c[-1]["content"]) < limit) for c in completions]
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check a recipe in whose folder the module is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("ALLOW_CODE", raising=False)
    monkeypatch.delitem(__import__("sys").modules, "my_own_rewards", raising=False)
    Path("my_own_rewards.py").write_text(SOURCE)

    def call(in_yaml="", *flags):
        Path("grpo.yaml").write_text(GRPO_YAML + in_yaml)
        settings = read_settings(GrpoArguments, GRPO, ["--config", "grpo.yaml", *flags])
        check_grpo_keys(settings)
        return settings

    return call


def test_a_file_may_name_code_only_where_the_user_allows_it(check, monkeypatch):
    in_yaml = f"reward_funcs: [correctness_reward, '{NAME}']\n"
    Path("my_own_rewards.py").write_text("raise SystemExit('was run')")
    for allowed in (None, "", "0"):
        if allowed is not None:
            monkeypatch.setenv("ALLOW_CODE", allowed)
        with pytest.raises(UserError, match=r"grpo\.yaml: reward_funcs: .*ALLOW_CODE"):
            check(in_yaml)
    Path("my_own_rewards.py").write_text(SOURCE)
    monkeypatch.setenv("ALLOW_CODE", "1")
    check(in_yaml)


CURRICULUM = "my_own_curriculum:Mine"
CLASSES = """
from stages.trainer import Curriculum
class Mine(Curriculum): ...
class Other: ...
class TakesNothing(Curriculum):
    def __init__(self): ...
def function(*_): ...
mine = Mine([], 4, 0)
"""


@pytest.fixture
def module(monkeypatch):
    """The module with classes, in the folder of `check`, as a new process would find it."""
    monkeypatch.delitem(__import__("sys").modules, "my_own_curriculum", raising=False)
    Path("my_own_curriculum.py").write_text(CLASSES)


def test_a_file_names_a_curriculum_only_where_the_user_allows_it(check, module, monkeypatch):
    Path("my_own_curriculum.py").write_text("raise SystemExit('was run')")
    with pytest.raises(UserError, match=r"grpo\.yaml: curriculum: .*ALLOW_CODE"):
        check(f"curriculum: '{CURRICULUM}'\n")
    Path("my_own_curriculum.py").write_text(CLASSES)
    monkeypatch.setenv("ALLOW_CODE", "1")
    check(f"curriculum: '{CURRICULUM}'\n")
    assert own_files([CURRICULUM])[0] == Path("my_own_curriculum.py")


def test_the_command_line_names_a_curriculum(check, module):
    settings = check("", "--curriculum", CURRICULUM)
    args = GrpoArguments(train_file="f", curriculum=settings.curriculum)
    rows = [{"id": "a", "level": 1}, {"id": "b"}]
    found = build_curriculum(rows, args, 4, 7)
    assert (found.problems, found.num_generations, found.seed) == (rows, 4, 7)
    assert (found.choose(2), found.state_dict(), found.max_rounds) == (None, {}, 0)


@pytest.mark.parametrize("name", ["none", "Other", "TakesNothing", "function", "mine", ""])
def test_what_is_no_curriculum_is_refused(check, module, name):
    with pytest.raises(UserError, match=r"^curriculum: my_own_curriculum:"):
        check("", "--curriculum", f"my_own_curriculum:{name}")


@pytest.mark.parametrize("key", ["half_life", "max_refill_rounds", "pass_rates"])
def test_keys_that_an_own_curriculum_does_not_read_are_pointless(check, module, key):
    with pytest.raises(UserError, match=f"^{key}: "):
        check("", "--curriculum", CURRICULUM, f"--{key}", "3")


def test_an_own_curriculum_needs_a_reward_that_tells_right_from_wrong():
    with pytest.raises(ValueError, match="reward_funcs: "):
        GrpoArguments(train_file="f", curriculum=CURRICULUM, reward_funcs=["overlong"])


@pytest.mark.parametrize(
    ("key", "given", "nearest"),
    [("curriculum", "predictiv", "predictive"), ("update_tokens", "atuo", "auto")],
)
def test_a_typo_names_the_nearest_choice(check, key, given, nearest):
    with pytest.raises(UserError, match=rf"{key}: .*did you mean '{nearest}'"):
        check("", f"--{key}", given)


def test_an_overlay_is_a_file_too(check):
    Path("over.yaml").write_text(f"reward_funcs: ['{NAME}']\n")
    with pytest.raises(UserError, match="ALLOW_CODE"):
        check("", "--overlay", "over.yaml")


def test_the_command_line_names_code_and_its_file_is_hashed(check):
    settings = check("", "--reward_funcs", "correctness_reward", NAME)
    assert own_files(settings.reward_funcs) == [Path("my_own_rewards.py")]
    reward = load_own(NAME, "reward_funcs")
    assert reward(completions=[[{"content": "ab"}], [{"content": "abcd"}]]) == [1.0, 0.0]


def test_a_dotted_name_is_trls_own_style(check, monkeypatch):
    name = NAME.replace(":", ".")
    with pytest.raises(UserError, match=r"grpo\.yaml: reward_funcs: .*ALLOW_CODE"):
        check(f"reward_funcs: [{name}]\n")
    settings = check("", "--reward_funcs", "correctness_reward", name)
    assert own_files(settings.reward_funcs) == [Path("my_own_rewards.py")]
    assert load_own(name, "reward_funcs") is load_own(NAME, "reward_funcs")
    assert GrpoArguments(train_file="f", reward_funcs=[name]).reward_funcs == [name]
    with pytest.raises(UserError, match=r"reward_funcs: no_such\.module\.brief cannot be loaded"):
        check("", "--reward_funcs", "no_such.module.brief")
    with pytest.raises(UserError, match="reward_funcs: must be 'correctness_reward'"):
        check("", "--reward_funcs", "correctness")


@pytest.mark.parametrize(
    "name", ["no_such_module:brief", "my_own_rewards:none", "my_own_rewards:limit", ":brief", "a:"]
)
def test_what_is_no_function_is_refused(check, name):
    with pytest.raises(UserError, match="reward_funcs"):
        check("", "--reward_funcs", name)


@pytest.mark.parametrize(
    "names",
    [
        ["correctness_reward", "correctness_reward"],
        [NAME, "correctness_reward", NAME],
        [NAME, NAME.replace(":", ".")],
        [NAME, "my_own_rewards:same"],
    ],
)
def test_a_reward_that_is_listed_twice_is_refused(check, names):
    Path("my_own_rewards.py").write_text(SOURCE + "same = brief\n")
    with pytest.raises(UserError, match=r"^reward_funcs: .* is listed twice; ") as refused:
        check("", "--reward_funcs", *names)
    assert str(refused.value).startswith(f"reward_funcs: {names[-1]} ")


def test_the_files_beside_own_code_are_hashed_too(check, monkeypatch):
    files = ("my_own_rewards.py", "beside.py", "folder/other.py", "site-packages/my_installed.py")
    for name in files:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(SOURCE)
    monkeypatch.syspath_prepend(Path("site-packages").resolve())
    found = own_files([NAME, "my_own_rewards.other", "my_installed:brief", "correctness_reward"])
    assert [*map(str, found)] == ["site-packages/my_installed.py", "my_own_rewards.py", "beside.py"]
    monkeypatch.delitem(__import__("sys").modules, "my_installed")


def test_of_this_projects_modules_the_named_one_alone_is_hashed(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])
    assert own_files(["stages.rewards:correctness_reward"]) == [Path("stages/rewards.py")]
