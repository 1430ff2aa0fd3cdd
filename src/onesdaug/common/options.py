"""Settings that several commands share, each described once as a type; light, for help texts need them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from onesdaug.common.registry import GENERATORS

IP_REPO = "h94/IP-Adapter"
Compile = Literal["off", "regional", "max"]

Root = Annotated[Path | None, Field(description="Where benchmarks lie; default: $ONESDAUG_DATA")]
PerClass = Annotated[int | None, Field(ge=1, description="A random part of each class, for a quick look")]
MaxSeconds = Annotated[float | None, Field(description="Stop after this long; the same command goes on")]
ModelName = Annotated[str, Field(description=f"Generator: {GENERATORS.choices()}")]
Device = Annotated[str, Field(description="auto, cpu, cuda, cuda:1 or mps")]
Dtype = Annotated[str, Field(description="auto, float32, float16 or bfloat16")]
CompileMode = Annotated[
    Compile, Field(description="Same views, faster: off, regional (starts in seconds) or max (minutes)")
]
Side = Annotated[int | None, Field(description="Draw at another size than the model's own: cheaper, other views")]
Decoder = Annotated[
    str | None,
    Field(
        description="Tiny decoder to draw with: cheaper, other views. sd15: AutoencoderTiny (TAESD), a folder or hub "
        "id; pocket: artifacts/pocket-tiny-decoder"
    ),
]
