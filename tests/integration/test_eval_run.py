"""Evaluation through the real harness, on a tiny random model and on scripted completions."""

import json
import logging
import shutil
import sys

import pytest

from data_prep.config import UserError
from data_prep.prompts import build_prompt, render_prompt
from eval.arguments import EvalArguments

pytestmark = pytest.mark.integration

QUESTIONS = ["Mia has 14 pens.", "Mia has 3.", "Tuesday: loses 3. Monday: buys 5. How many pens?"]


@pytest.fixture
def run_dir(tmp_path):
    """A run folder with three problems of different lengths."""
    (tmp_path / "data").mkdir()
    rows = [
        {"id": f"p{i}", "source": "toy", "level": i, "question": question, "answer": str(i)}
        | {"prompt": build_prompt(question, "think" if i == 2 else "none")}
        for i, question in enumerate(QUESTIONS)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "data" / "test.jsonl").write_text(text)
    return tmp_path


@pytest.fixture
def evaluate(run_dir, monkeypatch):
    """Call the entry point with small settings and these `name=path` checkpoints."""
    from eval import run

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(*checkpoints, **settings):
        values = {"num_samples": 3, "max_new_tokens": 6, "batch_size": 4, "dtype": "float32"}
        values |= {"temperature": 1.0, "top_p": 1.0, "test_file": f"{run_dir}/data/test.jsonl"}
        values |= {"output_dir": f"{run_dir}/eval", "report_dir": f"{run_dir}/report"} | settings
        argv = ["eval.run", "--checkpoints", *checkpoints]
        argv += [part for key, value in values.items() for part in (f"--{key}", str(value))]
        monkeypatch.setattr(sys, "argv", argv)
        run.main()

    return call


def read_rows(run_dir, name):
    with (run_dir / "eval" / name / "completions.jsonl").open() as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="session")
def tiny_lm(tiny_model_dir):
    from eval.model import load_model

    return load_model(str(tiny_model_dir), "tiny", "float32", batch_size=3)


def requests_for(prompts, **kwargs):
    from lm_eval.api.instance import Instance

    kwargs = {"until": [], "do_sample": False, "max_gen_toks": 5} | kwargs
    return [Instance("generate_until", {}, (prompt, kwargs), 0) for prompt in prompts]


def test_run_writes_scores_completions_and_manifest(run_dir, evaluate, tiny_model_dir, capsys):
    evaluate(f"base={tiny_model_dir}")
    rows = read_rows(run_dir, "base")
    found = [(row["id"], row["mode"], row["sample"]) for row in rows]
    expected = [(f"p{i}", "greedy", 0) for i in range(3)]
    expected += [(f"p{i}", "sampled", k) for i in range(3) for k in range(3)]
    assert found == expected
    assert all(1 <= row["num_tokens"] <= 6 for row in rows)

    scores = json.loads((run_dir / "eval" / "base" / "scores.json").read_text())
    sampled = scores["scores"]["sampled"]
    metrics = {"format_rate", "cut_off_rate", "completion_length"}
    assert set(sampled) == {"avg@k"} | metrics
    assert set(scores["scores"]["greedy"]) == {"accuracy"} | metrics
    assert sampled["avg@k"]["n"] == 3
    lengths = [row["num_tokens"] for row in rows if row["mode"] == "sampled"]
    assert sampled["completion_length"]["value"] == pytest.approx(sum(lengths) / 9)
    manifest = json.loads((run_dir / "eval" / "manifest.json").read_text())
    assert manifest["counts"] == {"problems": 3, "completions": 12}
    assert capsys.readouterr().out.count("\n") == 1


def test_same_inputs_are_kept_and_changed_ones_redone(
    run_dir, evaluate, tiny_model_dir, tmp_path, capsys
):
    checkpoint = tmp_path / "sft"
    shutil.copytree(tiny_model_dir, checkpoint)
    entries = [f"base={tiny_model_dir}", f"sft={checkpoint}"]

    def evaluated():
        return json.loads((run_dir / "eval" / "manifest.json").read_text())["evaluated"]

    evaluate(*entries)
    assert evaluated() == ["base", "sft"]
    first = read_rows(run_dir, "sft")
    base = read_rows(run_dir, "base")
    assert first == base, "same weights and seed, so the same samples"
    capsys.readouterr()
    evaluate(*entries)
    assert evaluated() == []
    assert "base: already evaluated with the same inputs" in capsys.readouterr().out

    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    model.model.norm.weight.data.mul_(-1)
    model.save_pretrained(checkpoint)
    evaluate(*entries)
    assert evaluated() == ["sft"]
    assert first != read_rows(run_dir, "sft")
    evaluate(*entries, seed=1)
    assert evaluated() == ["base", "sft"]
    assert base != read_rows(run_dir, "base")
    evaluate(*entries, seed=1, final_number=True)
    assert evaluated() == ["base", "sft"]


