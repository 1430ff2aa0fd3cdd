"""What a study of one's own model on POPE's photographs finds: answers, choices, photographs made worse, times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onesdaug.report.records import Answer, Claim, Instance, overall
from onesdaug.studies.context import StudyContext
from onesdaug.studies.kind import Findings
from onesdaug.studies.kinds.fewshot.claims import verdict_of
from onesdaug.studies.kinds.pope.answers import to_answer
from onesdaug.studies.kinds.pope.rows import RULES, SEED, Made, Photo, joined, settings_of
from onesdaug.studies.kinds.pope.spec import LLAVA, PopeStudy, ViewsRow
from onesdaug.studies.provenance import Facts, settings_line
from onesdaug.studies.spec import BASELINE, TUNED
from onesdaug.vlm.metrics import compare, measure
from onesdaug.vlm.questions import OFFICIAL_COUNTS

NONE = ViewsRow(id=BASELINE, label="no views", views="shape")  # nothing is drawn for it


@dataclass
class Found:
    """The study as it is asked; both its findings and its facts are read off it."""

    photo: Photo

    def findings(self) -> Findings:
        photo, study = self.photo, self.photo.study
        answers = tuple(self._answers())
        asked = {split.name: len(split.about(photo.others).questions) for split in photo.splits}
        return {
            "answers": answers,
            "claims": tuple(self._claims(answers)),
            "missing": tuple(photo.missing),
            "details": {
                "calibrated_on": len(photo.first),
                "reported_on": len(photo.others),
                "questions": asked,
                "shift": photo.shift,
                "model": json.loads(json.dumps(photo.about)),
                "tuned": [choice.facts() for choice in photo.choices],
                "worse": list(self._worse()),
                "seconds": list(self._seconds()),
                "paper": [[row.method, row.accuracy, row.f1] for row in study.pope],
            },
        }

    def facts(self) -> Facts:
        photo, found = self.photo, Facts(seeds={"views": SEED})
        names = [*photo.first, *photo.others]
        found.data["photographs"] = f"{len(names)}, {photo.asker.photographs.fingerprint(names)}"
        found.data |= {f"questions, {split}": mark for split, mark in photo.fingerprints.items()}
        for row, generator in photo.rows():
            if row.views in ("generated", "shape"):
                augmenter, name = photo.context.augmenter(generator or "shape"), Path(generator).name or "shape"
                told = f"{augmenter.fingerprint} · {settings_line(settings_of(row).model_dump())}"
                found.generators[f"{name}, {row.label}" if generator else row.label] = told
        return found

    def _answers(self) -> Iterator[Answer]:
        photo = self.photo
        for split in (one.about(photo.others) for one in photo.splits):
            plain = to_answer(photo.score(split, Made(NONE), 0, "margin"), NONE.label, 0)
            yield plain.model_copy(update={"split": split.name, "row": NONE.id})
            for row, generator in photo.rows():
                for rule in RULES:
                    for k in photo.study.counts:
                        scored = photo.score(split, photo.made(row, generator, k, rule), k, rule)
                        where = {"split": split.name, "row": row.id, "generator": Path(generator).name, "rule": rule}
                        yield to_answer(scored, row.label, k).model_copy(update=where)

    def _claims(self, answers: tuple[Answer, ...]) -> Iterator[Claim]:
        """A statement is judged where model and photographs are the paper's; else what came out is told, no more."""
        study, photo = self.photo.study, self.photo
        whole = len(photo.first) + len(photo.others) == OFFICIAL_COUNTS[2]
        for spec in study.claims:
            instances = [
                Instance(
                    where=f"POPE {a.split}, {Path(study.model).name}, K = {a.k}",
                    generator=a.generator,
                    difference=a.gain,
                    verdict=verdict_of(a.gain),
                )
                for a in answers
                if (a.row, a.k, a.split, a.rule) == (spec.row, spec.k, spec.split, "vote") and a.gain is not None
            ]
            theirs = study.model == LLAVA and whole
            verdict = overall(instances) if theirs or not instances else "other model"
            yield Claim(says=spec.says, verdict=verdict, instances=tuple(instances))

    def _worse(self) -> Iterator[dict[str, Any]]:
        """All splits together, mean margins; the weights of tuned rows are those chosen on photographs as they are."""
        photo, worse = self.photo, self.photo.study.worse
        if worse is None:
            return
        split = joined(photo.splits).about(photo.others)
        rows = [(row, generator) for row, generator in photo.rows() if row.id in worse.rows]
        for kind, strength in [("", 0.0)] + [(kind, s) for kind, found in worse.kinds.items() for s in found]:
            base = photo.decided(split, Made(NONE), 0, "margin", (kind, strength))
            accuracy = measure(base, split.labels, split.resamples).accuracy
            of = {"kind": kind, "strength": strength, "accuracy": accuracy.value}
            for row, generator in rows:
                made = photo.made(row, generator, worse.k, "margin")
                found = photo.decided(split, made, worse.k, "margin", (kind, strength))
                gain = compare(found, base, split.labels, split.resamples)
                if gain is None or gain.accuracy.value is None:
                    continue
                low, high = gain.accuracy.low or 0.0, gain.accuracy.high or 0.0
                where = {"row": row.id, "label": row.label, "generator": Path(generator).name}
                drawn = made.drawn is not None
                yield {**of, **where, "drawn": drawn, "gain": gain.accuracy.value, "ci95": (high - low) / 2}

    def _seconds(self) -> Iterator[dict[str, Any]]:
        photo, k = self.photo, max(self.photo.study.counts)
        yield {"row": NONE.id, "label": NONE.label, "generator": "", "k": 0, "seconds": photo.seconds()}
        for row, generator in photo.rows():
            if row.views != TUNED:
                where = {"row": row.id, "label": row.label, "generator": Path(generator).name, "k": k}
                yield {**where, "seconds": photo.seconds(row, generator)}


def find(study: PopeStudy, context: StudyContext) -> Found:
    return Found(Photo(study, context))
