"""Mistakes planted in recipe, launch, tokenizer and data, each found with what to change."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pipeline import manifest
from stages.preflight.__main__ import inspect
from stages.preflight.inputs import PreflightArguments

pytestmark = pytest.mark.integration
REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
DATED = "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }}"
NO_ANSWER = '{"prompt": [{"role": "user", "content": "1 + 1"}]}\n'
CONFIGS = Path(__file__).parents[3] / "configs"
SYNTHETIC = [{"name": "synthetic", "sample": 10, "split": "train"}]


class Planted:
    """A recipe folder and a run folder with the tiny model as `sft`, and its data."""

    def __init__(self, folder, model, data, monkeypatch):
        self.monkeypatch = monkeypatch
        self.run = folder / "run"
        shutil.copytree(model, self.run / "sft")
        shutil.copytree(data, self.run / "data")
        self.recipe, self.model = folder / "recipe", self.run / "sft"
        self.recipe.mkdir()
        self.args = {"run": str(self.run)}
        cpu = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "seed": 0}
        self.set("sft", model_name_or_path="{run}/sft", train_file="{run}/data/sft_train.jsonl",
                 output_dir="{run}/out", max_length=256, per_device_train_batch_size=4,
                 num_train_epochs=2, save_total_limit=2, **cpu)  # fmt: skip
        self.set("grpo", model_name_or_path="{run}/sft", num_generations=8, max_prompt_length=256,
                 train_file="{run}/data/grpo_train.jsonl", output_dir="{run}/grpo", max_steps=20,
                 max_completion_length=200, save_total_limit=2, **cpu)  # fmt: skip

    def set(self, stage, **values):
        """Change keys of a file; None takes one out."""
        path = self.recipe / f"{stage}.yaml"
        old = yaml.safe_load(path.read_text()) if path.is_file() else {}
        new = {key: value for key, value in (old | values).items() if value is not None}
        path.write_text(yaml.safe_dump(new))

    def copy(self, name):
        """Put a shipped recipe in place of the tiny one."""
        shutil.rmtree(self.recipe)
        shutil.copytree(CONFIGS / name, self.recipe)

    def build_data(self, **values):
        self.set("data", **{"output_dir": "{run}/data", "sft": SYNTHETIC} | values)

    def write_data(self, text):
        (self.run / "data" / "sft_train.jsonl").write_text(text)

    def change_json(self, name, **values):
        path = self.model / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def change_template(self, old, new):
        path = self.model / "chat_template.jinja"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def tokenizer(self):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.model)

    def findings(self, level=None):
        found = inspect(PreflightArguments(recipe=str(self.recipe), **self.args))[1]
        return [one for one in found if level in (None, one.level)]


@pytest.fixture
def planted(tmp_path, tiny_model_dir, data_dir, monkeypatch):
    return Planted(tmp_path, tiny_model_dir, data_dir, monkeypatch)


def keys(stage, recipe=None, **values):
    """Set keys of a stage's file, of a shipped recipe where one is named."""
    return lambda planted: (recipe and planted.copy(recipe), planted.set(stage, **values))


def launched(gpus, accelerate=None, recipe=None, **grpo):
    """Launch otherwise; with other keys of grpo.yaml."""
    launch, change = {"gpus": gpus, "accelerate": accelerate}, keys("grpo", recipe, **grpo)
    return lambda planted: (planted.args.update(launch), change(planted))


def template(old, new, **data):
    """Change the chat template; build data with it where keys of data.yaml are given."""
    return lambda planted: (planted.change_template(old, new), data and planted.build_data(**data))


def own_model(name, damage):
    """Start from a copy of the tiny model elsewhere, which is damaged."""

    def change(planted):
        folder = shutil.copytree(planted.model, planted.recipe.parent / name)
        damage(folder)
        planted.set("sft", model_name_or_path=str(folder))

    return change


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


