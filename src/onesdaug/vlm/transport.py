"""JSON over HTTP with patience: deadlines, retries with backoff, Retry-After; the key goes nowhere but the header."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from onesdaug import __version__
from onesdaug.errors import ConfigError, OnesdaugError

KEY_VARIABLE = "OPENAI_API_KEY"
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LARGEST = 4 * 2**20  # bytes of one answer; a chat completion of a few tokens is a few kilobytes
_LONGEST_WAIT = 300.0  # seconds a server may ask us to wait before the run rather stops


class RequestFailed(Exception):
    """One request that got no answer, after all tries; `status` where the server gave one."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Patience:
    """Seconds until a request counts as lost, how often it is tried again, and the first pause (it doubles)."""

    timeout: float = 60.0
    retries: int = 5
    pause: float = 1.0

    def __post_init__(self) -> None:
        if not (self.timeout > 0 and self.retries >= 0 and self.pause >= 0):
            raise ConfigError(f"a timeout above 0 and retries of at least 0 are needed, got {self}")


class Transport:
    """POSTs JSON to one URL; may be used from several threads."""

    def __init__(self, url: str, key: str | None, patience: Patience) -> None:
        self.url, self.patience = check_url(url), patience
        self._key = key or None
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._jitter = random.Random(0)  # pauses of several threads should not fall together; results never see it
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Wake whoever pauses; nothing is sent any more after this."""
        self._stopped.set()

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """The parsed answer. RequestFailed: this request is lost; a OnesdaugError: no other would fare better."""
        data = json.dumps(body).encode()
        if self._stopped.is_set():
            raise RequestFailed("not sent: the run had stopped")
        for attempt in range(self.patience.retries + 1):
            wait: float | None = None
            try:
                return self._once(data)
            except urllib.error.HTTPError as error:
                with error:
                    failure, wait = self._refused(error), _retry_after(error)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = getattr(error, "reason", None) or error
                failure = RequestFailed(self.hide(f"{type(error).__name__}: {reason}"))
            last = attempt == self.patience.retries
            if last or (failure.status is not None and failure.status not in _AGAIN) or self._stopped.is_set():
                raise failure
            if wait is not None and wait > _LONGEST_WAIT:
                raise OnesdaugError(
                    f"{self.url} asks to wait {wait:.0f} s ({failure}); finished answers are kept, run the same "
                    "command again after that"
                )
            backoff = self.patience.pause * 2**attempt * (1 + 0.25 * self._jitter.random())
            self._stopped.wait(max(backoff, wait or 0.0))
        raise AssertionError("unreachable")  # the last attempt returned or raised

    def hide(self, text: str) -> str:
        """Text without the key, should a server repeat it, and short enough for a line."""
        shown = text.replace(self._key, "***") if self._key else text  # before it is cut: half a key is a secret too
        return " ".join(shown.split())[:300]

    def _once(self, data: bytes) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "User-Agent": f"onesdaug/{__version__}"}
        request = urllib.request.Request(self.url, data, headers, method="POST")
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        deadline = time.monotonic() + self.patience.timeout
        with self._opener.open(request, timeout=self.patience.timeout) as response:
            parts, size = [], 0
            while part := response.read1(65536):  # the socket's own timeout starts anew with every byte
                parts.append(part)
                size += len(part)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no whole answer within {self.patience.timeout:g} s")
                if size > _LARGEST:
                    raise ValueError(f"an answer of more than {_LARGEST >> 20} MB")
        try:
            answer = json.loads(b"".join(parts))
        except ValueError as error:
            raise ValueError(f"the answer is not JSON ({error})") from error
        if not isinstance(answer, dict):
            raise ValueError("the answer is not a JSON object")
        return answer

    def _refused(self, error: urllib.error.HTTPError) -> RequestFailed:
        """A refusal as a failure of this request, or as an error where every other would be refused too."""
        try:
            detail = self.hide(_message(error.read(65536)))
        except (OSError, http.client.HTTPException):
            detail = ""
        said = f"HTTP {error.code}" + (f": {detail}" if detail else "")
        if error.code in (401, 403):
            self.stop()
            what = f"refuses the key in {KEY_VARIABLE}" if self._key else f"wants a key: set {KEY_VARIABLE}"
            raise ConfigError(f"{self.url} {what} ({said}); finished answers are kept") from None
        if error.code in (404, 405) or 300 <= error.code < 400:
            self.stop()
            raise ConfigError(
                f"{self.url} is not an OpenAI-compatible endpoint, or does not have this model ({said}); give the "
                "address up to /v1, and the model's name there as --model"
            ) from None
        return RequestFailed(said, error.code)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would turn the POST into a GET, and might take the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def check_url(url: str) -> str:
    """The address of chat completions; whatever could carry a secret is refused, since the address is written down."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"the endpoint {url.split('@')[-1]} is not an http(s) address, e.g. http://localhost:8000/v1"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            f"the endpoint's address must not hold a user, a password or a query (host {parts.hostname}); the key "
            f"comes from {KEY_VARIABLE} alone"
        )
    path = parts.path.rstrip("/")
    path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _message(body: bytes) -> str:
    """The reason in an error body, in whichever of the usual forms."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        return text
    inner = found.get("error", found) if isinstance(found, dict) else found
    return str(inner.get("message", inner) if isinstance(inner, dict) else inner)


def _retry_after(error: urllib.error.HTTPError) -> float | None:
    """Seconds to wait, from a number or a date; None where the server does not say, or says nonsense."""
    value = error.headers.get("Retry-After") if error.headers else None
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
