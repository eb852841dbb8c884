"""What is refused before torch is imported: the key that each wrong value, or pair, names."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from data_prep.config import Settings, UserError, build, parse, read_settings, run_check
from stages import checks
from stages.arguments import DEFAULTS, GRPO, MODES, SCALES, GrpoArguments, SftArguments
from stages.checks import check_batch, check_grpo, check_grpo_keys, check_sft, check_sft_keys
from stages.trainer.guards import GuardSettings
from tests.unit.stages.helpers import grpo, named, sft

CONFIGS = Path(__file__).parents[3] / "configs"
BATCH = {
    "device": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "group": "num_generations",
    "steps": "steps_per_generation",
    "whole": "generation_batch_size",
}


def spell_out(text):
    """`device=4 group=8` as the recipe's own keys."""
    pairs = (part.split("=") for part in text.split())
    return {BATCH[key]: int(value) for key, value in pairs}


@pytest.mark.parametrize(
    ("text", "num_processes", "refused"),
    [
        ("", 1, None),  # TRL's defaults: 8 completions, groups of 8
        ("", 4, None),
        ("device=4 accumulation=8 group=4", 1, None),
        ("device=2 accumulation=4 group=8", 2, None),
        ("device=2 accumulation=1 steps=4 group=8", 1, None),
        ("device=3 accumulation=8 group=8", 1, None),
        ("device=4 whole=32 group=8", 2, None),
        ("device=4 accumulation=3 whole=16 group=8", 1, None),  # accumulation plays no part
        ("device=4 group=8", 2, "num_generations"),
        ("device=12 group=8", 1, "num_generations"),
        ("device=1 group=2", 1, "num_generations"),
        ("device=5 accumulation=6 group=4", 2, "num_generations"),
        ("device=2 accumulation=8 steps=3 group=8", 1, "num_generations"),
        ("device=4 whole=12 group=8", 1, "num_generations"),
        ("device=6 whole=120 group=8", 2, "num_generations"),
        ("group=1", 1, "num_generations"),
        ("device=0", 1, "per_device_train_batch_size"),
        ("accumulation=-1", 1, "gradient_accumulation_steps"),
        ("steps=0", 1, "steps_per_generation"),
        ("device=8 steps=1 whole=8", 1, "generation_batch_size"),
        ("device=8 whole=20", 1, "generation_batch_size"),
        ("device=8 whole=24", 3, None),
        ("device=8 whole=24", 2, "generation_batch_size"),
    ],
)
def test_every_process_has_whole_groups(text, num_processes, refused):
    values = spell_out(text)
    assert named(check_batch, grpo(values), num_processes) == refused
    if refused != "num_generations" or values.get("num_generations") == 1:
        return
    with pytest.raises(UserError) as error:  # and the numbers suggested instead work
        check_batch(grpo(values), num_processes)
    remedies = [
        (key, int(number))
        for key, numbers in re.findall(r"(?:use|or) (\w+) (\d+(?: or \d+)*)", str(error.value))
        for number in numbers.split(" or ")
    ]
    assert remedies and {key for key, _ in remedies} <= {*BATCH.values()}
    for key, number in remedies:
        check_batch(grpo(values | {key: number}), num_processes)


def test_the_number_of_processes_comes_from_the_launcher(monkeypatch):
    values = spell_out("device=8 whole=24 group=8")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert named(check_grpo_keys, grpo(values)) == "generation_batch_size"


EVAL = {"eval_strategy": "steps", "eval_steps": 20, "eval_problems": 64}
VLLM = {"use_vllm": True}
BLIND = VLLM | {"vllm_importance_sampling_correction": False}
GENERATION = {"gradient_accumulation_steps": 8, "per_device_train_batch_size": 1}
ROLLBACK = {"guard_eos": "rollback"}
OVERLONG = {"reward_funcs": ["correctness_reward", "overlong"]}
ROUNDED = {"stochastic_rounding": True, "dtype": "bfloat16"}
FILE = {"pass_rates": "p.jsonl"}
NO_SUM = {"multi_objective_aggregation": "normalize_then_sum"}
READ_BY = {
    "min_pass_rate": ["offline"],
    "max_pass_rate": ["offline"],
    "explore_share": ["predictive", "predictive+refill"],
    "rest_batches": ["predictive", "refill", "predictive+refill"],
    "half_life": ["predictive", "predictive+refill"],
    "max_refill_rounds": ["refill", "predictive+refill"],
    "pass_rates": ["offline", "predictive", "predictive+refill"],
}


