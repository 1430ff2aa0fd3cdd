"""Section 4 on stored features: what `--explain` says, as numbers, and the radius claim in simulation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from onesdaug.analysis.explain import Explanation, explain
from onesdaug.analysis.radius import DISTRIBUTIONS, reduction
from onesdaug.augment.config import AugmentConfig
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse
from onesdaug.report.parts import Bullets, Columns, Folded, InText, OnPage, Part, Plot, SideBySide
from onesdaug.report.records import Gain, Gaps, Histogram, Simulation, Theory
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import points
from onesdaug.studies.banks import BankRequest, check_classes, requests
from onesdaug.studies.context import StudyContext
from onesdaug.studies.kind import Findings, StudyKind
from onesdaug.studies.kinds.fewshot import label_of
from onesdaug.studies.kinds.theory.plots import class_gains, norm_histogram, plane, simulation_plot
from onesdaug.studies.kinds.theory.tables import gain_table, setting, simulation_table, theory_name, theory_tables
from onesdaug.studies.spec import FeatureStudy

BINS = 40
SIMULATED_VIEWS = (1, 3)


class TheoryStudy(FeatureStudy):
    """Classifiers, data and rows of views; nothing of its own."""


class Kind(StudyKind[TheoryStudy]):
    spec = TheoryStudy

    def banks(self, study: TheoryStudy, context: StudyContext) -> list[BankRequest]:
        check_classes(study, context)
        return requests(study, context)

    def run(self, study: TheoryStudy, context: StudyContext, output: Path) -> Findings:
        """One entry for every classifier and generator whose bank is there; the simulations need none."""
        requested = requests(study, context)
        entries = [
            entry for request in requested if context.banks.is_there(request) for entry in _of(study, context, request)
        ]
        return {
            "theory": tuple(entries),
            "simulations": simulations(context),
            "missing": context.banks.missing(requested),
        }

    def show(self, result: StudyResult) -> Iterator[Part]:
        yield SideBySide(
            (
                Plot("Accuracy gap against diversity", partial(plane, result.theory)),
                Plot("The radius claim, simulated", partial(simulation_plot, result.simulations)),
            )
        )
        yield from theory_tables(result)
        yield from filter(None, [simulation_table(result.simulations)])
        for place, entry in enumerate(result.theory):
            title = f"{theory_name(entry)}: {points(entry.gain)} points ({setting(entry)})"
            yield Folded(title, tuple(_explained(entry)), opened=place == 0)


def _explained(entry: Theory) -> Iterator[Part]:
    """Sentences; then by plots on a page and by one table in a text, which classes gained."""
    yield Bullets(entry.lines)
    left = (Plot("Gain by class", partial(class_gains, entry)),) if entry.classes else ()
    split = (gain_table(entry.splits),) if entry.splits else ()
    yield OnPage(Columns(left, (Plot("Feature norms", partial(norm_histogram, entry)), *split)))
    if gains := [*entry.splits, *sorted(entry.classes, key=lambda gain: -gain.mean)]:
        yield InText(gain_table(gains))


def _of(study: TheoryStudy, context: StudyContext, request: BankRequest) -> Iterator[Theory]:
    bank = context.banks.at(context.banks.path(request))
    _, head = context.classifier(request.classifier, request.data)
    for shot in study.shots:
        task = Task(shot=shot, episodes=context.settings.episodes or study.episodes, seed=context.settings.seed)
        for support, query in study.uses:
            use = ViewUse(support, query, request.row.original_weight)
            with context.timed("explaining"):
                said = explain(bank, head, task, use)
                yield _entry(request, context.config(request.row, request.generator), bank, said)


def _entry(request: BankRequest, config: AugmentConfig, bank: FeatureBank, said: Explanation) -> Theory:
    if said.votes is None:
        raise ValueError("the theory's votes need views of the queries")
    before, after = said.gap
    votes, radius, change, seen = said.votes, said.radius, said.complexity, said.faithfulness
    return Theory(
        data=Path(request.data).name,
        classifier=request.classifier.name,
        generator=Path(request.generator).name,
        label=label_of(request.row, config),
        noise_level=config.noise_level,
        shot=said.task.shot,
        k=said.use.query,
        gain=said.gain,
        lines=tuple(said.lines()),
        original_accuracy=votes.original.mean,
        view_accuracy=votes.view.mean,
        disagreement=votes.disagreement.mean,
        accuracy_gap=votes.risk.accuracy_gap,
        diversity=votes.risk.diversity,
        risk_difference=votes.risk.difference,
        residual=votes.risk.residual,
        **_both("radius", radius.before, radius.after),
        classes_shrunk=radius.classes_shrunk,
        images_shrunk=radius.images_shrunk.mean,
        **_both("complexity", change[0].value, change[1].value),
        **_both("bound", change[0].radius_bound, change[1].radius_bound),
        gap=Gaps(
            before=before.value,
            after=after.value,
            **_both("complexity", before.complexity_bound, after.complexity_bound),
            **_both("radius", before.radius_bound, after.radius_bound),
        ),
        cosine=seen.cosine,
        agreement=seen.agreement,
        original_agreement=seen.original_agreement,
        view_diversity=seen.diversity,
        classes=tuple(
            Gain(name=name, mean=gain.difference, ci95=gain.ci95)
            for name, gain in sorted(said.classes.items(), key=lambda item: item[1].difference)
        ),
        splits=tuple(
            Gain(name=f"{side} the mean {split.quantity} ({split.mean:.3f})", mean=part.mean, ci95=part.ci95)
            for split in said.splits
            for side, part in (("above", split.above), ("below", split.below))
        ),
        norms=norms(bank, said.use),
    )


def _both(name: str, before: float, after: float) -> dict[str, float]:
    return {f"{name}_before": before, f"{name}_after": after}


def norms(bank: FeatureBank, use: ViewUse) -> Histogram:
    """Feature norms of the originals and of their averages with the views, over shared bins."""
    before, after = (
        torch.linalg.vector_norm(features, dim=1).numpy()
        for features in (bank.combined(0), bank.combined(max(use.support, use.query), use.original_weight))
    )
    low, high = float(min(before.min(), after.min())), float(max(before.max(), after.max()))
    counts = [np.histogram(values, BINS, (low, high))[0].tolist() for values in (before, after)]
    return Histogram(low=low, high=high, before=tuple(counts[0]), after=tuple(counts[1]))


def simulations(context: StudyContext, trials: int = 4000) -> tuple[Simulation, ...]:
    """P(r̂ < r) over distributions that meet the paper's assumption, barely meet it, or break it."""
    found = []
    with context.timed("simulating"):
        for number, (name, distribution) in enumerate(DISTRIBUTIONS.items()):
            for views in SIMULATED_VIEWS:
                rng = np.random.default_rng([context.settings.seed, number, views])
                seen = reduction(distribution.sample, rng, views=views, trials=trials)
                found.append(
                    Simulation(
                        distribution=name,
                        assumption=distribution.assumption,
                        note=distribution.note,
                        views=views,
                        probability=seen.mean,
                        ci95=seen.ci95,
                        trials=trials,
                    )
                )
    return tuple(found)
