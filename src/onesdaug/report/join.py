"""Two runs of one study as one result: a generator that was run later, beside those that were there or in their place.

Cells share episodes within a run, so rows of two runs stand side by side only where data, classifiers and what was
scored without views are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from onesdaug.errors import DataError
from onesdaug.report.records import Cell, Claim, overall
from onesdaug.report.result import Made, StudyResult
from onesdaug.report.strings import accuracy

LARGEST = 5e-4  # of accuracies without a generator: episodes are the same, but other machines round otherwise
PARTS = ("theory", "timings", "sheets", "answers")  # records of a generator each, besides cells and claims
T = TypeVar("T")


def joined(first: StudyResult, later: StudyResult) -> StudyResult:
    """The first result with the later one's generators, which replace those of the same name."""
    new = _generators(later)
    _check(first, later, new)
    parts = {name: tuple(_with(getattr(first, name), getattr(later, name), new)) for name in PARTS}
    return first.model_copy(
        update={
            **parts,
            "cells": tuple(_cells(first.cells, later.cells, new)),
            "claims": tuple(_claims(first.claims, later.claims, new)),
            "details": _details(first.details, later.details, new),
            "notes": tuple(dict.fromkeys((*first.notes, *later.notes))),
            "missing": tuple(_missing(first.missing, later.missing, new)),
            "made": _made(first.made, later.made, new),
        }
    )


def _generators(result: StudyResult) -> frozenset[str]:
    found = (getattr(record, "generator", "") for name in ("cells", *PARTS) for record in getattr(result, name))
    return frozenset(name for name in found if name)


def _check(first: StudyResult, later: StudyResult, new: frozenset[str]) -> None:
    if (first.study, first.kind) != (later.study, later.kind):
        raise DataError(f"{first.file} and {later.file} are of two studies: only runs of one study can be joined")
    if not new:
        raise DataError(f"{later.file} holds no generator's numbers: there is nothing to add to {first.file}")
    for what in ("data", "encoders"):
        before, after = getattr(first.made, what), getattr(later.made, what)
        for name in before.keys() & after.keys():
            if before[name] != after[name]:
                raise DataError(f"{name} differs: {before[name]} in the first run, {after[name]} in the later one")
    there = {_place(cell): cell for cell in first.cells if not cell.generator}
    for cell in later.cells:
        other = there.get(_place(cell))
        if other and (other.accuracy.n != cell.accuracy.n or abs(other.accuracy.mean - cell.accuracy.mean) > LARGEST):
            one, two = (f"{accuracy(c.accuracy)} over {c.accuracy.n:,} episodes" for c in (other, cell))
            raise DataError(
                f"{cell.label}, {cell.data}, {cell.classifier}, {cell.shot}-shot: {one} in the first run, {two} in "
                "the later one; run both with the same seed and episodes"
            )


def _place(cell: Cell) -> tuple[Any, ...]:
    """What a cell is about, whatever came out."""
    return tuple(
        getattr(cell, name) for name in ("data", "classifier", "shot", "row", "generator", "support", "query")
    )


def _with(before: Iterable[T], after: Iterable[T], new: frozenset[str]) -> Iterable[T]:
    yield from (record for record in before if getattr(record, "generator", "") not in new)
    yield from (record for record in after if getattr(record, "generator", "") in new)


def _cells(before: tuple[Cell, ...], after: tuple[Cell, ...], new: frozenset[str]) -> Iterable[Cell]:
    """In the order of the first run; a row's new generators follow the others."""
    order = {name: place for place, name in enumerate(dict.fromkeys(cell.generator for cell in (*before, *after)))}
    merged = list(_with(before, after, new))
    known = {_place(cell) for cell in merged}
    merged += [cell for cell in after if not cell.generator and _place(cell) not in known]
    table = dict.fromkeys((cell.data, cell.classifier, cell.shot) for cell in merged)
    rows = dict.fromkeys(cell.row for cell in (*before, *after))
    tables, places = ({key: number for number, key in enumerate(keys)} for keys in (table, rows))
    return sorted(merged, key=lambda c: (tables[c.data, c.classifier, c.shot], places[c.row], order[c.generator]))


def _claims(before: tuple[Claim, ...], after: tuple[Claim, ...], new: frozenset[str]) -> Iterable[Claim]:
    """A statement is judged on the comparisons of both runs, where they were judged at all."""
    later = {claim.says: claim for claim in after}
    for claim in before:
        other = later.pop(claim.says, None)
        if other is None:
            yield claim
            continue
        is_judged = [one.verdict not in ("other model", "not tested here") for one in (claim, other)]
        mine, theirs = (
            one.instances if it_is or not any(is_judged) else ()
            for one, it_is in zip((claim, other), is_judged, strict=True)
        )
        kept = [instance for instance in mine if instance.generator not in new]
        there = {instance.where for instance in kept if not instance.generator}
        added = [i for i in theirs if i.generator in new or (not i.generator and i.where not in there)]
        instances = (*kept, *added)
        verdict = overall(instances) if any(is_judged) else "other model" if instances else "not tested here"
        yield claim.model_copy(update={"instances": instances, "verdict": verdict})
    yield from later.values()


def _details(before: Mapping[str, Any], after: Mapping[str, Any], new: frozenset[str]) -> dict[str, Any]:
    """Lists of facts, one of each generator, are joined; of all others the first run's stay."""
    found = {**after, **before}
    for name in before.keys() & after.keys():
        if all(
            isinstance(part, list) and all(isinstance(one, dict) for one in part)
            for part in (before[name], after[name])
        ):
            kept = [one for one in before[name] if one.get("generator", "") not in new]
            found[name] = [*kept, *(one for one in after[name] if one.get("generator", "") in new)]
    return found


def _missing(before: Iterable[str], after: Iterable[str], new: frozenset[str]) -> Iterable[str]:
    """What neither run had: `generator: why`."""
    named = tuple(f"{name}:" for name in new)
    lines = [
        *(line for line in before if not line.startswith(named)),
        *(line for line in after if line.startswith(named)),
    ]
    return dict.fromkeys(lines)


def _made(before: Made, after: Made, new: frozenset[str]) -> Made:
    """Each run keeps its command, commit and machine, beside the generators whose numbers are its."""

    def without(made: Made) -> Made:
        mine = {name: told for name, told in made.generators.items() if _name(name, new) not in new}
        return made.model_copy(update={"generators": mine})

    earlier = [without(run) for run in before.also]
    return without(before).model_copy(
        update={"also": (*(run for run in earlier if run.generators), after.model_copy(update={"also": ()}))}
    )


def _name(told: str, new: frozenset[str]) -> str:
    """The generator of `photo` and of `photo, CUB`: rows with settings of their own are told apart so."""
    return next((name for name in new if told == name or told.startswith((f"{name},", f"{name} "))), told)
