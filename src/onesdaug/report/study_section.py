"""One study as a section of the page: statements, tables, plots, pictures, and how they were made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from onesdaug.report import provenance
from onesdaug.report.claims import VERDICTS, came_out, comparisons
from onesdaug.report.panels import Panel, panels, series_name, shared_episodes, told_episodes
from onesdaug.report.plots_ablation import noise_curve, parts_plot
from onesdaug.report.plots_theory import class_gains, norm_histogram, plane, simulation_plot
from onesdaug.report.plots_time import time_plot
from onesdaug.report.plots_views import gain_over_k, gain_scale, heat_map
from onesdaug.report.sheets import figure
from onesdaug.report.shell import facts, prose, text, warnings
from onesdaug.report.strings import points
from onesdaug.report.tables_cost import answer_table, timing_table
from onesdaug.report.tables_fewshot import beside_others, glance, in_full
from onesdaug.report.tables_theory import gain_table, setting, simulation_table, theory_name, theory_tables
from onesdaug.report.tabular import Table, to_html
from onesdaug.studies.result import Claim, StudyResult, Theory

COLOURS = "Green and red differences: the 95 % interval leaves out zero."


def anchor(result: StudyResult) -> str:
    """The name that links within the page use."""
    return "study-" + re.sub(r"[^a-z0-9]+", "-", result.file.removesuffix(".json").lower())


def badge(verdict: str) -> str:
    return f'<span class="badge {text(verdict.split()[0])}">{text(verdict)}</span>'


def section(result: StudyResult, folder: Path) -> str:
    parts = [
        f'<section class="study" id="{anchor(result)}">',
        f"<h2>{text(provenance.heading(result))}</h2>",
        f'<p class="lead">{prose(result.about)}</p>',
        facts(told) if (told := provenance.of_classifiers(result)) else "",
        f'<p class="note">{text(provenance.in_one_line(result))}</p>',
        warnings("Not run here:", result.missing),
        _claims(result.claims),
        *_fewshot(result),
        *_theory(result),
        *_card_of(timing_table(result.timings)),
        _card(time_plot(result.timings)),
        *_card_of(answer_table(result.answers)),
        *(figure(sheet, folder) for sheet in result.sheets),
        f'<details class="made"><summary>How this was made</summary>{facts(provenance.in_full(result))}</details>',
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _claims(claims: tuple[Claim, ...]) -> str:
    """What the paper says of this; each statement opens on its comparisons."""
    if not claims:
        return ""
    items = []
    for claim in sorted(claims, key=lambda claim: list(VERDICTS).index(claim.verdict)):
        said = f'{badge(claim.verdict)} {prose(claim.says)} <span class="here">{text(came_out(claim))}</span>'
        table = comparisons(claim) if len(claim.instances) > 1 else None  # a single one is in the sentence
        opened = "" if table is None else to_html(table)
        items.append(f"<details><summary>{said}</summary>{opened}</details>" if opened else f"<p>{said}</p>")
    return f'<div class="card claims"><h3>What the paper says, and what came out</h3>{"".join(items)}</div>'


def _card(*parts: str) -> str:
    """One thing fills a card, two stand side by side where there is room."""
    kept = [part for part in parts if part]
    if not kept:
        return ""
    inner = (
        kept[0]
        if len(kept) == 1
        else f'<div class="pair">\n<div>{kept[0]}</div>\n<div>{"".join(kept[1:])}</div>\n</div>'
    )
    return f'<div class="card">{inner}</div>'


def _card_of(table: Table | None, *plots: str) -> list[str]:
    return [_card(to_html(table) if table is not None else "", *plots)]


def _fewshot(result: StudyResult) -> list[str]:
    """The whole at a glance, then its plots side by side, then every number."""
    found = panels(result)
    if not found:
        return _card_of(beside_others(result))
    note = f"{shared_episodes(found)} behind every accuracy, the same for all rows of a table. {COLOURS}"
    note += f" {told_episodes(found)}"
    parts = [f'<p class="note">{text(note)}</p>', *_card_of(glance(result))]
    scale = gain_scale(found)
    curves = [(panel.title, gain_over_k(panel, scale)) for panel in found]
    single = [panel for panel in found if not panel.is_grid and len(panel.counts) < 2]
    curves += [(f"Each row: {panel.title}", parts_plot(panel)) for panel in single]
    curves += [
        (f"Over the noise level: {panel.title}", noise_curve(panel, result.made.generators)) for panel in single
    ]
    parts.append(_side_by_side(curves))
    for panel in found:
        parts += _grid(panel) if panel.is_grid else _card_of(in_full(panel))
    return parts + _card_of(beside_others(result))


def _side_by_side(plots: Sequence[tuple[str, str]]) -> str:
    shown = "\n".join(f"<div><h3>{text(title)}</h3>{plot}</div>" for title, plot in plots if plot)
    return f'<div class="card side">\n{shown}\n</div>' if shown else ""


def _grid(panel: Panel) -> list[str]:
    """The picture holds the numbers; their intervals are in the table beneath."""
    maps = _side_by_side(
        [(f"{panel.title}, {series_name(cells)}", heat_map(panel, key)) for key, cells in panel.series.items()]
    )
    told = "Accuracy in %; beneath it the difference to no views in points; in brackets the paper's accuracy."
    table = (
        f'<details class="card"><summary>All numbers with their intervals</summary>{to_html(in_full(panel))}</details>'
    )
    return [f'<p class="note">{told}</p>', maps, table]


def _theory(result: StudyResult) -> list[str]:
    simulated = simulation_table(result.simulations)
    tables = [*theory_tables(result), *([simulated] if simulated else [])]
    plots = [
        ("Accuracy gap against diversity", plane(result.theory)),
        ("The radius claim, simulated", simulation_plot(result.simulations)),
    ]
    return [
        _side_by_side(plots),
        *(_card(to_html(table)) for table in tables),
        *(_explained(entry, place == 0) for place, entry in enumerate(result.theory)),
    ]


def _explained(entry: Theory, opened: bool) -> str:
    head = f"{theory_name(entry)}: {points(entry.gain)} points ({setting(entry)})"
    lines = "".join(f"<li>{text(line)}</li>" for line in entry.lines)
    left = f"<h4>Gain by class</h4>{class_gains(entry)}" if entry.classes else ""
    right = f"<h4>Feature norms</h4>{norm_histogram(entry)}"
    right += to_html(gain_table(entry.splits)) if entry.splits else ""
    return (
        f'<details class="card"{" open" * opened}><summary>{text(head)}</summary><ul class="lines">{lines}</ul>'
        f'<div class="pair even"><div>{left}</div><div>{right}</div></div></details>'
    )
