"""A random-init tiny Qwen2 with a tokenizer of its own, for tests that run real trainers."""

import json
import sys
import zlib
from pathlib import Path

import pytest
import yaml

from pipeline import manifest
from pipeline.folders import CURVES
from tests.files import write_rows
from tests.integration.fork_server import Server

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "Mia has 14 pens. Monday: buys 5. Tuesday: loses 3. How many pens?",
    "<think>\n14 + 5 = 19\n19 - 3 = 16\n</think>\n\n\\boxed{16}",
    "system user assistant 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
]


def train_tokenizer(texts, **options):
    """A byte-level BPE tokenizer trained on texts, with options of its trainer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(texts, trainers.BpeTrainer(show_progress=False, **options))
    return trained


def change_json(path, **values):
    """Change keys of a JSON file; where there is none it is made."""
    found = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(found | values))


def build_tiny_model(folder, seed=0):
    """Save a Qwen2 (hidden size 32, 2 layers) and its byte-level BPE tokenizer to `folder`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    bpe = json.loads(train_tokenizer(CORPUS, vocab_size=300).to_str())["model"]
    # Through Qwen2Tokenizer, because AutoTokenizer gives every qwen2 folder its pre-tokenizer.
    tokenizer = Qwen2Tokenizer(
        vocab=bpe["vocab"],
        merges=[tuple(pair) for pair in bpe["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.3,  # the default gives near-uniform logits, so greedy ties by rounding
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory):
    """Folder of a tiny random Qwen2 with tokenizer and ChatML template; treat it as read-only."""
    return build_tiny_model(tmp_path_factory.mktemp("tiny-model"))


def grpo_rows(split, num_rows, max_level=2):
    """Rows of synthetic problems."""
    from data_prep.schema import grpo_row
    from data_prep.sources import synthetic

    problems = synthetic.load(split, num_rows, 0, max_level=max_level)
    return [grpo_row(problem, "none") for problem in problems]


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Folder with 40 SFT rows (`sft_train.jsonl`) and 12 GRPO problems (`grpo_train.jsonl`)."""
    from data_prep.schema import sft_row
    from data_prep.sources import synthetic

    folder = tmp_path_factory.mktemp("data")
    sft = [sft_row(p, "none") for p in synthetic.load("train", 40, 0, max_level=2)]
    write_rows(folder / "sft_train.jsonl", sft)
    write_rows(folder / "grpo_train.jsonl", grpo_rows("rl", 12))
    return folder


@pytest.fixture(scope="session")
def pool(tmp_path_factory, tiny_model_dir):
    """24 problems of four levels: `(path of the rows, {id: row and prompt_ids})`."""
    from transformers import AutoTokenizer

    from pipeline.prompts import render_prompt

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    rows = grpo_rows("rl", 24, max_level=4)
    path = tmp_path_factory.mktemp("pool") / "grpo_train.jsonl"
    write_rows(path, rows)
    prompts = [tokenizer(render_prompt(row["prompt"], tokenizer))["input_ids"] for row in rows]
    return path, {
        row["id"]: row | {"prompt_ids": ids} for row, ids in zip(rows, prompts, strict=True)
    }


@pytest.fixture
def write_recipe(tmp_path, data_dir, tiny_model_dir):
    """Write `<stage>.yaml` with settings for the tiny model on a CPU; returns its path."""
    tables = yaml.safe_load(Path(__file__).with_name("tiny.yaml").read_text(encoding="utf-8"))
    tables["common"]["model_name_or_path"] = str(tiny_model_dir)

    def write(stage, **settings):
        values = tables["common"] | tables[stage]
        values["train_file"] = str(data_dir / f"{stage}_train.jsonl")
        values["output_dir"] = str(tmp_path / stage)
        if "soft_length_penalty" not in settings.get("reward_funcs", ["soft_length_penalty"]):
            values = {k: v for k, v in values.items() if not k.startswith("length_penalty_")}
        path = tmp_path / f"{stage}.yaml"
        path.write_text(json.dumps(values | settings))  # JSON is YAML
        return path

    return write


@pytest.fixture(scope="session")
def eval_file(tmp_path_factory):
    """Five validation problems."""
    path = tmp_path_factory.mktemp("held-out") / "validation.jsonl"
    write_rows(path, grpo_rows("validation", 5))
    return str(path)


@pytest.fixture
def run_stage(write_recipe, monkeypatch):
    """Write a recipe and run the stage's `main` in this process; returns its output folder."""
    import importlib

    def call(stage, **settings):
        path = write_recipe(stage, **settings)
        monkeypatch.setattr(sys, "argv", [stage, "--config", str(path)])
        monkeypatch.setattr(manifest, "_request", {})  # as in a process of its own
        importlib.import_module(f"stages.{stage}").main()
        return Path(json.loads(path.read_text())["output_dir"])

    return call


@pytest.fixture(scope="session")
def fork_server():
    """The one server that forks stages; see `tests.integration.fork_server`."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def flash_calls(monkeypatch):
    """FlashAttention on a CPU; the list of its packed calls, each the lengths of its rows."""
    from tests.integration.flash_on_cpu import install

    return install(monkeypatch)


@pytest.fixture
def graded_by_chance(monkeypatch):
    """The model writes noise: call half of it right, so that groups have something to teach."""
    from grading.grade import Grade
    from stages import rewards

    def grade_rollouts(completions, *_, **__):
        is_right = [zlib.crc32(completion.encode()) % 2 for completion in completions]
        return [Grade("right" if right else "no_answer", None) for right in is_right]

    monkeypatch.setattr(rewards, "grade_rollouts", grade_rollouts)


@pytest.fixture(scope="session")
def read_events():
    """Function: folder of a run -> `{tag: [values]}` of its TensorBoard event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder):
        found = {}
        for path in (folder.parent / CURVES / folder.resolve().name).glob("events.out.tfevents*"):
            events = EventAccumulator(str(path)).Reload()
            for tag in events.Tags()["scalars"]:
                found.setdefault(tag, []).extend(event.value for event in events.Scalars(tag))
        return found

    return read
