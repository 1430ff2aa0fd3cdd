"""The tab Tune."""

from __future__ import annotations

from typing import Any

import gradio as gr

from onesdaug.common.registry import BACKBONES, VIEWS
from onesdaug.ui import html
from onesdaug.ui.page import Page, code, controls, follow, long_work
from onesdaug.ui.tuning import Seen, Wish, shown_answer, shown_trials, tuned

TAB = "tune"


def build(page: Page) -> None:
    with gr.Row(elem_classes="bench"):
        with gr.Column(elem_classes="given"):
            folder = gr.Textbox(
                label="Folder on this machine", placeholder="/home/me/photos",
                info="One folder of images for each class", elem_id="tune-folder",
            )  # fmt: skip
            encoder = gr.Textbox(
                page.settings.encoder, label="Encoder", info=f"A checkpoint, or {BACKBONES.choices()}"
            )
            sources = gr.Textbox(
                f"{page.settings.model},shape,crop-flip", label="Sources of views",
                info=f"By commas: {VIEWS.choices()}", elem_id="tune-sources",
            )  # fmt: skip
            with gr.Row():
                shots = gr.Textbox("1,5", label="Shots", min_width=90, elem_id="tune-shots")
                minutes = gr.Number(3, label="Minutes", minimum=0.1, min_width=90, elem_id="tune-minutes")
            k = gr.Slider(1, page.settings.max_k, min(3, page.settings.max_k), step=1, label="K, views of each image")
            candidates = gr.Slider(1, 12, 4, step=1, label="Settings to try of each generator")
        with gr.Column(elem_classes="made"):
            by = controls("Start tuning", TAB)
            told = gr.HTML(_WELCOME, elem_id="tune-answer")
            shown = gr.HTML(elem_id="tune-shown")
            files = gr.File(label="tuned.json, and its page", visible=False, interactive=False, elem_id="tune-files")
            first = Wish("", page.settings.encoder)
            command = code("The same in a terminal", "shell", value=first.command, elem_id="tune-command")
            snippet = code("Using what was found", "python", value=first.snippet("1-shot"), elem_id="tune-snippet")
    given = [folder, encoder, sources, shots, k, minutes, candidates]

    def job(*values: Any) -> Seen:
        *given, work = values
        return tuned(page.networks, _wish(*given), page.folder, work)

    def news(found: Seen, *given: Any) -> list[Any]:
        done = gr.update(visible=bool(found.files), value=[str(file) for file in found.files])
        return [shown_answer(found), shown_trials(found), done, _wish(*given).snippet(found.task)]

    long_work(page, TAB, by, given, [told, shown, files, snippet], job, news)
    follow(given, lambda *given: _wish(*given).command, command)


def _wish(*given: Any) -> Wish:
    """Of the fields' values; an empty one has none."""
    folder, encoder, sources, shots = ((word or "").strip() for word in given[:4])
    k, minutes, candidates = given[4:]
    return Wish(folder, encoder, sources, shots, int(k), float(minutes or 0), int(candidates))


_WELCOME = html.welcome(
    "Do views help on your images?",
    "Sources and settings are tried on your own folder, the better ones on more images. The answer is one sentence, "
    "with a gain that is measured where nothing was chosen.",
)
