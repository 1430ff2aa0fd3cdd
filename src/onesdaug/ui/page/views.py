"""The tab Views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from onesdaug.augment.operator import default_preset, faithful_preset
from onesdaug.augment.presets import PURPOSES
from onesdaug.common.registry import SOLVERS
from onesdaug.errors import OnesdaugError
from onesdaug.ui import html
from onesdaug.ui.page import LIGHT, Page, code, controls, follow, generator_input, long_work, photo_input
from onesdaug.ui.recipe import MOST_TWEAK, Recipe, presets_for
from onesdaug.ui.views import DrawnViews, draw_views, shown_views, summary

TAB = "views"


def build(page: Page) -> None:
    with gr.Row(elem_classes="bench"):
        with gr.Column(elem_classes="given"):
            photo = photo_input(page, TAB)
        with gr.Column(elem_classes="settings"):
            sliders = _sliders(page)
        with gr.Column(elem_classes="made"):
            by = controls("Draw the views", TAB)
            shown = gr.HTML(_WELCOME, elem_id="views-shown")
            took = gr.HTML(elem_id="views-took")
            archive = gr.DownloadButton(
                "Download views and manifest", visible=False, size="md", elem_id="views-download"
            )
            first = _recipe(page.settings.model, *_first(page))
            command = code("The same in a terminal", "shell", value=first.command("photo.jpg"), elem_id="command")
            snippet = code("The same in Python", "python", value=first.snippet("photo.jpg"), elem_id="snippet")

    def job(photo: str | None, *rest: Any) -> DrawnViews:
        *values, work = rest
        return draw_views(page.networks, _recipe(*values), photo, page.folder, work)

    def news(found: DrawnViews, _: str | None, *values: Any) -> list[Any]:
        download = gr.update(visible=found.archive is not None, value=found.archive and str(found.archive))
        return [shown_views(found, int(values[-2])), f'<p class="quiet">{summary(found)}</p>', download]

    long_work(page, TAB, by, [photo, *sliders], [shown, took, archive], job, news)

    def told(photo: str | None, *values: Any) -> tuple[Any, Any]:
        name = Path(photo).name if photo else "photo.jpg"
        try:
            recipe = _recipe(*values)
            return recipe.command(name), recipe.snippet(name)
        except (OnesdaugError, TypeError):  # a number is being typed
            return gr.skip(), gr.skip()

    follow([photo, *sliders], told, [command, snippet])


_WELCOME = html.welcome(
    "One photograph in, K views out",
    "Pick a sample or drop a photograph, then draw. Each view is tweaked in shape, noised, and drawn again with the "
    "original as condition: you see every stage.",
)


def _sliders(page: Page) -> list[Any]:
    name, noise, guidance, scale, tweak, solver, k, seed = _first(page)
    model = generator_input(page, TAB)
    base = gr.Dropdown(
        _presets(page.settings.model), value=name, label="Preset", info=PURPOSES.get(name), elem_id="views-preset"
    )
    count = gr.Slider(1, page.settings.max_k, k, step=1, label="K, number of views", elem_id="views-k")
    level = gr.Slider(0, 1, noise, step=0.01, label="Noise level", info="0 keeps the tweaked image, 1 forgets it")
    strength = gr.Slider(0, MOST_TWEAK, tweak, step=0.05, label="Shape tweak", info="1 as in the preset, 0 off")
    pull = gr.Slider(1, 20, guidance, step=0.5, label="Guidance")
    image = gr.Slider(0, 2, scale, step=0.05, label="Image scale")
    with gr.Row():
        way = gr.Dropdown(list(SOLVERS), value=solver, label="Solver", min_width=140)
        start = gr.Number(seed, precision=0, label="Seed", min_width=90, elem_id="views-seed")

    def chosen(model: str, name: str) -> list[Any]:
        c = Recipe.of_preset(model, name, faithful_preset(model))
        told = gr.update(choices=_presets(model), value=name, info=PURPOSES.get(name))
        return [told, c.noise_level, c.guidance, c.image_scale, c.tweak, c.solver]

    changed = [base, level, pull, image, strength, way]
    base.input(chosen, [model, base], changed, **LIGHT)
    model.input(lambda name: chosen(name, faithful_preset(name)), model, changed, **LIGHT)
    return [model, base, level, pull, image, strength, way, count, start]


def _presets(model: str) -> list[str]:
    return presets_for(model, faithful_preset(model), default_preset(model))


def _first(page: Page) -> tuple[Any, ...]:
    name = faithful_preset(page.settings.model)
    found = Recipe.of_preset(page.settings.model, name, name, min(3, page.settings.max_k))
    return (
        name, found.noise_level, found.guidance, found.image_scale, found.tweak, found.solver, found.k, found.seed,
    )  # fmt: skip


def _recipe(
    model: str,
    name: str,
    noise: float,
    guidance: float,
    scale: float,
    tweak: float,
    solver: str,
    k: float,
    seed: float,
) -> Recipe:
    own = faithful_preset(model)
    return Recipe(
        model, name, own, float(noise), float(guidance), float(scale), float(tweak), solver, int(k), int(seed or 0)
    )
