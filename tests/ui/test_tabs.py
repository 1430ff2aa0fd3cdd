"""What the tabs work out, without a page: the study's figures, few-shot answers, tuning, reports, and limits."""

from __future__ import annotations

import os
import shlex
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from onesdaug import TestTimeEnsemble
from onesdaug.analysis.faithfulness import cosines, view_diversities
from onesdaug.augment.config import preset
from onesdaug.augment.operator import Row
from onesdaug.cli import app
from onesdaug.common.progress import Progress, watched
from onesdaug.encoders.load import load_encoder
from onesdaug.errors import ConfigError, DataError, ImageError
from onesdaug.fewshot.heads import trained_head
from onesdaug.ui import html
from onesdaug.ui.app import _free_port, start
from onesdaug.ui.explore import explore, figures, shown_figure, shown_spots
from onesdaug.ui.fewshot import Asked, answer, named, shown_answers, shown_map
from onesdaug.ui.networks import Networks
from onesdaug.ui.photos import opened_photo, sample_files, sample_task
from onesdaug.ui.recipe import Recipe
from onesdaug.ui.results import framed, report
from onesdaug.ui.settings import UiSettings
from onesdaug.ui.tuning import Seen, Wish, shown_answer, shown_trials, tuned
from onesdaug.ui.views import draw_views
from onesdaug.ui.work import Cancelled
from tests.conftest import make_image
from tests.report import example
from tests.ui.conftest import TINY, Listener

pytest.importorskip("matplotlib")


# -- files and limits -------------------------------------------------------------------------------------------------


def test_bad_files_are_named_and_nothing_of_this_machine(tmp_path: Path) -> None:
    settings = UiSettings(max_megabytes=1, max_megapixels=0.01)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    (tmp_path / "big.png").write_bytes(b"\0" * 1_100_000)
    make_image(0, (200, 100)).save(tmp_path / "many.png")
    for name, reason in {
        "notes.txt": "notes.txt is a text file, not an image",
        "cut.png": "cut.png",
        "big.png": "big.png has 1.1 MB; the page takes up to 1",
        "many.png": "many.png has 0.0 megapixels; the page takes up to 0.01",
    }.items():
        with pytest.raises(ImageError) as caught:
            opened_photo(tmp_path / name, settings)
        assert str(caught.value).startswith(reason) and str(tmp_path) not in str(caught.value)
    with pytest.raises(ImageError, match="Give a photograph first"):
        opened_photo(None, settings)


def test_limits_hold_whatever_a_slider_says(
    tiny: Networks, photos: list[Path], work: Listener, tmp_path: Path
) -> None:
    recipe = replace(Recipe.of_preset(TINY, "paper", "paper"), k=5)
    with pytest.raises(ConfigError, match="between 1 and 4, not 5"):
        draw_views(tiny, recipe, str(photos[0]), tmp_path, work)
    many = Asked({"a": [str(photos[0])] * 3, "b": [str(photos[1])] * 3}, [str(photos[2])])
    with pytest.raises(ConfigError, match="7 images are too many for one task here; the page takes up to 6"):
        answer(tiny, many, work)


