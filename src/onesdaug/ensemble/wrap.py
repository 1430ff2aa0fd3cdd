"""`TestTimeEnsemble`: any frozen model, answering for an image and K views of it at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from PIL import Image
from torch import Tensor, nn

from onesdaug.augment.shape import ShapeTweak
from onesdaug.augment.tuned import Tuned
from onesdaug.common.vectors import as_vectors
from onesdaug.data.pixels import to_pil
from onesdaug.ensemble.combine import COMBINE, view_weights
from onesdaug.ensemble.estimator import Estimator
from onesdaug.ensemble.models import COMBINED, INPUT, ask, checked, kind_of, stacked
from onesdaug.ensemble.select import SCORES, kept_views, margins, settled
from onesdaug.ensemble.sources import as_source, find_views
from onesdaug.errors import ConfigError

PICK = "; pick it with output=, for example output=lambda out: out[0]"


NEEDS_SCORES = (
    "k='auto' or select='confidence' (and when='unsure') needs class scores, but combine='embedding' is for a model "
    "that gives features; use select='similarity', or wrap a classifier with combine='logits', 'probs' or 'vote'"
)


@dataclass(frozen=True)
class EnsembleDetails:
    """What `return_details=True` gives: the result and everything it was made of."""

    output: Tensor  # (B, C), what forward returns without details
    per_view: Tensor  # (B, 1+K, C) the model's own outputs; column 0 is the original
    weights: Tensor  # (B, 1+K), rows sum to 1
    kept: Tensor  # (B, K) bool
    views: Tensor | list[list[Image.Image]]  # (B, K, 3, H, W), or K images per image fed
    drawn: Tensor  # (B,) how many views were made; of those that were not, the outputs and pixels are NaN


class TestTimeEnsemble(Estimator, nn.Module):
    """Run `model` on an image and K views of it and combine the outputs; half the weight is the original's.

    Around a classifier it stands in the classifier's place: `predict`, `predict_proba`, `score`, `classes_`, `fit`.

    model: an nn.Module, a callable on tensors or on a list of PIL images, a scikit-learn model (with `predict_proba`,
        else its labels are votes), or a transformers pipeline("image-classification").
    views: an Augmenter, a folder written by `onesdaug augment`, a ShapeTweak, an object with
        .tensors(batch, k, seeds), or a function f(batch, k, seeds) → (B, K, 3, H, W).
    k, at_most: views of each image. "auto": one at a time until its answer is settled, at most `at_most`. It is when
        the best class leads the second by more than one more view like the last would move the probabilities.
    original_weight: the original's share; the views split the rest.
        None: 0.5 for averages, one vote each for "vote".
    combine: "embedding", "logits", "probs" or "vote". None: "probs" for `predict_proba` and pipelines, "vote" for a
        model that gives labels, else "embedding".
    select, keep: "all" views, or the best ⌈keep·K⌉ of each image by "similarity" (cosine with the original's
        output) or by "confidence" (lowest entropy).
    seed: of the views; the same image has the same views in any batch.
    preprocess: from what is fed to what the model takes, for originals and views alike. Fed a tensor
        or an array, it gets an (N, 3, H, W) batch in [0, 1]; fed PIL images or paths, one PIL image at a time.
    input: what the model takes: "tensor", "pil" (a list) or "numpy" (NHWC; flat rows for scikit-learn).
        None: "tensor" for a module, "pil" for a pipeline, "numpy" for scikit-learn; for others whatever is fed.
    output: picks one vector per image, (N, C), from what the model returns.
        None: tensors, arrays, lists of vectors as they are; of a transformers ModelOutput one of `FIELDS`.
    chunk: at most so many rows in one forward. None: all B·(1+K) at once.
    normalise: bring the model's outputs to length 1 before they are averaged; for "embedding".
    when, threshold: "unsure" asks about the original first, and makes views only where the best class leads the second
        by at most `threshold` (of probability); `onesdaug tune` finds one. In details, `kept` is False for the others.
    """

    __test__: ClassVar[bool] = False  # pytest takes classes named Test* for its own

    def __init__(
        self,
        model: Any,
        views: Any,
        k: int | Literal["auto"] = 2,
        original_weight: float | None = None,
        combine: str | None = None,
        select: str = "all",
        keep: float = 0.5,
        seed: int = 0,
        preprocess: Callable[[Any], Any] | None = None,
        input: str | None = None,
        output: Callable[[Any], Any] | None = None,
        chunk: int | None = None,
        normalise: bool = False,
        when: str = "always",
        threshold: float = 0.5,
        at_most: int | None = None,
    ) -> None:
        super().__init__()
        self._given = {"views": views, "original_weight": original_weight, "combine": combine, "input": input}
        self.kind = kind_of(model)
        combine = combine or COMBINED.get(self.kind, "embedding")
        _one_of("combine", combine, COMBINE)
        _one_of("select", select, ("all", *SCORES))
        if (k == "auto") != (at_most is not None) or (at_most is not None and at_most < 1):
            raise ConfigError(f"k={k!r}, at_most={at_most}: k='auto' needs at_most, 1 or more; other k go without it")
        self.most: int = k if k != "auto" else at_most  # type: ignore[assignment]
        if not isinstance(self.most, int) or self.most < 0:
            raise ConfigError(f"k={k!r}: a number of views that is not negative, or 'auto'")
        if original_weight is not None and not 0 <= original_weight <= 1:
            raise ConfigError(f"original_weight={original_weight}: a share between 0 and 1")
        if not 0 < keep <= 1:
            raise ConfigError(f"keep={keep}: the fraction of views to keep, above 0 and at most 1")
        if chunk is not None and chunk < 1:
            raise ConfigError(f"chunk={chunk}: at least one row per forward, or None for all at once")
        if input is not None:
            _one_of("input", input, ("tensor", "pil", "numpy"))
        if combine == "vote" and self.most > 0 and original_weight is not None and original_weight >= 0.5:
            warnings.warn(
                f"with combine='vote' and original_weight={original_weight} the original always decides; "
                "leave original_weight out for one vote each",
                stacklevel=2,
            )
        self.model: Any = model
        self.source = as_source(views)
        if normalise and combine != "embedding":
            raise ConfigError(f"normalise is for features, but combine={combine!r} is for class scores")
        _one_of("when", when, ("always", "unsure"))
        if combine == "embedding" and (when == "unsure" or select == "confidence" or k == "auto"):
            raise ConfigError(NEEDS_SCORES)
        self.when, self.threshold = when, threshold
        self.k, self.at_most = k, at_most
        self.seed, self.chunk, self.normalise = seed, chunk, normalise
        self.combine, self.select, self.keep = combine, select, keep
        self.original_weight = 0.5 if original_weight is None and combine != "vote" else original_weight
        self.preprocess, self.output = preprocess, output
        self.input = input or INPUT.get(self.kind)
        self.training = isinstance(model, nn.Module) and model.training

    @classmethod
    def from_tuned(cls, model: Any, path: Path | str, task: str = "", **options: Any) -> Self:
        """The views and their use that `onesdaug tune` chose for a task; without views where those did not help.

        With k="auto" at most as many as it chose.
        """
        tuned = Tuned.read(path)
        use = tuned.use(task)
        if use is None:
            return cls(model, ShapeTweak(), **{**options, "k": 0, "at_most": None})
        views = find_views(tuned.source, str(path) if tuned.config else None)
        settings = use.model_dump(exclude={"threshold"})
        if options.get("k") == "auto":
            settings["at_most"] = use.k
        if use.threshold is not None and not tuned.few_shot:
            settings |= {"when": "unsure", "threshold": use.threshold}
        return cls(model, views, **{**settings, "combine": "embedding" if tuned.few_shot else "probs", **options})

    @torch.no_grad()
    def forward(self, images: Any, *, return_details: bool = False) -> Tensor | EnsembleDetails:
        """(B, C) for a (B, 3, H, W) batch in [0, 1], a (B, H, W, 3) array, PIL images or paths; no gradients."""
        if isinstance(self.model, nn.Module) and self.model.training:
            warnings.warn("the wrapped model is in training mode; call .eval() first", stacklevel=2)
        fed = checked(images)
        sparing = self.most > 0 and (self.when == "unsure" or self.k == "auto")
        found = self._sparingly(fed) if sparing else self._with_all(fed)
        return found if return_details else found.output

    def _with_all(self, fed: Tensor | list[Image.Image]) -> EnsembleDetails:
        rows, views = self._with_views(fed)
        flat = self._run(rows)
        per_view = flat.reshape(len(fed), 1 + self.most, flat.shape[1])
        output, weights, kept = self._combined(per_view)
        drawn = torch.full((len(fed),), self.most, device=flat.device)
        return EnsembleDetails(output, per_view, weights, kept, views, drawn)

    def _combined(self, per_view: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Output (B, C), weights and kept views of the model's outputs (B, 1+k, C)."""
        exact = per_view.to(torch.promote_types(per_view.dtype, torch.float32))
        exact = torch.nn.functional.normalize(exact, dim=-1) if self.normalise else exact
        kept = kept_views(exact, self.select, self.keep)
        weights = view_weights(kept, self.original_weight, exact.dtype)
        return COMBINE[self.combine](exact, weights).to(per_view.dtype), weights, kept

    def _sparingly(self, fed: Tensor | list[Image.Image]) -> EnsembleDetails:
        """The original goes first; views follow where it is unsure, all at once or one by one until settled."""
        alone, most = self._run(fed), self.most
        per_view = alone.new_full((len(fed), 1 + most, alone.shape[1]), torch.nan)
        per_view[:, 0] = alone
        output, own, _ = self._combined(per_view[:, :1])
        weights = torch.cat([own, own.new_zeros(len(fed), most)], dim=1)
        kept = torch.zeros(len(fed), most, dtype=torch.bool, device=alone.device)
        drawn = kept.new_zeros(len(fed), dtype=torch.int64)
        views: Any = [[] for _ in fed]
        if isinstance(fed, Tensor):
            views = fed.new_full((len(fed), most, *fed.shape[1:]), torch.nan)
        unsure = margins(alone.float()) <= self.threshold if self.when == "unsure" else drawn == 0
        for first, last in [(n, n) for n in range(1, most + 1)] if self.k == "auto" else [(1, most)]:
            places = unsure.nonzero().flatten()
            if not len(places):
                break
            some = fed[places.to(fed.device)] if isinstance(fed, Tensor) else [fed[i] for i in places.tolist()]
            made = self._views(some, first, last)
            rows = made.to(some).flatten(0, 1) if isinstance(some, Tensor) else list(chain.from_iterable(made))
            per_view[places, first : last + 1] = self._run(rows).reshape(len(places), -1, alone.shape[1])
            before = output[places]
            output[places], weights[places, : last + 1], kept[places, :last] = self._combined(
                per_view[places, : last + 1]
            )
            drawn[places] = last
            for place, mine in zip(places.tolist(), made, strict=True):
                if isinstance(fed, Tensor):
                    views[place, first - 1 : last] = mine
                else:
                    views[place] += mine
            unsure[places] = ~settled(before.float(), output[places].float(), last)
        return EnsembleDetails(output, per_view, weights, kept, views, drawn)

    def _views(self, fed: Tensor | list[Image.Image], first: int, last: int) -> Any:
        """Views `first` to `last` of each: all from the first on, or one alone."""
        fed = fed.float().clamp(0, 1) if isinstance(fed, Tensor) else fed
        if first == 1:
            if isinstance(fed, Tensor):
                return self.source.tensors(fed, last, self.seed)
            return self.source.images(fed, last, self.seed)
        made = self.source.nth(fed, last, self.seed)
        return made[:, None] if isinstance(made, Tensor) else [[view] for view in made]

    def originals(self, images: Any) -> Any:
        """The images without views, in the form the model takes."""
        return self._feed(checked(images))

    def __repr__(self) -> str:
        """One line; of a module only its class, for some fill pages."""
        model = type(self.model).__name__ if isinstance(self.model, nn.Module) else _name(self.model)
        settings = f"original_weight={self.original_weight}, combine={self.combine}, select={self.select}"
        return f"TestTimeEnsemble({model}, {self.source.views!r}, k={self.k}, {settings}, seed={self.seed})"

    def _with_views(self, fed: Tensor | list[Image.Image]) -> tuple[Any, Any]:
        """All rows to run, each original followed by its views, and the views alone."""
        if isinstance(fed, Tensor):
            if self.most == 0:
                return fed, fed.new_empty(len(fed), 0, *fed.shape[1:])
            made = self._views(fed, 1, self.most)
            return torch.cat([fed[:, None], made.to(fed)], dim=1).flatten(0, 1), made
        views = self._views(fed, 1, self.most) if self.most else [[] for _ in fed]
        return [image for own, others in zip(fed, views, strict=True) for image in (own, *others)], views

    def _run(self, rows: Any) -> Tensor:
        size = self.chunk or len(rows)
        outputs = []
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            raw = ask(self.model, self.kind, self._feed(part))
            outputs.append(as_vectors(self.output(raw) if self.output else raw, len(part), how=PICK))
        return torch.cat(outputs)

    def _feed(self, rows: Any) -> Any:
        """Rows in the form the model takes."""
        ready = rows
        if self.preprocess is not None:
            one_call = isinstance(rows, Tensor)
            ready = self.preprocess(rows) if one_call else [self.preprocess(image) for image in rows]
        pictures = isinstance(ready, list) and isinstance(ready[0], Image.Image)
        kind = self.input or ("pil" if pictures else "tensor")
        if kind == "pil":
            return ready if pictures else to_pil(stacked(ready))
        batch = stacked(ready)
        if kind == "tensor":
            like = self._like()
            return batch if like is None else batch.to(like.device, like.dtype)
        batch = batch.to(torch.promote_types(batch.dtype, torch.float32)).cpu()
        if self.preprocess is None or pictures:
            batch = batch.permute(0, 2, 3, 1)
        return (batch.flatten(1) if self.kind in ("probabilities", "labels") else batch).numpy()

    def _like(self) -> Tensor | None:
        """A tensor with the device and dtype the model computes in; a bound method belongs to its module."""
        owner = self.model if isinstance(self.model, nn.Module) else getattr(self.model, "__self__", None)
        if not isinstance(owner, nn.Module):
            return None
        return next((t for t in chain(owner.parameters(), owner.buffers()) if t.is_floating_point()), None)


def _one_of(name: str, value: str, allowed: Any) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not known; choose from {', '.join(allowed)}")


def _name(model: Any) -> str:
    """A function's name or an object's own words, in one line."""
    return str(getattr(model, "__name__", None) or " ".join(repr(model).split()))
