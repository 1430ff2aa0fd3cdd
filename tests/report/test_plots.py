"""The plots: to scale, inside their frames, described, and without any colour of their own."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from onesdaug.report import plots_views
from onesdaug.report.axes import Scale, fit_scale, fit_seconds
from onesdaug.report.panels import panels, series_name
from onesdaug.report.plots_ablation import noise_curve, parts_plot
from onesdaug.report.plots_theory import class_gains, norm_histogram, plane, simulation_plot
from onesdaug.report.plots_time import time_plot
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import points
from tests.report import example


def every_plot() -> dict[str, str]:
    main, grid, ablation, theory = (*map(example.fewshot, ("main", "grid", "ablation")), example.theory())
    found = panels(main)
    return {
        "gain over K": plots_views.gain_over_k(found[0], plots_views.gain_scale(found)),
        "grid": plots_views.heat_map(panels(grid)[0], ("paper-point", "pocket")),
        "parts": parts_plot(panels(ablation)[0]),
        "noise": noise_curve(panels(ablation)[0], ablation.made.generators),
        "plane": plane(theory.theory),
        "norms": norm_histogram(theory.theory[0]),
        "classes": class_gains(theory.theory[0]),
        "simulation": simulation_plot(theory.simulations),
        "time": time_plot(example.efficiency().timings),
    }


@pytest.mark.parametrize("name", list(every_plot()))
def test_every_plot_is_a_described_picture_that_takes_its_colours_from_the_page(name: str) -> None:
    drawn = every_plot()[name]
    root = ElementTree.fromstring(drawn)  # well-formed on its own
    assert root.get("role") == "img" and root.get("aria-label") and root[0].tag == "title"
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    assert width == 360 and height > 100 and len(root.findall(".//title")) > 2
    assert not re.search(r'(fill|stroke|style|color)="|#[0-9a-f]{3}', drawn)
    for element in root.iter():
        for axis, end in (("x", width), ("x1", width), ("x2", width), ("cx", width), ("y", height), ("cy", height)):
            assert -1 <= float(element.get(axis) or 0) <= end + 1
        if d := element.get("d"):
            start = [float(v) for v in re.findall(r"[ML]?(-?[\d.]+) (-?[\d.]+)", d)[0]]
            assert -6 <= start[0] <= width + 6 and -6 <= start[1] <= height + 6


def test_the_gain_is_drawn_to_scale() -> None:
    panel = panels(example.fewshot("main"))[0]
    scale = plots_views.gain_scale([panel])
    drawn = ElementTree.fromstring(plots_views.gain_over_k(panel, scale))
    titles = [t.text or "" for t in drawn.iter("title")]
    circles = {g[0].text: float(g[2].get("cy") or 0) for g in drawn.iter("g") if len(g) == 3 and g[2].tag == "circle"}
    for cells in panel.series.values():
        for cell in cells:
            assert cell.gain is not None
            assert f"{series_name(cells)}, K = {cell.query}: {points(cell.gain)}" in titles
    mine = panel.series["generated", "pocket"]
    heights = {c.query: c.gain.difference for c in mine if c.gain is not None}
    shown = {c.query: circles[f"pocket at 0.85, K = {c.query}: {points(c.gain)}"] for c in mine if c.gain is not None}
    slopes = [(shown[k] - shown[1]) / (heights[k] - heights[1]) for k in (2, 3)]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.1) and slopes[0] < 0
    assert "The paper: K = 1 +2.89, K = 2 +4.60, K = 3 +4.93" in titles


def test_a_further_row_of_a_generator_has_its_colour_but_is_hollow() -> None:
    panel = panels(example.fewshot("main"))[0]
    drawn = ElementTree.fromstring(plots_views.gain_over_k(panel, plots_views.gain_scale([panel])))
    curves = [g.get("class") for g in drawn.iter("g") if g.get("class") and g.find("g") is not None]
    assert curves == ["traditional", "traditional second", "g0", "g1", "g0 second", "g1 second"]


def test_the_grid_shows_accuracy_difference_and_the_papers_value() -> None:
    panel = panels(example.fewshot("grid"))[0]
    drawn = plots_views.heat_map(panel, ("paper-point", "pocket"))
    words = [t.text for t in ElementTree.fromstring(drawn).iter("text")]
    for cell in (panel.baseline, *panel.series["paper-point", "pocket"]):
        assert cell is not None and f"{100 * cell.accuracy.mean:.2f}" in words
        assert cell.paper is not None and f"({cell.paper.value:.2f})" in words
    strengths = [float(v) for v in re.findall(r'fill-opacity="([\d.]+)"', drawn)]
    assert len(strengths) == 16 and strengths[0] == 0 and max(strengths) == 0.5
    assert plots_views.heat_map(panel, ("paper-point", "unknown")) == ""


def test_the_noise_curve_has_every_level_once() -> None:
    result = example.fewshot("ablation")
    drawn = noise_curve(panels(result)[0], result.made.generators)
    assert drawn.count("<title>pocket, ") == 4  # 0.2, 0.7, 1.0 and its own 0.85
    assert drawn.count("<title>pocket-imagenet, ") == 3  # its own is 1.0, which the row of that name shows
    assert "The paper, 0.2: 63.45 %, 0.7: 67.08 %, 1: 67.01 %" in drawn
    assert "no views: " in drawn and "crop + flip: " in drawn
    assert noise_curve(panels(example.fewshot("main"))[0], {}) == ""


def test_of_many_classes_the_best_and_the_worst_are_drawn() -> None:
    few, many = (class_gains(example.theory(count).theory[0]) for count in (20, 50))
    assert few.count('class="bar"') == 20 and many.count('class="bar"') == 24 and "… 26 more …" in many
    ranked = sorted(example.theory(50).theory[0].classes, key=lambda gain: -gain.mean)
    assert f"{ranked[0].name}: {points(ranked[0])}" in many and f"{ranked[-1].name}: {points(ranked[-1])}" in many


def test_nothing_to_draw_draws_nothing() -> None:
    bare = StudyResult(**{**example.fewshot("main").model_dump(), "cells": ()})
    assert panels(bare) == []
    assert plane(()) == simulation_plot(()) == time_plot(()) == ""
    base = example.fewshot("main").cells[:1]
    panel = panels(StudyResult(**{**example.fewshot("main").model_dump(), "cells": base}))[0]
    assert plots_views.gain_over_k(panel, plots_views.gain_scale([panel])) == "" == parts_plot(panel)


def test_names_in_plots_are_escaped() -> None:
    theory = example.theory().theory[0]
    hostile = theory.model_copy(update={"classifier": '<script>"x"', "generator": "a&b"})
    for drawn in (plane([hostile]), norm_histogram(hostile), class_gains(hostile)):
        assert "<script" not in drawn and "&lt;script&gt;&quot;x&quot;" in drawn
        ElementTree.fromstring(drawn)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0], Scale(0.0, 1.0, 0.2)),
        ([-3.2, 4.1], Scale(-4.0, 6.0, 2.0)),
        ([5.0, 5.0], Scale(4.0, 6.0, 0.5)),
        ([], Scale(-1.0, 1.0, 0.5)),
    ],
)
def test_scales_begin_and_end_on_ticks(values: list[float], expected: Scale) -> None:
    assert fit_scale(values) == expected
    assert all(0 <= expected.share(value) <= 1 for value in values)


def test_ticks_say_what_they_are() -> None:
    assert [name for _, name in Scale(0, 1, 0.25).ticks()] == ["0", "0.25", "0.50", "0.75", "1.00"]
    assert [name for _, name in Scale(-2, 2, 2, signed=True).ticks()] == ["-2", "0", "+2"]
    assert [name for _, name in fit_seconds([0.3, 1.4]).ticks()] == ["200 ms", "500 ms", "1 s", "2 s"]
    assert [name for _, name in fit_seconds([0.004, 1.4]).ticks()] == ["10 ms", "100 ms", "1 s"]
    assert fit_seconds([0.0, 0.0]).share(0.0) == 0
