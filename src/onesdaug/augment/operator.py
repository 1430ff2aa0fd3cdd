"""The 1S-DAug operator A(x) = Den(Noi(T(x)); x): one image in, K views out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from onesdaug.augment.batch import PendingBatch, Row, View, finish, launcher, prepare
from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.config import preset as named_preset
from onesdaug.augment.fit import Pictures, from_square, geometry, resize, to_canvas, to_square
from onesdaug.augment.presets import check_preset
from onesdaug.augment.seeds import Seed, row_seeds
from onesdaug.augment.solvers import StepTable
from onesdaug.augment.source import ViewSource, find_source
from onesdaug.augment.stages import Memo, RowTask, Stages, check_finite
from onesdaug.common.devices import is_out_of_memory, peak_memory_mb, pick_device, reset_peak_memory
from onesdaug.common.options import IP_REPO
from onesdaug.common.progress import log
from onesdaug.data.images import load_image
from onesdaug.data.pixels import check_batch
from onesdaug.errors import ConfigError
from onesdaug.generators.base import Generator, ShapeOnly
from onesdaug.generators.load import default_preset, faithful_preset, load_generator
from onesdaug.generators.speed import Compile

__all__ = ["Augmenter", "ImageLike", "Row", "View", "default_preset", "faithful_preset"]

ImageLike = Image.Image | str | Path | np.ndarray | torch.Tensor
T = TypeVar("T")
CPU_BATCH = 4  # images at once where more of them gain nothing
_NATIVE_PIXELS = 1 << 22  # in a batch that works at the images' own size


class Augmenter(ViewSource):
    """Makes views with a generator; with `generator=None` the operator stops after stage 1 (geometry only).

    Geometry alone works on images at their own size, unless `side` asks for the square of some generator.
    """

    def __init__(
        self,
        generator: Generator | None,
        config: AugmentConfig | None = None,
        *,
        batch_size: int | None = None,
        device: str | torch.device | None = None,
        side: int | None = None,
    ) -> None:
        if generator is not None and not isinstance(generator, Generator):
            raise ConfigError(f"generator={generator!r} is no onesdaug.Generator; make its class a subclass of it")
        self.generator = generator
        self.config = config or AugmentConfig()
        own = ShapeOnly if generator is None else generator
        self.device = own.device if device is None else torch.device(device)
        # what a GPU takes at once is the generator's to know; the CPU is busy with four
        self.batch_size = batch_size or (own.batch_size if self.device.type != "cpu" else CPU_BATCH)
        self.side = side if generator is None else generator.size
        self.fingerprint = "shape" if generator is None else generator.identity
        self.config.check_generator(self.fingerprint)
        self.stages = Stages(generator, self.config, self.device)
        # so many batches of `run` may be under way at once: on a GPU one is computed, the next is launched already,
        # and another is prepared or finished
        self.overlap = 3 if generator is not None and self.device.type != "cpu" else 1
        self._cost_lock, self._done = Lock(), 0.0
        self._told_of_memory = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew from what it was made of: pickles and copies, as workers get them, have locks of their own."""
        made = partial(type(self), batch_size=self.batch_size, device=self.device, side=self.side)
        return made, (self.generator, self.config)

    def __repr__(self) -> str:
        name = "" if self.generator is None else f"{type(self.generator).__name__}, "
        return f"Augmenter({name}{self.summary()}, device={self.device})"

    @property
    def table(self) -> StepTable | None:
        """The solver's rows that are run; None without a generator."""
        return self.stages.table

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path | Generator = "pocket",
        *,
        config: AugmentConfig | None = None,
        preset: str | None = None,
        ip_adapter: bool = True,
        ip_repo: str | Path = IP_REPO,
        ip_weights: str | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        batch_size: int | None = None,
        vae_tiling: bool = False,
        vae_slicing: bool = False,
        compile: Compile = "off",
        side: int | None = None,
        decoder: str | Path | None = None,
    ) -> Augmenter:
        """A registered generator (`pocket` is embedded, `shape` is geometry alone), a folder, a hub id, or your own.

        A folder is one in diffusers format, or one that `onesdaug generator train` wrote; your own is named
        `package.module:object`, and may also be a source of views, which has no settings (docs/extend.md). Without a
        preset the views show what the image shows; presets tuned for accuracy are chosen by name (docs/generators.md).
        `compile` gives the same views faster (docs/speed.md); `side` and a tiny `decoder` for the model give others,
        cheaper.
        """
        if config is not None and preset is not None:
            raise ConfigError("give either config or preset, not both")
        own = name if isinstance(name, Generator) else find_source(str(name))
        if isinstance(own, ViewSource):
            from onesdaug.augment.adapter import SourceAugmenter

            return SourceAugmenter(own, str(name))
        if preset is not None:
            check_preset(preset, default_preset(own or name), name)
        config = config or named_preset(preset or faithful_preset(own or name))
        if str(name) == "shape" and config.shape is None:
            raise ConfigError("model 'shape' makes views by the shape tweak alone, and the shape tweak is off")
        generator = load_generator(
            own or name,
            device=device,
            dtype=dtype,
            compile=compile,
            side=side,
            decoder=decoder,
            ip_adapter=ip_adapter,
            ip_repo=ip_repo,
            ip_weights=ip_weights,
            vae_tiling=vae_tiling,
            vae_slicing=vae_slicing,
        )
        if not ip_adapter:
            config = config.model_copy(update={"condition": False})
        return cls(generator, config, batch_size=batch_size, device=None if generator else pick_device(device))

    def __call__(
        self, images: ImageLike | Sequence[ImageLike], k: int = 3, seed: Seed = 0
    ) -> list[Image.Image] | list[list[Image.Image]]:
        """K views of an image (a list of K), or of each image of a list (a list of such lists)."""
        single = isinstance(images, (Image.Image, str, Path, np.ndarray, torch.Tensor))
        sources = [load_image(i) for i in ([images] if single else images)]  # type: ignore[union-attr]
        views = self.run([Row(image, n, seed) for image in sources for n in _numbers(k)])
        grouped = [[v.image for v in views[i * k : (i + 1) * k]] for i in range(len(sources))]
        return grouped[0] if single else grouped

    def pictures(self, images: Sequence[Image.Image], k: int, seed: Seed = 0) -> list[list[Image.Image]]:
        return [list(views) for views in self(list(images), k, seed)]  # type: ignore[arg-type]

    def with_config(self, config: AugmentConfig) -> Augmenter:
        """The same networks with other settings."""
        return Augmenter(self.generator, config, batch_size=self.batch_size)

    @property
    def code(self) -> Any:
        return self if self.generator is None else self.generator

    def describe(self) -> dict[str, Any]:
        return {"config": self.config.model_dump(mode="json"), "generator": self.fingerprint}

    def run(self, rows: Sequence[Row], tweaked: bool = False, noised: bool = False) -> list[View]:
        """One view per row, in order; also T(x) `tweaked` and Noi(T(x)) `noised`. Mixed images share batches."""
        make = partial(self._run_chunk, tweaked=tweaked, noised=noised, memo=Memo())
        largest = max((row.image.width * row.image.height for row in rows), default=0)
        return [view for chunk in self._chunks(list(rows), make, largest) for view in chunk]

    def tensors(
        self,
        batch: torch.Tensor,
        k: int = 3,
        seeds: Sequence[Seed] | None = None,
        seed: Seed = 0,
        image_scale: Sequence[float] | None = None,
    ) -> torch.Tensor:
        """(B, 3, H, W) in [0, 1] → (B, K, 3, H, W) on the same device.

        `seeds` gives each image its own seed; without it they follow from `seed` and the image's content.
        """
        return self._tensors(batch, _numbers(k), seeds, seed, image_scale)

    def nth(self, batch: torch.Tensor, number: int, seeds: Sequence[Seed] | None = None) -> torch.Tensor:
        return self._tensors(batch, range(number, number + 1), seeds)[:, 0]

    def nth_pictures(self, images: Sequence[Image.Image], number: int, seed: Seed = 0) -> list[Image.Image]:
        return [view.image for view in self.run([Row(image, number, seed) for image in images])]

    def _tensors(
        self, batch: torch.Tensor, numbers: range, seeds: Sequence[Seed] | None, seed: Seed = 0,
        image_scale: Sequence[float] | None = None,
    ) -> torch.Tensor:  # fmt: skip
        check_batch(batch)
        count, (height, width) = batch.shape[0], batch.shape[-2:]
        seeds = row_seeds(batch, seed) if seeds is None else seeds
        scales = [self.config.image_scale] * count if image_scale is None else [float(scale) for scale in image_scale]
        if len(seeds) != count or len(scales) != count:
            raise ConfigError(f"{count} images need {count} seeds and scales, got {len(seeds)} and {len(scales)}")
        if not all(0 <= scale < float("inf") for scale in scales):
            raise ConfigError(f"image scales must be finite and not negative, got {scales}")
        geo = geometry(height, width, self.side, self.config.fit)
        k, wanted = len(numbers), [(i, n) for i in range(count) for n in numbers]
        memo = Memo()

        def make(chunk: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor | None]:
            # only this chunk's images come to the device: its memory does not grow with their number
            first, last = chunk[0][0], chunk[-1][0] + 1
            canvases = Pictures.of(to_canvas(batch[first:last].to(self.device, torch.float32), geo))
            tasks = [RowTask(i - first, seeds[i], n, scales[i]) for i, n in chunk]
            memo.names = range(first, last)
            drawn = self.stages.draw(canvases, [geo] * (last - first), tasks, self.batch_size, memo)
            views = from_square(drawn.squares.dense(), drawn.canvases.dense(), geo)
            return torch.as_tensor(resize(views, height, width)).to(batch.device), drawn.finite

        parts = self._chunks(wanted, make, height * width)
        check_finite(finite for _, finite in parts)
        if not parts:
            return batch.new_zeros((count, k, 3, height, width), dtype=torch.float32)
        return torch.cat([views for views, _ in parts]).reshape(count, k, 3, height, width)

    @torch.no_grad()
    def round_trip(self, batch: torch.Tensor) -> torch.Tensor:
        """Dec(Enc(x)) of a (B, 3, H, W) batch: what the autoencoder alone makes of an image."""
        if self.generator is None:
            raise ConfigError("there is no generator, so no autoencoder: a round trip needs one")
        check_batch(batch)
        (height, width), generator = batch.shape[-2:], self.generator
        geo = geometry(height, width, self.side, self.config.fit)

        def make(chunk: list[torch.Tensor]) -> torch.Tensor:
            canvas = to_canvas(torch.stack(chunk).to(self.device, torch.float32), geo)
            square = generator.decode(generator.encode(to_square(canvas, geo).contiguous())).float()
            return torch.as_tensor(resize(from_square(square, canvas, geo), height, width)).to(batch.device)

        parts = self._chunks(list(batch), make)
        return torch.cat(parts) if parts else batch.float()

    def summary(self) -> str:
        """What will really be run, in one line."""
        return self.stages.summary()

    def peak_memory_mb(self) -> float:
        """Of the device since the last reset, with what recorded batches keep; on a CPU of the process."""
        return peak_memory_mb(self.device, self.stages.engine.held_mb)

    def _run_chunk(self, rows: list[Row], tweaked: bool, noised: bool, memo: Memo) -> list[View]:
        """May run in several threads at once: only the device's queue is filled one batch at a time."""
        started, threads = time.perf_counter(), self.overlap > 1
        batch = prepare(rows, self.side, self.config, threads)

        def launch() -> PendingBatch:
            reset_peak_memory(self.device)
            memo.names = batch.names
            drawn = self.stages.draw(batch.canvases, batch.geos, batch.tasks, self.batch_size, memo, noised)
            return PendingBatch(drawn, canvases=tweaked or self.config.fit == "crop")

        made = launcher(self.device).submit(launch).result() if threads else launch()
        made.wait()
        with self._cost_lock:  # time in which the batch before was still on the device is that batch's
            now = time.perf_counter()
            seconds, self._done = (now - max(started, self._done)) / len(rows), now
        return finish(batch, made, (seconds, self.peak_memory_mb()), self.table, tweaked, threads)

    def _chunks(self, items: list[T], make: Callable[[list[T]], Any], pixels: int = 0) -> list[Any]:
        """`make` over batches of at most batch_size; out of memory halves the batch and the run goes on.

        `pixels` are those of the largest image: batches at the images' own size are smaller if that is large.
        """
        at_once = max(1, _NATIVE_PIXELS // max(1, pixels)) if self.side is None else len(items)
        out: list[Any] = []
        start = 0
        while start < len(items):
            chunk = items[start : start + min(self.batch_size, at_once)]
            try:
                out.append(make(chunk))
            except RuntimeError as error:
                if not is_out_of_memory(error) or len(chunk) == 1:
                    raise
                self.batch_size = max(1, len(chunk) // 2)
                if not self._told_of_memory:
                    log.warning("out of memory with a batch of %d: going on with smaller ones", len(chunk))
                self._told_of_memory = True
            else:
                start += len(chunk)
                continue
            reset_peak_memory(self.device, free=True)  # outside the except block, which would keep its frames alive
        return out


def _numbers(k: int) -> range:
    if k < 0:
        raise ConfigError(f"k, the number of views, must not be negative, got {k}")
    return range(1, k + 1)
