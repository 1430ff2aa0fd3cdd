"""Parameter counts, shapes and preprocessing of the backbones, as FEAT has them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug.encoders.checkpoint import SHARD_BYTES, load_checkpoint, save_checkpoint
from onesdaug.encoders.convnet import ConvNet
from onesdaug.encoders.hub import from_processor
from onesdaug.encoders.load import build_backbone, load_encoder
from onesdaug.encoders.preprocess import IMAGENET_MEAN, Preprocess
from onesdaug.encoders.res12 import DropBlock, Res12
from onesdaug.errors import ConfigError, DataError, WeightsMissing
from tests.tiny import save_vision


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_and_dimensions() -> None:
    convnet, res12 = ConvNet(), Res12()
    assert (count(convnet), convnet.dim) == (113_088, 64)
    assert (count(res12), res12.dim) == (12_424_320, 640)
    x = torch.rand(1, 3, 84, 84)
    assert convnet.eval()(x).shape == (1, 64)
    assert res12.eval()(x).shape == (1, 640)
    assert res12(torch.rand(1, 3, 80, 80)).shape == (1, 640)


def test_preprocessing_belongs_to_the_backbone() -> None:
    res12, convnet = Res12.default_preprocess, ConvNet.default_preprocess
    assert (res12.resize, res12.crop) == (92, 84)
    assert [round(m * 255, 3) for m in res12.mean] == [120.396, 115.594, 104.540]
    assert [round(s * 255, 3) for s in res12.std] == [70.682, 68.276, 72.545]
    assert convnet.mean == IMAGENET_MEAN


def test_frame_is_pils_resize_and_centre_crop() -> None:
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
    image = small.resize((160, 120), Image.Resampling.BICUBIC)
    want = np.asarray(image.resize((122, 92), Image.Resampling.BILINEAR).crop((19, 4, 103, 88)))
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None]
    got = Preprocess().frame(pixels)[0].permute(1, 2, 0).numpy() * 255
    assert got.shape == (84, 84, 3)
    assert np.abs(got - want).max() < 2


def test_uint8_and_float_images_agree() -> None:
    images = torch.randint(0, 256, (2, 3, 92, 92), dtype=torch.uint8)
    assert torch.allclose(Preprocess()(images), Preprocess()(images / 255))
    with pytest.raises(ConfigError, match="B,3,H,W"):
        Preprocess()(images[0])


def test_dropblock_drops_squares_at_its_rate() -> None:
    torch.manual_seed(0)
    drop = DropBlock(0.1).train()
    out = drop(torch.ones(64, 64, 10, 10))
    assert abs((out == 0).float().mean().item() - 0.1) < 0.03  # overlaps make it a little less
    assert abs(out.mean().item() - 1) < 1e-4
    drop.progress = 0.0
    assert drop(torch.ones(1, 1, 10, 10)).eq(1).all()
    assert DropBlock(0.5).eval()(torch.ones(1, 1, 10, 10)).eq(1).all()


def test_same_seed_same_backbone_and_global_stream_untouched() -> None:
    before = torch.random.get_rng_state()
    a, b = build_backbone("convnet", seed=3), build_backbone("convnet", seed=3)
    assert torch.equal(a.layers[0].weight, b.layers[0].weight)  # type: ignore[arg-type]
    assert torch.equal(before, torch.random.get_rng_state())


def test_checkpoint_round_trip_sharded_and_checked(tmp_path: Path) -> None:
    model = Res12()
    folder = tmp_path / "res12"
    card = {"backbone": "res12", "preprocess": model.default_preprocess.to_dict(), "head": None}
    save_checkpoint(folder, {f"encoder.{k}": v for k, v in model.state_dict().items()}, card, half=True)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) == 2
    assert all(s.stat().st_size < 16 * 2**20 for s in shards) and SHARD_BYTES < 16 * 2**20
    encoder = load_encoder(folder)
    assert (encoder.dim, encoder.size) == (640, 84)
    x = torch.rand(1, 3, 84, 84)
    assert torch.allclose(model.eval()(encoder.preprocess(x)), encoder.embed(x), rtol=0.02, atol=0.02)
    assert json.loads((folder / "card.json").read_text())["parameters"] == {"encoder": 12_424_320}
    shards[0].unlink()
    with pytest.raises(DataError, match="shard is missing"):
        load_checkpoint(folder)


def test_load_encoder_by_name_and_fingerprints_differ() -> None:
    encoder = load_encoder("convnet")
    images = torch.randint(0, 256, (3, 3, 120, 100), dtype=torch.uint8)
    out = encoder.embed(images, batch=2)
    assert out.shape == (3, 64) and out.dtype == torch.float32
    assert encoder.fingerprint == load_encoder("convnet").fingerprint
    with pytest.raises(ConfigError, match="there is no backbone 'resnet-9000'"):
        load_encoder("resnet-9000")


def test_users_own_callable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_encoder.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x): return x.mean((2, 3))\n"
        "def make(): return Net()\n"
        "def wrong(): return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    encoder = load_encoder("mine_encoder:make")
    assert encoder.dim == 3
    assert encoder.embed(torch.rand(2, 3, 100, 90)).shape == (2, 3)
    with pytest.raises(ConfigError, match="want an Encoder"):
        load_encoder("mine_encoder:wrong")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_encoder("no_such_package.module:function")


def test_processor_files_are_read() -> None:
    vit = from_processor({"size": {"height": 224, "width": 224}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    assert (vit.resize, vit.crop, vit.squash, vit.mean) == (224, 224, True, (0.5, 0.5, 0.5))
    clip = from_processor({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224}})
    assert (clip.resize, clip.crop, clip.squash) == (256, 224, False)
    assert from_processor({"size": 224, "resample": 3}).interpolation == "bicubic"


@pytest.mark.parametrize("kind", ["vit", "swin"])
def test_transformers_models_from_a_folder(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    encoder = load_encoder(f"hf:{save_vision(tmp_path, kind)}")
    assert (encoder.dim, encoder.size) == (16, 32)
    assert encoder.embed(torch.rand(2, 3, 50, 40)).shape == (2, 16)


def test_missing_hub_weights_carry_the_command() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(WeightsMissing, match="hf download"):
        load_encoder("hf:nobody/nothing-here")
