"""Keys that another key switches on are refused where it is off."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.settings import hf_keys, known_keys, read_settings, run_check
from stages.arguments import DEFAULTS, GRPO, SFT, GrpoArguments, SftArguments
from stages.checks import check_grpo_keys, check_sft_keys
from stages.checks.common import GRPO_INEFFECTIVE, INEFFECTIVE, SFT_INEFFECTIVE
from stages.checks.switches import SWITCHES
from tests.unit.stages.helpers import grpo, named, sft

CONFIGS = Path(__file__).parents[3] / "configs"
# Keys of TRL and transformers that have an effect whatever the other keys say, that the launch
# decides on (ddp_..., local_rank), or that some check refuses by their value. Recipes that vary
# beta from 0 up fix use_bias_correction_kl, the form of its term.
ALONE = """
    accelerator_config activation_offloading attn_implementation auto_find_batch_size
    average_tokens_across_devices beta bf16 cast_lm_head_to_fp32 chat_template_path
    completion_only_loss data_seed dataloader_drop_last dataloader_num_workers
    dataloader_pin_memory dataset_num_proc ddp_backend ddp_broadcast_buffers ddp_bucket_cap_mb
    ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed disable_dropout
    disable_tqdm ds3_gather_for_generation dtype enable_jit_checkpoint entropy_coef
    eval_strategy fp16 fsdp full_determinism generation_batch_size generation_kwargs
    gradient_accumulation_steps gradient_checkpointing ignore_data_skip
    importance_sampling_level include_num_input_tokens_seen learning_rate local_rank
    log_completions log_level log_level_replica log_on_each_node logging_first_step
    logging_nan_inf_filter logging_strategy loss_type lr_scheduler_type
    mask_truncated_completions max_completion_length max_grad_norm max_length max_steps min_p
    model_init_kwargs model_name_or_path model_revision multi_objective_aggregation
    neftune_noise_alpha num_generations num_iterations off_policy_mask_threshold optim
    output_dir packing pad_to_multiple_of parallelism_config per_device_train_batch_size
    push_to_hub remove_unused_columns repetition_penalty report_to
    restore_callback_states_from_checkpoint resume_from_checkpoint reward_weights
    router_aux_loss_coef run_name save_on_each_node save_strategy scale_rewards seed
    shuffle_dataset skip_memory_metrics steps_per_generation sync_ref_model temperature tf32
    top_entropy_quantile top_k top_p torch_compile torch_compile_backend torch_compile_mode
    torch_empty_cache_steps trust_remote_code use_adaptive_entropy use_bias_correction_kl
    use_cache use_cpu use_liger_kernel use_peft use_vllm weight_decay
"""
BY_THEMSELVES = {*ALONE.split()}
SWITCHED = {key for switch in SWITCHES for key in switch.keys.split()}


def test_every_key_of_the_libraries_has_its_place():
    """A new version's keys, too: find out what switches them on, or that nothing does."""
    keys = {key for name in (*SFT, *GRPO) for key in hf_keys(name)}
    ineffective = SFT_INEFFECTIVE.keys() | GRPO_INEFFECTIVE.keys()
    own = known_keys(GrpoArguments).keys() | known_keys(SftArguments).keys()
    assert keys - SWITCHED - ineffective == BY_THEMSELVES
    assert keys | own >= SWITCHED
    assert ineffective <= keys
    assert {key for switch in SWITCHES for key in switch.on} <= keys | own
    assert not SWITCHED & INEFFECTIVE.keys()


# For each key a value that its type takes and that is not the default.
VALUES = {
    "bool": True, "int": 7, "float": 0.5, "str": "x", "dict": {"a": 1}, "list": ["x"],
    "list[str]": ["x"],
}  # fmt: skip
OTHERS = {
    "eval_do_concat_batches": False, "dataloader_in_order": False, "log_multimodal": False,
    "vllm_importance_sampling_correction": False, "hub_token": None,
    "eval_on_start": True, "vllm_mode": "server", "hub_strategy": "end",
    "cosine_min_value_wrong": -0.75, "cosine_max_value_wrong": -0.75,
    "guard_max_length_growth": 3.0, "guard_max_logp_mismatch": 3.0,
}  # fmt: skip


def value_of(key, kind):
    if key in OTHERS:
        return OTHERS[key]
    if kind.choices:
        return kind.choices[0]
    return VALUES[next(member for member in (m.partition("[")[0] for m in kind.members)
                       if member in VALUES)]  # fmt: skip


