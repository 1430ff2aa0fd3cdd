"""Stages 1 to 3 on tensors: x_geom = T(x), z = Noi(x_geom), view = Den(z; x), for one batch of rows."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.fit import Geometry, to_square
from onesdaug.augment.guidance import guided, guided_steps
from onesdaug.augment.seeds import Seed, normal, stream
from onesdaug.augment.shape import Psi
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

    squares: torch.Tensor | list[torch.Tensor]  # geometry alone: a list, sizes may differ
    canvases: list[torch.Tensor]
    psis: list[Psi] | None


class Stages:
    """The operator's settings made ready: what is run is known before the first batch."""

    def __init__(self, generator: Generator | None, config: AugmentConfig, device: torch.device) -> None:
        self.generator, self.config, self.device = generator, config, device
        self.table: Table | None = None
        self.guided: list[bool] = []
        if generator is not None:
            c = config
            self.table = table(generator.schedule, c.solver, c.steps, c.noise_level, c.noise_map)
            # without condition and prompt both sides of guidance are the same: nothing to guide with
            guidance = c.guidance if c.condition or c.prompt else 1.0
            self.guided = guided_steps(self.table.t, len(generator.schedule), guidance, c.guidance_interval)
            self._check_abilities(generator)

    @torch.no_grad()
    def draw(self, canvases: list[torch.Tensor], geos: list[Geometry], tasks: list[Task]) -> Drawn:
        """Stages 1 to 3 for one batch of tasks over the images whose canvases are given."""
        canvases = [canvas.to(self.device, torch.float32) for canvas in canvases]
        tweaks, psis = self._tweak(canvases, geos, tasks)
        squares = [to_square(tweak, geos[task.image]) for tweak, task in zip(tweaks, tasks, strict=True)]
        if self.generator is None or self.table is None:
            return Drawn(squares, tweaks, psis)
        x = torch.stack(squares)
        z = self._noised(self.generator, self.table, x, tasks)
        positive, negative, scale = self._tokens(self.generator, canvases, geos, tasks)
        predict = guided(
            self._predictor(self.generator),
            torch.from_numpy(self.table.t).to(self.device),
            positive,
            negative,
            scale,
            self.config.guidance,
            self.guided,
        )
        streams = [stream(task.seed, task.k, "solver") for task in tasks]
        z = denoise(predict, z, self.table, lambda _: normal(streams, z.shape[1:]).to(z.device))
        out = self.generator.decode(z).float()
        if not torch.isfinite(out).all():  # the batch's only host sync; a black picture is not a view
            raise ConfigError(
                "the generator returned NaN or infinity; try dtype float32, or a lower guidance or image scale"
            )
        return Drawn(out, tweaks, psis)

    def _tweak(
        self, canvases: list[torch.Tensor], geos: list[Geometry], tasks: list[Task]
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

    def _noised(self, generator: Generator, rows: Table, x: torch.Tensor, tasks: list[Task]) -> torch.Tensor:
        """Stage 2: q(· | x_geom) at t0, in the latent or (the paper's equation) in the pixels before encoding."""
        streams = [stream(task.seed, task.k, "noise") for task in tasks]
        if self.config.noise_space == "pixel":
            pixels = 2 * x - 1
            noisy = generator.schedule.add_noise(pixels, normal(streams, x.shape[1:]).to(x.device), rows.t0)
            return generator.encode((noisy + 1) / 2)
        z = generator.encode(x)
        return generator.schedule.add_noise(z, normal(streams, z.shape[1:]).to(z.device), rows.t0)

    def _tokens(
        self, generator: Generator, canvases: list[torch.Tensor], geos: list[Geometry], tasks: list[Task]
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
        return positive, generator.null_tokens(len(tasks)) if any(self.guided) else None, scale

    def _predictor(self, generator: Generator) -> Predictor:
        if self.config.attention == "decoupled":
            return generator.predict
        return partial(generator.predict, attention=self.config.attention)  # type: ignore[call-arg]

    def _check_abilities(self, generator: Generator) -> None:
        """Say at once, not in the middle of a job, that a generator cannot do what the settings ask."""
        if self.config.prompt and "prompt" not in inspect.signature(generator.image_tokens).parameters:
            raise ConfigError("this generator takes no text prompt; leave `prompt` empty")
        if self.config.attention != "decoupled" and "attention" not in inspect.signature(generator.predict).parameters:
            raise ConfigError(f"this generator has one kind of attention; it cannot do {self.config.attention!r}")
