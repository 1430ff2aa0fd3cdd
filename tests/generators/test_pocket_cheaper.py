"""The pocket generator at other sides and with a tiny decoder: other views, cheaper, and never mistaken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.data.pixels import to_tensor
from onesdaug.encoders.checkpoint import save_checkpoint
from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.load import find_generator, has_weights
from onesdaug.generators.pocket.cards import DECODER
from onesdaug.generators.pocket.generator import Pocket, load_weights
from onesdaug.generators.pocket.networks import TinyDecoder, resize_places
from tests.conftest import make_image

RELEASED = Path(__file__).parents[2] / "artifacts" / "pocket-tiny-decoder"


@pytest.fixture(scope="module")
def pocket() -> Pocket:
    return Pocket.from_pretrained("pocket", device="cpu")


def save_decoder(folder: Path, latents: str, channels: int = 6) -> Path:
    """Untrained, in the real format."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tiny = TinyDecoder(channels, width=8, depth=1)
    card = {"kind": DECODER, "network": {"channels": channels, "width": 8, "depth": 1}, "latents": latents}
    save_checkpoint(folder, {f"decoder.{k}": v for k, v in tiny.state_dict().items()}, card)
    return folder


def pictures(n: int = 2, side: int = 50) -> torch.Tensor:
    return torch.stack([to_tensor(make_image(i, (side, side))) for i in range(n)])


# -- another side -----------------------------------------------------------------------------------------------------


def test_the_own_side_changes_nothing(pocket: Pocket) -> None:
    same, stored = Pocket.from_pretrained("pocket", device="cpu", side=96), load_weights("pocket")[0]
    assert same.fingerprint == pocket.fingerprint and same.config == pocket.config
    for name in ("autoencoder", "denoiser", "tokens", "condition"):
        for key, value in getattr(same, name).state_dict().items():
            assert torch.equal(value, stored[f"{name}.{key}"]), key


