"""The pocket generator's networks: a light autoencoder and a small denoiser, plain torch.

    x (3, 96, 96) ◄─ Autoencoder ─► z (4, 24, 24) ─► Denoiser(z_t, t, tokens) ─► v

Two levels of convolutions around a transformer: at 12×12 places attention is cheap, and matrix products are what both
a GPU and two CPU cores do best.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.generators.pocket.config import PocketConfig as PocketConfig


def small_numbers(*shape: int) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(shape), std=0.02))


class Norm(nn.GroupNorm):
    """Group normalisation in the precision of its input: autocast's float32 would double the memory traffic."""

    def __init__(self, channels: int) -> None:
        super().__init__(max(1, channels // 16), channels)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return F.group_norm(x, self.num_groups, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def layer_norm(x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return F.layer_norm(x, x.shape[-1:])


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return F.rms_norm(x, x.shape[-1:], weight.to(x.dtype), 1e-6)


class ResBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut; with `emb`, scaled and shifted by (t, global token)."""

    def __init__(self, inputs: int, width: int, emb: int = 0) -> None:
        super().__init__()
        self.norm1, self.conv1 = Norm(inputs), nn.Conv2d(inputs, width, 3, padding=1)
        self.norm2, self.conv2 = Norm(width), nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, width, 1) if inputs != width else nn.Identity()
        self.film = nn.Linear(emb, 2 * width) if emb else None
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor, emb: Tensor | None = None) -> Tensor:
        h = self.norm2(self.conv1(F.silu(self.norm1(x))))
        if self.film is not None and emb is not None:
            scale, shift = self.film(emb)[:, :, None, None].chunk(2, dim=1)
            h = h * (1 + scale) + shift
        out: Tensor = self.shortcut(x) + self.conv2(F.silu(h))
        return out


class Upsample(nn.Module):
    """Nearest neighbour, then a convolution: no checkerboard."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return out


class Autoencoder(nn.Module):
    """Images in [0, 1] ↔ latents of a quarter of the side, of about unit variance once `scale` is set."""

    scale: Tensor

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        w, c = config.ae_width, config.channels
        self.encoder = nn.Sequential(
            nn.PixelUnshuffle(2), nn.Conv2d(12, w, 3, padding=1), ResBlock(w, w),
            nn.Conv2d(w, 2 * w, 3, stride=2, padding=1), ResBlock(2 * w, 2 * w),
            Norm(2 * w), nn.SiLU(), nn.Conv2d(2 * w, 2 * c, 3, padding=1),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Conv2d(c, 2 * w, 3, padding=1), ResBlock(2 * w, 2 * w), ResBlock(2 * w, 2 * w),
            Upsample(2 * w, w), ResBlock(w, w), ResBlock(w, w), Norm(w), nn.SiLU(),
            Upsample(w, w // 2), nn.SiLU(), nn.Conv2d(w // 2, 3, 3, padding=1),
        )  # fmt: skip
        self.register_buffer("scale", torch.ones(()))

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance, unscaled."""
        mean, logvar = self.encoder(2 * x - 1).float().chunk(2, dim=1)
        return mean, logvar.clamp(-20, 10)

    def encode(self, x: Tensor) -> Tensor:
        return self.posterior(x)[0] * self.scale

    def decode(self, z: Tensor) -> Tensor:
        """Not clamped: training wants the gradient beyond [0, 1]."""
        out: Tensor = self.decoder(z / self.scale)
        return (out + 1) / 2


class TinyDecoder(nn.Module):
    """In the place of `Autoencoder.decoder`: all work at the latent's side, then every place becomes 4×4 pixels.

    A twelfth of the operations. On this small generator that hardly shows in the seconds, because the denoiser takes
    them: it is here so that what a tiny decoder costs in accuracy can be measured. No normalisation, as in TAESD.
    """

    def __init__(self, channels: int = 4, width: int = 48, depth: int = 3) -> None:
        super().__init__()
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(depth)
        )
        self.leave = nn.Sequential(nn.Conv2d(width, 3 * 16, 3, padding=1), nn.PixelShuffle(4))

    def forward(self, z: Tensor) -> Tensor:
        h = F.relu(self.enter(z))
        for block in self.blocks:
            h = F.relu(h + block(h))
        out: Tensor = self.leave(h)
        return out


class Attention(nn.Module):
    """Multi-head attention over `context`, with normalised queries and keys (stable in half precision)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.q_weight, self.k_weight = (nn.Parameter(torch.ones(dim // heads)) for _ in range(2))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        k, v = self.kv(context).chunk(2, dim=-1)
        q, k, v = (a.unflatten(-1, (self.heads, -1)).transpose(1, 2) for a in (self.q(x), k, v))
        q, k = rms_norm(q, self.q_weight), rms_norm(k, self.k_weight)
        out: Tensor = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return out


class Block(nn.Module):
    """Self-attention, attention to the image tokens, and a perceptron, modulated by (t, global token)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention, self.cross = Attention(dim, heads), Attention(dim, heads)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.table = nn.Parameter(torch.zeros(6, dim))  # this block's part of the shared modulation
        nn.init.zeros_(self.cross.out.weight)

    def forward(self, x: Tensor, mod: Tensor, context: Tensor) -> Tensor:
        s1, b1, g1, s2, b2, g2 = (mod + self.table.to(mod.dtype)).unsqueeze(2).unbind(1)
        h = layer_norm(x) * (1 + s1) + b1
        x = x + g1 * self.attention(h, h)
        x = x + self.cross(layer_norm(x), context)
        h = layer_norm(x) * (1 + s2) + b2
        out: Tensor = x + g2 * self.down(F.gelu(self.up(h), approximate="tanh"))
        return out


class Denoiser(nn.Module):
    """v(z_t, t, tokens), v = sqrt(abar)·eps − sqrt(1 − abar)·x0; token 0 is the global one.

    The second half of the blocks sees the first half's states too (long skips), as in a U-Net.
    """

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        w, d, places = config.width, config.dim, config.places**2
        self.time = nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d))
        self.summary = nn.Linear(d, d)
        if config.told:
            self.told = nn.Sequential(nn.Linear(128 * config.told, d), nn.SiLU(), nn.Linear(d, d))
        self.modulation = nn.Linear(d, 6 * d)
        self.enter = nn.Conv2d(config.channels, w, 3, padding=1)
        self.down1, self.down2 = ResBlock(w, w, d), ResBlock(w, w, d)
        self.shrink = nn.Conv2d(w, d, 3, stride=2, padding=1)
        self.place = small_numbers(places, d)
        self.blocks = nn.ModuleList(Block(d, config.heads) for _ in range(config.depth))
        self.skips = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(config.depth // 2))
        self.grow = Upsample(d, w)
        self.up1, self.up2 = ResBlock(2 * w, w, d), ResBlock(w, w, d)
        last = nn.Conv2d(w, config.channels, 3, padding=1)
        self.leave = nn.Sequential(Norm(w), nn.SiLU(), last)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(last.weight)

    def forward(self, z: Tensor, t: Tensor, tokens: Tensor, told: Tensor | None = None) -> Tensor:
        """`told` (B, numbers) is what `telling` makes, for a network that takes it."""
        emb = self.time(sinusoids(t, 256).to(z.dtype)) + self.summary(tokens[:, 0])
        if told is not None:
            emb = emb + self.told(sinusoids(told.flatten(), 128).reshape(len(z), -1).to(z.dtype))
        emb = F.silu(emb)
        mod = self.modulation(emb).unflatten(-1, (6, -1))
        context = layer_norm(tokens)
        h = self.down1(self.enter(z), emb)
        h = skip = self.down2(h, emb)
        h = self.shrink(h)
        side = h.shape[-1]
        x = h.flatten(2).transpose(1, 2) + resize_places(self.place, side).to(h.dtype)
        half = len(self.skips)
        kept: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            if i >= len(self.blocks) - half:
                x = self.skips[i - (len(self.blocks) - half)](torch.cat([x, kept.pop()], dim=-1))
            x = block(x, mod, context)
            if i < half:
                kept.append(x)
        h = self.grow(x.transpose(1, 2).unflatten(-1, (side, side)))
        h = self.up1(torch.cat([h, skip], dim=1), emb)
        out: Tensor = self.leave(self.up2(h, emb))
        return out


def resize_places(place: Tensor, side: int) -> Tensor:
    """The denoiser's learned embedding of its places (side², dim), stretched over another grid; its own is kept."""
    own = math.isqrt(len(place))
    if own == side:
        return place
    grid = place.T.reshape(1, -1, own, own)
    grid = F.interpolate(grid, (side, side), mode="bicubic", align_corners=False, antialias=True)
    return grid[0].flatten(1).T.contiguous()


class Tokens(nn.Module):
    """Features of the condition encoder → tokens (B, 1 + local, dim), in one of two modes.

    `self`: the image itself, a global token and the local ones. `class`: some image of the same class, known through
    its global token alone; the local rows are those of "no image". Trained beside the denoiser.
    """

    mean_g: Tensor
    std_g: Tensor
    mean_l: Tensor
    std_l: Tensor

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        d = config.dim
        self.to_global, self.to_local = nn.Linear(config.global_dim, d), nn.Linear(config.local_dim, d)
        self.place = small_numbers(config.local, d)
        self.modes = small_numbers(2, d)
        self.null = small_numbers(1 + config.local, d)
        for name, size in (("g", config.global_dim), ("l", config.local_dim)):  # of the base classes' features
            self.register_buffer(f"mean_{name}", torch.zeros(size))
            self.register_buffer(f"std_{name}", torch.ones(size))

    def forward(self, whole: Tensor, local: Tensor, same_class: Tensor) -> Tensor:
        """`whole` (B, global_dim), `local` (B, places, local_dim), `same_class` (B,) bool: the mode of each row."""
        g = self.to_global((whole - self.mean_g) / self.std_g) + self.modes[same_class.long()]
        here = self.to_local((local - self.mean_l) / self.std_l) + self.place
        here = torch.where(same_class[:, None, None], self.null[1:].to(here.dtype), here)
        return torch.cat([g[:, None], here], dim=1)


def telling(resolution: Tensor, guidance: Tensor) -> Tensor:
    """What a denoiser is told, (B, 2): how many pixels along its side the picture really has, and how much to guide.

    Both by their logarithm, in the range of timesteps: 1 to 1024 pixels, scales 1 to 16.
    """
    return torch.stack([100 * resolution.log2(), 250 * guidance.log2()], dim=1)


def sinusoids(t: Tensor, size: int) -> Tensor:
    """The usual embedding of the timestep, in float32."""
    frequency = torch.exp(torch.arange(size // 2, device=t.device) * (-math.log(10_000.0) / (size // 2)))
    angle = t.float()[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=-1)
