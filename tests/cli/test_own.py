"""Heads and views of one's own by name: in `augment`, `embed`, `evaluate` and study files; errors of two lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesdaug import AugmentConfig, Augmenter, ShapeTweak, TestTimeEnsemble
from onesdaug.augment.config import preset
from onesdaug.cli import main
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse, evaluate
from onesdaug.fewshot.heads import ProtoNet
from onesdaug.studies.spec import load_study

MINE = """
import torch
from torch import nn

from onesdaug.fewshot import heads


def darker(batch, k, seeds):
    return torch.stack([batch * (1 - n / 10) for n in range(1, k + 1)], dim=1)


class Darker:
    def tensors(self, batch, k, seeds):
        return darker(batch, k, seeds)


def make():
    return Darker()


def unfinished(batch, k, seeds):
    return batch.no_such_thing


def protonet(support, query):
    return -(query[:, :, None] - support.mean(2)[:, None]).square().sum(-1)


class Head(nn.Module):
    def forward(self, support, query):
        return protonet(support, query)


def for_one_episode(support, query):
    return query @ support.mean(1).mT[:, :, 0]


class Broken(heads.Head):
    def forward(self, support, query):
        raise RuntimeError("not yet")


def transposed(support, query):
    return protonet(support, query).transpose(1, 2)
"""

STUDY = """
kind = "fewshot"
title = "Darker pets"
data = ["pets"]
generators = ["my.py:make"]
uses = [[1, 1], [2, 2]]
reference = "twice"

[[classifiers]]
name = "mine"
encoder = { pets = "convnet" }
head = "my.py:protonet"

[[rows]]
id = "twice"
label = "darker by name"
views = "my.py:darker"

