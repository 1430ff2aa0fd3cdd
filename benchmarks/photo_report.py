"""What is told of the training of photo and pocket, and of their settings: from cards and stored runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.photo_look import THUMBNAIL_WAYS
from benchmarks.speed_report import load
from onesdaug.generators.pocket.photo_training import chain
from onesdaug.generators.pocket.photographs import MEASURED as HELD_OUT
from onesdaug.generators.pocket.recipe import THUMBNAIL_STAGES

NAMES = {
    "protonet-convnet": "ProtoNet-ConvNet", "protonet-res12": "ProtoNet-Res12", "feat-res12": "FEAT-Res12",
    "cub-protonet-convnet": "ProtoNet-ConvNet, CUB",
}  # fmt: skip
JUDGED = [(name, shot) for name in ("protonet-convnet", "protonet-res12") for shot in (1, 5)]
PHOTO_COLUMNS = ("side", "mode", "noise_level", "guidance", "steps")


def made_in(card: Mapping[str, Any], size: str, held: str) -> str:
    """What a card tells of how it was made."""
    stages = card["stages"]
    pieces = [f"{name} {stages[name]['steps']:,}" for name in in_order(stages)]
    return (
        f"Released weights `{card['weights']}`, {size}: {card['seconds'] / 60:.0f} minutes of one H200, "
        f"steps: {', '.join(pieces)}. The autoencoder reaches {stages['decoder']['history'][-1]['psnr']:.1f} dB on "
        f"{held} that were held out. It guides itself, up to a scale of "
        f"{card['guidance']:g}: a guided step costs one forward."
    )


def photo_card(card: Mapping[str, Any], size: str) -> str:
    return made_in(card, size, f"{HELD_OUT} photographs of COCO")


def pocket_parts(found: Mapping[str, Any]) -> str:
    """What its encoder and its autoencoder are worth by themselves."""
    rows = found["rows"]["pocket"]
    own, trip = rows["encoder"], rows["round trip"]
    lost = " / ".join(f"{trip[f'protonet-res12 {shot}shot']:+.2f}" for shot in (1, 5))
    return (
        f"On {found['images']} images of validation classes the encoder has {own['1shot']:.1f} / {own['5shot']:.1f} % "
        "of its own (one and five shots, nearest mean by cosine, pictures enlarged as the generator shows them), and "
        f"the autoencoder's round trip gives ProtoNet-Res12 {lost} points (`{found['command']}`, "
        f"commit {found['commit']}, {found['machine']['device']})."
    )


def pocket_stages(card: Mapping[str, Any]) -> str:
    ways = {
        name: (way["mode"], f"{way['noise_level']:g}", f"{way['guidance']:g}") for name, way in THUMBNAIL_WAYS.items()
    }
    told = (
        "*Points over no views, K = 1, on the images of the first table of settings; two rows a guided step up to the "
        "polish, one after guidance. From the card.*"
    )
    return _by_stage(card, ("mode", "eta", "guidance"), ways, told)


def photo_stages(card: Mapping[str, Any]) -> str:
    stages = [card["stages"][name]["history"][-1] for name in _drawing(card)]
    asked = {key.split()[0] for found in stages for key in found if key.startswith("class-")}
    if not asked:  # nobody was asked
        return ""
    settings = sorted(asked, key=lambda way: [-float(number) for number in way.split("-")[1:]])
    told = (
        "*Points over no views, K = 1, class, 128 pixels, 8 steps, on the images of the next table; two rows a guided "
        "step up to the polish, one after guidance. From the card.*"
    )
    return _by_stage(card, ("eta", "guidance"), {way: tuple(way.split("-")[1:]) for way in settings}, told)


def _by_stage(card: Mapping[str, Any], columns: Sequence[str], ways: Mapping[str, Sequence[str]], told: str) -> str:
    """Markdown: what classifiers gained on validation classes at the end of each stage, by the same settings."""
    titles = ["after", "steps", *columns, *(f"{NAMES[name]}, {shot}-shot" for name, shot in JUDGED)]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for name in _drawing(card):
        stage = card["stages"][name]
        for way, cells in ways.items():
            gains = [f"{stage['history'][-1][f'{way} {judge} {shot}shot']:+.2f}" for judge, shot in JUDGED]
            lines.append("| " + " | ".join([name, f"{stage['steps']:,}", *cells, *gains]) + " |")
    return "\n".join([*lines, "", told])


def _drawing(card: Mapping[str, Any]) -> list[str]:
    """The stages of the denoiser."""
    return [name for name in in_order(card["stages"]) if chain(name) == "denoiser"]


def photo_validation(name: str, data: str) -> str:
    """Markdown: what classifiers gained on validation classes from each setting that was tried."""
    if (found := load(name)) is None:
        return ""
    gains = list(found["rows"][0]["gains"])
    titles = [f"{NAMES[name]}, {shot.removesuffix('shot')}-shot" for name, shot in map(str.split, gains)]
    lines = [
        "| pixels | mode | eta | guidance | steps | " + " | ".join(titles) + " |",
        "|---" * (5 + len(gains)) + "|",
    ]
    for row in found["rows"]:
        cells = [f"{row[key]:g}" if key != "mode" else row[key] for key in PHOTO_COLUMNS]
        line = "| " + " | ".join([*cells, *(f"{row['gains'][name]:+.2f}" for name in gains)]) + " |"
        lines += [line] if line not in lines else []
    told = (
        f"*Points over no views, K = {found['k']}, half of the weight on the original; {found['images']:,} images of "
        f"{data}'s validation classes ({found['data']}), {found['episodes']} episodes; weights after "
        f"{found['stage']}; `{found['command']}`, commit {found['commit']}, {found['machine']['device']}.*"
    )
    return "\n".join([*lines, "", told])


def by_weight(found: Mapping[str, Any]) -> str:
    """Markdown: what classifiers gained on validation classes by the original's weight."""
    rows = found["rows"]
    lines = [
        "| weight of the original | " + " | ".join(f"{row['original_weight']:g}" for row in rows) + " |",
        "|---" * (1 + len(rows)) + "|",
    ]
    for what in rows[0]["gains"]:
        gains = (row["gains"][what] for row in rows)
        cells = [f"{one['difference']:+.2f} ± {one['ci95']:.2f} ({one['relative']:+.1f} %)" for one in gains]
        name, shot = what.split()
        lines.append("| " + " | ".join([f"{NAMES[name]}, {shot.removesuffix('shot')}-shot", *cells]) + " |")
    told = (
        f"*Points over no views, K = {found['k']}, preset, on images of miniImageNet's validation classes "
        f"({found['data']}), {found['episodes']:,} episodes; {', '.join(f'`{one}`' for one in found['commands'])}, "
        f"commit {found['commit']}, {found['machine']['device']}.*"
    )
    return "\n".join([*lines, "", told])


def in_order(stages: Iterable[str]) -> list[str]:
    return sorted(stages, key=THUMBNAIL_STAGES.index)
