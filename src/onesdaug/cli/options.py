"""Options made from the fields of a model, so that a setting is named, described and bounded once: where it lives.

A command marks a parameter with `From(Model)`; the decorator `options` puts the model's fields in its place as flags
and hands the command a validated model. A field that is added to the model is a flag from then on.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from onesdaug.augment.presets import PRESETS
from onesdaug.common.registry import BACKBONES, GENERATORS, HEADS, SOLVERS, VIEWS, VLMS
from onesdaug.errors import ConfigError
from onesdaug.scale.start import RayOptions

# what a shell completes behind a flag; the choices of a Literal need no word here
_REGISTRIES = {
    "preset": PRESETS, "model": GENERATORS, "solver": SOLVERS, "head": HEADS, "backbone": BACKBONES,
    "encoder": BACKBONES, "views": VIEWS, "vlm": VLMS,
}  # fmt: skip
_ADDRESS = re.compile(r"local|auto|ray://.+|[\w.\[\]:-]+:\d+")  # of a Ray cluster


@dataclass(frozen=True, eq=False)
class From:
    """Which fields of a pydantic model or a dataclass become flags, and what these are called."""

    model: Any
    names: Mapping[str, str] = field(default_factory=dict)  # flags that are not called as their field
    prefix: str = ""  # of the flags not in `names`
    panel: str | None = None  # of the help
    only: tuple[str, ...] = ()  # else every field but `without`
    without: tuple[str, ...] = ()
    partial: bool = False  # flags have no defaults, and the command gets those that were given, as a dict

    @functools.cached_property
    def fields(self) -> dict[str, FieldInfo]:
        found = _fields(self.model)
        return {name: found[name] for name in self.only or found if name not in self.without}

    def flag(self, name: str) -> str:
        """The flag of a field, as it is typed."""
        return "--" + self.names.get(name, self.prefix + name.replace("_", "-"))

    def parameters(self, owner: str) -> Iterator[inspect.Parameter]:
        """One parameter for each field, in the form that typer reads."""
        for name, info in self.fields.items():
            default = None if self.partial else info.get_default(call_default_factory=True)
            required = info.is_required() and not self.partial
            default = [str(item) for item in default] if _item(_bare(info.annotation)) and default else default
            kind = _parsed(info.annotation)
            flag = self.flag(name)
            if kind is bool and default is not False and "/" not in flag:
                flag = f"{flag}/--no-{flag[2:]}"
            option = typer.Option(flag, help=_help(info), rich_help_panel=self.panel)
            if choices := _choices(info):
                option.autocompletion = completer(choices)
            yield inspect.Parameter(
                f"{owner}_{name}",
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if required else default,
                annotation=Annotated[kind if required or default is not None else kind | None, option],
            )

    def build(self, owner: str, values: dict[str, Any]) -> Any:
        """The model with what was given on the command line, which is taken out of `values`."""
        from pydantic import TypeAdapter, ValidationError, create_model  # help does without

        given = {name: values.pop(f"{owner}_{name}") for name in self.fields}
        given = {name: _split(value, self.fields[name]) for name, value in given.items() if value not in (None, [])}
        checked = self.model
        if self.partial and dataclasses.is_dataclass(checked):  # its own check needs all fields: that comes later
            definitions: Any = {name: (info.annotation, info) for name, info in self.fields.items()}
            checked = create_model("Given", **definitions)
        try:
            made: Any = TypeAdapter(checked).validate_python(given)
        except ValidationError as error:
            raise ConfigError("\n".join(self._line(item) for item in error.errors())) from None
        return {name: getattr(made, name) for name in given} if self.partial else made

    def _line(self, item: Any) -> str:
        if not item["loc"]:  # the model's own check, in its own words
            return str(item["ctx"]["error"])
        says = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        says = says.replace("'", "") if item["type"] == "literal_error" else says
        return f"{self.flag(item['loc'][0])}: {says}, got {item['input']!r}"


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose parameters marked with `From` are flags."""
    sources: dict[str, From] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        marks = [mark for mark in get_args(parameter.annotation)[1:] if isinstance(mark, From)]
        if marks:
            sources[parameter.name] = marks[0]
            parameters += marks[0].parameters(parameter.name)
        else:
            parameters.append(_described(parameter))

    for parameter in parameters:
        _complete(parameter)

    def run(**values: Any) -> Any:
        problems = []
        for owner, source in sources.items():
            try:
                values[owner] = source.build(owner, values)
            except ConfigError as error:
                problems.append(str(error))
        if problems:
            raise ConfigError("\n".join(problems))
        return command(**values)

    functools.update_wrapper(run, command, ("__module__", "__name__", "__qualname__", "__doc__"))
    del run.__wrapped__  # type: ignore[attr-defined]  # typer would read the signature behind it
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


CLUSTER = From(RayOptions, panel="More machines")


