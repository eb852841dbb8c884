"""The engine behind a server: what it asks, what it makes of answers, and of a server's faults."""

import json
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import httpx
import pytest
import yaml

from data_prep.sampling import openai as openai_server
from data_prep.sampling.openai import OpenAIEngine
from data_prep.sampling.store import Request, Settings
from pipeline.errors import UserError

pytest.importorskip("openai", reason="the extra `distill` has the client")
pytestmark = pytest.mark.integration
CASES = yaml.safe_load(Path(__file__).with_name("server.yaml").read_text(encoding="utf-8"))
SETTINGS = Settings(24, temperature=0.6, top_p=0.95)
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2 + 2?"}]
REQUESTS = [Request(json.dumps(MESSAGES), SETTINGS, sample) for sample in range(6)]


def answer(content, reasoning=None, finish_reason="stop"):
    """The JSON of a chat completion."""
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "1", "object": "chat.completion", "choices": [choice]} | {
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    }


def reply_of(case):
    """What `serve` makes of a case of server.yaml."""
    if "status" in case:
        return case["status"], {"error": {"message": case["message"]}}
    if "httpx" in case:
        return getattr(httpx, case["httpx"])("a fault")
    return case["html"].encode() if "html" in case else case["json"]


@contextmanager
def serve(reply):
    """Let `reply` answer OpenAI's client in place of a server; yields what it has seen.

    `reply` gets the JSON of a request and its number from 0; it returns the JSON of the answer,
    `(status, JSON)`, bytes that are no JSON, or the connection's error.
    """
    import openai

    seen = SimpleNamespace(url="http://server.test/v1", requests=[], headers=[])
    lock, client = threading.Lock(), openai.OpenAI

    def handle(request):
        body = json.loads(request.content or "null")  # of a list of models
        with lock:
            number = len(seen.requests)
            seen.requests.append(body)
            seen.headers.append(request.headers)
        found = reply(body, number)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, bytes):
            return httpx.Response(200, content=found, headers={"Content-Type": "text/html"})
        status, value = found if isinstance(found, tuple) else (200, found)
        return httpx.Response(status, json=value)

    def connect(**settings):
        transport = httpx.MockTransport(handle)
        return client(http_client=httpx.Client(transport=transport), **settings)

    with mock.patch.object(openai, "OpenAI", connect):
        yield seen


def complete(url, requests=REQUESTS, concurrency=2):
    """The completions in the order of the requests."""
    with closing(OpenAIEngine("teacher", url, concurrency, timeout_s=30.0)) as engine:
        found = sorted(engine.complete(requests))
    assert [index for index, _ in found] == list(range(len(requests)))
    return [completion for _, completion in found]


def ok(*_):
    return answer("<think>so</think> \\boxed{4}")


@pytest.mark.parametrize(("key", "sent"), [("", "EMPTY"), ("secret", "secret")])
def test_what_is_asked(monkeypatch, key, sent):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with serve(ok) as server:
        complete(server.url)
    for request in server.requests:
        assert request["messages"] == MESSAGES and request["model"] == "teacher"
        assert (request["temperature"], request["top_p"]) == (0.6, 0.95)
        assert (request["max_tokens"], request["n"]) == (24, 1)
        assert not request.get("stream")
    seeds = {request["seed"] for request in server.requests}
    assert seeds == {one.seed >> 32 for one in REQUESTS} and len(seeds) == 6
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {sent}"}


@pytest.mark.parametrize(("given", "text", "num_tokens", "cut_off"), CASES["thoughts"])
def test_where_a_thought_may_stand(given, text, num_tokens, cut_off):
    """In either column beside the content, or in the content itself."""
    words = {key: value for key, value in given.items() if key != "usage"}
    reply = answer(**words) | {key: value for key, value in given.items() if key == "usage"}
    message = reply["choices"][0]["message"]
    for old, new in (("reasoning_content", "reasoning"), ("reasoning", "reasoning_content")):
        message[new] = message.pop(old)
        with serve(lambda *_: reply) as server:
            (found,) = complete(server.url, REQUESTS[:1])
        assert (str(found), found.num_tokens, found.cut_off) == (text, num_tokens, cut_off)


def test_requests_are_under_way_side_by_side():
    barrier = threading.Barrier(3)

    def reply(_, number):
        if number < 3:
            barrier.wait(30)  # nobody is answered before three have asked
        return ok()

    with serve(reply) as server:
        assert len(complete(server.url, concurrency=3)) == 6


@pytest.mark.parametrize(("fault", "words"), CASES["faults"])
def test_faults_that_stay(monkeypatch, fault, words):
    monkeypatch.setattr(openai_server, "MAX_RETRIES", 1)
    with (
        serve(lambda *_: reply_of(fault)) as server,
        pytest.raises(UserError, match=f"^base_url: http://.*/v1: .*{words}") as info,
    ):
        complete(server.url)
    assert "\n" not in str(info.value) and str(info.value).endswith(
        "finished completions are stored"
    )


@pytest.mark.parametrize(("reply", "refusal", "notices"), CASES["models"])
def test_a_server_is_looked_for_before_it_is_asked(capsys, reply, refusal, notices):
    with (
        serve(lambda *_: reply_of(reply)) as server,
        closing(OpenAIEngine("teacher", "http://user:pl4nted@server.test/v1", 2, 30.0)) as engine,
    ):
        if refusal:
            with pytest.raises(UserError, match=f"^base_url: .*{refusal}"):
                engine.check()
        else:
            engine.check()
    assert len(server.requests) == 1
    err = capsys.readouterr().err
    assert err.count("lists no model teacher") == notices and "pl4nted" not in err


def test_what_came_before_an_error_is_handed_over_and_nobody_asks_on(monkeypatch):
    monkeypatch.setattr(openai_server, "MAX_RETRIES", 1)  # the client stumbles once
    replies, found = [ok(), (503, {}), ok(), (500, {}), (500, {})], []
    with serve(lambda _, number: replies[number]) as server:
        with pytest.raises(UserError, match="Error code: 500"):
            for index, _ in OpenAIEngine("teacher", server.url, 1, 30.0).complete(REQUESTS):
                found.append(index)
        assert len(server.requests) == 5
        assert server.requests[1]["seed"] == server.requests[2]["seed"]
    assert found == [0, 1]


def test_the_client_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UserError, match=r"backend: openai: .*extra distill"):
        complete("http://127.0.0.1:1/v1")