def test_interrupted_checkpoint_is_redone(run_dir, evaluate, tiny_model_dir):
    evaluate(f"base={tiny_model_dir}", limit=2)
    (run_dir / "eval" / "base" / "scores.json").unlink()
    evaluate(f"base={tiny_model_dir}", limit=2)
    assert json.loads((run_dir / "eval" / "base" / "scores.json").read_text())["num_problems"] == 2


def test_missing_checkpoint(evaluate, run_dir):
    with pytest.raises(UserError, match=r"grpo: .*/grpo holds no model; run `make grpo`"):
        evaluate(f"grpo={run_dir}/grpo")
    assert not (run_dir / "eval").exists()


def test_adapter_checkpoint(run_dir, evaluate, tiny_model_dir):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    adapter = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    for name, weight in adapter.named_parameters():
        if "lora_B" in name:
            weight.data.fill_(3.0)
    adapter.save_pretrained(run_dir / "sft")
    evaluate(f"base={tiny_model_dir}", f"sft={run_dir}/sft")
    assert read_rows(run_dir, "base") != read_rows(run_dir, "sft")


def test_generate_sees_exactly_the_training_prompt(run_dir, tiny_lm, tiny_model_dir, monkeypatch):
    import lm_eval
    import torch
    from tokenizers.processors import TemplateProcessing

    from eval.run import load_tasks

    tokenizer = tiny_lm.tokenizer
    # A tokenizer that adds a token by itself, as Llama's does: only the template's may remain.
    start = ("<|im_start|>", tokenizer.convert_tokens_to_ids("<|im_start|>"))
    backend = tokenizer.backend_tokenizer
    adding = TemplateProcessing(single="<|im_start|> $A", special_tokens=[start])
    monkeypatch.setattr(backend, "post_processor", adding)
    assert tokenizer("a")["input_ids"][0] == start[1]

    seen = {False: [], True: []}
    generate = tiny_lm.model.generate

    def spy(input_ids, attention_mask, **kwargs):
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            assert torch.equal(mask, mask.sort().values), "padding stands on the left"
            seen[kwargs["do_sample"]].append(ids[mask.bool()].tolist())
        return generate(input_ids=input_ids, attention_mask=attention_mask, **kwargs)

    monkeypatch.setattr(tiny_lm.model, "generate", spy)
    args = EvalArguments(
        [f"base={tiny_model_dir}"], f"{run_dir}/data/test.jsonl", "", "", max_new_tokens=2
    )
    lm_eval.evaluate(tiny_lm, load_tasks(args, str(tiny_model_dir)), bootstrap_iters=1)

    with (run_dir / "data" / "test.jsonl").open() as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    trained = [
        tokenizer(render_prompt(prompt, tokenizer), add_special_tokens=False)["input_ids"]
        for prompt in prompts
    ]
    assert sorted(seen[False]) == sorted(trained)
    assert sorted(seen[True]) == sorted(trained * 4)


def test_padding_does_not_change_completions(tiny_lm):
    prompts = ["<|im_start|>user\n" + question for question in QUESTIONS]
    together = tiny_lm.generate_until(requests_for(prompts), disable_tqdm=True)
    alone = [tiny_lm.generate_until(requests_for([p]), disable_tqdm=True)[0] for p in prompts]
    assert together == alone
    assert len(set(together)) > 1, "the prompts must matter for this test to mean anything"


