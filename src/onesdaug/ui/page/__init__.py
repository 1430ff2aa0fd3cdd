"""The page itself, in Gradio: one file per tab, and what the tabs share. Imported only when the page is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from onesdaug.errors import OnesdaugError
from onesdaug.ui import html
from onesdaug.ui.networks import Networks
from onesdaug.ui.photos import opened_photo, sample_files
from onesdaug.ui.settings import UiSettings
from onesdaug.ui.work import Stops, Tick, Work

Event = dict[str, Any]  # arguments of a listener
PRIVATE: Event = {"show_progress": "hidden", "api_visibility": "private"}  # of every event here
LIGHT: Event = {**PRIVATE, "queue": False}  # of those that take no time


@dataclass(frozen=True)
class Page:
    """What the tabs share. Pictures of visitors are in none of it."""

    settings: UiSettings
    networks: Networks
    folder: Path  # for files to download, as long as the page is served
    stops: Stops = field(default_factory=Stops)


@dataclass(frozen=True)
class Controls:
    """The button that starts long work, the one that ends it, and where it says how far it is."""

    start: Any
    cancel: Any
    status: Any


def controls(name: str, tab: str) -> Controls:
    with gr.Row(elem_classes="controls"):
        start = gr.Button(name, variant="primary", elem_id=f"{tab}-start")
        cancel = gr.Button("Cancel", variant="stop", visible=False, elem_id=f"{tab}-cancel")
    return Controls(start, cancel, gr.HTML(elem_id=f"{tab}-status"))


def long_work(
    page: Page,
    tab: str,
    by: Controls,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    job: Callable[..., Any],
    shown: Callable[..., Sequence[Any]],
) -> Event:
    """Wire a button to `job(*inputs, work)`; `shown(found, *inputs)` gives the outputs, as often as there is news.

    Gives what another event may be wired to in the same way.
    """

    def run(request: gr.Request, *values: Any) -> Iterator[tuple[Any, ...]]:
        stop = page.stops.begin(request.session_hash, tab)
        work: Work[Any] = Work(partial(job, *values), stop)
        for tick in work.ticks():
            news = shown(tick.found, *values) if tick.found is not None else [gr.skip()] * len(outputs)
            yield status(tick), gr.update(interactive=tick.ended), gr.update(visible=not tick.ended), *news

    def end(request: gr.Request) -> None:
        page.stops.end(request.session_hash, tab)

    event: Event = {
        "fn": run,
        "inputs": inputs,
        "outputs": [by.status, by.start, by.cancel, *outputs],
        "concurrency_limit": 16,
        **PRIVATE,
    }
    by.start.click(**event)
    by.cancel.click(end, None, None, **LIGHT)
    return event


def follow(inputs: Sequence[Any], shown: Callable[..., Any], outputs: Any) -> None:
    """Show what the inputs mean, whatever changes them.

    Of two changes within milliseconds, the answer for the first may come last, and would stay: so every answer is
    followed by one more question.
    """
    asked = gr.on([one.change for one in inputs], shown, inputs, outputs, **LIGHT)
    asked.then(shown, inputs, outputs, trigger_mode="always_last", **LIGHT)


def status(tick: Tick[Any]) -> str:
    if tick.problem:
        return html.message(tick.problem, "note" if tick.problem == "Cancelled." else "problem")
    return "" if tick.ended else html.bar(tick.share, tick.words)


def photo_input(page: Page, tab: str) -> Any:
    """Where a photograph is dropped, or a sample picked; below it is shown, or said what is wrong with it."""
    photo = drop("Photograph", elem_id=f"{tab}-photo")
    shown = gr.HTML(elem_id=f"{tab}-preview")
    if samples := sample_files(page.folder / "samples"):
        gr.HTML('<p class="quiet">Or pick a sample:</p>')
        gallery = gr.Gallery(
            [str(file) for file in samples], show_label=False, columns=4, height=84, allow_preview=False,
            object_fit="cover", buttons=[], interactive=False, elem_id=f"{tab}-samples", elem_classes="samples",
        )  # fmt: skip

        def pick(event: gr.SelectData) -> str:
            return str(samples[event.index])

        gallery.select(pick, None, photo, **LIGHT)
    photo.change(lambda path: preview(page, path), photo, shown, **LIGHT)
    return photo


def generator_input(page: Page, tab: str, info: str | None = None) -> Any:
    """Who draws, where there is a choice."""
    names, place = page.networks.models, f"{tab}-generator"
    return gr.Dropdown(names, value=names[0], label="Generator", info=info, visible=len(names) > 1, elem_id=place)


def drop(label: str, **settings: Any) -> Any:
    """A place for files of any kind: what is no image gets a sentence, not a file window that hides it."""
    return gr.File(label=label, height=84, elem_classes="drop", **settings)


def preview(page: Page, path: str | None) -> str:
    if path is None:
        return ""
    try:
        image = opened_photo(path, page.settings)
    except OnesdaugError as error:
        return html.message(str(error))
    return html.figure(image, f"{Path(path).name}, {image.width} × {image.height}", "preview")


def code(label: str, language: str, **settings: Any) -> Any:
    """Something to copy."""
    return gr.Code(
        label=label, language=language, interactive=False, buttons=["copy"], wrap_lines=True, lines=1,
        show_line_numbers=False, **settings,
    )  # fmt: skip
