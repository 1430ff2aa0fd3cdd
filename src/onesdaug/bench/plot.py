"""Cost over K and over the number of images, as a picture: two straight lines, if all is well."""

from __future__ import annotations

from typing import Any

from onesdaug.report.axes import Frame, Key, dot, fit_scale, legend, path, svg

_STYLE = (
    "<style>.plot{font:12px sans-serif;background:#fff}.grid{stroke:#ddd}.zero{stroke:#999}text{fill:#333}"
    ".curve{fill:none;stroke-width:2}.k .curve{stroke:#1b6ca8}.k .dot{fill:#1b6ca8}"
    ".images .curve{stroke:#c2571a}.images .dot{fill:#c2571a}</style>"
)


def growth_plot(growth: dict[str, Any]) -> str:
    """Seconds over how many times the first point's work was done."""
    lines = {"k": growth["over_k"], "images": growth["over_images"]}
    keys = [Key("views per image (K)", "k"), Key("images", "images", shape="square")]
    parts, top = legend(keys, 0)
    spots = {
        name: [(point[name] / points[0][name], point["seconds"]) for point in points] for name, points in lines.items()
    }
    across = fit_scale([0.0, *(x for line in spots.values() for x, _ in line)], 5)
    up = fit_scale([0.0, *(y for line in spots.values() for _, y in line)], 5)
    frame = Frame(across, up, top + 26, 190, 52, 16)
    parts += frame.draw(f"times {lines['images'][0]['images']} images with one view each", "seconds")
    for name, line in spots.items():
        places = [(frame.x(x), frame.y(y)) for x, y in line]
        marks = "".join(dot(*place, name, "square" if name == "images" else "circle") for place in places)
        parts.append(f'<g class="{name}">{path(places)}{marks}</g>')
    whole = svg(frame.bottom + 42, "Cost over the number of views and of images", [_STYLE, *parts])
    return whole.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"
