"""Prompts of every template become bare questions, and questions stay as they are."""

import contextlib
import json

import pytest

from data_prep.sources.base import Drop, clean_gold, get_question
from data_prep.sources.registry import BUILDERS
from data_prep.sources.templates import SeveralTurns, bare_question, find_foreign_token
from pipeline.errors import UserError

Q = "Find $x$ if $x + 1 = 3$."
BOX = r"Please reason step by step, and put your final answer within \boxed{}."
SYSTEM = "You are a helpful assistant."
R1 = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
USER, ASSISTANT = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"
ZERO = (
    "A conversation between User and Assistant. The User asks a question, and the Assistant solves "
    "it. The reasoning process is enclosed within <think> </think> and answer is enclosed within "
    "<answer> </answer> tags, i.e., <think> reasoning process here </think> <answer> answer here "
    "</answer>. User: "
)
COMMAND = "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>{}<|END_OF_TURN_TOKEN|>"
LLAMA = "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>"


@pytest.mark.parametrize(
    "prompt",
    [
        f"{USER}{Q}{ASSISTANT}<think>\n",
        f"{R1}{SYSTEM}{USER}{Q} {BOX}{ASSISTANT}<think>\n",
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{Q}<|im_end|>\n"
        "<|im_start|>assistant\n",
        f"<|im_start|>user\n{BOX}\n{Q}<|im_end|>\n<|im_start|>assistant\n<think>\n",
        f"{Q}<|im_end|>\n<|im_start|>assistant\n",
        "<|begin_of_text|>"
        + LLAMA.format("system", SYSTEM)
        + LLAMA.format("user", Q)
        + "<|start_header_id|>assistant<|end_header_id|>\n\n",
        f"<s>[INST] <<SYS>>\n{SYSTEM}\n<</SYS>>\n\n{Q} [/INST]",
        f"<bos><start_of_turn>user\n{Q}<end_of_turn>\n<start_of_turn>model\n",
        f"<|system|>\n{SYSTEM}<|end|>\n<|user|>\n{Q}<|end|>\n<|assistant|>\n",
        f"<|start|>system<|message|>{SYSTEM}<|end|><|start|>user<|message|>{Q}<|end|>"
        "<|start|>assistant",
        f"{ZERO}{Q}\nAssistant: Let me solve this step by step.\n<think>",
        f"{ZERO}You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here"
        " </answer>. And your final answer will be extracted automatically by the \\boxed{} tag.\n"
        f"This is the problem:\n{Q}\nAssistant: <think>",
        f"{Q}\n<think>\n",
        f"<BOS_TOKEN>{COMMAND.format('SYSTEM', SYSTEM)}{COMMAND.format('USER', Q)}"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        f"<extra_id_0>System\n{SYSTEM}\n<extra_id_1>User\n{Q}\n<extra_id_1>Assistant\n",
        f"{Q}<|im_end|>",
        f"{Q} {BOX} /no_think",
        f"/think\n{Q}",
        f"<|im_start|>user\n{Q} /no_think<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n",
    ],
)
def test_template_tokens_go(prompt):
    assert bare_question(prompt) == Q


@pytest.mark.parametrize(
    "instruction",
    [
        BOX,
        f"{BOX}\n{BOX}",
        r"Let's think step by step and output the final answer within \boxed{}.",
        'Let\'s think step by step and output the final answer after "####".',
        "Solve the following math problem. Make sure to put the answer (and only answer) inside "
        "\\boxed{}.",
        "Please integrate natural language reasoning with programs to solve the problem above, and "
        "put your final answer within \\boxed{}.",
        "The last line of your response should be of the form Answer: $Answer (without quotes) "
        "where $Answer is the answer to the problem.",
        "Solve the following math problem efficiently and clearly. The last line of your response "
        "should be of the following format: 'Therefore, the final answer is: $\\boxed{ANSWER}$. I "
        "hope it is correct' (without quotes) where ANSWER is just the final number or expression "
        "that solves the problem. Think step by step before answering.",
        r"Present the answer in LaTex format: \boxed{Your answer}",
        r"Write your final answer inside \boxed{\text{answer}}.",
        r"Your final answer must be in a box, \(\boxed{\ldots}\).",
        "Show your work in <think> </think> tags. And return the final answer in <answer> "
        "</answer> tags, for example <answer> (1 + 2) / 3 </answer>.",
        "\u8bf7\u9010\u6b65\u63a8\u7406\uff0c\u5e76\u5c06\u6700\u7ec8\u7b54\u6848"
        "\u653e\u5728\\boxed{}\u4e2d\u3002",
    ],
)
def test_instructions_go_from_either_end(instruction):
    assert bare_question(f"{Q} {instruction}") == Q
    assert bare_question(f"{Q}\n\n{instruction}\n") == Q
    assert bare_question(f"{Q[:-1]} {instruction}") == Q[:-1]  # no full stop before it
    assert bare_question(f"{instruction}\n\n{Q}") == Q


