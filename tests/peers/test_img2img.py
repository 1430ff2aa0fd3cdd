"""The whole operator against StableDiffusionImg2ImgPipeline with IP-Adapter, on tiny random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug import AugmentConfig, Augmenter
from onesdaug.augment import stages
from tests.conftest import make_image
from tests.tiny import SIDE

LATENT = (4, SIDE // 2, SIDE // 2)


@pytest.fixture(scope="module", params=["base", "plus"])
def pipelines(request: pytest.FixtureRequest, tiny_sd: Path, tiny_ip: dict[str, Path]) -> tuple[Any, str]:
    """diffusers' own pipeline with the adapter loaded, and which adapter it is."""
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        PNDMScheduler,
        StableDiffusionImg2ImgPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextModel, CLIPTokenizer

    published = PNDMScheduler.from_pretrained(tiny_sd / "scheduler").config
    pipe = StableDiffusionImg2ImgPipeline(
        unet=UNet2DConditionModel.from_pretrained(tiny_sd / "unet"),
        vae=AutoencoderKL.from_pretrained(tiny_sd / "vae"),
        text_encoder=CLIPTextModel.from_pretrained(tiny_sd / "text_encoder"),
        tokenizer=CLIPTokenizer.from_pretrained(tiny_sd / "tokenizer"),
        scheduler=DDIMScheduler.from_config(published, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    kind: str = request.param
    name = "ip-adapter-plus_sd15" if kind == "plus" else "ip-adapter_sd15"
    pipe.load_ip_adapter(str(tiny_ip[kind]), subfolder="models", weight_name=f"{name}.safetensors")
    pipe.set_ip_adapter_scale(0.8)
    pipe.set_progress_bar_config(disable=True)
    pipe.published_scheduler = published
    return pipe, kind


def diffusers_view(pipe: Any, image: Image.Image, solver: str, strength: float, prompt: str) -> np.ndarray:
    from diffusers import DDIMScheduler, DPMSolverMultistepScheduler

    config = pipe.published_scheduler
    if solver == "ddim":
        pipe.scheduler = DDIMScheduler.from_config(config, clip_sample=False)
    else:
        pipe.scheduler = DPMSolverMultistepScheduler.from_config(config)
    out = pipe(
        prompt=prompt,
        image=image,
        ip_adapter_image=image,
        strength=strength,
        num_inference_steps=10,
        guidance_scale=9.0,
        generator=torch.Generator().manual_seed(5),
        output_type="np",
    )
    pixels: np.ndarray = out.images[0]
    return pixels


def diffusers_noise() -> torch.Tensor:
    """The noise of that call: the second draw of its generator, the first goes into the (here: exact) posterior."""
    random = torch.Generator().manual_seed(5)
    torch.randn(1, *LATENT, generator=random)
    return torch.randn(1, *LATENT, generator=random)


@pytest.mark.parametrize("prompt", ["", "a cat"])
@pytest.mark.parametrize("strength", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("solver", ["ddim", "dpm++"])
def test_equals_the_pipeline(
    pipelines: tuple[Any, str],
    tiny_sd: Path,
    tiny_ip: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    solver: str,
    strength: float,
    prompt: str,
) -> None:
    pipe, kind = pipelines
    image = make_image(3, (SIDE, SIDE))
    config = AugmentConfig(solver=solver, noise_level=strength, steps=10, shape=None, prompt=prompt)
    ours = Augmenter.from_pretrained(tiny_sd, config=config, ip_repo=tiny_ip[kind], device="cpu")
    assert ours.table is not None and len(ours.table) == int(10 * strength)

    noise = diffusers_noise()
    monkeypatch.setattr(stages, "normal", lambda streams, shape: noise)
    batch = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
    view = ours.tensors(batch, k=1)[0, 0].permute(1, 2, 0).numpy()
    peer = diffusers_view(pipe, image, solver, strength, prompt)
    assert peer.std() > 0.02  # a flat picture would prove nothing
    assert np.abs(view - peer).max() < 1e-4


def test_the_reference_matters(tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    """Guards the comparison above: another reference image gives another view."""
    ours = Augmenter.from_pretrained(tiny_sd, preset="paper-fast", ip_repo=tiny_ip["base"], device="cpu")
    free = Augmenter.from_pretrained(tiny_sd, preset="paper-fast", ip_adapter=False, device="cpu")
    batch = torch.from_numpy(np.array(make_image(3))).permute(2, 0, 1)[None].float() / 255
    assert (ours.tensors(batch, k=1) - free.tensors(batch, k=1)).abs().max() > 0.02
