"""The documents say what the stored runs say, and the stored runs belong to the released weights."""

from __future__ import annotations

import pytest

from benchmarks import pocket_report as report
from onesdaug.augment.config import preset


def test_documents_hold_the_tables_of_the_stored_runs() -> None:
    text = report.DOCS.read_text()
    assert report.with_tables(text, report.build()) == text, "run python benchmarks/pocket_report.py"


def test_the_solvers_are_described_as_measured() -> None:
    """docs/operator.md: the spread is computed here and now, the rest comes from stored runs."""
    from benchmarks import solver_report

    text = solver_report.DOCS.read_text()
    tables = {"solvers": solver_report.solver_table()}
    assert report.with_tables(text, tables) == text, "run python benchmarks/solver_report.py"
    left = {solver: solver_report.spread_left(solver) for solver in solver_report.SOLVERS}
    assert left["ddpm"] < 0.35 and min(left[name] for name in ("ddpm-ancestral", "ddim", "dpm++")) > 0.88
    assert preset("paper").solver == "ddpm-ancestral"  # what the paper calls vanilla DDPM


def test_the_spread_is_what_sampling_gives() -> None:
    """The covariance that is followed, against a million numbers sent through the same table."""
    import numpy as np

    from benchmarks import solver_report
    from onesdaug.augment.solvers import table
    from onesdaug.generators.schedule import Schedule

    rng = np.random.default_rng(0)
    for solver in solver_report.SOLVERS:
        rows = table(Schedule.scaled_linear(offset=1), solver, 20, 0.7, "strength")
        z, before = rng.standard_normal(200_000), np.zeros(200_000)
        for i in range(len(rows)):
            x0 = rows.alpha[i] * z
            z = rows.a[i] * z + rows.b[i] * x0 + rows.c[i] * before + rows.s[i] * rng.standard_normal(len(z))
            before = x0
        assert z.std() == pytest.approx(solver_report.spread_left(solver), rel=0.01)
