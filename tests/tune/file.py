"""A file as `onesdaug tune` leaves it, for the commands that take one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onesdaug.augment.config import AugmentConfig
from onesdaug.augment.tuned import Tuned, TunedUse


def stored(path: Path, **changes: Any) -> Path:
    config = AugmentConfig(noise_level=0.6, steps=2, solver="dpm++")
    tuned = Tuned(
        source="pocket", config=config, generator="other", encoder="e", data="d", commit="c",
        uses={"1-shot": TunedUse(k=1, original_weight=0.7)},
    ).model_copy(update=changes)  # fmt: skip
    path.write_text(json.dumps({"details": {"tuned": tuned.model_dump(mode="json")}}))
    return path
