"""Loading: the real file formats, what is missing, and what must not happen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from onesdaug import Augmenter
from onesdaug.common.hub import fingerprint
from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.generators.sd.files import component
from onesdaug.generators.sd.generator import StableDiffusion
from tests.tiny import SIDE, save_ip_adapter, save_sd


def load(sd: Path, ip: Path | None = None, **options) -> StableDiffusion:
    return StableDiffusion.from_pretrained(sd, ip_adapter=ip is not None, ip_repo=ip, device="cpu", **options)


@pytest.mark.parametrize(("kind", "tokens"), [("base", 4), ("plus", 16)])
def test_bin_and_safetensors_are_the_same_model(tiny_sd: Path, tmp_path: Path, kind: str, tokens: int) -> None:
    x = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    rows = []
    for suffix in (".safetensors", ".bin"):
        generator = load(tiny_sd, save_ip_adapter(tmp_path / suffix[1:], kind, suffix))
        rows.append(generator.image_tokens(x))
        assert rows[-1].shape == (2, 77 + tokens, 32)
        assert generator.null_tokens(3).shape == (3, 77 + tokens, 32)
    assert torch.equal(*rows)


def test_the_size_and_schedule_come_from_the_files(tiny_sd: Path) -> None:
    generator = load(tiny_sd)
    assert generator.size == SIDE
    assert (len(generator.schedule), generator.schedule.offset) == (1000, 1)
    assert generator.schedule.final_abar == generator.schedule.abar[0]


def test_encode_decode_ranges(tiny_sd: Path) -> None:
    generator = load(tiny_sd)
    z = generator.encode(torch.rand(2, 3, SIDE, SIDE))
    assert z.shape == (2, 4, SIDE // 2, SIDE // 2) and z.dtype == torch.float32
    x = generator.decode(z)
    assert x.min() >= 0 and x.max() <= 1


def test_slicing_decodes_row_by_row_to_the_same_pictures(tiny_sd: Path) -> None:
    z = torch.randn(3, 4, SIDE // 2, SIDE // 2)
    plain, saving = load(tiny_sd), load(tiny_sd, vae_slicing=True)
    rows = []
    whole = saving.vae.decoder.forward
    saving.vae.decoder.forward = lambda x, *a, **k: (rows.append(x.shape[0]), whole(x, *a, **k))[1]
    assert torch.allclose(plain.decode(z), saving.decode(z), atol=1e-5)
    assert rows == [1, 1, 1]


def test_tiling_works_on_tiles_smaller_than_the_picture(tiny_sd: Path) -> None:
    z = torch.randn(1, 4, SIDE // 2, SIDE // 2)
    saving, sides = load(tiny_sd, vae_tiling=True), []
    whole = saving.vae.decoder.forward
    saving.vae.decoder.forward = lambda x, *a, **k: (sides.append(x.shape[-1]), whole(x, *a, **k))[1]
    assert saving.decode(z).shape == (1, 3, SIDE, SIDE)
    assert len(sides) > 1 and max(sides) == SIDE // 4  # half of the latent's side
    assert saving.encode(torch.rand(1, 3, SIDE, SIDE)).shape == z.shape


def test_half_precision_stays_close(tiny_sd: Path, tiny_ip: dict[str, Path]) -> None:
    x = torch.rand(2, 3, SIDE, SIDE)
    views = [
        Augmenter.from_pretrained(
            tiny_sd, preset="paper-fast", ip_repo=tiny_ip["base"], device="cpu", dtype=dtype
        ).tensors(x, k=1)
        for dtype in ("float32", "bfloat16")
    ]
    assert (views[0] - views[1]).abs().mean() < 0.05


def test_velocity_models_are_converted(tmp_path: Path) -> None:
    generator = load(save_sd(tmp_path / "v", prediction_type="v_prediction"))
    plain = load(save_sd(tmp_path / "e"))
    z, t = torch.randn(2, 4, 16, 16), torch.tensor([10, 800])
    tokens, scale = generator.null_tokens(2), torch.zeros(2)
    abar = torch.tensor(generator.schedule.abar[[10, 800]], dtype=torch.float32).reshape(2, 1, 1, 1)
    expected = abar.sqrt() * plain.predict(z, t, tokens, scale) + (1 - abar).sqrt() * z
    assert torch.allclose(generator.predict(z, t, tokens, scale), expected, atol=1e-5)


def test_fp16_only_folders_load(tiny_sd: Path, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    shutil.copytree(tiny_sd, folder)
    for part in ("unet", "vae", "text_encoder"):
        for file in component(folder / part)[0]:
            file.rename(file.with_suffix(f".fp16{file.suffix}"))
    x = torch.rand(1, 3, SIDE, SIDE)
    assert torch.allclose(load(folder).encode(x), load(tiny_sd).encode(x))


def test_missing_hub_weights_name_the_command() -> None:
    with pytest.raises(WeightsMissing) as caught:
        Augmenter.from_pretrained("sd15", device="cpu")
    message = str(caught.value)
    assert "stable-diffusion-v1-5/stable-diffusion-v1-5" in message
    assert "snapshot_download" in message and "local folder" in message
    command = message.split("\n")[1].strip()
    compile(command.split('-c "')[1].rstrip('"'), "command", "exec")  # a command that can be pasted


def test_missing_adapter_names_the_command(tiny_sd: Path) -> None:
    with pytest.raises(WeightsMissing, match=r"h94/IP-Adapter.*\n.*snapshot_download"):
        Augmenter.from_pretrained(tiny_sd, device="cpu")


def test_missing_folder_and_odd_adapter(tiny_sd: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsMissing, match="there is no folder"):
        load(tmp_path / "nothing")
    adapter = save_ip_adapter(tmp_path / "ip")
    with pytest.raises(WeightsMissing, match=r"has no other\.safetensors or \.bin"):
        load(tiny_sd, adapter, ip_weights="other")
    torch.save({"weights": torch.zeros(1)}, adapter / "models" / "odd.bin")
    with pytest.raises(ConfigError, match="not an IP-Adapter"):
        load(tiny_sd, adapter, ip_weights="odd")


def test_incomplete_model_folder_says_which_part(tiny_sd: Path, tmp_path: Path) -> None:
    folder = tmp_path / "part"
    shutil.copytree(tiny_sd, folder)
    shutil.rmtree(folder / "vae")
    with pytest.raises(WeightsMissing, match="vae"):
        load(folder)


def test_an_adapter_of_another_name_or_a_file(tiny_sd: Path, tmp_path: Path) -> None:
    adapter = save_ip_adapter(tmp_path / "ip")
    file = adapter / "models" / "ip-adapter_sd15.safetensors"
    expected = load(tiny_sd, adapter).null_tokens(1)
    assert torch.equal(load(tiny_sd, file).null_tokens(1), expected)
    file.rename(file.with_name("mine.safetensors"))
    assert torch.equal(load(tiny_sd, adapter).null_tokens(1), expected)


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code in a pickle was run')",))


def test_pickles_cannot_run_code(tiny_sd: Path, tmp_path: Path) -> None:
    adapter = save_ip_adapter(tmp_path / "ip", suffix=".bin")
    torch.save({"image_proj": Evil()}, adapter / "models" / "ip-adapter_sd15.bin")
    with pytest.raises(WeightsMissing, match=r"cannot be loaded.*\n.*UnpicklingError"):
        load(tiny_sd, adapter)


def test_fingerprints_follow_the_weights(tiny_sd: Path, tiny_ip: dict[str, Path], tmp_path: Path) -> None:
    a, b = load(tiny_sd).fingerprint, load(tiny_sd, tiny_ip["base"]).fingerprint
    assert a != b and a == load(tiny_sd).fingerprint
    file = tmp_path / "w.bin"
    file.write_bytes(bytes(5_000_000))
    before = fingerprint([file])
    with file.open("r+b") as handle:
        handle.seek(4_999_999)
        handle.write(b"1")
    assert fingerprint([file]) != before


def test_fingerprints_follow_what_is_loaded_and_nothing_else(tiny_sd: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sd"
    shutil.copytree(tiny_sd, folder)
    before = load(folder).fingerprint
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    for other in ("diffusion_pytorch_model.non_ema.safetensors", "diffusion_pytorch_model.fp16.safetensors"):
        shutil.copy(weights, weights.with_name(other))  # as they lie side by side in the published repository
    assert load(folder).fingerprint == before
    assert load(folder, dtype="bfloat16").fingerprint != before
    scheduler = folder / "scheduler" / "scheduler_config.json"
    scheduler.write_text(scheduler.read_text().replace("epsilon", "v_prediction"))
    assert load(folder).fingerprint != before


def test_the_hubs_cache_layout(tiny_sd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of links to blobs: found by hub id, and a snapshot that was cut off names the command."""
    repo = tmp_path / "hub" / "models--stable-diffusion-v1-5--stable-diffusion-v1-5"
    snapshot = repo / "snapshots" / ("0" * 40)
    for i, file in enumerate(f for f in tiny_sd.rglob("*") if f.is_file()):
        link = snapshot / file.relative_to(tiny_sd)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob = repo / "blobs" / f"{i:064x}"
        blob.parent.mkdir(exist_ok=True)
        shutil.copy(file, blob)
        link.symlink_to(blob)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert Augmenter.from_pretrained("sd15", ip_adapter=False, device="cpu").generator.size == SIDE
    (snapshot / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(WeightsMissing, match=r"unet missing.*\n.*snapshot_download"):
        Augmenter.from_pretrained("sd15", ip_adapter=False, device="cpu")


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"])
def test_damaged_weights_are_one_readable_error(tiny_sd: Path, tmp_path: Path, part: str) -> None:
    folder = tmp_path / "sd"
    shutil.copytree(tiny_sd, folder)
    (folder / part).write_bytes((folder / part).read_bytes()[:1000])
    with pytest.raises(WeightsMissing, match=r"cannot be loaded: files are damaged or do not fit"):
        load(folder)


def test_adapters_for_other_models_are_refused(tiny_sd: Path, tmp_path: Path) -> None:
    adapter = save_ip_adapter(tmp_path / "ip")
    file = adapter / "models" / "ip-adapter_sd15.safetensors"
    state = load_file(file)
    save_file(
        {k: v.repeat(1, 2) if "to_" in k else v for k, v in state.items()}, adapter / "models" / "xl.safetensors"
    )
    with pytest.raises(ConfigError, match="cross-attention width 64, this one has 32"):
        load(tiny_sd, adapter, ip_weights="models/xl.safetensors")
    wide = {k: v.repeat(1, 2) if k == "image_proj.proj.weight" else v for k, v in state.items()}
    save_file(wide, adapter / "models" / "vit-G.safetensors")
    with pytest.raises(ConfigError, match="image encoder of width 48, the one beside it has 24"):
        load(tiny_sd, adapter, ip_weights="vit-G")


def test_unknown_predictions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'sample'"):
        load(save_sd(tmp_path / "x", prediction_type="sample"))
