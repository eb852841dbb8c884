"""The transformers engine: a checkpoint that completes prompts, batch by batch.

It differs from the harness's own Hugging Face model. A sample does not depend on its batch, nor on
the checkpoint's sampling defaults. A rendered prompt is tokenised without special tokens, as the
chat template wrote them. Each completion keeps its token count and whether it was cut off.
Log-likelihoods are the harness's own.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import torch
import transformers

from data_prep.sampling import SamplingArguments
from data_prep.sampling.context import fit
from data_prep.sampling.fastest import uses_ours
from data_prep.sampling.generate import RowProcessor, generate
from data_prep.sampling.store import Completion, Continuation, Request, Settings
from pipeline.errors import OutOfMemoryError, UserError
from pipeline.memory import memory_fault
from pipeline.models.adapters import load_merged
from pipeline.models.checkpoints import loading
from pipeline.models.tokenizer import load_tokenizer
from pipeline.models.weights import check_tokens

# Log-likelihoods keep the logits of a batch's prompts, tokens x vocabulary.
LOGLIKELIHOOD_BATCH = 8
LOGLIKELIHOOD_WINDOW = 512  # pairs that the harness is handed at once: a kill loses no more


def load_checkpoint(checkpoint: str, dtype: str, key: str) -> tuple[Any, Any]:
    """Tokenizer and model of a model folder, hub id or adapter folder; adapters are merged."""
    tokenizer = load_tokenizer(checkpoint, key, needs=())
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    dtype = getattr(torch, dtype)
    with loading("model", checkpoint, key):  # remote code: else transformers asks on the terminal
        model = load_merged(checkpoint, key, dtype=dtype, trust_remote_code=False)
    check_tokens(tokenizer, model.get_input_embeddings().weight.shape[0], f"{key}: {checkpoint}")
    return tokenizer, model


def eos_token_ids(configured: int | list[int] | None, tokenizer: Any) -> set[int]:
    """The tokenizer's end-of-sequence id and those of the checkpoint's generation config."""
    ids = [*configured] if isinstance(configured, list) else [configured]
    return {i for i in (*ids, tokenizer.eos_token_id) if i is not None}


def split_stops(stops: Sequence[str], tokenizer: Any) -> tuple[set[int], list[str]]:
    """Stop strings that are special tokens, as ids (decoding drops them), and the others."""
    special = set(tokenizer.all_special_tokens)
    ids = {tokenizer.convert_tokens_to_ids(stop) for stop in stops if stop in special}
    return ids, [stop for stop in stops if stop and stop not in special]


def cut_at(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first of the stop strings, and whether there was one."""
    places = [text.find(stop) for stop in stops]
    found = [place for place in places if place >= 0]
    if not found:
        return text, False
    return text[: min(found)], True


