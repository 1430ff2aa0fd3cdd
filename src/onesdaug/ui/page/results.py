"""The tab Results."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from onesdaug.ui.page import Event, Page, controls, long_work
from onesdaug.ui.results import framed, report

TAB = "results"


def build(page: Page) -> Event:
    """Shown whenever the tab is opened."""
    gr.HTML(f'<p class="quiet">The report of the studies in <code>{escape(str(page.settings.results))}</code></p>')
    by = controls("Read it again", TAB)
    shown = gr.HTML(elem_id="results-shown")

    def job(work: Any) -> str:
        work.tell(None, "Drawing the report")
        return framed(report(page.settings.results))

    return long_work(page, TAB, by, [], [shown], job, lambda found: [found])
