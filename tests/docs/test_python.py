"""The Python of the pages runs as it stands: a page's blocks in order, after what the page takes as given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from onesdaug.cli import main
from tests.docs.blocks import PAGES, blocks
from tests.docs.conftest import bank, tiny_models
from tests.tiny import save_classifier

# pages whose Python is run elsewhere
ELSEWHERE = {"README.md": "tests/test_readme.py", "docs/extend.md": "tests/test_extend.py"}
HERE = sorted(page for page in PAGES if blocks(page, "python") and page not in ELSEWHERE)


class Features(torch.nn.Module):
    """Somebody's frozen network: mean colours of four corners."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


def quick_start(place: Path) -> dict[str, Any]:
    return {"classifier": Features().eval(), "batch": torch.rand(2, 3, 48, 48)}


def gpu(place: Path) -> dict[str, Any]:
    from onesdaug import Augmenter

    return {"Augmenter": Augmenter, "batch": torch.rand(1, 3, 48, 48)}


def sd15(place: Path) -> dict[str, Any]:
    return {**gpu(place), "photo": Image.open("photos/cat.jpg")}


def ensemble(place: Path) -> dict[str, Any]:
    """A classifier with its normalisation, features, a pipeline, pictures, and a folder of stored views."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from transformers import pipeline

    tiny = str(save_classifier(place / "vit"))
    for name, source in {"cat.jpg": "pets/cat/1.jpg", "dog.png": "pets/dog/1.png"}.items():
        Image.open(source).save(name)
    paths = [str(path) for name in ("cat", "dog") for path in sorted((place / "pets" / name).iterdir())[:2]]
    run("onesdaug augment photos -o views --k 3 --model shape")
    return {
        "classifier": Features().eval(), "encoder": Features().eval(), "mean": torch.zeros(1), "std": torch.ones(1),
        "batch": torch.rand(2, 3, 32, 32), "pictures": [Image.open("photos/cat.jpg")], "Image": Image,
        "LogisticRegression": LogisticRegression, "cross_val_score": partial(cross_val_score, cv=2), "paths": paths,
        "labels": ["cat"] * 2 + ["dog"] * 2, "my_features": lambda picture: picture.resize((1, 1)).getpixel((0, 0)),
        "pipeline": lambda task, name: pipeline(task, tiny),
        "pipeline_scores": lambda pictures: torch.rand(len(pictures), 3),
    }  # fmt: skip


def fewshot(place: Path) -> dict[str, Any]:
    bank().save(place / "birds.safetensors")
    return {}


def theory(place: Path) -> dict[str, Any]:
    from onesdaug.fewshot.evaluate import Task, ViewUse
    from onesdaug.fewshot.heads import ProtoNet

    return {"bank": bank(), "head": ProtoNet("cosine"), "Task": Task, "ViewUse": ViewUse}


def vlm(place: Path) -> dict[str, Any]:
    """A run of the page's own function, where the page has one of LLaVA."""
    (place / "my_vlm.py").write_text(blocks("docs/vlm.md", "python")[0].code)
    asked = '{"question_id": 1, "image": "cat.jpg", "text": "Is there a cat in the image?", "label": "yes"}\n'
    (place / "questions.json").write_text(asked)
    run("onesdaug pope --images photos --questions questions.json --vlm my_vlm.py:answer --k 0 -o runs/pope-4")
    return {}


def forecast(place: Path) -> dict[str, Any]:
    """Features of base and of new images, by the condition's encoder and by the classifier's."""
    from onesdaug.fewshot.heads import ProtoNet

    known = bank()
    seen = {"features": known.features[:, 0], "labels": known.labels, "condition": known.features[:, 1]}
    return {**seen, **{f"base_{name}": value for name, value in seen.items()}, "head": ProtoNet("cosine")}


GIVEN: dict[str, Callable[[Path], dict[str, Any]]] = {
    "docs/index.md": quick_start, "docs/data.md": lambda place: {}, "docs/gpu.md": gpu, "docs/sd15.md": sd15,
    "docs/ensemble.md": ensemble, "docs/fewshot.md": fewshot, "docs/theory.md": theory, "docs/vlm.md": vlm,
    "docs/forecast.md": forecast,
}  # fmt: skip


def run(command: str) -> None:
    sys.argv = command.split()
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code


@pytest.mark.usefixtures("one_step")
@pytest.mark.parametrize("page", HERE)
def test_it_runs(page: str, place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    names = GIVEN[page](place)
    stand_ins = tiny_models(request) if "/models/" in PAGES[page] else {}
    for block in blocks(page, "python"):
        code = block.code
        for named, real in stand_ins.items():
            code = code.replace(named, real)
        exec(compile(code, page, "exec"), names)


def test_pages_with_python_elsewhere_have_some() -> None:
    assert all(blocks(page, "python") for page in ELSEWHERE)
    assert sorted(GIVEN) == HERE
