"""One-shot test-time generative data augmentation: one image in, K views out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are resolved on first use, so that `import onesdaug` and `onesdaug --help` load no torch.
_WHERE = {
    "Augmenter": "onesdaug.augment.operator",
    "AugmentConfig": "onesdaug.augment.config",
    "ShapeTweak": "onesdaug.augment.shape",
    "Generator": "onesdaug.generators.base",
    "Schedule": "onesdaug.generators.schedule",
    "TestTimeEnsemble": "onesdaug.ensemble.wrap",
    "ViewFolder": "onesdaug.jobs.folder",
}

__all__ = [
    "AugmentConfig",
    "Augmenter",
    "Generator",
    "Schedule",
    "ShapeTweak",
    "TestTimeEnsemble",
    "ViewFolder",
    "__version__",
]

if TYPE_CHECKING:
    from onesdaug.augment.config import AugmentConfig
    from onesdaug.augment.operator import Augmenter
    from onesdaug.augment.shape import ShapeTweak
    from onesdaug.ensemble.wrap import TestTimeEnsemble
    from onesdaug.generators.base import Generator
    from onesdaug.generators.schedule import Schedule
    from onesdaug.jobs.folder import ViewFolder


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'onesdaug' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
