"""The tab Few-shot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from onesdaug.errors import OnesdaugError
from onesdaug.ui import html
from onesdaug.ui.fewshot import Answered, Asked, answer, named, shown_answers, shown_map
from onesdaug.ui.page import LIGHT, Page, controls, long_work
from onesdaug.ui.photos import opened_photo, sample_task

TAB, MOST, FIRST = "fewshot", 5, 3


def build(page: Page) -> None:
    with gr.Row():
        with gr.Column(scale=5, min_width=300):
            names, files = _classes(page)
            queries = gr.File(
                label="Queries: images to classify", file_count="multiple", height=110, elem_id="queries"
            )
            _thumbnails(page, queries)
            with gr.Row():
                k = gr.Slider(1, page.settings.max_k, min(3, page.settings.max_k), step=1, label="K, views of each")
                weight = gr.Slider(0, 1, 0.5, step=0.05, label="Weight of the original")
        with gr.Column(scale=7, min_width=300):
            by = controls("Classify", TAB)
            shown = gr.HTML(_WELCOME, elem_id="fewshot-shown")
            embeddings = gr.HTML(elem_id="fewshot-map")
    given = [*names, *files, queries, k, weight]

    def job(*values: Any) -> Answered:
        *given, work = values
        classes = named(given[:MOST], given[MOST : 2 * MOST])
        asked, count, share = given[2 * MOST :]
        return answer(page.networks, Asked(classes, asked or (), int(count), float(share)), work)

    def news(found: Answered, *_: Any) -> list[str]:
        return [shown_answers(found), shown_map(found)]

    long_work(page, TAB, by, given, [shown, embeddings], job, news)
    if task := sample_task(page.folder / "samples"):
        example = gr.Button("Try it with parts of the samples", size="sm", elem_id="fewshot-example")

        def fill() -> list[Any]:
            blank = [None] * (MOST - len(task))
            supports = [[str(support)] for support, _ in task.values()]
            return [*task, *("" for _ in blank), *supports, *blank, [str(query) for _, query in task.values()]]

        example.click(fill, None, [*names, *files, queries], **LIGHT)


def _classes(page: Page) -> tuple[list[Any], list[Any]]:
    """A name and a place for images for each class; further ones come one by one."""
    names, files, groups = [], [], []
    for place in range(MOST):
        with gr.Group(visible=place < FIRST, elem_classes="class") as group:
            names.append(gr.Textbox(label=f"Class {place + 1}", placeholder="its name", max_length=40, lines=1))
            files.append(
                gr.File(label="Support images", file_count="multiple", height=96, elem_id=f"support-{place + 1}")
            )
            _thumbnails(page, files[-1])
        groups.append(group)
    more = gr.Button("Add a class", size="sm")
    count = gr.State(FIRST)

    def one_more(now: int) -> list[Any]:
        return [
            now + 1,
            *(gr.update(visible=place <= now) for place in range(MOST)),
            gr.update(visible=now + 1 < MOST),
        ]

    more.click(one_more, count, [count, *groups, more], **LIGHT)
    return names, files


def _thumbnails(page: Page, files: Any) -> None:
    shown = gr.HTML()
    files.change(lambda given: thumbnails(page, given), files, shown, **LIGHT)


def thumbnails(page: Page, given: list[str] | None) -> str:
    """Small pictures of the files, or what is wrong with one."""
    pictures, problems = [], []
    for file in given or ():
        try:
            pictures.append(html.figure(opened_photo(file, page.settings), Path(file).name))
        except OnesdaugError as error:
            problems.append(html.message(str(error)))
    return html.strip(pictures, "small") * bool(pictures) + "".join(problems)


_WELCOME = html.welcome(
    "A few images of each class are enough",
    "Name two to five classes, give each one image or more, and ask about others. Every image is averaged with its "
    "views before it is compared.",
)
