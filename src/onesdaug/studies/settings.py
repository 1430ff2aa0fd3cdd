"""What a run of studies can be told. Light, for the command line's help is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from onesdaug.common.options import CompileMode, Device, PerClass, Root
from onesdaug.common.registry import GENERATORS


@dataclass(frozen=True)
class Settings:
    """What the command line decides; the studies' own numbers are in their files."""

    work: Path = Path("studies/work")
    root: Root = None
    checkpoints: Annotated[Path, Field(description="Folder of the classifiers' checkpoints")] = Path(
        "artifacts/fewshot"
    )
    generators: Annotated[
        tuple[str, ...] | None,
        Field(description=f"{GENERATORS.choices()}; may be repeated (else the study's)"),
    ] = None
    preset: Annotated[
        Path | None,
        Field(description="A file of `onesdaug tune`: its generator (else --model) with the settings it chose"),
    ] = None
    split: Annotated[Literal["train", "val", "test"], Field(description="test, or val for choosing settings")] = "test"
    per_class: PerClass = None
    episodes: Annotated[int | None, Field(ge=2, description="Episodes per number (else the study's)")] = None
    images: Annotated[tuple[Path, ...], Field(description="Photographs for the contact sheets; may be repeated")] = ()
    seed: Annotated[int, Field(ge=0, description="Decides views and episodes")] = 0
    seeds: Annotated[
        int | None, Field(ge=1, description="Draw views so many times over; intervals cover it (else the study's)")
    ] = None
    device: Device = "auto"
    compile: CompileMode = "off"
    commit: str = "unknown"
