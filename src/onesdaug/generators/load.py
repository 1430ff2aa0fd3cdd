"""From the name of a generator to the generator: a registered one, a folder or hub id, or one of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeGuard

import torch

from onesdaug.common.devices import pick_device
from onesdaug.common.options import IP_REPO
from onesdaug.common.own import calling, made
from onesdaug.common.progress import log
from onesdaug.common.registry import GENERATORS
from onesdaug.encoders.checkpoint import Kind, read_card
from onesdaug.errors import ConfigError, OnesdaugError, WeightsMissing
from onesdaug.generators.base import Generator
from onesdaug.generators.speed import Compile, check_compile, start_workers

# what can be asked of a generator when it is loaded, with the value that asks for nothing; each declares its own
DEFAULTS: dict[str, Any] = {
    "dtype": "auto", "side": None, "decoder": None, "ip_adapter": True, "ip_repo": IP_REPO, "ip_weights": None,
    "vae_tiling": False, "vae_slicing": False,
}  # fmt: skip


def find_generator(source: str | Path | Generator) -> Any:
    """The class behind a name or a folder or hub id; of `module:object` the object, a class, instance or factory."""
    if isinstance(source, Generator):
        return source
    text = str(source)
    folder = Path(text).expanduser()
    if text in GENERATORS or (":" in text and not folder.exists()):
        return GENERATORS.get(text)
    for name in reversed(GENERATORS.names()):  # other packages are asked before us
        try:
            kind = GENERATORS.get(name)
        except ConfigError as error:  # someone else's plug-in is broken: no reason not to ask the others
            log.warning("%s", error)
            continue
        if _is_class(kind) and kind.recognises(text):
            return kind.kind_of(text)
    if folder.is_dir() or folder.is_absolute() or text.startswith((".", "~")):
        there = (
            f"holds nothing that a generator here recognises{_why(folder)}" if folder.is_dir() else "does not exist"
        )
        raise WeightsMissing(
            f"the folder {text} {there}: want a model in diffusers format, or what `onesdaug generator train` wrote"
        )
    GENERATORS.check(text)
    raise AssertionError("unreachable: `check` knows no other name")


def has_weights(name: str) -> bool:
    """Whether a registered generator has brought its weights along: a package may be there before they are."""
    if name not in GENERATORS:
        return False
    found = GENERATORS.get(name)
    return _is_class(found) and found.weights is not None and (found.weights / "card.json").is_file()


def _why(folder: Path) -> str:
    """What is wrong with its card, if that is why."""
    try:
        if (folder / "card.json").is_file():
            read_card(folder, Kind)
        return ""
    except OnesdaugError as error:
        return f" ({error})"


def load_generator(
    source: str | Path | Generator, *, device: str | torch.device = "auto", compile: Compile = "off", **options: Any
) -> Generator | None:
    """The generator, compiled as asked; None for `shape`. Options: `DEFAULTS`, or its own."""
    check_compile(compile, pick_device(device))
    found = find_generator(source)
    given = {name: value for name, value in options.items() if value != DEFAULTS.get(name)}
    takes = found.options if _is_class(found) else ()
    if "ip_adapter" not in takes:
        given.pop("ip_adapter", None)  # where there is no adapter to leave out, the operator asks for no condition
    if left := [name for name in given if name not in takes]:
        raise ConfigError(
            f"{source} takes no {', '.join(left)}; leave that out (its own options: {', '.join(takes) or 'none'})"
        )
    start_workers(compile, pick_device(device))
    with calling(f"making the generator {source}", found):
        drawn = (
            found.from_pretrained(source, device=device, **given) if _is_class(found) else _own(found, source, device)
        )
    if drawn is not None:
        drawn.accelerate(compile)
        drawn.origin = str(source), {"device": str(drawn.device), "compile": compile, **given}
    elif compile != "off":
        raise ConfigError(f"{source} has no network to compile; leave compile off")
    return drawn


def _own(found: Any, source: str | Path | Generator, device: str | torch.device) -> Generator:
    """A user's own instance, or what a factory gives; it stays on the device it chose, unless one is named."""
    drawn = made(found, f"generator {source}")
    if not isinstance(drawn, Generator):
        raise ConfigError(f"{source} gives {type(drawn).__name__}; want a subclass of onesdaug.Generator, or one made")
    return drawn if device == "auto" else drawn.to_device(pick_device(device))


def default_preset(source: str | Path | Generator) -> str:
    """The settings with which studies, banks and benchmarks take a generator when none are named."""
    return _declared(source).default_preset


def faithful_preset(source: str | Path | Generator) -> str:
    """The settings that draw what the picture shows: what `Augmenter` and `onesdaug augment` take unless told."""
    declared = _declared(source)
    return declared.faithful_preset or declared.default_preset


def _declared(source: str | Path | Generator) -> Generator | type[Generator]:
    """Who says so: the generator or its class; one that is not there tells when it is loaded."""
    try:
        found = find_generator(source)
    except OnesdaugError:
        return Generator
    return found if isinstance(found, Generator) or _is_class(found) else Generator


def _is_class(found: Any) -> TypeGuard[type[Generator]]:
    return isinstance(found, type) and issubclass(found, Generator)