@pytest.mark.parametrize(
    ("generated", "text", "num_tokens", "cut_off"),
    [
        (["a", "b", "c"], "abc", 3, True),
        (["a", "<|im_end|>", "<|endoftext|>"], "a", 2, False),
        (["a", "b", "<|im_end|>"], "ab", 3, False),  # ends with the last token allowed
        (["<|im_end|>", "<|endoftext|>", "<|endoftext|>"], "", 1, False),
    ],
)
def test_scripted_rows(tiny_lm, monkeypatch, generated, text, num_tokens, cut_off):
    import torch

    ids = torch.tensor([tiny_lm.tokenizer.convert_tokens_to_ids(generated)])

    def scripted(input_ids, attention_mask, **kwargs):
        assert kwargs["max_new_tokens"] == 3
        return torch.cat([input_ids, ids], dim=1)

    monkeypatch.setattr(tiny_lm.model, "generate", scripted)
    (found,) = tiny_lm.generate_until(requests_for(["Mia"], max_gen_toks=3), disable_tqdm=True)
    assert (found, found.num_tokens, found.cut_off) == (text, num_tokens, cut_off)


def test_prompt_beyond_the_context_is_refused(tiny_lm):
    with pytest.raises(UserError, match=r"max_new_tokens: 600 .* context of 512"):
        tiny_lm.generate_until(requests_for(["Mia"], max_gen_toks=600), disable_tqdm=True)


@pytest.mark.parametrize("final_number", [False, True])
def test_harness_hands_all_k_completions_to_the_grader(run_dir, tiny_model_dir, final_number):
    """A scripted model that solves p0 (without a box) twice of four, p1 (two golds) always."""
    import lm_eval
    from lm_eval.api.model import LM

    from eval.run import TASKS, load_tasks, metrics
    from eval.scoring import Completion

    path = run_dir / "data" / "test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["answer"] = ["77", "1"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    class Scripted(LM):
        loglikelihood = loglikelihood_rolling = None

        def generate_until(self, requests):
            found, served = [], {}
            for request in requests:
                doc, is_greedy = request.doc, not request.args[1]["do_sample"]
                turn = served[doc["id"], is_greedy] = served.get((doc["id"], is_greedy), -1) + 1
                right = {"p0": turn % 2 == 0, "p1": True, "p2": False}[doc["id"]]
                answer = doc["answer"][-1] if right else "99"
                box = f"The answer is {answer}." if doc["id"] == "p0" else f"\\boxed{{{answer}}}"
                text = f"<think>\nso\n</think>\n\n{box}"
                found.append(Completion(text, num_tokens=10, cut_off=False))
            return found

    args = EvalArguments([f"base={tiny_model_dir}"], str(path), "", "", final_number=final_number)
    tasks = load_tasks(args, str(tiny_model_dir))
    results = lm_eval.evaluate(Scripted(), tasks, bootstrap_iters=1)
    greedy, sampled = (metrics(results, task) for task in TASKS.values())
    assert greedy["accuracy"]["value"] == pytest.approx((final_number + 1 + 0) / 3)
    assert sampled["avg@k"]["value"] == pytest.approx((final_number / 2 + 1 + 0) / 3)
    deviation = 0.5 if final_number else 1 / 3**0.5  # of 0.5, 1, 0 and of 0, 1, 0
    assert sampled["avg@k"]["stderr"] == pytest.approx(deviation / 3**0.5)
    assert sampled["format_rate"] == {"value": 1.0, "stderr": 0.0, "n": 3}


def test_tasks_pin_what_a_checkpoint_could_override(run_dir, tiny_model_dir):
    from eval.run import load_tasks

    args = EvalArguments(
        ["base=x"], f"{run_dir}/data/test.jsonl", "", "", num_samples=7, temperature=0.3, top_p=0.9
    )
    tasks = load_tasks(args, str(tiny_model_dir))["tasks"]
    greedy, sampled = tasks["math_greedy"].config, tasks["math_sampled"].config
    assert greedy.generation_kwargs == {
        "until": [], "do_sample": False, "repetition_penalty": 1.0, "max_gen_toks": 2048,
    }  # fmt: skip
    assert sampled.generation_kwargs == {
        "until": [], "do_sample": True, "temperature": 0.3, "top_p": 0.9, "top_k": 0,
        "repetition_penalty": 1.0, "max_gen_toks": 2048,
    }  # fmt: skip
    assert (greedy.repeats, sampled.repeats) == (1, 7)


def test_terminal_stays_quiet(evaluate, tiny_model_dir, capfd, caplog):
    with caplog.at_level(logging.WARNING):
        evaluate(f"base={tiny_model_dir}", limit=1)
    lines = [
        line
        for line in capfd.readouterr().err.splitlines()
        if line.strip() and "completions" not in line
    ]
    assert lines == []
    assert not [record for record in caplog.records if record.name.startswith("lm_eval")]
