"""What is told of the training of photo and pocket, and of their settings: from cards and stored runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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


POCKET_WAYS = {"self-0.7": ("self", 0.7, 4), "class-0.85": ("class", 0.85, 8), "class-1": ("class", 1.0, 8)}


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


def pocket_stages(card: Mapping[str, Any]) -> str:
    """Markdown: what classifiers gained on validation classes at the end of each stage, by the same settings."""
    lines = [
        "| after | steps | mode | eta | guidance | "
        + " | ".join(f"{NAMES[name]}, {shot}-shot" for name, shot in JUDGED)
        + " |",
        "|---" * (5 + len(JUDGED)) + "|",
    ]
    for name in (name for name in in_order(card["stages"]) if chain(name) == "denoiser"):
        found = card["stages"][name]["history"][-1]
        for way, (mode, level, scale) in POCKET_WAYS.items():
            gains = " | ".join(f"{found[f'{way} {judge} {shot}shot']:+.2f}" for judge, shot in JUDGED)
            lines.append(f"| {name} | {card['stages'][name]['steps']:,} | {mode} | {level:g} | {scale} | {gains} |")
    told = (
        "*Points over no views, K = 1, on the images of the first table of settings; two rows a guided step up to the "
        "polish, one after guidance. From the card.*"
    )
    return "\n".join([*lines, "", told])


def photo_stages(card: Mapping[str, Any]) -> str:
    """Markdown: what classifiers gained on validation classes at the end of each stage, by the same settings."""
    last = {
        name: card["stages"][name]["history"][-1] for name in in_order(card["stages"]) if chain(name) == "denoiser"
    }
    asked = {key.split()[0] for found in last.values() for key in found if key.startswith("class-")}
    if not asked:  # nobody was asked
        return ""
    settings = sorted(asked, key=lambda way: [-float(number) for number in way.split("-")[1:]])
    lines = [
        "| after | steps | eta | guidance | "
        + " | ".join(f"{NAMES[name]}, {shot}-shot" for name, shot in JUDGED)
        + " |",
        "|---" * (4 + len(JUDGED)) + "|",
    ]
    for name in last:
        for way in settings:
            _, level, scale = way.split("-")
            gains = " | ".join(f"{last[name][f'{way} {judge} {shot}shot']:+.2f}" for judge, shot in JUDGED)
            lines.append(f"| {name} | {card['stages'][name]['steps']:,} | {level} | {scale} | {gains} |")
    told = (
        "*Points over no views, K = 1, class, 128 pixels, 8 steps, on the images of the next table; two rows a guided "
        "step up to the polish, one after guidance. From the card.*"
    )
    return "\n".join([*lines, "", told])


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
