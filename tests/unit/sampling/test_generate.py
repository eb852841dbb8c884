"""`generate` against transformers with tiny random models; the sampler; which of both is used."""

from types import SimpleNamespace

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch.distributed import HashStore
from transformers import GenerationConfig

from data_prep.sampling import fastest
from data_prep.sampling.generate import applies, fast_generate, generate
from data_prep.sampling.hf import SeededSampler, build_sampler

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
ARCHITECTURES = [
    *[(name, "sdpa") for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Olmo2")],
    *[(name, "eager") for name in ("Llama", "Gemma", "GPT2")],
]
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


def batch(lengths=(9, 4, 9, 1, 4, 6, 9), same=(0, 2)):
    """Prompts padded on the left; rows of `same` hold one prompt, though not side by side."""
    torch.manual_seed(0)
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
        best = model(ids[mask.bool()][None]).logits[0, -1].topk(2).values
        if best[0] - best[1] > CLOSE:
            bad.append(row)
    return bad


@pytest.mark.parametrize(("name", "attention"), ARCHITECTURES)
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


def test_seeded_samples_and_penalties_are_those_of_transformers():
    """Each row has its own numbers and its own history, whichever rows have left the batch."""
    model, inputs = build("Qwen2"), batch()
    width, seeds = inputs["input_ids"].size(1), range(len(inputs["input_ids"]))
    both = []
    for call in (generate, type(model).generate):
        sampler = build_sampler(0.9, 0.9, seeds, width, 24)
        seeded = {**inputs, "generation_config": settings(), "logits_processor": sampler}
        assert applies(model, seeded)
        penalty = {**inputs, "generation_config": settings(repetition_penalty=1.3)}
        both.append((call(model, **seeded), call(model, **penalty)))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*both, strict=True))


@pytest.mark.parametrize(
    "sampling",
    [{"top_k": 5}, {"top_k": 0, "top_p": 0.7},
     {"top_k": 0, "min_p": 0.1, "temperature": 0.6, "repetition_penalty": 1.2}],
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


def test_rollouts_in_training_do_not_share_what_dropout_drops():
    """The prompt is read once; with dropout its rollouts would have one mask between them."""
    for model in (build("GPT2"), build("Llama", attention_dropout=0.1)):
        given = {**batch(), "generation_config": settings()}
        assert applies(model.eval(), given) and not applies(model.train(), given)
    adapters = LoraConfig(target_modules=["q_proj"], lora_dropout=0.1)
    base = get_peft_model(build("Llama"), adapters).train().get_base_model()
    assert not applies(base, given)


def test_adapters_and_a_model_in_training():
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


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda: build("Mistral", "eager", sliding_window=4),
        lambda: build("Gemma2", "eager"),
        lambda: build("Phi3", "eager"),  # drops its cache at some length
        lambda: build("Llama", "eager", rope_parameters=DYNAMIC),
        lambda: transformers.MambaForCausalLM(
            transformers.MambaConfig(
                vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4
            )
        ),
    ],
    ids=["window", "Gemma2", "Phi3", "dynamic RoPE", "Mamba"],
)
def test_other_states_are_left_to_transformers(make):
    model = make().eval()
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
    assert applies(model, {**batch(), "generation_config": settings()}) is not bool(asked)


def test_sharded_weights_are_left_to_transformers():
    """As FSDP2 of accelerate leaves them."""
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    given = {**batch(), "generation_config": settings()}
    model = build("Llama")
    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        assert not applies(model, given)
    finally:
        destroy_process_group()


# The sampler by hand: which token a number draws, and which can never be drawn.


def drawn(scores, uniform):
    """The token of each row for these numbers of the interval, one step after the prompt."""
    sampler = SeededSampler(range(len(uniform)), prompt_length=2, max_new_tokens=4)
    sampler._uniform = torch.tensor(uniform, dtype=torch.float64)[:, None].repeat(1, 4)
    ids = torch.zeros((len(uniform), 3), dtype=torch.long)
    found = sampler(ids, scores)
    assert (found == 0).sum(-1).tolist() == [1] * len(uniform)
    assert torch.isneginf(found).sum(-1).tolist() == [scores.shape[1] - 1] * len(uniform)
    return found.argmax(-1).tolist()


