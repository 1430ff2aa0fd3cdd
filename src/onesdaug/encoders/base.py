"""The one interface of everything that looks: images in, features out. And of what can be trained to look."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex

import torch
from PIL import Image
from torch import Tensor, nn

from onesdaug.common.own import calling, code_mark
from onesdaug.common.registry import is_from_file
from onesdaug.common.vectors import as_vectors
from onesdaug.data.pixels import same_size, to_pil
from onesdaug.encoders.checkpoint import weights_fingerprint
from onesdaug.encoders.preprocess import Preprocess

PROBE = 224  # px, of the black picture that a function is asked for its `dim` with


class Backbone(nn.Module):
    """A network that can be trained here: preprocessed images (B,3,crop,crop) → features (B,dim)."""

    dim: int
    default_preprocess: Preprocess
    architecture: Mapping[str, Any] | None = None  # what a checkpoint has to say where the name alone builds nothing

    def anneal(self, progress: float) -> None:
        """Told how far training is, from 0 to 1; for what is to come in slowly."""


class Encoder:
    """A frozen network with the preprocessing that belongs to it.

    module: maps preprocessed images (B,3,crop,crop) to features (B,dim): a module or a function.
    preprocess: a `Preprocess` (crop, normalisation), or a function from one PIL image to a tensor (3,h,w).
        None: `Preprocess()`; for pictures, nothing.
    dim: None: it is found out with a black picture.
    fingerprint: what stored features are keyed by. Empty: made of weights, preprocessing and, where the module is not
        ours, the file it is written in.
    pictures: whether the module takes a list of PIL images: as `preprocess` crops them, else each at its own size.
    """

    origin: str | None = None  # what `load_encoder` was given

    def __init__(
        self,
        module: Callable[..., Any],
        preprocess: Preprocess | Callable[[Image.Image], Any] | None = None,
        dim: int | None = None,
        name: str = "",
        fingerprint: str = "",
        *,
        pictures: bool = False,
    ) -> None:
        self.module: Any = module.eval().requires_grad_(False) if isinstance(module, nn.Module) else module
        self.pictures = pictures
        self.preprocess = Preprocess() if preprocess is None and not pictures else preprocess
        self.name = name or getattr(module, "__name__", type(module).__name__)
        self.dim = dim or self._probed_dim()
        self.fingerprint = fingerprint or self._mark()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickled with its weights; a network of a `file.py` as the name it was loaded by."""
        if self.origin is None or not is_from_file(self.module):
            return super().__reduce_ex__(protocol)
        return _load_again, (self.origin, str(self.device))

    @property
    def size(self) -> int | None:
        """Side of the square the network sees; None where it gets whole pictures."""
        return self.preprocess.crop if isinstance(self.preprocess, Preprocess) else None

    @property
    def short_side(self) -> int:
        """What it resizes the short side of an image to: smaller images are enlarged, larger ones lose pixels."""
        return self.preprocess.resize if isinstance(self.preprocess, Preprocess) else sys.maxsize

    @property
    def device(self) -> torch.device:
        tensor = next(self.module.parameters(), None) if isinstance(self.module, nn.Module) else None
        return torch.device("cpu") if tensor is None else tensor.device

    def to(self, device: torch.device | str) -> Encoder:
        if isinstance(self.module, nn.Module):
            self.module.to(device)
        return self

    @torch.inference_mode()
    def embed(self, images: Tensor | Sequence[Tensor], batch: int = 256) -> Tensor:
        """(B,3,H,W), uint8 or float in [0,1], any size → (B,dim) float32, where `images` lies.

        A list holds images (3,H,W) of sizes of their own: cut out size by size, looked at together.
        """
        rows = [self._look(images[i : i + batch]) for i in range(0, len(images), batch)]
        return torch.cat(rows) if rows else torch.empty(0, self.dim)

    def _look(self, images: Tensor | Sequence[Tensor]) -> Tensor:
        with calling(f"encoder {self.name}, given {len(images)} images,", self.module):
            found = as_vectors(self.module(self._frames(images)), len(images), f"encoder {self.name}")
        return found.float().to(images[0].device)

    def _frames(self, images: Tensor | Sequence[Tensor]) -> Any:
        """What the module is fed."""
        cut = self.preprocess
        if isinstance(cut, Preprocess) and not self.pictures:
            if isinstance(images, Tensor):
                return cut(images.to(self.device))
            frames = torch.empty(len(images), 3, cut.crop, cut.crop, device=self.device)
            for places, batch in same_size(images):
                frames[places] = cut(batch.to(self.device))
            return frames
        rows = [cut.frame(image[None]) if isinstance(cut, Preprocess) else image[None] for image in images]
        pictures = [to_pil(row)[0] for row in rows]
        if cut is None or isinstance(cut, Preprocess):
            return pictures
        made = [cut(picture) for picture in pictures]
        return made if self.pictures else torch.stack([torch.as_tensor(one) for one in made]).to(self.device)

    @torch.inference_mode()
    def _probed_dim(self) -> int:
        side = self.size or PROBE
        return self._look(torch.zeros(1, 3, side, side)).shape[1]

    def _mark(self) -> str:
        weights = weights_fingerprint(self.module.state_dict() if isinstance(self.module, nn.Module) else {})
        cut = re.sub(r" at 0x\w+", "", repr(self.preprocess))  # of a function: its address is another in every run
        return "-".join(filter(None, (weights, f"{zlib.crc32(cut.encode()):08x}", code_mark(self.module))))

    __call__ = embed

    def __repr__(self) -> str:
        size = "whole pictures" if self.size is None else f"size={self.size}"
        return f"Encoder({self.name}, dim={self.dim}, {size}, fingerprint={self.fingerprint})"


def _load_again(spec: str, device: str) -> Encoder:
    from onesdaug.encoders.load import load_encoder

    return load_encoder(spec, device)
