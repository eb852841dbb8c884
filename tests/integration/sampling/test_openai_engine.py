"""The engine behind a server: what it asks, what it makes of answers, and of a server's faults."""

import json
import sys
import threading
import time

import pytest

from data_prep.config import UserError
from data_prep.sampling import openai as openai_server
from data_prep.sampling.openai import OpenAIEngine
from data_prep.sampling.store import Request, Settings
from tests.integration.sampling.fake_openai import answer, serve

pytest.importorskip("openai", reason="the extra `distill` has the client")
pytestmark = pytest.mark.integration
SETTINGS = Settings(24, temperature=0.6, top_p=0.95)
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2 + 2?"}]
REQUESTS = [Request(json.dumps(MESSAGES), SETTINGS, sample) for sample in range(6)]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def connect(url, **changes):
    settings = {"api_key_env": "OPENAI_API_KEY", "concurrency": 2, "timeout_s": 30.0} | changes
    return OpenAIEngine("teacher", base_url=url, **settings)


def complete(url, requests=REQUESTS, **changes):
    """The completions in the order of the requests."""
    engine = connect(url, **changes)
    try:
        found = sorted(engine.complete(requests))
    finally:
        engine.close()
    assert [index for index, _ in found] == list(range(len(requests)))
    return [completion for _, completion in found]


def ok(*_):
    return answer("<think>so</think> \\boxed{4}")


def test_what_is_asked():
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


@pytest.mark.parametrize(("value", "sent"), [(None, "EMPTY"), ("", "EMPTY"), ("secret", "secret")])
def test_the_key(monkeypatch, value, sent):
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with serve(ok) as server:
        complete(server.url, api_key_env="MY_KEY")
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {sent}"}


@pytest.mark.parametrize(
    ("given", "text", "num_tokens", "cut_off"),
    [
        (answer("<think>so</think> 4"), "<think>so</think> 4", 7, False),
        (answer("\n\n4", "so\n"), "<think>\nso\n</think>\n\n4", 7, False),
        (answer("4", reasoning="so"), "<think>\nso\n</think>\n\n4", 7, False),
        (answer("so</think> 4"), "<think>so</think> 4", 7, False),
        (answer("4"), "4", 7, False),
        (answer("4", ""), "4", 7, False),
        (answer("<think>so, so", finish_reason="length"), "<think>so, so", 7, True),
        (answer(None, "so, so", "length"), "<think>\nso, so\n</think>\n\n", 7, True),
        (answer(None), "", 7, False),
        (answer("4") | {"usage": None}, "4", 0, False),
        (answer("4", finish_reason=None), "4", 7, False),
    ],
)
def test_where_a_thought_may_stand(given, text, num_tokens, cut_off):
    given["choices"][0]["message"].update(
        {"reasoning": given["choices"][0]["message"].pop("reasoning", None)}
    )
    with serve(lambda *_: given) as server:
        (found,) = complete(server.url, REQUESTS[:1])
    assert (str(found), found.num_tokens, found.cut_off) == (text, num_tokens, cut_off)


def test_requests_are_under_way_side_by_side_and_handed_over_as_they_come():
    gate, barrier = threading.Event(), threading.Barrier(3)
    first_seed = REQUESTS[0].seed >> 32

    def reply(body, number):
        if number < 3:
            barrier.wait(30)  # nobody is answered before three have asked
        if body["seed"] == first_seed:
            assert gate.wait(30)
        return ok()

    with serve(reply) as server:
        engine = connect(server.url, concurrency=3)
        order = []
        for index, _ in engine.complete(REQUESTS):
            order.append(index)
            if len(order) == 5:
                gate.set()
        engine.close()
    assert sorted(order[:5]) == [1, 2, 3, 4, 5] and order[5] == 0
    assert server.most_under_way == 3


@pytest.mark.parametrize("fault", [(503, {}), (429, {}), None], ids=str)
def test_a_server_that_stumbles_is_asked_again(fault):
    with serve(lambda _, number: fault if number < 2 else ok()) as server:
        assert complete(server.url, REQUESTS[:1]) == ["<think>so</think> \\boxed{4}"]
    assert len(server.requests) == 3
    assert len({request["seed"] for request in server.requests}) == 1


FAULTS = {
    "down": (
        (500, {"error": {"message": "out of \x1b memory\nline 2"}}),
        r"^base_url: http://.*/v1: status 500 \(out of   memory line 2\); see the server's log",
    ),
    "context": (
        (400, {"error": {"message": "max_tokens is too large: 24"}}),
        r"status 400 \(max_tokens is too large: 24\); change the setting that it names",
    ),
    "key": (
        (401, {"error": {"message": "no"}}),
        r"status 401, the key is refused \(no\); set the environment variable OPENAI_API_KEY",
    ),
    "model": (
        (404, {"error": {"message": "The model `teacher` does not exist."}}),
        r"^base_url: .*: status 404 \(The model `teacher` does not exist\.\); .*model_name_or_path",
    ),
    "page": (b"<html>It works!</html>", r"an answer without a completion, '<html>It works!</html>"),
    "empty": ({"choices": []}, r"an answer without a completion, "),
    "error": ({"error": "busy"}, r"an answer without a completion, "),
    "cut": (None, r"^base_url: .* cannot be reached \(.*start the server or correct base_url"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_stay(monkeypatch, name):
    monkeypatch.setattr(openai_server, "MAX_RETRIES", 1)
    fault, words = FAULTS[name]
    with serve(lambda *_: fault) as server:
        engine = connect(server.url)
        with pytest.raises(UserError, match=words) as info:
            list(engine.complete(REQUESTS))
        engine.close()
    assert "\n" not in str(info.value) and str(info.value).endswith("what is finished is stored")


def test_nobody_listens(monkeypatch):
    monkeypatch.setattr(openai_server, "MAX_RETRIES", 1)
    with serve(ok) as server:
        pass
    with pytest.raises(UserError, match=r"base_url: .* cannot be reached \(.*refused"):
        complete(server.url)


def test_an_answer_that_never_comes(monkeypatch):
    monkeypatch.setattr(openai_server, "MAX_RETRIES", 1)
    gate = threading.Event()
    with serve(lambda *_: gate.wait(30) and ok()) as server:
        with pytest.raises(UserError, match=r"no answer within timeout_s 0\.2, 2 times; raise"):
            complete(server.url, timeout_s=0.2)
        gate.set()


def test_what_came_before_an_error_is_handed_over_and_nobody_asks_on(monkeypatch):
    monkeypatch.setattr(openai_server, "MAX_RETRIES", 0)
    found = []
    with serve(lambda _, number: ok() if number < 3 else (500, {})) as server:
        engine = connect(server.url, concurrency=1)
        with pytest.raises(UserError, match="status 500"):
            for index, _ in engine.complete(REQUESTS):
                found.append(index)
        time.sleep(0.1)
        assert len(server.requests) == 4
        engine.close()
    assert found == [0, 1, 2]


def test_the_client_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UserError, match=r"backend: openai needs a package .*EXTRAS=eval,distill"):
        connect("http://127.0.0.1:1/v1")
