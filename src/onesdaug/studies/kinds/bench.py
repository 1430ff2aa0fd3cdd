"""What `onesdaug bench` leaves: rates, time per stage, the paper's efficiency table, cost over K and images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onesdaug.report.figures import Chart, drawn, look, standalone
from onesdaug.report.parts import Note, Part
from onesdaug.report.result import StudyResult
from onesdaug.report.table import Table
from onesdaug.studies.kind import StudyKind
from onesdaug.studies.spec import Study

STAGES = ("encode", "tokens", "denoise", "decode", "host")


class Kind(StudyKind[Study]):
    """Only shown: the command runs it, there is no file for it."""

    spec = Study

    def show(self, result: StudyResult) -> Iterator[Part]:
        found = result.details
        machine = found["machine"]
        yield Note(f"{machine['device']}, {machine['dtype']}, compile {found['model']['compile']}")
        yield Note(found["what"])
        if limit := found.get("limit"):
            yield Note(
                f"limit: {limit['flops_per_view'] / 1e9:.4g} GFLOP per view, matrix products at "
                f"{limit['matmul_flops_per_second'] / 1e12:.3g} TFLOP/s: {limit['views_per_second']:.4g} views/s"
            )
        yield from _tables(found)
        if growth := found.get("growth"):
            first, last = (growth["over_images"][place]["peak_memory_mb"] for place in (0, -1))
            yield Note(
                f"cost against proportional: {growth['over_k_linearity']:.3f} over K, "
                f"{growth['over_images_linearity']:.3f} over images; peak memory {first:.0f} → {last:.0f} MB"
            )
        if job := found.get("folder"):
            yield Note(
                f"folder of {job['images']} pictures: {job['views_per_second']:.4g} views/s, "
                f"{100 * job['share_of_in_memory']:.1f} % of the rate in memory"
            )
        for name, reason in found.get("failed", {}).items():
            yield Note(f"{name} failed: {reason}")


def _tables(found: Mapping[str, Any]) -> Iterator[Table]:
    columns = ("what", "batch", "views/s", "s per call", "first call, s", "of the limit", "peak MB")
    rates = [_rate(row) for row in (*found.get("batches", ()), *found.get("peer", ()))]
    if rates:
        yield Table.of_text("Rates", columns, rates)
    if parts := found.get("stages"):
        shares = parts.get("share_of_limit", {})
        stages = [
            (name, f"{parts[name]:.4g}", f"{100 * parts[name] / parts['whole']:.1f} %", _share(shares.get(name)))
            for name in STAGES
        ]
        yield Table.of_text("Stages", ("stage", f"s, batch {parts['batch']}", "of the whole", "of the limit"), stages)
    if timings := found.get("efficiency"):
        times = [
            (
                f"{t['solver']}, noise {t['noise_level']:g}",
                str(t["steps_run"]),
                f"{t['eager']['median']:.4g}",
                f"{t['batch_seconds']:.4g}",
                "" if t["paper"] is None else f"{t['paper']:.2f}",
            )
            for t in timings
        ]
        named = ("solver and noise", "steps run", "s/image", "s/image, many", "paper, s")
        yield Table.of_text("Efficiency", named, times)


def _rate(row: Mapping[str, Any]) -> tuple[str, ...]:
    memory = row.get("peak_memory_mb")
    return (
        row.get("what", "onesdaug"),
        str(row["batch"]),
        f"{row['views_per_second']:.4g}",
        f"{row['latency_seconds']:.4g}",
        f"{row['first_seconds']:.3g}",
        _share(row.get("share_of_limit")),
        "" if memory is None else f"{memory:.0f}",
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def growth_plot(growth: Mapping[str, Any]) -> str:
    """Two straight lines, if all is well: seconds over how many times the first point's work was done; an SVG file."""
    return standalone(_growth(growth))


@drawn
def _growth(growth: Mapping[str, Any]) -> Chart:
    across = f"times {growth['over_images'][0]['images']} images with one view each"
    chart = Chart("Cost over the number of views and of images", 190, across, "seconds", sides=(52, 16))
    chart.axes.update_datalim([(0, 0)])
    for name, unit, style in (("views per image (K)", "k", look("g1", "o")), ("images", "images", look("g5", "s"))):
        points = growth[f"over_{unit}"]
        x, y = [point[unit] / points[0][unit] for point in points], [point["seconds"] for point in points]
        chart.line(name, style, x, y)
        chart.dots(style, x, y, [f"{name}, {point[unit]}: {point['seconds']:.3g} s" for point in points])
    return chart
