"""What is measured: a generator by name, or Stable Diffusion's shapes with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.operator import Augmenter
from onesdaug.bench.plan import Wanted
from onesdaug.common.devices import pick_device, pick_dtype
from onesdaug.errors import ConfigError
from onesdaug.generators.base import Generator
from onesdaug.generators.speed import check_compile, start_workers


@dataclass(frozen=True)
class Subject:
    """A generator with its settings; the networks are as they were loaded until `accelerate` is called."""

    wanted: Wanted
    generator: Generator
    config: AugmentConfig
    device: torch.device
    dtype: torch.dtype

    @property
    def name(self) -> str:
        return self.wanted.random_weights or Path(self.wanted.model).name

    @property
    def side(self) -> int:
        return self.generator.size

    def accelerate(self) -> None:
        self.generator.accelerate(self.wanted.compile)

    def augmenter(self, batch_size: int, **settings: Any) -> Augmenter:
        """The operator on batches of this size, with some settings replaced."""
        config = self.config.model_copy(update=settings) if settings else self.config
        return Augmenter(self.generator, config, batch_size=batch_size)

    def images(self, count: int) -> torch.Tensor:
        """Pictures on the device, each another: a running service has them there already."""
        random = torch.Generator().manual_seed(0)
        coarse = torch.rand(count, 3, 8, 8, generator=random)
        size = (self.side, self.side)
        return torch.nn.functional.interpolate(coarse, size, mode="bilinear").to(self.device)


def load(wanted: Wanted, config: AugmentConfig) -> Subject:
    """Load what is to be measured; compiled later, because operations are counted before."""
    device = pick_device(wanted.device)
    check_compile(wanted.compile, device)
    start_workers(wanted.compile, device)
    if wanted.random_weights is not None:
        dtype = pick_dtype(wanted.dtype, device)
        from onesdaug.bench.random_sd import random_sd

        tiny = wanted.decoder is not None
        random = random_sd(wanted.random_weights, device, dtype, side=wanted.side, tiny_decoder=tiny)
        return Subject(wanted, random, config, device, dtype)
    loaded = Augmenter.from_pretrained(
        wanted.model,
        config=config,
        device=wanted.device,
        dtype=wanted.dtype,
        side=wanted.side,
        decoder=wanted.decoder,
        ip_repo=wanted.ip_repo,
    )
    made = loaded.generator
    if made is None:
        raise ConfigError(f"model {wanted.model!r} has no network to measure")
    return Subject(wanted, made, loaded.config, made.device, made.dtype)
