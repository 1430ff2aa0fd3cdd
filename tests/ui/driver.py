"""A visitor of the page: drives a tab of a real Chromium as a person would, by what is seen on the page."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.report import chromium

_TEXT = "(e => e ? e.innerText : null)(document.querySelector({}))"
# the element of a selector with this text, among those that are seen
_CLICK = """
((selector, text) => {
  const found = [...document.querySelectorAll(selector)].find(
    e => e.getClientRects().length && (!text || e.innerText.trim() === text));
  if (!found) return false;
  found.scrollIntoView({block: 'center'});
  found.click();
  return true;
})"""
_NUMBER = """
((selector, value) => {
  const field = document.querySelector(selector);
  const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), 'value').set;
  field.focus();
  set.call(field, value);
  for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, {bubbles: true}));
  field.blur();
})"""


class Visitor:
    """One tab on the page, at a width, in light or dark."""

    def __init__(self, browser: chromium.Browser, address: str, width: int = 1280, scheme: str = "light") -> None:
        self.tab, self.address, self.width = browser.tab(), address, width
        for domain in ("Page", "Network", "Runtime", "Log", "DOM"):
            self.tab.call(f"{domain}.enable")
        self.tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.tab.call("Page.navigate", url=address)
        self.until("!!document.querySelector('#views-start')")

    def js(self, expression: str) -> Any:
        return self.tab.evaluate(expression)

    def until(self, condition: str, seconds: float = 60) -> None:
        """Wait until an expression is true on the page."""
        end = time.monotonic() + seconds
        while not self.js(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"never true within {seconds} s: {condition}\n{self.js('document.body.innerText')}")
            time.sleep(0.1)

    def click(self, selector: str, text: str = "") -> None:
        self.until(f"{_CLICK}({json.dumps(selector)}, {json.dumps(text)})", 20)

    def open_tab(self, name: str) -> None:
        self.click("button[role=tab]", name)
        self.until(f"document.querySelector('button[role=tab][aria-selected=true]').innerText.trim() === '{name}'")

    def fill(self, selector: str, value: object) -> None:
        """Type into a field, as far as the page can tell."""
        self.js(f"{_NUMBER}({json.dumps(selector)}, {json.dumps(str(value))})")

    def choose(self, selector: str, option: str) -> None:
        """Open a list and pick from it, as Gradio wants it: what is pressed counts, not what is clicked."""
        self.js(f"document.querySelector({json.dumps(selector + ' input')}).focus()")
        pressed = (
            "((text) => { const found = [...document.querySelectorAll('ul[role=listbox] li')].find("
            "e => e.getAttribute('aria-label') === text || e.innerText.trim() === text); if (!found) return false; "
            "found.dispatchEvent(new MouseEvent('mousedown', {bubbles: true})); return true; })"
        )
        self.until(f"{pressed}({json.dumps(option)})", 20)

    def upload(self, selector: str, files: Sequence[Path]) -> None:
        """Choose files, as in the window that a browser opens for that."""
        self.until(f"!!document.querySelector('{selector} input[type=file]')", 20)
        root = self.tab.call("DOM.getDocument")["root"]["nodeId"]
        node = self.tab.call("DOM.querySelector", nodeId=root, selector=f"{selector} input[type=file]")["nodeId"]
        self.tab.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def text(self, selector: str) -> str:
        return self.js(_TEXT.format(json.dumps(selector))) or ""

    def screenshot(self, file: Path) -> None:
        """The whole page, however long."""
        size = self.tab.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": self.width, "height": min(size["height"], 6000), "scale": 1}
        shot = self.tab.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    @property
    def overflow(self) -> int:
        """Pixels by which the page is wider than the screen."""
        return int(self.js("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    @property
    def elsewhere(self) -> list[str]:
        """Requests that leave the page's own address."""
        return [url for url in self.tab.requests if not url.startswith((self.address, "blob:"))]

    @property
    def errors(self) -> list[str]:
        """What the browser's console has against the page."""
        thrown = [
            event["params"]["exceptionDetails"].get("text", "")
            + event["params"]["exceptionDetails"].get("exception", {}).get("description", "")
            for event in self.tab.events
            if event["method"] == "Runtime.exceptionThrown"
        ]
        printed = [
            " ".join(str(part.get("value", part.get("description", ""))) for part in event["params"]["args"])
            for event in self.tab.events
            if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] == "error"
        ]
        logged = [
            event["params"]["entry"]["text"] + " " + event["params"]["entry"].get("url", "")
            for event in self.tab.events
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error"
        ]
        return thrown + printed + logged
