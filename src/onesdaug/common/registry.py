"""Plug-ins by name: one small registry for each kind of thing that can be added from outside.

A name is ours, is registered in the running process (`register`), or comes from an entry point of an installed
package. `package.module:object` and `path/to/file.py:Object` are taken wherever a name is. Ours are written as
"module:object", so that listing names, as help texts do, imports nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from onesdaug.common.own import calling, did_you_mean, module_of, reason
from onesdaug.errors import ConfigError, WeightsMissing

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
_OWN_FILE = "onesdaug_file_"  # begins the names of modules that are a user's file


class Registry:
    """The things of one kind, by name.

    kind: what one of them is called in messages; group: the entry points that add to it.
    ours: name → the thing, or "module:object" to be imported when it is asked for.
    also: what is taken beside names, in words; elsewhere: name → how to install it, where another package brings it.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        ours: Mapping[str, Any],
        also: str = "",
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        self.kind, self.group, self.also, self.elsewhere = kind, group, also, dict(elsewhere or {})
        self._here: dict[str, Any] = dict(ours)

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator: `@HEADS.register("mine")` over a class or function, for the running process."""

        def add(thing: T) -> T:
            # running a notebook's cell again replaces what it made before
            if name in self and _origin(self._here.get(name)) != _origin(thing):
                raise ConfigError(
                    f"{self.kind} {name!r} is registered twice: by {self._owners(name)[0]} and by {_origin(thing)}"
                )
            self._here[name] = thing
            return thing

        return add

    def names(self) -> tuple[str, ...]:
        """Everything that is known here, ours first; imports none of it."""
        return tuple(dict.fromkeys((*self._here, *self._installed)))

    def choices(self) -> str:
        """Everything that is taken, for help texts and messages."""
        return ", ".join(
            (*self.names(), *filter(None, [self.also]), "or your own as package.module:object or file.py:object")
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._here or name in self._installed

    def check(self, spec: str) -> None:
        """Say at once that a name is not known; something written `module:object` is found out when it is loaded."""
        if spec in self or ":" in spec:
            return
        if spec in self.elsewhere:
            raise WeightsMissing(
                f"{self.kind} {spec!r} is in a package of its own that is not installed; get it with\n"
                f"  {self.elsewhere[spec]}"
            )
        if spec.endswith(".py"):
            raise ConfigError(f"{self.kind} {spec!r}: name the object in the file too, {spec}:Name (docs/extend.md)")
        raise ConfigError(
            f"there is no {self.kind} {spec!r}{did_you_mean(spec, self.names())}; known are {self.choices()} "
            "(docs/extend.md)"
        )

    def get(self, spec: str) -> Any:
        """The thing behind a name, or behind `package.module:object` or `path/to/file.py:Object`."""
        self.check(spec)
        if spec not in self:
            return load_object(spec, self.kind)
        if len(owners := self._owners(spec)) > 1:
            raise ConfigError(
                f"{self.kind} {spec!r} is registered twice: by {' and by '.join(owners)}; remove one of them"
            )
        if spec in self._here:
            thing = self._here[spec]
            return load_object(thing, self.kind) if isinstance(thing, str) else thing
        try:
            return self._installed[spec][0].load()
        except Exception as error:  # whatever someone else's package throws
            raise ConfigError(f"{self.kind} {spec!r} of {owners[0]} cannot be loaded: {reason(error)}") from error

    @cached_property
    def _installed(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in _entry_points().select(group=self.group):
            found.setdefault(point.name, []).append(point)
        return found

    def _owners(self, name: str) -> list[str]:
        here = [_origin(self._here[name])] if name in self._here else []
        return here + [
            f"the package {point.dist.name if point.dist else '?'} ({point.value})"
            for point in self._installed.get(name, ())
        ]


@cache
def _entry_points() -> Any:
    from importlib.metadata import entry_points

    return entry_points()  # of all groups: finding them takes longer than choosing


def load_object(spec: str, what: str = "object") -> Any:
    """The object called `package.module:object` or `path/to/file.py:Object`."""
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise ConfigError(f"{what} {spec!r}: write package.module:object or path/to/file.py:object")
    with calling(f"{what} {spec!r}", told=" cannot be loaded: "):
        thing: Any = _file(str(Path(where).expanduser().resolve())) if where.endswith(".py") else _module(where)
        for part in name.split("."):
            if not hasattr(thing, part):
                raise AttributeError(f"{where} has no attribute {part!r}{did_you_mean(part, dir(thing))}")
            thing = getattr(thing, part)
    return thing


def check_complete(kind: str, thing: type) -> None:
    """Say what a class of someone's own still lacks, before Python does so in words of its own."""
    if lacking := sorted(getattr(thing, "__abstractmethods__", ())):
        raise ConfigError(f"the {kind} {thing.__name__} lacks {', '.join(lacking)} (docs/extend.md)")


