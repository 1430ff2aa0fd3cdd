"""Results as rows, once for the terminal and the page: both show the same strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onesdaug.fewshot.bank import BankInfo
from onesdaug.fewshot.evaluate import Result
from onesdaug.studies.result import CONDITION_ALONE, OPERATOR

if TYPE_CHECKING:
    from rich.table import Table

Kind = Literal["baseline", "traditional", "generative"]
# sources of views that draw nothing new: classical test-time augmentation
TRADITIONAL = {"crop-flip": "crop + flip", "traditional": "traditional edits", "shape": "shape tweak"}


COLUMNS = ("method", "accuracy, %", "paired difference", "relative")


@dataclass(frozen=True)
class Row:
    """One method on the episodes its block shares."""

    method: str
    kind: Kind
    result: Result


@dataclass(frozen=True)
class Origin:
    """What made the numbers of one source of views."""

    source: str
    info: BankInfo
    spread: float | None = None  # std over other parts of the same size of the gain with all views, in [0, 1]


@dataclass(frozen=True)
class Block:
    """All methods with one frozen classifier: the baseline first, every row on the same episodes."""

    classifier: str
    head: str
    data: str  # which images, in words
    rows: tuple[Row, ...]
    origins: tuple[Origin, ...]


@dataclass(frozen=True)
class Cells:
    """A row as text, in percent; where there is nothing to compare with, the strings are empty."""

    method: str
    accuracy: str
    accuracy_ci: str
    gain: str = ""
    gain_ci: str = ""
    relative: str = ""


def method_name(source: str, views: int, noise_level: float | None = None) -> str:
    """`1S-DAug-2 · pocket, noise 0.85` as the paper counts views, or another method with their number.

    `pocket@0.7` is a further source of the same generator. At noise level 1 nothing of the image enters but through
    the condition: that is not the paper's operator, and not called so.
    """
    if views == 0:
        return "no views (baseline)"
    count = f"{views} view{'s' * (views != 1)}"
    if source in TRADITIONAL:
        return f"{TRADITIONAL[source]}, {count}"
    generator = source.partition("@")[0]
    if noise_level == 1:
        return f"{CONDITION_ALONE}, {count} · {generator}"
    return f"{OPERATOR}-{views} · {generator}" + ("" if noise_level is None else f", noise {noise_level:g}")


def to_row(source: str, result: Result, noise_level: float | None = None) -> Row:
    """A row of the table from a result of `evaluate` on the views of `source`."""
    kind: Kind = "baseline" if result.baseline else "traditional" if source in TRADITIONAL else "generative"
    return Row(method_name(source, result.use.query, noise_level), kind, result)


def cells(row: Row) -> Cells:
    result = row.result
    accuracy = f"{100 * result.accuracy.mean:.2f}", f"{100 * result.accuracy.ci95:.2f}"
    if result.gain is None:
        return Cells(row.method, *accuracy)
    gain = result.gain
    return Cells(
        row.method,
        *accuracy,
        f"{100 * gain.difference:+.2f}",
        f"{100 * gain.ci95:.2f}",
        f"{100 * gain.relative_gain:+.2f} %",
    )


def terminal_table(blocks: Sequence[Block]) -> Table:
    """All blocks in one table, a heading line for each."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=task_line(blocks), title_justify="left", title_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for block in blocks:
        table.add_section()
        table.add_row(f"[bold]{escape(block.classifier)}[/bold]")
        for row in block.rows:
            c = cells(row)
            gain = f"{c.gain} ± {c.gain_ci}" if c.gain else "–"
            table.add_row(f"  {escape(c.method)}", f"{c.accuracy} ± {c.accuracy_ci}", gain, c.relative or "–")
    return table


def task_line(blocks: Sequence[Block]) -> str:
    """What was asked of every method, in one line."""
    if not blocks:
        return "no results"
    first = blocks[0].rows[0].result
    task = first.task
    return (
        f"{task.way}-way {task.shot}-shot, {task.query} queries a class, {first.accuracy.n:,} episodes, "
        f"seed {task.seed}"
    )