@pytest.mark.parametrize(
    "question",
    [
        Q,
        "Express your answer as $m+n$.",
        "The answer is in the form k\\sqrt{m}+n. Please provide the value of k + m + n.",
        f"{Q} Give the answer to two decimal places.",
        f"{Q} If the answer is $a/b$, put $a+b$ in \\boxed{{}}.",
        f"{Q} Write your answer in simplest radical form.",
        f"{Q} Your final answer should be $5$ times $x$.",
        "Let $\\boxed{N}$ be the number of divisors of $N$. Find $\\boxed{\\boxed{6}}$.",
        "Find $x$ if $4x + 6 = 12x + \\boxed{\\phantom{2}}?$",
        "A knight is put in a box. How many steps, step by step, does it take?",
        "Is $|u|<1$ if $<|u|>$ is a norm and f<s>g?",
        "A conversation between two students takes 5 minutes. User: how long are 3?",
        f"{Q} Put a number like <answer>5</answer> beside $x$ in \\boxed{{}}.",
        "A chat between a user and an assistant takes 5 minutes. How long are 3?",
        "Find $a/think$ and [x|user|y].",
        "Which of the following is correct?\n(A) 1 (B) 2 (C) 3",
        "Solve the following problem: $x=1$",
        "Find $\\langle a | b \\rangle$, <|x_1|>.",
        "[{1, 2}, {3}] are sets",
        "Take 1, 2 and 3. Which one is correct?",
        "Let $n$ be prime. Then",
        "First line.\u2028Second line\n\n  indented",
    ],
)
def test_questions_stay_as_they_are(question):
    assert bare_question(question) == question
    assert find_foreign_token(question) is None
    # Nor does an instruction behind it take something along.
    assert bare_question(f"{question}\n{BOX}") == question


@pytest.mark.parametrize(
    ("prompt", "token"),
    [
        (f"<|prompt|>{Q}<|answer|>", "<|prompt|>"),
        (f"<|turn|>speaker<|sep|>{Q}", "<|turn|>"),
        (f"<\uff5cAsk\uff5c>{Q}", "<\uff5cAsk\uff5c>"),
        (f"<reserved_106>{Q}<reserved_107>", "<reserved_106>"),
        (f"<extra_id_1>Asker\n{Q}", "<extra_id_1>"),
        (f"{Q} [/INST] ", "[/INST]"),
        (f"<start_of_turn>asker\n{Q}", "<start_of_turn>"),
        (f"Human: {Q}\n\nAssistant:", "Assistant:"),
        (f"### Instruction:\n{Q}\n\n### Response:", "### Response:"),
        (f"{Q} /no_think in brief", "/no_think"),
        (f"[{{'role': 'user', 'content': '{Q}'}}]", "[{'role':"),
        (r'[{"role": "user", "content": "\(x\)"}]', '[{"role":'),
    ],
)
def test_what_is_left_of_an_unknown_template_is_named(prompt, token):
    for source, key, gold in (
        ("math", "problem", "2"), ("gsm8k", "question", "#### 2"), ("aime", "problem", "2"),
        ("numinamath", "problem", "2"), ("dapo", "prompt", "2"),
    ):  # fmt: skip
        row = {key: prompt, "answer": gold, "solution": "so"}
        dropped = Drop("unknown_template", f"{token!r} is left in {key}")
        with pytest.raises(Drop) as caught:
            BUILDERS[source](row, "id", "f:1")
        assert caught.value == dropped


def test_a_chat_as_text():
    for turns in (
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{Q} {BOX}"}],
        [{"from": "human", "value": Q}],
    ):
        assert get_question({"q": json.dumps(turns)}, ("q",), "f:1") == Q
    two = json.dumps([{"role": "user", "content": Q}] * 2)
    with pytest.raises(UserError, match=r"q: .* has no single user turn of text"):
        get_question({"q": two}, ("q",), "f:1")


@pytest.mark.parametrize(
    "prompt",
    [
        f"{USER}1+1?{ASSISTANT}2{USER}{Q}{ASSISTANT}<think>",
        f"{USER}{Q}{ASSISTANT}It is 2.",
        f"[INST] 1+1? [/INST] 2 [INST] {Q} [/INST]",
        f"[INST] {Q} [/INST] It is 2.",
        f"{ZERO}1+1?\nAssistant: 2\nUser: {Q}\nAssistant:",
    ],
)
def test_several_turns_are_refused(prompt):
    with pytest.raises(SeveralTurns):
        bare_question(prompt)
    with pytest.raises(UserError, match=r"f:1: prompt: no single question .*; write one question"):
        get_question({"prompt": prompt}, ("prompt",), "f:1")


SPACES = " \n" * 50_000


@pytest.mark.parametrize(
    "hostile",
    ["[INST]" * 20_000, "<|user|>" * 20_000, "\\boxed{" * 20_000, "Question: a\n" * 20_000,
     "Please " * 20_000 + "\\boxed{}", "step by step. " * 20_000, "### Question: " * 20_000,
     "\\boxed{" + " " * 1900, "\\boxed{your " * 150, f"x{SPACES}x", f"Question: x{SPACES}x",
     f"[INST]{SPACES}x[/INST]{SPACES}x", f"User: {SPACES}boxed{SPACES}.", ZERO + SPACES + "x",
     "</s>" * 20_000, "<|abc|> " * 20_000 + "user", "<|" * 50_000, "<|user" + "_a" * 50_000,
     "USER: ASSISTANT: " * 10_000 + "x", "[{" * 50_000, "like <a>" * 20_000 + "\\boxed{}"],
)  # fmt: skip
def test_hostile_prompts_end(hostile):
    with contextlib.suppress(SeveralTurns):
        assert isinstance(bare_question(hostile), str)
    assert isinstance(find_foreign_token(hostile), str | None)
    assert isinstance(clean_gold("\\boxed{" + hostile), str)
