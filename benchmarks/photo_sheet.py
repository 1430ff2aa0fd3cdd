"""A contact sheet of `photo`: eight photographs that nobody trained on, drawn again at three noise levels.

    python benchmarks/photo_sheet.py [--model photo] [--output docs/photo-views.webp]

The four photographs of the demo and four more of scikit-image and scikit-learn, each cut to its middle square; preset
photo (mode self), seed 0, the first view, at the generator's own 256 pixels. What is not picture is left clear, for
light and dark pages.
`--model` takes a folder too; an output that ends in .png is for looking at. Then `python benchmarks/pocket_report.py`
shows it in README and docs/generators.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from PIL import Image, ImageDraw, ImageFont, ImageOps  # noqa: E402

from onesdaug import Augmenter  # noqa: E402
from onesdaug.augment.config import preset  # noqa: E402
from onesdaug.augment.operator import faithful_preset  # noqa: E402
from onesdaug.common.progress import shown, track  # noqa: E402
from onesdaug.data.samples import CREDITS, sample_photographs  # noqa: E402
from onesdaug.errors import ConfigError  # noqa: E402

PICTURE, LIMIT = ROOT / "docs" / "photo-views.webp", 400_000  # bytes
LEVELS = (0.5, 0.7, 0.85)
# as skimage.data and sklearn.datasets say; onesdaug.data.samples has those of the demo
ALSO = {"camera": "L. Varshney, CC0", "coins": "Brooklyn Museum, no known copyright restrictions"}
LEARN = {"china": "danielbuechele, CC BY 2.0", "flower": "vultilion, CC BY 2.0"}
TILE, GAP, HEAD, BLOCKS = 256, 8, 48, 2
INK = (128, 128, 136, 255)  # can be read on white and on black


def photographs() -> dict[str, Image.Image]:
    """The eight, as squares of the size that is drawn."""
    from sklearn.datasets import load_sample_image

    found = sample_photographs((*CREDITS, *ALSO))
    found |= {name: Image.fromarray(load_sample_image(f"{name}.jpg")) for name in LEARN}
    return {name: ImageOps.fit(image.convert("RGB"), (TILE, TILE)) for name, image in found.items()}


def views(model: str, pictures: Sequence[Image.Image], levels: Sequence[float]) -> list[list[Image.Image]]:
    """A row for each photograph: itself, then one view at each level."""
    augmenter = Augmenter.from_pretrained(model)
    columns = [list(pictures)]
    for level in track(levels, "noise levels"):
        config = preset(faithful_preset(model), noise_level=level)
        maker = Augmenter(augmenter.generator, config, device=augmenter.device, side=augmenter.side)
        columns.append([view for (view,) in maker(pictures, k=1, seed=0)])
    return [list(row) for row in zip(*columns, strict=True)]


def sheet(rows: Sequence[Sequence[Image.Image]], columns: Sequence[str]) -> Image.Image:
    """The rows in two blocks side by side, on nothing, each column with its name above."""
    tall, step = -(-len(rows) // BLOCKS), TILE + GAP
    block = len(columns) * step + 2 * GAP
    made = Image.new("RGBA", (BLOCKS * block - 3 * GAP, HEAD + tall * step - GAP), (0, 0, 0, 0))
    draw, font = ImageDraw.Draw(made), ImageFont.load_default(30)
    for number, row in enumerate(rows):
        across, down = divmod(number, tall)
        for place, picture in enumerate(row):
            left = across * block + place * step
            made.paste(picture.resize((TILE, TILE)), (left, HEAD + down * step))
            if down == 0:
                draw.text((left + TILE / 2, HEAD - 2 * GAP), columns[place], INK, font, anchor="ms")
    return made


def save(made: Image.Image, path: Path, limit: int = LIMIT) -> None:
    """In the best quality that fits."""
    for quality in (90, 84, 78, 72, 66, 60):
        made.save(path, quality=quality, method=6)
        if path.suffix == ".png" or path.stat().st_size < limit:
            return
    path.unlink()
    raise ConfigError(f"the sheet does not fit {limit:,} bytes; show fewer photographs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="photo", help="what Augmenter.from_pretrained takes")
    parser.add_argument("--output", type=Path, default=PICTURE)
    args = parser.parse_args()
    with shown():
        rows = views(args.model, list(photographs().values()), LEVELS)
    save(sheet(rows, ["original", *(f"noise {level:g}" for level in LEVELS)]), args.output)


if __name__ == "__main__":
    main()
