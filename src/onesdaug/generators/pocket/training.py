"""`onesdaug generator train`: the pocket recipe from base-class images to a folder of weights, stage by stage.

    encoder ─► autoencoder ─► denoiser ─► polish ─► NAME/model-*.safetensors + card.json

Every finished stage lies in NAME.state and is not run again; a stage that was cut off goes on where it was. A
generator with another condition encoder starts from a finished one (`init`): it takes over autoencoder and denoiser.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onesdaug.common.files import write_text
from onesdaug.common.progress import log
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import join, part, save_checkpoint
from onesdaug.errors import ConfigError, DataError
from onesdaug.generators.pocket.cards import KIND
from onesdaug.generators.pocket.condition import SlimRes12, build_condition, feature_size
from onesdaug.generators.pocket.config import PocketConfig
from onesdaug.generators.pocket.generator import load_weights
from onesdaug.generators.pocket.networks import Autoencoder, Denoiser, Tokens
from onesdaug.generators.pocket.recipe import STAGES, DenoiserConfig, Recipe
from onesdaug.generators.pocket.train_autoencoder import AutoencoderStage
from onesdaug.generators.pocket.train_condition import ConditionStage
from onesdaug.generators.pocket.train_denoiser import ConditionedDenoiser, CropTable, DenoiserStage
from onesdaug.generators.pocket.train_stage import StagedRun


def train(
    recipe: Recipe,
    data: Dataset,
    out: Path,
    *,
    init: Path | None = None,
    data_name: str = "",
    mode: str = "class",
    device: torch.device | str = "cpu",
    deadline: float | None = None,
    facts: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train all stages and write the generator's folder; returns its card. Raises OutOfTime at the deadline."""
    _check(recipe, data, init)
    run = PocketTraining(recipe, data, init, out, torch.device(device), deadline)
    run.all_stages()
    card = {
        "kind": KIND,
        "mode": mode,
        "network": recipe.network.to_dict(),
        "condition": {"name": recipe.condition, "widths": list(recipe.widths)},
        "data": {"name": data_name, "classes": list(data.class_names), "images": len(data),
                 "fingerprint": data.fingerprint},
        "init": run.start,
        "recipe": recipe.to_dict(),
        "stages": run.stages,
        "seconds": round(sum(stage["seconds"] for stage in run.stages.values()), 1),
        **(facts or {}),
    }  # fmt: skip
    return save_checkpoint(out, join(run.parts()), card, half=True)


def _check(recipe: Recipe, data: Dataset, init: Path | None) -> None:
    if data.n_classes < 2:
        raise DataError(f"the recipe needs images of at least two classes, got {data.n_classes}")
    if (recipe.condition != "slim-res12") != (init is not None):
        raise ConfigError("a condition encoder from outside needs --init, a finished generator; slim-res12 needs none")
    network, size = recipe.network, feature_size(recipe.condition, recipe.widths)
    if (network.global_dim, network.local_dim) != (size, size):
        raise ConfigError(f"{recipe.condition} gives features of {size}, the network expects {network.global_dim}")


class PocketTraining(StagedRun):
    """One run: the recipe, the data and the networks."""

    places = ("networks", "table", *STAGES)

    def __init__(
        self, recipe: Recipe, data: Dataset, init: Path | None, out: Path, device: torch.device,
        deadline: float | None,
    ) -> None:  # fmt: skip
        super().__init__(out, device, deadline)
        self.recipe, self.data = recipe, data
        with self.seeded("networks"):
            self.encoder, self.autoencoder = SlimRes12(recipe.widths), Autoencoder(recipe.network)
            self.denoiser = ConditionedDenoiser(Denoiser(recipe.network), Tokens(recipe.network))
        self.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as its own stage leaves it
        self.start = None if init is None else self._start_from(init)
        # a stage that was finished for another recipe or other images must not become part of this generator
        mine = {"recipe": recipe.to_dict(), "data": data.fingerprint, "init": self.start}
        text, run = json.dumps(mine, sort_keys=True), self.state / "run.json"
        if run.is_file() and run.read_text() != text:
            raise ConfigError(
                f"{self.state} belongs to a run with another recipe, data or --init; delete it or name another folder"
            )
        write_text(run, text)

    def _start_from(self, init: Path) -> str:
        """Take over a finished generator; the projections of another encoder's features have other sizes, stay new.

        Returns the fingerprint of its weights.
        """
        tensors, card = load_weights(init)
        encoder = {"name": "slim-res12", "widths": list(self.recipe.widths)}
        network = self.recipe.network
        same = replace(PocketConfig(**card["network"]), global_dim=network.global_dim, local_dim=network.local_dim)
        if card["condition"] != encoder or same != network:
            raise ConfigError(f"--init {init} is a generator of other sizes or without a slim Res12 of its own")
        self.encoder.load_state_dict(part(tensors, "condition"))
        self.autoencoder.load_state_dict(part(tensors, "autoencoder"))
        self.denoiser.denoiser.load_state_dict(part(tensors, "denoiser"))
        mine = self.denoiser.tokens.state_dict()
        fitting = {k: v for k, v in part(tensors, "tokens").items() if v.shape == mine[k].shape}
        self.denoiser.tokens.load_state_dict({**mine, **fitting})
        return str(card["weights"])

    def all_stages(self) -> None:
        recipe, data, device = self.recipe, self.data, self.device
        if self.start is None:
            self.stage("encoder", self.encoder, lambda: ConditionStage(recipe.encoder, self.encoder, data, device))
            self.stage(
                "autoencoder", self.autoencoder,
                lambda: AutoencoderStage(
                    recipe.autoencoder, self.autoencoder, self.encoder, recipe.network.size, data, device
                ),
            )  # fmt: skip
        for module in (self.encoder, self.autoencoder):
            module.to(device).eval().requires_grad_(False)

        def denoise(config: DenoiserConfig) -> DenoiserStage:
            return DenoiserStage(config, self.denoiser, self.table, self.autoencoder, self.encoder, device)

        def first() -> DenoiserStage:
            self.table.set_statistics(self.denoiser.to(device).tokens)
            return denoise(recipe.denoiser)

        self.stage("denoiser", self.denoiser, first)
        self.stage("polish", self.denoiser, lambda: denoise(recipe.polish))

    @cached_property
    def table(self) -> CropTable:
        """Made for the first stage that is run and needs it."""
        condition: nn.Module = self.encoder
        if self.start is not None:
            condition = (
                build_condition(self.recipe.condition, network=self.recipe.network)
                .to(self.device)
                .eval()
                .requires_grad_(False)
            )
        c, began = self.recipe.denoiser, time.monotonic()
        with self.seeded("table"):
            table = CropTable(
                self.data, self.autoencoder, condition, self.recipe.network.size, c.target_views, c.condition_views,
                self.device,
            )  # fmt: skip
        shapes = f"latents {tuple(table.latents.shape)}, features {tuple(table.local.shape)}"
        log.info(f"{shapes} in {time.monotonic() - began:.1f} s")
        return table

    def parts(self) -> dict[str, nn.Module]:
        """What the generator's folder holds; an encoder from outside comes with its own package."""
        parts = {"autoencoder": self.autoencoder, "denoiser": self.denoiser.denoiser, "tokens": self.denoiser.tokens}
        return parts if self.start is not None else {**parts, "condition": self.encoder}
