"""Checkpoints: a folder with safetensors shards and a JSON card that says how the weights came to be.

    NAME/model.safetensors                or NAME/model-1-of-2.safetensors, NAME/model-2-of-2.safetensors
    NAME/card.json                        backbone, head, preprocessing, data fingerprint, arguments, accuracy …

Tensors of the encoder are called `encoder.*`, those of the head `head.*`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from onesdaug.common.files import whole_folder
from onesdaug.common.reading import parse_json, read_bytes, read_tensors
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.errors import DataError, OnesdaugError, WeightsMissing

M = TypeVar("M", bound=nn.Module)
SCALE = "#scale"  # ends the name of what the rows of a matrix of bytes are multiplied with
SHARD_BYTES = 15 * 2**20  # every file stays under 16 MB


class Kind(BaseModel):
    """What tells whose card it is."""

    kind: str | None = None


class Card(Kind):
    """What every card says; what else it holds is left to those who read it."""

    weights: str


class HeadCard(BaseModel):
    name: str
    settings: dict[str, Any]


class EncoderCard(Card):
    """Of what `onesdaug fewshot train` writes."""

    backbone: str
    architecture: dict[str, Any] | None = None  # of a backbone that the name alone does not build
    preprocess: Preprocess
    head: HeadCard | None = None


def weights_fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """16 hex digits of names, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def save_checkpoint(
    folder: Path, tensors: Mapping[str, Tensor], card: Mapping[str, Any], half: bool = False,
    int8: Callable[[str, Tensor], bool] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write all of it or nothing: a kill leaves the old checkpoint or the new one, never a mixture.

    `int8` says which matrices and kernels are stored in a byte a number, each row with a scale of its own.
    An old checkpoint at that place is replaced; a folder that holds something else never is.
    """
    from safetensors.torch import save_file

    if folder.exists() and not (folder / "card.json").is_file() and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder} is there and is no checkpoint: choose another place; nothing was overwritten")

    ready = {}
    for name, value in tensors.items():
        # only matrices shrink: batch statistics need float32's range and weigh nothing
        value = value.detach().cpu()
        shrinks = half and value.ndim > 1 and value.is_floating_point()
        if shrinks and int8 is not None and int8(name, value):
            scale = value.abs().amax(tuple(range(1, value.ndim)), keepdim=True).clamp(min=1e-12) / 127
            ready[name], ready[name + SCALE] = (value / scale).round().to(torch.int8).contiguous(), scale.float()
            continue
        ready[name] = value.to(torch.float16 if shrinks else value.dtype).contiguous()
    full = {**card, "weights": weights_fingerprint(ready), "parameters": _parameters(ready)}
    shards = _shards(ready)
    with whole_folder(folder) as temporary:
        for i, shard in enumerate(shards, 1):
            name = "model.safetensors" if len(shards) == 1 else f"model-{i}-of-{len(shards)}.safetensors"
            save_file(shard, temporary / name, metadata={"format": "pt"})
        (temporary / "card.json").write_text(json.dumps(full, indent=2, sort_keys=True, default=str) + "\n")
    return full


def load_checkpoint(folder: Path | str, kind: type[Card] = Card) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors, in float32, and the card, checked as one of its `kind`.

    The weights are checked against the card's fingerprint.
    """
    folder = Path(folder)
    card = read_card(folder, kind)
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors.update(read_tensors(path))
    if weights_fingerprint(tensors) != card["weights"]:
        raise DataError(f"the weights in {folder} are not those its card names; a shard is missing or damaged")
    for name in [name for name in tensors if name.endswith(SCALE)]:
        scale, matrix = tensors.pop(name), name.removesuffix(SCALE)
        tensors[matrix] = tensors[matrix].float() * scale
    return {k: v.float() if v.is_floating_point() else v for k, v in tensors.items()}, card


def read_card(folder: Path, kind: type[Kind]) -> dict[str, Any]:
    """The card alone; DataError where it is not one of that kind."""
    path = folder / "card.json"
    if not path.is_file():
        raise WeightsMissing(f"{folder} holds no card.json; a checkpoint is what `onesdaug fewshot train` writes")
    text = read_bytes(path)
    parse_json(text, kind, str(path), "the card of such a checkpoint, or is damaged")
    card: dict[str, Any] = json.loads(text)
    return card


@contextmanager
def by_card(folder: Path | str) -> Iterator[None]:
    """Building what a card describes: whatever does not fit is said in one line that names the checkpoint."""
    try:
        yield
    except OnesdaugError as error:
        raise error if str(folder) in str(error) else type(error)(f"{folder}: {error}") from error
    except (RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{folder} is damaged: its weights or settings do not fit ({reason})") from error


class _Undrawn(TorchFunctionMode):
    """Weights are not drawn at random: to do so without memory, torch loads its compiler, which takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        drawn = func in (torch.Tensor.normal_, torch.Tensor.uniform_)
        if drawn or getattr(func, "__module__", "") == nn.init.__name__:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def restored(build: Callable[[], M], tensors: Mapping[str, Tensor], folder: Path | str) -> M:
    """The module with these weights of a checkpoint; DataError where they do not fit it.

    Sizes are compared before memory is asked for: a damaged card may claim any.
    """
    with by_card(folder):
        with torch.device("meta"), _Undrawn():
            claimed = _shapes(build().state_dict())
        if wrong := sorted(dict(claimed.items() ^ _shapes(tensors).items())):
            raise DataError(f"{folder} is damaged: {wrong[0]} and {len(wrong) - 1} more are not as its card says")
        module = build()
        module.load_state_dict(tensors)
        return module


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}


def join(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """All tensors of several modules, each behind its module's name."""
    return {f"{name}.{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of one module, without its prefix."""
    return {k.removeprefix(prefix + "."): v for k, v in tensors.items() if k.startswith(prefix + ".")}


def _parameters(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Trained numbers per module; batch statistics are not parameters."""
    statistics = ("running_mean", "running_var", "num_batches_tracked", SCALE)
    counts: dict[str, int] = {}
    for name, value in tensors.items():
        if not name.endswith(statistics):
            top = name.split(".", 1)[0]
            counts[top] = counts.get(top, 0) + value.numel()
    return counts


def _shards(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    room = SHARD_BYTES
    for name, value in tensors.items():
        need = value.numel() * value.element_size()
        if need > room and shards[-1]:
            shards.append({})
            room = SHARD_BYTES
        shards[-1][name] = value
        room -= need
    return shards