def test_samples_are_there_for_those_who_have_no_photograph(tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    assert [file.stem for file in sample_files(tmp_path / "s")] == ["astronaut", "chelsea", "coffee", "rocket"]
    whole = [file.read_bytes() for file in sample_files(tmp_path / "s")]
    task = sample_task(tmp_path / "s")
    assert [file.read_bytes() for file in sample_files(tmp_path / "s")] == whole
    assert list(task) == ["cat", "cup", "rocket"]
    for files in task.values():
        with Image.open(files[0]) as support, Image.open(files[1]) as query:
            assert support.size[0] == support.size[1] and support.tobytes() != query.tobytes()


def test_names_cannot_become_part_of_the_page() -> None:
    bad = "<img src=x onerror=alert(1)>"
    whole = (
        html.message(bad) + html.bar(0.5, bad) + html.figure(make_image(0), bad) + html.table([bad], [(bad, [bad])])
    )
    assert bad not in whole + html.shares([bad], [1.0], bad) + html.card(bad, "", bad)


# -- two visitors at once ---------------------------------------------------------------------------------------------


def test_two_at_once_get_what_they_get_alone(tiny: Networks, photos: list[Path], tmp_path: Path) -> None:
    recipes = [replace(Recipe.of_preset(TINY, "paper", "paper"), k=4, seed=n, guidance=1.0 + n) for n in range(4)]

    def draw(n: int) -> list[bytes]:
        found = draw_views(tiny, recipes[n], str(photos[n]), tmp_path, Listener())
        return [found.original.tobytes(), *(view.image.tobytes() for view in found.views)]

    alone = [draw(n) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(draw, range(4))) == alone
    assert len({one[1] for one in alone}) == 4


def test_cancelled_drawing_leaves_the_turn_to_others(tiny: Networks, photos: list[Path], tmp_path: Path) -> None:
    recipe = replace(Recipe.of_preset(TINY, "paper", "paper"), k=4)
    steps: list[float] = []

    def cancel(loop: Progress) -> None:
        steps.append(loop.begun)
        if len(steps) == 5:
            raise Cancelled

    before = sorted(tmp_path.iterdir())
    with pytest.raises(Cancelled), watched(cancel):
        draw_views(tiny, recipe, str(photos[0]), tmp_path, Listener())
    assert 0 < steps[-1] < 4 and sorted(tmp_path.iterdir()) == before  # in the middle, and nothing is left
    assert len(draw_views(tiny, recipe, str(photos[0]), tmp_path, Listener()).views) == 4


def test_other_generators_are_loaded_once_and_draw_for_who_asks(
    tiny: Networks, photos: list[Path], tmp_path: Path
) -> None:
    assert tiny.models[:2] == [TINY, "pocket"] and "shape" not in tiny.models
    found = draw_views(
        tiny,
        Recipe.of_preset("pocket", "pocket-faithful", "pocket-faithful", k=1),
        str(photos[0]),
        tmp_path,
        Listener(),
    )
    again = tiny.augmenter("pocket")
    assert again is tiny.augmenter("pocket") and again.generator is not tiny.augmenter(TINY).generator
    whole = again.with_config(preset("pocket-faithful"))
    assert found.views[0].image.tobytes() == whole(found.original, k=1, seed=0)[0].tobytes()


# -- explore ----------------------------------------------------------------------------------------------------------


def test_the_grid_is_the_studys_and_the_spots_are_measured(tiny: Networks, photos: list[Path], work: Listener) -> None:
    found = explore(tiny, TINY, str(photos[0]), 0, k=2, seed=3, work=work)
    figure = figures()[0]
    assert [label for label, _ in found.rows] == ["no condition", "with condition"]
    assert all(len(views) == len(figure.noise_levels) == 6 for _, views in found.rows)
    assert len(work.shown) == 1 + 12  # cell by cell
    config = preset("paper", noise_level=0.5)
    views = [view.image for view in tiny.draw(TINY, config, [Row(found.original, k, 3) for k in (1, 2)], work.waiting)]
    assert found.rows[1][1][2].tobytes() == views[0].tobytes()
    seen = tiny.look([found.original, *views], work.waiting)
    spots = [spot for spot in found.spots if spot.level == 0.5]
    assert np.allclose([spot.faithfulness for spot in spots], cosines(seen[:1], seen[None, 1:])[0])
    assert np.allclose([spot.diversity for spot in spots], view_diversities(seen[None, 1:])[0])
    assert shown_figure(found).count("<img") == 14 and shown_figure(work.shown[0]).count("empty") == 12
    assert shown_spots(found, "protonet-convnet").count("<title>noise") == 12
    assert explore(tiny, TINY, str(photos[0]), 1, k=1, seed=0, work=work).spots == ()


# -- few-shot ---------------------------------------------------------------------------------------------------------


def test_answers_are_those_of_the_head_on_averaged_features(
    tiny: Networks, photos: list[Path], work: Listener
) -> None:
    files = [str(photo) for photo in photos]
    asked = Asked({"a": files[:2], "b": [files[2]]}, [files[3]], k=2, weight=0.6, seed=1)
    found = answer(tiny, asked, work)
    (query,) = found.queries

    def features(file: str) -> torch.Tensor:
        image = opened_photo(file, tiny.settings)
        views = [
            view.image for view in tiny.draw(TINY, preset("paper"), [Row(image, k, 1) for k in (1, 2)], work.waiting)
        ]
        return tiny.look([image, *views], work.waiting)

    weights = torch.tensor([0.6, 0.2, 0.2])
    rows = {file: features(file) for file in files}
    head = trained_head("protonet-convnet")
    assert head is not None
    for used, told in ((torch.tensor([1.0, 0, 0]), query.plain), (weights, query.with_views)):
        one = {file: used @ row for file, row in rows.items()}
        support = torch.stack([(one[files[0]] + one[files[1]]) / 2, one[files[2]]])
        wanted = head(support[None, :, None], one[files[3]][None, None])[0, 0].softmax(-1)
        assert np.allclose(list(told["probabilities"].values()), wanted.detach(), atol=1e-5)
        assert told["label"] == "ab"[int(wanted.argmax())]
    centres = torch.stack([(weights @ rows[files[0]] + weights @ rows[files[1]]) / 2, weights @ rows[files[2]]])
    cosine = torch.nn.functional.cosine_similarity(rows[files[3]][:, None], centres[None], dim=-1)
    assert torch.allclose(query.distances, 1 - cosine, atol=1e-5)
    assert len(found.spots) == 2 + 3 * 3 + 3  # prototypes, supports and a query with their views
    page = shown_answers(found) + shown_map(found)
    assert "Without views: " in page and "view 2" in page and "prototype of a" in page
    assert len(work.shown) == 1 and not work.shown[0].spots  # the answer was there before the map


def test_what_is_missing_of_a_task_is_said(tiny: Networks, photos: list[Path], work: Listener) -> None:
    photo = str(photos[0])
    assert named(["cat ", "", None], [[photo], [photo], None]) == {"cat": [photo], "class 2": [photo]}
    with pytest.raises(ConfigError, match="same name"):
        named(["cat", "cat"], [[photo], [photo]])
    for asked, reason in (
        (Asked({"a": [photo]}, [photo]), "two classes or more"),
        (Asked({"a": [photo], "b": []}, [photo]), "none for b"),
        (Asked({"a": [photo], "b": [photo]}, []), "at least one query"),
    ):
        with pytest.raises(ConfigError, match=reason):
            answer(tiny, asked, work)


# -- tune -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five classes of coarse colours under noise."""
    rng = np.random.default_rng(0)
    for label in range(5):
        pattern = np.kron(rng.normal(0, 60, (4, 4, 3)), np.ones((8, 8, 1)))
        for number in range(4):
            pixels = (128 + pattern + rng.normal(0, 60, (32, 32, 3))).clip(0, 255).astype(np.uint8)
            (tmp_path / "my photos" / f"c{label}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / "my photos" / f"c{label}" / f"{number}.png")
    return tmp_path / "my photos"


def test_tuning_is_the_commands_and_grows_on_the_page(
    tiny: Networks, folder: Path, work: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wish = Wish(str(folder), "protonet-convnet", "crop-flip,shape", "1", k=2, minutes=5)
    found = tuned(tiny, wish, tmp_path, work)
    assert found.result is not None and [file.name for file in found.files] == ["tuned.json", "tuned.html"]
    grown = [one for one in work.shown if isinstance(one, Seen)]
    assert len(grown) > 4 and len(grown[0].trials) == 1 and len(grown[-1].trials) == 2
    assert shown_trials(grown[-1]).count("<title>") == 1 + 2 and "crop-flip" in shown_trials(grown[-1])
    ran = CliRunner().invoke(app, [*shlex.split(wish.command)[1:], "--device", "cpu"])
    assert ran.exit_code == 0, ran.output
    sentence = found.result.details["answer"][0]
    bare = sentence.partition(" for ")[0]  # without what it took
    assert bare in " ".join(ran.stdout.split()) and "1-shot: " in shown_answer(found)
    (tmp_path / "tuned.json").write_bytes(found.files[0].read_bytes())
    given = {"images": torch.rand(2, 3, 32, 32)}
    exec(wish.snippet(found.task), given)
    assert isinstance(given["model"], TestTimeEnsemble) and len(given["features"]) == 2
    for changed, reason in (
        ({"folder": " "}, "Give a folder"),
        ({"shots": "one"}, "1,5"),
        ({"minutes": 0}, "minutes"),
    ):
        with pytest.raises(ConfigError, match=reason):
            tuned(tiny, replace(wish, **changed), tmp_path, work)


# -- results ----------------------------------------------------------------------------------------------------------


def test_the_report_is_read_or_drawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no results of studies"):
        report(tmp_path / "nowhere")
    example.pope().save(tmp_path)
    drawn = report(tmp_path)
    assert "Yes/no questions" in drawn and report(tmp_path) is drawn  # not drawn twice
    (tmp_path / "report.html").write_text("<p>as it was written</p>")
    os.utime(tmp_path / "report.html", (2**31, 2**31))
    assert report(tmp_path) == "<p>as it was written</p>"
    assert "&lt;p&gt;" in framed(report(tmp_path)) and 'sandbox=""' in framed("")


# -- the built-in backbone --------------------------------------------------------------------------------------------


def test_the_built_in_backbone_is_the_repositorys() -> None:
    root = Path(__file__).parents[2]
    here = root / "artifacts" / "fewshot" / "mini-protonet-convnet"
    there = root / "src" / "onesdaug" / "weights" / "protonet-convnet"
    assert {f.name: f.read_bytes() for f in here.iterdir()} == {f.name: f.read_bytes() for f in there.iterdir()}
    assert load_encoder("protonet-convnet").fingerprint == load_encoder(here).fingerprint
    head: Any = trained_head("protonet-convnet")
    assert (head.metric, head.temperature) == ("cosine", 0.0625) and trained_head("convnet") is None


def test_without_gradio_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onesdaug.ui.app.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"the page needs Gradio: pip install '.\[ui\]'"):
        start(UiSettings(), tmp_path)


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < _free_port(port) < port + 100
