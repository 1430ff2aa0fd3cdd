"""Cost over K and over the number of images, as a picture: two straight lines, if all is well."""

from __future__ import annotations

from typing import Any

from onesdaug.report.figures import Chart, drawn, look, standalone


def growth_plot(growth: dict[str, Any]) -> str:
    """Seconds over how many times the first point's work was done; an SVG file."""
    return standalone(_growth(growth))


@drawn
def _growth(growth: dict[str, Any]) -> Chart:
    across = f"times {growth['over_images'][0]['images']} images with one view each"
    chart = Chart("Cost over the number of views and of images", 190, across, "seconds", sides=(52, 16))
    chart.axes.update_datalim([(0, 0)])
    for name, unit, style in (("views per image (K)", "k", look("g1", "o")), ("images", "images", look("g5", "s"))):
        points = growth[f"over_{unit}"]
        x, y = [point[unit] / points[0][unit] for point in points], [point["seconds"] for point in points]
        chart.line(name, style, x, y)
        chart.dots(style, x, y, [f"{name}, {point[unit]}: {point['seconds']:.3g} s" for point in points])
    return chart
