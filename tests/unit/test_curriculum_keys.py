"""Keys of `grpo.yaml` that choose problems, advantages and guards: what goes together."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from data_prep.config import UserError, parse
from stages.settings.arguments import GrpoArguments, check_grpo_numbers
from stages.settings.curriculum_arguments import ADVANTAGES, MODES
from stages.trainer.guards import GuardSettings

CONFIGS = Path(__file__).parents[2] / "configs"
FILE = {"pass_rates": "pass_rates.jsonl"}


def build(**keys):
    return GrpoArguments(train_file="f", **keys)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        *(({"curriculum": mode} | FILE, None) for mode in MODES),
        *(({"advantage": kind}, None) for kind in ADVANTAGES),
        ({"curriculum": "online"}, "curriculum: 'online' is none of off, offline, predictive, ref"),
        ({"curriculum": "refill+predictive"}, "'refill\\+predictive' is none of off"),
        ({"advantage": "std"}, "advantage: 'std' is none of group, none, batch, posterior"),
        ({"curriculum": "offline"}, "pass_rates: missing; curriculum: offline needs the file"),
        ({"explore_share": 0.0}, None),
        ({"explore_share": 1.0}, None),
        ({"explore_share": -0.01}, "explore_share: -0.01 is not within 0..1"),
        ({"explore_share": 5.0}, "explore_share: 5.0 is not within 0..1"),
        ({"rest_batches": 0, "max_refill_rounds": 1}, None),
        ({"rest_batches": -1}, "rest_batches: -1 must be at least 0"),
        ({"max_refill_rounds": 0}, "max_refill_rounds: 0 must be at least 1"),
        ({"half_life": float("inf")}, None),
        ({"half_life": 0.0}, "half_life: 0.0 must be above 0"),
        ({"half_life": float("nan")}, "half_life: nan must be above 0"),
        ({"max_mean_ratio": 1.01}, None),
        ({"max_mean_ratio": 1.0}, "max_mean_ratio: 1.0 must be above 1"),
        ({"max_mean_ratio": float("nan")}, "max_mean_ratio: nan must be above 1"),
        ({"guard_rollback_lr_factor": 1.0, "guard_max_rollbacks": 0}, None),
        ({"guard_rollback_lr_factor": 0.0}, "guard_rollback_lr_factor: 0.0 is not within 0..1"),
        ({"guard_rollback_lr_factor": 1.1}, "guard_rollback_lr_factor: 1.1 is not within 0..1"),
        ({"guard_max_rollbacks": -1}, "guard_max_rollbacks: -1 is below 0"),
        ({"guard_patience": 0}, "guard_patience: 0 must be within 1..10"),
        ({"guard_entropy": "mask"}, "guard_entropy: 'mask' has no single completions to mask"),
    ],
)
def test_values(keys, words):
    if words is None:
        build(**keys)
        return
    with pytest.raises(ValueError, match=words):
        build(**keys)


def test_arguments_are_given_by_name():
    with pytest.raises(TypeError):
        GrpoArguments("f")


READ_BY = {
    "min_pass_rate": ["offline"],
    "max_pass_rate": ["offline"],
    "explore_share": ["predictive", "predictive+refill"],
    "rest_batches": ["predictive", "refill", "predictive+refill"],
    "half_life": ["predictive", "predictive+refill"],
    "max_refill_rounds": ["refill", "predictive+refill"],
    "pass_rates": ["offline", "predictive", "predictive+refill"],
}


@pytest.mark.parametrize("mode", [*MODES, None, False])  # the key left out; a bare `off`
@pytest.mark.parametrize("key", READ_BY)
def test_keys_that_a_mode_does_not_read_are_refused(key, mode):
    values = {key: "x" if key == "pass_rates" else 0, "curriculum": mode}
    if mode is None:
        del values["curriculum"]
    if mode in READ_BY[key]:
        check_grpo_numbers(values)
        return
    words = f"{key}: {values[key]} would have no effect with curriculum: {mode or 'off'}; .*set cur"
    with pytest.raises(UserError, match=words.replace("+", r"\+")):
        check_grpo_numbers(values)
    check_grpo_numbers(values | {key: None})
    if key in ("pass_rates", "half_life"):  # the posterior reads them in every mode
        check_grpo_numbers(values | {"advantage": "posterior"})


@pytest.mark.parametrize("value", ["group", True, False, "none"])
def test_the_scale_of_rewards_is_the_advantages(value):
    with pytest.raises(
        UserError, match=r"scale_rewards: .* `advantage` .* sets it; remove the key"
    ):
        check_grpo_numbers({"scale_rewards": value})


@pytest.mark.parametrize("values", [{"curriculum": mode} for mode in MODES if "refill" in mode])
@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_refill_starts_from_the_summed_reward(values, aggregation):
    values = values | {"multi_objective_aggregation": aggregation}
    if aggregation == "sum_then_normalize":
        check_grpo_numbers(values)
        return
    with pytest.raises(UserError, match=r"multi_objective_aggregation: .*curriculum: .*remove one"):
        check_grpo_numbers(values)


def test_own_advantages_start_from_the_summed_reward():
    values = {"multi_objective_aggregation": "normalize_then_sum"}
    for sound in ({}, {"advantage": "group"}, {"curriculum": "predictive"}):
        check_grpo_numbers(values | sound)
    for kind in ADVANTAGES[1:]:
        with pytest.raises(UserError, match=f"multi_objective_aggregation: .*advantage: {kind}, "):
            check_grpo_numbers(values | {"advantage": kind})


@pytest.mark.parametrize(
    ("keys", "is_needed"),
    [
        *(({"curriculum": mode}, mode not in ("off", "offline")) for mode in MODES),
        *(({"advantage": kind}, kind == "posterior") for kind in ADVANTAGES),
        ({"curriculum": "offline", "advantage": "posterior"}, True),
    ],
)
def test_pass_rates_are_followed_by_a_reward_that_tells_right_from_wrong(keys, is_needed):
    for funcs in (["correctness_reward"], ["think_format_reward", "rlinf_reward"]):
        build(**keys, **FILE, reward_funcs=funcs)
    blind = {"reward_funcs": ["think_format_reward", "random_reward"]} | FILE | keys
    if not is_needed:
        build(**blind)
        return
    words = (
        "reward_funcs: think_format_reward, random_reward: none tells right from wrong, .*; add "
    )
    with pytest.raises(ValueError, match=words + "correctness_reward, with reward_weights 0 if"):
        build(**blind)


def parse_yaml(folder, text, *flags):
    path = folder / "grpo.yaml"
    path.write_text("train_file: x\n" + text, encoding="utf-8")
    argv = ["--config", str(path), *flags]
    return parse("doc", GrpoArguments, check=check_grpo_numbers, argv=argv)[0]


def test_a_bare_off_in_yaml(tmp_path):
    assert yaml.safe_load("off") is False
    names = [f"guard_{f.name}" for f in fields(GuardSettings) if f.default == "warn"]
    assert len(names) == 6
    text = "".join(f"{name}: off\n" for name in ["curriculum", *names])
    args = parse_yaml(tmp_path, text)
    assert args.curriculum == "off"
    settings = vars(args.guard_settings())
    assert {name: settings[name.removeprefix("guard_")] for name in names} == dict.fromkeys(
        names, "off"
    )
    args = parse_yaml(tmp_path, text, "--curriculum", "predictive", "--guard_entropy", "stop")
    assert (args.curriculum, args.guard_settings().entropy) == ("predictive", "stop")
    args = parse_yaml(tmp_path, "curriculum: refill\n", "--curriculum", "off", "--guard_eos=off")
    assert (args.curriculum, args.guard_settings().eos) == ("off", "off")
    with pytest.raises(UserError, match=r"grpo\.yaml: guard_weights: 'mask' has no single"):
        parse_yaml(tmp_path, "guard_weights: mask\n")


def test_help_explains_every_key(capsys):
    with pytest.raises(SystemExit):
        parse("doc", GrpoArguments, argv=["--help"])
    out = capsys.readouterr().out
    for field in fields(GrpoArguments):
        assert len(field.metadata["help"]) > 10, field.name
        assert f"  {field.name:28} {field.metadata['help']}\n" in out
    guards = {f.name: f for f in fields(GrpoArguments) if f.name.startswith("guard_")}
    assert {*guards} == {f"guard_{f.name}" for f in fields(GuardSettings)} | {
        "guard_rollback_lr_factor", "guard_max_rollbacks",
    }  # fmt: skip
    for field in fields(GuardSettings):
        key = guards[f"guard_{field.name}"]
        assert (key.default, key.type) == (field.default, field.type)
        if field.default == "warn":  # an action's help lists the actions that work
            actions = key.metadata["help"].rpartition(": ")[2].split(", ")
            for action in actions:
                GuardSettings(**{field.name: action})
            assert len(actions) == (4 if field.name in ("entropy", "weights") else 5)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/grpo.yaml")), ids=lambda p: p.parent.name)
def test_shipped_recipes_build(path):
    names = {f.name for f in fields(GrpoArguments)}
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    GrpoArguments(**{key: value for key, value in values.items() if key in names})
