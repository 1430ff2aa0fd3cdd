"""Why one use of the views helped or hurt on this data: gains, flips, risk terms, radius and faithfulness together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onesdaug.analysis import radius, risk
from onesdaug.analysis.complexity import Complexity, Gap, complexity, generalization_gap
from onesdaug.analysis.faithfulness import Faithfulness, agreements, cosines, diversities, measure
from onesdaug.errors import ConfigError
from onesdaug.fewshot.bank import FeatureBank
from onesdaug.fewshot.episodes import Episodes
from onesdaug.fewshot.evaluate import EpisodeFeatures, Task, ViewUse, check_comparable, features_for
from onesdaug.fewshot.heads import Head
from onesdaug.statistics import Paired, Summary, mean_ci, paired


@dataclass(frozen=True)
class Split:
    """The gain of the images above and below the mean of a quantity of their views, over images."""

    quantity: str
    mean: float
    above: Summary
    below: Summary


@dataclass(frozen=True)
class Explanation:
    task: Task
    use: ViewUse
    baseline: Summary
    accuracy: Summary
    gain: Paired
    support_gain: Paired  # originals -> views behind the support; with query_gain it adds up to `gain`
    query_gain: Paired  # then views behind the queries as well
    repaired: Summary  # wrong -> right, a share of all queries
    broken: Summary  # right -> wrong
    classes: dict[str, Paired]  # over the episodes a class takes part in
    votes: risk.Votes | None  # the theorem's setting on the query side; None where queries have no views
    radius: radius.Radius
    overlap: tuple[float, float]  # before, after; lower is better
    complexity: tuple[Complexity, Complexity]  # before, after, with the same signs for both
    gap: tuple[Gap, Gap]  # before, after
    faithfulness: Faithfulness  # by the classifier's own features
    splits: tuple[Split, ...]
    against: str = ""  # the bank that was compared with, by its name; else the originals alone

    @property
    def verdict(self) -> str:
        if self.gain.p_value >= 0.05:
            return "made no clear difference"
        return "helped" if self.gain.difference > 0 else "hurt"

    def lines(self) -> list[str]:
        """Plain sentences, each with its number."""
        names = sorted(self.classes, key=lambda name: self.classes[name].difference)
        up, down = (sum(sign * g.difference > 0 for g in self.classes.values()) for sign in (1, -1))
        before, after = self.overlap
        moved = "nearer to" if after < before else "farther from"
        largest, change, seen, gap = self.radius, self.complexity, self.faithfulness, self.gap
        before_is = f"with {self.against}" if self.against else "without"
        spread = f", diversity between views {seen.diversity.mean:.3f}" if seen.diversity else ""
        said = [
            f"Views {self.verdict}: {self.task.way}-way {self.task.shot}-shot accuracy "
            f"{100 * self.baseline.mean:.2f} % {before_is}, {100 * self.accuracy.mean:.2f} % with {self.use.support} "
            f"per support and {self.use.query} per query image ({_points(self.gain)} points, {self.gain.n} episodes).",
            f"They repaired {100 * self.repaired.mean:.2f} % of the queries and broke {100 * self.broken.mean:.2f} %.",
            f"Views behind the support brought {_points(self.support_gain)} points, views behind the queries then "
            f"{_points(self.query_gain)}.",
        ]
        if self.against:
            said.append(f"What is called before is {self.against}; after is these views.")
        if names:
            said.append(
                f"{up} of {len(names)} classes gained, {down} lost; from {names[0]} "
                f"({_points(self.classes[names[0]])}) to {names[-1]} ({_points(self.classes[names[-1]])})."
            )
        if self.votes is not None:
            said += _vote_lines(self.votes)
        said += [
            f"{100 * seen.agreement.mean:.1f} % of the views lie nearest to their own class, of the originals "
            f"{100 * seen.original_agreement.mean:.1f} %; cosine to the original {seen.cosine.mean:.3f}{spread}.",
            *(
                f"Images above the mean {s.quantity} ({s.mean:.3f}) gained {_points(s.above)} points, those below "
                f"{_points(s.below)}."
                for s in self.splits
            ),
            f"Averaging moved features {moved} their class mean, measured by the distance between classes: overlap "
            f"{before:.3f} before, {after:.3f} after.",
            f"The largest feature norm went from {largest.before:.3f} to {largest.after:.3f}; it fell in "
            f"{100 * largest.classes_shrunk:.0f} % of the classes and for {100 * largest.images_shrunk.mean:.0f} % of "
            f"the images.",
            f"Rademacher complexity at B = 1 went from {change[0].value:.4f} to {change[1].value:.4f}, the "
            f"paper's bound from {change[0].radius_bound:.4f} to {change[1].radius_bound:.4f}.",
            f"The expected largest gap between true and empirical risk (linear loss, two classes, m = {gap[0].m}) "
            f"went from {gap[0].value:.4f} to {gap[1].value:.4f}; the bound by complexity from "
            f"{gap[0].complexity_bound:.4f} to {gap[1].complexity_bound:.4f}, by radius from "
            f"{gap[0].radius_bound:.4f} to {gap[1].radius_bound:.4f}.",
            self._why(),
        ]
        return said + self._contrary()

    def _why(self) -> str:
        """Which side moved accuracy the way of the verdict, and what is known of it."""
        if self.verdict == "made no clear difference":
            return f"In short: as much was repaired as broken (difference {_points(self.gain)} points)."
        support, query, helped = self.support_gain, self.query_gain, self.gain.difference > 0
        lead = (support.difference - query.difference) * (1 if helped else -1)
        apart = abs(lead) > support.ci95 + query.ci95
        start = f"In short: views {self.verdict},"
        if self.votes is None or (apart and lead > 0):
            how = "better" if helped else "worse"
            return (
                f"{start} mostly as prototypes, which classify the original queries {how} ({_points(support)} points)."
            )
        view, original = self.votes.view.mean, self.votes.original.mean
        off = f"{100 * (view - original):+.2f} points against its original"
        other = f"answered otherwise in {100 * self.votes.disagreement.mean:.1f} % of cases"
        if view >= original:
            reason = f"a view alone is no worse ({off})" + ("" if helped else ", yet the average is")
        elif helped:
            reason = f"a view alone is worse ({off}), but errs elsewhere ({other}), and the average keeps the better"
        else:
            reason = f"a view alone is worse ({off}), and the average follows it too often ({other})"
        return f"{start} {'mostly as queries' if apart else 'as support and as queries alike'}: {reason}."

    def _contrary(self) -> list[str]:
        """The paper's quantities that point the other way: they are no accuracy, and should not be read as one."""
        largest, sign = self.radius, np.sign(self.gain.difference)
        changes = {
            "largest norm": largest.after - largest.before,
            "complexity": self.complexity[1].value - self.complexity[0].value,
            "generalisation gap": self.gap[1].value - self.gap[0].value,
            "overlap": self.overlap[1] - self.overlap[0],
        }
        if self.votes is not None:
            changes["squared risk of the vote"] = self.votes.risk.difference.mean
        against = [f"{name} ({change:+.4f})" for name, change in changes.items() if sign * change > 0]
        if self.verdict == "made no clear difference" or not against:
            return []
        return [f"Pointing the other way, and so no reason here: {', '.join(against)}."]


