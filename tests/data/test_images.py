"""Every kind of picture comes out as 8-bit RGB with a note, and every broken one as an error that names it."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile, ImageOps

from onesdaug.data.images import load_image, read_image
from onesdaug.errors import ImageError
from tests.conftest import make_image


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header promises more than the file holds."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(100))

    def chunk(body: bytes) -> bytes:
        return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))

    return b"\x89PNG\r\n\x1a\n" + chunk(head) + chunk(data) + chunk(b"IEND")


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def test_plain_rgb_is_untouched_and_has_no_notes(tmp_path: Path) -> None:
    image = make_image(0, (17, 9))
    loaded = read_image(saved(image, tmp_path / "a.png"))
    assert loaded.notes == ()
    assert np.array_equal(loaded.image, image)
    assert np.array_equal(load_image(str(tmp_path / "a.png")), image)


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "tif"])
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(make_image(1, (32, 16)), tmp_path / f"a.{ending}", exif=exif)
    loaded = read_image(path)
    assert loaded.notes == ("EXIF rotation applied",)
    assert loaded.image.size == ((32, 16) if orientation < 5 else (16, 32))
    assert np.array_equal(loaded.image, ImageOps.exif_transpose(Image.open(path)))


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    for ending in ("png", "tif"):
        loaded = read_image(saved(Image.fromarray(ramp), tmp_path / f"a.{ending}"))
        assert "16-bit greyscale scaled to 8 bits" in loaded.notes
        assert np.array_equal(np.asarray(loaded.image)[..., 0].ravel(), np.arange(256))


@pytest.mark.parametrize(("high", "dtype"), [(1.0, "f4"), (255.0, "f4"), (65535, "i4"), (255, "i4")])
def test_deep_tiffs(tmp_path: Path, high: float, dtype: str) -> None:
    values = np.linspace(0, high, 256).reshape(16, 16).astype(dtype)
    loaded = read_image(saved(Image.fromarray(values), tmp_path / "a.tif"))
    assert np.abs(np.asarray(loaded.image, int)[..., 0].ravel() - np.arange(256)).max() <= 1
    assert loaded.notes


def test_values_beyond_any_depth_are_stretched_and_nan_is_refused(tmp_path: Path) -> None:
    loaded = read_image(Image.fromarray(np.array([[-5.0, 1e6]], dtype=np.float32)))
    assert np.asarray(loaded.image)[..., 0].tolist() == [[0, 255]]
    assert "stretched" in loaded.notes[0]
    with pytest.raises(ImageError, match="NaN"):
        read_image(saved(Image.fromarray(np.array([[np.nan, 0]], dtype=np.float32)), tmp_path / "n.tif"))


@pytest.mark.parametrize(
    ("mode", "ending", "note"),
    [
        ("CMYK", "jpg", "CMYK converted to RGB"),
        ("L", "png", "greyscale converted to RGB"),
        ("1", "png", "1-bit converted to RGB"),
        ("P", "png", "palette converted to RGB"),
    ],
)
def test_other_modes(tmp_path: Path, mode: str, ending: str, note: str) -> None:
    loaded = read_image(saved(make_image(2).convert(mode), tmp_path / f"a.{ending}"))
    assert loaded.image.mode == "RGB"
    assert loaded.notes == (note,)


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    clear = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([200, 0, 0] * 256)
    palette.save(tmp_path / "p.png", transparency=0)
    for source in (
        clear,
        Image.new("LA", (4, 4), (10, 0)),
        saved(clear, tmp_path / "a.png"),
        tmp_path / "p.png",
    ):
        loaded = read_image(source)
        assert loaded.image.getpixel((0, 0)) == (255, 255, 255)
        assert "transparency laid on white" in loaded.notes[0]


@pytest.mark.parametrize("ending", ["gif", "webp", "png"])
def test_first_frame_of_an_animation(tmp_path: Path, ending: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    path = saved(frames[0], tmp_path / f"a.{ending}", save_all=True, append_images=frames[1:], duration=50)
    loaded = read_image(path)
    assert "frame 1 of 3 used" in loaded.notes
    assert loaded.image.getpixel((4, 4))[0] > 200


@pytest.mark.parametrize("size", [(1, 1), (20_000, 10)])
def test_extreme_sizes_load(tmp_path: Path, size: tuple[int, int]) -> None:
    assert load_image(saved(Image.new("RGB", size, "teal"), tmp_path / "a.png")).size == size


def test_broken_files_are_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    make_image(3, (200, 200)).save(buffer, "JPEG")
    cases = {
        "cut.jpg": (buffer.getvalue()[: len(buffer.getvalue()) // 2], "cut off"),
        "text.png": (b"not an image\n", "text file"),
        "page.jpg": (b"<!DOCTYPE html><html></html>", "HTML"),
        "lfs.png": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        "noise.png": (bytes(range(256)), "not an image"),
        "empty.png": (b"", "empty"),
        "bomb.png": (png_claiming(60_000, 60_000), "bomb"),
        "large.png": (png_claiming(14_000, 13_000), "bomb"),
    }
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)  # as careless libraries do
    for name, (data, why) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ImageError, match=why) as caught:
            load_image(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True  # given back as found


def test_unreadable_places(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "link.png").symlink_to(tmp_path / "gone.png")
    for name, why in {"folder.png": "folder", "link.png": "link to a file", "none.png": "not exist"}.items():
        with pytest.raises(ImageError, match=why):
            load_image(tmp_path / name)


def test_arrays_and_tensors() -> None:
    image = make_image(4, (6, 5))
    pixels = np.asarray(image)
    chw = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    same = [image, pixels, pixels / 255, chw, chw.float() / 255, (pixels.astype(np.uint16) * 257)]
    assert all(np.array_equal(load_image(source), pixels) for source in same)
    assert load_image(pixels[..., 0]).mode == load_image(chw[:1]).mode == "RGB"
    assert load_image(np.zeros((2, 2, 4), np.uint8)).getpixel((0, 0)) == (255, 255, 255)
    assert load_image(np.ones((2, 2), bool)).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (np.full((4, 4, 3), np.nan), "NaN"),
        (np.full((4, 4, 3), 200.0), "divide by 255"),
        (np.zeros((2, 4, 4, 3), np.uint8), "expected one image"),
        (np.zeros((0, 4, 3), np.uint8), "expected one image"),
        (np.zeros((4, 4), np.int64), "int64"),
        (torch.zeros(1, 3, 4, 4), "expected one image"),
        (7, "not int"),
    ],
)
def test_arrays_that_are_no_image(source: object, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        load_image(source)
