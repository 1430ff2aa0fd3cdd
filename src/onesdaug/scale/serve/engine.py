"""The networks behind the service: images of several requests in, the views and features of each out.

Answers are put together per request from rows that carry its number: nothing is shared between requests but the
forward passes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from onesdaug.errors import ImageError, OnesdaugError
from onesdaug.scale.serve.settings import Networks

if TYPE_CHECKING:
    from PIL import Image

    from onesdaug.augment.operator import Row


@dataclass(frozen=True)
class Ask:
    """One image of a request, as its file's bytes."""

    data: bytes
    k: int
    seed: int
    features: bool = False  # of the image and its views, instead of the views
    until: float = float("inf")  # seconds since 1970: afterwards nobody waits for the answer


@dataclass(frozen=True)
class Answer:
    """What became of it: PNGs of the views, or features (1+K, d); else an HTTP status and why."""

    views: tuple[bytes, ...] = ()
    features: np.ndarray | None = None
    digest: str = ""
    size: tuple[int, int] = (0, 0)
    batch: int = 1  # images that were worked on together
    problem: tuple[int, str] | None = None


@dataclass
class _Work:
    """An image being answered."""

    ask: Ask
    image: Image.Image
    digest: str
    views: list[Image.Image] = field(default_factory=list)


class Engine:
    """Loaded once in each replica."""

    def __init__(self, networks: Networks) -> None:
        from onesdaug.augment.operator import Augmenter
        from onesdaug.common.devices import pick_device
        from onesdaug.encoders.load import load_encoder

        self.augmenter = Augmenter.from_pretrained(networks.model, preset=networks.preset, device=networks.device)
        spec = networks.encoder
        self.encoder = None if spec is None else load_encoder(spec, pick_device(networks.device))

    def about(self) -> dict[str, str]:
        """What answers, for people."""
        return {
            "generator": self.augmenter.fingerprint,
            "settings": self.augmenter.summary(),
            "encoder": "" if self.encoder is None else self.encoder.fingerprint,
            "device": str(self.augmenter.device),
        }

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """An answer for each, in order."""
        answers: dict[int, Answer] = {}
        works: dict[int, _Work] = {}
        for number, ask in enumerate(asks):
            found = self._opened(ask)
            if isinstance(found, Answer):
                answers[number] = found
            else:
                works[number] = found
        try:
            self._draw(list(works.values()))
            answers |= {number: self._answer(work) for number, work in works.items()}
        except Exception:  # one of them cannot be drawn: each alone, so that it costs only itself
            answers |= {number: self._alone(work) for number, work in works.items()}
        return [replace(answers[number], batch=len(asks)) for number in range(len(asks))]

    def _opened(self, ask: Ask) -> _Work | Answer:
        from onesdaug.augment.seeds import image_digest
        from onesdaug.data.images import decode_image

        if time.time() > ask.until:
            return Answer(problem=(504, "the deadline passed while the request waited"))
        try:
            image = decode_image(ask.data, "the image")
        except ImageError as error:
            return Answer(problem=(422, str(error)))
        return _Work(ask, image, image_digest(image))

    def _draw(self, works: Sequence[_Work]) -> None:
        from onesdaug.augment.operator import Row

        for work in works:
            work.views.clear()
        rows: list[tuple[_Work, Row]] = [
            (work, Row(work.image, number, work.ask.seed, digest=work.digest))
            for work in works
            for number in range(1, work.ask.k + 1)
        ]
        made = self.augmenter.run([row for _, row in rows]) if rows else []
        for (work, _), view in zip(rows, made, strict=True):
            work.views.append(view.image)

    def _answer(self, work: _Work) -> Answer:
        from onesdaug.data.pixels import to_tensor
        from onesdaug.jobs.files import png_bytes

        if not work.ask.features:
            pngs = tuple(png_bytes(view) for view in work.views)
            return Answer(pngs, None, work.digest, work.image.size)
        if self.encoder is None:
            return Answer(problem=(501, "this service was started without --encoder: it draws, but does not classify"))
        pictures = [to_tensor(image) for image in (work.image, *work.views)]
        return Answer((), self.encoder.embed(pictures).cpu().numpy(), work.digest, work.image.size)

    def _alone(self, work: _Work) -> Answer:
        try:
            self._draw([work])
            return self._answer(work)
        except Exception as error:
            what = str(error) if isinstance(error, OnesdaugError) else f"{type(error).__name__}: {error}"
            return Answer(problem=(422, f"this image cannot be drawn: {what}"))
