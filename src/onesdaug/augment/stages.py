"""Stages 1 to 3 on tensors: x_geom = T(x), z = Noi(x_geom), view = Den(z; x), for one batch of rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.fit import Geometry, Pictures, to_square
from onesdaug.augment.guidance import guided, guided_steps
from onesdaug.augment.seeds import Seed, normal, stream, upload
from onesdaug.augment.solvers import Table, denoise, table
from onesdaug.errors import ConfigError
from onesdaug.generators.base import Generator, Predictor


@dataclass(frozen=True)
class Task:
    """A row on its way through the stages: which image of the batch, its own seed, k and scale."""

    image: int
    seed: Seed
    k: int
    image_scale: float


@dataclass(frozen=True)
class Drawn:
    """The outcome of one batch, a row per task: squares from the generator, the tweaked canvases, the tweaks."""

    squares: Pictures
    canvases: Pictures
    psis: np.ndarray | None  # rows of `ShapeTweak.draw`
    finite: torch.Tensor | None = None  # whether all of the generator's numbers are; still on the device


def check_finite(batches: Iterable[torch.Tensor | None]) -> None:
    """A black picture is not a view.

    Asked once for all batches of a call, because the answer has to be waited for: until then the host prepares the
    next batch while the device still works on the last.
    """
    flags = [flag for flag in batches if flag is not None]
    if flags and not torch.stack(flags).all():
        raise ConfigError(
            "the generator returned NaN or infinity; try dtype float32, or a lower guidance or image scale"
        )


class Stages:
    """The operator's settings made ready: what is run is known before the first batch."""

    def __init__(self, generator: Generator | None, config: AugmentConfig, device: torch.device) -> None:
        self.generator, self.config, self.device = generator, config, device
        self.table: Table | None = None
        self.guided: list[bool] = []
        self._t = torch.zeros(0)
        if generator is not None:
            c = config
            self.table = table(generator.schedule, c.solver, c.steps, c.noise_level, c.noise_map)
            # without condition and prompt both sides of guidance are the same: nothing to guide with
            guidance = c.guidance if c.condition or c.prompt else 1.0
            self.guided = guided_steps(self.table.t, len(generator.schedule), guidance, c.guidance_interval)
            self._t = torch.from_numpy(self.table.t).to(device)
            self._check_abilities(generator)

    @torch.no_grad()
    def draw(self, canvases: Pictures, geos: Sequence[Geometry], tasks: Sequence[Task]) -> Drawn:
        """Stages 1 to 3 for one batch of tasks over images with these canvases; `check_finite` is the caller's."""
        canvases = canvases.to(self.device)
        images = np.array([task.image for task in tasks])
        tweaks, psis = self._tweak(canvases, geos, tasks, images)
        squares = _squares(tweaks, geos, images)
        if self.generator is None or self.table is None:
            return Drawn(squares, tweaks, psis)
        z = self._noised(self.generator, self.table, squares.dense(), tasks)
        positive, negative, scale = self._tokens(self.generator, canvases, geos, tasks, images)
        predict = guided(
            self._predictor(self.generator), self._t, positive, negative, scale, self.config.guidance, self.guided
        )
        streams = _streams(tasks, "solver") if self.table.s.any() else []  # most solvers add no noise
        z = denoise(predict, z, self.table, lambda _: upload(normal(streams, z.shape[1:]), z.device))
        out = self.generator.decode(z).float()
        return Drawn(Pictures.of(out), tweaks, psis, torch.isfinite(out).all())

    def _tweak(
        self, canvases: Pictures, geos: Sequence[Geometry], tasks: Sequence[Task], images: np.ndarray
    ) -> tuple[Pictures, np.ndarray | None]:
        """Stage 1: x_geom = T_psi(x), in one warp per canvas shape (a single one unless fit is crop)."""
        rows, shape = canvases.take(images), self.config.shape
        if shape is None:
            return rows, None
        psis = shape.draw(_streams(tasks, "shape"))
        return rows.each(lambda part, at: shape.apply(part, psis[at], [geos[i].aspect for i in images[at]])), psis

    def _noised(self, generator: Generator, rows: Table, x: torch.Tensor, tasks: Sequence[Task]) -> torch.Tensor:
        """Stage 2: q(· | x_geom) at t0, in the latent or (the paper's equation) in the pixels before encoding."""
        streams = _streams(tasks, "noise")
        if self.config.noise_space == "pixel":
            pixels = 2 * x - 1
            noisy = generator.schedule.add_noise(pixels, upload(normal(streams, x.shape[1:]), x.device), rows.t0)
            return generator.encode((noisy + 1) / 2)
        z = generator.encode(x)
        return generator.schedule.add_noise(z, upload(normal(streams, z.shape[1:]), z.device), rows.t0)

    def _tokens(
        self,
        generator: Generator,
        canvases: Pictures,
        geos: Sequence[Geometry],
        tasks: Sequence[Task],
        images: np.ndarray,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Condition rows, the negative rows if guidance is ever on, and the image scale of each row.

        Tokens are made once per image and shared by its views; no cache outlives the batch, so that a batch's result
        depends on nothing but the batch.
        """
        text: dict[str, Any] = {"prompt": self.config.prompt} if self.config.prompt else {}
        if self.config.condition and any(task.image_scale > 0 for task in tasks):
            used, places = np.unique(images, return_inverse=True)
            asked = {**text, "mode": self.config.mode} if self.config.mode else text
            tokens = generator.image_tokens(_squares(canvases.take(used), geos, used).dense(), **asked)
            positive = tokens.index_select(0, upload(places, tokens.device))
            scale = upload(np.array([task.image_scale for task in tasks], dtype=np.float32), self.device)
        else:
            positive = generator.null_tokens(len(tasks), **text)
            scale = torch.zeros(len(tasks), device=self.device)
        return positive, generator.null_tokens(len(tasks)) if any(self.guided) else None, scale

    def _predictor(self, generator: Generator) -> Predictor:
        if self.config.attention == "decoupled":
            return generator.predict
        return partial(generator.predict, attention=self.config.attention)  # type: ignore[call-arg]

    def _check_abilities(self, generator: Generator) -> None:
        """Say at once, not in the middle of a job, that a generator cannot do what the settings ask."""
        if self.config.prompt and "prompt" not in inspect.signature(generator.image_tokens).parameters:
            raise ConfigError("this generator takes no text prompt; leave `prompt` empty")
        if self.config.mode and "mode" not in inspect.signature(generator.image_tokens).parameters:
            raise ConfigError(
                f"this generator knows one kind of condition, not mode {self.config.mode!r}: that setting, and the "
                "presets whose names begin with pocket, are for the pocket generators"
            )
        if self.config.attention != "decoupled" and "attention" not in inspect.signature(generator.predict).parameters:
            raise ConfigError(f"this generator has one kind of attention; it cannot do {self.config.attention!r}")


def _streams(tasks: Sequence[Task], stage: str) -> list[np.random.Generator]:
    return [stream(task.seed, task.k, stage) for task in tasks]


def _squares(pictures: Pictures, geos: Sequence[Geometry], images: np.ndarray) -> Pictures:
    """`to_square` of rows of these images; canvases of one size have one window, so the first row speaks for all.

    Copied where it is cut out of a larger canvas: networks may round differently on strided rows.
    """
    return pictures.each(lambda part, rows: to_square(part, geos[images[rows[0]]]).contiguous())
