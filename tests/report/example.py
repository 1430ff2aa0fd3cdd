"""Results of every study, well-shaped and made up: the studies' own rows, values and claims, random accuracies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onesdaug.report.records import (
    Answer,
    Cell,
    Claim,
    Gain,
    Gaps,
    Histogram,
    Instance,
    Paper,
    Sheet,
    Simulation,
    Spread,
    Theory,
    Timing,
    Verdict,
)
from onesdaug.report.result import Made, StudyResult
from onesdaug.statistics import Summary, mean_ci, paired
from onesdaug.studies.kinds.fewshot import KINDS, FewshotStudy
from onesdaug.studies.spec import Study, load_study
from tests.conftest import make_image

EPISODES = 400
GENERATORS = {"pocket": -0.03, "pocket-imagenet": 0.025}
DELTAS = {"crop-flip": 0.002, "shape": -0.005, "oracle": 0.12, "no-condition": -0.08, "noise-0.2": 0.0}
MADE = Made(
    command="onesdaug study run main grid ablation theory",
    commit="27f6dea0a1b2",
    date="2026-11-15",
    machine={"device": "NVIDIA H200", "torch": "2.11.0", "python": "3.12.3"},
    seconds={"images": 8.1, "views and features": 212.4, "episodes": 31.2},
    seeds={"views": 0, "episodes": 0},
    data={"miniimagenet test": "df321420a19a99f6, 20 classes, 12,000 images"},
    encoders={"FEAT-Res12": "e5fbab992ce058ed-f2cae47d"},
    generators={
        "pocket": "abcd1234 · noise_level 0.85 · guidance 16 · steps 12 · solver dpm++ · mode class",
        "pocket-imagenet": "beef5678 · noise_level 1 · guidance 16 · steps 8 · solver dpm++ · mode class",
    },
)
MISSING = (
    "tieredimagenet: not under ONESDAUG_DATA; to get it: https://github.com/renmengye/few-shot-ssl-public (12.9 GB)",
    "sd15: weights are not on this machine; with a network: `hf download stable-diffusion-v1-5/stable-diffusion-v1-5`",
)
Scores = NDArray[np.float64]


def fewshot(name: str, data: tuple[str, ...] = ("miniimagenet",)) -> StudyResult:
    study, rng = load_study(name), np.random.default_rng(len(name))
    cells = tuple(
        cell
        for where in data
        for n, classifier in enumerate(study.classifiers)
        for shot in study.shots
        for cell in _panel(study, rng, where, classifier.name, shot, 0.6 + 0.02 * n + 0.16 * (shot > 1))
    )
    claims = tuple(_claim(spec.says, rng, place) for place, spec in enumerate(study.claims))
    return StudyResult(
        study=name,
        title=study.title,
        paper=study.paper,
        about=study.about,
        made=MADE,
        cells=cells,
        literature=study.literature,
        claims=claims,
        missing=MISSING,
    )


def _panel(
    study: FewshotStudy, rng: np.random.Generator, data: str, classifier: str, shot: int, level: float
) -> Iterator[Cell]:
    def paper(row: str, support: int = 0, query: int = 0) -> Paper | None:
        return study.paper_value(data, classifier, shot, row, support, query)

    where = {"data": data, "classifier": classifier, "shot": shot}
    base = np.clip(rng.normal(level, 0.1, EPISODES), 0, 1)
    tta: dict[tuple[int, int], Scores] = {}
    yield Cell(**where, row="none", label="no views", kind="baseline", accuracy=mean_ci(base), paper=paper("none"))
    for row in study.rows:
        for generator in GENERATORS if row.views in ("generated", "round-trip", "tuned") else ("",):
            for support, query in row.uses or study.uses:
                delta = DELTAS.get(row.id, 0.0) + GENERATORS.get(generator, 0.0)
                mine = np.clip(base + rng.normal(delta * (1 + 0.2 * (support + query)), 0.05, EPISODES), 0, 1)
                if row.id == "crop-flip":
                    tta[support, query] = mine
                other = tta.get((support, query))
                kind = KINDS.get(row.views, "generative" if row.views == "tuned" else "traditional")
                level = row.config.get("noise_level", 1.0 if generator == "pocket-imagenet" else 0.85)
                alone = row.label == "1S-DAug" and level == 1
                yield Cell(
                    **where,
                    row=row.id,
                    label="condition alone" if alone else row.label,
                    noise_level=level if row.views == "generated" else None,
                    kind=kind,
                    generator=generator,
                    support=support,
                    query=query,
                    original_weight=row.original_weight,
                    accuracy=mean_ci(mine),
                    gain=paired(mine, base),
                    over_tta=None if other is None or row.id == "crop-flip" else paired(mine, other),
                    paper=paper(row.id, support, query),
                )


def _claim(says: str, rng: np.random.Generator, place: int) -> Claim:
    """In turn: agrees, differs, mixed, no clear difference."""
    centres = ((0.03, 0.02), (-0.03, -0.02), (0.03, -0.02), (0.0, 0.0))[place % 4]
    overall = ("agrees", "differs", "mixed", "no clear difference")[place % 4]
    instances = []
    for generator, centre in zip(GENERATORS, centres, strict=True):
        other = rng.normal(0.6, 0.1, EPISODES)
        difference = paired(other + rng.normal(centre, 0.05 if centre else 0.4, EPISODES), other)
        verdict: Verdict = "no clear difference" if not centre else "agrees" if centre > 0 else "differs"
        where = "miniimagenet, FEAT-Res12, 1-shot"
        instances.append(Instance(where=where, generator=generator, difference=difference, verdict=verdict))
    return Claim(says=says, verdict=overall, instances=tuple(instances))  # type: ignore[arg-type]


def _summary(mean: float) -> Summary:
    return Summary(mean, abs(mean) * 0.05 + 0.001, EPISODES)


def theory(classes: int = 20) -> StudyResult:
    study, rng = load_study("theory"), np.random.default_rng(7)
    entries = []
    for place, classifier in enumerate(study.classifiers):
        for generator, delta in GENERATORS.items():
            before = rng.gamma(30, 0.5, 4000)
            after, high = before * rng.uniform(0.7, 0.95, 4000), float(before.max())
            names = [f"n{n:08d}" if n % 3 else f"{n:03d}.Black_footed_Albatross_of_the_south" for n in range(classes)]
            base = rng.normal(0.6, 0.1, EPISODES)
            gap, diversity = 0.01 * place - delta, -0.08 - 0.01 * place
            entries.append(
                Theory(
                    data="miniimagenet",
                    classifier=classifier.name,
                    generator=generator,
                    label="condition alone" if generator == "pocket-imagenet" else "1S-DAug",
                    noise_level=1.0 if generator == "pocket-imagenet" else 0.85,
                    shot=1,
                    k=3,
                    gain=paired(base + rng.normal(delta, 0.05, EPISODES), base),
                    lines=(
                        "Views helped: 5-way 1-shot accuracy 62.18 % without, 65.47 % with 3.",
                        "They repaired 9.1 %.",
                    ),
                    original_accuracy=0.62,
                    view_accuracy=0.58,
                    disagreement=0.31,
                    accuracy_gap=_summary(gap),
                    diversity=_summary(diversity),
                    risk_difference=_summary(gap + diversity),
                    residual=1.2e-16,
                    radius_before=20.1,
                    radius_after=17.3,
                    classes_shrunk=0.95,
                    images_shrunk=0.88,
                    complexity_before=0.1234,
                    complexity_after=0.1012,
                    bound_before=0.2101,
                    bound_after=0.1734,
                    gap=Gaps(
                        before=0.81,
                        after=0.62,
                        complexity_before=1.4,
                        complexity_after=1.1,
                        radius_before=2.2,
                        radius_after=1.8,
                    ),
                    cosine=_summary(0.7),
                    agreement=_summary(0.6),
                    original_agreement=_summary(0.72),
                    view_diversity=_summary(0.2),
                    classes=tuple(Gain(name=n, mean=float(rng.normal(0.02, 0.03)), ci95=0.01) for n in names),
                    splits=(
                        Gain(name="above the mean cosine to the original (0.70)", mean=0.05, ci95=0.004),
                        Gain(name="below the mean cosine to the original (0.70)", mean=0.01, ci95=0.004),
                    ),
                    norms=Histogram(
                        low=0.0,
                        high=high,
                        before=tuple(np.histogram(before, 40, (0, high))[0].tolist()),
                        after=tuple(np.histogram(after, 40, (0, high))[0].tolist()),
                    ),
                )
            )
    drawn = (
        ("gaussian", "independent", 0.98, 1.0),
        ("pareto", "independent", 0.53, 0.28),
        ("one-long", "exchangeable", 0.5, 0.25),
        ("copies", "exchangeable", 0.0, 0.0),
        ("longer", "violated", 0.0, 0.0),
    )
    simulations = tuple(
        Simulation(distribution=n, assumption=a, note="a remark", views=k, probability=p, ci95=0.015, trials=4000)
        for n, a, *both in drawn
        for k, p in zip((1, 3), both, strict=True)
    )
    return _result(study, theory=tuple(entries), simulations=simulations)


def _result(study: Study, **parts: object) -> StudyResult:
    shared = {"study": study.name, "title": study.title, "paper": study.paper, "about": study.about, "made": MADE}
    return StudyResult(**shared, **parts)  # type: ignore[arg-type]


def _spread(median: float) -> Spread:
    return Spread(median=median, low=0.9 * median, high=1.2 * median, calls=25)


def efficiency(tag: str = "", factor: float = 1.0) -> StudyResult:
    study = load_study("efficiency")
    timings = tuple(
        Timing(
            generator=generator,
            solver=solver,
            steps=steps,
            noise_level=level,
            steps_run=max(1, round(steps * level)),
            eager=_spread(factor * (0.004 + 0.0011 * level * steps * (1 + 0.4 * place))),
            graphs=None if tag else _spread(factor * 0.0004 * level * steps),
            batch=64,
            batch_seconds=factor * 0.00005 * level * steps,
            peak_memory_mb=812.0 + 40 * place,
            paper=study.speed.paper.get(f"{solver} {level:g}"),
        )
        for place, generator in enumerate(GENERATORS)
        for solver, steps in study.speed.solvers
        for level in study.speed.noise_levels
    )
    return _result(study, timings=timings, tag=tag)


def qualitative() -> StudyResult:
    study = load_study("qualitative")
    sheets = tuple(
        Sheet(title=f"{figure.title} (pocket)", caption=figure.shows, file=f"qualitative-{n}.webp")
        for n, figure in enumerate(study.figures)
    )
    return _result(study, sheets=sheets)


def pope() -> StudyResult:
    study = load_study("pope")
    base, more = Summary(0.788, 0.015, 3000), Summary(0.801, 0.015, 3000)
    gain = paired(np.r_[np.ones(520), np.zeros(80)], np.r_[np.ones(500), np.zeros(100)])
    plain = {"f1": 0.774, "precision": 0.8, "recall": 0.75, "yes_ratio": 0.45, "unknown": 3}
    first = Answer(
        method="LLaVA-1.5-7B", decoding="greedy", k=0, accuracy=base, paper_accuracy=Paper(value=78.83), **plain
    )
    second = Answer(method="LLaVA-1.5-7B + 1S-DAug-2", decoding="greedy", k=2, accuracy=more, gain=gain, **plain)
    return _result(study, answers=(first, second), missing=("COCO val2014 images: `onesdaug pope --help` says how",))


def results() -> list[StudyResult]:
    """All of them, in the order of the paper."""
    return [
        fewshot("main"),
        fewshot("fine-grained", ("cub",)),
        fewshot("transformers", ("miniimagenet", "cub")),
        pope(),
        fewshot("grid"),
        fewshot("ablation"),
        efficiency(),
        efficiency("cpu", 30.0),
        qualitative(),
        theory(),
    ]


def write(folder: Path) -> list[StudyResult]:
    """The files as a run leaves them, with their pictures."""
    found = results()
    for result in found:
        result.save(folder)
        for n, sheet in enumerate(result.sheets):
            make_image(n, (1400, 600)).save(folder / sheet.file)
    return found
