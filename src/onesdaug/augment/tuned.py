"""What `onesdaug tune` chose: a part of its result file, and all that using it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

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
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise DataError(f"{path} is not a file of `onesdaug tune` of this version") from error

    def use(self, task: str = "") -> TunedUse:
        """The use on a task; without a name the first that has one."""
        known = {name: use for name, use in self.uses.items() if use is not None}
        if task and task not in self.uses:
            raise ConfigError(f"tuned for {', '.join(self.uses)}, not for {task}")
        found = self.uses.get(task) if task else next(iter(known.values()), None)
        if found is None:
            raise ConfigError(f"tuning found that views do not help here ({task or ', '.join(self.uses)}): use none")
        return found

    def settings(self) -> AugmentConfig:
        """The generator's settings."""
        if self.config is None:
            raise ConfigError(f"tuning chose {self.source}, which has no settings: give it as the source of views")
        return self.config

    def checked(self, encoder: str, views: Mapping[str, Any]) -> Tuned:
        """Itself, if these features and views (as a bank describes them) are those it was tuned for."""
        if encoder != self.encoder:
            raise ConfigError(f"tuned for the encoder {self.encoder}, these features are of {encoder}: tune again")
        if (source := views.get("source")) != self.source:
            raise ConfigError(f"tuned with views by {self.source}, these are by {source}")
        self.check_generator(str(views.get("generator", self.generator)))
        return self

    def check_generator(self, fingerprint: str) -> None:
        """Settings were chosen for one set of weights; with others nothing that was measured holds."""
        if self.generator and fingerprint != self.generator:
            raise ConfigError(
                f"tuned with {self.source} {self.generator}, but this generator is {fingerprint}: tune again with it"
            )
