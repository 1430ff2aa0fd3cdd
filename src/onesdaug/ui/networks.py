"""The networks behind the page: loaded once, in the background, and used by one visitor at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING

from onesdaug.errors import ConfigError
from onesdaug.ui.settings import UiSettings

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from onesdaug.augment.config import AugmentConfig
    from onesdaug.augment.operator import Augmenter, Row, View
    from onesdaug.encoders.base import Encoder
    from onesdaug.fewshot.heads import Head

Waiting = Callable[[], None]


class Turns:
    """One at a time, in the order they came. Who waits is asked now and then, and may give up by raising."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queue: deque[Event] = deque()

    @contextmanager
    def turn(self, waiting: Waiting) -> Iterator[None]:
        mine = Event()
        with self._lock:
            self._queue.append(mine)
            self._queue[0].set()
        try:
            while not mine.wait(0.2):
                waiting()
            yield
        finally:
            with self._lock:
                self._queue.remove(mine)
                if self._queue:
                    self._queue[0].set()


@dataclass(frozen=True)
class Loaded:
    augmenter: Augmenter
    encoder: Encoder
    head: Head


class Networks:
    """Generator, encoder and head. They are loaded while the page opens; whoever asks first waits for them.

    Other generators are loaded when a visitor first asks for one.
    """

    def __init__(self, settings: UiSettings) -> None:
        self.settings = settings
        self.turns, self.tunings = Turns(), Turns()  # of the networks here; tuning loads its own
        self._loading: Future[Loaded] = ThreadPoolExecutor(1, "onesdaug-load").submit(_load, settings)
        self._others: dict[str, Augmenter] = {}
        self._lock = Lock()

    def loaded(self) -> Loaded:
        return self._loading.result()

    @property
    def models(self) -> list[str]:
        """The page's own generator, then the others whose weights are installed."""
        from onesdaug.common.registry import GENERATORS
        from onesdaug.generators.load import has_weights

        own = self.settings.model
        return [own, *(name for name in GENERATORS if name != own and has_weights(name))]

    def augmenter(self, model: str) -> Augmenter:
        if model == self.settings.model:
            return self.loaded().augmenter
        with self._lock:
            if model not in self._others:
                self._others[model] = _augmenter(model, self.settings.device)
            return self._others[model]

    def draw(self, model: str, config: AugmentConfig, rows: Sequence[Row], waiting: Waiting) -> list[View]:
        """Views by this generator with these settings, in a turn of one's own."""
        augmenter = self.augmenter(model).with_config(config)
        with self.turns.turn(waiting):
            return augmenter.run(rows)

    def look(self, images: Sequence[Image.Image], waiting: Waiting) -> Tensor:
        """The features (N, d) of pictures of any sizes."""
        from onesdaug.data.pixels import to_tensor

        with self.turns.turn(waiting):
            return self.loaded().encoder.embed([to_tensor(image) for image in images]).float().cpu()


def _load(settings: UiSettings) -> Loaded:
    from onesdaug.common.devices import pick_device
    from onesdaug.encoders.load import load_encoder
    from onesdaug.fewshot.heads import build_head, trained_head

    augmenter = _augmenter(settings.model, settings.device)
    encoder = load_encoder(settings.encoder, pick_device(settings.device))
    head = trained_head(settings.encoder) or build_head("protonet", encoder.dim, metric="cosine", temperature=0.1)
    return Loaded(augmenter, encoder, head.eval())


def _augmenter(model: str, device: str) -> Augmenter:
    from onesdaug.augment.operator import Augmenter

    found = Augmenter.from_pretrained(model, device=device)
    if found.generator is None:
        raise ConfigError(f"--model {model} has no generator, and the page shows the stages of one")
    return found