def explain(
    bank: FeatureBank,
    head: Head,
    task: Task,
    use: ViewUse,
    baseline: FeatureBank | None = None,
    name: str = "baseline",
) -> Explanation:
    """Compare this use of the stored views with the originals alone, on the episodes of the task.

    With a baseline, a bank of the same images called `name`, the comparison is with all its views.
    """
    if (why := nothing_to_explain(bank, use, baseline)) is not None:
        raise ConfigError(why)
    check_comparable(bank, baseline or bank)
    episodes = task.sample(bank.labels)
    if len(episodes) < 2:
        raise ConfigError("an explanation needs at least two episodes")
    views, weight = max(use.support, use.query), use.original_weight
    before = ViewUse(0, 0, weight) if baseline is None else ViewUse(baseline.k, baseline.k, weight)
    first, last = features_for(baseline or bank, episodes, before), features_for(bank, episodes, use)
    between = features_for(bank, episodes, use)  # the support as it is to be, the queries as they were
    between.query_tables[-1] = first.query_tables[-1]
    answers = [_answers(head, features, episodes) for features in (first, between, last)]
    right = [(a == episodes.targets) for a in answers]
    plain, middle, full = (r.double().mean(1).numpy() for r in right)
    originals, averaged = bank.combined(0), bank.combined(views, weight)
    reference = originals if baseline is None else baseline.combined(baseline.k, weight)
    columns = bank.features[:, 1 : 1 + views]
    delta = right[2].double() - right[0].double()
    return Explanation(
        task=task,
        use=use,
        baseline=mean_ci(plain),
        accuracy=mean_ci(full),
        gain=paired(full, plain),
        support_gain=paired(middle, plain),
        query_gain=paired(full, middle),
        repaired=mean_ci((delta > 0).double().mean(1).numpy()),
        broken=mean_ci((delta < 0).double().mean(1).numpy()),
        classes=_class_gains(bank, episodes, right[0], right[2]),
        votes=_votes(bank, head, episodes, use) if use.query else None,
        radius=radius.measure(reference, averaged, bank.labels),
        overlap=(radius.overlap(reference, bank.labels), radius.overlap(averaged, bank.labels)),
        complexity=(complexity(reference, draws=256), complexity(averaged, draws=256)),
        gap=(generalization_gap(reference, bank.labels), generalization_gap(averaged, bank.labels)),
        faithfulness=measure(originals, columns, bank.labels),
        splits=_splits(originals, columns, bank.labels, episodes, delta),
        against="" if baseline is None else f"{name} ({baseline.k} views)",
    )


