"""The throughput engine: the same views as the plain path, whatever is padded, fused, laid out or compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onesdaug import AugmentConfig, Augmenter
from onesdaug.augment.engine import Engine, pad
from onesdaug.augment.operator import Row
from onesdaug.augment.stages import Stages
from onesdaug.bench.random_sd import random_sd
from onesdaug.data.pixels import to_tensor
from onesdaug.errors import ConfigError
from onesdaug.generators import speed
from onesdaug.generators.pocket.condition import SlimRes12
from onesdaug.generators.pocket.generator import Pocket
from onesdaug.generators.pocket.networks import Autoencoder, Block, Denoiser, Tokens
from onesdaug.generators.pocket.smoke import SMOKE
from tests.augment.counting import Counting
from tests.conftest import make_image

CONFIG = AugmentConfig(steps=4, solver="dpm++", guidance_interval=(0.3, 1.0))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Graphs are captured whole and functionalised as for inductor, but run by torch's own kernels."""
    torch._dynamo.reset()
    monkeypatch.setattr(speed, "BACKEND", "aot_eager")
    yield
    torch._dynamo.reset()


def images(n: int) -> torch.Tensor:
    return torch.stack([to_tensor(make_image(i)) for i in range(n)])


def sd(tiny_sd: Path, tiny_ip: dict[str, Path], config: AugmentConfig = CONFIG, **options: Any) -> Augmenter:
    settings = {"ip_repo": tiny_ip["base"], "device": "cpu", "batch_size": 4, **options}
    return Augmenter.from_pretrained(tiny_sd, config=config, **settings)


def pocket() -> Pocket:
    torch.manual_seed(0)
    config = replace(SMOKE.network, global_dim=SMOKE.widths[-1], local_dim=SMOKE.widths[-1])
    parts = SlimRes12(SMOKE.widths), Autoencoder(config), Denoiser(config), Tokens(config)
    for module in parts:  # released weights are not zero where training begins
        for weight in module.parameters():
            weight.data += 0.05 * torch.randn_like(weight)
    return Pocket(config, *parts)


@pytest.mark.parametrize("mode", ["regional", "max"])
def test_compiled_stable_diffusion_gives_the_same_views(
    quick: None, tiny_sd: Path, tiny_ip: dict[str, Path], mode: str
) -> None:
    """Own reference per row, a tail of 1 in batches of 4, guidance on and off, rows with a scale of their own."""
    config = CONFIG if mode == "regional" else CONFIG.model_copy(update={"guidance_interval": (0.0, 1.0)})
    plain, fast = sd(tiny_sd, tiny_ip, config), sd(tiny_sd, tiny_ip, config, compile=mode)
    x, scales = images(3), [0.8, 0.0, 1.3]
    expected = plain.tensors(x, k=3, image_scale=scales)
    assert (fast.tensors(x, k=3, image_scale=scales) - expected).abs().max() < 1e-4
    assert fast.fingerprint == plain.fingerprint  # the same views: what is stored stays valid
    weight = fast.generator.unet.conv_in.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    ours, theirs = (aug.run([Row(make_image(5, (40, 24)), 1)])[0].image for aug in (fast, plain))
    assert (to_tensor(ours) - to_tensor(theirs)).abs().max() <= 1.5 / 255


