"""A small world in the real formats: synthetic benchmarks, untrained checkpoints, a generator hardly trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from onesdaug.encoders.base import Backbone
from onesdaug.encoders.preprocess import Preprocess
from onesdaug.report.result import StudyResult, read_result
from onesdaug.studies.run import Outcome
from onesdaug.studies.settings import Settings
from tests.conftest import make_image

CLASSES, IMAGES = 5, 21  # five shots and fifteen queries need twenty


SMALL = f"{__name__}:Small"


class Small(Backbone):
    """Sees as much as the ConvNet in a hundredth of its time: half of these tests' time went into looking."""

    dim = 64
    default_preprocess = Preprocess()

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 64, 12, 12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


@dataclass(frozen=True)
class World:
    root: Path
    checkpoints: Path
    generator: Path

    def settings(self, work: Path | None = None, **changes: object) -> Settings:
        """With no work folder of its own a test takes up what others stored."""
        plain = Settings(
            work=work or self.root.parent / "work",
            root=self.root,
            checkpoints=self.checkpoints,
            device="cpu",
            generators=(str(self.generator),),
            episodes=12,
            commit="abc",
        )
        return replace(plain, **changes)  # type: ignore[arg-type]


def _benchmark(folder: Path, seed: int, images: int = IMAGES) -> None:
    """Classes are colours with some noise: easy enough that accuracy is above chance without training."""
    rng = np.random.default_rng(seed)
    for label in range(CLASSES):
        colour = np.asarray(make_image(100 * seed + label, (84, 84)), dtype=np.float64)
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(images):
            pixels = np.clip(colour + rng.normal(0, 60, (1, 1, 3)) + rng.normal(0, 25, (84, 84, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"class{label}" / f"{number:02d}.png")


def _checkpoints(folder: Path, names: Sequence[str]) -> None:
    from onesdaug.encoders.checkpoint import save_checkpoint
    from onesdaug.encoders.load import build_backbone
    from onesdaug.fewshot.heads import build_head

    for name in names:
        module, kind = build_backbone(SMALL, seed=0), name.split("-")[1]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            head = build_head(kind, module.dim)
        look = module.default_preprocess.to_dict()
        card = {"backbone": SMALL, "head": {"name": kind, "settings": {}}, "preprocess": look}
        tensors = {f"encoder.{k}": v for k, v in module.state_dict().items()}
        save_checkpoint(folder / name, tensors | {f"head.{k}": v for k, v in head.state_dict().items()}, card)


def save_classifier(folder: Path) -> None:
    """A backbone as pretraining leaves it, without a head."""
    from onesdaug.encoders.checkpoint import save_checkpoint
    from onesdaug.encoders.load import build_backbone

    module = build_backbone(SMALL, seed=1)
    data = {"name": "miniimagenet", "train": {"classes": 7, "images": 1234}}
    look = module.default_preprocess.to_dict()
    card = {"kind": "pretrain", "backbone": SMALL, "head": None, "preprocess": look, "data": data}
    save_checkpoint(folder, {f"encoder.{k}": v for k, v in module.state_dict().items()}, card)


def make_world(base: Path) -> World:
    from onesdaug.data.dataset import Dataset
    from onesdaug.generators.pocket.smoke import SMOKE
    from onesdaug.generators.pocket.training import train

    for seed, name in enumerate(("miniimagenet", "cub"), start=1):
        _benchmark(base / "data" / name / "test", seed)
        _benchmark(base / "data" / name / "val", 10 + seed, images=7)  # five shots and a query or two
    names = ("mini-protonet-res12", "mini-feat-res12", "cub-protonet-convnet", "cub-feat-convnet")
    _checkpoints(base / "checkpoints", names)
    pictures = np.stack([np.asarray(make_image(i, (84, 84))) for i in range(8)])
    ids = tuple(f"{'ab'[i // 4]}/{i}" for i in range(8))
    toys = Dataset(pictures, np.repeat(np.arange(2), 4), ("a", "b"), ids, "f00d")
    small = replace(SMOKE.network, ae_width=8, width=8, dim=16, depth=1)  # thousands of views are drawn with it
    train(replace(SMOKE, network=small), toys, base / "tiny", data_name="toys")
    return World(base / "data", base / "checkpoints", base / "tiny")


def only(outcome: Outcome) -> StudyResult:
    assert not outcome.failures
    ((result, path),) = outcome.results
    assert path is not None and read_result(path) == result  # what is on disk is what was returned
    return result


def check_cells(result: StudyResult) -> None:
    """What holds for every few-shot table."""
    by_block: dict[tuple[str, str, int], list[int]] = {}
    for cell in result.cells:
        by_block.setdefault((cell.data, cell.classifier, cell.shot), []).append(cell.accuracy.n)
        assert 0 <= cell.accuracy.mean <= 1
        if cell.kind == "baseline":
            assert cell.gain is None and (cell.support, cell.query) == (0, 0)
            baseline = cell
        else:
            assert cell.gain is not None
            assert cell.gain.difference == pytest.approx(cell.accuracy.mean - baseline.accuracy.mean, abs=1e-12)
        compared = cell.kind != "baseline" and cell.row != "crop-flip" and result.study != "grid"
        assert (cell.over_tta is not None) == compared
    assert by_block and all(set(counts) == {12} for counts in by_block.values())
