"""The cards of pocket generators: what lies beside their weights, checked when it is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from onesdaug.encoders.checkpoint import Card
from onesdaug.generators.pocket.config import LARGEST, PocketConfig

KIND, PHOTO, DECODER = "pocket", "photo", "pocket-decoder"  # of the card in a folder of weights
Size = Annotated[int, Field(ge=1, le=LARGEST)]


class Condition(BaseModel):
    name: Literal["slim-res12", "efficientnet-lite0", "efficientnet-lite2"]
    widths: tuple[Size, Size, Size, Size]


class Data(BaseModel):
    name: str
    classes: list[str]
    images: int
    fingerprint: str


class StageCard(BaseModel):
    steps: int
    batch: int
    seconds: float
    images_per_second: float


class PocketCard(Card):
    """Of what `onesdaug generator train` writes."""

    mode: Literal["self", "class"]
    network: PocketConfig
    condition: Condition
    data: Data
    init: str | None
    stages: dict[str, StageCard]
    seconds: float
    parameters: dict[str, int]
    recipe: dict[str, Any]
    guidance: float = 1.0  # the largest scale that the denoiser can be told; 1: it was not taught to guide itself
    machine: dict[str, str] = Field(default_factory=dict)
    commit: str = ""


class DecoderSizes(BaseModel, extra="forbid"):
    channels: Size
    width: Size
    depth: Size


class DecoderCard(Card):
    """Of a tiny decoder."""

    latents: str
    network: DecoderSizes
