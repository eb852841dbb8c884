"""`generate` against transformers' own, with tiny random models of several architectures."""

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch.distributed import HashStore
from transformers import GenerationConfig

from data_prep.sampling.generate import applies, draw, fast_generate, generate
from data_prep.sampling.hf import build_sampler

VOCABULARY = 48
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3,
    "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256,
    "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
# Without a sliding window: their whole state are keys and values.
ARCHITECTURES = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "SmolLM3", "Olmo2", "GPT2")
ENDS = [1, 5, 9, 13]
CLOSE = 1e-4  # between the two best logits; there the arithmetic decides


def build(name, attention="sdpa", **more):
    """A random model whose greedy completions differ and end early at times."""
    torch.manual_seed(3)
    values = (GPT2 if name == "GPT2" else SHAPE) | more
    if name == "Mistral":
        values |= {"sliding_window": None} | more
    config = getattr(transformers, f"{name}Config")(**values, attn_implementation=attention)
    kind = "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    model = getattr(transformers, kind)(config).eval()
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=0)
    return model


def batch(lengths=(9, 4, 9, 1, 4, 6, 9), same=(0, 2), seed=0):
    """Prompts padded on the left; rows of `same` hold one prompt, though not side by side."""
    torch.manual_seed(seed)
    width = max(lengths)
    ids, mask = torch.zeros(2, len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, width - length :] = torch.randint(2, VOCABULARY, (length,))
        mask[row, width - length :] = 1
    ids[same[1]] = ids[same[0]]
    return {"input_ids": ids, "attention_mask": mask}


def settings(**more):
    values = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, "eos_token_id": ENDS}
    return GenerationConfig(**values | more)


def differs(model, inputs, found, wanted):
    """Rows that differ otherwise than by a tie of the logits at the first token that differs."""
    width = inputs["input_ids"].size(1)
    bad = []
    for row, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        if ours.tolist() == theirs.tolist():
            continue
        place = int((ours != theirs).nonzero()[0])
        ids, mask = theirs[:place], torch.ones(place, dtype=torch.long)
        mask[:width] = inputs["attention_mask"][row]
        logits = model(ids[mask.bool()][None]).logits[0, -1]
        best = logits.topk(2).values
        if best[0] - best[1] > CLOSE:
            bad.append(row)
    return bad


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_completions_are_those_of_transformers(name, attention):
    model, inputs = build(name, attention), batch()
    given = {**inputs, "generation_config": settings()}
    assert applies(model, given)
    found, wanted = generate(model, **given), model.generate(**given)
    assert found.shape == wanted.shape
    assert not differs(model, inputs, found, wanted)
    width = inputs["input_ids"].size(1)
    is_end = torch.isin(wanted[:, width:], torch.tensor(ENDS)).int()
    assert len({row.argmax().item() for row in is_end}) > 1  # rows left the batch one by one
    assert model.config._attn_implementation == attention


def test_prompts_are_read_once_and_ended_rows_leave():
    model, inputs = build("Llama"), batch()
    sizes = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    generate(model, **inputs, generation_config=settings())
    assert sizes[0] == len(inputs["input_ids"]) - 1  # two rows share a prompt
    assert sizes[1] >= sizes[-1] and sizes[-1] < len(inputs["input_ids"])


def test_room_grows():
    model, inputs = build("Qwen3"), batch((5, 3), same=(0, 0))
    given = {**inputs, "generation_config": settings(max_new_tokens=150, eos_token_id=None)}
    assert not differs(model, inputs, generate(model, **given), model.generate(**given))


def test_a_row_that_was_moved_keeps_its_history():
    """The repetition penalty looks at a row's own tokens."""
    model, inputs = build("Qwen2"), batch()
    given = {**inputs, "generation_config": settings(repetition_penalty=1.3)}
    found, wanted = generate(model, **given), model.generate(**given)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    "sampling",
    [{"top_k": 0}, {"top_k": 5}, {"top_k": 0, "top_p": 0.7}, {"top_k": 0, "min_p": 0.1},
     {"top_k": 0, "temperature": 0.6, "repetition_penalty": 1.2}],
    ids=lambda values: "-".join(values),
)  # fmt: skip
def test_samples_have_the_distribution_of_transformers(sampling):
    """Chi-square of 20,000 first two tokens, each against the other's counts."""
    model = build("Llama", vocab_size=6, eos_token_id=1)
    ids = torch.tensor([[2, 3, 4]]).repeat(20_000, 1)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    asked = settings(max_new_tokens=2, do_sample=True, eos_token_id=1, **sampling)
    counts = []
    for call in (generate, type(model).generate):
        torch.manual_seed(11)
        tokens = call(model, **given, generation_config=asked)[:, 3:]
        counts.append(torch.bincount(tokens[:, 0] * 6 + tokens[:, 1], minlength=36).double())
    ours, theirs = counts
    is_seen = ours + theirs > 0
    chi2 = ((ours - theirs)[is_seen] ** 2 / (ours + theirs)[is_seen]).sum()
    freedom = int(is_seen.sum()) - 1
    assert freedom >= 3
    assert torch.special.gammaincc(torch.tensor(freedom / 2.0), chi2 / 2) > 0.01


