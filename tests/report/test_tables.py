"""Strings, panels and tables: page and document show the very numbers of the results."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rich.console import Console
from rich.measure import Measurement

from onesdaug.report import strings
from onesdaug.report.claims import by_verdict, came_out, tally
from onesdaug.report.records import Claim, Instance
from onesdaug.report.table import Entry, Line, Table, plain, to_csv, to_latex, to_markdown
from onesdaug.report.terminal import to_rich
from onesdaug.statistics import Paired, Summary, paired
from onesdaug.studies.kinds.efficiency import timing_table
from onesdaug.studies.kinds.fewshot.panels import (
    Panel,
    generator_mark,
    implied_episodes,
    mark,
    noise_level,
    panels,
    told_episodes,
)
from onesdaug.studies.kinds.fewshot.tables import QUOTED, beside_others, glance, grid, in_full
from onesdaug.studies.kinds.pope import answer_table
from onesdaug.studies.kinds.theory.tables import simulation_table, theory_tables
from onesdaug.studies.page import render
from tests.report import example
from tests.report.structure import parse


@pytest.mark.parametrize(
    ("value", "shown"), [(1.304, "+1.30"), (-0.25, "-0.25"), (-0.001, "0.00"), (0.0, "0.00"), (math.nan, "–")]
)
def test_signs(value: float, shown: str) -> None:
    assert strings.signed(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.00123, "1.23 ms"), (0.41, "410 ms"), (1.42, "1.42 s"), (5000.0, "5,000 s"), (math.inf, "–")],
)
def test_seconds(value: float, shown: str) -> None:
    assert strings.seconds(value) == shown


def test_a_gain_over_nothing_is_a_dash() -> None:
    gain = paired([0.1, 0.2, 0.3], [0.0, 0.0, 0.0])
    assert math.isnan(gain.relative_gain)
    assert strings.relative(gain.relative_gain) == "–" and strings.points(gain).startswith("+20.00 ± ")


def test_every_cell_stands_in_its_table() -> None:
    result = example.fewshot("main")
    found = panels(result)
    assert len(found) == 6 and sum(len(panel.cells) for panel in found) == len(result.cells)
    for panel in found:
        table = in_full(panel)
        assert table.columns[1:] == (
            "accuracy, %",
            "to no views, points",
            "to crop + flip, points",
            "relative gain, %",
            "paper, %",
        )
        for cell, line in zip(panel.cells, table.lines, strict=True):
            values = [entry.value for entry in line.entries]
            assert values[0] == f"{100 * cell.accuracy.mean:.2f} ± {100 * cell.accuracy.ci95:.2f}"
            if cell.gain is None:
                assert values[1:4] == ["–"] * 3
            else:
                assert values[1] == f"{strings.signed(100 * cell.gain.difference)} ± {100 * cell.gain.ci95:.2f}"
                assert values[3] == strings.signed(100 * cell.gain.relative_gain)
            assert values[2] == ("–" if cell.over_tta is None else strings.points(cell.over_tta))
            assert values[4].startswith("–" if cell.paper is None else f"{cell.paper.value:.2f} ± ")
    # the paper's own brackets: 60.01 -> 64.94 is +8.22 %
    last = next(line for line in in_full(found[0]).lines if line.name == "1S-DAug-3 · pocket-imagenet, noise 0.7")
    assert last.entries[-1].value == "64.94 ± 0.66 (+8.22 %)"
    names = [line.name for line in in_full(found[0]).lines]
    assert "1S-DAug-3 · pocket, noise 0.85" in names and "traditional edits, K = 2" in names
    assert "condition alone, K = 3 · pocket-imagenet" in names  # and nowhere is that called 1S-DAug
    assert not any("pocket-imagenet" in name and "noise 1" in name for name in names)


def test_columns_without_a_value_are_left_out() -> None:
    panel = panels(example.fewshot("grid"))[0]
    assert "to crop + flip, points" not in in_full(panel).columns
    assert panel.is_grid and panel.counts == (1, 2, 3)


def test_at_a_glance() -> None:
    result = example.fewshot("main")
    table = glance(result)
    assert table is not None and table.columns[1:] == (
        "no views",
        "crop + flip",
        "traditional edits",
        "pocket at 0.85",
        "pocket-imagenet, condition alone",
        "pocket at 0.7",
        "pocket-imagenet at 0.7",
        "tuned · pocket",
        "tuned · pocket-imagenet",
        "paper",
    )
    first = panels(result)[0]
    most = next(c for c in first.cells if (c.generator, c.row, c.query) == ("pocket", "generated", 3))
    assert most.gain is not None and table.lines[0].entries[3] == Entry(strings.points(most.gain), (), "down")
    assert table.lines[0].entries[4].mark == "up"
    assert table.lines[0].entries[-1] == Entry("60.01 → 64.94", ("+4.93, K = 3",))
    assert glance(example.fewshot("ablation")) is None and glance(example.fewshot("grid")) is None


def test_at_a_glance_what_length_1_gives_is_told_from_what_views_give() -> None:
    result = example.fewshot("main")
    cell = next(c for c in result.cells if (c.row, c.generator, c.query) == ("tuned", "pocket", 3))
    about = {name: getattr(cell, name) for name in ("data", "classifier", "shot", "generator")} | {"row": cell.label}
    assert cell.gain is not None

    def told(gain: dict[str, float] | None) -> tuple[tuple[str, ...], bool]:
        table = glance(result.model_copy(update={"details": {"tuned": [about | {"gain": gain}]}}))
        assert table is not None
        (entry,) = {line.entries[7] for line in table.lines if line.entries[7].value == strings.points(cell.gain)}
        return entry.notes, "length 1" in table.note

    assert told({"difference": 0.0022, "ci95": 0.001}) == (("by views +0.22",), True)
    hardly = cell.gain.difference - 0.9 * cell.gain.ci95
    assert told({"difference": hardly, "ci95": 0.001}) == ((), False)
    assert told(None) == ((), False)


def test_at_a_glance_where_settings_differ_from_line_to_line() -> None:
    """Then the heading names the generator and each number its setting."""
    result = example.fewshot("main")
    birds = tuple(
        c.model_copy(
            update={
                "data": "cub",
                "noise_level": c.noise_level and 0.3,
                "label": c.label.replace("condition alone", "1S-DAug"),
            }
        )
        for c in result.cells
    )
    table = glance(result.model_copy(update={"cells": result.cells + birds}))
    assert table is not None and table.columns[4:6] == ("pocket", "pocket-imagenet")
    assert [line.entries[4].notes for line in table.lines] == [("condition alone",)] * 6 + [("noise 0.3",)] * 6


def test_quoted_rows_say_so() -> None:
    table = beside_others(example.fewshot("main"))
    assert table is not None
    names = [line.name for line in table.lines]
    assert names[0] == QUOTED and "not run here" in QUOTED
    assert names[1:10] == [row.method for row in example.fewshot("main").literature]
    assert all(line.mark == "quoted" for line in table.lines[1:10])
    assert names[10] == "ProtoNet-Res12, run here"
    assert table.lines[1].entries[0].value == "65.91 ± 0.82"
    assert beside_others(example.fewshot("grid")) is None


def test_the_grid_as_the_paper_prints_it() -> None:
    panel = panels(example.fewshot("grid"))[0]
    table = grid(panel, ("paper-point", "pocket"))
    assert table.title == "ProtoNet-Res12, miniImageNet, 1-shot, pocket at 0.7"
    assert table.columns[1:] == ("query +0", "query +1", "query +2", "query +3") and len(table.lines) == 4
    corner = table.lines[3].entries[3]
    cell = next(c for c in panel.series["paper-point", "pocket"] if (c.support, c.query) == (3, 3))
    assert corner.value == strings.accuracy(cell.accuracy) and corner.notes[1] == "paper 64.94 ± 0.66"
    assert panel.baseline is not None and table.lines[0].entries[0].value == strings.accuracy(panel.baseline.accuracy)


def test_noise_levels_come_from_rows_and_settings() -> None:
    result = example.fewshot("ablation")
    found = {(c.row, c.generator): noise_level(c, result.made.generators.get(c.generator, "")) for c in result.cells}
    assert found["noise-0.2", "pocket"] == 0.2 and found["noise-1.0", "pocket"] == 1.0
    assert found["full", "pocket"] == 0.85 and found["full", "pocket-imagenet"] == 1.0
    assert found["no-tweak", "pocket"] is None and found["none", ""] is None


def test_a_generator_has_one_colour_everywhere() -> None:
    known = ("pocket", "pocket-imagenet", "sd15", "photo", "photo-128")
    assert [generator_mark(name) for name in known] == ["g0", "g1", "g2", "g3", "g4"]
    assert {generator_mark(f"mine-{i}") for i in range(9)} == {"g5"}
    cells = {c.kind: mark(c) for c in example.fewshot("ablation").cells if c.generator != "pocket"}
    assert cells == {"baseline": "baseline", "generative": "g1", "traditional": "traditional", "oracle": "oracle"}


def claim(*differences: tuple[float, float, str]) -> Claim:
    instances = []
    for mean, half, generator in differences:
        verdict = "agrees" if mean > half else "differs" if mean < -half else "no clear difference"
        instances.append(
            Instance(
                where="cub, FEAT",
                generator=generator,
                difference=Paired(mean, half, 0.5, mean, 9),
                verdict=verdict,  # type: ignore[arg-type]
            )
        )
    kinds = {instance.verdict for instance in instances}
    overall = kinds.pop() if len(kinds) == 1 else "mixed"
    return Claim(says="It helps.", verdict=overall, instances=tuple(instances))


@pytest.mark.parametrize(
    ("differences", "sentence"),
    [
        ([], "Not tested here."),
        ([(0.02, 0.01, "")], "Here: +2.00 ± 1.00 (CUB, FEAT)."),
        ([(0.02, 0.01, "tiny")], "Here: +2.00 ± 1.00 (CUB, FEAT, tiny)."),
        ([(-0.02, 0.01, ""), (-0.03, 0.01, "")], "Here: differs (-3.00 to -2.00)."),
        (
            [(0.02, 0.01, "a"), (0.03, 0.01, "a"), (-0.03, 0.01, "b")],
            "Here: agrees with a (+2.00 to +3.00); differs with b (-3.00 ± 1.00).",
        ),
        (
            [(0.02, 0.01, "a"), (-0.03, 0.01, "a"), (0.0, 0.01, "b")],
            "Here: with a 1 of 2 comparisons differs (-3.00 ± 1.00) and 1 of 2 comparisons agrees (+2.00 ± 1.00); "
            "no clear difference with b (0.00 ± 1.00).",
        ),
    ],
)
def test_a_claim_in_a_sentence(differences: list[tuple[float, float]], sentence: str) -> None:
    assert came_out(claim(*differences) if differences else Claim(says="x", verdict="mixed", instances=())) == sentence


def test_what_differs_comes_first() -> None:
    results = example.results()
    assert list(by_verdict(results)) == ["differs", "mixed", "no clear difference", "agrees"]
    total = sum(len(result.claims) for result in results)
    assert tally(results).startswith(f"{total} statements of the paper were tested: ")
    untested = Claim(says="x", verdict="not tested here", instances=())
    more = results[0].model_copy(update={"claims": (*results[0].claims, untested)})
    assert list(by_verdict([more, *results[1:]]))[-1] == "not tested here"
    assert tally([more, *results[1:]]) == f"{tally(results)} 1 could not be tested here."
    assert tally([]) == "No statement of the paper was tested."


def test_theory_timings_and_answers() -> None:
    theory = example.theory()
    risk, radius, gap, views = theory_tables(theory)
    entry = theory.theory[0]
    assert [e.value for e in risk.lines[0].entries] == [
        strings.points(entry.gain),
        "+3.00 ± 0.25",
        "-8.00 ± 0.50",
        "-5.00 ± 0.35",
    ]
    assert "1e-16" in risk.note and risk.title == "Risk (miniImageNet, 1-shot, K = 3)"
    assert radius.lines[0].entries[0].value == "20.1 → 17.3"
    assert [e.value for e in gap.lines[0].entries] == ["0.81 → 0.62", "1.4 → 1.1", "2.2 → 1.8"]
    assert [line.name.partition(" · ")[2] for line in gap.lines[:2]] == [
        "pocket, noise 0.85",
        "pocket-imagenet, condition alone",
    ]
    assert views.lines[0].entries[0].value == "58.00 (62.00)"
    simulated = simulation_table(theory.simulations)
    assert simulated is not None and simulated.lines[1].entries[1].value == "0.280 ± 0.015"
    timing = timing_table(example.efficiency().timings)
    assert timing is not None and timing.columns[1:5] == ("noise 0.25", "noise 0.5", "noise 0.75", "noise 1")
    assert timing.lines[0].entries[0] == Entry(
        "9.5 ms", ("8.55 ms – 11.4 ms", "graphs 2 ms", "1.8 ms – 2.4 ms", "0.25 ms (64)", "5 steps")
    )
    assert "median of 25 calls" in timing.note and "a property of the host" in timing.note
    cpu = timing_table(example.efficiency(tag="cpu").timings)
    assert cpu is not None and "graphs" not in cpu.note and len(cpu.lines[0].entries[0].notes) == 3
    assert [e.value for e in timing.lines[-2].entries] == ["410 ms", "680 ms", "920 ms", "1.42 s", "–"]
    answers = answer_table(example.pope().answers)
    assert answers is not None and answers.lines[0].entries[0] == Entry("78.80 ± 1.50", ("paper 78.83",))
    row = example.pope().answers[1].model_copy(update={"method": "repeat", "decoding": "sample", "k": 4, "unknown": 0})
    table, wide = answer_table([row]), Console(width=200)
    assert table is not None and Measurement.get(wide, wide.options, to_rich(table)).maximum <= 100
    assert timing_table(()) is None and answer_table(()) is None and simulation_table(()) is None


def test_every_rendering_of_a_table_escapes_and_agrees(tmp_path: Path) -> None:
    lines = (Line("<b>group</b>"), Line("a | b", (Entry("1.00 ± 0.10", ("<i>note</i>",), "up"), Entry())))
    table = Table("x & y", ("<name>", "value", "other"), lines, "a *note*")
    stored = example.pope().model_copy(update={"kind": "of nobody here", "tables": (table,)})
    page = render([stored], tmp_path)  # a result of a kind that is not installed shows the tables it holds
    rows = parse(page).rows
    assert rows[1] == ["<b>group</b>"] and rows[2] == ["a | b", "1.00 ± 0.10<i>note</i>", "–"]
    assert "<b>" not in page and "<i>" not in page and 'class="up"' in page
    document = to_markdown(table)
    assert "| a \\| b | 1.00 ± 0.10<br>&lt;i>note&lt;/i> | – |" in document
    assert "x &amp; y" in document and "\\*note\\*" in document
    assert plain("two\nlines \udcff") == "two lines ?"
    screen = Console(width=80)
    with screen.capture() as captured:
        screen.print(to_rich(table))
    assert all(text in captured.get() for text in ("<b>group</b>", "1.00 ± 0.10", "<i>note</i>", "x & y", "a *note*"))
    assert to_csv([("x.json", table)]).splitlines() == [
        "source,table,row,column,value,ci95,remarks",
        "x.json,x & y,<b>group</b>: a | b,value,1.00,0.10,<i>note</i>",
    ]
    made = to_latex(Table("", ("50 %", "$_#"), (Line("a & b"), Line("c~{}", (Entry("1 ± 2", ("n^2",)),)))))
    assert made.splitlines()[1:-2] == [
        r"\toprule 50 \% & \$\_\# \\ \midrule",
        r"\multicolumn{2}{l}{\textbf{a \& b}} \\",
        r"c\textasciitilde{}\{\} & 1 $\pm$ 2 (n\textasciicircum{}2) \\",
    ]


def test_the_papers_intervals_stand_for_so_many_episodes() -> None:
    """n = n_ours · (ci_ours / ci_paper)²: with the same width, the same number; half as wide, four times as many."""
    result = example.fewshot("main")
    (first, *_) = panels(result)
    base = first.baseline
    assert base is not None and base.paper is not None and base.paper.ci95 == 0.65
    same = base.model_copy(update={"accuracy": Summary(0.6, 0.0065, 3000)})
    assert implied_episodes([Panel(first.data, first.classifier, 1, (same,))]) == (3000, 3000)
    half = base.model_copy(update={"accuracy": Summary(0.6, 0.0065 / 2, 3000)})
    both = [Panel(first.data, first.classifier, 1, (cell,)) for cell in (same, half)]
    assert implied_episodes(both) == (750, 3000)
    assert "as wide as those of 750 to 3,000 episodes" in told_episodes(both)
    assert told_episodes(panels(example.fewshot("transformers"))) == ""  # the paper gives no intervals there
