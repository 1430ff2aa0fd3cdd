"""A scripted OpenAI-compatible server on this machine: it answers by plan, and remembers what it was asked."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image

from onesdaug.augment.seeds import image_digest

Body = dict[str, Any]
Reaction = Callable[["Handler", Body], None]


class Handler(BaseHTTPRequestHandler):
    """One request: hands it to the server's plan."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers), body, time.monotonic()))
            count = len(self.server.requests)
        self.server.plan(count)(self, body)

    def do_GET(self) -> None:
        self.send(200, {"followed": "a redirect"})

    def send(self, status: int, payload: Any, **headers: str) -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """`plan(n)` says what happens to the n-th request."""

    daemon_threads = True

    def __init__(self, plan: Callable[[int], Reaction]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan, self.lock = plan, threading.Lock()
        self.requests: list[tuple[str, dict[str, str], Body, float]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: Any) -> None:
        pass  # a client that gave up


@contextmanager
def serving(plan: Callable[[int], Reaction]) -> Iterator[Server]:
    server = Server(plan)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def picture_of(body: Body) -> Image.Image:
    url = body["messages"][0]["content"][0]["image_url"]["url"]
    return Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))


def completion(text: str | None, margin: float | None = None, reason: str = "stop") -> Body:
    choice: Body = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
    if margin is not None:
        listed = [{"token": "Yes", "logprob": -1.0}, {"token": " No", "logprob": -1.0 - margin}]
        choice["logprobs"] = {"content": [{"token": "Yes", "logprob": -1.0, "top_logprobs": listed}]}
    return {"id": "1", "choices": [choice]}


def good(handler: Handler, body: Body) -> None:
    """Yes or no by the picture's pixels, with log probabilities if they were asked for."""
    value = int(image_digest(picture_of(body))[:4], 16) / 0x8000 - 1
    handler.send(200, completion("Yes" if value > 0 else "No", value if body.get("logprobs") else None))


def refuse(status: int, message: str = "no", **headers: str) -> Reaction:
    return lambda handler, body: handler.send(status, {"error": {"message": message}}, **headers)


def say(payload: Any) -> Reaction:
    return lambda handler, body: handler.send(200, payload)


def slow(seconds: float) -> Reaction:
    def react(handler: Handler, body: Body) -> None:
        time.sleep(seconds)
        good(handler, body)

    return react


def dripping(handler: Handler, body: Body, status: int = 200) -> None:
    """A byte now and then: no single read ever times out."""
    handler.send_response(status)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    drip(handler, b" ")


def drip(handler: Handler, data: bytes, pause: float = 0.05) -> None:
    """The same bytes again and again, for two seconds: longer than a test waits for an answer."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        handler.wfile.write(data)
        handler.wfile.flush()
        time.sleep(pause)


def dripping_headers(handler: Handler, body: Body) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    drip(handler, b"X-More: to come\r\n")


def dripping_letters(handler: Handler, body: Body) -> None:
    handler.wfile.write(b"HTTP/1.1 200 O")
    drip(handler, b"K")


def continuing(handler: Handler, body: Body, pause: float = 0.05) -> None:
    drip(handler, b"HTTP/1.1 100 Continue\r\n\r\n", pause)


def hang_up(handler: Handler, body: Body) -> None:
    handler.close_connection = True


def cut_short(handler: Handler, body: Body, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True
