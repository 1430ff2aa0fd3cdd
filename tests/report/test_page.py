"""A page of one result that is not the paper's, and photographs with their views beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from onesdaug.report.pictures import embed, save_thumbnail
from onesdaug.report.records import Cell, Photograph
from onesdaug.report.result import StudyResult, read_result
from onesdaug.report.strings import accuracy, points, relative
from onesdaug.statistics import Paired, Summary
from onesdaug.studies.context import Settings, StudyContext
from onesdaug.studies.kinds.demo.photographs import make_photographs
from onesdaug.studies.page import render
from tests.conftest import make_image
from tests.jobs.fake import Fake
from tests.report.example import MADE
from tests.report.structure import parse

HOSTILE = "<script>alert('x')</script>&\"\udcff.png"


def demo_result(folder: Path) -> StudyResult:
    """As the demo leaves it, with names that try to break out."""
    make_image(1, (40, 30)).save(folder / "small.jpg")
    where = {"data": "a part & more", "classifier": "some <classifier>", "shot": 1}
    views = {"kind": "generative", "generator": "pocket", "label": "1S-DAug", "row": "pocket", "noise_level": 0.85}
    cells = [Cell(**where, row="none", label="no views", kind="baseline", accuracy=Summary(0.5, 0.01, 60))]
    cells += [
        Cell(**where, **views, support=k, query=k, accuracy=Summary(0.5 + 0.01 * k, 0.01, 60), gain=gain)
        for k in (1, 2, 3)
        for gain in [Paired(0.01 * k, 0.004, 0.01, 0.02 * k, 60)]
    ]
    photograph = Photograph(name=HOSTILE, credit="CC0", note="40 × 30", pictures=(("original", "small.jpg"),))
    return StudyResult(
        study="demo",
        kind="demo",
        title="views of one image",
        paper="none",
        about="What it is.",
        made=MADE,
        cells=tuple(cells),
        photographs=(photograph,),
        notes=("run `onesdaug augment <i>`",),
        missing=(f"{HOSTILE}: is empty", "<b>gone</b>"),
    )


@pytest.fixture
def page(tmp_path: Path) -> str:
    return render([demo_result(tmp_path)], tmp_path)


def test_it_needs_nothing_beside_it_and_runs_nothing(page: str) -> None:
    found = parse(page)
    assert {"h1", "table", "svg", "img", "details"} <= found.seen
    assert not {"script", "iframe", "object", "b", "i", "classifier", "nav"} & found.seen
    assert found.fetched and all(uri.startswith("data:") for uri in found.fetched)
    assert "url(" not in page and "@import" not in page and "http://" not in page
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page
    assert "<h1>views of one image</h1>" in page and "<h2>" not in page  # no second heading says the same


def test_names_are_escaped(page: str) -> None:
    assert "<script" not in page and "<code>onesdaug augment &lt;i&gt;</code>" in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&#34;?.png" in page
    assert "&lt;b&gt;gone&lt;/b&gt;" in page


def test_the_numbers_are_those_of_the_result(page: str, tmp_path: Path) -> None:
    table = [row for row in parse(page).rows if "±" in "".join(row)]
    cells = demo_result(tmp_path).cells
    assert [row[0] for row in table] == ["no views", *(f"1S-DAug-{k} · pocket, noise 0.85" for k in (1, 2, 3))]
    for shown, cell in zip(table, cells, strict=True):
        assert shown[1] == accuracy(cell.accuracy)
        if cell.gain is not None:
            assert shown[2] == points(cell.gain) and f"{shown[3]} %" == relative(cell.gain.relative_gain)


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    result = demo_result(tmp_path).model_copy(update={"missing": ()})
    photograph = result.photographs[0].model_copy(update={"name": "a.png"})
    result = result.model_copy(update={"photographs": (photograph,)})
    assert read_result(result.save(tmp_path)) == result


def test_photographs_are_made_and_a_bad_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    images = {name: make_image(n, (40, 30)) for n, name in enumerate(("good", "bad"))}
    for name, image in images.items():
        image.save(photos / f"{name}.png")
    (photos / "empty.png").touch()
    context = StudyContext(Settings(work=tmp_path / "work", images=(str(photos),), device="cpu"))
    monkeypatch.setattr(context, "augmenter", lambda *_: Fake(bad=[images["bad"]]))
    shown, notes, problems = make_photographs({("fake", "paper"): "The views to look at"}, 2, {}, context, out)
    (row,) = shown
    assert row.name == "good.png: the views to look at" and [caption for caption, _ in row.pictures] == [
        "original",
        "tweaked",
        "view 1",
        "view 2",
    ]
    preset = "preset paper (the paper's settings, for Stable Diffusion)"
    assert row.note == f"{preset} · 40 × 30 · 14 steps from t = 651, noise level 0.7 · 0.1 s a view"
    uris = [embed(out, file).uri for _, file in row.pictures]
    assert uris[0] == uris[1] != uris[2] and all(uri.startswith("data:image/jpeg;base64,") for uri in uris)
    assert problems == ["bad.png: RuntimeError: this image breaks the network", "empty.png: is empty (0 bytes)"]
    assert notes == ["The views to look at: `onesdaug augment photos -o views --model fake --preset paper --k 2`."]


def test_thumbnails_are_small(tmp_path: Path) -> None:
    save_thumbnail(Image.effect_noise((3000, 2000), 80).convert("RGB"), tmp_path / "small.jpg")
    assert (tmp_path / "small.jpg").stat().st_size < 90_000
