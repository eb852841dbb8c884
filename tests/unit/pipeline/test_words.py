"""The words of a command: goals, variables and keys, and which stage or tool gets them."""

from pathlib import Path

import pytest
import yaml

from pipeline import commands, keys, words
from pipeline.errors import UserError
from pipeline.request import read
from stages.preflight.inputs import PreflightArguments, read_recipe
from stages.preflight.rehearsal import Arguments, command_lines
from stages.sweep import SweepArguments
from stages.sweep import commands as sweep_commands
from tests.refused import refused

TOY = "configs/tiny-cpu"
TABLE = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))


def found_in(goal, typed, run):
    """The stages and tools whose command has what a word says, each with the words behind it."""
    given = {"sweep": ["SWEEP=beta=0"], "push": ["REPO=a/b"]}.get(goal, [])
    request = read([*goal.split(), typed, f"RUN={run}", *given], {})
    key = typed.partition("=")[0].rpartition(".")[2]
    found = {}
    for command in commands.commands(request):
        line = list(command.words)
        for flag in (f"--{key}", "--keys"):
            if flag in line:
                behind = line[line.index(flag) + 1 :]
                end = next((n for n, word in enumerate(behind) if word[:2] == "--"), len(behind))
                found[command.stage] = " ".join(behind[:end])
    return found


@pytest.mark.parametrize("typed", TABLE["forms"])
@pytest.mark.parametrize("goal", TABLE["goals"])
def test_each_goal_takes_each_form_or_says_what_to_write(goal, typed, tmp_path):
    wanted = TABLE["goals"][goal][TABLE["forms"].index(typed)]
    if isinstance(wanted, str):
        with pytest.raises(UserError) as error:
            found_in(goal, typed, tmp_path / "run")
        assert wanted in str(error.value) and len(error.value.lines) == 1
    else:
        assert found_in(goal, typed, tmp_path / "run") == wanted


@pytest.mark.parametrize(("typed", "wanted"), TABLE["refused"])
def test_what_nothing_reads_is_refused_with_what_to_write(typed, wanted):
    of_make = {"MAKE_GOALS": "grpo", "MAKE_WORDS": typed.replace(" ", "\\ ")}
    for argv, env in ((["grpo", typed], {}), (["grpo"], of_make)):
        if env and typed.startswith("-"):  # which is an option of make's own
            continue
        with pytest.raises(UserError) as error:
            read(argv, env)
        assert wanted in str(error.value) and len(error.value.lines) == 1


def test_words_of_make_are_those_that_were_typed():
    line = "RECIPE=grpo7b PY=/x reward_funcs=[a,\\ b\\ c] system=50%\\ $$x sft.max_length=9"
    found = words.read(["grpo"], {"MAKE_WORDS": line})
    assert found.variables == {"recipe": "grpo7b"} and found.typed == {"recipe"}
    assert found.keys == ["reward_funcs=[a, b c]", "system=50% $x", "sft.max_length=9"]


def test_a_variable_may_come_from_the_environment_if_the_goal_reads_it():
    assert read(["grpo"], {"RECIPE": "grpo7b", "OUT": "x", "LR": "1"}).values == {
        "recipe": "grpo7b"
    }
    assert read(["grpo", "RECIPE=rlite"], {"RECIPE": "grpo7b"})["recipe"] == "rlite"


def test_keys_of_make_s_goals_are_read_by_the_process_of_each():
    """Each goal is a process of its own; a key may be of another one's stage."""
    given = {"MAKE_GOALS": "sft grpo", "MAKE_WORDS": "grpo.beta=0.1"}
    assert read(["sft"], given).keys == {"grpo": {"beta": "0.1"}}
    told = "with sft and grpo a key needs its stage"
    refused(told, read, ["sft"], given | {"MAKE_WORDS": "beta=0.1"})


@pytest.mark.parametrize(
    "name", ["CUDA_LAUNCH_BLOCKING", "HF_HOME", "NCCL_X", "SLURM_JOB_ID", "ALLOW_CODE"]
)
def test_what_libraries_read_is_handed_on(name, monkeypatch):
    monkeypatch.setenv(name, "0")
    assert words.read(["grpo", f"{name}=1"], {}).handed_on == {name: "1"}


def test_a_yaml_may_be_named_in_place_of_its_stage():
    assert keys.assign(["model.num_layers=3"]) == keys.assign(["base.num_layers=3"])
    assert keys.yaml_flags(["base.num_layers=3"], TOY, "model") == ["--num_layers", "3"]


def test_results_of_other_settings_may_have_another_folder():
    """The report reads what the evaluation writes."""
    request = read(["report", "eval.output_dir=runs/x/eval-2"], {})
    for stage in ("eval", "report"):
        found = commands.stage_words(request, stage)
        assert found[-2:] == ("--output_dir", "runs/x/eval-2")


def test_each_reader_gives_them_to_the_stage(tmp_path):
    entries = ["grpo.top_p=0.8", "sft.max_length=77", "sft.learning_rate=3e-5"]
    shared = {"run": str(tmp_path), "keys": entries}
    recipe, found = read_recipe(PreflightArguments(recipe=TOY, **shared))
    assert not [one for one in found if one.level == "error"]
    assert recipe.settings["grpo"].top_p == 0.8 and recipe.settings["sft"].max_length == 77
    ahead = dict(command_lines(Arguments(recipe=TOY, goal="grpo", **shared)))
    assert "--top_p" in ahead["grpo"] and "--max_length" in ahead["sft"]
    sweep = SweepArguments(grpo_config=f"{TOY}/grpo.yaml", sweep=["top_p=0.5"], **shared)
    (line,) = sweep_commands(sweep, "top_p=0.5", {"top_p": "0.5"})
    given = [line[1][at + 1] for at, word in enumerate(line[1]) if word == "--top_p"]
    assert given == ["0.8", "0.5"]  # what is varied comes last, and counts


def test_preflight_and_plan_read_the_data_where_the_stages_do(tmp_path):
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
        request = read([tool, f"DATA_ROOT={tmp_path}"], {})
        assert "--data_root" in commands.tool_words(request, tool)


def test_preflight_refuses_a_wrong_key_once():
    with pytest.raises(UserError, match="grpo has no key 'top_q'") as error:
        read_recipe(PreflightArguments(recipe=TOY, keys=["grpo.top_q=1"]))
    assert len(error.value.lines) == 1
