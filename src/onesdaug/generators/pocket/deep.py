"""The autoencoder of a generator that draws photographs, and the discriminator that teaches its decoder texture.

    x (3, 256, 256) ◄─ DeepAutoencoder ─► z (12, 32, 32)     of `photo`; a quarter of the side for thumbnails

Nothing here looks at a whole picture: it is normalised over the channels of each place, so what was trained on crops
of 128 pixels does the same at 256. That also is one pass over memory in the layout in which convolutions are fast.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onesdaug.generators.pocket.config import PocketConfig
from onesdaug.generators.pocket.networks import Autoencoder, Upsample

ENCODER_BLOCKS, DECODER_BLOCKS = 1, 3  # for each size of map: drawing is harder than looking
START = -3.0  # logarithm of the variance that latents begin with: more of it hides the picture for hundreds of steps


class PixelNorm(nn.Module):
    """Layer normalisation over the channels of each place, in the precision of its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            last = x.permute(0, 2, 3, 1)
            last = F.layer_norm(last, last.shape[-1:], self.weight.to(x.dtype), self.bias.to(x.dtype))
        return last.permute(0, 3, 1, 2)


class PlainBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut; it begins as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = PixelNorm(width)
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.conv2(F.silu(self.conv1(F.silu(self.norm(x)))))
        return out


class DeepAutoencoder(Autoencoder):
    """Images in [0, 1] ↔ latents of an eighth of the side, or a quarter; each channel has its own mean and variance
    taken out.

    Deep networks lie beside a linear map of patches of pixels and back, and learn what it cannot do. Without it
    training takes several times as long; begun with the principal components it stays near them.
    """

    shift: Tensor

    def __init__(self, config: PocketConfig) -> None:
        nn.Module.__init__(self)
        c, patch = config.channels, config.down
        widths = [config.ae_width * 2**level for level in range(patch.bit_length() - 1)]  # from fine to coarse
        fine, coarse = widths[0], widths[-1]
        self.look, self.draw = nn.Conv2d(3, c, patch, patch), nn.ConvTranspose2d(c, 3, patch, patch)
        code, picture = nn.Conv2d(coarse, 2 * c, 3, padding=1), nn.Conv2d(fine // 2, 3, 3, padding=1)
        smaller: list[nn.Module] = [nn.Conv2d(12, fine, 3, padding=1), *_blocks(fine, ENCODER_BLOCKS)]
        for a, b in pairwise(widths):
            smaller += [nn.Conv2d(a, b, 3, stride=2, padding=1), *_blocks(b, ENCODER_BLOCKS)]
        self.encoder = nn.Sequential(nn.PixelUnshuffle(2), *smaller, PixelNorm(coarse), nn.SiLU(), code)
        larger: list[nn.Module] = [nn.Conv2d(c, coarse, 3, padding=1), *_blocks(coarse, DECODER_BLOCKS)]
        for b, a in pairwise(reversed(widths)):
            larger += [Upsample(b, a), *_blocks(a, DECODER_BLOCKS)]
        self.decoder = nn.Sequential(
            *larger, PixelNorm(fine), nn.SiLU(), Upsample(fine, fine // 2), nn.SiLU(), picture
        )
        for last in (code, picture):  # in the beginning the linear map is alone
            for parameter in last.parameters():
                nn.init.zeros_(parameter)
        nn.init.constant_(code.get_parameter("bias")[c:], START)
        self.register_buffer("scale", torch.ones(c))
        self.register_buffer("shift", torch.zeros(c))

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance, before the channels are normalised."""
        x = 2 * x - 1
        mean, logvar = self.encoder(x).float().chunk(2, dim=1)
        return mean + self.look(x).float(), logvar.clamp(-20, 10)

    def encode(self, x: Tensor) -> Tensor:
        return (self.posterior(x)[0] - _wide(self.shift)) * _wide(self.scale)

    def decode(self, z: Tensor) -> Tensor:
        """Not clamped."""
        z = z / _wide(self.scale) + _wide(self.shift)
        out: Tensor = self.decoder(z) + self.draw(z)
        return (out + 1) / 2


def _blocks(width: int, count: int) -> list[PlainBlock]:
    return [PlainBlock(width) for _ in range(count)]


def _wide(values: Tensor) -> Tensor:
    return values[:, None, None]


def build_autoencoder(config: PocketConfig) -> Autoencoder:
    """The one these sizes ask for."""
    return DeepAutoencoder(config) if config.deep or config.down == 8 else Autoencoder(config)


class Discriminator(nn.Sequential):
    """Real or drawn, for overlapping patches of 46×46 pixels."""

    def __init__(self, width: int = 64) -> None:
        super().__init__(
            nn.Conv2d(3, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), PixelNorm(2 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, stride=2, padding=1), PixelNorm(4 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 1, 4, padding=1),
        )  # fmt: skip