[[rows]]
id = "drawn"
label = "as a generator"
views = "generated"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder one stands in: my.py, two photographs and a small data set."""
    (tmp_path / "my.py").write_text(MINE)
    (tmp_path / "study.toml").write_text(STUDY)
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for c in range(5):
        folder = tmp_path / "pets" / "test" / f"class{c}"
        folder.mkdir(parents=True)
        for i in range(16):
            pixels = rng.integers(0, 120, (30, 40, 3)) + 25 * c
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
        if c < 2:
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / f"{c}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["onesdaug", *line.split()])
    with pytest.raises(SystemExit) as done:
        main()
    return int(done.value.code or 0)


@pytest.mark.parametrize("name", ["darker", "Darker", "make"])
def test_augment_draws_with_any_source(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(f"augment photos -o views --model my.py:{name} --k 1", monkeypatch) == 0
    assert run(f"augment photos -o views --model my.py:{name} --k 2", monkeypatch) == 0  # only what is missing
    original = np.asarray(Image.open(place / "photos" / "0.png"), dtype=float)
    for k in (1, 2):
        view = np.asarray(Image.open(place / "views" / f"0_view{k}.png"), dtype=float)
        assert np.abs(view - original * (1 - k / 10)).max() <= 0.51
    stored = TestTimeEnsemble(lambda x: x.mean((2, 3)), "views", k=2, input="tensor")
    direct = TestTimeEnsemble(lambda x: x.mean((2, 3)), f"my.py:{name}", k=2, input="tensor")
    picture = Image.open(place / "photos" / "0.png")
    torch.testing.assert_close(stored(picture), direct(picture))


def test_a_source_has_no_settings_and_its_errors_are_two_lines(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("augment photos -o v --model my.py:darker --steps 3 --side 8 --preset paper", monkeypatch) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "my.py:darker makes its views without a generator: --preset, --steps, --side would do nothing" in told
    assert run("augment photos -o v --model my.py:unfinished --k 1", monkeypatch) == 1
    assert "AttributeError: 'Tensor' object has no attribute 'no_such_thing'" in capsys.readouterr().err
    line = "fewshot embed pets/test -o b.safetensors --encoder convnet --views my.py:{} --k 1"
    assert run(line.format("unfinished"), monkeypatch) == 2
    told = capsys.readouterr().err
    assert "unfinished, asked for 1 views of 80 images, failed:\n  AttributeError" in told and "Traceback" not in told
    assert run(line.format("darker") + " --preset paper", monkeypatch) == 2
    monkeypatch.setenv("ONESDAUG_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["onesdaug", *line.format("unfinished").split()])
    with pytest.raises(ConfigError) as caught:
        main()
    assert isinstance(caught.value.__cause__, AttributeError)


def test_no_views_are_no_views_everywhere(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Augmenter.from_pretrained("shape")(Image.open("photos/0.png"), k=0) == []
    assert run("augment photos -o none --k 0", monkeypatch) == 0
    assert "0 views made" in capsys.readouterr().out and not list((place / "none").glob("*.png"))
    line = "fewshot embed pets/test -o b.safetensors --encoder convnet"
    assert run(f"{line} --k 0", monkeypatch) == 0 and FeatureBank.load(place / "b.safetensors").k == 0
    # a source that is asked for nothing is a mistake, here as in Python (tests/fewshot/test_embed.py)
    assert run(f"{line} --views my.py:darker --k 0", monkeypatch) == run(f"{line} --k 2", monkeypatch) == 2
    for line in ("augment photos -o none --k -1", "fewshot embed pets/test -o b --encoder convnet --k -1"):
        assert run(line, monkeypatch) == 2


def test_heads_of_any_kind(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    line = "fewshot embed pets/test -o b.safetensors --encoder convnet --views my.py:Darker --k 1"
    assert run(line, monkeypatch) == 0
    found = []
    for head in ("protonet", "my.py:protonet", "my.py:Head"):
        assert (
            run(
                f"fewshot evaluate b.safetensors --head {head} --query 5 --shot 1 --episodes 20 -o r.json", monkeypatch
            )
            == 0
        )
        cells = json.loads((place / "r.json").read_text())["cells"]
        found.append([cell["accuracy"]["mean"] for cell in cells])
    assert found[0] == pytest.approx(found[1]) and found[0] == pytest.approx(found[2])
    capsys.readouterr()
    for head, told in (
        ("for_one_episode", "failed:\n  RuntimeError: "),
        ("transposed", "must give logits (episodes, queries, classes), here (20, 25, 5); it gave (20, 5, 25)"),
        ("Broken", "head my.py:Broken failed:\n  RuntimeError: not yet ("),
        ("MINE", "has no attribute 'MINE'"),
        ("nn", "head 'my.py:nn' gives module; want a subclass"),
    ):
        assert run(f"fewshot evaluate b.safetensors --head my.py:{head} --query 5 --episodes 20", monkeypatch) == 2
        error = capsys.readouterr().err
        assert told in error or told in " ".join(error.split()), error
        assert "Traceback" not in error
    bank = FeatureBank.load(place / "b.safetensors")
    task, use = [Task(query=5, episodes=20)], [ViewUse(1, 1)]
    plain = evaluate(bank, lambda s, q: -(q[:, :, None] - s.mean(2)[:, None]).square().sum(-1), task, use)
    assert [r.accuracy.mean for r in plain] == pytest.approx(
        [r.accuracy.mean for r in evaluate(bank, ProtoNet(), task, use)]
    )


def test_a_study_of_ones_own(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("study run study.toml -o out --root . --episodes 20", monkeypatch) == 0
    result = json.loads((place / "out" / "study.json").read_text())
    rows = {(cell["row"], cell["query"]): cell for cell in result["cells"]}
    assert rows["drawn", 2]["accuracy"]["mean"] == rows["twice", 2]["accuracy"]["mean"]
    assert rows["drawn", 2]["over_tta"]["difference"] == 0 and rows["twice", 2]["over_tta"] is None
    assert "scored by my.py:protonet" in json.dumps(result["made"]["classifiers"])
    page = (place / "out" / "report.html").read_text()
    assert "<h1>Darker pets" in page and "paper's tables" not in page and "the paper" not in page
    assert "Gain over the number of views" in page  # the curve over K
    assert "to darker by name, points" in page
    assert run("report out -o r.html --markdown r.md --latex r.tex", monkeypatch) == 0
    assert (place / "r.md").read_text().startswith("# Darker pets\n")
    assert "as a generator" in (place / "r.tex").read_text()
    (place / "wrong.toml").write_text(STUDY.replace('"twice"\n\n', '"thrice"\n\n', 1))
    with pytest.raises(ConfigError, match=r"no row called thrice; rows are drawn, none, twice"):
        load_study("wrong.toml")


def test_an_edited_file_is_not_taken_for_the_old_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onesdaug.common import registry

    line = "fewshot embed pets/test -o b.safetensors --encoder convnet --views my.py:darker --k 1 --dtype float32"
    assert run(line, monkeypatch) == 0
    before = FeatureBank.load(place / "b.safetensors").features.clone()
    (place / "my.py").write_text(MINE.replace("n / 10", "n / 2"))
    registry._file.cache_clear()
    assert run(line, monkeypatch) == 0
    after = FeatureBank.load(place / "b.safetensors").features
    assert torch.equal(before[:, 0], after[:, 0]) and not torch.equal(before[:, 1], after[:, 1])


@pytest.mark.parametrize("make", [AugmentConfig, lambda **given: preset("pocket-accuracy", **given)])
def test_a_typo_in_a_setting_is_answered_with_the_name_that_was_meant(make: type[AugmentConfig]) -> None:
    with pytest.raises(ConfigError, match=r"^AugmentConfig has no 'noise_lvl': did you mean 'noise_level'\?$"):
        make(noise_lvl=0.5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"^noise_level: Input should be less than or equal to 1, got 2\nsteps: "):
        make(noise_level=2, steps=0)
    with pytest.raises(ConfigError, match="has no 'xyz'; settings are noise_level, noise_map"):
        make(xyz=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"ShapeTweak has no 'rotat': did you mean 'rotate'"):
        ShapeTweak(rotat=3)  # type: ignore[call-arg]


def test_the_papers_preset_on_pocket_is_remarked_upon(caplog: pytest.LogCaptureFixture) -> None:
    Augmenter.from_pretrained("pocket", preset="paper", device="cpu")
    assert "preset paper was made for Stable Diffusion (sd15), not for pocket" in caplog.text
    caplog.clear()
    Augmenter.from_pretrained("pocket", preset="pocket-accuracy", device="cpu")
    Augmenter.from_pretrained("shape", preset="paper", device="cpu")
    assert not caplog.text
