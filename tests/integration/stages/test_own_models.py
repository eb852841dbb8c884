"""Base models of other families, without a chat template: SFT brings it, GRPO goes on with it."""

import json
import shutil

import pytest

from pipeline.errors import UserError
from tests.integration.conftest import CORPUS

pytestmark = pytest.mark.integration
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def build_base(family, folder):
    """Save a tiny random model of a family, and a tokenizer without a template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special, alphabet = ["<end>", "<pad>"], pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": special, "initial_alphabet": alphabet, "show_progress": False}
    bpe.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, **options))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>", pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer)}
    config = AutoConfig.for_model(family, **sizes, eos_token_id=0, pad_token_id=1)
    config.bos_token_id = None
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt_neox"])
def test_a_base_model_goes_through_sft_and_grpo(run_stage, tmp_path, family):
    from transformers import AutoTokenizer

    build_base(family, tmp_path / "base")
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    base = {"model_name_or_path": str(tmp_path / "base"), "chat_template_path": str(template)}
    run_stage("sft", **base)
    assert AutoTokenizer.from_pretrained(tmp_path / "sft").chat_template == TEMPLATE
    run_stage("grpo", model_name_or_path=str(tmp_path / "sft"))
    assert AutoTokenizer.from_pretrained(tmp_path / "grpo").chat_template == TEMPLATE


@pytest.mark.parametrize(
    "change", [{"vocab_size": 1000}, {"hidden_size": 72}, {"model_type": "new"}]
)
def test_a_model_that_does_not_fit_its_config_is_one_line(
    tiny_model_dir, run_stage, tmp_path, change
):
    folder = tmp_path / "base"
    shutil.copytree(tiny_model_dir, folder)
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"^model_name_or_path: {folder}: its (model|weights) "):
        run_stage("sft", model_name_or_path=str(folder))
