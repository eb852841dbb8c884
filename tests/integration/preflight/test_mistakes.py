"""Mistakes planted in recipe, launch, tokenizer and data, each found with what to change."""

import shutil
import socket
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.integration
REFUSES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
)
DATED = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{{ date_string }}"
)
NO_ANSWER = '{"prompt": [{"role": "user", "content": "1 + 1"}]}\n'


def keys(stage, recipe=None, **values):
    """Set keys of a stage's file, of a shipped recipe where one is named."""
    return lambda planted: (recipe and planted.copy(recipe), planted.set(stage, **values))


def launched(gpus, accelerate=None, **grpo):
    """Launch otherwise; with other keys of grpo.yaml."""
    launch = {"gpus": gpus, "accelerate": accelerate}
    return lambda planted: (planted.args.update(launch), planted.set("grpo", **grpo))


def template(old, new, **data):
    """Change the chat template; build data with it where keys of data.yaml are given."""
    return lambda planted: (planted.change_template(old, new), data and planted.build_data(**data))


def no_template(planted):
    (planted.model / "chat_template.jinja").unlink()


def base_tokenizer(planted):
    # Like Qwen2.5's base models: the EOS is another than the template's.
    tokens = {"eos_token": "<|endoftext|>", "pad_token": "<|im_start|>"}
    planted.change_json("tokenizer_config.json", **tokens)
    ends = {"eos_token_id": planted.tokenizer().eos_token_id}
    planted.change_json("generation_config.json", **ends)


def doubled_bos(planted):
    planted.change_json("tokenizer_config.json", bos_token="<|endoftext|>")
    planted.change_template("{% for", "<|endoftext|><|endoftext|>{% for")


def finished_sft_without_template(planted):
    planted.set("sft", model_name_or_path="someone/some-model", output_dir="{run}/sft")
    no_template(planted)


def template_ends_otherwise(planted):
    planted.change_template("<|im_end|>", "<end_of_turn>")
    (planted.recipe / "sft.yaml").unlink()


def think_is_special(planted):
    tokenizer = planted.tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.save_pretrained(planted.model)


def misspelt_output(planted):
    shutil.rmtree(planted.run / "data")
    planted.build_data(output_dir="{run}/dta")


def gpu_recipe_on_cpus(planted):
    planted.copy("grpo7b")
    planted.args |= {"gpus": 2, "accelerate": "cpu"}


def torn_engine(planted):
    planted.copy("grpo7b")
    planted.set("grpo", vllm_tensor_parallel_size=3)
    planted.args["gpus"] = 8


def full_disk(planted):
    planted.monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))


def server_is_down(planted):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        planted.serve(vllm_server_port=one.getsockname()[1])


def misspelt_data(planted):
    planted.build_data()
    planted.set("grpo", train_file="{run}/data/grpo_trian.jsonl")


EVALUATES = {"eval_strategy": "steps", "eval_problems": 8}
DIFFICULTY = {"model_name_or_path": "{run}/sft", "output_dir": "{run}/difficulty",
              "problems_file": "{run}/data/grpo_train.jsonl"}  # fmt: skip
MISSPELT = {"checkpoints": ["sft={run}/stf", "grpo={run}/grpo"], "tasks": ["held_out"],
            "test_file": "{run}/data/grpo_train.jsonl", "output_dir": "{run}/eval",
            "report_dir": "{run}/report"}  # fmt: skip
