"""Run by an environment with transformers 4: read each folder of a list, write what was found.

python old_reader.py LIST.json   {"folders": [...], "texts": [...], "length": N}; writes found.json
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CHAT = [{"role": "user", "content": "What is 1+1 ?"}]


def read(folder, texts, length):
    """Logits, token ids, texts and one generation of a folder."""
    folder, found = Path(folder), {}
    if (folder / "tokenizer.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = [tokenizer(text)["input_ids"] for text in texts]
        found["ids"], found["texts"] = ids, [tokenizer.decode(one) for one in ids]
        found["chat"] = tokenizer.apply_chat_template(CHAT, tokenize=False)
        found["names"] = sorted(tokenizer("1"))
        found["side"] = tokenizer.padding_side
    if (folder / "adapter_config.json").is_file():
        from peft import AutoPeftModelForCausalLM

        model, info = AutoPeftModelForCausalLM.from_pretrained(folder), {}
    else:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", output_loading_info=True
        )
    found["lost"] = [*info.get("missing_keys", ()), *info.get("unexpected_keys", ())]
    found["dtype"] = str(model.dtype)
    tokens = torch.arange(length)[None] % 120 + 3
    with torch.no_grad():
        found["logits"] = model.eval()(tokens).logits.float()[0, -8:].tolist()
        new = model.generate(tokens, max_new_tokens=2, do_sample=False, pad_token_id=0)
    found["generated"] = new[0, length:].tolist()
    return found


def main():
    """Read the folders of the list."""
    asked = Path(sys.argv[1])
    given = json.loads(asked.read_text(encoding="utf-8"))
    found = {folder: read(folder, given["texts"], given["length"]) for folder in given["folders"]}
    asked.with_name("found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