class SeededSampler(RowProcessor):
    """Draws each row's next token by inverting its cumulative distribution.

        token = min { v : P(0) + ... + P(v) > u }        u ~ U[0, 1), one for each row and step

    Each row has random numbers of its own seed. So a run that was killed, split over more processes
    or batched in another way draws the same samples, up to the arithmetic of the model. Only the
    drawn token stays possible, so generation must be greedy.
    """

    def __init__(self, seeds: Sequence[int], prompt_length: int, max_new_tokens: int) -> None:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        rows = [torch.rand(max_new_tokens, generator=one) for one in generators]
        self._uniform = torch.stack(rows).double()  # (B, C)
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (B, V) as 0 for the token that is drawn and -inf for all others."""
        step = input_ids.shape[1] - self._prompt_length
        cumulative = scores.double().softmax(-1).cumsum(-1)  # (B, V)
        uniform = self._uniform[:, step, None].to(scores.device)  # (B, 1)
        token = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
        drawn = torch.full_like(scores, -torch.inf)
        return drawn.scatter_(1, token.clamp_(max=scores.shape[1] - 1), 0.0)

    def keep(self, rows: torch.Tensor) -> None:
        self._uniform = self._uniform[rows.cpu()]


def not_finite(checkpoint: str, dtype: str) -> str:
    """The line of a model whose logits or log-likelihoods are no numbers."""
    return (
        f"{checkpoint} computes NaN or infinity with dtype: {dtype}; use dtype: bfloat16 or "
        "float32, or check the weights"
    )


class FiniteCheck(RowProcessor):
    """Refuses logits that are NaN or infinite: the token drawn from them would look like an answer.

    The greatest logit is NaN or infinite if any is, -inf apart, which may stand for a token that a
    model leaves out. It stays on the device: only the first token and `check` wait for it.

    Args:
        fault: the line of the error.
    """

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._greatest: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The scores (B, V) as they are."""
        greatest = scores.max()
        if self._greatest is None:
            self._greatest = greatest
            self.check()
        self._greatest = torch.maximum(self._greatest, greatest)
        return scores

    def keep(self, rows: torch.Tensor) -> None:
        """It knows of no rows."""

    def check(self) -> None:
        """Raise `UserError` where a logit so far was not finite."""
        if self._greatest is not None and not self._greatest.isfinite():
            raise UserError(self._fault)


def build_sampler(
    temperature: float, top_p: float, seeds: Sequence[int], prompt_length: int, max_new_tokens: int
) -> transformers.LogitsProcessorList:
    """Temperature, then nucleus, then the draw; empty for temperature 0, which is greedy."""
    processors = transformers.LogitsProcessorList()
    if temperature:
        processors.append(transformers.TemperatureLogitsWarper(temperature))
        if top_p < 1:
            processors.append(transformers.TopPLogitsWarper(top_p))
        processors.append(SeededSampler(seeds, prompt_length, max_new_tokens))
    return processors


