"""A headless Chromium, driven over a pipe by its own protocol: pages, what they ask for, what they complain about."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def found():
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page. Commands are sent as JSON, ended by a zero byte; so are answers and events."""

    def __init__(self, patience=60.0):
        self.patience = patience
        self.events = []
        self._number = 0
        self._unread = b""
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def pipes():  # Chromium reads commands from descriptor 3 and answers on 4
            spare_in, spare_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(spare_in, 3)
            os.dup2(spare_out, 4)

        self._process = subprocess.Popen(
            [found(), *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            preexec_fn=pipes,  # noqa: PLW1509 - nothing there can wait for a thread
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method, **parameters):
        """A command to the page, and its answer."""
        return self._ask(method, session=self._session, **parameters)

    def open(self, path, *, width=1280, height=900, dark=False, media=""):
        """Show a file at a width, light or dark, on a screen or as printed."""
        self.events.clear()
        phone = width < 600
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self("Page.navigate", url=Path(path).resolve().as_uri())
        self._until("Page.loadEventFired")

    def evaluate(self, script):
        """What a script finds on the page."""
        answer = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def requests(self):
        """Every address the page asked for since it was opened."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def complaints(self):
        """Exceptions, console messages and log entries since the page was opened."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in kinds]

    def picture(self, path):
        """The whole page as PNG."""
        size = self("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def printed(self, path):
        """The page as PDF."""
        data = self("Page.printToPDF", printBackground=False, paperWidth=8.27, paperHeight=11.69)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _ask(self, method, session=None, **parameters):
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        os.write(self._out, json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _until(self, method):
        while not any(event["method"] == method for event in self.events):
            self.events.append(self._next())

    def _next(self):
        limit = time.monotonic() + self.patience
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(limit - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has gone"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)
