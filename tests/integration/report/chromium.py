"""Chromium without a window, driven through its debugging pipe: the standard library is enough."""

import base64
import json
import os
import shutil
import subprocess
from itertools import count

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--remote-debugging-pipe"
)


class Chromium:
    """One tab; `with Chromium(folder) as tab: tab.open(path, width)`."""

    def __init__(self, folder):
        command_read, self.commands = os.pipe()
        self.events, event_write = os.pipe()

        def connect():  # it reads commands from 3 and writes events to 4
            ends = os.dup(command_read), os.dup(event_write)
            for end, place in zip(ends, (3, 4), strict=True):
                os.dup2(end, place)

        self.process = subprocess.Popen(
            [BROWSER, *FLAGS.split(), f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(command_read)
        os.close(event_write)
        self.rest, self.numbers, self.session, self.logged = b"", count(1), None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.commands)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.events)

    def read(self):
        """The next message; what a page reports as an error is kept in `logged`."""
        while b"\0" not in self.rest:
            more = os.read(self.events, 1 << 20)
            assert more, "Chromium has ended"
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        found = json.loads(message)
        if found.get("method") in (
            "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"
        ):  # fmt: skip
            self.logged.append(json.dumps(found["params"])[:500])
        return found

    def call(self, method, **params):
        number = next(self.numbers)
        value = {"id": number, "method": method, "params": params}
        value |= {"sessionId": self.session} if self.session else {}
        os.write(self.commands, json.dumps(value).encode() + b"\0")
        while (found := self.read()).get("id") != number:
            pass
        assert "error" not in found, found
        return found["result"]

    def open(self, path, width, height=844, dark=False):
        """Load a file in a window of this size; what it logs from now on is in `logged`."""
        self.logged.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=f"file://{path}")
        while self.read().get("method") != "Page.loadEventFired":
            pass

    def run(self, script):
        """The value of a script's last expression, in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                          awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, path, whole=False):
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