# What makes the row's switch the first that is off.
BEFORE = {
    "load_in_4bit": {"use_peft": True},
    "vllm_mode": {"use_vllm": True},
    "vllm_importance_sampling_correction": {"use_vllm": True},
}
OFF = {
    "max_steps": {"max_steps": 5},
    "use_vllm off": {"use_vllm": True},
    "packing off": {"packing": True},
    "vllm_server_base_url": {
        "use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://h:1",
    },
    "lr_scheduler_type warmup_steps": {"lr_scheduler_type": "constant"},
    "lr_scheduler_type lr_scheduler_kwargs": {"lr_scheduler_type": "constant"},
    "optim": {"optim": "adafactor"},
    "save_strategy": {"save_strategy": "no"},
    "logging_strategy": {"logging_strategy": "no"},
    "gradient_checkpointing": {"gradient_checkpointing": False},
    "eval_strategy eval_steps": {"eval_strategy": "no"},
    "vllm_importance_sampling_correction": {
        "use_vllm": True, "vllm_importance_sampling_correction": False, "guard_alignment": "off",
    },
    "loss_type epsilon delta": {"loss_type": "sapo"},
    "loss_type epsilon_high": {"loss_type": "sapo"},
}  # fmt: skip


def off(switch, key):
    """Values that leave a row's switch off and every other row of the key on."""
    first = next(iter(switch.on))
    for name in (f"{first} {switch.keys}", f"{first} {switch.on[first]}", first):
        if name in OFF:
            return OFF[name]
    if first.startswith("guard_"):
        return {first: "off"}
    if first == "reward_funcs":
        return {first: ["correctness_reward"]}
    if first == "vllm_mode":
        other = {"colocate": "server", "server": "colocate"}[switch.on[first][0]]
        return {"use_vllm": True, "vllm_mode": other}
    return BEFORE.get(first, {})


CASES = [(switch, key) for switch in SWITCHES for key in switch.keys.split()]


@pytest.mark.parametrize(
    ("switch", "key"), CASES, ids=[f"{next(iter(s.on))}-{key}" for s, key in CASES]
)
def test_a_key_whose_switch_is_off_is_refused(switch, key):
    tried = 0
    for make, check, own, hf in (
        (sft, check_sft_keys, SftArguments, SFT),
        (grpo, check_grpo_keys, GrpoArguments, GRPO),
    ):
        known = known_keys(own, hf)
        values = off(switch, key)
        if key not in known or not values.keys() <= known.keys() | switch.on.keys():
            continue
        values = {k: v for k, v in values.items() if k in known} | {key: value_of(key, known[key])}
        assert named(check, make(values)) == key, values
        tried += 1
    assert tried


CONSTANT = {"lr_scheduler_type": "constant"}


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        # What says off, as the default does, asks for nothing.
        ({"use_dora": False, "load_in_4bit": False, "do_train": False, "use_vllm": False}, None),
        ({"lora_target_modules": None, "log_unique_prompts": False}, None),
        ({"lora_dropout": 0.0}, "lora_dropout"),  # the default is 0.05
        ({"lora_r": 16}, "lora_r"),  # the default, but it is asked for
        ({"use_peft": True, "lora_r": 16, "lora_dropout": 0.0}, None),
        ({"eval_do_concat_batches": False}, "eval_do_concat_batches"),
        ({"optim": "lion_8bit", "adam_beta1": 0.8}, None),
        ({"optim": "lion_8bit", "adam_epsilon": 1e-7}, "adam_epsilon"),
        (CONSTANT | {"warmup_steps": 0}, None),
        (CONSTANT | {"optim": "schedule_free_adamw", "warmup_steps": 5}, None),
        ({"report_to": ["tensorboard", "wandb"], "project": "p"}, None),
        ({"report_to": ["tensorboard"], "project": "p"}, "project"),
        ({"use_transformers_paged": True, "transformers_continuous_batching_config": {}}, None),
        ({"max_steps": 5}, None),
        ({"num_train_epochs": 2}, None),
    ],
)  # fmt: skip
def test_what_is_asked_for(values, refused):
    assert named(check_grpo_keys, grpo(values)) == refused


def test_lora_s_overlay_and_single_flags_switch_keys_off_with_a_line(capsys):
    argv = ["--config", str(CONFIGS / "grpo7b/grpo.yaml"), "--overlay", str(CONFIGS / "lora.yaml")]
    argv += ["--use_vllm", "false"]
    settings = read_settings(GrpoArguments, GRPO, argv, DEFAULTS)
    kept = run_check(settings, check_grpo_keys)
    dropped = settings.keys() - kept.keys()
    assert dropped == {key for key in settings if key.startswith("vllm_")} and kept.lora_r == 32
    assert len(capsys.readouterr().err.splitlines()) == len(dropped)
    with pytest.raises(UserError, match="lora_r"):
        run_check(settings.replaced(use_peft=False), check_grpo_keys)
