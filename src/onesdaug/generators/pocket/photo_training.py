"""`onesdaug generator train --recipe photo`: from photographs to a folder of weights, in pieces that can be carried.

    autoencoder ─► decoder

Every finished stage lies in NAME.state with the settings it was trained with; the machines, and what part of the
photographs lay on them, may differ from stage to stage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from onesdaug.common.progress import log
from onesdaug.data.dataset import Dataset
from onesdaug.errors import ConfigError
from onesdaug.generators.pocket.condition import EfficientLite, build_condition
from onesdaug.generators.pocket.deep import DeepAutoencoder, build_autoencoder
from onesdaug.generators.pocket.photographs import Photographs
from onesdaug.generators.pocket.recipe import PHOTO_STAGES, PhotoRecipe, StageConfig
from onesdaug.generators.pocket.train_photo import DecoderStage, PhotoAutoencoderStage
from onesdaug.generators.pocket.train_stage import StagedRun


class PhotoTraining(StagedRun):
    """One run: the recipe, the photographs and the networks."""

    places = ("networks", "photographs", *PHOTO_STAGES)

    def __init__(
        self, recipe: PhotoRecipe, photographs: Sequence[Dataset], out: Path, device: torch.device | str = "cpu",
        deadline: float | None = None, compiled: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(out, torch.device(device), deadline, compiled)
        self.recipe, self.parts = recipe, photographs
        with self.seeded("networks"):
            autoencoder = build_autoencoder(recipe.network)
        assert isinstance(autoencoder, DeepAutoencoder)
        self.autoencoder = autoencoder

    @cached_property
    def photographs(self) -> Photographs:
        """On the device, for the first stage that is run and needs them."""
        made = Photographs(self.parts, self.device)
        log.info(f"{len(made):,} photographs to train on, {len(made.held)} held out, {made.fingerprint}")
        return made

    @cached_property
    def encoder(self) -> EfficientLite:
        made = build_condition(self.recipe.condition)
        assert isinstance(made, EfficientLite)
        return made

    def until(self, last: str) -> tuple[str, ...]:
        """The stages up to this one, in order."""
        if last not in PHOTO_STAGES:
            raise ConfigError(f"stage {last!r} is none of {', '.join(PHOTO_STAGES)}")
        return PHOTO_STAGES[: PHOTO_STAGES.index(last) + 1]

    def one(self, name: str) -> None:
        """Run a stage after those before it, or load it where it is finished."""
        settings = _settings(getattr(self.recipe, name))
        self.stage(name, self.autoencoder, self.builder(name), {"settings": settings})
        if self.stages[name]["settings"] != settings:
            raise ConfigError(f"{self.state / name} was trained with other settings; delete it or name another folder")

    def builder(self, name: str) -> Callable[[], PhotoAutoencoderStage]:
        kind = {"autoencoder": PhotoAutoencoderStage, "decoder": DecoderStage}[name]
        config = getattr(self.recipe, name)
        return lambda: kind(config, self.autoencoder, self.encoder, self.photographs, self.device)


def _settings(config: StageConfig) -> dict[str, Any]:
    """What a finished stage must have in common with the recipe: all but how much time there was."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(replace(config, seconds=None))))
    return found
