"""The side of `TestTimeEnsemble` that scikit-learn knows: cross-validation and grid search take it as an estimator."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from onesdaug.ensemble.models import classes_of
from onesdaug.errors import ConfigError


class Estimator:
    """fit, predict, predict_proba, score and the parameters; the images are whatever `forward` takes."""

    if TYPE_CHECKING:
        model: Any
        combine: str
        _given: dict[str, Any]

        def forward(self, images: Any) -> Any: ...
        def originals(self, images: Any) -> Any: ...

    def fit(self, images: Any, labels: Any, **options: Any) -> Self:
        """Fit the wrapped model on the images themselves; views are for predicting."""
        if not hasattr(self.model, "fit"):
            raise ConfigError(f"{type(self.model).__name__} has no fit: train it first, then wrap it")
        self.model.fit(self.originals(images), labels, **options)
        return self

    def predict(self, images: Any) -> NDArray[Any]:
        """The label of each image, in the model's own classes where it names them, else their numbers."""
        best = self._scores(images).argmax(-1).cpu().numpy()
        classes = classes_of(self.model)
        return best if classes is None else np.asarray(classes)[best]

    def predict_proba(self, images: Any) -> NDArray[Any]:
        """(B, classes): the combined probabilities, or each class's share of the votes."""
        scores = self._scores(images)
        return (scores.softmax(-1) if self.combine == "logits" else scores).float().cpu().numpy()

    def score(self, images: Any, labels: Any) -> float:
        """The share of images whose label is right."""
        return float(np.mean(self.predict(images) == np.asarray(labels)))

    @property
    def classes_(self) -> NDArray[Any]:
        classes = classes_of(self.model)
        if classes is None:
            raise AttributeError(f"{type(self.model).__name__} names no classes_")
        return np.asarray(classes)

    def _scores(self, images: Any) -> Tensor:
        if self.combine == "embedding":
            raise ConfigError("combine='embedding' gives features; for classes wrap with combine='probs' or 'vote'")
        scores: Tensor = self.forward(images)
        return scores

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments as given; with `deep` the wrapped model's own as `model__NAME`."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        own = {name: self._given[name] if name in self._given else getattr(self, name) for name in names}
        inner = self.model.get_params(deep) if deep and hasattr(self.model, "get_params") else {}
        return {**own, **{f"model__{name}": value for name, value in inner.items()}}

    def set_params(self, **values: Any) -> Self:
        own = {name: value for name, value in values.items() if not name.startswith("model__")}
        known = self.get_params(deep=False)
        if unknown := sorted(set(own) - set(known)):
            raise ConfigError(f"no parameter {', '.join(unknown)}; there are {', '.join(known)} and model__NAME")
        if own:
            self.__init__(**{**known, **own})  # type: ignore[misc]  # checks them again, together
        if inner := {name.removeprefix("model__"): value for name, value in values.items() if name not in own}:
            self.model.set_params(**inner)
        return self

    def __sklearn_clone__(self) -> Self:
        """A copy around an unfitted model; the views are shared, for a generator need not be there twice."""
        from sklearn.base import clone

        return type(self)(**{**self.get_params(deep=False), "model": clone(self.model, safe=False)})

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import get_tags

        return get_tags(self.model)

    @property
    def _estimator_type(self) -> Any:  # what scikit-learn before 1.6 asks instead of tags
        return getattr(self.model, "_estimator_type", None)
