"""What can be wrapped, and how each is asked: modules, functions, scikit-learn models, transformers pipelines."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from torch import nn

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
