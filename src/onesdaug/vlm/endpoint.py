"""A model behind an OpenAI-compatible HTTP endpoint: neither parameters nor logits are there, views still work."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onesdaug.errors import ConfigError
from onesdaug.jobs.files import png_bytes
from onesdaug.vlm.model import Replies, Reply, listed_margin, stream
from onesdaug.vlm.settings import Asking
from onesdaug.vlm.transport import KEY_VARIABLE, RequestFailed, Transport

if TYPE_CHECKING:
    from PIL import Image

# what servers may not know: left out, or called otherwise, once one says so
_OPTIONAL = {"logprobs": ("logprobs", "top_logprobs"), "seed": ("seed",)}


class Endpoint:
    """Asks over HTTP, `workers` requests at a time; an error is a reply with an error, never an answer.

    `about` is what decides the answers, as far as it can be known from outside. `limits`: see Transport.
    """

    def __init__(self, url: str, model: str, asking: Asking, *, workers: int = 4, **limits: Any) -> None:
        if workers < 1:
            raise ConfigError(f"at least one request must be under way at a time, got {workers}")
        self.model, self.asking, self.workers = model, asking, workers
        self.modes = tuple(f"plain/{decoding}" for decoding in asking.decodings)
        self._transport = Transport(url, os.environ.get(KEY_VARIABLE), **limits)
        self.about = {"kind": "endpoint", "name": model, "url": self._transport.url, **asdict(asking), "vcd": None}
        self._dropped: set[str] = set()
        self._tokens = "max_tokens"

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Runs in a thread of its own, because a notebook has one running already."""
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        return loop

    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        """One request for each picture and decoding."""
        # PNG: another JPEG compression would be one more augmentation
        urls = [f"data:image/png;base64,{base64.b64encode(png_bytes(image)).decode()}" for image in images]
        waiting = asyncio.run_coroutine_threadsafe(self._all(urls, question, key), self._loop)
        try:
            return waiting.result()
        except BaseException:  # Ctrl-C too: what is under way is not waited for
            waiting.cancel()
            raise

    async def _all(self, urls: Sequence[str], question: str, key: str) -> Replies:
        free = asyncio.Semaphore(self.workers)
        try:
            async with asyncio.TaskGroup() as group:  # an error that would meet every request ends the others
                asked = {
                    mode: [
                        group.create_task(self._one(free, mode, url, question, f"{key}/{k}"))
                        for k, url in enumerate(urls)
                    ]
                    for mode in self.modes
                }
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return {mode: [task.result() for task in tasks] for mode, tasks in asked.items()}

    async def _one(self, free: asyncio.Semaphore, mode: str, url: str, question: str, key: str) -> Reply:
        async with free:
            while True:
                body = self._body(mode, url, question, key)
                try:
                    return self._reply(await self._transport.post(body))
                except RequestFailed as error:
                    if not (error.status in (400, 422) and self._adapt(str(error), body)):
                        return Reply(error=str(error))

    def _body(self, mode: str, url: str, question: str, key: str) -> dict[str, Any]:
        content = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": question + self.asking.suffix},
        ]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            self._tokens: self.asking.max_new_tokens,
            "temperature": self.asking.temperature if mode == "plain/sample" else 0,
            "seed": int(stream(self.asking.seed, key).integers(2**31)),
            "logprobs": True,
            "top_logprobs": 20,  # the most that the interface lists
        }
        return {name: value for name, value in body.items() if name not in self._dropped}

    def _adapt(self, complaint: str, sent: dict[str, Any]) -> bool:
        """Leave out or rename what this server does not take; whether the request, as it was sent, can do without."""
        if "max_completion_tokens" in complaint and "max_tokens" in sent:
            self._tokens = "max_completion_tokens"
            return True
        for word, names in _OPTIONAL.items():
            if word in complaint and names[0] in sent:
                self._dropped.update(names)
                return True
        return False

    def _reply(self, answer: dict[str, Any]) -> Reply:
        """Text and margin of a chat completion; an answer without text is an error."""
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"]
        except (KeyError, IndexError, TypeError):
            return Reply(error="the answer has no choices[0].message.content")
        if not isinstance(text, str):
            reason = choice.get("finish_reason") or choice["message"].get("refusal") or "no reason given"
            return Reply(error=self._transport.line(f"the answer has no text ({reason})"))
        try:
            listed = choice["logprobs"]["content"][0]["top_logprobs"]
            margin = listed_margin((item["token"], item["logprob"]) for item in listed)
            margin = None if margin is None or not math.isfinite(margin) else margin
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
            margin = None
        mask = self._transport.mask
        return Reply(text.strip() if mask.placeholder else mask(text.strip()), margin)
