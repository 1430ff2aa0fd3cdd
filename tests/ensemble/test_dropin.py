"""`TestTimeEnsemble` in a classifier's place: scikit-learn, transformers pipelines, paths, pickles and workers."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from onesdaug import Augmenter, ShapeTweak, TestTimeEnsemble
from onesdaug.augment.config import preset
from onesdaug.ensemble.traditional import CropFlip
from onesdaug.errors import ConfigError
from tests.tiny import save_classifier

sklearn = pytest.importorskip("sklearn")
NAMES = np.array(["blue", "green", "red"])


def pictures(n: int = 24) -> tuple[list[Image.Image], np.ndarray]:
    """Pictures of three colours and of several sizes, with the colours' names."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    made = []
    for label in labels:
        pixels = rng.integers(0, 120, (12 + label, 14, 3))
        pixels[..., 2 - label] += 130
        made.append(Image.fromarray(pixels.astype(np.uint8)))
    return made, NAMES[labels]


def colours(picture: Image.Image) -> np.ndarray:
    """What the classifiers here look at."""
    return np.asarray(picture, dtype=np.float32).mean((0, 1)) / 255


def fitted(model: Any) -> Any:
    images, labels = pictures()
    return model.fit([colours(image) for image in images], labels)


def test_a_scikit_learn_model_fed_pictures_through_preprocess() -> None:
    from sklearn.linear_model import LogisticRegression

    images, labels = pictures()
    model = TestTimeEnsemble(fitted(LogisticRegression(C=100)), CropFlip(), k=2, preprocess=colours)
    assert list(model.classes_) == list(NAMES)
    assert list(model.predict(images)) == list(labels)
    probabilities = model.predict_proba(images)
    assert isinstance(probabilities, np.ndarray) and probabilities.shape == (24, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert model.score(images, labels) == 1.0
    assert model.score(images, np.roll(labels, 1)) == 0.0


def test_a_model_without_probabilities_votes() -> None:
    from sklearn.svm import LinearSVC

    images, labels = pictures()
    model = TestTimeEnsemble(fitted(LinearSVC(C=100)), CropFlip(), k=2, preprocess=colours)
    assert model.combine == "vote"
    assert model.score(images, labels) == 1.0
    with pytest.raises(ConfigError, match="not fitted yet"):
        TestTimeEnsemble(LinearSVC(), CropFlip(), preprocess=colours).predict(images)


def test_pictures_brought_to_one_size_are_flat_rows_for_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    images, labels = pictures()
    model = TestTimeEnsemble(LogisticRegression(), CropFlip(), k=1, preprocess=lambda i: i.resize((4, 4)))
    assert model.fit(images, labels) is model and model.model.n_features_in_ == 48
    assert model.score(images, labels) == 1.0


def test_cross_validation_and_grid_search(tmp_path: Path) -> None:
    from sklearn.base import clone, is_classifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_score

    images, labels = pictures()
    source = CropFlip()
    model = TestTimeEnsemble(LogisticRegression(C=100), source, k=1, preprocess=colours)
    assert is_classifier(model)
    assert cross_val_score(model, images, labels, cv=3).tolist() == [1.0] * 3
    squares = np.stack([np.asarray(image.resize((8, 8))) for image in images])
    flat = TestTimeEnsemble(LogisticRegression(), source, k=1)
    assert cross_val_score(flat, squares, labels, cv=3).tolist() == [1.0] * 3
    paths = []
    for number, image in enumerate(images):
        paths.append(tmp_path / f"{number}.png")
        image.save(paths[-1])
    assert cross_val_score(model, np.array(paths, dtype=str), labels, cv=3).tolist() == [1.0] * 3
    search = GridSearchCV(model, {"k": [0, 1], "model__C": [1e-9, 100.0]}, cv=2).fit(images, labels)
    assert search.best_params_["model__C"] == 100.0
    copied = clone(model)
    assert copied.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert copied.source.views is source and copied.model is not model.model
    assert not hasattr(copied, "classes_") and model.set_params(k=3, model__C=2).k == 3 and model.model.C == 2
    with pytest.raises(ConfigError, match="no parameter kk; there are model, views, k"):
        model.set_params(kk=3)


def test_a_transformers_pipeline(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pipe = transformers.pipeline("image-classification", str(save_classifier(tmp_path)), device="cpu")
    images, _ = pictures(4)
    plain = TestTimeEnsemble(pipe, CropFlip(), k=0)
    assert list(plain.predict(images)) == [answer[0]["label"] for answer in pipe(images)]
    for row, answer in zip(plain.predict_proba(images), pipe(images, top_k=7), strict=True):
        assert {str(name): float(p) for name, p in zip(plain.classes_, row, strict=True)} == pytest.approx(
            {one["label"]: one["score"] for one in answer}, rel=1e-4
        )
    with_views = TestTimeEnsemble(pipe, CropFlip(), k=2)
    assert with_views.combine == "probs" and not np.allclose(with_views(images), plain(images))
    assert "ImageClassificationPipeline" in repr(with_views)


def test_paths_and_arrays_are_pictures(tmp_path: Path) -> None:
    images, _ = pictures(3)
    paths = [tmp_path / f"{n}.png" for n in range(3)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)

    def model(batch: list[Image.Image]) -> list[np.ndarray]:
        return [colours(image) for image in batch]

    ensemble = TestTimeEnsemble(model, CropFlip(), k=1)
    wanted = ensemble(images)
    assert torch.equal(ensemble(paths), wanted) and torch.equal(ensemble([str(p) for p in paths]), wanted)
    assert torch.equal(ensemble(str(paths[0])), wanted[:1])
    squares = np.stack([np.asarray(image.resize((8, 8))) for image in images])
    batch = torch.from_numpy(squares).permute(0, 3, 1, 2) / 255
    means = TestTimeEnsemble(lambda x: x.mean((2, 3)), CropFlip(), k=1)
    assert torch.equal(means(squares), means(batch))
    with pytest.raises(ConfigError, match=r"not a ndarray \(3, 192\)"):
        means(squares.reshape(3, -1))


def test_features_have_no_classes() -> None:
    images, _ = pictures(2)
    ensemble = TestTimeEnsemble(torch.nn.Flatten().eval(), CropFlip(), preprocess=lambda i: torch.zeros(3, 2, 2))
    with pytest.raises(ConfigError, match="wrap with combine='probs'"):
        ensemble.predict(images)
    with pytest.raises(ConfigError, match="Flatten has no fit"):
        ensemble.fit(images, [0, 1])
    logits = TestTimeEnsemble(
        torch.nn.Flatten().eval(), CropFlip(), combine="logits", preprocess=lambda i: torch.eye(3)[0].view(3, 1, 1)
    )
    assert logits.predict(images).tolist() == [0, 0]  # numbers, for the module names no classes
    np.testing.assert_allclose(logits.predict_proba(images).sum(1), 1, rtol=1e-6)


class Scored(Dataset[torch.Tensor]):
    """Scores a picture in the worker that loads it."""

    def __init__(self, ensemble: TestTimeEnsemble) -> None:
        self.ensemble = ensemble

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        found = self.ensemble(pictures(4)[0][index])
        assert isinstance(found, torch.Tensor)
        return found[0]


@pytest.mark.parametrize("views", ["crop-flip", "pocket", "shape"])
def test_pickles_copies_and_workers(views: str) -> None:
    from sklearn.linear_model import LogisticRegression

    few = preset("pocket-accuracy", steps=2) if views == "pocket" else None
    source = Augmenter.from_pretrained(views, config=few, device="cpu") if views != "shape" else ShapeTweak(rotate=5)
    ensemble = TestTimeEnsemble(fitted(LogisticRegression()), source, k=1, preprocess=colours)
    images, _ = pictures(4)
    wanted = ensemble(images[:2])
    for other in (pickle.loads(pickle.dumps(ensemble)), copy.deepcopy(ensemble)):
        assert torch.equal(other(images[:2]), wanted)
    if views == "crop-flip":
        return  # the workers of the other two do what its would
    alone = torch.stack([ensemble(image)[0] for image in images])
    for start in ("fork",) if views == "pocket" else ("fork", "spawn"):
        loader = DataLoader(Scored(ensemble), batch_size=2, num_workers=1, multiprocessing_context=start)
        torch.testing.assert_close(torch.cat(list(loader)), alone)


def test_reprs_say_what_will_be_done() -> None:
    from sklearn.linear_model import LogisticRegression

    aug = Augmenter.from_pretrained("pocket", preset="pocket-accuracy", device="cpu")
    assert repr(aug).startswith("Augmenter(Pocket, dpm++, noise level 1 ") and repr(aug).endswith("device=cpu)")
    assert repr(Augmenter.from_pretrained("shape", device="cpu")).startswith("Augmenter(shape tweak only")
    text = repr(TestTimeEnsemble(LogisticRegression(C=3), aug, k=2))
    assert text.startswith("TestTimeEnsemble(LogisticRegression(C=3), Augmenter(Pocket") and "k=2" in text
    assert "\n" not in text
    module = repr(TestTimeEnsemble(torch.nn.Sequential(torch.nn.Flatten()), colours, k=1))
    assert module.startswith("TestTimeEnsemble(Sequential, colours, k=1")
