"""The vLLM engine: completions and log-likelihoods of one checkpoint by continuous batching.

vLLM is optional: it is imported when an engine is built, in an environment of its own. The engine
differs from the harness's vLLM model. Every sample has its own seed and is passed on with its token
count, a window of requests at a time. Only the end-of-sequence ids of the checkpoint's generation
config are used.
"""

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import torch

from data_prep.sampling import NO_VLLM, SamplingArguments
from data_prep.sampling.context import encode_pair, fit
from data_prep.sampling.hf import cut_at, eos_token_ids, not_finite, split_stops
from data_prep.sampling.store import Completion, Continuation, Request, Settings
from pipeline.console import VLLM_ENVIRONMENT
from pipeline.errors import OutOfMemoryError, UserError
from pipeline.memory import memory_fault
from pipeline.models.checkpoints import base_and_adapter, read_json, tokenizer_path
from pipeline.models.tokenizer import open_tokenizer

WINDOW = 512  # requests at a time: a kill loses no more
RANKS = {"r": int, "rank_pattern?": ({str: int}, None)}  # of an adapter_config.json
# What launchers tell their processes. vLLM would take each of them for a part of one engine.
LAUNCHER = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip


@contextmanager
def own_environment(device_index: int) -> Iterator[None]:
    """Environment variables of one process that has one device and no launcher; put back after."""
    before = dict(os.environ)
    for name in LAUNCHER:
        os.environ.pop(name, None)
    for name, value in VLLM_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        if torch.version.cuda is not None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            os.environ["CUDA_VISIBLE_DEVICES"] = choose_visible(visible, device_index)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def choose_visible(visible: str | None, index: int) -> str:
    """The `index`-th of the devices that `CUDA_VISIBLE_DEVICES` names; None stands for all."""
    if visible is None:
        return str(index)
    devices = visible.split(",")
    if index >= len(devices):
        raise UserError(
            f"CUDA_VISIBLE_DEVICES: {visible!r} has no GPU for process {index} of this host; "
            "start as many processes as there are GPUs"
        )
    return devices[index].strip()


