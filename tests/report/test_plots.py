"""The plots: to scale, inside their frames, described, and without any colour of their own."""

from __future__ import annotations

import re
import sys
from functools import cache
from xml.etree import ElementTree

import pytest

from onesdaug.errors import ConfigError
from onesdaug.report.figures import Chart, drawn
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import points
from onesdaug.studies.kinds.efficiency import time_plot
from onesdaug.studies.kinds.fewshot import plots as plots_views
from onesdaug.studies.kinds.fewshot.panels import panels, series_name
from onesdaug.studies.kinds.fewshot.plots import noise_curve, parts_plot
from onesdaug.studies.kinds.theory.plots import class_gains, norm_histogram, plane, simulation_plot
from onesdaug.studies.kinds.tune import cost_plot
from tests.report import example
from tests.report.structure import titles, top_left

NAMES = ("gain over K", "grid", "parts", "noise", "plane", "norms", "classes", "simulation", "time")


@cache
def every_plot() -> dict[str, str]:
    main, grid, ablation, theory = (*map(example.fewshot, ("main", "grid", "ablation")), example.theory())
    found = panels(main)
    drawn_plots = (
        plots_views.gain_over_k(found[0], plots_views.gain_scale(found)),
        plots_views.heat_map(panels(grid)[0], ("paper-point", "pocket")),
        parts_plot(panels(ablation)[0]),
        noise_curve(panels(ablation)[0], ablation.made.generators),
        plane(theory.theory),
        norm_histogram(theory.theory[0]),
        class_gains(theory.theory[0]),
        simulation_plot(theory.simulations),
        time_plot(example.efficiency().timings),
    )
    return dict(zip(NAMES, drawn_plots, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_plot_is_a_described_picture_that_takes_its_colours_from_the_page(name: str) -> None:
    shown = every_plot()[name]
    root = ElementTree.fromstring(shown)  # well-formed on its own
    assert root.get("role") == "img" and root.get("aria-label") and root[0].tag == "title"
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    assert width == 360 and height > 100 and len(root.findall(".//title")) > 2
    assert {element.tag for element in root.iter()} == {"svg", "title", "path", "text"}  # nothing run, nothing fetched
    assert not re.search(r"#[0-9a-f]{3}|url|href|\bid=|class=(?!\"plot\")", shown)
    colours = re.findall(r"(?:fill|stroke|color): ([^;\"]+)", shown)
    assert colours and all(re.fullmatch(r"none|var\(--\w+\)", colour) for colour in colours)
    for element in root.iter():
        if element.tag == "text":
            assert 0 <= float(element.get("x") or 0) <= width and 0 <= float(element.get("y") or 0) <= height
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", element.get("d") or ""):
            assert -6 <= float(x) <= width + 6 and -6 <= float(y) <= height + 6


def test_the_gain_is_drawn_to_scale() -> None:
    panel = panels(example.fewshot("main"))[0]
    shown = plots_views.gain_over_k(panel, plots_views.gain_scale([panel]))
    told = titles(shown)
    for cells in panel.series.values():
        for cell in cells:
            assert cell.gain is not None
            assert f"{series_name(cells)}, K = {cell.query}: {points(cell.gain)}" in told
    mine = panel.series["generated", "pocket"]
    gains = {c.query: c.gain for c in mine if c.gain is not None}
    dots = {k: top_left(shown, f"pocket at 0.85, K = {k}: {points(gain)}")[1] for k, gain in gains.items()}
    slopes = [(dots[k] - dots[1]) / (gains[k].difference - gains[1].difference) for k in (2, 3)]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.1) and slopes[0] < 0
    assert "The paper: K = 1 +2.89, K = 2 +4.60, K = 3 +4.93" in told


def test_the_parts_are_drawn_to_scale_and_say_their_numbers() -> None:
    panel = panels(example.fewshot("ablation"))[0]
    shown = parts_plot(panel)
    words = [t.text for t in ElementTree.fromstring(shown).iter("text")]
    alone = [cell for cell in panel.cells if cell.kind == "traditional" and cell.gain is not None]
    assert len(alone) == 3 and all(points(cell.gain) in words and panel.method(cell) in words for cell in alone)
    dots = [top_left(shown, f"{panel.method(cell)}: {points(cell.gain)}")[0] for cell in alone]
    gains = [cell.gain.difference for cell in alone]
    slopes = [(dots[n] - dots[0]) / (gains[n] - gains[0]) for n in (1, 2)]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.05) and slopes[0] > 0 and "0" in words


