"""All tabs on one page."""

from __future__ import annotations

from typing import Any

import gradio as gr

from onesdaug.ui.page import Page, explore, fewshot, results, tune, views

TABS: dict[str, Any] = {"Views": views, "Explore": explore, "Few-shot": fewshot, "Tune": tune, "Results": results}
_HEADER = (
    '<header class="top"><h1>onesdaug</h1><p>One-shot test-time augmentation: look at views, try them, tune them. '
    "Everything stays on this machine.</p></header>"
)


def build(page: Page) -> Any:
    """The page as Gradio's blocks; what a visitor has under way ends when they leave."""
    with gr.Blocks(title="onesdaug", analytics_enabled=False, delete_cache=(3600, 86400)) as blocks:
        gr.HTML(_HEADER)
        with gr.Tabs():
            for name, tab in TABS.items():
                with gr.Tab(name, id=name) as opened:
                    event = tab.build(page)
                if event is not None:
                    opened.select(**event)

        def leave(request: gr.Request) -> None:
            page.stops.end(request.session_hash)

        blocks.unload(leave)
    return blocks
