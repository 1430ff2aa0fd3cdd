"""The pocket generator: a small image-conditioned latent diffusion model whose weights lie inside the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onesdaug.common.devices import pick_device, pick_dtype
from onesdaug.common.registry import GENERATORS
from onesdaug.encoders.checkpoint import (
    Kind,
    load_checkpoint,
    part,
    read_card,
    restored,
    weights_fingerprint,
)
from onesdaug.errors import ConfigError, OnesdaugError, WeightsMissing
from onesdaug.generators.base import Generator
from onesdaug.generators.pocket.cards import DECODER, KIND, PHOTO, DecoderCard, PocketCard
from onesdaug.generators.pocket.condition import GlobalFeature, build_condition, measure
from onesdaug.generators.pocket.config import PocketConfig
from onesdaug.generators.pocket.deep import DeepAutoencoder, build_autoencoder
from onesdaug.generators.pocket.networks import Autoencoder, Denoiser, TinyDecoder, Tokens, resize_places, telling
from onesdaug.generators.schedule import Schedule
from onesdaug.generators.speed import Compile, channels_last, compile_modules, named


class Pocket(Generator):
    """A generator over an autoencoder, a denoiser and a condition encoder.

    The condition means one of two things to the denoiser: `self`, this very image; `class`, an image of the same
    class, known through one global token. `mode` is the one taken unless `image_tokens` is told.

    `side` works at another size than the networks were trained at: they are convolutions and a transformer whose
    places are stretched over the new grid, and the condition encoder resizes whatever it is shown. `decoder` draws
    with a tiny decoder. Both make other views, cheaper, and are part of the fingerprint.
    """

    batch_size = 1024  # smaller ones leave an H200 idle
    modes = ("self", "class")
    options = ("dtype", "side", "decoder")
    default_preset = "pocket-accuracy"
    faithful_preset = "pocket-faithful"
    weights = Path(str(files("onesdaug"))) / "weights" / "pocket"

    def __init__(
        self,
        config: PocketConfig,
        condition: nn.Module,
        autoencoder: Autoencoder,
        denoiser: Denoiser,
        tokens: Tokens,
        mode: str = "class",
        fingerprint: str = "",
        guidance: float = 1.0,
    ) -> None:
        if mode not in self.modes:
            raise ConfigError(f"mode {mode!r} is none of {', '.join(self.modes)}")
        self.config, self.mode, self.fingerprint, self.told_guidance = config, mode, fingerprint, guidance
        self.condition, self.autoencoder, self.denoiser, self.tokens = condition, autoencoder, denoiser, tokens
        for module in (condition, autoencoder, denoiser, tokens):
            module.eval().requires_grad_(False)
        self.size = config.size
        self.schedule = Schedule.scaled_linear()
        self.card: dict[str, Any] = {}
        self.latents = ""  # whose latents these are: the fingerprint of the autoencoder
        self.to(torch.device("cpu"), torch.float32)

    @classmethod
    def recognises(cls, source: str) -> bool:
        """A folder whose card says so; generators derived from this one have names alone."""
        try:
            return cls is Pocket and read_card(Path(source).expanduser(), Kind).get("kind") in (KIND, PHOTO)
        except OnesdaugError:
            return False

    @classmethod
    def kind_of(cls, source: str) -> type[Pocket]:
        return Photo if read_card(Path(source).expanduser(), Kind).get("kind") == PHOTO else cls

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path = "pocket",
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        side: int | None = None,
        decoder: str | Path | None = None,
    ) -> Pocket:
        """A name of such a generator, or a folder that `onesdaug generator train` wrote. Never uses the network."""
        tensors, card = load_weights(source)
        own, folder = PocketConfig(**card["network"]), locate(source)
        config = at_side(own, side)
        fingerprint = card["weights"] + (f":{side}px" if config.size != own.size else "")
        build = partial(build_condition, card["condition"]["name"], tuple(card["condition"]["widths"]), own)
        weights = part(tensors, "condition")
        condition = restored(build, weights, folder) if weights else build()
        kinds: dict[str, Callable[[PocketConfig], nn.Module]] = {
            "autoencoder": build_autoencoder, "denoiser": Denoiser, "tokens": Tokens
        }  # fmt: skip
        parts: dict[str, Any] = {
            key: restored(partial(kind, own), part(tensors, key), folder) for key, kind in kinds.items()
        }
        if config != own:
            stretched = resize_places(tensors["denoiser.place"], config.places)
            stored = part({**tensors, "denoiser.place": stretched}, "denoiser")
            parts["denoiser"] = restored(partial(Denoiser, config), stored, folder)
        latents = weights_fingerprint(parts["autoencoder"].state_dict())
        if decoder is not None:
            parts["autoencoder"].decoder, drawing = load_decoder(decoder, latents)
            if isinstance(parts["autoencoder"], DeepAutoencoder):  # which also draws by a linear map
                for parameter in parts["autoencoder"].draw.parameters():
                    nn.init.zeros_(parameter)
            fingerprint += f":{drawing}"
        chosen = pick_device(device)
        made = cls(
            config, condition, **parts, mode=card["mode"], fingerprint=fingerprint, guidance=card.get("guidance", 1.0)
        )
        made.card, made.latents = card, latents
        return made.to(chosen, pick_dtype(dtype, chosen))

    def to(self, device: torch.device, dtype: torch.dtype) -> Pocket:
        self.device, self.dtype = device, dtype
        for module in (self.condition, self.autoencoder, self.denoiser, self.tokens):
            module.to(device, dtype)
        if isinstance(self.autoencoder, DeepAutoencoder):  # on a CPU it takes a third of the time in this layout
            channels_last(self.condition, self.autoencoder, self.denoiser)
        # v → eps needs both roots at the exact timestep, in full precision
        abar = torch.from_numpy(self.schedule.abar).to(device, torch.float32)
        self._signal, self._noise = abar.sqrt(), (1 - abar).sqrt()
        return self

    def to_device(self, device: torch.device) -> Pocket:
        return self.to(device, self.dtype)

    def compile_networks(self, mode: Compile) -> None:
        """`regional` compiles the transformer's blocks."""
        channels_last(self.condition, self.autoencoder, self.denoiser)
        if mode == "regional":
            compile_modules(named(self.denoiser, "Block"), mode)
        else:
            compile_modules([self.denoiser, self.autoencoder.encoder, self.autoencoder.decoder], mode)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        return self.autoencoder.encode(x.to(self.device, self.dtype)).float()

    @torch.no_grad()
    def decode(self, z: Tensor) -> Tensor:
        return self.autoencoder.decode(z.to(self.dtype)).float().clamp(0, 1)

    @torch.no_grad()
    def image_tokens(self, x: Tensor, mode: str | None = None) -> Tensor:
        mode = mode or self.mode
        if mode not in self.modes:
            raise ConfigError(f"mode {mode!r} is none of {', '.join(self.modes)}")
        whole, local = measure(self.condition, x.to(self.device))
        same_class = torch.full((len(x),), mode == "class", device=self.device)
        tokens: Tensor = self.tokens(whole.to(self.dtype), local.to(self.dtype), same_class)
        return tokens.float()

    def null_tokens(self, n: int) -> Tensor:
        return self.tokens.null.float().expand(n, -1, -1)

    @torch.no_grad()
    def predict(
        self, z: Tensor, t: Tensor, tokens: Tensor, image_scale: Tensor, guidance: float = 1.0
    ) -> Tensor:  # fmt: skip
        """eps from v; the image scale leads from the tokens of "no image" (0) to the image's own (1) and beyond.

        `guidance` is for a denoiser that was taught to guide itself. It always draws as pictures of its own size are.
        """
        null = self.tokens.null.float()
        tokens = null + image_scale[:, None, None] * (tokens - null)
        told: tuple[Tensor, ...] = ()
        if self.config.told:
            side, scale = (torch.full_like(image_scale, value) for value in (self.config.size, guidance))
            told = (telling(side, scale),)
        v: Tensor = self.denoiser(z.to(self.dtype), t, tokens.to(self.dtype), *told).float()
        signal, noise = (root[t][:, None, None, None] for root in (self._signal, self._noise))
        return signal * v + noise * z


