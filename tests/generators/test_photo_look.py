"""How the training of the generator of photographs is followed: by held-out photographs and by classifiers."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.photo_look import Look
from benchmarks.pocket_judge import Judge
from onesdaug.data.dataset import Dataset
from tests.generators.photos import CPU, part, train

CLASSIFIER = Path(__file__).resolve().parents[2] / "artifacts" / "fewshot" / "mini-protonet-convnet"


def test_classifiers_are_asked_about_views_that_are_drawn_small(
    glance: None,
    pictures: list[tuple[str, Dataset]],
    tmp_path: Path,
) -> None:
    run = train(pictures, tmp_path / "out", until="denoiser-2")
    judge = Judge(part(range(40), 84, [f"n{i % 5}" for i in range(40)]), [CLASSIFIER], CPU, 4, 2)
    found = Look(run, torch.rand(2, 3, 64, 64), tmp_path, "denoiser-2", judge)(run.denoiser, 100)
    gains = [name for name in found if name.startswith("class-")]
    assert [name for name in gains if name.endswith("convnet 1shot")] == [
        f"class-{way} protonet-convnet 1shot" for way in ("1-4", "1-10", "0.85-8")
    ]
    assert {"cosine-0.5", "cosine-0.7", "cosine-0.85"} < set(found) and len(gains) == 6
    assert (tmp_path / "sheet-denoiser-2-000100.jpg").is_file()
    assert (tmp_path / "out.part" / "denoiser-2" / "card.json").is_file()
