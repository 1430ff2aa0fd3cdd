"""What `onesdaug tune` chose: a part of its result file, and all that using it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from onesdaug.augment.config import AugmentConfig
from onesdaug.errors import ConfigError, DataError


class TunedUse(BaseModel):
    """How views enter on one task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    k: int
    original_weight: float
    normalise: bool = False
    select: str = "all"
    keep: float = 0.5
    threshold: float | None = None  # views only where the original's margin is not above this


class Tuned(BaseModel):
    """The source of views with its settings, and its use on each task ("1-shot", "classifier"); None: no views."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    config: AugmentConfig | None = None  # of a generator
    generator: str = ""  # its fingerprint
    encoder: str
    data: str
    commit: str
    uses: dict[str, TunedUse | None]

    @classmethod
    def read(cls, path: Path | str) -> Tuned:
        try:
            stored = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls.model_validate(stored["details"]["tuned"])
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a file of `onesdaug tune` of this version") from error

    @property
    def few_shot(self) -> bool:
        """Whether features were tuned, rather than class scores."""
        return "classifier" not in self.uses

    def use(self, task: str = "") -> TunedUse | None:
        """The use on a task; it need not be named where there is one only."""
        if not task and len(self.uses) == 1:
            (task,) = self.uses
        if task not in self.uses:
            raise ConfigError(f"tuned for {', '.join(self.uses)}: name one of them, not {task!r}")
        return self.uses[task]

    def settings(self, **overrides: Any) -> AugmentConfig:
        """The generator's settings, for this generator only."""
        if self.config is None:
            raise ConfigError(f"tuning chose {self.source}, which has no settings: give it as the source of views")
        made = AugmentConfig(**{**self.config.model_dump(), **overrides})
        made._tuned_for = self.generator
        return made

    def checked(self, encoder: str, views: Mapping[str, Any]) -> Tuned:
        """Itself, if these features and views (as a bank describes them) are those it was tuned for."""
        if encoder != self.encoder:
            raise ConfigError(f"tuned for the encoder {self.encoder}, these features are of {encoder}: tune again")
        if (source := views.get("source")) != self.source:
            raise ConfigError(f"tuned with views by {self.source}, these are by {source}")
        if self.config is not None:
            self.settings().check_generator(str(views.get("generator", "")))
        return self
