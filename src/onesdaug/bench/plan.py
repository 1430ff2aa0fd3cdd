"""What a bench can be told: what is measured, and for how long. Light, for the command line's help is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from onesdaug.common.options import IP_REPO, CompileMode, Decoder, Device, Dtype, ModelName, Side
from onesdaug.errors import ConfigError

Stage = Literal["limit", "batches", "stages", "efficiency", "growth", "folder", "peer"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Wanted:
    """The model and the machine, as the user named them."""

    model: ModelName = "pocket"
    random_weights: Annotated[
        str | None, Field(description="Instead of a model: sd15, its shapes with random weights and any --decoder's")
    ] = None
    device: Device = "auto"
    dtype: Dtype = "auto"
    compile: CompileMode = "off"
    side: Side = None
    decoder: Decoder = None  # with random weights any word stands for TAESD's shapes
    ip_repo: Annotated[str, Field(description="Where the IP-Adapter weights are")] = IP_REPO


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    only: Annotated[tuple[Stage, ...], Field(description="Stages")] = STAGES[:5]
    batches: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(description="e.g. 1,16,64 (else 1 and what the model takes)")
    ] = ()
    seconds: Annotated[float, Field(ge=0, description="For each stage, warm-up and compiling apart")] = 10.0
    folder_images: int = 100
    growth: int = 16  # up to so many batches of images, and so many views of each

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.only) - set(STAGES)):
            raise ConfigError(f"there is no stage {', '.join(unknown)}; stages are {', '.join(STAGES)}")
