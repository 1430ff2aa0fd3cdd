"""The pocket-imagenet generator; `onesdaug` finds it through this package's entry point."""

from importlib.resources import files
from pathlib import Path

from onesdaug.generators.pocket import Pocket


class PocketImagenet(Pocket):
    """A pocket generator that looks through EfficientNet-Lite0, which has seen all of ImageNet."""

    default_preset = "pocket-imagenet-accuracy"
    weights = Path(str(files(__package__))) / "weights"
