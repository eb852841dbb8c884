"""Mistakes between files, and between recipe and launch; values that no check can work with."""

import shutil

import pytest
from planted_recipe import Planted

pytestmark = pytest.mark.integration


@pytest.fixture
def planted(tmp_path, tiny_model_dir, data_dir):
    return Planted(tmp_path, tiny_model_dir, data_dir)


def base_tokenizer(planted):
    # Like Qwen2.5's base models: the EOS is another than the template's.
    planted.change_json(
        "tokenizer_config.json", eos_token="<|endoftext|>", pad_token="<|im_start|>"
    )
    ends = {"eos_token_id": planted.tokenizer().eos_token_id}
    planted.change_json("generation_config.json", **ends)


def no_generation_prompt(planted):
    planted.change_template("{% if add_generation_prompt %}", "{% if true %}")


def dated(planted):
    path = planted.model / "chat_template.jinja"
    start = "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}"
    path.write_text(f"{start}{{% endif %}}{{{{ date_string }}}}{path.read_text()}")


def finished_sft_without_template(planted):
    planted.set("sft", model_name_or_path="someone/some-model", output_dir="{run}/sft")
    (planted.model / "chat_template.jinja").unlink()


def misspelt_data(planted):
    planted.set("data", output_dir="{run}/data",
                sft=[{"name": "synthetic", "sample": 10, "split": "train"}])  # fmt: skip
    planted.set("grpo", train_file="{run}/data/grpo_trian.jsonl")


def misspelt_output(planted):
    shutil.rmtree(planted.run / "data")
    planted.set("data", output_dir="{run}/dta",
                sft=[{"name": "synthetic", "sample": 10, "split": "train"}])  # fmt: skip


def misspelt_checkpoint(planted):
    planted.set("eval", checkpoints=["sft={run}/stf", "grpo={run}/grpo"], tasks=["held_out"],
                test_file="{run}/data/grpo_train.jsonl", output_dir="{run}/eval")  # fmt: skip


def pass_rates_of_no_stage(planted):
    planted.set("grpo", curriculum="offline", pass_rates="{run}/difficulty/pass_rates.jsonl")


def all_held_out(planted):
    planted.set("grpo", eval_strategy="steps", eval_steps=5, eval_problems=12)


def lora_of_another_model(planted):
    planted.set("sft", use_peft=True, lora_target_modules=["c_attn", "c_proj"])


def lora_list_of_one(planted):
    planted.set("grpo", use_peft=True, lora_target_modules=["q_proj"])


def one_process_for_eight(planted):
    planted.args |= {"gpus": 8, "accelerate": "single_gpu"}


def gpu_recipe_on_cpus(planted):
    planted.copy("grpo7b")
    planted.args |= {"gpus": 2, "accelerate": "cpu"}


def fsdp_on_cpus(planted):
    planted.args |= {"gpus": 2, "accelerate": "fsdp2"}


def torn_engine(planted):
    planted.copy("grpo7b")
    planted.set("grpo", vllm_tensor_parallel_size=3)
    planted.args["gpus"] = 8


def sleeping_server(planted):
    planted.set("grpo", use_vllm=True, vllm_mode="server", vllm_enable_sleep_mode=True)


def two_precisions(planted):
    planted.set("grpo", fp16=True, bf16=True)


def server_elsewhere(planted):
    planted.set("grpo", use_vllm=True, vllm_mode="server", vllm_server_base_url="http://h:8000/")


def prompt_beyond_context(planted):
    planted.set("grpo", max_prompt_length=4000)