class Photo(Pocket):
    """A generator of photographs of 256×256 pixels; a package of its own brings the released weights."""

    batch_size = 128
    default_preset = "photo-accuracy"
    faithful_preset = "photo"


def condition_encoder() -> nn.Module:
    """What the embedded `pocket` sees of an image: `--encoder onesdaug.generators.pocket:condition_encoder`."""
    return GlobalFeature(Pocket.from_pretrained("pocket", device="cpu", dtype="float32").condition)


def locate(name: str | Path) -> Path:
    """The folder of weights behind a name, or the folder itself."""
    if str(name) not in GENERATORS and str(name) not in GENERATORS.elsewhere:
        return Path(name).expanduser().absolute()  # so that ./pocket is never taken for the name
    kind = GENERATORS.get(str(name))
    if not (isinstance(kind, type) and issubclass(kind, Pocket)):
        raise WeightsMissing(f"{name} is no pocket generator; {_advice()}")
    return kind.weights


def at_side(config: PocketConfig, side: int | None) -> PocketConfig:
    """The same networks for another square, of whole places of the transformer."""
    if side is None:
        return config
    low, high = config.size // 4, config.size * 4  # beyond that nothing like what was trained is left
    if side % config.place or not low <= side <= high:
        raise ConfigError(
            f"side must be a multiple of {config.place} from {low} to {high} for this generator "
            f"(its own is {config.size}), got {side}"
        )
    return replace(config, size=side)


def load_weights(name: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the card behind a name or folder, checked against each other; what is wrong is said plainly."""
    folder = locate(name)
    if (kind := _kind(folder, _advice())) not in (KIND, PHOTO):
        raise WeightsMissing(f"{folder} holds no pocket generator (its card says kind {kind!r})")
    return load_checkpoint(folder, PocketCard)


def load_decoder(source: str | Path, latents: str) -> tuple[TinyDecoder, str]:
    """A tiny decoder that `benchmarks/tiny_decoder.py` wrote, for these very latents, and its fingerprint."""
    folder = Path(source).expanduser()
    advice = "artifacts/pocket-tiny-decoder is one, for pocket-imagenet; benchmarks/tiny_decoder.py writes others"
    if (kind := _kind(folder, advice)) != DECODER:
        raise ConfigError(f"{folder} is {kind or 'of no known kind'}; for a pocket generator {advice}")
    tensors, card = load_checkpoint(folder, DecoderCard)
    if card["latents"] != latents:
        raise ConfigError(
            f"{folder} was trained for the latents of another autoencoder than this generator's; {advice}"
        )
    return restored(partial(TinyDecoder, **card["network"]), part(tensors, "decoder"), folder), card["weights"]


def _kind(folder: Path, advice: str) -> str | None:
    if not (folder / "card.json").is_file():
        raise WeightsMissing(f"{folder} holds no card.json; {advice}")
    return read_card(folder, Kind).get("kind")


def _advice() -> str:
    names = [name for name in (*GENERATORS, *GENERATORS.elsewhere) if name.startswith(("pocket", "photo"))]
    return f"a generator is {', '.join(dict.fromkeys(names))} or a folder that `onesdaug generator train` wrote"
