"""Stable Diffusion 1.5 + IP-Adapter as a Generator: diffusers' layers and weights, our own loop around them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from onesdaug.common.hub import is_hub_id, loading
from onesdaug.generators.base import Generator
from onesdaug.generators.schedule import Schedule
from onesdaug.generators.sd import ip_adapter as adapters
from onesdaug.generators.sd.attention import Attention, fuse_projections
from onesdaug.generators.sd.fast.layers import rewrite
from onesdaug.generators.sd.fast.unet import FastUNet, supported
from onesdaug.generators.sd.files import PARTS, encode_text
from onesdaug.generators.sd.kinds import unsupported
from onesdaug.generators.sd.load import load_parts, pixels_per_latent
from onesdaug.generators.speed import Compile, channels_last, compile_modules, named

VAE_PIXELS = 16 * 512**2  # of all rows that go through the VAE at once


class StableDiffusion(Generator):
    """UNet, VAE and (optionally) IP-Adapter. Tokens are rows of [77 text tokens; image tokens].

    `side` works at another size than the model was trained at; `decoder` draws instead of the VAE's own decoder.
    """

    prompts, attentions = True, ("decoupled", "concat")
    options = ("dtype", "side", "decoder", "ip_adapter", "ip_repo", "ip_weights", "vae_tiling", "vae_slicing")

    def __init__(
        self,
        unet: Any,
        vae: Any,
        schedule: Schedule,
        text: dict[str, torch.Tensor],
        adapter: adapters.IPAdapter | None,
        *,
        device: torch.device,
        dtype: torch.dtype,
        velocity: bool = False,
        folder: Path | None = None,
        fingerprint: str = "",
        side: int | None = None,
        decoder: Any = None,
    ) -> None:
        self.unet = unet.to(device).eval().requires_grad_(False)
        self.vae = vae.to(device).eval().requires_grad_(False)
        self.adapter = None if adapter is None else adapter.to(device, dtype).eval().requires_grad_(False)
        self.schedule, self.device, self.dtype = schedule, device, dtype
        self.decoder = decoder
        self.size = side or int(unet.config.sample_size) * pixels_per_latent(vae)
        # larger tensors need 64-bit indices, with which kernels run at half the speed
        self._vae_rows = max(1, VAE_PIXELS // self.size**2)
        self.fingerprint = fingerprint
        self._text = {prompt: rows.to(device, dtype) for prompt, rows in text.items()}
        self._null = None if self.adapter is None else self.adapter.null()
        self._folder = folder
        self._velocity = velocity
        self._fast: FastUNet | None = None
        self._attention: dict[int, list[Any]] = {}  # rows of a batch → attention kernels, fastest first
        self._abar = torch.tensor(schedule.abar, dtype=torch.float32, device=device)

    @classmethod
    def recognises(cls, source: str) -> bool:
        """A folder with any part of a model in diffusers format, or a hub id; or a relative, to be refused as such."""
        path = Path(source).expanduser()
        return is_hub_id(source) or any((path / part).is_dir() for part in PARTS) or unsupported(path) is not None

    @classmethod
    def from_pretrained(cls, source: str | Path = "sd15", **options: Any) -> StableDiffusion:
        """From a folder in diffusers format or the hub's local cache; the options are those of `load_parts`."""
        return cls(**load_parts(source, **options))

    def compile_networks(self, mode: Compile) -> None:
        """Layout, joint projections, compilation."""
        channels_last(self.unet, self.vae, *([self.decoder] if self.decoder is not None else []))
        fuse_projections(self.unet, one_kernel=mode == "max")
        if self.adapter is not None:
            # on a CPU the exact way costs the same; on a GPU it makes the host wait for the device
            self.adapter.on_device = self.device.type == "cuda"
        if mode == "regional":
            # where maps are large and passes over them long; each further size is one more compilation to wait for
            for part in (*self.unet.down_blocks[:2], *self.unet.up_blocks[-2:]):
                compile_modules(named(part, "BasicTransformerBlock"), mode)
        else:
            self._compile_whole()

    def _compile_whole(self) -> None:
        """Networks in their faster forms, which only pay when compiled, and these compiled."""
        drawing = self.vae if self.decoder is None else self.decoder
        networks = [self.unet, self.vae.encoder, drawing.decoder]
        for network in networks:
            rewrite(network)
        if supported(self.unet):
            self._fast = FastUNet(self.unet)
            networks[0] = self._fast
        if self.adapter is not None:
            layers = named(self.adapter.encoder, "CLIPEncoderLayer")
            for layer in layers:
                rewrite(layer)
            networks += layers
        channels_last(*networks)
        compile_modules(networks, "max")

    @property
    def shares_rows(self) -> bool:
        """Whether `predict` takes more rows of tokens than of z: what they have in common is then computed once."""
        return self._fast is not None

    @torch.no_grad()
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Enc(x), the posterior's mean; SD's posterior is so narrow that sampling it would only cost a seed."""
        x = (2 * x - 1).to(self.device, self.dtype)
        parts = [self.vae.encode(some).latent_dist.mode() for some in torch.split(x, self._vae_rows)]
        z: torch.Tensor = torch.cat(parts) * self.vae.config.scaling_factor
        return z.float()

    @torch.no_grad()
    def decode(self, z: torch.Tensor) -> torch.Tensor:
        """Dec(z) in [0, 1]."""
        vae = self.vae if self.decoder is None else self.decoder
        z = (z / vae.config.scaling_factor).to(self.dtype)
        parts = [vae.decode(some).sample for some in torch.split(z, self._vae_rows)]
        return (torch.cat(parts).float() / 2 + 0.5).clamp(0, 1)

    def image_tokens(self, x: torch.Tensor, prompt: str = "") -> torch.Tensor:
        """[f_txt(prompt); f_img(x)], row i from image i."""
        text = self._text_rows(prompt, x.shape[0])
        return text if self.adapter is None else torch.cat([text, self.adapter.tokens(x)], dim=1)

    def null_tokens(self, n: int, prompt: str = "") -> torch.Tensor:
        """[f_txt(prompt); the adapter's "no image"]: the negative side of guidance with an empty prompt."""
        text = self._text_rows(prompt, n)
        return text if self._null is None else torch.cat([text, self._null.expand(n, -1, -1)], dim=1)

    @torch.no_grad()
    def prepared(self, tokens: torch.Tensor) -> torch.Tensor:
        """What `predict` makes of tokens at every step alike; it takes this in their place."""
        return tokens if self._fast is None else self._fast.prepared(tokens)

    @torch.no_grad()
    def predict(
        self,
        z: torch.Tensor,
        t: torch.Tensor,
        tokens: torch.Tensor,
        image_scale: torch.Tensor,
        attention: Attention = "decoupled",
    ) -> torch.Tensor:
        """eps_phi; a velocity-predicting UNet (v = alpha·eps − sigma·x0) is converted."""
        with self._kernels(z):
            if self._fast is not None:
                if tokens.shape[-1] == self.unet.config.cross_attention_dim:
                    tokens = self._fast.prepared(tokens)
                out = self._fast(z.to(self.dtype), t, tokens, image_scale, attention).float()
            else:
                out = self.unet(
                    z.to(self.dtype),
                    t,
                    encoder_hidden_states=tokens,
                    cross_attention_kwargs={"image_scale": image_scale, "attention": attention},
                    return_dict=False,
                )[0].float()
        if not self._velocity:
            return torch.as_tensor(out)
        times = out.shape[0] // z.shape[0]
        abar, z = self._abar[t].reshape(-1, 1, 1, 1).repeat(times, 1, 1, 1), z.repeat(times, 1, 1, 1)
        return torch.as_tensor(abar.sqrt() * out + (1 - abar).sqrt() * z)

    def _kernels(self, z: torch.Tensor) -> AbstractContextManager[None]:
        """The attention kernels to prefer, measured once for each batch size where the start may take its time."""
        if self.compiled != "max" or self.device.type != "cuda":
            return nullcontext()
        from torch.nn.attention import sdpa_kernel

        from onesdaug.generators.sd.fast.attention_backend import fastest_first

        rows, _, height, width = z.shape
        if rows not in self._attention:
            config = self.unet.config
            heads = config.attention_head_dim if isinstance(config.attention_head_dim, int) else 8
            size = config.block_out_channels[0] // heads
            self._attention[rows] = fastest_first(rows, heads, height * width, size, self.dtype)
        context: AbstractContextManager[None] = sdpa_kernel(self._attention[rows], set_priority=True)
        return context

    def _text_rows(self, prompt: str, n: int) -> torch.Tensor:
        if prompt not in self._text:
            if self._folder is None:
                raise ValueError(f"no embedding of the prompt {prompt!r}, and no text encoder to make it")
            with loading(f"the text encoder in {self._folder}", ""):
                self._text[prompt] = encode_text(self._folder, prompt, self.device, self.dtype)
        return self._text[prompt].expand(n, -1, -1)