def test_regional_compiles_the_blocks_of_the_two_largest_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size is one more compilation to wait for; Stable Diffusion 1.5 has four."""
    from onesdaug.bench import random_sd as shapes
    from onesdaug.generators.sd import generator as stable_diffusion

    layout = {key: shapes._SD15.unet[key] for key in ("down_block_types", "up_block_types")}
    unet = {**shapes._TINY.unet, **layout, "block_out_channels": (8, 16, 24, 24)}
    monkeypatch.setitem(shapes.SHAPES, "sd15-tiny", replace(shapes._TINY, unet=unet))
    compiled: list[torch.nn.Module] = []
    monkeypatch.setattr(stable_diffusion, "compile_modules", lambda modules, mode: compiled.extend(modules))
    sd = random_sd("sd15-tiny", torch.device("cpu"), torch.float32)
    sd.accelerate("regional")
    assert {block.norm1.normalized_shape for block in compiled} == {(8,), (16,)}
    assert len(compiled) == 6  # one way down, two up, of both sizes


def test_in_bfloat16_too_and_with_clip_pixels_made_on_the_device(quick: None) -> None:
    """As on a GPU: half precision, and the preprocessing that does not wait for the host."""
    cpu = torch.device("cpu")
    plain, fast = (random_sd("sd15-tiny", cpu, torch.bfloat16) for _ in range(2))
    fast.accelerate("regional")
    fast.adapter.on_device = True
    config = CONFIG.model_copy(update={"guidance": 2.0})  # guidance 9 of random weights magnifies rounding
    x = images(3)
    expected, exact = (
        Augmenter(generator, config, batch_size=4).tensors(x, k=2)
        for generator in (plain, random_sd("sd15-tiny", cpu, torch.float32))
    )
    made = Augmenter(fast, config, batch_size=4).tensors(x, k=2)
    rounding = (expected - exact).abs().mean()
    assert rounding > 0 and (made - exact).abs().mean() < 1.5 * rounding  # no further from float32 than plain bfloat16


@pytest.mark.parametrize("mode", ["regional", "max"])
def test_compiled_pocket_gives_the_same_views(quick: None, mode: str) -> None:
    config = AugmentConfig(steps=3, solver="dpm++", noise_map="cumulative", guidance=4.0)
    plain, fast = Augmenter(pocket(), config, batch_size=4), pocket()
    fast.accelerate(mode)
    made = Augmenter(fast, config, batch_size=4).tensors(images(3), k=2)
    expected = plain.tensors(images(3), k=2)
    assert expected.std() > 0.01 and (made - expected).abs().max() < 1e-4


def test_tokens_are_made_for_few_different_numbers_of_images(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of images and views: each number that is met would be compiled for, in the middle of a job."""
    fast, plain = (random_sd("sd15-tiny", torch.device("cpu"), torch.float32) for _ in range(2))
    fast.accelerate("regional")
    seen: list[int] = []
    made = fast.adapter.tokens
    monkeypatch.setattr(fast.adapter, "tokens", lambda x: seen.append(len(x)) or made(x))
    for count, k in ((8, 1), (5, 1), (11, 1), (3, 3), (7, 2)):
        x = images(count)
        ours, theirs = (Augmenter(net, CONFIG, batch_size=8).tensors(x, k=k) for net in (fast, plain))
        assert (ours - theirs).abs().max() < 1e-4
    assert seen == [8, 8, 8, 4, 4, 4, 4]


@pytest.mark.skipif(not any(speed.shutil.which(name) for name in ("c++", "g++", "clang++")), reason="no C++ compiler")
def test_inductor_compiles_a_pocket_block() -> None:
    """One small block through the real compiler, with the options that `--compile max` gives it."""
    torch.manual_seed(0)
    block = Block(16, 2).eval().requires_grad_(False)
    inputs = torch.randn(2, 4, 16), torch.randn(2, 6, 16), torch.randn(2, 3, 16)
    expected = block(*inputs)
    speed.compile_modules([block], "max")
    assert (block(*inputs) - expected).abs().max() < 1e-5
    torch._dynamo.reset()


