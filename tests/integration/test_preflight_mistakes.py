"""Mistakes planted in recipe, tokenizer and data, each found with what to change."""

import socket
from types import SimpleNamespace

import pytest
from planted_recipe import Planted

from stages.preflight import preflight_host, preflight_memory

pytestmark = pytest.mark.integration
SYSTEM_REFUSED = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
)


@pytest.fixture
def planted(tmp_path, tiny_model_dir, data_dir):
    return Planted(tmp_path, tiny_model_dir, data_dir)


def unknown_key(planted, monkeypatch):
    planted.set("grpo", learning_rte=1e-4)


def stray_file(planted, monkeypatch):
    (planted.recipe / "gpro.yaml").write_text("seed: 0\n")


def torn_group(planted, monkeypatch):
    planted.set("grpo", num_generations=6)


def torn_over_processes(planted, monkeypatch):
    planted.set("grpo", generation_batch_size=32)
    planted.args["gpus"] = 3


def rounded_away(planted, monkeypatch):
    planted.set("grpo", dtype="bfloat16", learning_rate=5e-7)


def rounding_under_zero(planted, monkeypatch):
    planted.set("grpo", dtype="bfloat16", stochastic_rounding=True)
    planted.args |= {"gpus": 2, "accelerate": "zero2"}


def dead_ratio(planted, monkeypatch):
    planted.set("grpo", max_mean_ratio=5.0)


def uniform_groups(planted, monkeypatch):
    planted.set("grpo", num_generations=4)


def too_few_problems(planted, monkeypatch):
    planted.set("grpo", per_device_train_batch_size=32, gradient_accumulation_steps=4)


def warms_up_for_ever(planted, monkeypatch):
    planted.set("grpo", warmup_steps=50)


def never_evaluates(planted, monkeypatch):
    planted.set("grpo", eval_strategy="steps", eval_steps=100, eval_problems=8)


def beyond_context(planted, monkeypatch):
    planted.set("sft", max_length=4096)


def window_too_small(planted, monkeypatch):
    planted.set("grpo", vllm_max_model_length=300)


def evaluation_cuts(planted, monkeypatch):
    planted.set("difficulty", model_name_or_path="{run}/sft", output_dir="{run}/difficulty",
                problems_file="{run}/data/grpo_train.jsonl", max_new_tokens=100)  # fmt: skip


def prompts_dropped(planted, monkeypatch):
    planted.set("grpo", max_prompt_length=40)


def rows_dropped(planted, monkeypatch):
    planted.set("sft", max_length=64)


def broken_data(planted, monkeypatch):
    path = planted.run / "data" / "sft_train.jsonl"
    path.write_text(path.read_text() + '{"prompt": [{"role": "user"\n')


def answer_column_gone(planted, monkeypatch):
    path = planted.run / "data" / "sft_train.jsonl"
    path.write_text('{"prompt": [{"role": "user", "content": "1 + 1"}]}\n' * 40)


def no_template(planted, monkeypatch):
    (planted.model / "chat_template.jinja").unlink()


def template_strips_think(planted, monkeypatch):
    planted.change_template("message['content'] }}", "message['content'].split('</think>')[-1] }}")


def template_closes_think(planted, monkeypatch):
    planted.change_template("assistant\n{%", "assistant\n<think>\n\n</think>\n\n{%")


def template_ends_otherwise(planted, monkeypatch):
    planted.change_template("<|im_end|>", "<end_of_turn>")
    (planted.recipe / "sft.yaml").unlink()


def template_refuses_system(planted, monkeypatch):
    path = planted.model / "chat_template.jinja"
    path.write_text(SYSTEM_REFUSED + path.read_text())
    sources = [{"name": "synthetic", "sample": 10, "split": "train"}]
    planted.set("data", output_dir="{run}/data", system_prompt="think", sft=sources)


def template_drops_system(planted, monkeypatch):
    planted.change_template("in messages %}", "in messages if message['role'] != 'system' %}")
    sources = [{"name": "synthetic", "sample": 10, "split": "train"}]
    planted.set("data", output_dir="{run}/data", system_prompt="think", sft=sources)


def doubled_bos(planted, monkeypatch):
    planted.change_json("tokenizer_config.json", bos_token="<|endoftext|>")
    planted.change_template("{% for", "<|endoftext|><|endoftext|>{% for")


def pad_is_eos(planted, monkeypatch):
    planted.change_json("tokenizer_config.json", pad_token="<|im_end|>")


def think_is_special(planted, monkeypatch):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(planted.model)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.save_pretrained(planted.model)


def foreign_tokenizer(planted, monkeypatch):
    planted.change_json("config.json", vocab_size=200)


def generation_ends_elsewhere(planted, monkeypatch):
    planted.change_json("generation_config.json", eos_token_id=5)


def full_disk(planted, monkeypatch):
    usage = SimpleNamespace(free=10_000)
    monkeypatch.setattr(preflight_memory.shutil, "disk_usage", lambda _: usage)


def endless_checkpoints(planted, monkeypatch):
    planted.copy("grpo7b")
    planted.set("sft", save_total_limit=None)


def does_not_fit(planted, monkeypatch):
    planted.copy("grpo7b")
    planted.set("sft", stochastic_rounding=None, dtype="float32")


def no_cache(planted, monkeypatch):
    planted.copy("grpo7b")
    planted.set("grpo", vllm_gpu_memory_utilization=0.15)


def engine_too_large(planted, monkeypatch):
    planted.copy("grpo7b")
    planted.set("grpo", vllm_gpu_memory_utilization=0.8)


