"""The audit of your own template, reward and parser, before a GPU-hour is spent on them.

    python audit.py [MODEL]

Golds and known tricks go through the tokenizer's template and back, then into the reward; here
into one that many scripts have. A whole recipe: `sft-grpo-math audit RECIPE=tiny-cpu`.
"""

import re
import sys

from eval.audit.cases import TRICKS, gold_completion, trick_completions, wrong_answers
from pipeline.models.tokenizer import load_tokenizer

MODEL = sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen2.5-0.5B-Instruct"
golds = [[str(n * n)] for n in range(3, 40)]


def my_reward(text, gold):  # the last number that the text has
    return float((re.findall(r"-?\d+", text) or [""])[-1] == gold)


tokenizer = load_tokenizer(MODEL, "MODEL")
messages = [{"role": "user", "content": "What is it?"}]
prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def send(text):  # what is left of a completion after the template's prompt
    ids = tokenizer(prompt + text, add_special_tokens=False)["input_ids"]
    return tokenizer.decode(ids, skip_special_tokens=False).removeprefix(prompt)


count = sum(my_reward(send(gold_completion(gold, "box")), *gold) > 0 for gold in golds)
print(f"correct answers rewarded: {count} of {len(golds)}")
wrong = wrong_answers([{"answers": gold} for gold in golds])
tricks = [trick_completions(g, "box", w) for g, w in zip(golds, wrong, strict=True)]
for name in TRICKS:
    count = sum(my_reward(send(t[name]), *g) > 0 for t, g in zip(tricks, golds, strict=True))
    print(f"{'REWARDED' if count else 'ok':8} {name}: {count} of {len(golds)}")