def test_a_further_row_of_a_generator_has_its_colour_but_is_hollow() -> None:
    panel = panels(example.fewshot("main"))[0]
    shown = ElementTree.fromstring(plots_views.gain_over_k(panel, plots_views.gain_scale([panel])))
    styles = {title.text: path.get("style") or "" for path in shown.iter("path") for title in path}
    found = []
    for cells in panel.series.values():
        first = f"{series_name(cells)}, K = {cells[0].query}: {points(cells[0].gain)}"
        line, dot = styles[series_name(cells)], styles[first]
        colour = re.findall(r"stroke: var\(--(\w+)\)", line)[0]
        hollow = "fill: var(--card)" in dot
        assert hollow == ("dasharray" in line) and f"var(--{colour})" in dot
        found.append((colour, hollow))
    kinds = [("other", False), ("other", True), ("accent", False), ("blue", False), ("accent", True), ("blue", True)]
    assert found == kinds + kinds[-2:]  # tuned


def test_sources_of_one_colour_are_told_apart() -> None:
    """All edits share a colour, and so do generators that nobody knows."""
    sources = ("crop-flip", "traditional", "shape", "mine", "yours", "theirs", "pocket")
    finalists = [
        {"seconds_per_image": 1 + n, "label": name, "source": name, "uses": [{"gain": 0.01 * n}]}
        for n, name in enumerate(sources)
    ]
    chart = cost_plot.__wrapped__({"name": "1-shot", "finalists": finalists})
    looks = [(key["color"], key["marker"], key["markerfacecolor"]) for key in chart.keys.values()]
    assert len(set(looks)) == len(sources) and list(chart.keys) == list(sources)


def test_the_grid_shows_accuracy_difference_and_the_papers_value() -> None:
    panel = panels(example.fewshot("grid"))[0]
    shown = plots_views.heat_map(panel, ("paper-point", "pocket"))
    words = [t.text for t in ElementTree.fromstring(shown).iter("text")]
    for cell in (panel.baseline, *panel.series["paper-point", "pocket"]):
        assert cell is not None and f"{100 * cell.accuracy.mean:.2f}" in words
        assert cell.paper is not None and f"({cell.paper.value:.2f})" in words
    squares = [path for path in ElementTree.fromstring(shown).iter("path") if path.find("title") is not None]
    strengths = [float((re.findall(r"fill-opacity: ([\d.]+)", s.get("style") or "") or [0])[0]) for s in squares]
    assert len(strengths) == 16 and strengths.count(0) == 1 and max(strengths) == 0.5
    assert plots_views.heat_map(panel, ("paper-point", "unknown")) == ""


def test_the_noise_curve_has_every_level_once() -> None:
    result = example.fewshot("ablation")
    told = set(titles(noise_curve(panels(result)[0], result.made.generators)))
    assert sum(t.startswith("pocket, ") for t in told) == 4  # 0.2, 0.7, 1.0 and its own 0.85
    assert (
        sum(t.startswith("pocket-imagenet, ") for t in told) == 3
    )  # its own is 1.0, which the row of that name shows
    assert "The paper, 0.2: 63.45 %, 0.7: 67.08 %, 1: 67.01 %" in told
    assert any(t.startswith("no views: ") for t in told) and any("crop + flip: " in t for t in told)
    assert noise_curve(panels(example.fewshot("main"))[0], {}) == ""


