"""Augmentation on the device: the identity is exact, turns are right, pixels stay in range."""

from __future__ import annotations

import torch

from onesdaug.training.augment import DeviceAugment


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
