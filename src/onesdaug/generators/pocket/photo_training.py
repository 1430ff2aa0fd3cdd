"""`onesdaug generator train --recipe photo`: from photographs to a folder of weights, in pieces that can be carried.

    autoencoder ─► decoder ─► denoiser-1 ─► denoiser-2 ─► … ─► polish ─► guidance ─► NAME/ (weights, card.json)

Every finished stage lies in NAME.state with the settings it was trained with; the machines, and what part of the
pictures lay on them, may differ from stage to stage. A stage holds all that those before it made of its network, so
only the last one of the autoencoder and of the denoiser has to be carried.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.common.progress import log
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import Kind, join, read_card, save_checkpoint
from onesdaug.errors import ConfigError
from onesdaug.generators.pocket.cards import PHOTO
from onesdaug.generators.pocket.condition import EfficientLite, SlimRes12, build_condition, maps_distance
from onesdaug.generators.pocket.deep import DeepAutoencoder, build_autoencoder
from onesdaug.generators.pocket.generator import Photo, Pocket, at_side
from onesdaug.generators.pocket.networks import Denoiser, Tokens
from onesdaug.generators.pocket.photo_table import KINDS, PhotoTable, Source, fill
from onesdaug.generators.pocket.photographs import Photographs
from onesdaug.generators.pocket.recipe import (
    PHOTO_STAGES,
    PIECES,
    PhotoDenoiserConfig,
    PhotoRecipe,
    StageConfig,
    piece,
)
from onesdaug.generators.pocket.train_denoiser import ConditionedDenoiser, drawn_alike
from onesdaug.generators.pocket.train_photo import DecoderStage, PhotoAutoencoderStage
from onesdaug.generators.pocket.train_photo_denoiser import Critic, Look, PhotoDenoiserStage
from onesdaug.generators.pocket.train_stage import PocketStage, StagedRun
from onesdaug.training.stage import mixed_precision

AUTOENCODER = ("autoencoder", "decoder")  # the other stages train the denoiser


class PhotoTraining(StagedRun):
    """One run: the recipe, the pictures and the networks.

    The autoencoder learns from `photographs`. The denoiser learns from what `pictures` gives when its first piece is
    run here: parts of each kind, which may arrive while others are encoded.
    """

    order: tuple[str, ...] = PHOTO_STAGES
    places = ("networks", "photographs", "table", *PHOTO_STAGES)
    save_seconds = 300.0  # the state of a large network takes seconds to write
    kind: str = PHOTO
    draws: type[Pocket] = Photo

    def __init__(
        self, recipe: PhotoRecipe, photographs: Sequence[Dataset], out: Path, device: torch.device | str = "cpu",
        deadline: float | None = None, compiled: bool = False, pictures: Callable[[], Source] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(out, torch.device(device), deadline, compiled)
        self.recipe, self.parts, self.pictures = recipe, photographs, pictures
        self.look: Look | None = None
        self.critic: Critic = self._apart
        self.wanted = self.order
        with self.seeded("networks"):
            autoencoder = build_autoencoder(recipe.network)
            self.denoiser = ConditionedDenoiser(Denoiser(recipe.network), Tokens(recipe.network))
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
        made = build_condition(self.recipe.condition, network=self.recipe.network)
        assert isinstance(made, EfficientLite)
        made.to(self.device, memory_format=torch.channels_last).eval().requires_grad_(False)  # type: ignore[call-overload]
        return made

    @cached_property
    def table(self) -> PhotoTable:
        """Of all pictures, for the first piece that is run."""
        self.__dict__.pop("photographs", None)  # their memory is needed
        began = time.monotonic()
        self.autoencoder.to(self.device, memory_format=torch.channels_last).eval().requires_grad_(False)  # type: ignore[call-overload]
        with self.seeded("table"):
            made = self._encoded(self.pictures() if self.pictures else [("photographs", part) for part in self.parts])
        counts = ", ".join(f"{count:,} {kind}" for kind, count in made.learned().items() if count)
        log.info(f"{counts}; {len(made.classes)} classes; encoded in {time.monotonic() - began:.0f} s")
        return made

    def _encoded(self, parts: Source) -> PhotoTable:
        """As large as they are drawn; where wanted those with classes small, too, and the smallest only so."""
        networks, common = (self.autoencoder, self.encoder), (self.recipe.views, self.device)
        if not self.recipe.small:
            return fill(parts, networks, PhotoTable(self.recipe.network.size, *common))
        large = PhotoTable(self.recipe.network.size, *common, kinds=KINDS[:2])
        return fill(parts, networks, large, PhotoTable(self.recipe.small, *common, kinds=KINDS[1:], relative=True))

    def until(self, last: str) -> tuple[str, ...]:
        """The stages up to this one, in order; guidance comes after the pieces that there are, or after one."""
        if last not in self.order:
            raise ConfigError(f"stage {last!r} is none of {', '.join(self.order)}")
        pieces = [piece(name) or 0 for name in self.order if self._has_weights(name)]
        most = PIECES if piece(last) else max([1, *pieces])
        wanted = self.order[: self.order.index(last) + 1]
        self.wanted = tuple(name for name in wanted if (piece(name) or 0) <= most)
        return self.wanted

    def one(self, name: str) -> None:
        """Run a stage after those before it, or load it where it is finished."""
        settings = settings_of(self.recipe.stage(name))
        if self._is_contained(name):
            if (self.state / name / "card.json").is_file():
                self.stages[name] = read_card(self.state / name, Kind)["stage"]  # its weights are the later one's
                log.info(f"{name}: done already")
        else:
            later = [other for other in ("polish", "guidance") if self._has_weights(other)]
            if piece(name) and later and not self._has_weights(name):
                raise ConfigError(f"{self.state / later[0]} is finished; delete it to train {name} before it")
            self.stage(name, self.trained_by(name), self.builder(name), {"settings": settings})
        stored = self.stages.get(name, {}).get("settings", {})  # of an earlier version it may lack some
        if any(settings.get(key) != value for key, value in stored.items()):
            raise ConfigError(f"{self.state / name} was trained with other settings; delete it or name another folder")

    def is_finished(self, name: str) -> bool:
        return self._has_weights(name) or self._is_contained(name)

    def _is_contained(self, name: str) -> bool:
        """Whether a later finished stage that is wanted, too, holds this one's work."""
        later = self.wanted[self.wanted.index(name) + 1 :]
        return any(self._has_weights(other) for other in later if chain(other) == chain(name))

    def trained_by(self, name: str) -> nn.Module:
        """The network whose weights the stage makes."""
        return self.autoencoder if name in AUTOENCODER else self.denoiser

    def settled(self, name: str) -> dict[str, Any]:
        """What the card of a piece that is being trained says beside how long it took."""
        return {"settings": settings_of(self.recipe.stage(name)), "data": self.table.facts()}

    def _has_weights(self, name: str) -> bool:
        return any((self.state / name).glob("model*.safetensors"))

    def builder(self, name: str) -> Callable[[], PocketStage]:
        config, kinds = self.recipe.stage(name), {"autoencoder": PhotoAutoencoderStage, "decoder": DecoderStage}
        if name in kinds:
            return lambda: kinds[name](config, self.autoencoder, self.judge(), self.photographs, self.device)  # type: ignore[arg-type]

        def build() -> PhotoDenoiserStage:
            assert isinstance(config, PhotoDenoiserConfig)
            table = self.table
            if name == "denoiser-1":
                table.set_statistics(self.denoiser.to(self.device).tokens)
            return PhotoDenoiserStage(config, self.denoiser, table, self.device, self.look, self.critic)

        return build

    def judge(self) -> EfficientLite | SlimRes12:
        """Who says whether a picture that was drawn looks right."""
        return self.encoder

    @cached_property
    def critic_encoder(self) -> SlimRes12:
        """Judges a polish place by place. What `pocket` looks through: it shares no weights with `encoder`."""
        made = Pocket.from_pretrained("pocket", device=self.device, dtype="float32").condition
        assert isinstance(made, SlimRes12)
        return made

    def _apart(self, made: Tensor, real: Tensor) -> Tensor:
        """How far the pictures of latents look apart: to one encoder place by place, to it and to `encoder` whole."""
        with mixed_precision(self.device):
            got, want = drawn_alike(self.autoencoder, made, real)
            with torch.no_grad():
                wanted = self.critic_encoder.maps(want)
            found = self.critic_encoder.maps(got)
            total = maps_distance(found, wanted) + _unlike(found[-1].mean((2, 3)), wanted[-1].mean((2, 3)))
            other: nn.Module = self.encoder
            if other is not self.critic_encoder:
                with torch.no_grad():
                    whole = other(want)[0]
                total = total + _unlike(other(got)[0], whole)
        return total

    def generator(self, denoiser: ConditionedDenoiser, guides: bool, side: int | None = None) -> Pocket:
        """What draws with this denoiser, on the device; whether it was taught to guide itself."""
        networks = (self.encoder, self.autoencoder, denoiser.denoiser, denoiser.tokens)
        scale = self.recipe.guidance.guidance if guides else 1.0
        made = self.draws(at_side(self.recipe.network, side), *networks, mode="self", guidance=scale)
        made.to(self.device, torch.float32)
        return made

    def write(
        self, out: Path, data_name: str, facts: dict[str, Any] | None = None, int8: bool = False
    ) -> dict[str, Any]:
        """The generator's folder, from the stages that are loaded; returns its card.

        With `int8` the denoiser's matrices are stored in bytes: half the size again.
        """
        made = self.stages[max((name for name in self.stages if chain(name) == "denoiser"), key=self.order.index)]
        card: dict[str, Any] = {
            "kind": self.kind,
            "mode": "self",
            "network": self.recipe.network.to_dict(),
            "condition": {"name": self.recipe.condition, "widths": list(self.recipe.kept_widths)},
            "data": {"name": data_name, **made["data"]},
            "init": None,
            "recipe": self.recipe.to_dict(),
            "guidance": self.recipe.guidance.guidance if "guidance" in self.stages else 1.0,
            "stages": self.stages,
            "seconds": round(sum(map(seconds_of, self.stages.values())), 1),
            **{fact: made[fact] for fact in ("machine", "commit") if fact in made},  # of the last stage, unless told
            **(facts or {}),
        }
        return save_checkpoint(out, join(self.kept()), card, half=True, int8=self.in_bytes if int8 else None)

    def kept(self) -> dict[str, nn.Module]:
        """What the generator's folder holds; an encoder from outside comes with its own package."""
        return {"autoencoder": self.autoencoder, "denoiser": self.denoiser.denoiser, "tokens": self.denoiser.tokens}

    @staticmethod
    def in_bytes(name: str, value: Tensor) -> bool:
        """Which tensors bytes are enough for."""
        return name.startswith("denoiser.") and value.ndim == 2


def _unlike(one: Tensor, other: Tensor) -> Tensor:
    return (1 - F.cosine_similarity(one.float(), other.float())).mean()


def chain(stage: str) -> str:
    """Whose stages follow each other, each with all that those before it made: the autoencoder's, the denoiser's."""
    if stage in AUTOENCODER:
        return "autoencoder"
    return stage if stage == "encoder" else "denoiser"


def seconds_of(stage: dict[str, Any]) -> float:
    """How long a stage took, with those that were run upon it before training went on from there."""
    return float(stage["seconds"]) + sum(map(seconds_of, stage.get("then", {}).values()))


def settings_of(config: StageConfig) -> dict[str, Any]:
    """What a finished stage must have in common with the recipe: all but how much time there was."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(replace(config, seconds=None))))
    return found
