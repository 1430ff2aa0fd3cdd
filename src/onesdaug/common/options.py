"""Settings that several commands share, each described once as a type; light, for help texts need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onesdaug.common.own import did_you_mean
from onesdaug.common.registry import GENERATORS
from onesdaug.errors import ConfigError

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
        "id; pocket-imagenet: artifacts/pocket-tiny-decoder"
    ),
]


class Checked(BaseModel):
    """Frozen settings; what is wrong with them is said in one line per field, with the name that was meant."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    if not TYPE_CHECKING:  # for type checkers the fields are the arguments

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(self._told(error)) from None

        # nested models and the command line validate as ever, and keep each error's place
        __init__.__pydantic_base_init__ = True

    @classmethod
    def _told(cls, error: ValidationError) -> str:
        lines = []
        for item in error.errors(include_url=False):
            place = ".".join(str(part) for part in item["loc"])
            if item["type"] == "extra_forbidden":
                known = f"; settings are {', '.join(cls.model_fields)}" if len(item["loc"]) == 1 else ""
                lines.append(f"{cls.__name__} has no {place!r}{did_you_mean(place, cls.model_fields) or known}")
            else:
                lines.append(f"{place}: {item['msg'].removeprefix('Value error, ')}, got {item['input']!r}")
        return "\n".join(lines)
