"""The tab Explore."""

from __future__ import annotations

from typing import Any

import gradio as gr

from onesdaug.ui import html
from onesdaug.ui.explore import Explored, explore, figures, shown_figure, shown_spots
from onesdaug.ui.page import Page, controls, generator_input, long_work, photo_input

TAB = "explore"


def build(page: Page) -> None:
    known = [figure.title for figure in figures()]
    with gr.Row(elem_classes="bench"):
        with gr.Column(elem_classes="given"):
            photo = photo_input(page, TAB)
        with gr.Column(elem_classes="settings"):
            model = generator_input(page, TAB)
            figure = gr.Radio(known, value=known[0], label="Figure", type="index")
            k = gr.Slider(
                1, page.settings.max_k, min(3, page.settings.max_k), step=1, label="Views at each noise level",
                info="Two or more for the plot", elem_id="explore-k",
            )  # fmt: skip
            seed = gr.Number(0, precision=0, label="Seed")
        with gr.Column(elem_classes="made"):
            by = controls("Draw the figure", TAB)
            shown = gr.HTML(_WELCOME, elem_id="explore-shown")
            plot = gr.HTML(elem_id="explore-plot")

    def job(photo: str | None, model: str, number: int, k: float, seed: float, work: Any) -> Explored:
        return explore(page.networks, model, photo, number, int(k), int(seed or 0), work)

    def news(found: Explored, *_: Any) -> list[str]:
        return [shown_figure(found), shown_spots(found, page.settings.encoder)]

    long_work(page, TAB, by, [photo, model, figure, k, seed], [shown, plot], job, news)


_WELCOME = html.welcome(
    "How much noise, and what the condition keeps",
    "One photograph over noise levels, as in the paper's two figures, and how near to the original and how far from "
    "each other the views lie.",
)