def contaminated(planted, monkeypatch):
    planted.copy("grpo7b")
    planted.set("data", decontaminate=["aime24", "aime25", "gsm8k"])


def graded_differently(planted, monkeypatch):
    planted.copy("grpo7b")
    planted.set("eval", final_number=True)


def unknown_model(planted, monkeypatch):
    planted.copy("grpo7b")
    planted.set("sft", model_name_or_path="someone/some-model")


def server_is_down(planted, monkeypatch):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    planted.set("grpo", use_vllm=True, vllm_mode="server", vllm_server_port=port)


MISTAKES = [  # plant, level, topic, what is said, remedy
    (unknown_key, "error", "grpo.yaml", "unknown key 'learning_rte'", "'learning_rate'"),
    (stray_file, "error", "gpro.yaml", "read by no stage", "grpo.yaml"),
    (torn_group, "error", "grpo.yaml", "6 does not divide the 8 completions", "num_generations"),
    (torn_over_processes, "error", "grpo.yaml", "32 is no multiple of", "a multiple of that"),
    (rounded_away, "error", "grpo.yaml", "learning_rate 5e-07", "stochastic_rounding: true"),
    (rounding_under_zero, "error", "grpo.yaml", "no effect under zero2",
     "--dtype float32 --stochastic_rounding false"),
    (dead_ratio, "warning", "grpo.yaml", "max_mean_ratio: 5.0 can drop nothing",
     "steps_per_generation: 4"),
    (uniform_groups, "warning", "grpo.yaml", "41% at pass rate 0.8", "num_generations: 8"),
    (too_few_problems, "error", "grpo.yaml", "12 problems, but one generation batch takes 16",
     "add problems"),
    (warms_up_for_ever, "warning", "grpo.yaml", "warmup_steps: 50", "lower it"),
    (never_evaluates, "warning", "grpo.yaml", "eval_steps: 100", "lower it"),
    (beyond_context, "error", "sft.yaml", "max_length: 4,096 is above", "max_length: 512"),
    (window_too_small, "error", "grpo.yaml", "vllm_max_model_length: 300", "length: 456"),
    (evaluation_cuts, "warning", "difficulty.yaml", "max_new_tokens: 100", "200 or more"),
    (prompts_dropped, "error", "grpo lengths", "max_prompt_length: 40", "keeps 99 %"),
    (rows_dropped, "error", "sft lengths", "SFT drops them", "keeps 99 %"),
    (broken_data, "error", "data", "sft_train.jsonl", "make data"),
    (answer_column_gone, "error", "data", "completion", "make data"),
    (no_template, "error", "tokenizer", "no chat template", "instruct"),
    (template_strips_think, "warning", "think", "strips <think>", "data_prep.prompts"),
    (template_closes_think, "error", "think", "closes the thought", "thinking mode"),
    (template_ends_otherwise, "error", "template", "ends no generation", "<end_of_turn>"),
    (template_refuses_system, "error", "template", "no system role", "system_prompt: none"),
    (template_drops_system, "error", "template", "leaves out the system", "another system_prompt"),
    (doubled_bos, "error", "template", "twice", "remove one"),
    (pad_is_eos, "warning", "tokenizer", "pad_token is eos_token", "of its own"),
    (think_is_special, "error", "tokenizer", "drops <think>", "special=False"),
    (foreign_tokenizer, "error", "tokenizer", "embedding has 200 rows", "belongs to the model"),
    (generation_ends_elsewhere, "error", "template", "generation_config.json", "eos_token_id"),
    (full_disk, "error", "disk", "needed", "save_total_limit"),
    (endless_checkpoints, "warning", "disk", "save_total_limit is not set", "limit: 2"),
    (does_not_fit, "error", "sft memory", "of 94 GiB", "stochastic_rounding: true"),
    (no_cache, "error", "grpo memory", "cache for 0 tokens", "raise vllm_gpu_memory_utilization"),
    (engine_too_large, "error", "grpo memory", "while vLLM generates", "lower vllm_gpu"),
    (contaminated, "error", "contamination", "math500", "decontaminate: math500"),
    (graded_differently, "error", "grading", "eval.yaml true", "grade alike"),
    (unknown_model, "not checked", "sft memory", "someone/some-model", "download"),
    (server_is_down, "warning", "ports", "nothing answers", "run/sft --enable-scale-out"),
]  # fmt: skip


def test_the_recipe_without_a_mistake_has_no_finding(planted):
    assert [one for one in planted.findings() if one.level != "ok"] == []


@pytest.mark.parametrize(
    ("plant", "level", "topic", "said", "remedy"),
    MISTAKES,
    ids=[row[0].__name__ for row in MISTAKES],
)
def test_a_planted_mistake_is_found(planted, monkeypatch, plant, level, topic, said, remedy):
    plant(planted, monkeypatch)
    found = planted.findings()
    match = [one for one in found if one.level == level and one.topic == topic and said in one.text]
    assert match, "\n".join(f"{one.level} {one.topic}: {one.text} -> {one.remedy}" for one in found)
    assert remedy in match[0].text + match[0].remedy
    assert match[0].remedy


def test_a_taken_port_is_found_where_the_launch_names_one(planted, monkeypatch):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        monkeypatch.setattr(preflight_host, "MASTER_PORT", port)
        planted.args |= {"gpus": 2, "accelerate": "--multi_gpu"}
        found = [one for one in planted.findings() if one.topic == "ports"]
        planted.args["accelerate"] = "ddp"  # which takes any free one
        assert not [one for one in planted.findings() if one.topic == "ports"]
    assert found[0].level == "warning" and str(port) in found[0].text
    assert "--main_process_port 0" in found[0].remedy