def check_all(settings):
    """The keys' checks, and the dataclass's own."""
    check_grpo_keys(settings)
    build(settings, GrpoArguments)


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({}, None),
        *(({"scale_rewards": scale}, None) for scale in (*SCALES, True, False)),
        ({"scale_rewards": "std"}, "scale_rewards"),
        ({"curriculum": "online"}, "curriculum"),
        ({"curriculum": False}, None),  # YAML's bare `off`
        ({"curriculum": "offline"}, "pass_rates"),
        ({"curriculum": "offline", "min_pass_rate": 0.6} | FILE, "min_pass_rate"),
        ({"curriculum": "offline", "max_pass_rate": 1.1} | FILE, "min_pass_rate"),
        ({"curriculum": "offline", "min_pass_rate": 0.5} | FILE, None),
        ({"curriculum": "predictive", "explore_share": 1.0}, None),
        ({"curriculum": "predictive", "explore_share": -0.01}, "explore_share"),
        ({"curriculum": "predictive", "rest_batches": -1}, "rest_batches"),
        ({"curriculum": "refill", "max_refill_rounds": 0}, "max_refill_rounds"),
        ({"curriculum": "predictive", "half_life": float("inf")}, None),
        ({"curriculum": "predictive", "half_life": float("nan")}, "half_life"),
        ({"max_mean_ratio": 1.01}, None),
        ({"max_mean_ratio": 1.0}, "max_mean_ratio"),
        ({"max_mean_ratio": float("nan")}, "max_mean_ratio"),
        (NO_SUM, None),
        (NO_SUM | {"curriculum": "predictive"}, None),
        (NO_SUM | {"curriculum": "refill"}, "multi_objective_aggregation"),
        (NO_SUM | {"scale_rewards": "batch"}, "multi_objective_aggregation"),
        ({"update_tokens": 0}, "update_tokens"),
        # rewards
        ({"reward_funcs": ["accuracy"]}, "reward_funcs"),
        ({"reward_funcs": ["think_format_reward"]}, None),
        ({"reward_funcs": ["think_format_reward"], "curriculum": "refill"}, "reward_funcs"),
        ({"reward_weights": [1.0, 0.5, 1.0]}, None),  # the default has three functions
        ({"reward_weights": [1.0]}, "reward_weights"),
        (OVERLONG | {"reward_weights": [1.0]}, "reward_weights"),
        (OVERLONG | {"overlong_cache": 512}, None),  # TRL's max_completion_length
        (OVERLONG, "overlong_cache"),
        (OVERLONG | {"overlong_cache": 0}, "overlong_cache"),
        (OVERLONG | {"overlong_cache": 513}, "overlong_cache"),
        (OVERLONG | {"overlong_cache": 2, "max_completion_length": None}, "max_completion_length"),
        ({"length_penalty_start": 800}, "length_penalty_start"),
        ({"length_penalty_start": -1}, "length_penalty_start"),
        ({"length_penalty_max": -0.1}, "length_penalty_max"),
        ({"repetition_ngram_size": 0}, "repetition_ngram_size"),
        ({"repetition_max_penalty": -1.0}, "repetition_max_penalty"),
        # what Hugging Face takes and fails on later
        ({"dtype": "bfloat61"}, "dtype"),
        ({"dtype": None, "temperature": "1e-3"}, None),
        ({"use_peft": True, "lora_r": 0}, "lora_r"),
        ({"use_peft": "no", "lora_r": 0}, None),
        ({"temperature": 0}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"num_iterations": 0}, "num_iterations"),
        ({"loss_type": "ppo"}, "loss_type"),
        ({"importance_sampling_level": "word"}, "importance_sampling_level"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs"),
        ({"sync_ref_model": True}, "sync_ref_model"),
        ({"seed": -1}, "seed"),
        ({"resume_from_checkpoint": "none/here"}, "resume_from_checkpoint"),
        ({"max_prompt_length": 0}, "max_prompt_length"),
        # stochastic rounding
        (ROUNDED, None),
        ({"stochastic_rounding": True}, "stochastic_rounding"),
        (ROUNDED | {"use_peft": True}, "stochastic_rounding"),
        (ROUNDED | {"optim": "adamw_torch"}, "stochastic_rounding"),
        # guards
        ({"guard_entropy": False}, None),
        ({"guard_entropy": "mask"}, "guard_entropy"),
        ({"guard_patience": 0}, "guard_patience"),
        ({"guard_max_rollbacks": 1}, "guard_max_rollbacks"),
        ({"guard_rollback_lr_factor": 0.5}, "guard_rollback_lr_factor"),
        (ROLLBACK | {"guard_max_rollbacks": -1}, "guard_max_rollbacks"),
        (ROLLBACK | {"guard_rollback_lr_factor": 1.1}, "guard_rollback_lr_factor"),
        (ROLLBACK | {"save_steps": 7, "save_total_limit": 3}, None),
        (ROLLBACK | {"save_steps": 7, "save_total_limit": 2}, "save_total_limit"),
        (ROLLBACK | {"save_steps": 1, "save_total_limit": 0}, None),  # Hugging Face keeps all
        (ROLLBACK | {"save_steps": 0.5}, "save_steps"),
        (ROLLBACK | {"save_strategy": "epoch"}, "guard_eos"),
        # evaluation; more in test_in_training_eval_keys
        (EVAL, None),
        ({"eval_problems": 64}, "eval_problems"),
        (EVAL | {"num_generations_eval": 4, "per_device_eval_batch_size": 6},
         "per_device_eval_batch_size"),
        # vLLM
        (VLLM, None),
        ({"use_vllm": "false", "vllm_mode": "nowhere"}, None),
        (VLLM | {"vllm_mode": "remote"}, "vllm_mode"),
        (VLLM | {"vllm_max_model_length": 1024, "max_prompt_length": 512}, None),
        (VLLM | {"vllm_max_model_length": 1024, "max_prompt_length": 600}, "vllm_max_model_length"),
        (VLLM | {"vllm_max_model_length": 8, "vllm_mode": "server"}, None),
        (BLIND, "vllm_importance_sampling_correction"),
        (BLIND | {"guard_alignment": "off"}, None),
        # Several optimizer steps share a generation: TRL keeps the old log-probs.
        (BLIND | {"gradient_accumulation_steps": 2, "steps_per_generation": 8}, None),
        (BLIND | {"num_iterations": 2}, None),
        (BLIND | GENERATION | {"generation_batch_size": 64}, None),
        (BLIND | GENERATION | {"generation_batch_size": 8}, "vllm_importance_sampling_correction"),
    ],
)  # fmt: skip
def test_grpo(values, refused):
    assert named(check_all, grpo(values)) == refused


