"""Damaged images are refused, never shown in part, and no foreign program is started for any file."""

from __future__ import annotations

import io
import random
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import onesdaug
from onesdaug.data.images import decode_image, load_image, opened
from onesdaug.errors import ImageError

KINDS = {
    "PNG": {}, "JPEG": {}, "WEBP": {}, "GIF": {}, "BMP": {}, "PPM": {}, "TIFF": {},
    "TIFF lzw": {"compression": "tiff_lzw"}, "TIFF deflate": {"compression": "tiff_adobe_deflate"},
    "TIFF jpeg": {"compression": "jpeg"},
}  # fmt: skip


def stored(kind: str) -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, kind.split()[0], **KINDS[kind])
    return buffer.getvalue()


def damaged(data: bytes, n: int) -> Iterator[bytes]:
    """The file cut off at random places, and with one or several bits flipped."""
    rng = random.Random(0)
    for i in range(n):
        if i % 3 == 0:
            yield data[: rng.randrange(1, len(data))]
            continue
        bits = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
        yield bytes(bits)


def pillow(data: bytes) -> Image.Image | None:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            return image
    except Exception:
        return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_what_pillow_refuses_is_refused_and_what_it_reads_is_the_same(kind: str, capfd) -> None:
    refused = 0
    for data in damaged(stored(kind), 150):
        want = pillow(data)
        try:
            found = decode_image(data, "x")  # whatever else it raises fails the test
        except ImageError as error:
            assert str(error).startswith("x ")
            refused += 1
            continue
        assert want is not None, "Pillow refuses this one"
        if want.mode == "RGB":
            assert np.array_equal(found, want)
    assert refused > 20
    capfd.readouterr()  # libtiff speaks to the terminal itself


def test_frames_that_are_not_used_may_be_damaged() -> None:
    buffer = io.BytesIO()
    first, *others = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    first.save(buffer, "GIF", save_all=True, append_images=others)
    whole = buffer.getvalue()
    assert np.array_equal(decode_image(whole[:-20], "x"), decode_image(whole, "x"))


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def test_postscript_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", started)
    (tmp_path / "x.png").write_bytes(POSTSCRIPT)
    with pytest.raises(ImageError, match=r"x\.png is a text file"):
        load_image(tmp_path / "x.png")
    with pytest.raises(ImageError, match="text file"):
        decode_image(POSTSCRIPT, "x")
    with pytest.raises(ImageError, match="text file"), opened(tmp_path / "x.png", "x"):
        pass


def test_formats_that_are_not_listed_are_not_opened() -> None:
    for kind in ("ICO", "TGA", "PCX", "SGI", "DDS"):
        buffer = io.BytesIO()
        Image.new("RGB", (16, 16), "teal").save(buffer, kind)
        with pytest.raises(ImageError, match=r"not an image of a kind that is read here \(JPEG, PNG"):
            decode_image(buffer.getvalue(), "x")


def test_there_is_one_loader() -> None:
    root = Path(onesdaug.__file__).parent
    users = [path.name for path in root.rglob("*.py") if "Image.open(" in path.read_text(encoding="utf-8")]
    assert users == ["images.py"]


def test_too_many_pixels_cost_no_memory(tmp_path: Path) -> None:
    """A file of a few hundred kilobytes that would take 531 MB as RGB and many times that at work."""
    Image.new("1", (13_300, 13_300)).save(tmp_path / "bomb.png")
    tracemalloc.start()
    with pytest.raises(ImageError, match="13300×13300"), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        load_image(tmp_path / "bomb.png")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_file_larger_than_any_image_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.webp").open("wb") as file:
        file.write(b"RIFF\xff\xff\xff\xffWEBPVP8 ")
        file.truncate(5 << 30)  # a hole: takes no room on the disk
    with pytest.raises(ImageError, match="5,368,709,120 bytes"):
        load_image(tmp_path / "x.webp")
