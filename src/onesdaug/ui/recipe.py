"""What the sliders say: the operator's settings, and the same as a command and as Python, to be copied."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from onesdaug.augment.config import AugmentConfig, preset
from onesdaug.augment.presets import PRESETS
from onesdaug.augment.shape import ShapeTweak
from onesdaug.errors import ConfigError

# how `onesdaug augment` calls what the sliders change
_FLAGS = {"noise_level": "--noise-level", "guidance": "--cfg", "image_scale": "--ip-scale", "solver": "--solver"}
_TWEAK_FLAGS = {"perspective": "--shape-aug-persp"}
_SIZES = ("rotate", "stretch", "translate", "perspective")
MOST_TWEAK = 2.0  # times the preset's: a corner may move up to a quarter of the side


def presets_for(model: str, faithful: str, default: str) -> list[str]:
    """The presets made for a generator, those for looking at first."""
    return list(dict.fromkeys([faithful, default, *(name for name in PRESETS if name.startswith(model))]))


@dataclass(frozen=True)
class Recipe:
    """One visitor's settings; `tweak` is how strong the shape tweak is, 1 as in the preset, 0 off."""

    model: str
    preset: str
    faithful: str  # the preset that needs no name
    noise_level: float
    guidance: float
    image_scale: float
    tweak: float
    solver: str
    k: int
    seed: int

    @classmethod
    def of_preset(cls, model: str, name: str, faithful: str, k: int = 3, seed: int = 0) -> Recipe:
        c = preset(name)
        return cls(model, name, faithful, c.noise_level, c.guidance, c.image_scale, 1.0, c.solver, k, seed)

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the preset."""
        base = preset(self.preset)
        found = {name: getattr(self, name) for name in _FLAGS if getattr(self, name) != getattr(base, name)}
        if base.shape is not None and self.tweak != 1:
            if not 0 <= self.tweak <= MOST_TWEAK:
                raise ConfigError(f"the shape tweak goes from 0 to {MOST_TWEAK:g}, not {self.tweak:g}")
            sizes = {name: round(self.tweak * getattr(base.shape, name), 4) for name in _SIZES}
            found["shape"] = {**base.shape.model_dump(), **sizes} if self.tweak else None
        return found

    @property
    def config(self) -> AugmentConfig:
        """As `onesdaug augment` makes them: an image scale of 0 leaves the condition out."""
        made = preset(self.preset, **self.changes)
        return made if made.conditioned else made.model_copy(update={"condition": False})

    def command(self, photo: str) -> str:
        """The same views from a terminal."""
        words = ["onesdaug", "augment", photo, "-o", "views", "--k", str(self.k), "--seed", str(self.seed)]
        words += ["--model", self.model] if self.model != "pocket" else []
        words += ["--preset", self.preset] if self.preset != self.faithful else []
        changes = self.changes
        shape = changes.pop("shape", False)
        for name, value in changes.items():
            words += [_FLAGS[name], value if isinstance(value, str) else f"{value:g}"]
        if shape is None:
            words.append("--no-shape-aug")
        elif shape:
            for name in _SIZES:
                words += [_TWEAK_FLAGS.get(name, f"--shape-aug-{name}"), f"{shape[name]:g}"]
        return shlex.join(words)

    def snippet(self, photo: str) -> str:
        """The same views from Python."""
        changes = self.changes
        if not self.config.conditioned:
            changes["condition"] = False
        imports, config = ["from onesdaug import Augmenter"], f"preset={self.preset!r}"
        if changes:
            imports.append("from onesdaug.augment.config import preset")
            words = [f"{name}={_code(value)}" for name, value in changes.items()]
            config = f"config=preset({', '.join([repr(self.preset), *words])})"
            if "ShapeTweak" in config:
                imports[0] = "from onesdaug import Augmenter, ShapeTweak"
        return "\n".join(
            [
                *imports,
                "",
                f"augmenter = Augmenter.from_pretrained({self.model!r}, {config})",
                f"for number, view in enumerate(augmenter({photo!r}, k={self.k}, seed={self.seed}), start=1):",
                '    view.save(f"view{number}.png")',
            ]
        )


def _code(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    usual = ShapeTweak().model_dump()
    return f"ShapeTweak({', '.join(f'{n}={v!r}' for n, v in value.items() if v != usual[n])})"