@pytest.mark.parametrize("mode", [*MODES, None])
@pytest.mark.parametrize("key", READ_BY)
def test_keys_that_a_mode_does_not_read_are_refused(key, mode):
    values = {key: "x" if key == "pass_rates" else 1} | ({"curriculum": mode} if mode else {})
    is_read = mode in READ_BY[key]
    assert named(check_grpo_keys, grpo(values)) == (None if is_read else key)


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"dtype": "bfloat16", "use_peft": True, "lora_r": 1}, None),
        ({"dtype": "bfloat61"}, "dtype"),
        ({"use_peft": True, "lora_r": -4}, "lora_r"),
        ({"stochastic_rounding": True}, "stochastic_rounding"),
        *(({key: "x"}, key) for key in checks.SFT_INEFFECTIVE if key != "assistant_only_loss"),
        ({"assistant_only_loss": True}, "assistant_only_loss"),
    ],
)
def test_sft(values, refused):
    assert named(check_sft_keys, sft(values)) == refused


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ({}, 14),  # 10 recent steps, patience 3, and one
        ({"guard_patience": 5}, 16),
        ({"gradient_accumulation_steps": 8}, 14),
        ({"steps_per_generation": 4}, 53),  # rollouts are judged every fourth step
        ({"steps_per_generation": 4, "num_iterations": 2}, 105),
        ({"steps_per_generation": 1, "gradient_accumulation_steps": 4}, 14),
    ],
)
def test_look_back_in_optimizer_steps(values, steps):
    assert checks.look_back(grpo(values)) == steps


