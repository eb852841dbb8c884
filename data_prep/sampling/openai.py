"""The engine behind a server: an OpenAI-compatible one, such as `vllm serve`, writes completions.

A request's prompt is the chat's messages as JSON; the server applies the template. Its thought may
come apart from the answer (`reasoning_content`, `reasoning`), or in the text with or without the
opening tag; a completion always has it between `<think>` and `</think>`. Each sample has its own
seed, and every completion is handed over as it arrives.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.pool import ThreadPool
from typing import Any

from data_prep.config import UserError
from data_prep.prompts import THINK_CLOSE, THINK_OPEN
from data_prep.sampling.store import Completion, Request

MAX_RETRIES = 5  # by the client, after 0.5, 1, 2, 4 and 8 seconds, for 408, 409, 429 and 5xx too
CONNECT_S = 20.0
STORED = "; what is finished is stored"


class OpenAIEngine:
    """A model that a server has.

    Args:
        model: the name under which it is served.
        base_url: of the API, such as http://localhost:8000/v1.
        api_key_env: environment variable with the key; servers of one's own need none.
        concurrency: requests under way at once.
        timeout_s: the longest that one completion may take, in seconds.

    Raises:
        UserError: the client is not installed.
    """

    def __init__(
        self, model: str, *, base_url: str, api_key_env: str, concurrency: int, timeout_s: float
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise UserError(
                f"backend: openai needs a package that is not installed ({error}); run "
                "`make .venv/ready EXTRAS=eval,distill,dev`"
            ) from error
        self._openai, self._model, self._base_url = openai, model, base_url
        self._api_key_env, self._concurrency, self._timeout_s = api_key_env, concurrency, timeout_s
        self._client = openai.OpenAI(
            api_key=os.environ.get(api_key_env) or "EMPTY",
            base_url=base_url,
            timeout=openai.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            max_retries=MAX_RETRIES,
        )

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, Completion]]:
        """Yield `(index into requests, completion)` as they arrive.

        Raises:
            UserError: the server cannot be reached, refuses a request or does not answer in time.
        """
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
            except Exception as error:  # any fault of a server is told in words of the recipe
                raise self._explain(error) from error
            finally:
                is_over.set()

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

    def _explain(self, error: Exception) -> UserError:
        """What went wrong in words of the recipe; the client has tried again before."""
        openai, where = self._openai, f"base_url: {self._base_url}"
        if isinstance(error, UserError):
            text = f"{where}: {error}"
        elif isinstance(error, openai.APITimeoutError):
            text = (
                f"{where}: no answer within timeout_s {self._timeout_s:g}, {MAX_RETRIES + 1} "
                "times; raise timeout_s or lower concurrency"
            )
        elif isinstance(error, openai.APIConnectionError):
            cause = error.__cause__ or error
            text = (
                f"{where}: cannot be reached ({type(cause).__name__}: {_one_line(cause)}); start "
                "the server or correct base_url, then run the same command again"
            )
        elif isinstance(error, openai.APIStatusError):
            text = self._explain_status(error)
        else:
            text = (
                f"{where}: the answer is none of an OpenAI-compatible server "
                f"({type(error).__name__}: {_one_line(error)}); base_url should end in /v1"
            )
        return UserError(text + STORED)

    def _explain_status(self, error: Any) -> str:
        where, status = f"base_url: {self._base_url}", error.status_code
        body = error.body if isinstance(error.body, dict) else {}
        message = _one_line(body.get("message") or error.message)
        if status in (401, 403):
            return (
                f"{where}: status {status}, the key is refused ({message}); set the environment "
                f"variable {self._api_key_env}"
            )
        if status == 404:
            return (
                f"{where}: status 404 ({message}); base_url should end in /v1, and "
                "model_name_or_path be a model that is served there"
            )
        if status < 500 and status != 429:
            remedy = "change the setting that it names (max_tokens is max_new_tokens)"
        else:
            remedy = "see the server's log or lower concurrency, then run the same command again"
        return f"{where}: status {status} ({message}); {remedy}"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def read_completion(response: Any) -> Completion:
    """The completion in a server's answer, with its thought between tags.

    Raises:
        UserError: there is none.
    """
    choices = getattr(response, "choices", None)
    message = (
        getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    )
    if message is None:
        raise UserError(f"an answer without a completion, {response!r:.80}; see the server's log")
    parts = {name: getattr(message, name, None) for name in ("reasoning_content", "reasoning")}
    reasoning = next((one for one in parts.values() if one and isinstance(one, str)), "")
    num_tokens = getattr(getattr(response, "usage", None), "completion_tokens", None)
    return Completion(
        join_thought(reasoning, message.content if isinstance(message.content, str) else ""),
        num_tokens if isinstance(num_tokens, int) else 0,  # the server does not count
        cut_off=choices[0].finish_reason == "length",
    )


def join_thought(reasoning: str, content: str) -> str:
    """One text of a thought that came apart from the content, or without its opening tag."""
    if reasoning.strip():
        return f"{THINK_OPEN}\n{reasoning.strip()}\n{THINK_CLOSE}\n\n{content.lstrip()}"
    if THINK_CLOSE in content and THINK_OPEN not in content:
        return THINK_OPEN + content  # the server's template wrote the opening tag
    return content


def _one_line(text: Any) -> str:
    """A server's text without line ends and control characters, and not too long."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:300].strip()
