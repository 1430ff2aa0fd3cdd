"""How the page looks: the reports' colours and the machine's own fonts, so that nothing is fetched."""

from __future__ import annotations

from typing import Any

from gradio import themes

# shades of the reports' accent, from light to dark
_ACCENT = (
    "#eef7f4", "#d6ebe4", "#aed7c9", "#86c3ae", "#5cc4a8", "#2a836d", "#1f6f5c", "#195a4b", "#14473b", "#0f352c",
    "#0a241e",
)  # fmt: skip
_LOOKS = {
    "body_background_fill": "#fbfbfa",
    "body_background_fill_dark": "#131416",
    "button_primary_background_fill": "*primary_600",
    "button_primary_background_fill_hover": "*primary_500",
    "button_primary_background_fill_dark": "*primary_500",
    "button_primary_background_fill_hover_dark": "*primary_600",
    "button_primary_text_color": "#ffffff",
    "button_secondary_background_fill": "*background_fill_primary",
    "button_secondary_background_fill_hover": "*background_fill_secondary",
    "button_secondary_background_fill_dark": "*background_fill_secondary",
    "button_secondary_border_color": "*border_color_primary",
    "button_border_width": "1px",
    "button_large_text_weight": "500",
    "button_medium_text_weight": "500",
    "button_small_text_weight": "400",
    "slider_color": "*primary_600",
    "slider_color_dark": "*primary_400",
    "block_info_text_color": "#62626b",
    "block_info_text_color_dark": "#9d9da6",
}


def theme() -> Any:
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    return themes.Base(primary_hue=themes.Color(*_ACCENT), neutral_hue="zinc", **fonts).set(**_LOOKS)
