"""Prompts that are text: they go in as they are, with a tokenizer that has no chat template."""

import json
import shutil
from pathlib import Path

import pandas
import pytest
import yaml
from tokenizers.processors import TemplateProcessing

from pipeline.errors import UserError
from pipeline.prompts import render_prompt
from tests import demo
from tests.files import read_rows, write_rows
from tests.integration.conftest import change_json

pytestmark = pytest.mark.integration
CHANGES = Path(__file__).with_name("raw_prompts.yaml")
QUESTION = "<|User|>\nWhat is {} plus 2?<|Assistant|><think>\n"


def row(number):
    solution = f"{number} + 2\n</think>\n\n\\boxed{{{number + 2}}}"
    return {
        "id": f"p{number}", "source": "own", "prompt": QUESTION.format(number),
        "question": f"What is {number} plus 2?", "answers": [str(number + 2)],
        "answer_form": "bare_box", "completion": solution,
    }  # fmt: skip


@pytest.fixture(params=["", "<|im_start|>"], ids=["no BOS", "BOS"])
def base(tmp_path, tiny_model_dir, request):
    """The tiny model without a template; its tokenizer writes this BOS."""
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_model_dir, tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    if request.param:
        change_json(folder / "tokenizer_config.json", bos_token=request.param)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{request.param} $A",
            special_tokens=[(request.param, tokenizer.convert_tokens_to_ids(request.param))],
        )
        tokenizer.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert not tokenizer.chat_template
    assert (tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id) is bool(request.param)
    return folder


def test_the_prompt_s_ids_are_those_of_its_text(base, tmp_path, run_stage, monkeypatch):
    from transformers import AutoTokenizer

    from stages import sft_rows
    from stages.trainer.grpo_trainer import MathGRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = [row(number) for number in range(16)]
    wanted = {tuple(tokenizer(one["prompt"])["input_ids"]) for one in rows}
    write_rows(tmp_path / "rows.jsonl", rows)
    keys = {"model_name_or_path": str(base), "train_file": str(tmp_path / "rows.jsonl")}

    pairs, tokenize = [], sft_rows.tokenize

    def spy(rows, tokenizer):
        pairs.extend(found := tokenize(rows, tokenizer))
        return found

    monkeypatch.setattr(sft_rows, "tokenize", spy)
    folder = run_stage("sft", **keys)
    assert {tuple(prompt) for prompt, _ in pairs} == wanted
    assert not AutoTokenizer.from_pretrained(folder).chat_template

    seen, generate = [], MathGRPOTrainer._generate_and_score_completions

    def watch(self, inputs):
        batch = generate(self, inputs)
        for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True):
            seen.append(tuple(ids[mask.bool()].tolist()))
        return batch

    monkeypatch.setattr(MathGRPOTrainer, "_generate_and_score_completions", watch)
    folder = run_stage("grpo", **keys | {"model_name_or_path": str(folder)}, max_prompt_length=64)
    assert seen and {*seen} <= wanted
    assert not AutoTokenizer.from_pretrained(folder).chat_template


def test_a_text_that_begins_with_bos_gets_no_second_one(base):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    begin = tokenizer.bos_token or ""
    text = render_prompt(f"{begin}What?", tokenizer)
    assert text == f"{begin}What?" == render_prompt("What?", tokenizer)


@pytest.mark.parametrize(
    ("prompt", "line"),
    [
        (
            [{"role": "user", "content": "What is 99 plus 2?"}],
            "train_file: 16 prompts are raw text, such as that of p0",
        ),
        (
            "<|User|>What is 99 plus 2?<|Assistant|>",  # it does not begin the thought
            "16 raw prompts end with <think>, .* p0, and 1 do not",
        ),
    ],
)
@pytest.mark.parametrize("base", [""], ids=["no BOS"], indirect=True)
def test_prompts_of_two_kinds_in_one_file_are_refused(base, tmp_path, run_stage, prompt, line):
    write_rows(tmp_path / "rows.jsonl", [*map(row, range(16)), row(99) | {"prompt": prompt}])
    with pytest.raises(UserError, match=line):
        run_stage("grpo", model_name_or_path=str(base), train_file=str(tmp_path / "rows.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("base", [""], ids=["no BOS"], indirect=True)
def test_a_chain_from_data_to_report(base, tmp_path):
    """By the command: rehearsal, build, SFT, pass rates, audit, GRPO, evaluation and report."""
    for at, key in enumerate(("sft", "grpo", "validation", "test")):
        rows = [row(number) for number in range(100 * at, 100 * at + 40)]
        write_rows(tmp_path / f"{key}.jsonl", [
            {"text": one["prompt"], "gold": one["answers"][0], "worked": one["completion"]}
            for one in rows
        ])  # fmt: skip
    text = CHANGES.read_text(encoding="utf-8").replace("{folder}", str(tmp_path))
    demo.write_recipe(tmp_path, {}, yaml.safe_load(text))
    (tmp_path / "tiny-cpu/model.yaml").unlink()
    done = demo.pipeline(tmp_path, "report")
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "run"
    asked = {one["prompt"] for one in read_rows(run / "data/test.jsonl")}
    assert asked == {QUESTION.format(number) for number in range(300, 340)}
    for name in ("sft", "grpo"):
        assert not (run / name / "chat_template.jinja").exists()
        prompts = pandas.read_parquet(run / f"eval/{name}/completions.parquet").prompt
        assert {*prompts} == asked
    assert json.loads((run / "report/report.json").read_text())["scores"]
