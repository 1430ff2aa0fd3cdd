"""The 1S-DAug operator A(x) = Den(Noi(T(x)); x): one image in, K class-faithful views out."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.config import preset as named_preset
from onesdaug.augment.fit import Geometry, from_square, geometry, resize, to_canvas, to_square
from onesdaug.augment.guidance import guided, guided_steps
from onesdaug.augment.memory import is_out_of_memory, peak_memory_mb, reset_peak_memory
from onesdaug.augment.seeds import Seed, image_digest, image_seed, normal, stream, tensor_digests
from onesdaug.augment.shape import Psi
from onesdaug.augment.solvers import Table, denoise, table
from onesdaug.data.images import load_image
from onesdaug.data.pixels import check_batch, to_pil
from onesdaug.errors import ConfigError
from onesdaug.generators.base import Generator, Predictor
from onesdaug.generators.machine import pick_device

log = logging.getLogger("onesdaug")
ImageLike = Image.Image | str | Path | np.ndarray | torch.Tensor
_SHAPE_SIDE = 512  # working size of the geometry-only operator
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One view to be made: the k-th (from 1) of an RGB image, with the user's seed and, if wished, its own scale."""

    image: Image.Image
    k: int
    seed: Seed = 0
    image_scale: float | None = None
    digest: str | None = None  # of the image, where it is known already


@dataclass(frozen=True)
class View:
    """One view made, with everything needed to make it again and what it cost."""

    image: Image.Image
    tweaked: Image.Image | None
    k: int
    seed: Seed
    psi: Psi | None
    t0: int
    steps_run: int
    seconds: float
    peak_memory_mb: float


@dataclass(frozen=True)
class _Task:
    """A row on its way through the stages: which image of the batch, its own seed, k and scale."""

    image: int
    seed: Seed
    k: int
    image_scale: float


@dataclass(frozen=True)
class _Drawn:
    """The outcome of one batch, a row per task: squares from the generator, the tweaked canvases, the tweaks."""

    squares: torch.Tensor
    canvases: list[torch.Tensor]
    psis: list[Psi] | None


