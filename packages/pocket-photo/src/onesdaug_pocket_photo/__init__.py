"""The photo generator; `onesdaug` finds it through this package's entry point."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from onesdaug.errors import WeightsMissing
from onesdaug.generators.pocket import Photo, Pocket


class PocketPhoto(Photo):
    """Draws photographs of 256 pixels and looks through EfficientNet-Lite2, which has seen all of ImageNet."""

    weights = Path(str(files(__package__))) / "weights"

    @classmethod
    def from_pretrained(cls, source: str | Path = "photo", **options: Any) -> Pocket:
        if not (cls.weights / "card.json").is_file():
            raise WeightsMissing(
                "the weights of photo are not released yet: this package has none. Train your own with "
                "`onesdaug generator train --recipe photo`, and give its folder instead of the name"
            )
        return super().from_pretrained(source, **options)
