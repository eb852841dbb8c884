"""A server on this machine that answers with JSON."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextlib.contextmanager
def serve_json(answers: dict[str, tuple[Any, Any]]) -> Iterator[int]:
    """Answer by `{path: (status, body)}`, and yield the port.

    A list of statuses is given one after the other, its last for good.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answers[self.path.partition("?")[0][1:]]
            if isinstance(status, list):
                status = status.pop(0) if len(status) > 1 else status[0]
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