class Augmenter:
    """Makes views with a generator; with `generator=None` the operator stops after stage 1 (geometry only)."""

    def __init__(
        self,
        generator: Generator | None,
        config: AugmentConfig | None = None,
        *,
        batch_size: int | None = None,
        device: str | torch.device | None = None,
        side: int | None = None,
    ) -> None:
        self.generator = generator
        self.config = config or AugmentConfig()
        self.device = torch.device(device) if device is not None else getattr(generator, "device", torch.device("cpu"))
        self.batch_size = batch_size or (16 if self.device.type != "cpu" else 4)
        self.side = generator.size if generator is not None else side or _SHAPE_SIDE
        self.fingerprint = "shape" if generator is None else _fingerprint(generator)
        self.table: Table | None = None
        if generator is not None:
            c = self.config
            self.table = table(generator.schedule, c.solver, c.steps, c.noise_level, c.noise_map)
            # without condition and prompt both sides of guidance are the same: nothing to guide with
            guidance = c.guidance if c.condition or c.prompt else 1.0
            self._guided = guided_steps(self.table.t, len(generator.schedule), guidance, c.guidance_interval)
            self._check_abilities(generator)
        self._told_of_memory = False

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = "sd15",
        *,
        config: AugmentConfig | None = None,
        preset: str | None = None,
        ip_adapter: bool = True,
        ip_repo: str | Path = "h94/IP-Adapter",
        ip_weights: str | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        batch_size: int | None = None,
        vae_tiling: bool = False,
        vae_slicing: bool = False,
    ) -> Augmenter:
        """`sd15`, a hub id, a local folder in diffusers format, or `shape` (geometry only: no weights)."""
        if config is not None and preset is not None:
            raise ConfigError("give either config or preset, not both")
        config = config or named_preset(preset or "paper")
        if str(name) == "shape":
            if config.shape is None:
                raise ConfigError("model 'shape' makes views by the shape tweak alone, and the shape tweak is off")
            return cls(None, config, batch_size=batch_size, device=pick_device(device))
        from onesdaug.generators.stable_diffusion import REPO, StableDiffusion

        generator = StableDiffusion.from_pretrained(
            REPO if str(name) == "sd15" else name,
            ip_adapter_repo=ip_repo if ip_adapter else None,
            ip_weights=ip_weights,
            device=device,
            dtype=dtype,
            vae_tiling=vae_tiling,
            vae_slicing=vae_slicing,
        )
        if not ip_adapter:
            config = config.model_copy(update={"condition": False})
        return cls(generator, config, batch_size=batch_size)

    def __call__(
        self, images: ImageLike | Sequence[ImageLike], k: int = 3, seed: Seed = 0
    ) -> list[Image.Image] | list[list[Image.Image]]:
        """K views of an image (a list of K), or of each image of a list (a list of such lists)."""
        single = isinstance(images, (Image.Image, str, Path, np.ndarray, torch.Tensor))
        sources = [load_image(i) for i in ([images] if single else images)]  # type: ignore[union-attr]
        views = self.run([Row(image, n, seed) for image in sources for n in _numbers(k)])
        grouped = [[v.image for v in views[i * k : (i + 1) * k]] for i in range(len(sources))]
        return grouped[0] if single else grouped

    def run(self, rows: Sequence[Row], tweaked: bool = False) -> list[View]:
        """One view per row, in order; `tweaked` also returns T(x). Mixed images share batches."""
        return [
            view for chunk in self._chunks(list(rows), partial(self._run_chunk, tweaked=tweaked)) for view in chunk
        ]

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
        check_batch(batch)
        count, (height, width) = batch.shape[0], batch.shape[-2:]
        if seeds is None:
            seeds = [image_seed(seed, digest) for digest in tensor_digests(batch)]
        scales = [self.config.image_scale] * count if image_scale is None else list(image_scale)
        if len(seeds) != count or len(scales) != count:
            raise ConfigError(f"{count} images need {count} seeds and scales, got {len(seeds)} and {len(scales)}")
        if not all(0 <= scale < float("inf") for scale in scales):
            raise ConfigError(f"image scales must be finite and not negative, got {scales}")
        geo = geometry(height, width, self.side, self.config.fit)
        canvases = to_canvas(batch.to(self.device, torch.float32), geo)
        tasks = [_Task(i, seeds[i], n, scales[i]) for i in range(count) for n in _numbers(k)]

        def make(chunk: list[_Task]) -> torch.Tensor:
            used = sorted({task.image for task in chunk})
            moved = [replace(task, image=used.index(task.image)) for task in chunk]
            drawn = self._draw([canvases[i] for i in used], [geo] * len(used), moved)
            views = from_square(drawn.squares, torch.stack(drawn.canvases), geo)
            return torch.as_tensor(resize(views, height, width)).to(batch.device)

        parts = self._chunks(tasks, make)
        if not parts:
            return batch.new_zeros((count, k, 3, height, width), dtype=torch.float32)
        return torch.cat(parts).reshape(count, k, 3, height, width)

    def summary(self) -> str:
        """What will really be run, in one line."""
        c = self.config
        if self.generator is None or self.table is None:
            return "shape tweak only (no generator)"
        t0, std = self.table.t0, self.generator.schedule.noise_std(self.table.t0)
        calls = len(self.table) + sum(self._guided)
        return (
            f"{c.solver}, noise level {c.noise_level:g} ({c.noise_map}) → enters at t={t0} (noise std {std:.2f}), "
            f"{len(self.table)} of {c.steps} steps run, {calls} network rows per view"
        )

    # -- one batch ------------------------------------------------------------------------------------------------

    def _run_chunk(self, rows: list[Row], tweaked: bool) -> list[View]:
        started = time.perf_counter()
        reset_peak_memory(self.device)
        images: dict[int, int] = {}  # id of an image object → its place in this batch
        for row in rows:
            images.setdefault(id(row.image), len(images))
        unique = {images[id(row.image)]: row.image for row in rows}
        geos = [geometry(im.height, im.width, self.side, self.config.fit) for im in unique.values()]
        canvases = [to_canvas(im, geo) for im, geo in zip(unique.values(), geos, strict=True)]
        known = {images[id(row.image)]: row.digest for row in rows}
        digests = [known[place] or image_digest(im) for place, im in unique.items()]
        tasks = [
            _Task(
                place,
                image_seed(row.seed, digests[place]),
                row.k,
                self.config.image_scale if row.image_scale is None else row.image_scale,
            )
            for row in rows
            for place in [images[id(row.image)]]
        ]
        drawn = self._draw(canvases, geos, tasks)
        squares, tweaks = drawn.squares.cpu(), [canvas.cpu() for canvas in drawn.canvases]
        seconds = (time.perf_counter() - started) / len(rows)
        memory = peak_memory_mb(self.device)
        views = []
        for i, (row, task) in enumerate(zip(rows, tasks, strict=True)):
            geo = geos[task.image]
            views.append(
                View(
                    image=_finish(from_square(squares[i], tweaks[i], geo), geo),
                    tweaked=_finish(from_square(to_square(tweaks[i], geo), tweaks[i], geo), geo) if tweaked else None,
                    k=row.k,
                    seed=row.seed,
                    psi=drawn.psis[i] if drawn.psis is not None else None,
                    t0=self.table.t0 if self.table is not None else 0,
                    steps_run=len(self.table) if self.table is not None else 0,
                    seconds=seconds,
                    peak_memory_mb=memory,
                )
            )
        return views

    @torch.no_grad()
    def _draw(self, canvases: list[torch.Tensor], geos: list[Geometry], tasks: list[_Task]) -> _Drawn:
        """Stages 1 to 3 for one batch of tasks over the images whose canvases are given."""
        canvases = [canvas.to(self.device, torch.float32) for canvas in canvases]
        tweaks, psis = self._tweak(canvases, geos, tasks)
        x = torch.stack([to_square(tweak, geos[task.image]) for tweak, task in zip(tweaks, tasks, strict=True)])
        if self.generator is None or self.table is None:
            return _Drawn(x, tweaks, psis)
        z = self._noised(self.generator, self.table, x, tasks)
        positive, negative, scale = self._tokens(self.generator, canvases, geos, tasks)
        predict = guided(
            self._predictor(self.generator),
            torch.from_numpy(self.table.t).to(self.device),
            positive,
            negative,
            scale,
            self.config.guidance,
            self._guided,
        )
        streams = [stream(task.seed, task.k, "solver") for task in tasks]
        z = denoise(predict, z, self.table, lambda _: normal(streams, z.shape[1:]).to(z.device))
        out = self.generator.decode(z).float()
        if not torch.isfinite(out).all():  # the batch's only host sync; a black picture is not a view
            raise ConfigError(
                "the generator returned NaN or infinity; try dtype float32, or a lower guidance or image scale"
            )
        return _Drawn(out, tweaks, psis)

    def _tweak(
        self, canvases: list[torch.Tensor], geos: list[Geometry], tasks: list[_Task]
    ) -> tuple[list[torch.Tensor], list[Psi] | None]:
        """Stage 1: x_geom = T_psi(x), in one warp per canvas shape (a single one unless fit is crop)."""
        shape = self.config.shape
        if shape is None:
            return [canvases[task.image] for task in tasks], None
        psis = [shape.sample(stream(task.seed, task.k, "shape")) for task in tasks]
        groups: dict[torch.Size, list[int]] = {}
        for i, task in enumerate(tasks):
            groups.setdefault(canvases[task.image].shape, []).append(i)
        out: list[torch.Tensor] = [canvases[0]] * len(tasks)
        for members in groups.values():
            rows = torch.stack([canvases[tasks[i].image] for i in members])
            warped = shape.apply(rows, [psis[i] for i in members], [geos[tasks[i].image].aspect for i in members])
            for i, row in zip(members, warped, strict=True):
                out[i] = row
        return out, psis

    def _noised(self, generator: Generator, rows: Table, x: torch.Tensor, tasks: list[_Task]) -> torch.Tensor:
        """Stage 2: q(· | x_geom) at t0, in the latent or (the paper's equation) in the pixels before encoding."""
        streams = [stream(task.seed, task.k, "noise") for task in tasks]
        if self.config.noise_space == "pixel":
            pixels = 2 * x - 1
            noisy = generator.schedule.add_noise(pixels, normal(streams, x.shape[1:]).to(x.device), rows.t0)
            return generator.encode((noisy + 1) / 2)
        z = generator.encode(x)
        return generator.schedule.add_noise(z, normal(streams, z.shape[1:]).to(z.device), rows.t0)

    def _tokens(
        self, generator: Generator, canvases: list[torch.Tensor], geos: list[Geometry], tasks: list[_Task]
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Condition rows, the negative rows if guidance is ever on, and the image scale of each row.

        Tokens are made once per image and shared by its views; no cache outlives the batch, so that a batch's result
        depends on nothing but the batch.
        """
        text: dict[str, Any] = {"prompt": self.config.prompt} if self.config.prompt else {}
        if self.config.condition and any(task.image_scale > 0 for task in tasks):
            originals = torch.stack([to_square(canvas, geo) for canvas, geo in zip(canvases, geos, strict=True)])
            positive = generator.image_tokens(originals, **text)[[task.image for task in tasks]]
            scale = torch.tensor([task.image_scale for task in tasks], dtype=torch.float32, device=self.device)
        else:
            positive = generator.null_tokens(len(tasks), **text)
            scale = torch.zeros(len(tasks), device=self.device)
        return positive, generator.null_tokens(len(tasks)) if any(self._guided) else None, scale

    def _predictor(self, generator: Generator) -> Predictor:
        if self.config.attention == "decoupled":
            return generator.predict
        return partial(generator.predict, attention=self.config.attention)  # type: ignore[call-arg]

    def _chunks(self, items: list[T], make: Callable[[list[T]], Any]) -> list[Any]:
        """`make` over batches of at most batch_size; out of memory halves the batch and the run goes on."""
        out: list[Any] = []
        start = 0
        while start < len(items):
            chunk = items[start : start + self.batch_size]
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

    def _check_abilities(self, generator: Generator) -> None:
        """Say at once, not in the middle of a job, that a generator cannot do what the settings ask."""
        if self.config.prompt and "prompt" not in inspect.signature(generator.image_tokens).parameters:
            raise ConfigError("this generator takes no text prompt; leave `prompt` empty")
        if self.config.attention != "decoupled" and "attention" not in inspect.signature(generator.predict).parameters:
            raise ConfigError(f"this generator has one kind of attention; it cannot do {self.config.attention!r}")


def _numbers(k: int) -> range:
    if k < 0:
        raise ConfigError(f"k, the number of views, must not be negative, got {k}")
    return range(1, k + 1)


def _finish(view: torch.Tensor, geo: Geometry) -> Image.Image:
    return resize(to_pil(view[None])[0], *geo.image)  # type: ignore[return-value]


def _fingerprint(generator: Generator) -> str:
    """The generator's own, or the class's name: cache keys of a home-made one without a fingerprint rest on that."""
    return str(getattr(generator, "fingerprint", "") or f"{type(generator).__module__}.{type(generator).__qualname__}")
