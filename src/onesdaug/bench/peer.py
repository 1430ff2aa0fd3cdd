"""diffusers' own img2img pipeline with IP-Adapter, in the same process and on the same shapes.

The pipeline mixes up the reference images of a batch (its issue 9813): it repeats all of them for each row. It is
helped here: embeddings from its own encoder go to the UNet one row per sample, which the UNet treats rightly. Of 10
steps at strength 0.75 the pipeline runs 7, from t = 699; the operator runs those very steps at noise level 0.7, and 8
at 0.75.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from onesdaug.bench.random_sd import SCHEDULER, Parts, random_parts
from onesdaug.bench.subject import Subject
from onesdaug.common.clock import repeat
from onesdaug.common.hub import loading
from onesdaug.data.pixels import to_pil
from onesdaug.errors import ConfigError
from onesdaug.generators import speed
from onesdaug.generators.sd.fast.attention_backend import fastest_first
from onesdaug.generators.sd.fast.clip_pixels import clip_pixels
from onesdaug.generators.sd.ip_adapter import clip_processor


class Peer:
    """The pipeline around fresh networks; ours have been changed."""

    def __init__(self, parts: Parts, device: torch.device, dtype: torch.dtype) -> None:
        with loading("diffusers' pipeline", ""):
            parts.unet._load_ip_adapter_weights([parts.adapter], low_cpu_mem_usage=False)
            self.pipe = self._pipeline(parts).to(device, dtype)
        self.pipe.set_ip_adapter_scale(0.8)
        self.pipe.set_progress_bar_config(disable=True)
        # (image, embeddings, device, repeats, guidance) → the embeddings as they were given
        self.pipe.prepare_ip_adapter_image_embeds = lambda _, embeddings, *rest: embeddings
        self.text, self.device = parts.text.to(device, dtype), device
        self.pixels_on_device = False
        self.attention: list[SDPBackend] = []

    def _pipeline(self, parts: Parts) -> Any:
        from diffusers import DPMSolverMultistepScheduler, StableDiffusionImg2ImgPipeline

        return StableDiffusionImg2ImgPipeline(
            unet=parts.unet,
            vae=parts.vae,
            text_encoder=None,
            tokenizer=None,
            scheduler=DPMSolverMultistepScheduler.from_config(SCHEDULER),
            safety_checker=None,
            feature_extractor=clip_processor(int(parts.vision.config.image_size)),
            image_encoder=parts.vision,
            requires_safety_checker=False,
        )

    def channels_last(self) -> None:
        for part in (self.pipe.unet, self.pipe.vae):
            part.to(memory_format=torch.channels_last)

    def compile(self) -> None:
        """As its documentation says: the UNet and the VAE's decoder, whole."""
        self.pipe.unet = torch.compile(self.pipe.unet, backend=speed.BACKEND, fullgraph=True)
        self.pipe.vae.decode = torch.compile(self.pipe.vae.decode, backend=speed.BACKEND, fullgraph=True)

    def compile_encoder(self) -> None:
        """What its documentation leaves out and ours compiles."""
        self.pipe.vae.encoder = torch.compile(self.pipe.vae.encoder, backend=speed.BACKEND, fullgraph=True)

    def take_our_choices(self, rows: int) -> None:
        """What is ours beyond compiling, as far as the pipeline can take it: CLIP's pixels prepared on the device (its
        own processor works on PIL images, on the host), and the attention kernel that is fastest here.
        """
        self.pixels_on_device = True
        if self.device.type == "cuda":
            unet = self.pipe.unet.config
            heads, width, side = unet.attention_head_dim, unet.block_out_channels[0], unet.sample_size
            self.attention = fastest_first(rows, heads, side * side, width // heads, self.text.dtype)

    def _embed(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each image, and of none."""
        encoder = self.pipe.image_encoder
        if not self.pixels_on_device:
            positive, negative = self.pipe.encode_image(to_pil(images), self.device, 1)
            return positive, negative
        positive = encoder(clip_pixels(images, encoder.config.image_size).to(encoder.dtype)).image_embeds
        return positive, torch.zeros_like(positive)

    @torch.no_grad()
    def views(self, images: torch.Tensor, steps: int, strength: float, guidance: float) -> torch.Tensor:
        """One view per image, each with itself as reference."""
        rows = self.text.expand(len(images), -1, -1)
        positive, negative = self._embed(images)
        with sdpa_kernel(self.attention, set_priority=True) if self.attention else nullcontext():
            made: torch.Tensor = self.pipe(
                prompt_embeds=rows,
                negative_prompt_embeds=rows,
                image=images.to(self.text.dtype),
                ip_adapter_image_embeds=[torch.cat([negative, positive])[:, None]],
                strength=strength,
                num_inference_steps=steps,
                guidance_scale=guidance,
                generator=torch.Generator(self.device).manual_seed(0),
                output_type="pt",
            ).images
        return made


def compare(
    subject: Subject,
    batch: int,
    seconds: float,
    compiled: bool = True,
    strength: float | None = None,
    eager: bool = True,
) -> list[dict[str, Any]]:
    """The pipeline one at a time as the paper runs it, its best eager batch, and compiled; each a line.

    Solver, steps and guidance are the subject's; `strength` too, unless another is given. torch's global switches are
    those that ours is measured with, and stand in every line.
    """
    name = subject.wanted.random_weights
    if name is None:
        raise ConfigError(
            "--peer compares costs, which do not depend on weights: give it --random-weights sd15 instead of a model"
        )
    config, cuda = subject.config, subject.device.type == "cuda"
    if config.solver != "dpm++":
        raise ConfigError(f"the pipeline is compared with solver dpm++, not {config.solver}: take preset paper-fast")
    noise = config.noise_level if strength is None else strength
    lines: list[dict[str, Any]] = []

    def line(label: str, peer: Peer, count: int) -> None:
        images = subject.images(count)
        taken = repeat(lambda: peer.views(images, config.steps, noise, config.guidance), subject.device, seconds)
        lines.append({
            "what": label, "batch": count, "views_per_second": count / taken.sustained,
            "latency_seconds": taken.median, "first_seconds": taken.first, "calls": len(taken.each),
            "steps_run": int(config.steps * noise), "strength": noise, "switches": speed.switches(),
        })  # fmt: skip

    speed.set_switches("max", subject.device)
    half = torch.float16 if cuda else subject.dtype  # what the paper runs in
    if eager:
        line(
            "diffusers, eager, one at a time", Peer(random_parts(name, subject.device, half), subject.device, half), 1
        )
    best = Peer(random_parts(name, subject.device, subject.dtype), subject.device, subject.dtype)
    best.channels_last()
    if eager:
        line(f"diffusers, eager, {str(subject.dtype).removeprefix('torch.')}, channels_last", best, batch)
    if compiled:
        best.compile()
        line("diffusers, compiled UNet and decoder", best, batch)
        best.compile_encoder()
        line("diffusers, compiled UNet, decoder and encoder", best, batch)
        best.take_our_choices(2 * batch)
        line("diffusers, compiled, with our pixels for CLIP and our attention kernel", best, batch)
    return lines