def nothing_to_explain(bank: FeatureBank, use: ViewUse | None, baseline: FeatureBank | None = None) -> str | None:
    """Why not, in one line; None where there is something."""
    if bank.oracle or (baseline is not None and baseline.oracle):
        return "Nothing to explain: oracle views are drawn per episode, the bank stores none."
    if bank.k == 0 or use is None or max(use.support, use.query) == 0:
        return "Nothing to explain: no views were used."
    return "Nothing to explain: views have no weight." if use.original_weight == 1 else None


def _answers(head: Head, features: EpisodeFeatures, episodes: Episodes) -> Tensor:
    """The class of every query: (E, N·Q)."""
    head.eval()
    with torch.inference_mode():
        parts = [slice(start, start + 32) for start in range(0, len(episodes), 32)]
        return torch.cat([head.predict(features.support(part), features.query(part)) for part in parts])


def _votes(bank: FeatureBank, head: Head, episodes: Episodes, use: ViewUse) -> risk.Votes:
    """One classifier, the head with the use's support; original and views of a query vote."""
    members = []
    features = EpisodeFeatures(bank, episodes, ViewUse(use.support, 0, use.original_weight))
    for column in range(1 + use.query):
        features.query_tables[-1] = bank.features[:, column].float()
        members.append(_answers(head, features, episodes))
    targets = episodes.targets.expand(len(episodes), -1)
    return risk.votes(torch.stack(members, -1), targets, episodes.support.shape[1], use.original_weight)


def _class_gains(bank: FeatureBank, episodes: Episodes, before: Tensor, after: Tensor) -> dict[str, Paired]:
    kinds = bank.labels[episodes.support[:, :, 0]]  # (E, N)
    old, new = (r.double().view(*episodes.query.shape).mean(-1) for r in (before, after))
    names, gains = bank.info.class_names, {}
    for label in sorted(set(kinds.flatten().tolist())):
        where = kinds == label
        if int(where.sum()) > 1:
            name = names[label] if 0 <= label < len(names) else str(label)
            gains[name] = paired(new[where].numpy(), old[where].numpy())
    return gains


def _splits(originals: Tensor, views: Tensor, labels: Tensor, episodes: Episodes, delta: Tensor) -> tuple[Split, ...]:
    quantities = {
        "share of views nearest to the right class": agreements(originals, views, labels).mean(1),
        "cosine to the original": cosines(originals, views).mean(1),
    }
    if views.shape[1] > 1:
        quantities["diversity of views"] = diversities(views)
    asked = episodes.query.flatten()
    count = asked.bincount(minlength=len(labels))
    total = torch.zeros(len(labels), dtype=torch.float64).index_add_(0, asked, delta.flatten())
    seen = count > 0
    gain = (total[seen] / count[seen]).numpy()
    splits = []
    for name, values in quantities.items():
        value = values[seen].numpy()
        high = value > value.mean()
        if 0 < high.sum() < high.size:
            splits.append(Split(name, float(value.mean()), mean_ci(gain[high]), mean_ci(gain[~high])))
    return tuple(splits)


def _vote_lines(votes: risk.Votes) -> list[str]:
    terms = votes.risk
    return [
        f"With that support the original alone answers {100 * votes.original.mean:.2f} % right, a view alone "
        f"{100 * votes.view.mean:.2f} %.",
        f"Squared risk of their vote: accuracy gap {_risk(terms.accuracy_gap)}, diversity {_risk(terms.diversity)}, "
        f"together {_risk(terms.difference)}; its error rate changes by {_points(votes.error_change)} points.",
    ]


def _risk(value: Summary) -> str:
    return f"{value.mean:+.4f} ± {value.ci95:.4f}"


def _points(value: Paired | Summary) -> str:
    mean = value.difference if isinstance(value, Paired) else value.mean
    return f"{100 * mean:+.2f} ± {100 * value.ci95:.2f}"
