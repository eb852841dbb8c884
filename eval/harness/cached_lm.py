"""The harness's model: it looks every sample up in the store and lets the engine make the rest.

All processes see the same requests, each generates its share of those that are missing, and the
main process alone hands the samples on. To the harness there is one process.
"""

from collections import Counter, defaultdict
from contextlib import nullcontext
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.models.utils import postprocess_generated_text

from data_prep.sampling.context import is_cut
from data_prep.sampling.store import (
    Completion,
    Continuation,
    Processes,
    Request,
    SampleStore,
    Settings,
    fill,
)
from pipeline.prompts import THINK_CLOSE

HARNESS_MAX_NEW_TOKENS = 256  # where a task names no limit; as in the harness's own models


def read_settings(kwargs: dict[str, Any], seed: int) -> Settings:
    """A task's `generation_kwargs` as `Settings`; greedy unless they ask for samples."""
    until = kwargs.get("until") or ()
    is_sampled = kwargs.get("do_sample", False)
    return Settings(
        max_new_tokens=kwargs.get("max_gen_toks", HARNESS_MAX_NEW_TOKENS),
        temperature=float(kwargs["temperature"]) if is_sampled else 0.0,
        top_p=float(kwargs.get("top_p", 1.0)) if is_sampled else 1.0,
        until=(until,) if isinstance(until, str) else tuple(until),
        rendered=kwargs.get("rendered", False),
        seed=seed if is_sampled else 0,  # a greedy completion has none
    )


def place_of(request: Instance) -> str:
    """The task and the id of a request's row, as the beginning of an error's line."""
    row = request.doc.get("id", f"row {request.doc_id} (from 0)")
    return f"{str(request.task_name).removesuffix('_think')}: {row}: "


def without_thought(completion: Completion) -> Completion:
    """What follows the last closed thought, by the harness's own function."""
    text = postprocess_generated_text(str(completion), None, THINK_CLOSE)
    return Completion(text, completion.num_tokens, completion.cut_off)


class CachedLM(LM):
    """Serves the harness from a `SampleStore`; `label` is shown at the progress bar.

    Attributes:
        cut: in the main process the numbers of the rows whose prompts are cut on the left, by task.
        cuts_thought: whether completions are handed on without their thought, as the harness's own
            models do with `think_end_token`.
    """

    def __init__(
        self, engine: Any, store: SampleStore, processes: Processes, label: str, seed: int
    ) -> None:
        super().__init__()
        self._engine, self._store, self._processes = engine, store, processes
        self._label, self._seed = label, seed
        self.max_length: int = engine.max_length  # tokens
        self.cut: dict[str, set[int]] = defaultdict(set)
        self.cuts_thought = False

    def generate_until(self, requests: list[Instance]) -> list[Completion]:
        """One completion per request; equal requests are samples 0, 1, 2, … of their prompt."""
        seen: Counter[tuple[str, Settings]] = Counter()
        wanted = []
        for request in requests:
            prompt, kwargs = request.args
            settings = read_settings(kwargs, self._seed)
            number = seen[prompt, settings]
            wanted.append(Request(prompt, settings, number, place_of(request)))
            seen[prompt, settings] += 1
        found = self._serve(requests, wanted, Completion("", 0, False))
        return [*map(without_thought, found)] if self.cuts_thought else found

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Log-probability in nats of each request's continuation, and whether it is greedy."""
        wanted = [
            Continuation(prompt, text, place_of(one))
            for one in requests
            for prompt, text in [one.args]
        ]
        return self._serve(requests, wanted, (0.0, False))

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError("no task of ours asks for rolling log-likelihoods")

    def _serve(self, requests: list[Instance], wanted: list, nothing: Any) -> list:
        """The samples, those that are missing generated first; `nothing` outside of main."""
        if self._processes.is_main:
            for request, one in zip(requests, wanted, strict=True):
                if is_cut(one, self._engine):
                    self.cut[str(request.task_name)].add(request.doc_id)
        fill(
            self._store,
            wanted,
            lambda: nullcontext(self._engine),
            self._processes,
            self._label,
            is_logged=True,
        )
        if not self._processes.is_main:
            return [nothing] * len(wanted)
        return [self._store.get(one) for one in wanted]