class VllmEngine:
    """One checkpoint in vLLM, on one device; several processes have one each."""

    def __init__(self, checkpoint: str, args: SamplingArguments, device_index: int) -> None:
        self.tokenizer, difference = open_tokenizer(checkpoint, "backend")
        self._tokenizer_path, self._folder = tokenizer_path(checkpoint), None
        if difference:  # vLLM looks for stop strings with a tokenizer that it loads itself
            self._folder = tempfile.TemporaryDirectory(prefix="tokenizer-")  # as long as this lives
            self._tokenizer_path = self._folder.name
            self.tokenizer.save_pretrained(self._tokenizer_path)
        with own_environment(device_index):
            try:
                from vllm import platforms
            except ImportError as error:
                raise UserError(f"backend: {NO_VLLM}, or set backend: hf ({error})") from error
            is_cpu = platforms.current_platform.is_cpu()
            if is_cpu:
                # In this process: no child outlives a kill. A GPU's engine is a child process,
                # whose end frees all of the GPU's memory.
                os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
                assert not torch.distributed.is_initialized(), "vLLM makes its own process group"
            set_num_threads = torch.set_num_threads
            self._start(checkpoint, args, is_cpu)
            torch.set_num_threads = set_num_threads  # on a CPU, vLLM leaves a stub in its place
        self._fault = f"backend: vllm: {not_finite(checkpoint, args.dtype)}"
        model_config = self._llm.model_config
        self.max_length: int = model_config.max_model_len  # tokens
        self.pair_length = self.max_length - 1  # vLLM reserves a place for a generated token
        configured = model_config.try_get_generation_config().get("eos_token_id")
        self._eos_ids = eos_token_ids(configured, self.tokenizer)

    def _start(self, checkpoint: str, args: SamplingArguments, is_cpu: bool) -> None:
        from pydantic import ValidationError
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        base, adapter = base_and_adapter(checkpoint)
        # A seeded request whose prompt comes in pieces has its generator set back, which one of a
        # CPU cannot do: the step fails.
        settings: dict[str, Any] = {"enable_chunked_prefill": False} if is_cpu else {}
        if adapter:
            settings |= {"enable_lora": True, "max_lora_rank": lora_rank(adapter)}
        self._lora = LoRARequest("adapter", 1, adapter) if adapter else None
        try:
            self._llm = LLM(
                base,
                tokenizer=self._tokenizer_path,
                tokenizer_mode="hf",
                generation_config="vllm",  # vLLM's own defaults, not the checkpoint's
                dtype=args.dtype,
                gpu_memory_utilization=args.vllm_gpu_memory_utilization,
                max_model_len=args.vllm_max_model_length,
                enforce_eager=is_cpu,  # there, compiling takes 40 s and gains nothing
                use_tqdm_on_load=False,
                disable_log_stats=True,
                **settings,
            )
            if self._lora:
                self._llm.llm_engine.add_lora(self._lora)  # now, so that a refusal comes now
        except ValueError as error:
            text = str(error)
            if isinstance(error, ValidationError):  # whose text would repeat all settings
                first = error.errors()[0]
                text = ": ".join([*map(str, first["loc"]), first["msg"]])
            if why := memory_fault(error):
                share = f"vllm_gpu_memory_utilization: {args.vllm_gpu_memory_utilization:g}"
                remedy = "change it, or lower vllm_max_model_length"
                raise OutOfMemoryError(f"{share}: out of memory ({why}); {remedy}") from error
            raise UserError(
                f"backend: vllm refuses {checkpoint}: {' '.join(text.split())} (or set backend: hf)"
            ) from error

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion]]:
        """Yield `(index into requests, completion)`, in order; settings may differ."""
        known: dict[tuple[str, Settings], list[int]] = {}  # a prompt's samples share its ids
        asked = []
        for one in requests:
            key = one.prompt, one.settings
            if key not in known:
                is_plain = not one.settings.rendered
                ids = self.tokenizer(one.prompt, add_special_tokens=is_plain)["input_ids"]
                known[key] = fit(ids, one, self.max_length)
            asked.append((known[key], self._sampling(one)))
        for index, output in self._run(asked):
            yield index, self._read(output.outputs[0], requests[index].settings)

    def loglikelihood(
        self, pairs: Sequence[Continuation]
    ) -> Iterator[tuple[int, tuple[float, bool]]]:
        """Yield `(index into pairs, (log-probability in nats, is it greedy))`, in order.

        A prompt is cut on the left. The first token has no log-probability.
        """
        from vllm import SamplingParams

        # The log-probabilities of each token of the prompt and of the best one in its place.
        scoring = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1, detokenize=False)
        asked, starts = [], []
        for pair in pairs:
            prompt_ids, ids = encode_pair(self.tokenizer, pair.prompt, pair.continuation)
            window = (prompt_ids + ids)[-self.pair_length :]
            if len(ids) >= len(window):
                raise UserError(
                    f"{pair.place}a continuation of {len(ids)} tokens exceeds vLLM's context of "
                    f"{self.max_length}; raise vllm_max_model_length, or set backend: hf"
                )
            asked.append((window, scoring))
            starts.append(len(window) - len(ids))
        for index, output in self._run(asked):
            total, is_greedy = 0.0, True
            window, start = asked[index][0], starts[index]
            for token, found in zip(window[start:], output.prompt_logprobs[start:], strict=True):
                total += found[token].logprob
                if found[token].logprob < max(one.logprob for one in found.values()):
                    is_greedy = False
            if not math.isfinite(total):
                raise UserError(self._fault)
            yield index, (total, is_greedy)

    def _run(self, asked: Sequence[tuple[list[int], Any]]) -> Iterator[tuple[int, Any]]:
        """Yield `(index, vLLM's output)` of each (prompt ids, sampling), window by window."""
        from vllm.inputs import tokens_input

        for start in range(0, len(asked), WINDOW):
            window = asked[start : start + WINDOW]
            prompts = [tokens_input(prompt_token_ids=ids) for ids, _ in window]
            sampling = [one for _, one in window]
            how = {"use_tqdm": False, "lora_request": self._lora}
            yield from enumerate(self._llm.generate(prompts, sampling, **how), start)

    def _read(self, generated: Any, settings: Settings) -> Completion:
        ids = list(generated.token_ids)
        end_ids, stops = self._ends(settings)
        # Not vLLM's text, which is decoded bit by bit and after the prompt.
        shown = ids[:-1] if ids[-1] in end_ids else ids
        text = self.tokenizer.decode(shown, skip_special_tokens=True)
        cut_off = generated.finish_reason == "length"
        return Completion(cut_at(text, stops)[0], len(ids), cut_off)

    def _ends(self, settings: Settings) -> tuple[set[int], list[str]]:
        """Token ids and strings that end a completion."""
        end_ids, stops = split_stops(settings.until, self.tokenizer)
        return end_ids | self._eos_ids, stops

    def _sampling(self, request: Request) -> Any:
        from vllm import SamplingParams

        settings = request.settings
        end_ids, stops = self._ends(settings)
        return SamplingParams(
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=0,  # off
            repetition_penalty=1.0,
            max_tokens=settings.max_new_tokens,
            seed=request.seed,
            stop=stops,
            stop_token_ids=sorted(end_ids),
            detokenize=bool(stops),  # it is for finding them
        )

    def close(self) -> None:
        """Free the device's memory, so that the next checkpoint fits; this engine is then over."""
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()  # collects garbage and empties torch's cache, too


def lora_rank(adapter: str) -> int:
    """The smallest rank of vLLM's that the adapter fits in; its layers may differ in rank."""
    from vllm.config.lora import MaxLoRARanks

    config = read_json(Path(adapter) / "adapter_config.json", "checkpoints", RANKS)
    rank = max(1, config["r"], *(config.get("rank_pattern") or {}).values())
    return min((one for one in get_args(MaxLoRARanks) if one >= rank), default=rank)
