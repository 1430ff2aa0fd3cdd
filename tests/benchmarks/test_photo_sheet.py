"""The contact sheet of `photo`, with a generator that is quick, and what pages say of generators as weights come."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from benchmarks import generators_table, photo_report, photo_sheet, pocket_report, readme_table
from onesdaug.errors import ConfigError
from onesdaug.generators.pocket import Pocket
from onesdaug.report.join import joined
from onesdaug.report.result import read_result
from tests.conftest import make_image


def test_eight_photographs_that_may_be_shown() -> None:
    pytest.importorskip("sklearn")
    found = photo_sheet.photographs()
    assert len(found) == 8 and {(image.size, image.mode) for image in found.values()} == {((256, 256), "RGB")}
    assert {*photo_sheet.CREDITS, *photo_sheet.ALSO, *photo_sheet.LEARN} == set(found)


def test_a_row_is_the_photograph_and_a_view_at_each_level() -> None:
    picture = make_image(0, (48, 48))
    (row,) = photo_sheet.views("pocket", [picture], [0.1, 0.9])
    assert row[0] is picture and len(row) == 3 and row[1].size == picture.size
    assert row[1].tobytes() != row[2].tobytes()


def test_the_sheet_is_clear_between_the_pictures_and_fits(tmp_path: Path) -> None:
    rows = [[Image.new("RGB", (256, 256), colour)] * 2 for colour in ("red", "lime", "blue", "white")]
    made = photo_sheet.sheet(rows, ["original", "noise 0.5"])
    across = 2 * (256 + 8)
    assert made.size == (2 * across + 8, photo_sheet.HEAD + 2 * (256 + 8) - 8)  # two blocks of two rows
    middles = [made.getpixel((x, photo_sheet.HEAD + y)) for x in (128, across + 16 + 128) for y in (128, 264 + 128)]
    assert middles == [(255, 0, 0, 255), (0, 255, 0, 255), (0, 0, 255, 255), (255, 255, 255, 255)]
    assert made.getpixel((260, photo_sheet.HEAD + 100))[3] == 0  # between two pictures
    made = made.resize((96, 64))
    photo_sheet.save(made, tmp_path / "x.webp")
    assert Image.open(tmp_path / "x.webp").mode == "RGBA"
    with pytest.raises(ConfigError, match="does not fit 100 bytes"):
        photo_sheet.save(made, tmp_path / "y.webp", 100)
    assert not (tmp_path / "y.webp").exists()


def test_the_released_sheet_is_small_and_shown() -> None:
    if not photo_sheet.PICTURE.is_file():
        pytest.skip("docs/photo-views.webp is not drawn yet: the weights of photo are not released")
    assert photo_sheet.PICTURE.stat().st_size < photo_sheet.LIMIT
    assert f"docs/{photo_sheet.PICTURE.name}" in pocket_report.README.read_text()


def test_readme_says_what_the_report_says() -> None:
    text = pocket_report.README.read_text()
    assert pocket_report.readme(text) == text, "run python benchmarks/pocket_report.py"


def test_photo_appears_when_its_weights_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, home = generators_table.folder, tmp_path / "weights"
    monkeypatch.setattr(generators_table, "folder", lambda name: home if name == "photo" else own(name))
    weights = generators_table.side_by_side().splitlines()[2]
    assert weights.split(" | ")[3] == "not released yet"
    assert "not released yet" in generators_table.readme_rows()

    shutil.copytree(Pocket.weights, home)
    card = json.loads((home / "card.json").read_text())
    card |= {"condition": {"name": "efficientnet-lite2"}, "network": {"size": 256}, "guidance": 8.0, "init": None}
    card["stages"] = {"decoder": {"steps": 1700, "history": [{"psnr": 30.05}]}}
    (home / "card.json").write_text(json.dumps(card))
    rows = {line.split(" | ")[0]: line.split(" | ") for line in generators_table.side_by_side().splitlines()}
    assert rows["| weights"][3] == "45.2 MB" and rows["| pixels"][3] == "256 × 256"
    assert rows["| has any part seen the novel classes?"][3].startswith("**yes**")
    assert "not released yet" not in "".join([*generators_table.tables().values(), generators_table.readme_rows()])
    assert "30.1 dB" in generators_table.tables()["photo card"]


def test_what_each_stage_gave_is_told_in_their_order() -> None:
    asked = {f"class-{way} {name} {shot}shot": 1.5 for way in ("1-4", "1-10") for name, shot in photo_report.JUDGED}
    stages = {name: {"steps": 900, "history": [{"held": 1.0}, asked]} for name in ("polish", "denoiser-1")}
    rows = photo_report.photo_stages({"stages": stages | {"decoder": {"steps": 1, "history": [{}]}}}).splitlines()[2:6]
    assert [row.split(" | ")[:4] for row in rows] == [
        [f"| {name}", "900", "1", scale] for name in ("denoiser-1", "polish") for scale in ("10", "4")
    ]
    assert rows[0].count("+1.50") == 4


def test_a_run_of_photo_that_was_joined_adds_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copyfile(readme_table.RESULTS / "tuned.json", tmp_path / "tuned.json")
    stored = read_result(readme_table.RESULTS / "headline.json")
    cells = [cell for cell in stored.cells if cell.generator in ("", "pocket-imagenet")]
    made = stored.made.model_copy(update={"commit": "0123abc", "generators": {"photo": "as pocket-imagenet"}})
    run = stored.model_copy(
        update={
            "made": made,
            "cells": tuple(one.model_copy(update={"generator": one.generator and "photo"}) for one in cells),
        }
    )
    joined(stored, run).save(tmp_path)
    monkeypatch.setattr(readme_table, "RESULTS", tmp_path)
    text = readme_table.written(pocket_report.README.read_text())
    heads = [line for line in text.splitlines() if line.startswith("| classifier, data, task |")]
    assert "| photo |" in heads[0] and "| photo at 0.7 |" in heads[0]
    assert "| photo |" not in heads[1] and "· photo |" not in heads[1]  # that run had no tuned rows
    assert "*photo: `onesdaug study run" in text and "commit 0123abc" in text
    photo = generators_table.Column("photo")  # under its own name
    found = generators_table._accuracy(photo, "ProtoNet-ConvNet", "miniimagenet", 1)
    theirs = generators_table._accuracy(generators_table.OURS[1], "ProtoNet-ConvNet", "miniimagenet", 1) or ""
    assert found and theirs.startswith(f"{found}<br>tuned: +")  # of the joined run nothing was tuned