def missing_bos(planted):
    from tokenizers.processors import TemplateProcessing

    tokenizer = planted.tokenizer()
    tokenizer.bos_token = bos = "<|endoftext|>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(planted.model)


def other_split(planted):
    planted.change_json("tokenizer.json", normalizer={"type": "Lowercase"})


def finished_sft_without_template(planted):
    no_template(planted)
    planted.set("sft", model_name_or_path="someone/some-model", output_dir="{run}/sft")


def no_template_and_no_sft(planted):
    no_template(planted)
    (planted.recipe / "sft.yaml").unlink()
    planted.set("grpo", model_name_or_path="{run}/sft")


def template_ends_otherwise(planted):
    planted.change_template("<|im_end|>", "<end_of_turn>")
    (planted.recipe / "sft.yaml").unlink()


def think_is_special(planted):
    drop_think(planted.model)


def drop_think(folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.save_pretrained(folder)


def another_model_than_sft_had(planted):
    own_model("mine", drop_think)(planted)
    planted.set("sft", output_dir="{run}/sft")


EVALUATES = {"eval_strategy": "steps", "eval_problems": 8}
DIFFICULTY = {"model_name_or_path": "{run}/sft", "output_dir": "{run}/difficulty",
              "problems_file": "{run}/data/grpo_train.jsonl"}  # fmt: skip
MISSPELT = {"checkpoints": ["sft={run}/stf", "grpo={run}/grpo"], "tasks": ["held_out"],
            "test_file": "{run}/data/grpo_train.jsonl", "output_dir": "{run}/eval",
            "report_dir": "{run}/report"}  # fmt: skip
THINK, HEADS = {"prompt": "think"}, "message['content'] }}"
# "level topic: what is said" -> how to plant it.
MISTAKES = {
    "error grpo.yaml: 'learning_rte'": keys("grpo", learning_rte=1e-4),
    "error gpro.yaml: read by no stage": keys("gpro", seed=0),
    "error grpo.yaml: 6 does not divide the 8 completions": keys("grpo", num_generations=6),
    "error grpo.yaml: learning_rate 5e-07": keys("grpo", dtype="bfloat16", learning_rate=5e-7),
    "error grpo.yaml: would have no effect: deepspeed":
        launched(2, "zero2", dtype="bfloat16", stochastic_rounding=True),
    "error grpo.yaml: 12 problems, but one generation batch takes 16":
        keys("grpo", per_device_train_batch_size=32, gradient_accumulation_steps=4),
    "warning grpo.yaml: warmup_steps: 50": keys("grpo", warmup_steps=50),
    "error grpo.yaml: eval_steps: 100": keys("grpo", eval_steps=100, **EVALUATES),
    "error grpo.yaml: 12 is all of":
        keys("grpo", eval_steps=5, **EVALUATES | {"eval_problems": 12}),
    "error sft.yaml: 4,096 is above": keys("sft", max_length=4096),
    "error grpo.yaml: above the model's 512": keys("grpo", max_prompt_length=4000),
    "error grpo.yaml: max_completion_length = 456":
        keys("grpo", use_vllm=True, vllm_max_model_length=300),
    "warning difficulty.yaml: max_new_tokens: 100":
        keys("difficulty", max_new_tokens=100, **DIFFICULTY),
    # It leaves room for one token, and the problems have more.
    "error difficulty.yaml: exceed the model's positions, 512":
        keys("difficulty", max_new_tokens=511, **DIFFICULTY),
    "error eval.yaml: exceed the model's positions, 512":
        keys("eval", **MISSPELT | {"max_new_tokens": 512}),
    "error eval.yaml: exceed vllm_max_model_length, 300": keys(
        "eval", **MISSPELT | {"max_new_tokens": 301, "backend": "vllm",
                              "vllm_max_model_length": 300}),
    "error grpo lengths: length: 40": keys("grpo", max_prompt_length=40),
    "error sft lengths: SFT drops them": keys("sft", max_length=64),
    "error data: sft_train.jsonl":
        lambda planted: planted.write_data('{"prompt": [{"role": "user"\n'),
    "error data: completion": lambda planted: planted.write_data(NO_ANSWER * 40),
    "error tokenizer: no chat template": no_template,
    "error tokenizer: no chat template: prompts": finished_sft_without_template,
    "warning think: strips <think>": template(HEADS, "message['content'].split('</think>')[-1] }}"),
    "error think: closes the thought":
        template("assistant\n{%", "assistant\n<think>\n\n</think>\n\n{%"),
    "error template: ends no generation": template_ends_otherwise,
    "error template: no system role": template("{% for", REFUSES + "{% for", **THINK),
    "error template: leaves out the system":
        template("in messages %}", "in messages if message['role'] != 'system' %}", **THINK),
    "warning template: ignores add_generation_prompt":
        template("{% if add_generation_prompt %}", "{% if true %}"),
    "warning template: writes today's date": template("{% for", DATED + "{% for"),
    "error template: twice": doubled_bos,
    "warning template: SFT teaches '<|endoftext|>'": base_tokenizer,
    "warning tokenizer: pad_token is eos_token":
        lambda planted: planted.change_json("tokenizer_config.json", pad_token="<|im_end|>"),
    "error tokenizer: drops <think>": think_is_special,
    "error tokenizer: drops <think> or </think>": another_model_than_sft_had,
    "warning template: prompts lack '<|endoftext|>'": missing_bos,
    "warning tokenizer: (Qwen2Tokenizer) splits text otherwise than": other_split,
    "error tokenizer: embedding has 200 rows":
        lambda planted: planted.change_json("config.json", vocab_size=200),
    "error template: generation_config.json":
        lambda planted: planted.change_json("generation_config.json", eos_token_id=5),
    "error grpo.yaml: grpo_trian.jsonl does not exist":
        keys("grpo", train_file="{run}/data/grpo_trian.jsonl"),
    "error sft.yaml: no stage of the recipe writes it":
        lambda planted: (shutil.rmtree(planted.run / "data"),
                         planted.build_data(output_dir="{run}/dta")),
    "error eval.yaml: /run/stf does not exist": keys("eval", **MISSPELT),
    "error grpo.yaml: pass_rates: ":
        keys("grpo", curriculum="offline", pass_rates="{run}/difficulty/pass_rates.jsonl"),
    "error contamination: math500":
        keys("data", "grpo7b", decontaminate=["aime24", "aime25", "gsm8k"]),
    "error grading: eval.yaml true": keys("eval", "grpo7b", final_number=True),
    "error grading: difficulty.yaml true": keys("difficulty", "grpo7b", final_number=True),
    "not checked sft memory: Target modules":
        keys("sft", lora_target_modules=["c_attn", "c_proj"], use_peft=True),
    "not checked grpo memory: Target modules":
        keys("grpo", lora_target_modules=["q_proj"], use_peft=True),
    "error grpo.yaml: 8 wanted, but the launch has started 1": launched(8, "single_gpu"),
    "error grpo.yaml: (cpu.yaml) is for CPUs": launched(2, "cpu", "grpo7b"),
    "error sft.yaml: FSDP needs GPUs": launched(2, "fsdp2"),
    "error grpo.yaml: size: 3 does not divide 8":
        launched(8, recipe="grpo7b", vllm_tensor_parallel_size=3),
    "error sft.yaml: lora_r: 8 would have no effect": keys("sft", lora_r=8),
    "error grpo.yaml: vllm_mode: 'colocate' would have":
        keys("grpo", vllm_mode="colocate"),
    "warning grpo.yaml: the trainer computes in float16":
        keys("grpo", "grpo7b", fp16=True, bf16=False, vllm_mode="server",
             vllm_server_host="127.0.0.1", vllm_server_port=9, vllm_enable_sleep_mode=None,
             vllm_gpu_memory_utilization=None, vllm_max_model_length=None),
    "error sft.yaml: wrapped cuts rows": keys("sft", packing=True, packing_strategy="wrapped"),
    "error sft.yaml: sft_train.jsonl:1":
        keys("sft", eval_strategy="steps", eval_file="{run}/data/sft_train.jsonl"),
    "warning sft.yaml: liger-kernel": keys("sft", use_liger_kernel=True),
    "error grpo.yaml: fp16": keys("grpo", fp16=True, bf16=True),
    "error disk: needed": lambda planted: planted.monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000)),
    "warning disk: save_total_limit is not set": keys("sft", "grpo7b", save_total_limit=None),
    "error sft memory: of 80 GiB": keys("sft", "grpo7b", stochastic_rounding=None, dtype="float32"),
    "error grpo memory: cache for 0 tokens":
        keys("grpo", "grpo7b", vllm_gpu_memory_utilization=0.15),
    "error grpo memory: while vLLM generates":
        keys("grpo", "grpo7b", vllm_gpu_memory_utilization=0.8),
    "not checked sft memory: someone/some-model":
        keys("sft", "grpo7b", model_name_or_path="someone/some-model"),
}  # fmt: skip
MISTAKES |= {  # of a folder of one's own
    "error model: missing holds no model": own_model("missing", shutil.rmtree),
    "error model: holds no tokenizer":
        own_model("mine", lambda folder: [file.unlink() for file in folder.glob("tokenizer*")]),
    "error model: model.safetensors is cut off":
        own_model("mine", lambda folder: os.truncate(folder / "model.safetensors", 1000)),
    "error tokenizer: its tokenizer cannot be loaded":
        own_model("mine", lambda folder: os.truncate(folder / "tokenizer.json", 1000)),
    "error model: holds no weights":
        own_model("mine", lambda folder: (folder / "model.safetensors").unlink()),
}  # fmt: skip
WITHOUT = ("error grpo.yaml: 12 is all of", "error grpo.yaml: fp16")
REMEDIES = {  # with a number or name that was worked out
    "error sft.yaml: 4,096 is above": "max_length: 512",
    "warning difficulty.yaml: max_new_tokens: 100": "200 or more",
    "error contamination: math500": "decontaminate: math500",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(planted, name):
    MISTAKES[name](planted)
    shown = [(f"{one.level} {one.topic}: {one.text}", one.remedy) for one in planted.findings()]
    head, _, said = name.partition(": ")
    match = [remedy for text, remedy in shown if text.startswith(f"{head}: ") and said in text]
    assert match, shown
    assert REMEDIES.get(name, "") in match[0]
    assert match[0] or name in WITHOUT


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


@pytest.mark.parametrize(
    "plant",
    [
        lambda planted: planted.set("grpo", reward_funcs=5),
        lambda planted: planted.write_data(""),
        lambda planted: (planted.model / "generation_config.json").write_text("[1]"),
        lambda planted: planted.change_json("config.json", num_attention_heads=0),
        lambda planted: planted.change_json("config.json", max_position_embeddings="x"),
    ],
)
def test_what_no_check_can_read_is_a_finding_and_no_traceback(planted, plant):
    plant(planted)
    assert any(one.level in ("error", "not checked") for one in planted.findings())


@pytest.mark.parametrize("was", ["someone/some-model", "someone/another"])
def test_a_result_of_another_hub_model_says_nothing_of_this_one(planted, was):
    """SFT's result stands in for a model that is not on this machine, if it was made from it."""
    planted.set("sft", model_name_or_path="someone/some-model", output_dir="{run}/sft")
    manifest.write(planted.model, "sft", {"model_name_or_path": was}, {}, {}, 0.0, [])
    found = [one for one in planted.findings("not checked") if one.topic == "tokenizer"]
    assert bool(found) is (was == "someone/another")


def test_without_sft_no_remedy_speaks_of_it(planted):
    no_template_and_no_sft(planted)
    assert [one for one in planted.findings("error") if one.topic == "tokenizer"]
    assert not [one for one in planted.findings("error") if "sft.yaml" in one.remedy]
