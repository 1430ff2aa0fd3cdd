"""What only a GPU can show: recorded graphs, pinned copies and overlapped batches give the plain path's views.

Skipped where there is no CUDA device; run there with `pytest tests/augment/test_cuda.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onesdaug import AugmentConfig, Augmenter
from onesdaug.augment.operator import Row
from onesdaug.bench.random_sd import random_sd
from onesdaug.data.pixels import to_tensor
from onesdaug.jobs.job import run_job
from onesdaug.jobs.plan import list_inputs
from onesdaug.jobs.survey import JobSettings
from tests.augment.test_engine import images, pocket
from tests.conftest import make_image

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CONFIG = AugmentConfig(steps=4, solver="ddpm-ancestral", guidance=3.0, guidance_interval=(0.3, 1.0))


@pytest.fixture(autouse=True)
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions in tf32 round differently from batch to batch, which guidance magnifies."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def pair(mode: str, dtype: torch.dtype = torch.float32, batch_size: int = 4) -> tuple[Augmenter, Augmenter]:
    """The plain operator, and the one with compiled networks."""
    cuda = torch.device("cuda")
    plain, fast = (random_sd("sd15-tiny", cuda, dtype) for _ in range(2))
    fast.accelerate(mode)  # type: ignore[arg-type]
    return Augmenter(plain, CONFIG, batch_size=batch_size), Augmenter(fast, CONFIG, batch_size=batch_size)


@pytest.mark.parametrize(("mode", "batch_size"), [("regional", 4), ("max", 4), ("regional", 12)])
def test_compiled_views_are_the_plain_ones(mode: str, batch_size: int) -> None:
    """Run, recorded and replayed: with other pictures each time."""
    plain, fast = pair(mode, batch_size=batch_size)
    for offset in (0, 3, 1):
        x, scales = images(6)[offset : offset + 3], [0.8, 0.0, 1.3]
        expected = plain.tensors(x, k=3, image_scale=scales)
        assert expected.std() > 0.01
        assert (fast.tensors(x, k=3, image_scale=scales) - expected).abs().max() < 1e-3
    graphs = fast.stages.engine._graphs
    assert set(graphs) == {"encode", "tokens", "denoise"}
    for graph in graphs.values():
        assert graph._recorded and None not in graph._recorded.values()
    assert fast.stages.engine.held_mb > 0


@pytest.mark.parametrize("mode", ["regional", "max"])
def test_bfloat16_is_as_near_to_float32_as_the_plain_path(mode: str) -> None:
    plain, fast = pair(mode, torch.bfloat16)
    exact, _ = pair("regional")
    x = images(3)
    expected = exact.tensors(x, k=2)
    rounding = (plain.tensors(x, k=2) - expected).abs().mean()
    assert rounding > 0 and (fast.tensors(x, k=2) - expected).abs().mean() < 1.5 * rounding


def test_pocket_compiled() -> None:
    config = AugmentConfig(steps=3, solver="dpm++", noise_map="cumulative", guidance=4.0)
    cuda = torch.device("cuda")
    plain, fast = (pocket().to(cuda, torch.float32) for _ in range(2))
    fast.accelerate("max")
    x = images(3)
    expected, made = (Augmenter(net, config, batch_size=4).tensors(x, k=2) for net in (plain, fast))
    assert (made - expected).abs().max() < 5e-3


@pytest.mark.parametrize("compiled", [False, True])
def test_overlapped_folder_job_writes_the_same_views(tmp_path: Path, compiled: bool) -> None:
    """Twelve pictures of mixed sizes in batches of 4, three batches under way: as one after the other."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(12):
        make_image(number, (40 + number % 3, 36)).save(folder / f"p{number}.png")
    aug = pair("regional")[compiled]
    assert aug.overlap == 3
    for name, overlap in (("many", 3), ("one", 1)):
        aug.overlap = overlap
        summary = run_job(aug, list_inputs([folder], tmp_path / name), JobSettings(tmp_path / name, 2))
        assert summary.made == 24 and not summary.failures
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.png"))
    assert len(files) == 24
    for file in files:
        one, many = (to_tensor(_open(tmp_path / name / file)) for name in ("one", "many"))
        assert (one - many).abs().max() <= 1.5 / 255  # float32 sums need not come in one order


def test_pictures_come_back_whole() -> None:
    """The pinned copies have arrived before they are read: pictures equal the tensors' way, batch after batch."""
    plain, _ = pair("regional")
    pictures = [make_image(i, (32, 32)) for i in range(10)]
    for _ in range(3):
        views = plain.run([Row(picture, 1, seed="s") for picture in pictures])
        again = plain.run([Row(picture, 1, seed="s") for picture in pictures])
        for one, two in zip(views, again, strict=True):
            assert (to_tensor(one.image) - to_tensor(two.image)).abs().max() <= 1.5 / 255


def _open(path: Path):  # type: ignore[no-untyped-def]
    from PIL import Image

    return Image.open(path).convert("RGB")


@pytest.mark.parametrize(("places", "heads", "width", "image"), [(300, 8, 40, 4), (64, 2, 80, 16), (17, 1, 128, 4)])
def test_cross_attention_in_one_pass(places: int, heads: int, width: int, image: int) -> None:
    """The Triton kernel against the two attentions it stands for, in float32."""
    from onesdaug.generators.sd.attention import decoupled
    from onesdaug.generators.sd.fast import one_pass

    torch.manual_seed(0)
    q, kv = (torch.randn(3, n, m * heads * width, device="cuda").bfloat16() for n, m in ((places, 1), (77 + image, 2)))
    scale = torch.tensor([0.0, 0.8, 1.5], device="cuda")
    assert one_pass.takes(q, heads, 77 + image)

    def split(x: torch.Tensor) -> torch.Tensor:
        return x.float().unflatten(-1, (heads, width)).transpose(1, 2)

    k, v = kv.chunk(2, dim=-1)
    text, picture = ((split(k[:, part]), split(v[:, part])) for part in (slice(77), slice(77, None)))
    expected = decoupled(split(q), text, picture, scale).transpose(1, 2).flatten(2)
    made = one_pass.attend(q, kv, scale, heads, 77).float()
    assert (made - expected).norm() / expected.norm() < 5e-3


@pytest.mark.parametrize(("shape", "columns"), [((3, 300, 320), 1280), ((70, 64), 64), ((1, 1, 72), 128)])
def test_gated_layer_in_one_kernel(shape: tuple[int, ...], columns: int) -> None:
    """The Triton kernel against the layer and the gelu it stands for, in float32."""
    from onesdaug.generators.sd.fast import geglu

    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("needs a Hopper GPU or a newer one")
    torch.manual_seed(0)
    layer = torch.nn.Linear(shape[-1], 2 * columns, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    x = torch.randn(*shape, device="cuda").bfloat16()
    assert geglu.takes(layer)
    made = geglu.geglu(x, layer.weight, layer.bias).float()
    values, gates = torch.nn.functional.linear(x.float(), layer.weight.float(), layer.bias.float()).chunk(2, -1)
    expected = values * torch.nn.functional.gelu(gates)
    assert made.shape == expected.shape and (made - expected).norm() / expected.norm() < 5e-3
