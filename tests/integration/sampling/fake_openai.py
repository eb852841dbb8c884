"""A server that speaks as much of OpenAI's API as distillation needs, and answers from a script."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(content, reasoning=None, finish_reason="stop", **extra):
    """The JSON of a chat completion."""
    message = {"role": "assistant", "content": content} | extra
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "1", "object": "chat.completion", "choices": [choice]} | {
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    }


class FakeServer:
    """What a running server has seen.

    Args:
        reply: function of (JSON of the request, its number from 0) that returns the JSON of the
            answer, `(status, JSON)`, the bytes of a body that is no JSON, or None, which cuts the
            connection in the middle of an answer.
    """

    def __init__(self, reply):
        self.reply = reply
        self.requests, self.headers = [], []
        self.under_way = self.most_under_way = 0
        self.lock = threading.Lock()
        self.url = None


def handler(fake):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def send(self, status, body, kind="application/json"):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with fake.lock:
                number = len(fake.requests)
                fake.requests.append(body)
                fake.headers.append({k.lower(): v for k, v in self.headers.items()})
                fake.under_way += 1
                fake.most_under_way = max(fake.most_under_way, fake.under_way)
            try:
                found = fake.reply(body, number)
            finally:
                with fake.lock:
                    fake.under_way -= 1
            try:
                self.give(found)
            except (BrokenPipeError, ConnectionResetError):  # a client that was killed
                self.close_connection = True

        def give(self, found):
            if found is None:
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"id"')
                self.close_connection = True
            elif isinstance(found, bytes):
                self.send(200, found, "text/html")
            else:
                status, value = found if isinstance(found, tuple) else (200, found)
                self.send(status, json.dumps(value).encode())

    return Handler


class Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # a client that was killed


@contextmanager
def serve(reply):
    """A running `FakeServer` on a free port of 127.0.0.1."""
    fake = FakeServer(reply)
    with Server(("127.0.0.1", 0), handler(fake)) as server:
        server.daemon_threads, server.block_on_close = True, False
        fake.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
