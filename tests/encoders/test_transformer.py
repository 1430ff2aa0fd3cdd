"""ViT-Small and Swin-Tiny for small pictures, and models of the hub as something to train on from."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onesdaug.encoders.load import build_backbone, load_encoder
from onesdaug.encoders.transformer import DropPath, HubBackbone, ViTSmall, waves
from onesdaug.fewshot.pretrain import Pretraining, pretrain, with_more
from onesdaug.fewshot.recipes import FINE_TUNED, TRANSFORMERS, PretrainConfig, plain_recipe
from tests.fewshot.test_training import synthetic
from tests.tiny import save_vision

pytest.importorskip("transformers")
QUICK = {"epochs": 1, "batch": 8, "num_eval_episodes": 10, "eval_query": 2, "eval_shots": (1,), "warmup_epochs": 0.0}


@pytest.mark.parametrize(
    ("name", "dim", "side", "millions"), [("vit-small", 384, 128, (22, 23)), ("swin-tiny", 768, 96, (27, 28))]
)
def test_they_have_the_papers_sizes(name: str, dim: int, side: int, millions: tuple[int, int]) -> None:
    module = build_backbone(name, seed=0)
    parameters = sum(p.numel() for p in module.parameters()) / 1e6
    assert millions[0] < parameters < millions[1]
    assert (module.dim, module.default_preprocess.crop) == (dim, side)
    with torch.no_grad():
        one, two = (module.eval()(torch.rand(2, 3, side, side)) for _ in range(2))
    assert one.shape == (2, dim) and one.isfinite().all() and not torch.equal(one, two)
    again = build_backbone(name, seed=0).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in module.state_dict().items())


def test_windows_fit_the_tokens_that_are_left() -> None:
    module = build_backbone("swin-tiny", seed=0)
    with torch.no_grad():
        module.eval()(torch.rand(1, 3, 96, 96))
    windows = [(b.window_size, b.shift_size) for stage in module.model.encoder.layers for b in stage.blocks]
    assert windows == [(6, 0), (6, 3), (6, 0), (6, 3), *[(6, 0)] * 6, *[(3, 0)] * 2]


def test_branches_are_left_out_in_training_alone() -> None:
    drop, x = DropPath(0.5), torch.ones(200, 3, 2)
    assert torch.equal(drop.eval()(x), x)
    torch.manual_seed(0)
    out = drop.train()(x)
    whole = out.flatten(1)
    assert set(out.unique().tolist()) == {0.0, 2.0} and (whole == whole[:, :1]).all()  # a picture's all or nothing


def test_places_are_told_apart_by_row_and_column() -> None:
    found = waves(8, 32)
    assert found.shape == (1, 64, 32)
    rows, columns = found.view(8, 8, 32).split(16, dim=2)
    assert torch.equal(rows[:, 0], rows[:, 7]) and torch.equal(columns[0], columns[7])
    assert (torch.cdist(found[0], found[0]) + 9 * torch.eye(64)).min() > 0.1


@pytest.mark.parametrize("kind", ["vit", "swin"])
def test_a_hub_folder_is_trained_on_and_not_needed_afterwards(kind: str, tmp_path: Path) -> None:
    folder = save_vision(tmp_path / "hub", kind)
    before = load_encoder(f"hf:{folder}")
    config = PretrainConfig(backbone=f"hf:{folder}", optimizer="adamw", lr=1e-3, mix=0.5, clip=1.0, **QUICK)  # type: ignore[arg-type]
    start = build_backbone(config.backbone)
    assert isinstance(start, HubBackbone) and all(p.requires_grad for p in start.parameters())
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(start.eval()(x), before.module(x), atol=1e-6)  # its weights, not new ones
    card = pretrain(config, synthetic(3, 6, 0), synthetic(5, 3, 1), tmp_path / "tuned")
    assert card["architecture"]["model_type"] == kind and card["preprocess"]["crop"] == 32
    shutil.rmtree(folder)
    after = load_encoder(tmp_path / "tuned")
    assert after.dim == before.dim == 16
    assert not torch.allclose(after.embed(x), before.embed(x), atol=1e-6)


class Shallow(ViTSmall):
    def __init__(self) -> None:
        super().__init__(depth=1)


def test_a_transformer_learns_classes() -> None:
    """Decay is for matrices alone; the average and the mixing are those of the recipe."""
    config = replace(TRANSFORMERS["vit-small"], backbone=f"{__name__}:Shallow", **QUICK)  # type: ignore[arg-type]
    stage = Pretraining(
        replace(config, epochs=10, mix=0.2), synthetic(4, 6, 0), synthetic(5, 3, 1), torch.device("cpu")
    )
    decayed, others = stage.optimizer().param_groups
    assert all(p.ndim > 1 for p in decayed["params"]) and (decayed["weight_decay"], others["weight_decay"]) == (
        0.05,
        0,
    )
    shapes = {tuple(p.shape) for p in others["params"] if p.ndim > 1}
    assert shapes == {(1, 1, 384), (1, 65, 384)}  # the class token and the positions
    losses = [
        float(stage.train_step(optimizer, step).detach()) for optimizer in [stage.optimizer()] for step in range(12)
    ]
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    clipped = Pretraining(replace(config, clip=1e-9), synthetic(4, 6, 0), synthetic(5, 3, 1), torch.device("cpu"))
    clipped.train_step(torch.optim.SGD(clipped.model.parameters(), lr=1.0), 0)
    assert all(p.grad is None or p.grad.norm() < 2e-9 for p in clipped.model.parameters())


def test_recipes_belong_to_the_backbone() -> None:
    assert plain_recipe("vit-small") is TRANSFORMERS["vit-small"] and plain_recipe("swin-tiny").optimizer == "adamw"
    assert plain_recipe("hf:some/model").lr == FINE_TUNED.lr < TRANSFORMERS["vit-small"].lr
    assert plain_recipe("res12") == PretrainConfig(backbone="res12")
    with pytest.raises(ValueError, match="choose one of them"):
        PretrainConfig(rotate=0.5, mix=0.5)
    with pytest.raises(ValueError, match=r"erase must lie in \[0,1\]"):
        PretrainConfig(erase=2.0)


def test_classes_that_are_measured_on_are_refused(tmp_path: Path) -> None:
    from PIL import Image

    from onesdaug.errors import DataError

    def more(*names: str) -> Path:
        shutil.rmtree(tmp_path / "more", ignore_errors=True)
        for number, name in enumerate(names):
            (tmp_path / "more" / name).mkdir(parents=True)
            Image.new("RGB", (64, 64), (number, 0, 0)).save(tmp_path / "more" / name / "x.png")
        return tmp_path / "more"

    train, val = synthetic(2, 2, 0), synthetic(3, 2, 1)  # classes c0, c1 and c0, c1, c2
    joined = with_more(train, more("a", "n99"), val)
    assert joined.class_names == ("a", "c0", "c1", "n99") and joined.labels.tolist() == [1, 1, 2, 2, 0, 3]
    assert joined.images.shape == (6, 84, 84, 3) and joined.fingerprint.startswith("synthetic-0+")
    with pytest.raises(DataError, match="leave out c2: validation or test"):
        with_more(train, more("a", "c2"), val)
    with pytest.raises(DataError, match="n02129165"):  # a test class of miniImageNet
        with_more(train, more("a", "n02129165"), val)