def test_of_many_classes_the_best_and_the_worst_are_drawn() -> None:
    few, many = (class_gains(example.theory(count).theory[0]) for count in (20, 50))
    assert len(titles(few)) == 21 and len(titles(many)) == 25 and "… 26 more …" in many  # the plot's own, and a bar's
    ranked = sorted(example.theory(50).theory[0].classes, key=lambda gain: -gain.mean)
    for gain in (ranked[0], ranked[-1]):
        assert f"{gain.name}: {points(gain)}" in titles(many)


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
    for shown in (plane([hostile]), norm_histogram(hostile), class_gains(hostile)):
        assert "<script" not in shown and "&lt;script&gt;&quot;x&quot;" in shown
        ElementTree.fromstring(shown)


@pytest.mark.parametrize("name", ["$a_1$", "_hidden", "x: #1c1c1f 0.123456", "猫", "x" * 300])
def test_any_name_can_be_drawn(name: str) -> None:
    """Dollar signs are no formulas, an underscore hides nothing, a number or a colour stays as it is."""
    shown = ElementTree.fromstring(plane([example.theory().theory[0].model_copy(update={"classifier": name})]))
    assert any(name in (text.text or "") for text in shown.iter("text"))
    assert any(name in (title.text or "") for title in shown.iter("title"))


def test_what_xml_forbids_is_not_drawn() -> None:
    theory = example.theory().theory[0].model_copy(update={"classifier": "a\udcffb\x00\x1b"})
    ElementTree.fromstring(plane([theory]))
    assert "a?b??" in plane([theory])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0], ["0", "+0.2", "+0.4", "+0.6", "+0.8", "+1"]),
        ([-3.2, 4.1], ["-4", "-2", "0", "+2", "+4", "+6"]),
        ([-16.5, 19.0], ["-20", "-10", "0", "+10", "+20"]),
    ],
)
def test_axes_begin_and_end_on_ticks_that_say_what_they_are(values: list[float], expected: list[str]) -> None:
    @drawn
    def draw() -> Chart:
        chart = Chart("a", 100, "across", signed="x", sides=(30, 30))
        chart.axes.set_yticks([])
        chart.line("key", {}, values, [0, 1])
        return chart

    texts = {t.text: float(t.get("x") or 0) for t in ElementTree.fromstring(draw()).iter("text")}
    assert [word for word in texts if word not in ("across", "key")] == expected
    assert texts[expected[0]] == 30 and texts[expected[-1]] == 330


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((0.3, 1.4), ["200 ms", "500 ms", "1 s", "2 s"]),
        ((0.004, 1.4), ["10 ms", "100 ms", "1 s"]),
        ((0.0, 0.0), ["0.0001 ms", "0.0002 ms"]),
    ],
)
def test_seconds_have_ticks_from_below_the_least_to_above_the_greatest(
    seconds: tuple[float, float], expected: list[str]
) -> None:
    first = example.efficiency().timings[0]
    timings = [
        first.model_copy(update={"eager": example._spread(value), "graphs": None, "paper": None, "noise_level": level})
        for level, value in zip((0.5, 1.0), seconds, strict=True)
    ]
    words = [t.text or "" for t in ElementTree.fromstring(time_plot(timings)).iter("text")]
    assert [word for word in words if word.endswith((" s", " ms"))] == expected


def test_without_matplotlib_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install .\.\[report\]. in a clone"):
        simulation_plot(example.theory().simulations)


def test_no_line_crosses_the_words_in_the_plane() -> None:
    """Where zero lies inside the frame, its lines end at the words: those stand on a ground of the page's colour."""
    shown = plane(example.theory().theory)
    for words in ("risk falls", "risk rises"):
        before = shown[: shown.index(words)]
        ground = before[before.rindex("<path") :]
        assert "fill: var(--card)" in ground and before.rindex("<path") > before.index("stroke-dasharray")
