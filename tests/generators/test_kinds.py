"""Checkpoints that cannot be used are told in one sentence, before anything is downloaded or loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from onesdaug import Augmenter
from onesdaug.errors import ConfigError, DataError, OnesdaugError
from onesdaug.generators.load import load_generator
from onesdaug.generators.sd import load as loading
from onesdaug.generators.sd.kinds import SUPPORTED


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("networks were loaded")

    monkeypatch.setattr(loading, "_networks", never)


def refused(source: object) -> str:
    with pytest.raises(ConfigError) as caught:
        Augmenter.from_pretrained(str(source), device="cpu")
    message = str(caught.value)
    assert message.endswith(SUPPORTED) and "\n" not in message and "snapshot_download" not in message
    return message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("stabilityai/stable-diffusion-xl-base-1.0", "Stable Diffusion XL"),
        ("stabilityai/sdxl-turbo", "Stable Diffusion XL"),
        ("RunDiffusion/Juggernaut-XL-v9", "Stable Diffusion XL"),
        ("stabilityai/stable-diffusion-3.5-medium", "Stable Diffusion 3"),
        ("black-forest-labs/FLUX.1-dev", "FLUX"),
        ("latent-consistency/lcm-lora-sdv1-5", "a LoRA"),
        ("lllyasviel/sd-controlnet-canny", "a ControlNet"),
        ("lllyasviel/control_v11p_sd15_canny", "a ControlNet"),
        ("runwayml/stable-diffusion-inpainting", "a model for inpainting"),
    ],
)
def test_hub_ids_by_their_names(nothing_loads: None, name: str, kind: str) -> None:
    assert f"is by its name {kind}" in refused(name)


@pytest.mark.parametrize("name", ["stable-diffusion-v1-5/stable-diffusion-v1-5", "stabilityai/stable-diffusion-2-1"])
def test_those_that_can_be_used_name_the_command(name: str) -> None:
    with pytest.raises(OnesdaugError, match="snapshot_download"):
        load_generator(name, device="cpu")


def edited(folder: Path, file: str, **changes: Any) -> None:
    path = folder / file
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**before, **changes}))


def test_folders_by_their_small_files(nothing_loads: None, tiny_sd: Path, tmp_path: Path) -> None:
    made = {}
    for name in ("class", "unet", "second", "inpaint"):
        made[name] = tmp_path / name
        shutil.copytree(tiny_sd, made[name])
    edited(made["class"], "model_index.json", _class_name="StableDiffusionXLPipeline")
    edited(made["unet"], "unet/config.json", addition_embed_type="text_time")
    (made["second"] / "text_encoder_2").mkdir()
    edited(made["inpaint"], "unet/config.json", in_channels=9)
    assert all("is Stable Diffusion XL" in refused(made[name]) for name in ("class", "unet", "second"))
    assert "inpainting" in refused(made["inpaint"])
    edited(tmp_path / "three", "model_index.json", _class_name="StableDiffusion3Pipeline")
    edited(tmp_path / "flux", "transformer/config.json", _class_name="FluxTransformer2DModel")
    edited(tmp_path / "control", "config.json", _class_name="ControlNetModel")
    (tmp_path / "lora").mkdir()
    save_file({"x": torch.zeros(1)}, tmp_path / "lora" / "pytorch_lora_weights.safetensors")
    (tmp_path / "peft").mkdir()
    edited(tmp_path / "peft", "adapter_config.json", r=4)
    assert "is Stable Diffusion 3" in refused(tmp_path / "three")
    assert "diffusion transformer" in refused(tmp_path / "flux")
    assert "is a ControlNet" in refused(tmp_path / "control")
    assert "is a LoRA" in refused(tmp_path / "lora") and "is a LoRA" in refused(tmp_path / "peft")


def test_single_files(nothing_loads: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, tensor in {"v1": "model.x", "style": "unet.lora_up.weight", "canny": "control_model.y"}.items():
        save_file({tensor: torch.zeros(1)}, tmp_path / f"{name}.safetensors")
    (tmp_path / "old.ckpt").write_bytes(b"\x80\x02")
    assert "from_single_file" in refused("v1.safetensors") and "from_single_file" in refused(tmp_path / "old.ckpt")
    assert "is a LoRA" in refused("style.safetensors") and "is a ControlNet" in refused("./canny.safetensors")


WRONG: dict[str, list[Any]] = {
    "num_train_timesteps": [None, "x", 0, -1, 10**12, [], 1.5],
    "beta_schedule": [None, 3, "odd", []],
    "beta_start": [None, "x", -1, 0, 2, [], {}],
    "beta_end": [None, -1, 1e308],
    "trained_betas": ["x", [], [-1], [None], {}, 3],
    "steps_offset": [None, -1, "x"],
    "timestep_spacing": ["odd", 3],
    "prediction_type": [None, 3, "sample"],
}


def test_scheduler_files_in_wrong_shapes(nothing_loads: None, tiny_sd: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sd"
    shutil.copytree(tiny_sd, folder)
    file = folder / "scheduler" / "scheduler_config.json"
    good = json.loads(file.read_text())
    texts = [json.dumps({**good, field: value}) for field, values in WRONG.items() for value in values]
    for text in [*texts, "", "{", "[]", "null", "[" * 100_000]:
        file.write_text(text)
        with pytest.raises((ConfigError, DataError), match=str(folder / "scheduler")):
            load_generator(folder, device="cpu", ip_adapter=False)


@pytest.mark.parametrize("value", [None, "x", 0, [], 10**9])
def test_a_unet_of_no_size(nothing_loads: None, tiny_sd: Path, tmp_path: Path, value: object) -> None:
    shutil.copytree(tiny_sd, tmp_path / "sd")
    edited(tmp_path / "sd", "unet/config.json", sample_size=value)
    with pytest.raises(DataError, match=r"unet/config\.json is not the settings"):
        load_generator(tmp_path / "sd", device="cpu", ip_adapter=False)
