"""What fits a model's context: a prompt from a chat template must, others are cut on the left."""

from typing import Any

from data_prep.sampling.store import Continuation, Request, may_be_cut
from pipeline.errors import UserError


def fit(prompt_ids: list[int], request: Request, max_length: int) -> list[int]:
    """The prompt that fits `max_length` with `max_new_tokens` after it.

    `UserError`: a rendered prompt is too long; others are cut on the left, as the harness does.
    """
    settings = request.settings
    most = max_length - settings.max_new_tokens
    if len(prompt_ids) <= most:
        return prompt_ids
    if settings.rendered or most < 1:
        raise UserError(
            f"{request.place}max_new_tokens: {settings.max_new_tokens} and a prompt of "
            f"{len(prompt_ids)} tokens exceed the model's context of {max_length} tokens; lower "
            "max_new_tokens, or remove the row"
        )
    return prompt_ids[-most:]


def encode_pair(tokenizer: Any, prompt: str, continuation: str) -> tuple[list[int], list[int]]:
    """Token ids of a prompt and of what follows it, as the harness's models split them.

    Spaces at the prompt's end go to the continuation. An empty prompt becomes the BOS, or the EOS.
    """
    first_id = next(i for i in (tokenizer.bos_token_id, tokenizer.eos_token_id) if i is not None)
    if not prompt:
        ids = tokenizer.encode(continuation, add_special_tokens=False)
        if ids[:1] == [first_id]:
            ids = ids[1:]
        return [first_id], ids
    # A text that begins with the special token does not get a second one.
    is_plain = not prompt.startswith(tokenizer.decode(first_id))
    prompt_ids = tokenizer.encode(prompt.rstrip(), add_special_tokens=is_plain)
    whole = tokenizer.encode(prompt + continuation, add_special_tokens=is_plain)
    return prompt_ids, whole[len(prompt_ids) :]


def is_cut(wanted: Request | Continuation, engine: Any) -> bool:
    """Whether an engine cuts a prompt on the left, to fit the context with what comes after it."""
    if not may_be_cut(wanted):
        return False
    if isinstance(wanted, Continuation):
        prompt_ids, ids = encode_pair(engine.tokenizer, wanted.prompt, wanted.continuation)
        return len(prompt_ids) + len(ids) > engine.pair_length
    num = len(engine.tokenizer(wanted.prompt)["input_ids"])
    return num > engine.max_length - wanted.settings.max_new_tokens