@pytest.mark.parametrize("side", [48, 64, 80, 128])
def test_views_at_another_side(side: int) -> None:
    aug = Augmenter.from_pretrained("pocket", config=preset("pocket-accuracy", steps=2), side=side, device="cpu")
    generator = aug.generator
    assert isinstance(generator, Pocket)
    assert generator.size == aug.side == side
    assert aug.fingerprint == f"{generator.card['weights']}:{side}px"
    views = aug.tensors(pictures(), k=1)
    assert views.shape == (2, 1, 3, 50, 50) and torch.isfinite(views).all() and views.std() > 0.05
    x = pictures(side=side)
    z, t = generator.encode(x), torch.tensor([500, 500])
    assert z.shape == (2, 6, side // 4, side // 4)
    for mode in ("self", "class"):
        tokens = generator.image_tokens(x, mode)
        assert tokens.shape == (2, 26, 384)
        assert generator.predict(z, t, tokens, torch.ones(2)).shape == z.shape
    assert generator.decode(z).shape == x.shape
    assert (generator.decode(z) - x).abs().mean() < 0.08  # convolutions know their pictures at any side


def test_a_smaller_side_still_finds_the_noise(pocket: Pocket) -> None:
    """Places stretched over the new grid help; without them, or in disorder, the denoiser is worse."""
    small = Pocket.from_pretrained("pocket", device="cpu", side=64)
    x = pictures(4, 64)
    z, t = small.encode(x), torch.full((4,), 600)
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
    noisy = small.schedule.add_noise(z, noise, 600)

    def error() -> float:
        tokens = small.image_tokens(x, "self")
        return float((small.predict(noisy, t, tokens, torch.ones(4)) - noise).square().mean())

    good, place = error(), small.denoiser.place.clone()
    small.denoiser.place.copy_(place[torch.randperm(len(place), generator=torch.Generator().manual_seed(0))])
    assert good < 0.15 and error() > good


def test_places_are_stretched_evenly() -> None:
    across = torch.arange(12.0).repeat(12)[:, None]
    assert resize_places(across, 12) is across
    smaller = resize_places(across, 8).view(8, 8)
    assert (smaller - smaller[0]).abs().max() < 1e-4  # rows stay alike
    assert torch.allclose(smaller[0, 2:-2], torch.arange(8.0)[2:-2] * 1.5 + 0.25, atol=0.03)


@pytest.mark.parametrize("side", [0, -64, 8, 100, 92, 392, 4096])
def test_a_side_that_cannot_be_is_refused(side: int) -> None:
    with pytest.raises(ConfigError, match=rf"multiple of 8 from 24 to 384 .*its own is 96.*got {side}$"):
        Augmenter.from_pretrained("pocket", side=side, device="cpu")


# -- a tiny decoder ---------------------------------------------------------------------------------------------------


def test_a_tiny_decoder_draws_and_is_named(pocket: Pocket, tmp_path: Path) -> None:
    folder = save_decoder(tmp_path / "tiny", pocket.latents)
    config = preset("pocket-accuracy", steps=2)
    tiny = Augmenter.from_pretrained("pocket", config=config, decoder=folder, device="cpu")
    both = Augmenter.from_pretrained("pocket", config=config, decoder=str(folder), side=64, device="cpu")
    assert tiny.fingerprint.startswith(f"{pocket.fingerprint}:") and ":64px:" in both.fingerprint
    assert tiny.fingerprint.split(":")[-1] == both.fingerprint.split(":")[-1]
    x = pictures()
    plain, drawn = (aug.tensors(x, k=1) for aug in (Augmenter(pocket, config), tiny))
    assert plain.shape == drawn.shape == both.tensors(x, k=1).shape and (plain - drawn).abs().max() > 0.01
    assert isinstance(tiny.generator, Pocket) and tiny.generator.latents == pocket.latents
    z = pocket.encode(pictures(side=96))
    assert torch.equal(z, tiny.generator.encode(pictures(side=96)))  # only drawing is another's
    assert tiny.generator.decode(z).shape == (2, 3, 96, 96)
    assert not any(p.any() for p in tiny.generator.autoencoder.draw.parameters())  # nothing but the tiny one draws
    half = Pocket.from_pretrained("pocket", decoder=folder, device="cpu", dtype="bfloat16")
    assert half.decode(z).dtype == torch.float32


def test_a_decoder_that_does_not_belong_is_refused(pocket: Pocket, tmp_path: Path) -> None:
    def load(decoder: Path) -> None:
        Augmenter.from_pretrained("pocket", decoder=decoder, device="cpu")

    with pytest.raises(WeightsMissing, match=r"holds no card.json.*artifacts/pocket-tiny-decoder"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="latents of another autoencoder"):
        load(save_decoder(tmp_path / "other", "f00d"))
    save_checkpoint(tmp_path / "model", {"encoder.w": torch.zeros(2)}, {"backbone": "res12"})
    with pytest.raises(ConfigError, match=r"is of no known kind.*benchmarks/tiny_decoder\.py"):
        load(tmp_path / "model")


def test_the_released_one_is_tiny_and_near_the_real_one() -> None:
    """It was trained for the latents of the pocket before, which pocket-imagenet has."""
    if not (RELEASED / "card.json").is_file() or not has_weights("pocket-imagenet"):
        pytest.skip("artifacts/pocket-tiny-decoder or pocket-imagenet is not here")
    pocket = find_generator("pocket-imagenet").from_pretrained("pocket-imagenet", device="cpu")
    assert sum(file.stat().st_size for file in RELEASED.iterdir()) < 10**6
    tiny = find_generator("pocket-imagenet").from_pretrained("pocket-imagenet", decoder=RELEASED, device="cpu")
    assert sum(p.numel() for p in tiny.autoencoder.decoder.parameters()) < 200_000
    skimage = pytest.importorskip("skimage")
    photo = torch.from_numpy(skimage.data.chelsea()).permute(2, 0, 1)[None] / 255
    z = pocket.encode(torch.nn.functional.interpolate(photo, (96, 96), mode="bilinear", antialias=True))
    error = (tiny.decode(z) - pocket.decode(z)).square().mean()
    assert -10 * error.log10() > 30
