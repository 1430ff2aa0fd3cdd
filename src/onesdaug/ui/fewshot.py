"""The tab Few-shot: a task of a few images, answered with and without views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from onesdaug.augment.config import preset
from onesdaug.augment.operator import Row, default_preset
from onesdaug.common.progress import progress
from onesdaug.errors import ConfigError
from onesdaug.fewshot.heads import Head
from onesdaug.fewshot.heads.base import cosine, squared_euclidean
from onesdaug.report.figures import Chart, drawn, look
from onesdaug.scale.serve.tasks import Task, Tasks, combined
from onesdaug.ui import html
from onesdaug.ui.networks import Networks
from onesdaug.ui.photos import check_views, opened_photo
from onesdaug.ui.work import Work

_MARKS = ("g0", "g1", "g2", "g3", "g4", "g5")


@dataclass(frozen=True)
class Asked:
    """A task as it was given: files of each class, files to ask about, and how views are used."""

    classes: Mapping[str, Sequence[str]]
    queries: Sequence[str]
    k: int = 3
    weight: float = 0.5
    seed: int = 0
    model: str = ""  # else the page's own


@dataclass(frozen=True)
class Query:
    """An image that was asked about: the answers, and how far it and its views lie from the prototypes."""

    name: str
    pictures: tuple[Image.Image, ...]  # the image, then its views
    plain: dict[str, Any]  # `Tasks.classify`: label, probabilities
    with_views: dict[str, Any]
    distances: Tensor  # (1 + K, classes)


class Spot(NamedTuple):
    """A feature on the map: of a support image, of one of its views, a prototype, a query or a view of it."""

    x: float
    y: float
    what: str
    label: str  # its class; empty for queries
    name: str


@dataclass(frozen=True)
class Answered:
    labels: tuple[str, ...]
    queries: tuple[Query, ...] = ()
    spots: tuple[Spot, ...] = ()


def checked(asked: Asked, most: int) -> None:
    """Say what is missing before anything is drawn."""
    empty = [name for name, files in asked.classes.items() if not files]
    if len(asked.classes) < 2 or empty:
        missing = f" (none for {', '.join(empty)})" if empty else ""
        raise ConfigError(f"Name two classes or more, and give each at least one image{missing}.")
    if not asked.queries:
        raise ConfigError("Give at least one query image to classify.")
    count = len(asked.queries) + sum(len(files) for files in asked.classes.values())
    if count > most:
        raise ConfigError(f"{count} images are too many for one task here; the page takes up to {most}.")


def named(names: Sequence[str | None], files: Sequence[Sequence[str] | None]) -> dict[str, list[str]]:
    """The classes that were filled in; two of one name are a mistake."""
    given = [((name or "").strip(), list(of or ())) for name, of in zip(names, files, strict=True)]
    found = {name or f"class {place + 1}": of for place, (name, of) in enumerate(given) if name or of}
    if len(found) < sum(bool(name or of) for name, of in given):
        raise ConfigError("Two classes have the same name; give each its own.")
    return found


def answer(networks: Networks, asked: Asked, work: Work[Answered]) -> Answered:
    """Draw the views of all images, embed them, and answer each query as soon as it is known."""
    check_views(asked.k, networks.settings)
    checked(asked, networks.settings.max_images)
    settings = networks.settings
    support = {name: [_opened(file, settings) for file in files] for name, files in asked.classes.items()}
    queries = [_opened(file, settings) for file in asked.queries]
    work.tell(None, "Loading the networks")
    labels = tuple(support)
    found = Answered(labels)
    total = len(queries) + sum(map(len, support.values()))
    with progress(total, "images", "drawing views", parts=asked.k) as bar:

        def seen(one: tuple[str, Image.Image]) -> tuple[tuple[Image.Image, ...], Tensor]:
            pictures = _with_views(networks, one[1], asked, work)
            features = networks.look(pictures, work.waiting)
            bar.advance()
            return pictures, features

        known = {name: [seen(one)[1] for one in of] for name, of in support.items()}
        judge = _Judge(networks.loaded().head, labels, list(known.values()), asked)
        asked_about = []
        for one in queries:
            pictures, features = seen(one)
            asked_about.append((one[0], features))
            found = replace(found, queries=(*found.queries, judge.query(one[0], pictures, features)))
            work.show(found)
    return replace(found, spots=judge.map(known, asked_about))


def _opened(file: str, settings: Any) -> tuple[str, Image.Image]:
    return Path(file).name, opened_photo(file, settings)


def _with_views(networks: Networks, image: Image.Image, asked: Asked, work: Work[Answered]) -> tuple[Image.Image, ...]:
    """The image and its views, with the settings that are tuned for accuracy."""
    model = asked.model or networks.settings.model
    rows = [Row(image, number, asked.seed) for number in range(1, asked.k + 1)]
    views = networks.draw(model, preset(default_preset(model)), rows, work.waiting)
    return image, *(view.image for view in views)


class _Judge:
    """Answers as `onesdaug serve` does. A class is the mean of its images, so that classes may differ in number."""

    def __init__(self, head: Head, labels: tuple[str, ...], support: Sequence[Sequence[Tensor]], asked: Asked) -> None:
        self.tasks = Tasks("protonet", 0)
        self.tasks.head = head
        self.cosine = getattr(head, "metric", "") == "cosine"
        plain = torch.stack([torch.stack([one[0] for one in of]).mean(0) for of in support])
        weighed = [torch.stack([combined(one.numpy(), asked.weight) for one in of]).mean(0) for of in support]
        self.prototypes = torch.stack(weighed)
        self.plain = Task(labels, plain[:, None], asked.seed, 1.0)
        self.task = Task(labels, self.prototypes[:, None], asked.seed, asked.weight)

    def query(self, name: str, pictures: tuple[Image.Image, ...], features: Tensor) -> Query:
        plain = self.tasks.classify(self.plain, features[:1].numpy())
        with_views = self.tasks.classify(self.task, features.numpy())
        return Query(name, pictures, plain, with_views, self.distances(features))

    def distances(self, features: Tensor) -> Tensor:
        """As the head measures: 1 - cosine, or Euclidean."""
        rows, centres = features[None], self.prototypes[None]
        return 1 - cosine(rows, centres)[0] if self.cosine else squared_euclidean(rows, centres)[0].clamp(min=0).sqrt()

    def map(
        self, known: Mapping[str, Sequence[Tensor]], asked_about: Sequence[tuple[str, Tensor]]
    ) -> tuple[Spot, ...]:
        """All features in the plane in which they differ most (their first two principal components)."""
        rows: list[Tensor] = []
        about: list[tuple[str, str, str]] = []
        for place, (label, of) in enumerate(known.items()):
            rows.append(self.prototypes[place])
            about.append(("prototype", label, f"prototype of {label}"))
            for number, one in enumerate(of, start=1):
                rows += [*one]
                about.append(("support", label, f"{label}, image {number}"))
                about += [("view", label, f"{label}, image {number}, view {k}") for k in range(1, len(one))]
        for name, one in asked_about:
            rows += [*one]
            about.append(("query", "", name))
            about += [("query view", "", f"{name}, view {k}") for k in range(1, len(one))]
        x = torch.stack(rows).double()
        x = normalize(x, dim=1) if self.cosine else x
        x = x - x.mean(0)
        plane = x @ torch.linalg.svd(x, full_matrices=False).Vh[:2].T
        return tuple(Spot(float(at[0]), float(at[1]), *words) for at, words in zip(plane, about, strict=True))


@drawn
def map_plot(labels: Sequence[str], spots: Sequence[Spot]) -> Chart | None:
    """Classes by colour; prototypes are diamonds, queries triangles, and views are hollow."""
    if not spots:
        return None
    chart = Chart("Map of the embeddings", 260, "first principal component", "second principal component")
    colours = {label: _MARKS[place % len(_MARKS)] for place, label in enumerate(labels)}
    for label in (*labels, ""):
        mark, mine = colours.get(label, "oracle"), [spot for spot in spots if spot.label == label]
        if mine:
            chart.keys[label or "query"] = look(mark, "o" if label else "^", line=False)
        for what, shape, small in (
            ("view", "o", True), ("query view", "^", True), ("support", "o", False), ("query", "^", False),
            ("prototype", "D", False),
        ):  # fmt: skip
            drawn_here = [spot for spot in mine if spot.what == what]
            if drawn_here:
                style = look(mark, shape, second=small, line=False)
                style |= {"markersize": 6} if small else {}
                x, y = [spot.x for spot in drawn_here], [spot.y for spot in drawn_here]
                chart.dots(style, x, y, [spot.name for spot in drawn_here])
    return chart


def shown_answers(found: Answered) -> str:
    """A card for each query: the picture, both answers, and how far it and each view lie from the prototypes."""
    return "".join(_shown(query, found.labels, place == 0) for place, query in enumerate(found.queries))


def _shown(query: Query, labels: Sequence[str], opened: bool) -> str:
    plain, with_views = query.plain, query.with_views
    bars = [
        html.shares(labels, [told["probabilities"][label] for label in labels], title)
        for told, title in (
            (plain, f"Without views: {plain['label']}"),
            (with_views, f"With views: {with_views['label']}"),
        )
    ]
    rows, nearest = [], []
    for number, distances in enumerate(query.distances.tolist()):
        rows.append((f"view {number}" if number else "original", [f"{value:.3f}" for value in distances]))
        nearest.append(distances.index(min(distances)))
    views = [html.figure(picture, f"view {n}") for n, picture in enumerate(query.pictures[1:], start=1)]
    more = html.strip(views, "small") + html.table(["Distance to", *labels], rows, nearest)
    asked = html.figure(query.pictures[0], query.name)
    body = (
        f'<div class="asked">{asked}<div class="both">{"".join(bars)}</div></div>'
        f"<details{' open' * opened}><summary>Its views, and how far they lie from the prototypes</summary>{more}"
        "</details>"
    )
    return f'<section class="card">{body}</section>'


def shown_map(found: Answered) -> str:
    note = "Round: support images. Diamonds: prototypes. Triangles: queries. Hollow: their views."
    return html.plot("Map of the embeddings", map_plot(found.labels, found.spots), note) if found.spots else ""