def test_draw_never_takes_an_excluded_token():
    torch.manual_seed(0)
    scores = torch.full((5000, 7), -torch.inf)
    scores[:, [2, 4]] = torch.tensor([0.0, 1.0])
    counts = torch.bincount(draw(scores), minlength=7)
    assert counts[[0, 1, 3, 5, 6]].sum() == 0
    assert abs(counts[4] / 5000 - 0.7311) < 0.02


def test_weights_that_are_not_numbers_end_the_run():
    model, inputs = build("Llama"), batch()
    torch.nn.init.constant_(model.lm_head.weight, torch.nan)
    given = {**inputs, "generation_config": settings(do_sample=True, eos_token_id=None)}
    for call in (generate, type(model).generate):
        with pytest.raises(RuntimeError, match="probability tensor contains"):
            call(model, **given)


def test_rollouts_in_training_do_not_share_what_dropout_drops():
    """The prompt is read once; with dropout its rollouts would have one mask between them."""
    for model in (build("GPT2"), build("Llama", attention_dropout=0.1)):
        given = {**batch(), "generation_config": settings()}
        assert applies(model.eval(), given) and not applies(model.train(), given)
    adapters = LoraConfig(target_modules=["q_proj"], lora_dropout=0.1)
    base = get_peft_model(build("Llama"), adapters).train().get_base_model()
    assert not applies(base, given)


def test_seeded_samples_are_those_of_transformers():
    """Each row has random numbers of its own, whichever rows have left the batch."""
    model, inputs = build("Qwen2"), batch()
    width, seeds = inputs["input_ids"].size(1), range(len(inputs["input_ids"]))
    both = []
    for call in (generate, type(model).generate):
        sampler = build_sampler(0.9, 0.9, seeds, width, 24)
        given = {**inputs, "generation_config": settings(), "logits_processor": sampler}
        assert applies(model, given)
        both.append(call(model, **given))
    assert torch.equal(*both)


def test_adapters_and_a_model_in_training(tmp_path):
    """As TRL calls it: through peft, without eval mode."""
    model, inputs = build("Llama"), batch()
    wrapped = get_peft_model(model, LoraConfig(target_modules=["q_proj", "v_proj", "down_proj"]))
    for name, weight in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    wrapped.train()
    given = {**inputs, "generation_config": settings()}
    wanted = wrapped.generate(**given)
    calls = []
    base = wrapped.get_base_model()
    base.register_forward_pre_hook(lambda *_: calls.append(1) if "generate" in vars(base) else None)
    with fast_generate(base):
        found = wrapped.generate(**given)
    assert calls and "generate" not in vars(base)
    assert not differs(wrapped.eval(), inputs, found, wanted)
    with wrapped.disable_adapter():
        assert not torch.equal(wanted, base.generate(**given))


@pytest.mark.parametrize(
    "name, more",
    [
        ("Mistral", {"sliding_window": 4}),
        ("Gemma2", {}),
        ("Gemma3Text", {}),
        ("Mamba", {}),
        ("Phi3", {}),  # drops its cache at some length
        ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
    ],
)
def test_other_states_are_left_to_transformers(name, more):
    if name == "Gemma3Text":
        config = transformers.Gemma3TextConfig(**SHAPE, sliding_window=4)
        model = transformers.Gemma3ForCausalLM(config).eval()
    elif name == "Mamba":
        config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=16,
                                          num_hidden_layers=1, state_size=4)  # fmt: skip
        model = transformers.MambaForCausalLM(config).eval()
    else:
        model = build(name, "eager", **more)
    given = {**batch(), "generation_config": settings(max_new_tokens=3)}
    assert not applies(model, given)
    assert torch.equal(generate(model, **given), model.generate(**given))


@pytest.mark.parametrize(
    "asked, given",
    [
        ({"num_beams": 2}, {}),
        ({"num_return_sequences": 2, "do_sample": True}, {}),
        ({"cache_implementation": "static"}, {}),
        ({"no_repeat_ngram_size": 2}, {}),
        ({"return_dict_in_generate": True}, {}),
        ({}, {"stop_strings": ["a"]}),
        ({}, {"pixel_values": torch.ones(1)}),
        ({}, {"logits_processor": [transformers.NoRepeatNGramLogitsProcessor(2)]}),
        ({}, {"max_length": 9}),
    ],
)
def test_other_settings_are_left_to_transformers(asked, given):
    model = build("Llama")
    assert not applies(model, {**batch(), "generation_config": settings(**asked), **given})
    model.generation_config.update(**asked)  # those of the model count too
    if asked:
        assert not applies(model, {**batch(), "generation_config": settings()})


def test_sharded_weights_are_left_to_transformers(tmp_path):
    """As FSDP2 of accelerate leaves them."""
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    given = {**batch(), "generation_config": settings()}
    model = build("Llama")
    assert applies(model, given)
    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        assert not applies(model, given)
    finally:
        destroy_process_group()