def is_from_file(thing: Any) -> bool:
    """Whether the code of a class, an object or a function is a `file.py`: other processes cannot import its module.

    What was loaded by its name is then pickled as that name, and loaded again.
    """
    return module_of(thing).startswith(_OWN_FILE)


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # the folder one stands in counts, as with `python -m`
        sys.path.insert(0, here)
    return importlib.import_module(name)


@cache
def _file(path: str) -> ModuleType:
    from onesdaug.common.files import check_plain_file

    check_plain_file(Path(path))
    name = f"{_OWN_FILE}{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up there
    spec.loader.exec_module(module)
    return module


def _origin(thing: Any) -> str:
    """Where something comes from, in words that lead there."""
    if isinstance(thing, str):
        return thing
    owner = thing if isinstance(thing, type) or (callable(thing) and hasattr(thing, "__qualname__")) else type(thing)
    return f"{owner.__module__}:{owner.__qualname__}"


GENERATORS = Registry(
    "generator",
    "onesdaug.generators",
    {
        "pocket": "onesdaug.generators.pocket:Pocket",
        "sd15": "onesdaug.generators.sd.generator:StableDiffusion",
        "shape": "onesdaug.generators.base:ShapeOnly",
    },
    also="a hub id or a folder",
    elsewhere={
        "pocket-imagenet": "pip install ./packages/pocket-imagenet  (in a checkout of onesdaug)",
        "photo": "pip install ./packages/pocket-photo  (in a checkout of onesdaug)",
        "photo-128": "pip install ./packages/pocket-photo  (in a checkout of onesdaug)",
    },
)
SOLVERS = Registry(
    "solver",
    "onesdaug.solvers",
    {
        "ddpm": "onesdaug.augment.solvers:DDPM",
        "ddpm-ancestral": "onesdaug.augment.solvers:ANCESTRAL",
        "ddim": "onesdaug.augment.solvers:DDIM",
        "dpm++": "onesdaug.augment.solvers:DPMPP",
    },
)
HEADS = Registry(
    "head",
    "onesdaug.heads",
    {
        "protonet": "onesdaug.fewshot.heads.protonet:ProtoNet",
        "feat": "onesdaug.fewshot.heads.feat:FEAT",
        "classifier-baseline": "onesdaug.fewshot.heads.baseline:ClassifierBaseline",
        "meta-baseline": "onesdaug.fewshot.heads.baseline:MetaBaseline",
    },
)
BACKBONES = Registry(
    "backbone",
    "onesdaug.backbones",
    {
        "convnet": "onesdaug.encoders.convnet:ConvNet",
        "res12": "onesdaug.encoders.res12:Res12",
        "vit-small": "onesdaug.encoders.transformer:ViTSmall",
        "swin-tiny": "onesdaug.encoders.transformer:SwinTiny",
        "protonet-convnet": "onesdaug.encoders.load:built_in",
        "efficientnet-lite0": "onesdaug.encoders.efficientnet:load_efficientnet",
        "efficientnet-lite2": "onesdaug.encoders.efficientnet:load_lite2",
    },
    also="a checkpoint folder, hf:ID",
)
VIEWS = Registry(
    "view source",
    "onesdaug.views",
    {
        "crop-flip": "onesdaug.ensemble.traditional:CropFlip",
        "traditional": "onesdaug.ensemble.traditional:Traditional",
    },
    also="a folder of `onesdaug augment`, a generator",
)
VLMS = Registry("vision-language model", "onesdaug.vlms", {}, also="a hub id or a folder in transformers format")
STUDIES = Registry("kind of study", "onesdaug.studies", {})
