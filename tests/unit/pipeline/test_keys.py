"""KEYS: which stage gets which key, in every command that reads them."""

import pytest

from pipeline import commands, keys
from pipeline.errors import UserError
from pipeline.variables import read
from stages.preflight.inputs import PreflightArguments, read_recipe
from stages.preflight.rehearsal import Arguments, command_lines
from stages.sweep import SweepArguments
from stages.sweep import commands as sweep_commands

TOY = "configs/tiny-cpu"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], {}),
        (["grpo.top_p=0.8"], {"grpo": {"top_p": ["0.8"]}}),
        (["top_p=0.8"], {"grpo": {"top_p": ["0.8"]}}),  # SFT has none
        (["learning_rate=1e-5"], {"sft": {"learning_rate": ["1e-5"]},
                                  "grpo": {"learning_rate": ["1e-5"]}}),
        (["learning_rate=1e-5", "grpo.learning_rate=1e-6"],
         {"sft": {"learning_rate": ["1e-5"]}, "grpo": {"learning_rate": ["1e-6"]}}),
        (["num_layers=3"], {"model": {"num_layers": ["3"]}}),
        (["eval.num_samples=8"], {"eval": {"num_samples": ["8"]}}),
        (["seed=7"], {"sft": {"seed": ["7"]}, "grpo": {"seed": ["7"]}}),
        (["reward_funcs=correctness_reward,overlong", "grpo.system=a=b"],
         UserError),
        (["reward_funcs=correctness_reward,overlong"],
         {"grpo": {"reward_funcs": ["correctness_reward", "overlong"]}}),
    ],
)  # fmt: skip
def test_a_key_goes_to_the_files_that_have_it(entries, expected):
    if expected is UserError:
        with pytest.raises(UserError, match=r"no key system in grpo\.yaml"):
            keys.split(entries, TOY)
    else:
        assert keys.split(entries, TOY) == expected


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("top_p", "is not key=value"),
        ("=1", "is not key=value"),
        ("grpo.=1", "is not key=value"),
        ("top_p=", "is not key=value"),
        ("grpo.topp=1", "did you mean top_p"),
        ("lerning_rate=1", "did you mean learning_rate"),
        ("gpro.top_p=1", "has no gpro.yaml"),
        ("num_samples=8", "difficulty.num_samples=8 or distill.num_samples=8 or eval.num_samples"),
        ("sft.output_dir=/elsewhere", "give RUN"),
        ("audit.num_rows=8", "has no audit.yaml"),
    ],
)
def test_an_impossible_one_is_refused_in_one_line(entry, found):
    with pytest.raises(UserError, match=r"^keys: ") as error:
        keys.split([entry], TOY)
    assert found in str(error.value) and "\n" not in str(error.value)


def test_every_command_hands_them_on(tmp_path):
    entries = ["grpo.top_p=0.8", "learning_rate=1e-5"]
    run = ["--run", str(tmp_path / "run"), "--keys", *entries]
    words = {one.stage: one.words for one in commands.commands(read(["report", *run], {}))}
    assert words["sft"][-2:] == ("--learning_rate", "1e-5")
    assert words["grpo"][-4:] == ("--top_p", "0.8", "--learning_rate", "1e-5")
    assert words["audit"][-3:] == ("--keys", *entries)
    assert "--learning_rate" not in (*words["eval"], *words["report"], *words["data"])
    for goal in ("preflight", "plan"):
        assert commands.tool_words(read([goal, *run], {}), goal)[-3:] == ("--keys", *entries)
    request = read(["sweep", "--sweep", "beta=0", *run], {})
    assert "--keys" in commands.tool_words(request, "sweep")
    assert "--keys" in commands.look_ahead(request)


def test_each_reader_gives_them_to_the_stage(tmp_path):
    entries = ["grpo.top_p=0.8", "sft.max_length=77", "sft.learning_rate=3e-5"]
    shared = {"run": str(tmp_path), "keys": entries}
    recipe, found = read_recipe(PreflightArguments(recipe=TOY, **shared))
    assert not [one for one in found if one.level == "error"]
    assert recipe.settings["grpo"].top_p == 0.8 and recipe.settings["sft"].max_length == 77
    ahead = dict(command_lines(Arguments(recipe=TOY, goal="grpo", **shared), []))
    assert "--top_p" in ahead["grpo"] and "--max_length" in ahead["sft"]
    sweep = SweepArguments(grpo_config=f"{TOY}/grpo.yaml", sweep=["top_p=0.5"], **shared)
    (line,) = sweep_commands(sweep, "top_p=0.5", {"top_p": "0.5"})
    given = [line[1][at + 1] for at, word in enumerate(line[1]) if word == "--top_p"]
    assert given == ["0.8", "0.5"]  # what is varied comes last, and counts


def test_preflight_and_plan_read_the_data_where_the_stages_do(tmp_path):
    for name in ("data", "eval"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine.jsonl").write_text('{"question": "What is 1 + 2?", "answer": "3"}\n')
    recipe = tmp_path / "mine"
    recipe.mkdir()
    (recipe / "data.yaml").write_text(
        "output_dir: '{run}/data'\ngrpo: [{name: generic, file: mine.jsonl, "
        "prompt_key: question, answer_key: answer}]\n"
    )
    shared = {"recipe": str(recipe), "run": str(tmp_path / "run")}
    _, found = read_recipe(PreflightArguments(**shared))
    assert "mine.jsonl" in next(one.text for one in found if one.level == "error")
    _, found = read_recipe(PreflightArguments(**shared, data_root=str(tmp_path)))
    assert not [one for one in found if one.level == "error"]
    for tool in ("preflight", "plan"):
        request = read([tool, "--data_root", str(tmp_path)], {})
        assert "--data_root" in commands.tool_words(request, tool)


def test_preflight_says_once_what_is_wrong_and_reads_the_files_all_the_same():
    args = PreflightArguments(recipe=TOY, keys=["grpo.top_q=1"])
    recipe, found = read_recipe(args)
    (error,) = [one for one in found if one.level == "error"]
    assert error.topic == "KEYS" and "top_q" in error.text and "grpo" in recipe.parsed


def test_a_key_that_nothing_reads_is_refused(tmp_path):
    run = ["--run", str(tmp_path / "run")]
    request = read(["sft", *run, "--keys", "grpo.top_p=0.8"], {})
    with pytest.raises(UserError, match="sft reads no such YAML file"):
        commands.commands(request)
    commands.commands(read(["sft", *run], {"KEYS": "grpo.top_p=0.8"}))  # for several commands
    commands.commands(read(["sft", *run, "--keys", "learning_rate=1e-5"], {}))
