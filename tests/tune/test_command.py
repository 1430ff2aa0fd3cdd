"""From a folder to a file that other commands and the ensemble take."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from onesdaug import Augmenter, TestTimeEnsemble
from onesdaug.augment.config import preset
from onesdaug.augment.tuned import Tuned
from onesdaug.cli import app
from onesdaug.errors import ConfigError, DataError
from tests.tune.file import stored

OWN = """
import torch
from onesdaug.encoders.preprocess import Preprocess

class Pixels(torch.nn.Module):
    preprocess = Preprocess(16, 16)

    def forward(self, x):
        return x.flatten(1)

class Scores(Pixels):
    def forward(self, x):
        return x.flatten(1)[:, :6]

def blurred(batch, k, seeds):
    small = torch.nn.functional.avg_pool2d(batch, batch.shape[-1] // 4)
    large = torch.nn.functional.interpolate(small, batch.shape[-2:])
    return large[:, None].expand(-1, k, -1, -1, -1)
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six classes of coarse patterns under pixel noise: blurring helps features that are pixels."""
    rng = np.random.default_rng(0)
    for label in range(6):
        pattern = np.kron(rng.normal(0, 12, (4, 4, 3)), np.ones((4, 4, 1)))
        for number in range(8):
            pixels = (128 + pattern + rng.normal(0, 90, (16, 16, 3))).clip(0, 255).astype(np.uint8)
            (tmp_path / "photos" / f"c{label}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / "photos" / f"c{label}" / f"{number}.png")
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*words: str) -> Any:
    return CliRunner().invoke(app, ["tune", "photos", *words, "-o", "tuned.json", "--device", "cpu"])


def test_views_that_help_are_found_and_used(world: Path) -> None:
    ran = tune("--encoder", "own.py:Pixels", "--sources", "own.py:blurred,crop-flip", "--shots", "1,3", "-k", "2")
    assert ran.exit_code == 0, ran.output
    assert "1-shot: use own.py:blurred" in ran.stdout.replace("\n", " ")
    found = Tuned.read(world / "tuned.json")
    assert found.source == "own.py:blurred" and set(found.uses) == {"1-shot", "3-shot"} and found.few_shot
    page = (world / "tuned.html").read_text()
    assert "Gain against cost" in page and "data:image/webp;base64," in page
    assert "Best: own.py:blurred (+" in page and "worst: crop-flip (" in page
    with Image.open(world / "tuned-views.webp") as sheet:
        assert sheet.width > 5 * 200 and sheet.height > 4 * 200  # four images, two views of each source
    shown = CliRunner().invoke(app, ["report", "tuned.json", "-o", "page.html"])
    assert shown.exit_code == 0, shown.output
    again = tune("--encoder", "own.py:Pixels", "--sources", "own.py:blurred,crop-flip", "--shots", "1,3", "-k", "2")
    stored = json.loads((world / "tuned.json").read_text())["details"]
    assert again.exit_code == 0 and stored["trials"][0]["seconds_per_image"] is None  # nothing was drawn again

    embedded = ["fewshot", "embed", "photos", "--encoder", "own.py:Pixels", "--views", "own.py:blurred", "--k", "2"]
    assert CliRunner().invoke(app, [*embedded, "-o", "bank.safetensors"]).exit_code == 0
    told = ["fewshot", "evaluate", "bank.safetensors", "--query", "3", "--episodes", "50", "--preset", "tuned.json"]
    scored = CliRunner().invoke(app, [*told, "--shot", "1", "-o", "scored.json"])
    assert scored.exit_code == 0, scored.output
    use = found.use("1-shot")
    cell = json.loads((world / "scored.json").read_text())["cells"][-1]
    assert use is not None and (cell["support"], cell["original_weight"]) == (use.k, use.original_weight)
    task = json.loads((world / "tuned.json").read_text())["details"]["tasks"][0]
    assert 1 <= task["spared"]["auto"]["views"] <= use.k and "views spared: " in ran.stdout
    for words, most in (((), 2), (("--preset", "tuned.json"), use.k)):
        ran = CliRunner().invoke(app, [*told[:7], *words, "--shot", "1", "--k", "auto", "-o", "auto.json"])
        assert ran.exit_code == 0, ran.output
        base, drawn = json.loads((world / "auto.json").read_text())["details"]["drawn"]
        assert base == 0 and 1 <= drawn <= most and (most == 1 or f"{drawn:.2f} of 2 query views" in ran.stdout)
    for words, reason in (
        (("--k", "3"), "auto or a number up to 2"), (("--k", "1", "--curve"), "leave out --curve"),
        (("--k", "1", "--preset", "tuned.json"), "says how views are used"),
    ):  # fmt: skip
        assert reason in str(CliRunner().invoke(app, [*told[:7], *words]).exception)
    assert "leave out --curve" in str(CliRunner().invoke(app, [*told, "--curve"]).exception)

    model = torch.nn.Flatten()
    wrapped = TestTimeEnsemble.from_tuned(model, world / "tuned.json", "1-shot", seed=3)
    assert (wrapped.k, wrapped.original_weight, wrapped.combine) == (use.k, use.original_weight, "embedding")
    auto = TestTimeEnsemble.from_tuned(model, world / "tuned.json", "1-shot", k="auto", combine="logits")
    assert (auto.k, auto.at_most) == ("auto", use.k)
    with pytest.raises(ConfigError, match="tuned for 1-shot, 3-shot"):
        TestTimeEnsemble.from_tuned(model, world / "tuned.json")


def test_two_classes_are_tuned_on_halves_of_their_images(world: Path) -> None:
    for label in range(2, 6):
        shutil.rmtree(world / "photos" / f"c{label}")
    words = ("--encoder", "own.py:Pixels", "--sources", "own.py:blurred", "-k", "1")
    ran = tune(*words, "--shots", "1,3,5")
    assert ran.exit_code == 0, ran.output
    assert set(Tuned.read(world / "tuned.json").uses) == {"1-shot", "3-shot"}
    told = " ".join(ran.stdout.split())
    assert "other images of these classes, not of other classes" in told and "Not tuned for 5-shot" in told
    assert "tuning needs 12 images of every class, the smallest class has 8" in str(
        tune(*words, "--shots", "5").exception
    )


def test_a_classifier_is_tuned_on_its_own_classes(world: Path) -> None:
    ran = tune("--classifier", "own.py:Scores", "--sources", "crop-flip", "-k", "1")
    assert ran.exit_code == 0, ran.output
    found = Tuned.read(world / "tuned.json")
    told = " ".join(ran.stdout.split())
    assert found.uses == {"classifier": None} and "views do not help here: best was crop-flip" in told
    assert "where it was chosen, nothing where not" in told
    assert TestTimeEnsemble.from_tuned(torch.nn.Flatten(), world / "tuned.json").k == 0
    with pytest.raises(ConfigError, match="has no settings"):
        preset(str(world / "tuned.json"))


def test_what_cannot_be_tuned_is_said(world: Path) -> None:
    for words, reason in (
        (("--sources", "crop-flip"), "--encoder (few-shot) or --classifier"),
        (("--classifier", "own.py:Pixels", "--sources", "crop-flip"), "the data has 6 classes"),
        (("--encoder", "own.py:Pixels", "--shots", "one"), "numbers by commas"),
        (("--encoder", "own.py:Pixels", "--sources", "crop-flip", "--shots", "8"), "smallest class has 8"),
    ):
        assert reason in str(tune(*words).exception), words


def test_settings_hold_for_one_generator(tmp_path: Path) -> None:
    file = str(stored(tmp_path / "tuned.json"))
    assert preset(file, steps=3).steps == 3 and preset(file).noise_level == 0.6
    with pytest.raises(ConfigError, match="tuned with generator other, not"):
        Augmenter.from_pretrained("pocket", preset=file, device="cpu")
    own = Augmenter.from_pretrained("pocket", device="cpu").fingerprint
    stored(tmp_path / "tuned.json", generator=own)
    assert Augmenter.from_pretrained("pocket", preset=file, device="cpu").config.noise_level == 0.6


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DataError, match="not a file of `onesdaug tune`"):
        preset(str(tmp_path / "x.json"))
    with pytest.raises(DataError, match="cannot be read"):
        preset(str(tmp_path / "none.json"))
