"""Augmentation on the device: the identity is exact, turns are right, pixels stay in range."""

from __future__ import annotations

import torch

from onesdaug.training.augment import DeviceAugment, _edited, mixed


def batch(n: int = 6, size: int = 24) -> torch.Tensor:
    return torch.randint(0, 256, (n, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_no_augmentation_is_the_image() -> None:
    images = batch()
    plain = DeviceAugment(24, crop_scale=(1, 1), crop_ratio=(1, 1), flip=False, jitter=0)
    out, turns = plain(images)
    assert torch.allclose(out, images.permute(0, 3, 1, 2) / 255, atol=1e-5)
    assert turns.eq(0).all()


def test_turns_are_quarter_turns_of_the_image() -> None:
    images = batch(32)
    out, turns = DeviceAugment(24, (1, 1), (1, 1), flip=False, jitter=0, rotate=1.0)(images)
    assert set(turns.tolist()) == {1, 2, 3}
    for image, turned, k in zip(images, out, turns.tolist(), strict=True):
        want = torch.rot90(image.permute(2, 0, 1) / 255, k, dims=(1, 2))
        assert torch.allclose(turned, want, atol=1e-4)


def test_flips_are_mirror_images() -> None:
    images = batch(32)
    out, _ = DeviceAugment(24, (1, 1), (1, 1), flip=True, jitter=0)(images)
    plain = images.permute(0, 3, 1, 2) / 255
    straight = (out - plain).abs().amax((1, 2, 3)) < 1e-4
    mirrored = (out - plain.flip(3)).abs().amax((1, 2, 3)) < 1e-4
    assert (straight | mirrored).all()
    assert straight.any() and mirrored.any()


def test_everything_on_stays_in_range_and_repeats_with_the_seed() -> None:
    augment = DeviceAugment(16, rotate=0.5)
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(augment(batch())[0])
    assert made[0].shape == (6, 3, 16, 16)
    assert made[0].min() >= 0 and made[0].max() <= 1
    assert torch.equal(made[0], made[1])


def test_strong_augmentation_stays_in_range_and_repeats_with_the_seed() -> None:
    augment = DeviceAugment(16, warp=0.5, edits=0.8, erase=0.5)
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(augment(batch(64))[0])
    assert torch.equal(made[0], made[1]) and made[0].isfinite().all()
    assert made[0].min() >= 0 and made[0].max() <= 1


def test_turned_pictures_keep_their_middle() -> None:
    """A warp is about the centre: what lies there stays, the corners do not."""
    images = batch(16).float().div(64).long().mul(64).to(torch.uint8)
    images[:, 8:16, 8:16] = 200
    out, _ = DeviceAugment(24, (1, 1), (1, 1), flip=False, jitter=0, warp=0.6)(images)
    assert torch.allclose(out[:, :, 11:13, 11:13], torch.tensor(200 / 255), atol=1e-3)
    corners = images.permute(0, 3, 1, 2)[:, :, :4, :4] / 255
    assert ((out[:, :, :4, :4] - corners).abs().mean((1, 2, 3)) > 0.05).float().mean() > 0.8


def test_each_edit_touches_its_share() -> None:
    x = batch(400, 8).permute(0, 3, 1, 2) / 255
    torch.manual_seed(0)
    changed = (_edited(x, 0.5) - x).abs().amax((1, 2, 3)) > 1e-6
    assert 0.35 < changed.float().mean() < 0.6
    assert torch.equal(_edited(x, 0.0), x)


def test_erased_rectangles_are_noise() -> None:
    grey = torch.full((200, 24, 24, 3), 128, dtype=torch.uint8)
    out, _ = DeviceAugment(24, (1, 1), (1, 1), flip=False, jitter=0, erase=0.5)(grey)
    hit = (out - 128 / 255).abs() > 1e-3
    assert 0.35 < hit.amax((1, 2, 3)).float().mean() < 0.65
    assert 0.02 < hit[hit.amax((1, 2, 3))].float().mean() < 0.35


def test_mixed_pictures_say_how_much_is_their_own() -> None:
    """Black and white pictures in turn: the mean of a mixed one is exactly the other's share."""
    torch.manual_seed(0)
    x = torch.zeros(400, 3, 16, 16)
    x[::2] = 1
    out, kept = mixed(x, 0.6)
    own = torch.where(torch.arange(400) % 2 == 0, out.mean((1, 2, 3)), 1 - out.mean((1, 2, 3)))
    assert torch.allclose(own, kept, atol=1e-5)
    assert 0.5 < (kept < 1).float().mean() < 0.68
    blended = ((out > 0.01) & (out < 0.99)).amax((1, 2, 3))
    assert 0.2 < blended.float().mean() < 0.4  # half of them; the others show a piece
    plain, all_own = mixed(x, 0.0)
    assert torch.equal(plain, x) and all_own.eq(1).all()
