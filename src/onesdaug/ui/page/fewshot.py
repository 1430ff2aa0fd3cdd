"""The tab Few-shot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from onesdaug.errors import OnesdaugError
from onesdaug.ui import html
from onesdaug.ui.fewshot import Answered, Asked, answer, named, shown_answers, shown_map
from onesdaug.ui.page import LIGHT, Page, controls, drop, generator_input, long_work
from onesdaug.ui.photos import opened_photo, sample_task

TAB, MOST, FIRST = "fewshot", 5, 3
_WELCOME = html.welcome(
    "A few images of each class are enough",
    "Name two to five classes, give each one image or more, and ask about others. Every image is averaged with its "
    "views before it is compared.",
)


def build(page: Page) -> None:
    most = page.settings.max_k
    with gr.Row(elem_classes="bench"):
        with gr.Column(elem_classes="given"):
            task = sample_task(page.folder / "samples")
            example = gr.Button("Fill in an example", size="sm", visible=bool(task), elem_id="fewshot-example")
            names, files = _classes(page)
            queries = drop("Queries: images to classify", file_count="multiple", elem_id="queries")
            _thumbnails(page, queries)
        with gr.Column(elem_classes="settings"):
            model = generator_input(page, TAB, "With its settings for accuracy, which draw caricatures")
            k = gr.Slider(1, most, min(3, most), step=1, label="K, views of each image", elem_id="fewshot-k")
            weight = gr.Slider(0, 1, 0.5, step=0.05, label="Weight of the original")
        with gr.Column(elem_classes="made"):
            by = controls("Classify", TAB)
            shown = gr.HTML(_WELCOME, elem_id="fewshot-shown")
            embeddings = gr.HTML(elem_id="fewshot-map")
    given = [*names, *files, queries, k, weight, model]

    def job(*values: Any) -> Answered:
        *given, work = values
        classes = named(given[:MOST], given[MOST : 2 * MOST])
        asked, count, share, model = given[2 * MOST :]
        return answer(page.networks, Asked(classes, asked or (), int(count), float(share), model=model), work)

    def news(found: Answered, *_: Any) -> list[str]:
        return [shown_answers(found), shown_map(found)]

    def fill() -> list[Any]:
        left = MOST - len(task)
        supports = [[str(support)] for support, _ in task.values()]
        return [*task, *[""] * left, *supports, *[None] * left, [str(query) for _, query in task.values()]]

    long_work(page, TAB, by, given, [shown, embeddings], job, news)
    example.click(fill, None, [*names, *files, queries], **LIGHT)


def _classes(page: Page) -> tuple[list[Any], list[Any]]:
    """A name and a place for images for each class; further ones come one by one."""
    names, files, columns = [], [], []
    for place in range(MOST):
        with gr.Column(visible=place < FIRST, elem_classes="class") as column:
            field: dict[str, Any] = {"placeholder": f"Name of class {place + 1}", "show_label": False}
            names.append(gr.Textbox(max_length=40, lines=1, container=False, elem_id=f"name-{place + 1}", **field))
            files.append(drop("Support images", file_count="multiple", elem_id=f"support-{place + 1}"))
            _thumbnails(page, files[-1])
        columns.append(column)
    more = gr.Button("Add a class", size="sm", elem_id="fewshot-more")
    count = gr.State(FIRST)

    def one_more(now: int) -> list[Any]:
        shown = [gr.update(visible=place <= now) for place in range(MOST)]
        return [now + 1, *shown, gr.update(visible=now + 1 < MOST)]

    more.click(one_more, count, [count, *columns, more], **LIGHT)
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
