"""What can be wrapped, and how each is asked: modules, functions, scikit-learn models, transformers pipelines.

And what may be fed: batches, arrays, pictures, paths.
"""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from onesdaug.data.images import load_image
from onesdaug.data.pixels import check_batch, to_floats, to_tensor
from onesdaug.errors import ConfigError

Kind = Literal["module", "probabilities", "labels", "pipeline", "function"]
# what each takes and gives, where the user does not say: `input` and `combine` of TestTimeEnsemble
INPUT: dict[Kind, str | None] = {"module": "tensor", "probabilities": "numpy", "labels": "numpy", "pipeline": "pil"}
COMBINED: dict[Kind, str] = {"probabilities": "probs", "labels": "vote", "pipeline": "probs"}


def kind_of(model: Any) -> Kind:
    """By what it is and has; a scikit-learn model without probabilities (LinearSVC) is asked for its labels."""
    if isinstance(model, nn.Module):
        return "module"
    if any(c.__name__ == "ImageClassificationPipeline" for c in type(model).__mro__):
        return "pipeline"
    if hasattr(model, "predict_proba"):
        return "probabilities"
    if callable(model):
        return "function"
    if hasattr(model, "predict") and hasattr(model, "fit"):
        return "labels"
    raise ConfigError(f"model={model!r} is neither callable nor has predict_proba or predict")


def classes_of(model: Any) -> Any:
    """The label of each column; None where the model does not tell."""
    if kind_of(model) == "pipeline":
        names = model.model.config.id2label
        return np.array([names[number] for number in sorted(names)])
    return getattr(model, "classes_", None)


def ask(model: Any, kind: Kind, fed: Any) -> Any:
    """What the model says of a batch: vectors in any form."""
    if kind == "probabilities":
        return model.predict_proba(fed)
    if kind == "labels":
        if (classes := classes_of(model)) is None:
            raise ConfigError(f"{model!r} is not fitted yet, or is no classifier: it has no classes_")
        return (np.asarray(model.predict(fed))[:, None] == np.asarray(classes)[None]).astype(np.float32)
    if kind == "pipeline":
        column = {name: number for number, name in enumerate(classes_of(model))}
        found = np.zeros((len(fed), len(column)), np.float32)
        for row, answers in zip(found, model(fed, top_k=len(column)), strict=True):
            for answer in answers:
                row[column[answer["label"]]] = answer["score"]
        return found
    return model(fed)


def checked(images: Any) -> Tensor | list[Image.Image]:
    """A batch of floats in [0, 1], or upright RGB pictures, as the views are."""
    images = [images] if isinstance(images, Image.Image | str | PathLike) else images
    if isinstance(images, np.ndarray):
        if images.ndim == 4 and images.shape[-1] == 3:
            images = to_floats(torch.from_numpy(np.ascontiguousarray(images))).permute(0, 3, 1, 2)
        elif images.ndim == 1:
            images = list(images)  # of paths or pictures, as cross-validation cuts them
    if (
        isinstance(images, list | tuple)
        and images
        and all(isinstance(i, Image.Image | str | PathLike) for i in images)
    ):
        return [load_image(i) for i in images]
    if not isinstance(images, Tensor) or len(images) == 0:
        shape = f" {tuple(images.shape)}" if isinstance(images, Tensor | np.ndarray) else ""
        raise ConfigError(
            "feed a (B, 3, H, W) tensor, a (B, H, W, 3) array, a PIL image or a path, or a list of those, not "
            f"a {type(images).__name__.lower()}{shape}"
        )
    check_batch(images)
    return images


def stacked(ready: Any) -> Tensor:
    """One tensor from a tensor, an array, or a list of images, arrays or tensors of equal shape."""
    if not isinstance(ready, list):
        return torch.as_tensor(ready)
    parts = [to_tensor(p) if isinstance(p, Image.Image) else torch.as_tensor(p) for p in ready]
    shapes = sorted({tuple(p.shape) for p in parts})
    if len(shapes) > 1:
        raise ConfigError(
            f"images of different shapes cannot share a batch: {', '.join(map(str, shapes[:4]))}; give "
            "preprocess= a function that brings each PIL image to one size"
        )
    return torch.stack(parts)
