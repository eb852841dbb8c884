"""Sweeps over data: what is built for each set, names of runs, and every mistake before a run."""

import json

import pytest

from pipeline.errors import UserError
from stages import sweep, sweep_data, sweep_page
from stages.preflight import rehearsal
from stages.preflight.inputs import PreflightArguments, read_recipe
from tests.files import write_rows

GENERIC = {"name": "generic", "prompt_key": "q", "answer_key": "a", "solution_key": "s"}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A folder with a recipe of SFT and GRPO, whose data has the variant `hard`."""
    monkeypatch.chdir(tmp_path)
    for name in ("own.jsonl", "hard.jsonl"):
        write_rows(tmp_path / name, [{"q": f"What is {name}?", "a": "1", "s": "1"}])
    start = {"model_name_or_path": "a/b", "use_cpu": True, "bf16": False}
    values = {
        "sft": start | {"train_file": "{run}/data/sft_train.jsonl", "output_dir": "{run}/sft"},
        "grpo": start
        | {"train_file": "{run}/data/grpo_train.jsonl", "output_dir": "{run}/grpo"}
        | {"model_name_or_path": "{run}/sft"},
    }
    for name in ("own", "hard"):
        sources = [GENERIC | {"file": f"{name}.jsonl"}]
        values["data" if name == "own" else f"data-{name}"] = {
            "output_dir": "{run}/data", "sft": sources, "grpo": sources,
            "decontaminate": ["gsm8k"],
        }  # fmt: skip
    (tmp_path / "mine").mkdir()
    for name, keys in values.items():
        write(tmp_path / "mine", name, **keys)
    return tmp_path / "mine"


def write(recipe, name, **keys):
    path = recipe / f"{name}.yaml"
    had = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(had | keys))  # JSON is YAML


def arguments(*entries):
    return sweep.SweepArguments(grpo_config="mine/grpo.yaml", run="r", sweep=[*entries])


def lines_of(*entries):
    """`[stage and its command line]` of each run."""
    args = arguments(*entries)
    return [
        [f"{stage} {' '.join(line)}" for stage, line in sweep.commands(args, name, values)]
        for name, values in sweep.combinations([*entries]).items()
    ]


def test_each_set_has_its_data_sft_and_grpo(recipe):
    own, hard = lines_of("sft.data=own,hard")
    # The recipe's own SFT is there already.
    start = "grpo --config mine/grpo.yaml --run_dir r"
    assert own == [f"{start} --output_dir r/sweep/sft.data=own/grpo"]
    made, data = "r/sweep/sft.data=hard/sft", "r/sweep/data-hard"
    assert hard == [
        f"data --config mine/data-hard.yaml --run_dir {data}",
        f"sft --config mine/sft.yaml --run_dir r --output_dir {made} "
        f"--train_file {data}/data/sft_train.jsonl",
        f"{start} --model_name_or_path {made} --output_dir r/sweep/sft.data=hard/grpo",
    ]
    sweep.check_sets(arguments("sft.data=own,hard"), sweep.combinations(["sft.data=own,hard"]))


def test_two_sft_runs_share_the_data_of_their_set(recipe):
    for line in lines_of("sft.data=hard", "sft.seed=0,1"):
        assert line[0] == "data --config mine/data-hard.yaml --run_dir r/sweep/data-hard"
        assert "sweep/sft.data=hard,sft.seed=" in line[1] and "--seed" in line[1]
    (own,) = lines_of("sft.data=own", "sft.seed=1")
    assert [line.split()[0] for line in own] == ["sft", "grpo"] and "--train_file" not in own[0]


def test_what_runs_share_is_made_once(recipe, monkeypatch):
    made = []
    monkeypatch.setattr(sweep, "check", lambda *_: None)
    monkeypatch.setattr(sweep.signal, "signal", lambda *_: None)
    run = lambda _, words, **__: made.append(words[2]) or 0  # noqa: E731
    monkeypatch.setattr(sweep.Runner, "run", run)
    flags = [
        "--grpo_config",
        "mine/grpo.yaml",
        "--run",
        "r",
        "--sweep",
        "sft.data=hard",
        "seed=0,1",
    ]
    monkeypatch.setattr("sys.argv", ["sweep", *flags])
    with pytest.raises(UserError, match="2 of 2 runs did not finish"):  # nothing was trained
        sweep.main()
    assert made == ["data_prep.builder", "stages.sft", "stages.grpo", "stages.grpo"]


def test_a_teacher_solves_the_problems_of_the_set(recipe):
    write(recipe, "sft", train_file="{run}/distill/traces.jsonl")
    keys = {"problems_file": "{run}/data/grpo_train.jsonl", "output_dir": "{run}/distill"}
    write(recipe, "distill", model_name_or_path="a/teacher", **keys)
    ((_, distill, sft, _),) = lines_of("sft.data=hard")
    folder = "r/sweep/data-hard"
    assert distill == (
        "distill --config mine/distill.yaml --run_dir r "
        f"--problems_file {folder}/data/grpo_train.jsonl --output_dir {folder}/distill"
    )
    assert sft.endswith(f"--train_file {folder}/distill/traces.jsonl")


def test_grpo_may_train_on_other_problems(recipe):
    ((data, grpo),) = lines_of("data=hard")
    assert data == "data --config mine/data-hard.yaml --run_dir r/sweep/data-hard"
    made = "r/sweep/data-hard/data/grpo_train.jsonl"
    assert grpo.endswith(f"--output_dir r/sweep/data=hard/grpo --train_file {made}")


def test_the_slashes_of_a_file_are_no_folder(recipe):
    runs = sweep.combinations(["sft.train_file=sets/a.jsonl,b.jsonl"])
    assert list(runs) == ["sft.train_file=sets+a.jsonl", "sft.train_file=b.jsonl"]


@pytest.mark.parametrize(
    ("entries", "change", "words"),
    [
        (["sft.data=own,hrad"], {}, r"=hrad: mine/data-hrad.yaml does not .*own, copy, hard$"),
        (["data=own,hrad"], {}, r"data=hrad: mine/data-hrad.yaml does not exist"),
        (["sft.data=own,../x"], {}, r"does not exist"),
        (["sft.train_file=own.jsonl,no.jsonl"], {}, "sft.train_file=no.jsonl: is not a file"),
        (["train_file=no.jsonl"], {}, "train_file=no.jsonl: is not a file"),
        (["train_file=own.jsonl,./own.jsonl"], {}, "own.jsonl and ./own.jsonl are the same file"),
        (["sft.data=hard,copy"], {}, "sft.data: hard and copy are the same file"),
        (["sft.data=hard", "sft.train_file=own.jsonl"], {}, "vary only one of them"),
        (["sft.data=hard"], {"data-hard": {"sft": []}}, "data-hard.yaml: has no list sft, which"),
        (["sft.data=hard"], {"data-hard": {"decontaminate": []}}, "decontaminate: lacks gsm8k"),
        (["sft.data=hard"], {"data-hard": {"output_dir": "r/data"}}, "output_dir: r/data"),
        (["sft.data=hard"],
         {"data": {"validation": [GENERIC | {"file": "own.jsonl"}]}}, "validation: not as in"),
        (["sft.data=hard"], {"data-hard": {"sfd": 1}}, "data-hard.yaml: unknown key 'sfd'"),
        (["sft.data=hard"], {"data-hard": {"sft": [GENERIC | {"file": "no.jsonl"}]}}, "no.jsonl"),
        (["sft.data=hard"], {"sft": {"train_file": "own.jsonl"}}, "vary sft.train_file"),
        (["data=hard"], {"grpo": {"pass_rates": "p.jsonl", "curriculum": "offline"}},
         "have no pass rates; add curriculum=off"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_before_anything_is_trained(
    recipe, entries, change, words, monkeypatch
):
    (recipe / "data-copy.yaml").symlink_to(recipe / "data-hard.yaml")
    for name, keys in change.items():
        write(recipe, name, **keys)
    flags = ["--recipe", "mine", "--run", "r", "--goal", "grpo", "--sweep", *entries]
    monkeypatch.setattr("sys.argv", ["ahead", *flags])
    with pytest.raises(UserError, match=words) as refused:
        rehearsal.main()
    assert "\n" not in str(refused.value)
    monkeypatch.setattr(
        "sys.argv", ["sweep", "--grpo_config", "mine/grpo.yaml", "--run", "r", "--sweep", *entries]
    )
    with pytest.raises(UserError, match=words):
        sweep.main()
    assert not (recipe.parent / "r").exists()


def test_pass_rates_that_the_sweep_does_not_read_are_no_mistake(recipe):
    write(recipe, "grpo", pass_rates="p.jsonl", curriculum="offline")
    entries = ["data=hard", "curriculum=off"]
    sweep.check_sets(arguments(*entries), sweep.combinations(entries))


def test_a_variant_without_sft_in_the_recipe_is_refused(recipe):
    (recipe / "sft.yaml").unlink()
    with pytest.raises(UserError, match=r"sft.data: mine has no sft.yaml"):
        sweep.check_sets(arguments("sft.data=hard"), sweep.combinations(["sft.data=hard"]))


def test_preflight_checks_the_variants_of_a_recipe(recipe):
    def faults():
        _, found = read_recipe(PreflightArguments(recipe="mine", run="r"))
        return [one.topic for one in found if one.level == "error"]

    assert "data-hard.yaml" not in faults()
    write(recipe, "data-hard", prompt="thinks")
    assert "data-hard.yaml" in faults()


def test_the_page_names_the_sets_and_their_rows(recipe, tmp_path):
    entries = ["sft.data=own,hard"]
    folder = tmp_path / "r/sweep/data-hard/data"
    folder.mkdir(parents=True)
    counts = {"sft_train.jsonl": {"rows_out": 7200, "rows_in": 7200, "dropped": {}, "sources": []}}
    made = {"stage": "data", "config": {}, "outputs": counts, "inputs": {}, "counts": {}}
    (folder / "manifest.json").write_text(json.dumps(made))
    sets = sweep.describe_sets(arguments(*entries), sweep.combinations(entries))
    assert sets == [
        ["sft.data=own", "mine/data.yaml", "generic", ""],
        ["sft.data=hard", "mine/data-hard.yaml", "generic", "7,200"],
    ]
    row = dict.fromkeys(sweep_page.COLUMNS) | {"values": {"sft.data": "hard"}, "curve": []}
    page = sweep_page.to_markdown([row], "A sweep", sets=sets)
    assert "| sft.data=hard | mine/data-hard.yaml | generic | 7,200 |" in page
    assert sweep_data.count_rows(tmp_path / "own.jsonl") == ""
