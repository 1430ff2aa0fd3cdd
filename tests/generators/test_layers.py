"""Faster forms of diffusers' layers: each is held against the layer it stands for, in full precision."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from onesdaug.bench.random_sd import random_sd
from onesdaug.generators import speed
from onesdaug.generators.sd.attention import fuse_projections
from onesdaug.generators.sd.fast import layers
from onesdaug.generators.sd.fast.unet import FastUNet, supported

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(("channels", "groups", "offset"), [(32, 8, 0.0), (30, 3, 5.0), (8, 8, -2.0)])
@pytest.mark.parametrize("side", [(5, 7), (12,)])
def test_channel_norm(channels: int, groups: int, offset: float, side: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm = nn.GroupNorm(groups, channels)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    x = torch.randn(3, channels, *side) + offset
    assert (layers.ChannelNorm(norm)(x) - norm(x)).abs().max() < 2e-5


def test_channel_norm_in_half_precision_is_no_further_off() -> None:
    torch.manual_seed(0)
    norm = nn.GroupNorm(4, 32)
    x = torch.randn(2, 32, 16, 16) * 3 + 4
    half = copy.deepcopy(norm).bfloat16()
    exact = norm(x.bfloat16().float())
    ours, theirs = (((f(x.bfloat16()).float()) - exact).abs().mean() for f in (layers.ChannelNorm(half), half))
    assert ours < 1.2 * theirs
    flat = torch.full((1, 32, 4, 4), 7.0)  # no variance at all: rounding must not make it negative
    assert torch.isfinite(layers.ChannelNorm(norm)(flat)).all()


def test_row_norm() -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(40)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    x = torch.randn(2, 5, 40) + 3
    assert (layers.RowNorm(norm)(x) - norm(x)).abs().max() < 1e-5
    half = copy.deepcopy(norm).bfloat16()
    exact = norm(x.bfloat16().float())
    ours, theirs = ((f(x.bfloat16()).float() - exact).abs().mean() for f in (layers.RowNorm(half), half))
    assert ours < 1.2 * theirs


def test_grow_is_upsampling_and_convolution() -> None:
    from diffusers.models.upsampling import Upsample2D

    torch.manual_seed(0)
    plain = Upsample2D(6, use_conv=True, out_channels=10)
    x = torch.randn(2, 6, 5, 8)
    assert (layers.Grow(plain)(x) - plain(x)).abs().max() < 1e-5
    assert (layers.Grow(plain)(last(x)) - plain(x)).abs().max() < 1e-5


def test_wide_attention() -> None:
    from diffusers.models.attention_processor import Attention

    torch.manual_seed(0)
    plain = Attention(
        32, heads=1, dim_head=32, bias=True, norm_num_groups=4, residual_connection=True, upcast_softmax=True
    )
    x = torch.randn(2, 32, 6, 4)
    assert (layers.WideAttention(plain)(x) - plain(x)).abs().max() < 1e-5


def test_rewrite_finds_what_it_can_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "WIDEST_FUSED", 16)
    sd = random_sd("sd15-tiny", CPU, torch.float32)
    x = torch.rand(2, 3, 32, 32)
    z = sd.encode(x)
    drawn = sd.decode(z)
    for network in (sd.vae.encoder, sd.vae.decoder):
        layers.rewrite(network)
        kinds = {type(module) for module in network.modules()}
        assert nn.GroupNorm not in kinds and {layers.ChannelNorm, layers.WideAttention} <= kinds
    assert any(isinstance(module, layers.Grow) for module in sd.vae.decoder.modules())
    assert (sd.encode(x) - z).abs().max() < 1e-4 and (sd.decode(z) - drawn).abs().max() < 1e-4


@pytest.mark.parametrize("attention", ["decoupled", "concat"])
@pytest.mark.parametrize("times", [1, 2])
def test_fast_unet_is_the_unet(attention: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of its own time, tokens and scale; with `times` 2 the common part runs on half the rows."""
    sd = random_sd("sd15-tiny", CPU, torch.float32)
    torch.manual_seed(1)
    z, t = torch.randn(3, 4, 16, 16), torch.tensor([3, 500, 999])
    tokens, scale = torch.randn(3 * times, 81, 32), torch.rand(3 * times)
    expected = sd.predict(z.repeat(times, 1, 1, 1), t.repeat(times), tokens, scale, attention)
    monkeypatch.setattr(layers, "LONGEST_HELD", 40)  # the tiny UNet's rows have 64 numbers
    seen: list[int] = []
    sd.unet.conv_in.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    layers.rewrite(sd.unet), fuse_projections(sd.unet)
    assert supported(sd.unet) and any(isinstance(module, layers.RowNorm) for module in sd.unet.modules())
    fast = FastUNet(sd.unet)
    made = fast(z, t, fast.prepared(tokens), scale, attention)
    assert expected.std() > 0.1 and (made - expected).abs().max() < 1e-4
    assert seen == [3]


def test_tokens_may_be_prepared_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "BACKEND", "eager")
    sd = random_sd("sd15-tiny", CPU, torch.float32)
    x, z, t = torch.rand(2, 3, 32, 32), torch.randn(2, 4, 16, 16), torch.tensor([10, 700])
    tokens, scale = sd.image_tokens(x), torch.tensor([0.5, 1.0])
    expected = sd.predict(z, t, tokens, scale)
    assert sd.prepared(tokens) is tokens  # nothing to prepare as long as nothing is joined
    sd.accelerate("max")
    prepared = sd.prepared(tokens)
    assert prepared.shape[-1] > 4 * tokens.shape[-1]
    for given in (tokens, prepared):
        assert (sd.predict(z, t, given, scale) - expected).abs().max() < 1e-4


def test_other_unets_are_left_to_diffusers() -> None:
    from diffusers import UNet2DConditionModel

    small = {"block_out_channels": (32, 64), "layers_per_block": 1, "cross_attention_dim": 32, "norm_num_groups": 8}
    blocks = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
              "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}  # fmt: skip
    assert supported(UNet2DConditionModel(attention_head_dim=4, **small, **blocks))
    assert supported(UNet2DConditionModel(attention_head_dim=4, use_linear_projection=True, **small, **blocks))
    assert not supported(UNet2DConditionModel(attention_head_dim=4, class_embed_type="timestep", **small, **blocks))
    odd = {**blocks, "down_block_types": ("ResnetDownsampleBlock2D", "CrossAttnDownBlock2D")}
    assert not supported(UNet2DConditionModel(attention_head_dim=4, **small, **odd))


def test_the_vae_takes_as_many_rows_at_once_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    sd = random_sd("sd15-tiny", CPU, torch.float32)
    x = torch.rand(5, 3, 32, 32)
    z = sd.encode(x)
    drawn = sd.decode(z)
    seen: list[int] = []
    for network in (sd.vae.encoder, sd.vae.decoder):
        network.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    sd._vae_rows = 2
    assert (sd.encode(x) - z).abs().max() < 1e-5 and (sd.decode(z) - drawn).abs().max() < 1e-5
    assert seen == [2, 2, 1, 2, 2, 1]
