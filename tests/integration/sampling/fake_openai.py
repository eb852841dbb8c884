"""A server of OpenAI's API inside the client: it answers from a script, without a network."""

import json
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock


def answer(content, reasoning=None, finish_reason="stop"):
    """The JSON of a chat completion."""
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "1", "object": "chat.completion", "choices": [choice]} | {
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    }


@contextmanager
def serve(reply):
    """Let `reply` answer every client of this process; yields what it has seen.

    Args:
        reply: function of (JSON of the request, its number from 0) that returns the JSON of the
            answer, `(status, JSON)`, the bytes of a body that is no JSON, or None, which cuts the
            connection in the middle of an answer.
    """
    import httpx
    import openai

    seen = SimpleNamespace(url="http://server.test/v1", requests=[], headers=[])
    lock, client = threading.Lock(), openai.OpenAI

    def handle(request):
        body = json.loads(request.content)
        with lock:
            number = len(seen.requests)
            seen.requests.append(body)
            seen.headers.append(request.headers)
        found = reply(body, number)
        if found is None:
            raise httpx.ReadError("cut")
        if isinstance(found, bytes):
            return httpx.Response(200, content=found, headers={"Content-Type": "text/html"})
        status, value = found if isinstance(found, tuple) else (200, found)
        return httpx.Response(status, json=value)

    def connect(**settings):
        transport = httpx.MockTransport(handle)
        return client(http_client=httpx.Client(transport=transport), **settings)

    with mock.patch.object(openai, "OpenAI", connect):
        yield seen
