"""Stage 1: psi is drawn from the family asked for, replays exactly, and is applied as one homography."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onesdaug import ShapeTweak
from onesdaug.augment.seeds import stream
from onesdaug.augment.shape import Psi, warp
from onesdaug.errors import ConfigError

tweaks = st.builds(
    ShapeTweak,
    rotate=st.floats(0, 180),
    stretch=st.floats(0, 0.9),
    translate=st.floats(0, 1),
    perspective=st.floats(0, 0.24),
    flip=st.booleans(),
)


def picture(batch: int = 2, height: int = 24, width: int = 24) -> torch.Tensor:
    return torch.rand(batch, 3, height, width, generator=torch.Generator().manual_seed(0))


@given(tweaks, st.integers(0, 10_000))
def test_psi_stays_in_its_family(tweak: ShapeTweak, seed: int) -> None:
    psi = tweak.sample(stream(seed, 1, "shape"))
    assert abs(psi.angle) <= tweak.rotate
    assert all(abs(s - 1) <= tweak.stretch + 1e-12 for s in psi.scale)
    assert all(abs(s) <= tweak.translate for s in psi.shift)
    assert all(abs(c) <= tweak.perspective for c in psi.corners)
    assert tweak.flip or not psi.flip
    assert abs(np.linalg.det(psi.homography())) > 1e-6  # always invertible: no view is ever torn


@given(tweaks, st.integers(0, 10_000))
@settings(max_examples=25)
def test_a_recorded_psi_replays_exactly(tweak: ShapeTweak, seed: int) -> None:
    psi = tweak.sample(stream(seed, 1, "shape"))
    replayed = Psi.model_validate_json(psi.model_dump_json())
    x = picture(1)
    assert replayed == psi
    assert torch.equal(warp(x, [psi], tweak.border), warp(x, [replayed], tweak.border))


def test_half_of_the_views_are_mirrored() -> None:
    flips = [ShapeTweak().sample(stream(0, k, "shape")).flip for k in range(1, 401)]
    assert 160 < sum(flips) < 240


def test_identity_changes_nothing() -> None:
    assert torch.allclose(warp(picture(), [Psi(), Psi()]), picture(), atol=1e-5)


def test_flip_is_a_mirror() -> None:
    assert torch.allclose(warp(picture(1), [Psi(flip=True)]), picture(1).flip(-1), atol=1e-5)


def test_quarter_turn_is_a_rotation() -> None:
    """Anticlockwise by 90 degrees, as torch.rot90 turns."""
    assert torch.allclose(warp(picture(1), [Psi(angle=90)]), picture(1).rot90(1, (2, 3)), atol=1e-4)


def test_rotation_happens_where_pixels_are_square() -> None:
    """A half turn of a squashed image is a half turn; a quarter turn of a 2:1 image maps its width onto its height."""
    psi = Psi(angle=90)
    point = psi.homography(aspect=2.0) @ np.array([0.5, 0.0, 1.0])  # half way right: half a height, in pixels
    assert np.allclose(point / point[2], [0.0, -1.0, 1.0], atol=1e-9)  # straight up, to the upper edge


def test_shift_moves_by_a_fraction_of_the_side() -> None:
    moved = warp(picture(1), [Psi(shift=(0.25, 0.0))], "zeros")
    assert torch.allclose(moved[..., 6:], picture(1)[..., :-6], atol=1e-5)
    assert moved[..., :5].abs().max() == 0


def test_corner_jitter_moves_the_corner() -> None:
    psi = Psi(corners=(0.1, 0.2, *[0.0] * 6))
    point = psi.homography() @ np.array([-1.0, -1.0, 1.0])
    assert np.allclose(point[:2] / point[2], [-0.8, -0.6])


@pytest.mark.parametrize(("border", "expected"), [("zeros", 0.0), ("edge", 1.0), ("reflect", 1.0)])
def test_borders(border, expected: float) -> None:
    white = torch.ones(1, 3, 16, 16)
    out = warp(white, [Psi(scale=(0.5, 0.5))], border)
    assert torch.allclose(out[0, :, 0, 0], torch.full((3,), expected), atol=1e-5)


def test_rows_are_independent_of_their_neighbours() -> None:
    tweak = ShapeTweak()
    psis = [tweak.sample(stream(7, k, "shape")) for k in range(1, 5)]
    x = picture(4)
    whole = tweak.apply(x, psis)
    for i in range(4):
        assert torch.allclose(whole[i : i + 1], tweak.apply(x[i : i + 1], [psis[i]]), atol=1e-6)


def test_one_setting_never_moves_anothers_draw() -> None:
    with_flip, without = (ShapeTweak(flip=f).sample(stream(3, 1, "shape")) for f in (True, False))
    assert with_flip.model_dump(exclude={"flip"}) == without.model_dump(exclude={"flip"})


@pytest.mark.parametrize(
    "bad", [{"rotate": -1}, {"stretch": 1.0}, {"perspective": 0.25}, {"border": "wrap"}, {"x": 1}]
)
def test_impossible_settings_are_refused(bad) -> None:
    with pytest.raises(ConfigError):
        ShapeTweak(**bad)


def test_wrong_number_of_psi() -> None:
    with pytest.raises(ValueError, match="2 images need as many psi, got 1"):
        warp(picture(2), [Psi()])


def test_strips_of_a_large_picture_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(2, 3, 61, 47, generator=torch.Generator().manual_seed(0))
    psis = ShapeTweak().draw([np.random.default_rng(i) for i in range(2)])
    whole = warp(images, psis)
    monkeypatch.setattr("onesdaug.augment.shape._STRIP", 500)
    assert torch.equal(warp(images, psis), whole)
