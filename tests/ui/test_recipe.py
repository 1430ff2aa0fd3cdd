"""What is copied from the page does what the page did."""

from __future__ import annotations

import contextlib
import json
import runpy
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from onesdaug import Augmenter, ViewFolder
from onesdaug.augment.config import preset
from onesdaug.cli import app
from onesdaug.cli import augment as command
from onesdaug.errors import ConfigError
from onesdaug.ui.networks import Networks
from onesdaug.ui.recipe import Recipe, presets_for
from onesdaug.ui.views import draw_views, shown_views, summary
from tests.conftest import make_image
from tests.ui.conftest import Listener

FAITHFUL = Recipe.of_preset("pocket", "pocket-faithful", "pocket-faithful")
RECIPES = [
    FAITHFUL,
    replace(FAITHFUL, k=5, seed=7),
    replace(FAITHFUL, noise_level=0.25, guidance=6.5, image_scale=0.55, solver="ddim"),
    replace(FAITHFUL, image_scale=0.0),
    replace(FAITHFUL, tweak=0.0),
    replace(FAITHFUL, tweak=1.35, noise_level=1.0),
    Recipe.of_preset("pocket", "pocket-accuracy", "pocket-faithful", k=1),
    replace(
        Recipe.of_preset("pocket-imagenet", "pocket-imagenet-accuracy", "pocket-imagenet-fine"),
        tweak=0.5,
        guidance=1.0,
    ),
]


class _Stop(Exception):
    pass


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_command_has_the_pages_settings(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_image(0).save(tmp_path / "my photo.png")
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []

    def here(task: Any) -> None:
        seen.append(task)
        raise _Stop

    monkeypatch.setattr(command._Task, "here", here)
    words = shlex.split(recipe.command("my photo.png"))
    assert words[0] == "onesdaug" and isinstance(CliRunner().invoke(app, words[1:]).exception, _Stop)
    (task,) = seen
    # what `augment` makes of them when it loads the generator
    used = task.config if task.config.conditioned else task.config.model_copy(update={"condition": False})
    assert used == recipe.config
    assert (task.options.name, task.job.k, task.job.seed) == (recipe.model, recipe.k, recipe.seed)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_snippet_has_them_too(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(name: str, *, config: Any = None, preset_name: str | None = None, **given: Any) -> Any:
        asked.append((name, config or preset(given["preset"])))
        return lambda photo, k, seed: asked.append((photo, k, seed)) or []

    monkeypatch.setattr(Augmenter, "from_pretrained", staticmethod(load))
    (tmp_path / "snippet.py").write_text(recipe.snippet("my photo.png"))
    runpy.run_path(str(tmp_path / "snippet.py"))
    assert asked == [(recipe.model, recipe.config), ("my photo.png", recipe.k, recipe.seed)]


def test_what_differs_from_the_preset_is_all_that_is_said() -> None:
    assert FAITHFUL.command("a.jpg") == "onesdaug augment a.jpg -o views --k 3 --seed 0"
    assert presets_for("pocket", "pocket-faithful", "pocket-accuracy")[:2] == ["pocket-faithful", "pocket-accuracy"]
    with pytest.raises(ConfigError, match="from 0 to 2, not 3"):
        _ = replace(FAITHFUL, tweak=3.0).config


def test_page_command_and_snippet_give_the_same_views(
    pocket: Networks, tmp_path: Path, work: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive of the page is the folder of `onesdaug augment`, byte for byte but for times and costs."""
    monkeypatch.chdir(tmp_path)
    make_image(3, (60, 40)).save("photo.png")
    recipe = replace(FAITHFUL, k=2, seed=5, guidance=3.0, tweak=0.5, noise_level=0.4)
    found = draw_views(pocket, recipe, "photo.png", tmp_path, work)
    assert found.archive is not None and found.archive.name == "photo-views.zip"
    with zipfile.ZipFile(found.archive) as archive:
        archive.extractall("unpacked")
    ran = CliRunner().invoke(app, [*shlex.split(recipe.command("photo.png"))[1:], "--device", "cpu"])
    assert ran.exit_code == 0, ran.output
    names = ["manifest.jsonl", "photo_view1.png", "photo_view2.png"]
    assert sorted(file.name for file in Path("unpacked").iterdir()) == names
    for name in names[1:]:
        assert Path("unpacked", name).read_bytes() == Path("views", name).read_bytes()
    ours, theirs = (
        [json.loads(line) for line in Path(d, names[0]).read_text().splitlines()] for d in ("unpacked", "views")
    )
    for row in (*ours, *theirs):
        for name in ("seconds", "peak_memory_mb", "time"):
            assert row.pop(name) is not None
    assert ours == theirs
    with contextlib.chdir(tmp_path / "unpacked"):
        Path("snippet.py").write_text(recipe.snippet("../photo.png"))
        runpy.run_path("snippet.py")
        views = ViewFolder(".").views("../photo.png")
    for number, view in enumerate(views, start=1):
        with Image.open(f"unpacked/view{number}.png") as same:
            assert same.tobytes() == view.tobytes()
    # every stage of every view was shown as soon as it was there
    assert [len(one.views) for one in work.shown] == [0, 2] and "2 views of 60 × 40 pixels" in summary(found)
    assert all(view.tweaked is not None and view.noised is not None for view in found.views)
    page = shown_views(found, recipe.k)
    assert page.count("<img") == 8 and page.count("noised</figcaption>") == 2
    assert shown_views(work.shown[0], 2).count("<img") == 2  # the places of what is to come are there