class WithRay(TyperCommand):
    """A command whose `--ray` may stand without an address: then the workers are on this machine."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        whole = []
        for place, word in enumerate(args):
            whole.append(word)
            if word == "--ray" and _ADDRESS.fullmatch("".join(args[place + 1 : place + 2])) is None:
                whole.append("local")
        return super().parse_args(ctx, whole)


def completer(names: Iterable[str]) -> Callable[[str], list[str]]:
    """For a shell: those of the names that begin as the word does. Asked for only then, as installed ones are many."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _complete(parameter: inspect.Parameter) -> None:
    """A flag that is called as a registry's things are knows their names."""
    for mark in get_args(parameter.annotation)[1:]:
        if isinstance(mark, typer.models.OptionInfo) and mark.autocompletion is None:
            given = (mark.default, *(mark.param_decls or ()))  # inside Annotated the first flag stands as the default
            flags = [flag[2:] for flag in given if isinstance(flag, str) and flag.startswith("--")]
            registry = _REGISTRIES.get((flags or [parameter.name])[0])
            mark.autocompletion = None if registry is None else completer(registry)


def examples(*lines: str) -> str:
    """The end of a command's help: what one types, a line each."""
    return "\n\n".join(["Examples:", *(f"onesdaug {line}" for line in lines)])


def spelling(**old: str) -> dict[str, Any]:
    """Settings of a command that still takes flags by their old names; `--ip_scale` is `--ip-scale` everywhere."""

    def normalise(token: str) -> str:
        token = token.replace("_", "-")
        return old.get(token.replace("-", "_"), token)

    return {"help_option_names": ["-h", "--help"], "token_normalize_func": normalise}


def _fields(model: Any) -> dict[str, FieldInfo]:
    if not dataclasses.is_dataclass(model):
        return dict(model.model_fields)
    hints = get_type_hints(model, include_extras=True)
    made = {}
    for f in dataclasses.fields(model):
        if f.default is dataclasses.MISSING:
            made[f.name] = FieldInfo.from_annotation(hints[f.name])
        else:
            made[f.name] = FieldInfo.from_annotated_attribute(hints[f.name], f.default)
    return made


def _described(parameter: inspect.Parameter) -> inspect.Parameter:
    """A plain parameter; one of a described type (`Device`) needs no words of its own."""
    kind, *marks = get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (None,)
    texts = [_help(mark) for mark in marks if isinstance(mark, FieldInfo)]
    option = next((mark for mark in marks if isinstance(mark, typer.models.ParameterInfo)), None)
    if texts and option is None:
        parameter = parameter.replace(annotation=Annotated[kind, typer.Option(help=texts[0])])
    elif texts and option is not None and option.help is None:
        option.help = texts[0]
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parsed(annotation: Any) -> Any:
    """What typer is to read for a field of this type; the model checks the rest."""
    bare = _bare(annotation)
    if (item := _item(bare)) is not None:
        return list[Path] if item is Path else list[str]
    return str if get_origin(bare) is Literal else bare


def _bare(annotation: Any) -> Any:
    """The type without `| None`."""
    kinds = get_args(annotation)
    return next(kind for kind in kinds if kind is not NoneType) if NoneType in kinds else annotation


def _item(annotation: Any) -> Any:
    """X of `tuple[X, ...]`, whose flag may be repeated; else None."""
    kinds = get_args(annotation)
    return kinds[0] if get_origin(annotation) is tuple and Ellipsis in kinds else None


def _split(value: Any, info: FieldInfo) -> Any:
    """`--shot 1,5` is `--shot 1 --shot 5`; names and paths may hold commas."""
    if not isinstance(value, list) or _item(_bare(info.annotation)) in (str, Path):
        return value
    return [part for item in value for part in item.split(",")]


def _help(info: FieldInfo) -> str:
    """The field's description, with what is allowed where it does not say so itself."""
    notes = [mark for mark in info.metadata if isinstance(mark, str)]  # of a dataclass that knows no pydantic
    text = (info.description or "".join(notes)).removesuffix(".")
    choices = _choices(info)
    allowed = ", ".join(choices) if any(name not in text for name in choices) else _range(info)
    return f"{text} ({allowed})." if allowed else f"{text}." if text else ""


def _choices(info: FieldInfo) -> list[str]:
    bare = _bare(info.annotation)
    return [name for kind in (bare, _item(bare)) if get_origin(kind) is Literal for name in get_args(kind)]


def _range(info: FieldInfo) -> str:
    bounds: dict[str, float] = {}
    for mark in info.metadata:
        bounds |= {name: getattr(mark, name) for name in ("ge", "gt", "le", "lt") if hasattr(mark, name)}
    low = f"above {bounds['gt']:g}" if "gt" in bounds else f"{bounds['ge']:g}" if "ge" in bounds else ""
    high = f"below {bounds['lt']:g}" if "lt" in bounds else f"{bounds['le']:g}" if "le" in bounds else ""
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if "ge" in bounds else f"at most {high}" if "le" in bounds else low or high