@pytest.mark.parametrize(
    ("flags", "dropped"),
    [
        ("--curriculum off", {"pass_rates", "min_pass_rate", "max_pass_rate"}),
        ("--curriculum predictive", {"min_pass_rate", "max_pass_rate"}),
        ("--eval_strategy no", {"eval_problems", "eval_steps", "eval_on_start",
                                "num_generations_eval", "per_device_eval_batch_size"}),
        ("--dtype float32", {"stochastic_rounding"}),
    ],
)  # fmt: skip
def test_an_override_drops_the_yamls_keys_that_it_makes_pointless(flags, dropped, capsys):
    argv = ["--config", str(CONFIGS / "grpo7b/grpo.yaml"), *flags.split()]
    settings = read_settings(GrpoArguments, GRPO, argv, DEFAULTS)
    kept = run_check(settings, check_grpo_keys)
    assert settings.keys() - kept.keys() == dropped
    assert len(capsys.readouterr().err.splitlines()) == len(dropped)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Values of a recipe whose files exist, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("runs", "base", "empty"):  # with `runs` here, runs/none is no hub id
        (tmp_path / name).mkdir()
    (tmp_path / "base/config.json").write_text("{}")
    (tmp_path / "train.jsonl").write_text("{}\n")
    return {"train_file": "train.jsonl", "model_name_or_path": "base"}


@pytest.mark.parametrize("stage", ["sft", "grpo"])
@pytest.mark.parametrize(
    ("change", "refused", "goal"),
    [
        ({}, None, None),
        ({"train_file": "none.jsonl"}, "train_file", "data"),
        ({"model_name_or_path": None}, "model_name_or_path", None),
        ({"model_name_or_path": "runs/none"}, "model_name_or_path", "before"),
        ({"model_name_or_path": "empty"}, "model_name_or_path", "before"),
        ({"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}, None, None),  # a hub id
    ],
)
def test_missing_inputs_are_named_with_their_make_target(files, stage, change, refused, goal):
    check, build_settings = (check_sft, sft) if stage == "sft" else (check_grpo, grpo)
    goal = {"before": "base" if stage == "sft" else "sft"}.get(goal, goal)
    settings = build_settings(files | change)
    assert named(check, settings) == refused
    if goal:
        with pytest.raises(UserError, match=f"`make {goal}`"):
            check(settings)


def test_missing_pass_rates(files):
    values = files | {"curriculum": "predictive", "pass_rates": "none.jsonl"}
    with pytest.raises(UserError, match=r"^pass_rates: none\.jsonl .*`make difficulty`"):
        check_grpo(grpo(values))
    Path("empty/adapter_config.json").write_text("{}")  # an adapter is a model, too
    check_grpo(grpo(files | {"model_name_or_path": "empty"}))


def test_arguments_are_given_by_name():
    with pytest.raises(TypeError):
        GrpoArguments("f")


def test_help_explains_every_key(capsys):
    with pytest.raises(SystemExit):
        parse("doc", GrpoArguments, argv=["--help"])
    out = capsys.readouterr().out
    for field in (*fields(GrpoArguments), *fields(SftArguments)):
        assert len(field.metadata["help"]) > 10, field.name
    keys = {f.name: f for f in fields(GrpoArguments)}
    for field in fields(GuardSettings):
        key = keys[f"guard_{field.name}"]
        assert (key.default, key.type) == (field.default, field.type)
        assert f"  {key.name:28} {field.metadata['help']}\n" in out
        if field.default == "warn":  # an action's help lists the actions that work
            for action in key.metadata["help"].rpartition(": ")[2].split(", "):
                GuardSettings(**{field.name: action})


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/grpo.yaml")), ids=lambda p: p.parent.name)
def test_shipped_recipes_pass(path):
    check_all(Settings.of(yaml.safe_load(path.read_text()), GrpoArguments, GRPO))
