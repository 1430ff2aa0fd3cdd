"""One HTML page that needs nothing beside it: photographs with their views, the table, its plot, what made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onesdaug.common.files import write_text
from onesdaug.report.pictures import Gallery, PhotoRow
from onesdaug.report.plot import gain_plots
from onesdaug.report.shell import document, facts, text, warnings
from onesdaug.report.table import COLUMNS, Block, Origin, Row, cells, task_line

TITLE = "onesdaug: views of one image for a frozen model"
LEAD = (
    "The 1S-DAug operator makes K views of a single image by a random shape tweak, noise up to a chosen level and "
    "denoising conditioned on the original; a frozen classifier then averages its features, half the weight on the "
    "original and half shared by the views."
)
FULL_FIGURES = "docs/pocket.md"


@dataclass(frozen=True)
class Page:
    """Everything the page shows; any part may be missing, the others are shown all the same."""

    command: str = ""  # that made the views
    gallery: Gallery = field(default_factory=Gallery)
    blocks: tuple[Block, ...] = ()
    problems: tuple[str, ...] = ()  # of the evaluation
    commit: str = "unknown"
    machine: Mapping[str, str] = field(default_factory=dict)


def render(page: Page) -> str:
    """The whole page as text."""
    parts = [
        f"<h1>{text(TITLE)}</h1>",
        f'<p class="lead">{text(LEAD)}</p>',
        _photographs(page),
        _results(page),
        _origins(page),
        f"<footer>\n{_small_print(page.blocks)}\n</footer>",
    ]
    return document(TITLE, "\n".join(parts))


def write(page: Page, path: Path) -> Path:
    """Write the page whole or not at all."""
    return write_text(path, render(page))


def _photographs(page: Page) -> str:
    shown = page.gallery
    parts = ["<h2>Photographs and their views</h2>"]
    if page.command:
        parts.append(f'<code class="command">$ {text(page.command)}</code>')
    parts += [_photo(row) for row in shown.rows] or ['<p class="quiet">No views to show.</p>']
    if shown.more:
        parts.append(f'<p class="note">{shown.more} more images are in the folder of views, not on this page.</p>')
    return "\n".join([*parts, warnings("Left out:", shown.problems)])


def _photo(row: PhotoRow) -> str:
    figures = "\n".join(
        f'<figure><img src="{p.uri}" alt="{text(f"{row.name}, {p.caption}")}" width="{p.size[0]}" '
        f'height="{p.size[1]}"><figcaption>{text(p.caption)}</figcaption></figure>'
        for p in row.pictures
    )
    about = " · ".join(text(part) for part in (row.credit, row.note) if part)
    return (
        f'<section class="card"><h3>{text(row.name)}</h3><div class="note">{about}</div>\n'
        f'<div class="strip">\n{figures}\n</div></section>'
    )


def _results(page: Page) -> str:
    parts = ["<h2>Accuracy on novel classes</h2>"]
    if page.blocks:
        line = f"{task_line(page.blocks)}; ± is a 95 % interval. All rows of a table see the same episodes. "
        line += "The views behind the numbers have settings of their own, listed below: those tuned for accuracy."
        parts.append(f'<p class="note">{text(line)}</p>')
    else:
        parts.append('<p class="quiet">No evaluation.</p>')
    for block, plot in zip(page.blocks, gain_plots(page.blocks), strict=True):
        parts.append(f'<section class="card"><div class="pair">\n{_table(block)}\n<div>{plot}</div>\n</div></section>')
    return "\n".join([*parts, warnings("Not evaluated:", page.problems)])


def _table(block: Block) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    body = "\n".join(_table_row(row) for row in block.rows)
    return (
        f'<div class="scroll"><table><caption>{text(block.classifier)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _table_row(row: Row) -> str:
    c = cells(row)
    name, dot, source = text(c.method).partition(" · ")
    method = f'<span class="name">{name}</span>{dot}{source}' if dot else name  # on a phone, 1S-DAug-1 stays whole

    def with_interval(value: str, ci: str) -> str:
        return f'{value} <span class="ci">± {ci}</span>' if value else "–"

    return (
        f'<tr class="{row.kind}"><th scope="row">{method}</th>'
        f"<td>{with_interval(c.accuracy, c.accuracy_ci)}</td><td>{with_interval(c.gain, c.gain_ci)}</td>"
        f"<td>{c.relative or '–'}</td></tr>"
    )


def _origins(page: Page) -> str:
    about = {"code": f"commit {page.commit}", **page.machine}
    if page.gallery.generator:
        about["views above"] = f"generator {page.gallery.generator}"
    parts = ["<h2>What made these numbers</h2>", facts(about.items())]
    for block in page.blocks:
        first = block.rows[0].result
        about = {
            "data": block.data,
            "head": block.head,
            "encoder": block.origins[0].info.encoder,
            "episodes": f"{first.accuracy.n:,}, fingerprint {first.episodes['fingerprint']}",
            "original weighs": f"{first.use.original_weight:g}",
        }
        sources = "\n".join(_origin(origin) for origin in block.origins)
        parts.append(
            f'<details class="card"><summary>{text(block.classifier)}</summary>{facts(about.items())}\n'
            f"{sources}</details>"
        )
    return "\n".join(parts)


def _origin(origin: Origin) -> str:
    info = origin.info
    about = {
        "generator": info.views.get("generator", "none"),
        "made at commit": f"{info.commit}, seed {info.seed}",
        "settings": _settings(info.views),
    }
    return f"<h4>{text(origin.source)} views</h4>{facts(about.items())}"


def _settings(views: Mapping[str, Any]) -> str:
    """A source's own settings in one line, nested ones with their names joined."""

    def flat(prefix: str, value: Any) -> list[str]:
        if isinstance(value, Mapping):
            return [line for name, inner in value.items() for line in flat(name, inner)]
        return [f"{prefix} {value}"]

    named = {name: value for name, value in views.items() if name not in ("source", "generator")}
    return " · ".join(flat("", named)).strip()


def _small_print(blocks: Sequence[Block]) -> str:
    lines = [
        "The embedded feature banks hold derived features of a small random part of the novel test classes, "
        f"no images. The figures of the full test split are in {FULL_FIGURES}; where they differ, they count.",
        "± is the half-width of a 95 % interval over episodes. Paired difference: the method minus no views, episode "
        "by episode. Neither interval includes the luck of which images the embedded part holds.",
    ]
    for block in blocks:
        known = [(o.source, o.spread) for o in block.origins if o.spread is not None]
        if known:
            listed = ", ".join(f"{source} {100 * spread:.2f}" for source, spread in known)
            lines.append(
                f"{block.classifier}: that luck, as the standard deviation of the difference with all views over "
                f"other random parts of this size, in percentage points: {listed}."
            )
    lines.append("Generated views can be wrong for your images: look at them before you trust an average over them.")
    return "\n".join(f"<p>{text(line)}</p>" for line in lines)