MISTAKES = [  # plant, level, topic, what is said, remedy
    (base_tokenizer, "warning", "template", "SFT teaches '<|endoftext|>'", "other chats"),
    (no_generation_prompt, "warning", "template", "ignores add_generation_prompt", "heading"),
    (dated, "warning", "template", "writes today's date", "fixed date"),
    (finished_sft_without_template, "error", "tokenizer", "no chat template", "instruct"),
    (misspelt_data, "error", "grpo.yaml", "grpo_trian.jsonl is not there", "/run/data"),
    (misspelt_output, "error", "sft.yaml", "no stage of the recipe writes it", "/run/dta"),
    (misspelt_checkpoint, "error", "eval.yaml", "/run/stf is not there", "/run/grpo"),
    (pass_rates_of_no_stage, "error", "grpo.yaml", "pass_rates: ", "correct it"),
    (all_held_out, "error", "grpo.yaml", "12 would leave nothing", ""),
    (lora_of_another_model, "error", "sft.yaml", "fits no module", "all-linear"),
    (lora_list_of_one, "error", "grpo.yaml", "a list of one is read as a pattern", ".*q_proj"),
    (one_process_for_eight, "error", "launch", "8 processes with a launch of one", "ddp"),
    (gpu_recipe_on_cpus, "error", "grpo.yaml", "the launch is for CPUs", "ddp"),
    (fsdp_on_cpus, "error", "sft.yaml", "use_cpu: true under FSDP", "zero2"),
    (torn_engine, "error", "grpo.yaml", "size: 3 does not divide 8", "size: 1"),
    (sleeping_server, "warning", "grpo.yaml", "puts no server to sleep", "false"),
    (two_precisions, "error", "grpo.yaml", "exclude each other", "fp16: false"),
    (server_elsewhere, "not checked", "ports", "server http://h:8000 is", "http://h:8000/health"),
    (prompt_beyond_context, "error", "grpo.yaml", "exceed 512", "lower max_prompt_length"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("plant", "level", "topic", "said", "remedy"),
    MISTAKES,
    ids=[row[0].__name__ for row in MISTAKES],
)
def test_a_planted_mistake_is_found(planted, plant, level, topic, said, remedy):
    plant(planted)
    found = planted.findings()
    match = [one for one in found if one.level == level and one.topic == topic and said in one.text]
    assert match, "\n".join(f"{one.level} {one.topic}: {one.text} -> {one.remedy}" for one in found)
    assert remedy in match[0].remedy


def test_a_base_tokenizer_with_sft_is_no_error(planted):
    base_tokenizer(planted)
    assert [one for one in planted.findings() if one.level == "error"] == []


def test_a_built_template_without_default_is_not_dated(planted):
    path = planted.model / "chat_template.jinja"
    path.write_text("{% set date_string = '26 Jul 2024' %}" + path.read_text())
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


UNREADABLE = [
    {"max_steps": "many"},
    {"max_completion_length": "x"},
    {"save_steps": "x"},
    {"save_total_limit": "x"},
    {"reward_funcs": 5},
    {"use_vllm": True, "vllm_mode": "server", "vllm_server_port": "x"},
    {"use_vllm": True, "vllm_mode": "server", "vllm_group_port": 99999999},
]


@pytest.mark.parametrize("values", UNREADABLE, ids=[[*row][-1] for row in UNREADABLE])
def test_a_value_that_no_check_can_read_is_an_error(planted, values):
    planted.set("grpo", **values)
    assert [one for one in planted.findings() if one.level == "error"]


def test_broken_files_are_errors(planted):
    (planted.run / "data" / "sft_train.jsonl").write_text("")
    assert [one for one in planted.findings() if one.level == "error"]


@pytest.mark.parametrize("text", ["[1]", '{"eos_token_id": "x"}'])
def test_a_broken_generation_config_is_an_error(planted, text):
    (planted.model / "generation_config.json").write_text(text)
    assert [one for one in planted.findings() if one.level == "error"]


def test_a_model_without_heads_is_an_error(planted):
    planted.change_json("config.json", num_attention_heads=0)
    assert [one for one in planted.findings() if one.level == "error"]


def test_positions_that_are_no_number_are_no_traceback(planted):
    planted.change_json("config.json", max_position_embeddings="x")
    assert [one for one in planted.findings() if one.level != "ok"]


def test_batches_that_do_not_fit_are_said_once(planted):
    planted.set("grpo", generation_batch_size=12)
    errors = [one.text for one in planted.findings() if one.level == "error"]
    assert len(errors) == 1 and "12" in errors[0], errors
