"""Section 4 on stored features: what `--explain` says, as numbers, and the radius claim in simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from onesdaug.analysis.explain import Explanation, explain
from onesdaug.analysis.radius import DISTRIBUTIONS, reduction
from onesdaug.augment.config import AugmentConfig
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse
from onesdaug.studies.accuracy import label_of, wants_of
from onesdaug.studies.result import Gain, Gaps, Histogram, Simulation, Theory
from onesdaug.studies.spec import Study
from onesdaug.studies.workshop import Missing, Want, Workshop

BINS = 40
SIMULATED_VIEWS = (1, 3)


def theory(study: Study, shop: Workshop) -> tuple[Theory, ...]:
    """One entry for every classifier and generator whose bank is there."""
    found = []
    for want in wants_of(study, shop):
        try:
            path = shop.path(want)
        except Missing:
            continue
        if not path.is_file():
            continue
        bank, (_, head) = shop.bank_at(path), shop.classifier(want.classifier, want.data)
        for shot in study.shots:
            task = Task(shot=shot, episodes=shop.settings.episodes or study.episodes, seed=shop.settings.seed)
            for support, query in study.uses:
                use = ViewUse(support, query, want.row.original_weight)
                with shop.timed("explaining"):
                    said = explain(bank, head, task, use)
                    found.append(_entry(want, shop.config(want.row, want.generator), bank, said))
    return tuple(found)


def _entry(want: Want, config: AugmentConfig, bank: FeatureBank, said: Explanation) -> Theory:
    if said.votes is None:
        raise ValueError("the theory's votes need views of the queries")
    before, after = said.gap
    votes, terms, radius, change, seen = (
        said.votes,
        said.votes.risk,
        said.radius["origin"],
        said.complexity,
        said.faithfulness,
    )
    return Theory(
        data=Path(want.data).name,
        classifier=want.classifier.name,
        generator=Path(want.generator).name,
        label=label_of(want.row, config),
        noise_level=config.noise_level,
        shot=said.task.shot,
        k=said.use.query,
        gain=said.gain,
        lines=tuple(said.lines()),
        original_accuracy=votes.original.mean,
        view_accuracy=votes.view.mean,
        disagreement=votes.disagreement.mean,
        accuracy_gap=terms.accuracy_gap,
        diversity=terms.diversity,
        risk_difference=terms.difference,
        residual=terms.residual,
        radius_before=radius.before,
        radius_after=radius.after,
        classes_shrunk=radius.classes_shrunk,
        images_shrunk=radius.images_shrunk.mean,
        complexity_before=change.before.value,
        complexity_after=change.after.value,
        bound_before=change.before.radius_bound,
        bound_after=change.after.radius_bound,
        gap=Gaps(
            before=before.value,
            after=after.value,
            complexity_before=before.complexity_bound,
            complexity_after=after.complexity_bound,
            radius_before=before.radius_bound,
            radius_after=after.radius_bound,
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


def norms(bank: FeatureBank, use: ViewUse) -> Histogram:
    """Feature norms of the originals and of their averages with the views, over shared bins."""
    before, after = (
        torch.linalg.vector_norm(features, dim=1).numpy()
        for features in (bank.combined(0), bank.combined(max(use.support, use.query), use.original_weight))
    )
    low, high = float(min(before.min(), after.min())), float(max(before.max(), after.max()))
    counts = [np.histogram(values, BINS, (low, high))[0].tolist() for values in (before, after)]
    return Histogram(low=low, high=high, before=tuple(counts[0]), after=tuple(counts[1]))


def simulations(shop: Workshop, trials: int = 4000) -> tuple[Simulation, ...]:
    """P(r̂ < r) over distributions that meet the paper's assumption, barely meet it, or break it."""
    found = []
    with shop.timed("simulating"):
        for number, (name, distribution) in enumerate(DISTRIBUTIONS.items()):
            for views in SIMULATED_VIEWS:
                rng = np.random.default_rng([shop.settings.seed, number, views])
                seen = reduction(distribution.sample, rng, views=views, trials=trials)
                found.append(
                    Simulation(
                        distribution=name,
                        assumption=distribution.assumption,
                        note=distribution.note,
                        views=views,
                        probability=seen.probability,
                        ci95=seen.ci95,
                        trials=trials,
                    )
                )
    return tuple(found)
