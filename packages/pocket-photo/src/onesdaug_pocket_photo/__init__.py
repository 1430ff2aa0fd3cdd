"""The photo generators; `onesdaug` finds them through this package's entry points."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from onesdaug.generators.pocket import Photo, Pocket


class PocketPhoto(Photo):
    """Draws photographs of 256 pixels and looks through EfficientNet-Lite2, which has seen all of ImageNet."""

    weights = Path(str(files(__package__))) / "weights"


class PocketPhoto128(PocketPhoto):
    """The same networks with 128 pixels, from which they learned classes: for accuracy, in a quarter of the time."""

    @classmethod
    def from_pretrained(cls, source: str | Path = "photo-128", *, side: int | None = 128, **options: Any) -> Pocket:
        return super().from_pretrained(source, side=side, **options)
