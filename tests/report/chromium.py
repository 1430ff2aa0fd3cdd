"""A real browser for tests: finds a Chromium and speaks its own protocol over a pipe; nothing else is needed."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).parents[2]
ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
NOT_FOUND = (
    "no Chromium: set ONESDAUG_CHROMIUM to one, or install one (chromium or google-chrome on PATH), or `make browser` "
    "(npm, into .cache/browser; another folder by ONESDAUG_BROWSER_DIR)"
)
_UNPACK = (
    "import('@sparticuz/chromium').then(async ({default: c}) => "
    "console.log(JSON.stringify({path: await c.executablePath(), args: c.args})))"
)
_MOVE = "import os, sys; a, b, *c = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(c[0], c)"
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",  # tests run as root in containers, and open only their own pages
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
]


def find() -> tuple[str, list[str]] | None:
    """An executable and the arguments it needs of its own."""
    named = os.environ.get("ONESDAUG_CHROMIUM")
    if found := named or next(filter(None, map(shutil.which, ON_PATH)), None):
        return found, []
    folder = Path(os.environ.get("ONESDAUG_BROWSER_DIR") or REPOSITORY / ".cache" / "browser")
    node = shutil.which("node")
    if node is None or not (folder / "node_modules" / "@sparticuz" / "chromium").is_dir():
        return None
    # the package holds a compressed browser, which it unpacks once into the folder for temporary files
    told = subprocess.run([node, "-e", _UNPACK], cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    unpacked = json.loads(told.stdout.splitlines()[-1])
    return unpacked["path"], [argument for argument in unpacked["args"] if not argument.startswith("--headless")]


@dataclass
class Tab:
    """One page of the browser, with everything it asked for."""

    browser: Browser
    session: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, params, self.session)

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, url: str, width: int, scheme: str = "light") -> None:
        """Load a page without scripts and without a network, at a width, in light or dark."""
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.call("Network.setBlockedURLs", urls=["http://*", "https://*", "ws://*", "wss://*", "ftp://*"])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.browser.until(lambda: any(e["method"] == "Page.loadEventFired" for e in self.events))

    @property
    def requests(self) -> list[str]:
        """What was asked for, beyond what the page holds itself."""
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """What the browser has against the page: blocked styles, broken pictures."""
        entries = [e["params"]["entry"] for e in self.events if e["method"] == "Log.entryAdded"]
        failed = [e["params"]["errorText"] for e in self.events if e["method"] == "Network.loadingFailed"]
        return [entry["text"] for entry in entries if entry["level"] in ("warning", "error")] + failed


class Browser:
    """A headless Chromium that ends with the `with` block."""

    def __init__(self, executable: str, arguments: list[str], patience: float = 60) -> None:
        self.command, self.patience = [executable, *arguments, *_ARGUMENTS], patience
        self.tabs: dict[str, Tab] = {}
        self.answers: dict[int, dict[str, Any]] = {}
        self.count, self.rest = 0, b""

    def __enter__(self) -> Browser:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.write = os.pipe()
        self.read, theirs_out = os.pipe()
        # clear of 3 and 4, where the browser reads and writes
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MOVE, *map(str, high), *self.command, f"--user-data-dir={self.profile.name}"],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.write)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        self.profile.cleanup()

    def tab(self) -> Tab:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.tabs[session] = Tab(self, session)
        return self.tabs[session]

    def call(self, method: str, params: dict[str, Any], session: str = "") -> dict[str, Any]:
        self.count += 1
        number, message = self.count, {"id": self.count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        self.until(lambda: number in self.answers)
        answer = self.answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def until(self, done: Any) -> None:
        """Read what the browser says until `done`."""
        end = time.monotonic() + self.patience
        while not done():
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self.read, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError(f"the browser went silent (exit code {self.process.poll()})")
            *messages, self.rest = (self.rest + chunk).split(b"\0")
            for raw in messages:
                message = json.loads(raw)
                if "id" in message:
                    self.answers[message["id"]] = message
                elif message.get("sessionId") in self.tabs:
                    self.tabs[message["sessionId"]].events.append(message)