def test_on_a_fine_grid_every_token_has_its_share():
    probabilities = torch.tensor([0.0, 0.4, 0.0, 0.3, 0.2, 0.1, 0.0])
    grid = ((torch.arange(1000) + 0.5) / 1000).tolist()
    found = torch.tensor(drawn(probabilities.log().repeat(1000, 1), grid))
    assert found.bincount(minlength=7).tolist() == [0, 400, 0, 300, 200, 100, 0]
    assert found.tolist() == sorted(found.tolist())


@pytest.mark.parametrize("uniform", [0.0, 2**-60, 1 - 2**-24, 1 - 2**-53])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_impossible_tokens_are_not_drawn_at_the_edges(uniform, place):
    scores = torch.full((1, 7), -torch.inf)
    scores[0, place] = 3.0
    assert drawn(scores, [uniform]) == [place]


def test_temperature_comes_before_the_nucleus():
    # P ~ 8, 2, 1 becomes 64, 4, 1 at temperature 1/2: the first alone passes 0.9.
    scores = torch.tensor([[8.0, 2.0, 1.0]]).log()
    ids = torch.zeros((1, 3), dtype=torch.long)
    for temperature, expected in ((0.5, {0}), (1.0, {0, 1})):  # never the third
        found = {
            build_sampler(temperature, 0.9, [s], 2, 4)(ids, scores).argmax() for s in range(60)
        }
        assert {int(one) for one in found} == expected


def test_a_row_s_numbers_are_its_seed_s():
    seeds = [3, 2**63 - 1, 0]
    state = torch.random.get_rng_state()
    together = SeededSampler(seeds, 2, 50)._uniform
    assert torch.equal(torch.random.get_rng_state(), state)
    for row, seed in enumerate(seeds):
        assert torch.equal(SeededSampler([seed], 9, 50)._uniform[0], together[row])
    assert torch.equal(SeededSampler([3], 2, 8)._uniform[0], together[0, :8])
    assert ((together >= 0) & (together < 1)).all()
    assert len(together.unique()) == together.numel()


# Which loop generates without vLLM where the user leaves it open.

GPU, CPU = SimpleNamespace(type="cuda"), SimpleNamespace(type="cpu")
SPEEDS = {"transformers": 2.0, "ours": 3.0, "generate_batch": 9.0}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache; a GPU is named `a`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fastest, "device_name", lambda device: "a")


@pytest.mark.parametrize(
    ("speeds", "is_ours"), [(SPEEDS, True), (SPEEDS | {"ours": 1.9}, False), ({"ours": 3.0}, False)]
)
def test_a_gpu_takes_what_was_found_on_such_a_one(cache, monkeypatch, speeds, is_ours, capsys):
    fastest.keep_finding("b", SPEEDS)
    assert not fastest.uses_ours(None, GPU, "x")
    assert "nothing was measured" in capsys.readouterr().out
    fastest.keep_finding("a", speeds)
    assert fastest.uses_ours(None, GPU, "x") is is_ours
    said = capsys.readouterr().out
    assert said.startswith(f"x: fast_generation: {str(is_ours).lower()}, ")
    assert said.count("\n") == 1
    monkeypatch.setattr(fastest.manifest, "versions", lambda names: dict.fromkeys(names, "9"))
    assert not fastest.uses_ours(None, GPU, "x")  # it was of other versions


@pytest.mark.parametrize(
    "damaged",
    [b"", b"[]", b"{}", b'{"tokens_per_second": {"ours": "x", "transformers": 1}}', b"\xff"],
)
def test_a_damaged_finding_is_none(cache, damaged):
    fastest.keep_finding("a", SPEEDS).write_bytes(damaged)
    assert not fastest.uses_ours(None, GPU, "x")


def test_what_is_asked_for_wins_and_a_cpu_takes_ours(cache, capsys):
    assert [fastest.uses_ours(asked, GPU, "x") for asked in (True, False)] == [True, False]
    assert [fastest.uses_ours(asked, CPU, "x") for asked in (None, False)] == [True, False]
    assert not capsys.readouterr().out
