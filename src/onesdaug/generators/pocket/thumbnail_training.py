"""`onesdaug generator train --recipe pocket`: from small labelled pictures to a folder of weights, in pieces.

    encoder ─► autoencoder ─► decoder ─► denoiser-1 ─► … ─► polish ─► guidance ─► NAME/model-*.safetensors

As with photographs every finished stage lies in NAME.state and can be carried. Nothing here has seen a picture that
is not in the data given, but for the second judge of the polish, the encoder of the released `pocket`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onesdaug.common.progress import log
from onesdaug.encoders.checkpoint import Card, read_card
from onesdaug.errors import ConfigError
from onesdaug.generators.pocket.cards import KIND
from onesdaug.generators.pocket.condition import SlimRes12
from onesdaug.generators.pocket.generator import Pocket
from onesdaug.generators.pocket.photo_table import KINDS, PhotoTable, Source, fill
from onesdaug.generators.pocket.photo_training import PhotoTraining, settings_of
from onesdaug.generators.pocket.recipe import THUMBNAIL_STAGES, ThumbnailRecipe
from onesdaug.generators.pocket.thumbnails import Thumbnails
from onesdaug.generators.pocket.train_condition import ClassAndTurn
from onesdaug.generators.pocket.train_encoder import EncoderStage
from onesdaug.generators.pocket.train_stage import PocketStage


class ThumbnailTraining(PhotoTraining):
    """One run; `pictures` gives the labelled parts, and is asked again by every stage that needs them anew."""

    recipe: ThumbnailRecipe
    order = THUMBNAIL_STAGES
    places = ("networks", "photographs", "table", *THUMBNAIL_STAGES)
    kind, draws = KIND, Pocket

    def __init__(
        self, recipe: ThumbnailRecipe, pictures: Callable[[], Source], out: Path, device: torch.device | str = "cpu",
        deadline: float | None = None, compiled: bool = False,
    ) -> None:  # fmt: skip
        sizes, dim = recipe.network, recipe.kept_widths[-1]
        if (sizes.global_dim, sizes.local_dim) != (dim, dim):
            raise ConfigError(f"the encoder gives features of {dim}, the network expects {sizes.global_dim}")
        super().__init__(recipe, [], out, device, deadline, compiled, pictures)

    @cached_property
    def photographs(self) -> Thumbnails:  # type: ignore[override]
        """On the device, for the first stage that is run and needs them."""
        assert self.pictures is not None
        made = Thumbnails(self.pictures(), self.recipe.network.size, self.device)
        log.info(f"{len(made):,} pictures of {len(made.classes)} classes, {len(made.held)} held out")
        return made

    @cached_property
    def learner(self) -> ClassAndTurn:
        """Around the encoder."""
        done = self.state / "encoder" / "card.json"
        classes = read_card(done.parent, Card)["stage"]["data"]["classes"] if done.is_file() else None
        with self.seeded("encoder"):
            return ClassAndTurn(SlimRes12(self.recipe.kept_widths), len(classes or self.photographs.classes))

    @cached_property
    def encoder(self) -> SlimRes12:  # type: ignore[override]
        """From now on only to look with."""
        self.learner.to(self.device, memory_format=torch.channels_last).eval().requires_grad_(False)  # type: ignore[call-overload]
        return self.learner.encoder

    def _encoded(self, parts: Source) -> PhotoTable:
        made = PhotoTable(self.recipe.network.size, self.recipe.views, self.device, relative=True)
        return fill(parts, (self.autoencoder, self.encoder), made, held_of=KINDS)

    def trained_by(self, name: str) -> nn.Module:
        return self.learner if name == "encoder" else super().trained_by(name)

    def builder(self, name: str) -> Callable[[], PocketStage]:
        if name == "encoder":
            return lambda: EncoderStage(self.recipe.encoder, self.learner, self.photographs, self.device, self.look)
        return super().builder(name)

    def settled(self, name: str) -> dict[str, Any]:
        if name == "encoder":
            return {"settings": settings_of(self.recipe.encoder), "data": self.photographs.facts()}
        return super().settled(name)

    def kept(self) -> dict[str, nn.Module]:
        return {**super().kept(), "condition": self.encoder}

    @staticmethod
    def in_bytes(name: str, value: Tensor) -> bool:
        return PhotoTraining.in_bytes(name, value) or name.startswith("condition.")