class HfEngine:
    """A causal model of transformers, or a peft adapter on one; `key` is its key in the YAML."""

    def __init__(
        self, checkpoint: str, key: str, args: SamplingArguments, device_index: int = 0
    ) -> None:
        self.tokenizer, model = load_checkpoint(checkpoint, args.dtype, key)
        self._eos_ids = eos_token_ids(model.generation_config.eos_token_id, self.tokenizer)
        # A new one: whatever temperature or penalty the checkpoint ships would fill our gaps.
        model.generation_config = transformers.GenerationConfig(
            pad_token_id=self.tokenizer.pad_token_id
        )
        device = f"cuda:{device_index}" if torch.cuda.is_available() else "cpu"
        self.model = model.to(device).eval()
        self._batch_size = args.batch_size
        self._is_fast = uses_ours(args.fast_generation, self.model.device, key)
        self._fault = f"{key}: {not_finite(checkpoint, args.dtype)}"
        # Recurrent models have no limit of their own, and some configurations name none.
        config = model.config.get_text_config()
        length = getattr(config, "max_position_embeddings", None)
        self.max_length = int(length or self.tokenizer.model_max_length)

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion]]:
        """Yield `(index into requests, completion)` as batches are finished."""
        groups: dict[Settings, list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            groups[request.settings].append(index)
        for settings, indices in groups.items():
            prompts = [requests[i].prompt for i in indices]
            ids = self.tokenizer(prompts, add_special_tokens=not settings.rendered)["input_ids"]
            prompt_ids = {
                i: fit(one, requests[i], self.max_length)
                for i, one in zip(indices, ids, strict=True)
            }
            # Longest first: padding is small, and the greatest batch comes at the start.
            indices.sort(key=lambda i: -len(prompt_ids[i]))
            for start in range(0, len(indices), self._batch_size):
                batch = indices[start : start + self._batch_size]
                seeds = [requests[i].seed for i in batch]
                try:
                    found = self._complete([prompt_ids[i] for i in batch], seeds, settings)
                except (RuntimeError, MemoryError) as error:  # torch's are RuntimeErrors
                    why = memory_fault(error)
                    if not why:
                        raise
                    raise OutOfMemoryError(
                        f"batch_size: {self._batch_size} completions of up to "
                        f"{settings.max_new_tokens} tokens do not fit the memory ({why}); lower "
                        "it, or set backend: vllm (finished completions are stored)"
                    ) from error
                yield from zip(batch, found, strict=True)

    @torch.inference_mode()
    def _complete(
        self, prompt_ids: list[list[int]], seeds: list[int], settings: Settings
    ) -> list[Completion]:
        """Generate one batch; `prompt_ids` are B lists of token ids, padded left to P here."""
        padded = self.tokenizer.pad(
            {"input_ids": prompt_ids}, padding_side="left", return_tensors="pt"
        ).to(self.model.device)
        prompt_length = padded["input_ids"].shape[1]
        sampler = build_sampler(
            settings.temperature, settings.top_p, seeds, prompt_length, settings.max_new_tokens
        )
        finite = FiniteCheck(self._fault)
        sampler.insert(0, finite)
        end_ids, stops = split_stops(settings.until, self.tokenizer)
        end_ids |= self._eos_ids
        stopping = {"stop_strings": stops, "tokenizer": self.tokenizer} if stops else {}
        call = partial(generate, self.model) if self._is_fast else self.model.generate
        sequences = call(
            **padded,
            max_new_tokens=settings.max_new_tokens,
            do_sample=False,  # the sampler leaves one token possible
            logits_processor=sampler,
            eos_token_id=sorted(end_ids),
            **stopping,
        )  # (B, P + C)
        finite.check()
        rows = sequences[:, prompt_length:].tolist()
        return [self._read(row, end_ids, stops) for row in rows]

    def _read(self, row: list[int], end_ids: set[int], stops: list[str]) -> Completion:
        """A completion from C generated ids, padded on the right."""
        # The first end-of-sequence token ends the row, also where it doubles as padding.
        end = next((i for i, token in enumerate(row) if token in end_ids), None)
        num_tokens = len(row) if end is None else end + 1
        text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
        text, is_stopped = cut_at(text, stops)
        if end is None and is_stopped:  # rows that stopped early are padded
            while num_tokens and row[num_tokens - 1] == self.tokenizer.pad_token_id:
                num_tokens -= 1
        return Completion(text, num_tokens, cut_off=end is None and not is_stopped)

    def loglikelihood(
        self, pairs: Sequence[Continuation]
    ) -> Iterator[tuple[int, tuple[float, bool]]]:
        """Yield `(index, (log-probability in nats, is it greedy))`, by the harness's own model."""
        from lm_eval.api.instance import Instance

        for start in range(0, len(pairs), LOGLIKELIHOOD_WINDOW):
            window = pairs[start : start + LOGLIKELIHOOD_WINDOW]
            asked = [
                Instance("loglikelihood", {}, (one.prompt, one.continuation), at)
                for at, one in enumerate(window)
            ]
            found = self._harness_model.loglikelihood(asked, disable_tqdm=True)
            if not all(math.isfinite(total) for total, _ in found):
                raise UserError(self._fault)
            yield from enumerate(found, start)

    @cached_property
    def _harness_model(self) -> Any:
        """The harness's model around this one."""
        from lm_eval.models.huggingface import HFLM

        return HFLM(
            pretrained=self.model,
            tokenizer=self.tokenizer,
            batch_size=min(self._batch_size, LOGLIKELIHOOD_BATCH),
            logits_cache=False,  # it mixes up requests that split one text in different places
        )

    @property
    def pair_length(self) -> int:
        """The longest prompt and continuation of which the log-likelihood reads all, in tokens."""
        return self._harness_model.max_length + 1  # a continuation's last token is no input

    def close(self) -> None:
        """Free the model's memory."""
        vars(self).pop("_harness_model", None)
        self.model = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
