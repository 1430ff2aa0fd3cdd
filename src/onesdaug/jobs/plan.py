"""What a folder job will do: which files go in, in which order, and what their views will be called."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from onesdaug.common.files import LOCK, is_uri
from onesdaug.data.sources import EXTENSIONS, is_image
from onesdaug.errors import ConfigError
from onesdaug.jobs.archives import Part, is_archive, parts_of

_LONGEST_STEM = 200  # bytes; file systems allow 255 for the name, and "_view12.png" is still to come


def view_name(prefix: str, k: int) -> str:
    """What view k is called, of the input whose files begin with `prefix`."""
    return f"{prefix}_view{k}.png"


@dataclass(frozen=True)
class Item:
    """One input: the file, how the user named it, and the start of its views' paths inside OUT."""

    path: Path
    source: str
    prefix: str
    part: Part | None = None  # where it lies, if that is no file of this machine's

    def view(self, k: int) -> str:
        """Path of view k inside OUT."""
        return view_name(self.prefix, k)

    def tweak(self, k: int) -> str:
        """Path inside OUT of the tweaked image that view k was drawn from."""
        return f"{self.prefix}_tweak{k}.png"


@dataclass(frozen=True)
class Listing:
    """All inputs in order; `problems` are inputs that gave none (they count as failed), `notes` are remarks."""

    items: list[Item]
    problems: list[tuple[str, str]] = field(default_factory=list)  # (source, reason)
    notes: list[tuple[str, str]] = field(default_factory=list)  # (source, remark)


def identities(paths: Iterable[Path]) -> frozenset[tuple[int, int]]:
    """The files and links behind these names, however else they may be spelled; none for what is not there."""
    found = set()
    for path in paths:
        for look in (Path.lstat, Path.stat):
            with suppress(OSError):
                info = look(path)
                found.add((info.st_dev, info.st_ino))
    return frozenset(found)


def list_inputs(
    inputs: Sequence[str | Path], out: Path, *, recursive: bool = False, extensions: Iterable[str] = ()
) -> Listing:
    """Collect files and folders in the order given, folders in natural order; raises before any work is done."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"the output {out} is a file; give a folder with -o")
    if inputs and not any(is_uri(given) or os.path.lexists(given) for given in inputs):
        raise ConfigError(f"no such file or folder: {', '.join(str(given) for given in inputs)}")
    endings = _endings(extensions)
    found: dict[str, tuple[Path, str, Path]] = {}  # absolute path → file, source, place in OUT without the ending
    packed: dict[str, Part] = {}  # the same for what lies in archives and elsewhere
    listing = Listing([])
    for given, spelled in ((Path(one), str(one)) for one in inputs):
        if is_uri(spelled) or is_archive(spelled) or _only_archives(given, endings):
            for part, place in parts_of(spelled, endings, recursive, listing.problems):
                found.setdefault(part.source, (Path(part.where), part.source, Path(place)))
                packed.setdefault(part.source, part)
            continue
        if not given.is_dir():
            found.setdefault(os.path.abspath(given), (given, str(given), Path(given.name)))  # noqa: PTH100 (keeps links)
            continue
        if out.exists() and given.samefile(out):
            raise ConfigError(
                f"{given} is both input and output: views would become inputs of the next run. "
                f"Give another output folder, for example -o {given / 'views'}"
            )
        if given.resolve() in out.resolve().parents:
            listing.notes.append((str(out), f"output folder inside the input {given}: not taken as input"))
        before = len(listing.problems)
        files = sorted(_walk(given, out, recursive, endings, listing), key=lambda file: _natural(file, given))
        for file in files:
            found.setdefault(os.path.abspath(file), (file, str(file), file.relative_to(given)))  # noqa: PTH100
        if not files and len(listing.problems) == before:
            inside = "" if recursive else " (subfolders are searched with --recursive)"
            listing.problems.append((str(given), f"no {'/'.join(endings)} images in this folder{inside}"))
    listing.items.extend(replace(item, part=packed.get(item.source)) for item in _named(list(found.values())))
    return listing


def _only_archives(folder: Path, endings: tuple[str, ...]) -> bool:
    """Whether a folder is one of shards: archives, and no images beside them."""
    names = os.listdir(folder) if folder.is_dir() and os.access(folder, os.R_OK) else []  # noqa: PTH208
    return any(is_archive(n) for n in names) and not any(is_image(n, endings) for n in names)


def _endings(extensions: Iterable[str]) -> tuple[str, ...]:
    asked = [e.strip().lstrip(".").lower() for group in extensions for e in group.split(",")]
    return tuple(dict.fromkeys(e for e in asked if e)) or EXTENSIONS


def _walk(folder: Path, out: Path, recursive: bool, endings: tuple[str, ...], listing: Listing) -> Iterator[Path]:
    """Visible files with the right ending; folders that hold results of ours are left out, with a note."""

    def unreadable(error: OSError) -> None:
        listing.problems.append((str(error.filename), f"folder cannot be read: {error.strerror}"))

    skipped = out.resolve()
    seen: set[Path] = set()  # links are followed, but no folder is taken twice: a loop ends
    for place, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        here = Path(place)
        if here.resolve() in seen:
            folders.clear()
            continue
        seen.add(here.resolve())
        visible = [n for n in folders if not n.startswith(".") and (here / n).resolve() != skipped]
        folders.clear()
        for name in visible if recursive else ():
            if (here / name / LOCK).exists():
                listing.notes.append((str(here / name), "made by an earlier `augment`: not taken as input"))
            else:
                folders.append(name)
        # without --recursive a folder called x.png is an input that cannot be read, not one to pass over
        names = files if recursive else files + visible
        yield from (here / name for name in names if is_image(name, endings))


def _natural(file: Path, root: Path) -> tuple[list[list[tuple[str, int]]], str]:
    """img2 before img10, folder by folder; the spelling decides between equals, so the order is total."""
    relative = file.relative_to(root)
    parts = [
        [(text.casefold(), int(number or 0)) for text, number in re.findall(r"([^0-9]*)([0-9]*)", part)]
        for part in relative.parts
    ]
    return parts, str(relative)


def _named(found: list[tuple[Path, str, Path]]) -> list[Item]:
    """Give every file the start of its output names: the stem, or stem_ending where stems meet."""
    spelled_out: set[int] = set()
    while True:
        groups: dict[str, list[int]] = defaultdict(list)
        for index, (_, _, place) in enumerate(found):
            groups[_prefix(place, index in spelled_out)].append(index)
        clash = {index for group in groups.values() if len(group) > 1 for index in group}
        if clash <= spelled_out:
            break
        spelled_out |= clash
    for prefix, group in groups.items():
        if len(group) > 1:
            first, second = found[group[0]][1], found[group[1]][1]
            raise ConfigError(
                f"{first} and {second} would both be written to {prefix}_view1.png; "
                "run them with two output folders, or rename one"
            )
    return [
        Item(path, source, _prefix(place, index in spelled_out)) for index, (path, source, place) in enumerate(found)
    ]


def _prefix(place: Path, with_ending: bool) -> str:
    stem = f"{place.stem}_{place.suffix[1:]}" if with_ending and place.suffix else place.stem
    if len(raw := os.fsencode(stem)) > _LONGEST_STEM:
        tail = hashlib.blake2b(raw, digest_size=4).hexdigest()
        stem = f"{raw[:_LONGEST_STEM].decode(errors='ignore')}~{tail}"
    return (place.parent / stem).as_posix()
