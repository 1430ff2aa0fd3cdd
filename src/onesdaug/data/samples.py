"""Photographs that may be shown to anyone, from scikit-image: for demonstrations and contact sheets."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from onesdaug.errors import DataError

# from the notes of skimage.data; each may be used by anyone for anything
CREDITS = {
    "astronaut": "Eileen Collins; NASA Great Images, public domain (scikit-image)",
    "chelsea": "Chelsea the cat; Stéfan van der Walt, CC0 (scikit-image)",
    "coffee": "a cup at Pikolo Espresso Bar; Rachel Michetti, CC0 (scikit-image)",
    "rocket": "Falcon 9 with DSCOVR; SpaceX, public domain (scikit-image)",
}


def sample_photographs(names: Sequence[str] = tuple(CREDITS)) -> dict[str, Image.Image]:
    try:
        from skimage import data
    except ImportError:
        raise DataError("no photographs: give your own, or `pip install scikit-image` for samples") from None
    return {name: Image.fromarray(getattr(data, name)()) for name in names}