@pytest.mark.parametrize("attention", ["decoupled", "concat"])
@pytest.mark.parametrize("kind", ["base", "plus"])
def test_fused_projections_are_exact(tiny_sd: Path, tiny_ip: dict[str, Path], kind: str, attention: str) -> None:
    from onesdaug.generators.sd.attention import fuse_projections

    aug = sd(tiny_sd, tiny_ip, CONFIG.model_copy(update={"attention": attention}), ip_repo=tiny_ip[kind])
    expected = aug.tensors(images(2), k=1)
    fuse_projections(aug.generator.unet)
    layers = [m for m in aug.generator.unet.modules() if hasattr(m, "to_qkv") or hasattr(m, "to_kv")]
    assert len(layers) == 12  # four self-attention, four cross-attention and the image side of those
    for layer in aug.generator.unet.modules():
        for name in ("to_k", "to_v"):
            if hasattr(layer, name):
                setattr(layer, name, None)  # proof that the joint layers are used
    assert (aug.tensors(images(2), k=1) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("solver", ["ddpm-ancestral", "ddim"])
@pytest.mark.parametrize("space", ["latent", "pixel"])
def test_padding_fills_every_batch_and_changes_no_row(solver: str, space: str) -> None:
    config = AugmentConfig(steps=3, solver=solver, noise_space=space)
    x = torch.rand(3, 3, 8, 8)
    plain, fixed = Counting(), Counting()
    fixed.compiled = "regional"
    expected = Augmenter(plain, config, batch_size=4).tensors(x, k=3)
    aug = Augmenter(fixed, config, batch_size=4)
    assert torch.equal(aug.tensors(x, k=3), expected)
    assert set(plain.rows) == {8, 2} and set(fixed.rows) == {8}  # with the negative rows of guidance
    aug.tensors(x[:1], k=1)
    assert set(fixed.rows) == {8}


def test_a_row_that_only_fills_up_is_no_reason_to_fail() -> None:
    assert pad(torch.tensor([[1.0], [2.0]]), 4).tolist() == [[1.0], [2.0], [2.0], [2.0]]
    assert pad(torch.ones(3, 1), 2).shape == (3, 1)
    assert (Engine("max").rows(3, 8), Engine("off").rows(3, 8)) == (8, 3)


def test_tokens_are_made_once_per_image_and_call(tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    aug = sd(tiny_sd, tiny_ip)
    seen: list[int] = []
    encoder = aug.generator.adapter.encoder
    inner = encoder.forward
    encoder.forward = lambda pixels, **kw: (seen.append(len(pixels)), inner(pixels, **kw))[1]
    expected = aug.tensors(images(3), k=3)  # batches of 4 cut the second and the third image's views
    assert sum(seen) == 3
    seen.clear()
    aug.run([Row(image, k) for image in (make_image(0), make_image(1)) for k in (1, 2, 3)])
    assert sum(seen) == 2  # and "no image" was made when the model was loaded
    aug.batch_size = 9
    assert (aug.tensors(images(3), k=3) - expected).abs().max() < 2e-5


# -- nothing in the loop waits for the device -------------------------------------------------------------------------


def test_the_loop_reads_no_tensor(tiny_sd: Path, tiny_ip: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither .item(), nor a number, a truth value or an array of a tensor, nor a copy to the host."""
    aug = sd(tiny_sd, tiny_ip, CONFIG.model_copy(update={"solver": "ddpm-ancestral"}))
    whole = Stages._denoised
    entered: list[int] = []

    def guarded(self, *inputs):
        entered.append(1)
        with monkeypatch.context() as patch:
            for name in ("item", "cpu", "numpy", "tolist", "__bool__", "__float__", "__int__", "__index__"):
                patch.setattr(torch.Tensor, name, lambda *a, **k: pytest.fail("the host looked at a tensor"))
            return whole(self, *inputs)

    monkeypatch.setattr(Stages, "_denoised", guarded)
    aug.tensors(images(3), k=2)
    assert len(entered) == 2


def test_the_loop_moves_nothing_between_host_and_device(tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    """On the meta device, which has shapes and no numbers: reading one fails, and a copy to it would be seen."""

    class Copies(TorchDispatchMode):
        seen: list[str]

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            places = {a.device.type for a in args if isinstance(a, torch.Tensor) and a.ndim}
            if isinstance(out, torch.Tensor) and out.ndim and places and out.device.type not in places:
                self.seen.append(str(func))
            return out

    aug = sd(tiny_sd, tiny_ip, CONFIG.model_copy(update={"solver": "ddpm-ancestral"}))
    generator, there = aug.generator, torch.device("meta")
    generator.device = there
    generator.unet.to(there), generator.vae.to(there)
    aug.stages._t = aug.stages._t.to(there)
    z, tokens = torch.zeros(2, 4, 16, 16, device=there), torch.zeros(2, 81, 32, device=there)
    step_noise = [torch.zeros_like(z) for _ in range(int((aug.table.s > 0).sum()))]
    watch = Copies()
    watch.seen = []
    with torch.no_grad(), watch:
        out = aug.stages._denoised(z, tokens, torch.zeros(2, device=there), tokens, *step_noise)
    assert out.device == there and out.shape == (2, 3, 32, 32)
    assert watch.seen == []
    with watch:
        torch.zeros(3).to(there)
    assert watch.seen  # the watch works


# -- errors for people ------------------------------------------------------------------------------------------------


def test_what_cannot_be_compiled_is_said(tiny_sd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="none of off, regional, max"):
        Augmenter.from_pretrained("pocket", compile="fast", device="cpu")
    with pytest.raises(ConfigError, match="no network"):
        Augmenter.from_pretrained("shape", compile="max")
    with pytest.raises(ConfigError, match="on mps leave it off"):
        speed.check_compile("max", torch.device("mps"))
    monkeypatch.setattr(speed.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="C\\+\\+ compiler"):
        Augmenter.from_pretrained("pocket", compile="max", device="cpu")


def test_a_generator_of_ones_own_says_that_it_cannot() -> None:
    Counting().accelerate("off")
    with pytest.raises(ConfigError, match="Counting cannot be compiled with 'regional'"):
        Counting().accelerate("regional")
    made = pocket()
    made.accelerate("regional")
    with pytest.raises(ConfigError, match="load it again"):
        made.accelerate("max")