THINK, HEADS = {"system_prompt": "think"}, "message['content'] }}"
# Name: plant, level, topic, what is said.
MISTAKES = {
    "unknown key": (keys("grpo", learning_rte=1e-4), "error", "grpo.yaml", "'learning_rte'"),
    "stray file": (keys("gpro", seed=0), "error", "gpro.yaml", "read by no stage"),
    "torn group": (keys("grpo", num_generations=6),
        "error", "grpo.yaml", "6 does not divide the 8 completions"),
    "torn over processes": (launched(3, generation_batch_size=32),
        "error", "grpo.yaml", "32 is no multiple of"),
    "rounded away": (keys("grpo", dtype="bfloat16", learning_rate=5e-7),
        "error", "grpo.yaml", "learning_rate 5e-07"),
    "rounding under ZeRO": (launched(2, "zero2", dtype="bfloat16", stochastic_rounding=True),
        "error", "grpo.yaml", "would have no effect: deepspeed"),
    "dead ratio": (keys("grpo", max_mean_ratio=5.0),
        "warning", "grpo.yaml", "5.0 can drop nothing"),
    "uniform groups": (keys("grpo", num_generations=4),
        "warning", "grpo.yaml", "41% at pass rate 0.8"),
    "too few problems": (
        keys("grpo", per_device_train_batch_size=32, gradient_accumulation_steps=4),
        "error", "grpo.yaml", "12 problems, but one generation batch takes 16"),
    "endless warm-up": (keys("grpo", warmup_steps=50), "warning", "grpo.yaml", "warmup_steps: 50"),
    "never evaluates": (keys("grpo", eval_steps=100, **EVALUATES),
        "warning", "grpo.yaml", "eval_steps: 100"),
    "all held out": (keys("grpo", eval_steps=5, **EVALUATES | {"eval_problems": 12}),
        "error", "grpo.yaml", "12 would leave nothing"),
    "rows beyond context": (keys("sft", max_length=4096), "error", "sft.yaml", "4,096 is above"),
    "prompt beyond context": (keys("grpo", max_prompt_length=4000),
        "error", "grpo.yaml", "above the model's 512"),
    "window too small": (keys("grpo", use_vllm=True, vllm_max_model_length=300),
        "error", "grpo.yaml", "max_completion_length = 456"),
    "evaluation cuts": (keys("difficulty", max_new_tokens=100, **DIFFICULTY),
        "warning", "difficulty.yaml", "max_new_tokens: 100"),
    "prompts dropped": (keys("grpo", max_prompt_length=40), "error", "grpo lengths", "length: 40"),
    "rows dropped": (keys("sft", max_length=64), "error", "sft lengths", "SFT drops them"),
    "broken data": (lambda planted: planted.write_data('{"prompt": [{"role": "user"\n'),
        "error", "data", "sft_train.jsonl"),
    "no answer column": (lambda planted: planted.write_data(NO_ANSWER * 40),
        "error", "data", "completion"),
    "no template": (no_template, "error", "tokenizer", "no chat template"),
    "finished SFT without template": (finished_sft_without_template,
        "error", "tokenizer", "no chat template"),
    "template strips the thought": (template(HEADS, "message['content'].split('</think>')[-1] }}"),
        "warning", "think", "strips <think>"),
    "template closes the thought": (
        template("assistant\n{%", "assistant\n<think>\n\n</think>\n\n{%"),
        "error", "think", "closes the thought"),
    "template ends otherwise": (template_ends_otherwise, "error", "template", "ends no generation"),
    "template refuses system": (template("{% for", REFUSES + "{% for", **THINK),
        "error", "template", "no system role"),
    "template drops system": (
        template("in messages %}", "in messages if message['role'] != 'system' %}", **THINK),
        "error", "template", "leaves out the system"),
    "no generation prompt": (template("{% if add_generation_prompt %}", "{% if true %}"),
        "warning", "template", "ignores add_generation_prompt"),
    "dated": (template("{% for", DATED + "{% for"), "warning", "template", "writes today's date"),
    "doubled BOS": (doubled_bos, "error", "template", "twice"),
    "base tokenizer": (base_tokenizer, "warning", "template", "SFT teaches '<|endoftext|>'"),
    "pad is EOS": (
        lambda planted: planted.change_json("tokenizer_config.json", pad_token="<|im_end|>"),
        "warning", "tokenizer", "pad_token is eos_token"),
    "think is special": (think_is_special, "error", "tokenizer", "drops <think>"),
    "foreign tokenizer": (lambda planted: planted.change_json("config.json", vocab_size=200),
        "error", "tokenizer", "embedding has 200 rows"),
    "generation ends elsewhere": (
        lambda planted: planted.change_json("generation_config.json", eos_token_id=5),
        "error", "template", "generation_config.json"),
    "misspelt data": (misspelt_data, "error", "grpo.yaml", "grpo_trian.jsonl is not there"),
    "misspelt output": (misspelt_output, "error", "sft.yaml", "no stage of the recipe writes it"),
    "misspelt checkpoint": (keys("eval", **MISSPELT),
        "error", "eval.yaml", "/run/stf is not there"),
    "pass rates of no stage": (
        keys("grpo", curriculum="offline", pass_rates="{run}/difficulty/pass_rates.jsonl"),
        "error", "grpo.yaml", "pass_rates: "),
    "contaminated": (keys("data", "grpo7b", decontaminate=["aime24", "aime25", "gsm8k"]),
        "error", "contamination", "math500"),
    "graded differently": (keys("eval", "grpo7b", final_number=True),
        "error", "grading", "eval.yaml true"),
    "pass rates graded differently": (keys("difficulty", "grpo7b", final_number=True),
        "error", "grading", "difficulty.yaml true"),
    "LoRA of another model": (keys("sft", lora_target_modules=["c_attn", "c_proj"], use_peft=True),
        "error", "sft.yaml", "fits no module"),
    "LoRA list of one": (keys("grpo", lora_target_modules=["q_proj"], use_peft=True),
        "error", "grpo.yaml", "a list of one is read as a pattern"),
    "one process for eight": (launched(8, "single_gpu"),
        "error", "grpo.yaml", "8 asked for, the launch has started 1"),
    "GPU recipe on CPUs": (gpu_recipe_on_cpus, "error", "grpo.yaml", "(cpu.yaml) is for CPUs"),
    "FSDP on CPUs": (launched(2, "fsdp2"), "error", "sft.yaml", "FSDP runs on GPUs only"),
    "torn engine": (torn_engine, "error", "grpo.yaml", "size: 3 does not divide 8"),
    "sleeping server": (lambda planted: planted.serve(vllm_enable_sleep_mode=True),
        "warning", "grpo.yaml", "puts no server to sleep"),
    "two precisions": (keys("grpo", fp16=True, bf16=True),
        "error", "grpo.yaml", "fp16"),
    "server elsewhere": (lambda planted: planted.serve(vllm_server_base_url="http://h:8000/"),
        "not checked", "server", "server http://h:8000 is"),
    "server is down": (server_is_down, "warning", "server", "nothing answers"),
    "full disk": (full_disk, "error", "disk", "needed"),
    "endless checkpoints": (keys("sft", "grpo7b", save_total_limit=None),
        "warning", "disk", "save_total_limit is not set"),
    "does not fit": (keys("sft", "grpo7b", stochastic_rounding=None, dtype="float32"),
        "error", "sft memory", "of 94 GiB"),
    "no cache": (keys("grpo", "grpo7b", vllm_gpu_memory_utilization=0.15),
        "error", "grpo memory", "cache for 0 tokens"),
    "engine too large": (keys("grpo", "grpo7b", vllm_gpu_memory_utilization=0.8),
        "error", "grpo memory", "while vLLM generates"),
    "unknown model": (keys("sft", "grpo7b", model_name_or_path="someone/some-model"),
        "not checked", "sft memory", "someone/some-model"),
}  # fmt: skip
REMEDIES = {  # with a number or name that was worked out
    "dead ratio": "steps_per_generation: 4",
    "uniform groups": "num_generations: 8",
    "rows beyond context": "max_length: 512",
    "evaluation cuts": "200 or more",
    "contaminated": "decontaminate: math500",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(planted, name):
    plant, level, topic, said = MISTAKES[name]
    plant(planted)
    found = planted.findings()
    match = [one for one in found if (one.level, one.topic) == (level, topic) and said in one.text]
    assert match, "\n".join(f"{one.level} {one.topic}: {one.text} -> {one.remedy}" for one in found)
    assert REMEDIES.get(name, "") in match[0].remedy
    assert match[0].remedy or name in ("all held out", "two precisions")


def test_the_recipe_without_a_mistake_has_no_finding(planted):
    assert [one for one in planted.findings() if one.level != "ok"] == []


def test_a_base_tokenizer_with_sft_is_no_error(planted):
    base_tokenizer(planted)
    assert planted.findings("error") == []


def test_a_built_template_without_default_is_not_dated(planted):
    planted.change_template("{% for", "{% set date_string = '26 Jul 2024' %}{% for")
    assert not [one for one in planted.findings() if "today's date" in one.text]


def test_a_model_through_any_output_dir_is_known(planted):
    planted.set("sft", model_name_or_path="Qwen/Qwen2.5-0.5B-Instruct", output_dir="{run}/cold")
    planted.set("grpo", model_name_or_path="{run}/cold")
    levels = [one.level for one in planted.findings() if one.topic == "grpo memory"]
    assert levels and "not checked" not in levels


def test_the_disk_is_that_of_the_output_dir(planted, tmp_path):
    planted.set("grpo", output_dir=str(tmp_path / "elsewhere" / "grpo"))
    (found,) = [one for one in planted.findings() if one.topic == "disk"]
    assert str(tmp_path / "elsewhere" / "grpo") in found.text


UNREADABLE = {
    "reward_funcs": lambda planted: planted.set("grpo", reward_funcs=5),
    "server_port": lambda planted: planted.serve(vllm_server_port=99999999),
    "empty data": lambda planted: planted.write_data(""),
    "list of ends": lambda planted: (planted.model / "generation_config.json").write_text("[1]"),
    "end of text": lambda planted: planted.change_json("generation_config.json", eos_token_id="x"),
    "no heads": lambda planted: planted.change_json("config.json", num_attention_heads=0),
    "positions": lambda planted: planted.change_json("config.json", max_position_embeddings="x"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_no_check_can_read_is_a_finding_and_no_traceback(planted, name):
    UNREADABLE[name](planted)
    assert any(one.level in ("error", "not checked") for one in planted.findings())
