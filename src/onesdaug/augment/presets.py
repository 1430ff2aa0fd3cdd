"""The operator's settings by name. Packages add theirs as entry points of the group `onesdaug.presets`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from onesdaug.common.progress import log
from onesdaug.common.registry import Registry

_VLM_SHAPE = {"rotate": 10.0, "stretch": 0.40, "translate": 0.01, "perspective": 0.10}

_POCKET = {"solver": "dpm++", "noise_map": "cumulative", "image_scale": 1.0, "mode": "class"}

# `paper-cheap` is half of `paper-fast`: half the steps, and no guidance where little noise is left (docs/speed.md).
# Those called accuracy were chosen on validation classes (docs/generators.md), each for its generator, and draw
# caricatures; `pocket-faithful` and `photo` by looking at what they draw, which stays close to the image;
# `pocket-imagenet-fine` was chosen on birds (CUB), whose classes differ in details.
PRESETS = Registry(
    "preset",
    "onesdaug.presets",
    {
        "paper": {},
        "paper-fast": {"solver": "dpm++", "steps": 10},
        "paper-cheap": {"solver": "dpm++", "steps": 5, "guidance_interval": (0.3, 1.0)},
        "vlm": {"solver": "dpm++", "steps": 10, "noise_level": 0.1, "shape": _VLM_SHAPE},
        "pocket-accuracy": {**_POCKET, "noise_level": 1.0, "guidance": 8.0, "steps": 4},
        "pocket-faithful": {**_POCKET, "noise_level": 0.4, "guidance": 3.0, "steps": 20, "mode": "self"},
        "pocket-imagenet-accuracy": {**_POCKET, "noise_level": 1.0, "guidance": 16.0, "steps": 8},
        "pocket-imagenet-fine": {**_POCKET, "noise_level": 0.95, "guidance": 8.0, "steps": 12, "mode": "self"},
        "photo": {**_POCKET, "noise_level": 0.7, "guidance": 3.0, "steps": 16, "mode": "self"},
        "photo-accuracy": {**_POCKET, "noise_level": 1.0, "guidance": 8.0, "steps": 4},
    },
)
FOR_SD = ("paper", "paper-fast", "paper-cheap", "vlm")
PURPOSES = {
    "paper": "the paper's settings, for Stable Diffusion",
    "paper-fast": "the paper's settings with a solver that takes half the steps",
    "paper-cheap": "half of paper-fast's cost",
    "vlm": "the paper's settings for vision-language models: closest to the picture",
    "pocket-accuracy": "for accuracy with pocket: caricatures of the class, drawn from the condition alone",
    "pocket-faithful": "for looking at: shows what the picture shows",
    "pocket-imagenet-accuracy": "for accuracy with pocket-imagenet: caricatures, drawn from the condition alone",
    "pocket-imagenet-fine": "for accuracy with pocket-imagenet where classes differ in details, such as birds",
    "photo": "for looking at, with the generator photo: shows what the picture shows",
    "photo-accuracy": "for accuracy with photo: caricatures, drawn from the condition alone",
}


def check_preset(name: str, own: str, model: object) -> None:
    """Say so where settings made for Stable Diffusion are given to a generator that has its `own`."""
    if name in FOR_SD and own not in FOR_SD:
        log.warning("preset %s was made for Stable Diffusion (sd15), not for %s, whose own is %s", name, model, own)


def purpose(name: str) -> str:
    """A preset's name with what it is for, where it says so; those of packages need not."""
    return f"{name} ({PURPOSES[name]})" if name in PURPOSES else name


LISTED = "; ".join([*map(purpose, PRESETS), "or TUNED.json, what `onesdaug tune` wrote"])
PresetName = Annotated[
    str | None, Field(description=f"Settings by name (else the model's own, for accuracy): {LISTED}")
]
