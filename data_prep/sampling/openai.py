"""The engine for an OpenAI-compatible server, such as `vllm serve`.

A request's prompt is the chat's messages as JSON; the server applies the template. The server may
send the thought apart from the answer (`reasoning_content`, `reasoning`), or in the text, with or
without the opening tag. A completion always has it between `<think>` and `</think>`. Each sample
has its own seed, and every completion is passed on as it arrives.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from typing import Any
from urllib.parse import urlsplit

from data_prep.sampling.store import Completion, Request
from pipeline.consent import KEY_VARIABLE
from pipeline.console import notice
from pipeline.errors import UserError
from pipeline.prompts import THINK_CLOSE, THINK_OPEN
from pipeline.values import redact

MAX_RETRIES = 5  # by the client, after 0.5, 1, 2, 4 and 8 seconds, for 408, 409, 429 and 5xx too
CONNECT_S = 20.0
VLLM_PORT = 8000  # of `vllm serve` without --port
# By the client's errors; it has tried again before.
REMEDIES = {
    "APITimeoutError": "raise timeout_s or lower concurrency",
    "APIConnectionError": "start the server or correct base_url ({start})",
    "AuthenticationError": f"set the environment variable {KEY_VARIABLE}",
    "PermissionDeniedError": f"set the environment variable {KEY_VARIABLE}",
    "NotFoundError": "base_url should end in /v1, and model_name_or_path be served there",
    "BadRequestError": "change the setting that it names (max_tokens is max_new_tokens)",
    "RateLimitError": "lower concurrency",
}


class OpenAIEngine:
    """A model that a server has; one completion may take `timeout_s` seconds."""

    def __init__(self, model: str, base_url: str, concurrency: int, timeout_s: float) -> None:
        try:
            import openai
        except ImportError as error:
            remedy = "install the extra distill, as `make .venv/ready` does"
            raise UserError(f"backend: openai: {error}; {remedy}") from error
        self._model, self._base_url, self._concurrency = model, base_url, concurrency
        self._client = openai.OpenAI(
            api_key=os.environ.get(KEY_VARIABLE) or "EMPTY",
            base_url=base_url,
            timeout=openai.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            max_retries=MAX_RETRIES,
        )

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion]]:
        """Yield `(index into requests, completion)` as they arrive; `UserError` on any fault."""
        is_over = threading.Event()

        def ask(index: int) -> tuple[int, Completion] | None:
            if is_over.is_set():
                return None
            try:
                return index, self._ask(requests[index])
            except Exception:
                is_over.set()  # here, so that this thread asks for nothing more
                raise

        # Its threads are daemons: on an error or Ctrl-C nobody waits for what is under way.
        with ThreadPool(max(1, min(self._concurrency, len(requests)))) as pool:
            try:
                for found in pool.imap_unordered(ask, range(len(requests))):
                    if found is not None:
                        yield found
            except Exception as error:  # any fault of a server is reported by the recipe's key
                again = "then run the same command again: finished completions are stored"
                raise UserError(f"{self._refuse(error)}, {again}") from error
            finally:
                is_over.set()

    def check(self) -> None:
        """Refuse a server that does not answer, or not with this key; asks for no completion.

        A server need not list its models, and may serve one by another name: that is a notice.
        """
        import openai

        client = self._client.with_options(timeout=CONNECT_S, max_retries=0)
        try:
            served = [one.id for one in client.models.list().data]
        except (openai.APIConnectionError, openai.AuthenticationError) as error:
            raise UserError(self._refuse(error)) from error
        except Exception:  # any other fault, such as a page that is no JSON
            served = []
        if self._model not in served:
            names = ", ".join(served) or "none; an address ends in /v1"
            notice(f"{redact(self._base_url)} lists no model {self._model}; it has {names}")

    def _refuse(self, error: Exception) -> str:
        """The message of a server's fault, with its remedy last."""
        name, cause = type(error).__name__, str(error.__cause__ or error)
        # A server's text, without line ends and control characters.
        fault = "".join(c if c.isprintable() else " " for c in cause)[:300].strip()
        remedy = REMEDIES.get(name, "base_url should end in /v1; see the server's log")
        where = f"base_url: {self._base_url}: the server of {self._model}"
        start = start_command(self._model, self._base_url)
        return f"{where}: {name} ({fault}); {remedy.format(start=start)}"

    def _ask(self, request: Request) -> Completion:
        settings = request.settings
        response = self._client.chat.completions.create(
            model=self._model,
            messages=json.loads(request.prompt),
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=settings.max_new_tokens,
            seed=request.seed >> 32,  # some servers keep 32 bits, signed
            n=1,
        )
        return read_completion(response)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def is_address(url: str) -> bool:
    """Whether a text is an address of http or https, with a port that is a number."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def start_command(model: str, base_url: str) -> str:
    """The command that serves a teacher with vLLM at the port of its address."""
    port = urlsplit(base_url).port
    given = "" if port in (None, VLLM_PORT) else f" --port {port}"
    return f"vllm serve {model} --generation-config vllm{given}"


def read_completion(response: Any) -> Completion:
    """The completion in a server's answer, with its thought between tags."""
    choice = response.choices[0]
    message, text = choice.message, choice.message.content or ""
    parts = (getattr(message, name, None) for name in ("reasoning_content", "reasoning"))
    reasoning = next(filter(None, parts), "").strip()
    if reasoning:
        text = f"{THINK_OPEN}\n{reasoning}\n{THINK_CLOSE}\n\n{text.lstrip()}"
    elif THINK_CLOSE in text and THINK_OPEN not in text:
        text = THINK_OPEN + text  # the server's template wrote the opening tag
    num_tokens = response.usage.completion_tokens if response.usage else 0  # it does not count
    return Completion(text, num_tokens, cut_off=choice.finish_reason == "length")
