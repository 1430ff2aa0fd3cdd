"""Stages 1 to 3 on tensors: x_geom = T(x), z = Noi(x_geom), view = Den(z; x), for one batch of rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.engine import Engine, pad
from onesdaug.augment.fit import Geometry, Pictures, to_square
from onesdaug.augment.guidance import guided, guided_steps
from onesdaug.augment.seeds import Seed, normal, stream, upload
from onesdaug.augment.solvers import StepTable, denoise, table
from onesdaug.common.progress import partly
from onesdaug.errors import ConfigError
from onesdaug.generators.base import Generator


@dataclass(frozen=True)
class RowTask:
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
    noised: Pictures | None = None  # Dec(Noi(T(x))), where it is to be looked at


class Memo:
    """Image tokens known from the batch before, within one call; `names` says which image a place stands for."""

    def __init__(self) -> None:
        self.names: Sequence[Hashable] = ()
        self.tokens: dict[Hashable, torch.Tensor] = {}

    def name(self, image: int) -> Hashable:
        return self.names[image]

    def join(self, used: np.ndarray, new: Sequence[int], tokens: torch.Tensor) -> torch.Tensor:
        """The tokens of all `used` images, from those known and the `new` ones; only these are kept."""
        if len(new) < len(used):
            fresh = dict(zip(new, tokens, strict=True))
            rows = [fresh[i] if i in fresh else self.tokens[self.name(image)] for i, image in enumerate(used)]
            tokens = torch.stack(rows)
        self.tokens = {self.name(image): row for image, row in zip(used, tokens, strict=True)}
        return tokens


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

    def __init__(
        self, generator: Generator | None, config: AugmentConfig, device: torch.device, engine: Engine | None = None
    ) -> None:
        self.generator, self.config, self.device = generator, config, device
        self.engine = engine or Engine.of(generator, device)
        self.table: StepTable | None = None
        self.guided: list[bool] = []
        self.twice = False  # guidance takes rows without the image beside those with it
        self._t = torch.zeros(0)
        if generator is not None:
            c = config
            self.table = table(generator.schedule, c.solver, c.steps, c.noise_level, c.noise_map)
            # without condition and prompt both sides of guidance are the same: nothing to guide with
            guidance = c.guidance if c.condition or c.prompt else 1.0
            self.guided = guided_steps(self.table.t, len(generator.schedule), guidance, c.guidance_interval)
            self.twice = any(self.guided) and generator.told_guidance <= 1
            self._t = torch.from_numpy(self.table.t).to(device)
            self._check_abilities(generator)

    def summary(self) -> str:
        """What will really be run, in one line."""
        c = self.config
        if self.generator is None or self.table is None:
            return "shape tweak only (no generator)"
        t0, std = self.table.t0, self.generator.schedule.noise_std(self.table.t0)
        calls = len(self.table) + sum(self.guided) * self.twice
        return (
            f"{c.solver}, noise level {c.noise_level:g} ({c.noise_map}) → enters at t={t0} (noise std {std:.2f}), "
            f"{len(self.table)} of {c.steps} steps run, {calls} network rows per view"
        )

    @torch.no_grad()
    def draw(
        self,
        canvases: Pictures,
        geos: Sequence[Geometry],
        tasks: Sequence[RowTask],
        batch_size: int = 0,
        memo: Memo | None = None,
        noised: bool = False,
    ) -> Drawn:
        """Stages 1 to 3 for one batch of tasks over images with these canvases; `check_finite` is the caller's.

        Where shapes are fixed the batch is filled up to `batch_size`. `memo` keeps the tokens of images whose views
        go on in the next batch of the same call. `noised` decodes what the denoiser starts from, for looking at.
        """
        canvases = canvases.to(self.device)
        images = np.array([task.image for task in tasks])
        tweaks, psis = self._tweak(canvases, geos, tasks, images)
        squares = _squares(tweaks, geos, images)
        if self.generator is None or self.table is None:
            return Drawn(squares, tweaks, psis)
        rows = self.engine.rows(len(tasks), batch_size)
        z = self._noised(self.generator, self.table, pad(squares.dense(), rows), tasks, rows)
        seen = Pictures.of(self.generator.decode(z[: len(tasks)]).float()) if noised else None
        positive, negative, scale = self._tokens(self.generator, canvases, geos, tasks, images, rows, memo)
        streams = _streams(tasks, "solver") if self.table.s.any() else []  # most solvers add no noise
        step_noise = [self._normal(streams, z.shape[1:], rows) for _ in range(int((self.table.s > 0).sum()))]
        condition = [positive, scale] if negative is None else [positive, scale, negative]
        out = self.engine.run("denoise", self._denoised, z, *(pad(part, rows) for part in condition), *step_noise)
        out = out[: len(tasks)]
        return Drawn(Pictures.of(out), tweaks, psis, torch.isfinite(out).all(), seen)

    def _denoised(
        self, z: torch.Tensor, positive: torch.Tensor, scale: torch.Tensor, *more: torch.Tensor
    ) -> torch.Tensor:
        """Stage 3 and Dec. Reads nothing from the device and brings nothing to it: it may be recorded and replayed.

        `more` are the negative rows, if guidance takes them, then the noise of each step that adds some.
        """
        assert self.generator is not None and self.table is not None
        guides, c = self.twice, self.config
        negative, step_noise = more[0] if guides else None, iter(more[guides:])
        predict = guided(
            self.generator, c.attention, self._t, positive, negative, scale, c.guidance, self.guided
        )  # fmt: skip
        steps = len(self.table)

        def step(z: torch.Tensor, i: int) -> torch.Tensor:
            eps = predict(z, i)
            if self.device.type == "cpu":  # elsewhere a step is only launched here
                partly(z.shape[0] / steps)
            return eps

        return self.generator.decode(denoise(step, z, self.table, lambda _: next(step_noise))).float()

    def _tweak(
        self, canvases: Pictures, geos: Sequence[Geometry], tasks: Sequence[RowTask], images: np.ndarray
    ) -> tuple[Pictures, np.ndarray | None]:
        """Stage 1: x_geom = T_psi(x), in one warp per canvas shape (a single one unless fit is crop)."""
        rows, shape = canvases.take(images), self.config.shape
        if shape is None:
            return rows, None
        psis = shape.draw(_streams(tasks, "shape"))
        return rows.each(lambda part, at: shape.apply(part, psis[at], [geos[i].aspect for i in images[at]])), psis

    def _noised(
        self, generator: Generator, table: StepTable, x: torch.Tensor, tasks: Sequence[RowTask], rows: int
    ) -> torch.Tensor:
        """Stage 2: q(· | x_geom) at t0, in the latent or (the paper's equation) in the pixels before encoding."""
        streams = _streams(tasks, "noise")
        if self.config.noise_space == "pixel":
            noisy = generator.schedule.add_noise(2 * x - 1, self._normal(streams, x.shape[1:], rows), table.t0)
            return self.engine.run("encode", generator.encode, (noisy + 1) / 2)
        z = self.engine.run("encode", generator.encode, x)
        return generator.schedule.add_noise(z, self._normal(streams, z.shape[1:], rows), table.t0)

    def _normal(self, streams: Sequence[np.random.Generator], shape: torch.Size, rows: int) -> torch.Tensor:
        """A row of noise per stream, on the device."""
        return pad(upload(normal(streams, shape), self.device), rows)

    def _tokens(
        self,
        generator: Generator,
        canvases: Pictures,
        geos: Sequence[Geometry],
        tasks: Sequence[RowTask],
        images: np.ndarray,
        rows: int,
        memo: Memo | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Condition rows, the negative rows if guidance takes them, and the image scale of each row.

        Tokens are made once per image and shared by its views. Nothing outlives the call, so that what a job writes
        for a batch depends on nothing but the batch.
        """
        text: dict[str, Any] = {"prompt": self.config.prompt} if self.config.prompt else {}
        if self.config.condition and any(task.image_scale > 0 for task in tasks):
            used, places = np.unique(images, return_inverse=True)
            asked = {**text, "mode": self.config.mode} if self.config.mode else text
            look = partial(generator.image_tokens, **asked)
            new = [i for i, image in enumerate(used) if memo is None or memo.name(image) not in memo.tokens]
            tokens = torch.zeros(0)
            if new:
                fresh = used[new]
                squares = _squares(canvases.take(fresh), geos, fresh).dense()
                filled = pad(squares, self.engine.images(len(fresh), rows))
                tokens = self.engine.run("tokens", look, filled)[: len(fresh)]
            if memo is not None:
                tokens = memo.join(used, new, tokens)
            positive = tokens.index_select(0, upload(places, tokens.device))
            scale = upload(np.array([task.image_scale for task in tasks], dtype=np.float32), self.device)
        else:
            positive = generator.null_tokens(len(tasks), **text)
            scale = torch.zeros(len(tasks), device=self.device)
        return positive, generator.null_tokens(len(tasks)) if self.twice else None, scale

    def _check_abilities(self, generator: Generator) -> None:
        """Say at once, not in the middle of a job, that a generator cannot do what the settings ask."""
        if self.config.prompt and not generator.prompts:
            raise ConfigError("this generator takes no text prompt; leave `prompt` empty")
        if self.config.mode and self.config.mode not in generator.modes:
            raise ConfigError(
                f"this generator knows one kind of condition, not mode {self.config.mode!r}: that setting, and the "
                "presets whose names begin with pocket or photo, are for the pocket generators"
            )
        if any(self.guided) and not self.twice and self.config.guidance > generator.told_guidance:
            raise ConfigError(
                f"this generator guides itself, up to a scale of {generator.told_guidance:g}; "
                f"guidance {self.config.guidance:g} is more"
            )
        if self.config.attention not in generator.attentions:
            known = ", ".join(generator.attentions)
            raise ConfigError(f"this generator's attention is {known}; it cannot do {self.config.attention!r}")


def _streams(tasks: Sequence[RowTask], stage: str) -> list[np.random.Generator]:
    return [stream(task.seed, task.k, stage) for task in tasks]


def _squares(pictures: Pictures, geos: Sequence[Geometry], images: np.ndarray) -> Pictures:
    """`to_square` of rows of these images; canvases of one size have one window, so the first row speaks for all.

    Copied where it is cut out of a larger canvas: networks may round differently on strided rows.
    """
    return pictures.each(lambda part, rows: to_square(part, geos[images[rows[0]]]).contiguous())
