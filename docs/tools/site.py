"""mkdocs' hooks: the command line's page is written from the commands, and figures of results/ are brought along."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files

from onesdaug.cli import COMMANDS, app

ROOT = Path(__file__).parents[2]
MARK = "<!-- commands -->"
FIGURES = "](../results/"  # as docs/results.md names them, which is read in the repository too


def on_files(files: Files, config: Any) -> Files:
    for file in sorted((ROOT / "results").glob("*.webp")):
        files.append(File.generated(config, f"results/{file.name}", abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(FIGURES, "](results/").replace(MARK, commands() if MARK in markdown else "")


def commands() -> str:
    """Every command with its options, in tables as `--help` groups them."""
    group = typer.main.get_command(app)
    parts: list[str] = []
    for name in COMMANDS:
        context = group.make_context("onesdaug", [name], resilient_parsing=True)
        _, command, _ = group.resolve_command(context, [name])
        inner = getattr(command, "commands", {})
        if inner:
            parts.append(f"## `onesdaug {name}`\n\n{COMMANDS[name]}\n")
        found = {f"{name} {sub}": each for sub, each in inner.items()} or {name: command}
        parts += [_section(title, each, "###" if inner else "##") for title, each in found.items()]
    return "\n".join(parts)


def _section(title: str, command: Any, heading: str) -> str:
    says = re.sub(r"\n\s*\n", "\n\n", command.help or "")
    lines = [f"{heading} `onesdaug {title}`\n", f"{_escaped(says)}\n"]
    if command.epilog:
        examples = [line for line in command.epilog.splitlines() if line.startswith("onesdaug")]
        lines += ["```sh", *examples, "```\n"]
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            panel = getattr(parameter, "rich_help_panel", None) or ""
            panels.setdefault(panel, []).append(_row(parameter))
    for panel, rows in panels.items():
        if panel:
            lines.append(f"**{_escaped(panel)}**\n")
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(parameter: Any) -> str:
    argument = parameter.param_type_name == "argument"
    names = [parameter.metavar or parameter.name.upper()] if argument else [*parameter.opts, *parameter.secondary_opts]
    shown = " ".join(f"`{name}`" for name in names)
    says = _escaped(getattr(parameter, "help", None) or "")
    if parameter.required:
        says += " *Required.*"
    elif isinstance(parameter.default, int | float | str) and str(parameter.default) not in ("False", "True", ""):
        says += f" Default: `{parameter.default}`."
    return f"| {shown} | {says.strip()} |"


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
