"""docs/speed.md says what the stored runs say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import speed_report as report


def test_the_measured_parts_are_the_stored_runs() -> None:
    text = report.DOCS.read_text()
    assert report.written(text) == text, "run python benchmarks/speed_report.py"


def test_the_stored_plot_is_that_of_the_stored_run() -> None:
    """The same shapes and words in the same places, to a pixel; versions of matplotlib differ in the rest."""
    (stored, places), (drawn, now) = (shapes(svg) for svg in (report.PLOT.read_text(), report.plot()))
    assert stored == drawn and len(stored) > 20, "run python benchmarks/speed_report.py"
    assert places == pytest.approx(now, abs=1)


def shapes(svg: str) -> tuple[list[tuple[str, str | None]], list[float]]:
    """Every element with its words, and every coordinate."""
    found = list(ElementTree.fromstring(svg).iter())
    places = " ".join(element.get(name, "") for element in found for name in ("viewBox", "x", "y", "d"))
    return [(element.tag, element.text) for element in found], [float(n) for n in re.findall(r"-?\d+\.?\d*", places)]


def test_the_stored_run_of_a_cpu_names_what_made_it() -> None:
    record = report.load("speed-cpu")
    assert record["command"].startswith("onesdaug bench ") and not record["commit"].endswith("+")
    assert record["machine"]["device"] == "cpu" and record["machine"]["threads"] == 2


@pytest.mark.parametrize("file", sorted(report.RESULTS.glob("speed-*.json")), ids=lambda file: file.stem)
def test_every_stored_run_is_whole(file) -> None:
    """Named by command, commit and machine; nothing failed in it, and no commit with changes on top."""
    record = report.load(file.stem)
    assert record["command"] and len(record["commit"]) >= 7 and not record["commit"].endswith("+")
    assert record["machine"]["device"] and record["machine"]["torch"]
    assert "failed" not in record
    for line in record.get("batches", []):
        assert line["batch_kept"]


@pytest.mark.parametrize("job", ["main", "cold"])
def test_runs_on_other_machines_carry_their_commit_in_the_name(job: str) -> None:
    runs = report._runs(job)
    assert runs[0][1] == report.load(f"speed-{job}") and len(runs) > 2
    for at, record in runs[1:]:
        assert report.load(f"speed-{job}-{at}") == record
    table = report._machines()
    assert all(f"| {at} |" in table for at, _ in runs)


def test_what_is_shown_follows_from_what_was_measured() -> None:
    record = report.load("speed-main")
    ours, peer, limit, shown = record["batches"][0], record["peer"], record["limit"], record["shown"]
    rate = ours["views_per_second"]
    assert shown["views_per_second"] == pytest.approx(rate, rel=1e-4)
    best = max(line["views_per_second"] for line in peer if "compiled" in line["what"])
    assert shown["times_compiled_diffusers"] == pytest.approx(rate / best, rel=1e-4)
    assert shown["times_paper_fast"] == pytest.approx(rate / peer[0]["views_per_second"], rel=1e-4)
    whole = rate * limit["flops_per_view"]
    assert shown["share_of_limit"] == pytest.approx(whole / limit["matmul_flops_per_second"], rel=1e-4)
    assert shown["share_of_sustained_limit"] == pytest.approx(
        whole / limit["sustained_matmul_flops_per_second"], rel=1e-4
    )


def test_diffusers_was_measured_with_every_switch_that_ours_had() -> None:
    """The run of the table; older ones are marked, and no ratio is taken from them."""
    record = report.load("speed-main")
    ours = record["batches"][0]["switches"]
    assert ours["cudnn.benchmark"] is True and all(line["switches"] == ours for line in record["peer"])
    assert any("decoder and encoder" in line["what"] for line in record["peer"])
    text = report.DOCS.read_text()
    assert "its rates are too low" not in text and "Both sides ran with `cudnn.benchmark` True" in text
    for at, run in report._runs("main")[1:]:
        if any("switches" not in line for line in run["peer"]):
            row = next(line for line in report._machines().splitlines() if line.startswith(f"| {at} |"))
            assert row.count("†") == 2


def test_every_share_says_which_limit_it_refers_to() -> None:
    assert 'A share "of the limit" refers to the best product' in report.DOCS.read_text()


def test_the_operations_are_those_of_the_code() -> None:
    """One choice is counted again; and the GPU's own count, of the same seven steps, was the same."""
    from benchmarks import operations

    stored = report.load("operations")["views"]
    assert [view["what"] for view in stored] == [what for what, _, _ in operations.CHOICES]
    _, settings, loading = operations.CHOICES[-1]
    again = operations.count(settings, loading)
    assert (again["steps_run"], again["network_rows"]) == (stored[-1]["steps_run"], stored[-1]["network_rows"])
    assert again["by_stage"] == pytest.approx(stored[-1]["by_stage"], rel=1e-5)
    assert report.load("speed-main")["limit"]["by_stage"] == pytest.approx(stored[1]["by_stage"], rel=1e-5)


def test_what_has_no_file_is_called_so(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.gpu().count(report.NOT_YET) == 11
    assert "Not measured yet" in report.cheaper()
