"""JSON over HTTP: deadlines, retries with backoff, Retry-After; the key goes nowhere but into the request's header."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic_core import from_json

from onesdaug import __version__
from onesdaug.errors import ConfigError, OnesdaugError
from onesdaug.vlm.mask import Mask

KEY_VARIABLE = "OPENAI_API_KEY"
_RETRIED = frozenset({None, 408, 409, 425, 429, 500, 502, 503, 504, 529})  # None: no answer at all
_LARGEST = 4 * 2**20  # bytes of one answer; a chat completion of a few tokens is a few kilobytes
_LONGEST_WAIT = 300.0  # seconds a server may ask us to wait before the run rather stops
_NAME = re.compile(r"(?=.{1,253}$)[\w-]{1,63}(\.[\w-]{1,63})*\.?", re.ASCII)  # of a host, which may not exist


class RequestFailed(Exception):
    """A request without an answer; the `status` and the seconds to `wait` where the server gave them."""

    def __init__(self, text: str, status: int | None = None, wait: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.wait = status, wait


class Transport:
    """POSTs JSON to one URL; many requests may be under way in one event loop.

    A request counts as lost after `timeout` seconds and is tried `retries` times again; the first `pause` doubles.
    """

    def __init__(self, url: str, key: str | None, timeout: float = 60.0, retries: int = 5, pause: float = 1.0) -> None:
        if not (timeout > 0 and retries >= 0 and pause >= 0):
            raise ConfigError(f"timeout {timeout:g} and retries {retries}: the one is above 0, the other at least 0")
        self.url, self.timeout, self.retries, self.pause = check_url(url), timeout, retries, pause
        self._key = (key or "").strip()
        if not (self._key.isascii() and self._key.isprintable() and " " not in self._key):
            raise ConfigError(f"the key in {KEY_VARIABLE} (not shown here) is not one word of ASCII; set it again")
        self.mask = Mask(self._key)
        self._client = _client(self._key)
        self._jitter = random.Random(0)  # pauses should not fall together; results never see it

    async def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """The parsed answer. RequestFailed: this request is lost; a OnesdaugError: no other would fare better."""
        data = json.dumps(body).encode()
        for attempt in range(self.retries + 1):
            try:
                return await self._once(data)
            except RequestFailed as failure:
                if failure.status not in _RETRIED or attempt == self.retries:
                    raise
                backoff = self.pause * 2**attempt * (1 + 0.25 * self._jitter.random())
                wait = max(backoff, failure.wait)
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def line(self, text: str) -> str:
        """An error's text without the key, without what is not to be printed, and short enough for a line."""
        hidden = self.mask(text)[:2000]  # hidden before it is cut
        return " ".join("".join(sign if sign.isprintable() else " " for sign in hidden).split())[:300]

    async def _once(self, data: bytes) -> dict[str, Any]:
        body = bytearray()
        response: httpx.Response | None = None
        try:
            # one deadline for all of it: httpx's own start anew with every part of a head or a body
            async with asyncio.timeout(self.timeout), self._client.stream("POST", self.url, content=data) as response:
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > _LARGEST:
                        raise ValueError(f"an answer of more than {_LARGEST >> 20} MB")
            if response.is_success:
                return _parse(bytes(body))
        except Exception as error:  # whatever comes over the wire costs this request alone
            if response is None or response.is_success:  # a refusal counts by its status, also if its text is cut off
                late = f"timed out: no whole answer within {self.timeout:g} s"
                said = late if isinstance(error, TimeoutError) else _reason(error)
                # without the cause, which may repeat the key
                raise RequestFailed(self.line(f"{type(error).__name__}: {said}")) from None
        raise self._refused(response, bytes(body))

    def _refused(self, response: httpx.Response, body: bytes) -> RequestFailed | OnesdaugError:
        """A refusal as a failure of this request, or as an error where every other would be refused too."""
        status, wait = response.status_code, _retry_after(response.headers.get("Retry-After", ""))
        said = f"HTTP {status}: {self.line(_message(body))}".removesuffix(": ")
        if status in (401, 403):
            what = f"refuses the key in {KEY_VARIABLE}" if self._key else f"wants a key: set {KEY_VARIABLE}"
            return ConfigError(f"{self.url} {what} ({said}); finished answers are kept")
        if status in (404, 405) or 300 <= status < 400:
            return ConfigError(
                f"{self.url} is not an OpenAI-compatible endpoint, or does not have this model ({said}); give the "
                "address up to /v1, and the model's name there as --model"
            )
        if status in _RETRIED and wait > _LONGEST_WAIT:
            return OnesdaugError(
                f"{self.url} asks to wait {wait:.0f} s ({said}); finished answers are kept, run the same command "
                "again after that"
            )
        return RequestFailed(said, status, wait)


def check_url(url: str) -> str:
    """The address of chat completions; whatever could carry a secret is refused, since the address is written down."""
    try:
        address, parts = httpx.URL(url), urlsplit(url)
        host = address.host and address.raw_host.decode()  # names of other scripts must be right both ways
        whole = parts.scheme in ("http", "https") and (":" in host or _NAME.fullmatch(host)) and parts.port != 0
    except (httpx.InvalidURL, ValueError):  # also of a port above 65535
        whole = False
    if not whole:
        shown = re.split(r"[?#]", url.split("@")[-1])[0]
        raise ConfigError(f"the endpoint {shown[:200]!r} is no http(s) address, e.g. http://localhost:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            f"the endpoint's address must not hold a user, a password or a query (host {parts.hostname}); the key "
            f"comes from {KEY_VARIABLE} alone"
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return f"{parts.scheme}://{parts.netloc}{path}/chat/completions"


def _client(key: str) -> httpx.AsyncClient:
    """A client that sends the key, follows no redirect (which might take the key elsewhere) and unpacks nothing."""
    for name in ("httpcore", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)  # their lines show headers and reasons that may repeat it
    headers = {"Content-Type": "application/json", "User-Agent": f"onesdaug/{__version__}"}
    headers |= {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        tls, limits = ssl.create_default_context(), httpx.Limits()  # the system's certificates, not httpx's own list
        return httpx.AsyncClient(headers=headers, timeout=None, verify=tls, follow_redirects=False, limits=limits)
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(f"the environment's proxy or certificate settings cannot be used: {error}") from error


def _reason(error: BaseException) -> str:
    """Why there is no connection is said by the innermost error alone: refused, no such host, a certificate."""
    if isinstance(error, httpx.ConnectError):
        while (
            inner := error.exceptions[0] if isinstance(error, ExceptionGroup) else error.__cause__ or error.__context__
        ):
            error = inner
    return os.strerror(error.errno or 0) if isinstance(error, ConnectionError) else str(error)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        answer = from_json(body)  # which refuses what is nested so deeply that showing it would fail
    except ValueError as error:
        raise ValueError(f"the answer is not JSON ({error})") from error
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    return answer


def _message(body: bytes) -> str:
    """The reason in an error body, in whichever of the usual forms."""
    try:
        found = from_json(body)
    except ValueError:
        return body.decode("utf-8", "replace")
    inner = found.get("error", found) if isinstance(found, dict) else found
    return str(inner.get("message", inner) if isinstance(inner, dict) else inner)


def _retry_after(value: str) -> float:
    """Seconds to wait, from a number or a date; 0 where the server does not say, or says nonsense."""
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError):
        when = parsedate_to_datetime(value)
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return 0.0
