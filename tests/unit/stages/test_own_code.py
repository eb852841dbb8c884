"""A user's own function by `module:function`: run only where the user has said so."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.settings import read_settings
from stages.arguments import GRPO, GrpoArguments
from stages.checks import check_grpo_keys
from stages.own_code import load_own, own_files

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


def test_an_overlay_is_a_file_too(check):
    Path("over.yaml").write_text(f"reward_funcs: ['{NAME}']\n")
    with pytest.raises(UserError, match="ALLOW_CODE"):
        check("", "--overlay", "over.yaml")


def test_the_command_line_names_code_and_its_file_is_hashed(check):
    settings = check("", "--reward_funcs", "correctness_reward", NAME)
    assert own_files(settings.reward_funcs) == [Path("my_own_rewards.py")]
    reward = load_own(NAME, "reward_funcs")
    assert reward(completions=[[{"content": "ab"}], [{"content": "abcd"}]]) == [1.0, 0.0]


@pytest.mark.parametrize(
    "name", ["no_such_module:brief", "my_own_rewards:none", "my_own_rewards:limit", ":brief", "a:"]
)
def test_what_is_no_function_is_refused(check, name):
    with pytest.raises(UserError, match="reward_funcs"):
        check("", "--reward_funcs", name)
