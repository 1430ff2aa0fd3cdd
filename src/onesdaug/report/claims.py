"""What the paper says and what came out here, in sentences with their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from onesdaug.report.records import Claim, Instance
from onesdaug.report.result import StudyResult
from onesdaug.report.strings import data_name, of_gain, points, signed
from onesdaug.report.table import Entry, Line, Table

# what a reader wants to know first comes first
VERDICTS = {
    "differs": "Differs from the paper",
    "mixed": "Mixed: the comparisons do not all say the same",
    "no clear difference": "No clear difference, where the paper reports one",
    "agrees": "Agrees with the paper",
    "other model": "Other model: what came out where models or data are not the paper's, which says nothing of it",
    "not tested here": "Not tested here: the paper's models or data are missing, or the run is older than this",
}
SIGN = (
    "Differences are in percentage points: the side that the paper says is better, minus the other. Negative means "
    "the opposite of the paper; ± is a 95 % interval, paired on the same episodes. Where the paper says that one side "
    "is no worse, the whole interval has to lie above minus the margin that is named."
)
_WORDS = {"differs": ("differs", "differ"), "agrees": ("agrees", "agree")}
_UNCLEAR = ("shows no clear difference", "show no clear difference")


def by_verdict(results: Sequence[StudyResult]) -> dict[str, list[tuple[StudyResult, Claim]]]:
    """All statements of all studies, those that differ first."""
    found: dict[str, list[tuple[StudyResult, Claim]]] = {verdict: [] for verdict in VERDICTS}
    for result in results:
        for claim in result.claims:
            found[claim.verdict].append((result, claim))
    return {verdict: claims for verdict, claims in found.items() if claims}


def ranked(result: StudyResult) -> list[Claim]:
    """Those of one study, in the order of the verdicts."""
    return sorted(result.claims, key=lambda claim: list(VERDICTS).index(claim.verdict))


def tally(results: Sequence[StudyResult]) -> str:
    """`12 statements of the paper were tested: 5 agree, 3 differ, …`"""
    found = by_verdict(results)
    others, left = (len(found.pop(verdict, ())) for verdict in ("other model", "not tested here"))
    total = sum(map(len, found.values()))
    if not total:
        return "No statement of the paper was tested."
    words = {"agrees": _WORDS["agrees"], "differs": _WORDS["differs"], "mixed": ("is mixed", "are mixed")}
    parts = [f"{len(c)} {words.get(verdict, _UNCLEAR)[len(c) != 1]}" for verdict, c in found.items()]
    subject = "1 statement of the paper was" if total == 1 else f"{total} statements of the paper were"
    told = f" {others} met other models or data only." if others else ""
    return f"{subject} tested: {', '.join(parts)}.{told}" + (f" {left} could not be tested here." if left else "")


def came_out(claim: Claim) -> str:
    """One sentence: with which generator it went which way, and how far."""
    if not claim.instances:
        return "Not tested here."
    margin = f" No worse: by less than {claim.margin:g} points." if claim.margin else ""
    if claim.verdict == "other model":
        return f"Here, with other models or data: {'; '.join(_unjudged(*of) for of in _by_generator(claim))}."
    if len(claim.instances) == 1:
        only = claim.instances[0]
        return f"Here: {points(only.difference)} ({_place(only)}).{margin}"
    return f"Here: {'; '.join(_part(*of) for of in _by_generator(claim))}.{margin}"


def _by_generator(claim: Claim) -> list[tuple[str, list[Instance]]]:
    groups: dict[str, list[Instance]] = {}
    for instance in claim.instances:
        groups.setdefault(instance.generator, []).append(instance)
    return list(groups.items())


def _unjudged(generator: str, group: Sequence[Instance]) -> str:
    return _range(group) + (f" with {generator}" if generator else "")


def _part(generator: str, group: Sequence[Instance]) -> str:
    """`agrees with pocket (+0.70 to +1.75)`, or the shares where one generator's comparisons part ways."""
    of = f" with {generator}" if generator else ""
    kinds = {verdict: [i for i in group if i.verdict == verdict] for verdict in VERDICTS}
    found = {verdict: of_kind for verdict, of_kind in kinds.items() if of_kind}
    if len(found) == 1:
        (verdict,) = found
        return f"{verdict}{of} ({_range(group)})"
    shares = [
        f"{len(k)} of {len(group)} comparisons {_WORDS.get(v, _UNCLEAR)[len(k) != 1]} ({_range(k)})"
        for v, k in found.items()
    ]
    return f"{of.strip()} {' and '.join(shares)}".strip()


def _place(instance: Instance) -> str:
    closest = f", closest: {instance.row}" if instance.row else ""
    return data_name(instance.where) + (f", {instance.generator}" if instance.generator else "") + closest


def _range(of_kind: Sequence[Instance]) -> str:
    if len(of_kind) == 1:
        return points(of_kind[0].difference)
    ranked = sorted(100 * i.difference.difference for i in of_kind)
    return f"{signed(ranked[0])} to {signed(ranked[-1])}"


def comparisons(claim: Claim) -> Table:
    """Every comparison with its interval."""
    other = claim.verdict == "other model"
    lines = [Line(_place(i), (of_gain(i.difference), Entry() if other else Entry(i.verdict))) for i in claim.instances]
    table = Table("", ("compared on", "difference, points", "to the paper"), tuple(lines))
    return table.without_empty_columns()
