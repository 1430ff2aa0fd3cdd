"""`onesdaug doctor`: what is on this machine, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from onesdaug.cli.options import examples, options, spelling
from onesdaug.common.options import Root
from onesdaug.errors import how_to_install

T = TypeVar("T")
app = typer.Typer(add_completion=False)


@app.command(context_settings=spelling(data="root"), epilog=examples("doctor", "doctor --root ~/data --strict"))
@options
def doctor(
    root: Root = None,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if data that is there is not what it should be.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what data, weights, packages and devices are here; what is missing; how to get it."""
    report = examine(root)
    if as_json:
        import json

        typer.echo(json.dumps(report, indent=2))
    else:
        for line in render(report):
            typer.echo(line)
    if strict and any(s["problems"] and s["images"] for b in report["data"]["benchmarks"] for s in b["splits"]):
        raise typer.Exit(1)


def examine(root: Path | None) -> dict[str, Any]:
    """Everything the report says, as data."""
    parts = {"machine": _machine(), "packages": _packages(), "generators": _generators(), "weights": _weights()}
    return {**parts, "data": _data(root)}


def _machine() -> dict[str, Any]:
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [],
    }
    if importlib.util.find_spec("torch"):
        import torch

        for i in range(torch.cuda.device_count()):
            p = torch.cuda.get_device_properties(i)
            found["devices"].append(f"cuda:{i} {p.name}, {p.total_memory / 2**30:.0f} GiB")
        if torch.backends.mps.is_available():
            found["devices"].append("mps")
        found["threads"] = torch.get_num_threads()
    return found


def _packages() -> dict[str, str | None]:
    return {name: _metadata(name, metadata.version) for name in _ways()}


def _ways() -> dict[str, str]:
    """How to get each package that onesdaug's metadata asks for, tools for its development apart."""
    ways = {"onesdaug": "pip install . in a clone of onesdaug"}
    for line in _metadata("onesdaug", metadata.requires) or ():
        name, extra = re.split(r"[^\w.-]", line)[0], re.search(r"extra == .([\w-]+)", line)
        if extra is None or extra[1] != "dev":
            ways.setdefault(name, how_to_install(extra[1]) if extra else f"pip install '{name}'")
    return ways


def _metadata(name: str, read: Callable[[str], T]) -> T | None:
    try:
        return read(name)
    except metadata.PackageNotFoundError:
        return None


def _generators() -> list[dict[str, Any]]:
    """The generators whose weights come with a package, read and checked against their cards."""
    if not importlib.util.find_spec("torch"):
        return []
    from onesdaug.common.registry import GENERATORS
    from onesdaug.errors import OnesdaugError
    from onesdaug.generators.load import load_generator

    found = []
    for name in dict.fromkeys((*GENERATORS, *GENERATORS.elsewhere)):
        row = {"name": name, "found": name in GENERATORS, "bytes": 0, "problem": ""}
        row["how"] = GENERATORS.elsewhere.get(name, "install its package again")
        if row["found"]:
            try:
                weights = GENERATORS.get(name).weights
                if weights is None:  # they are the user's, or on a hub
                    continue
                row["bytes"] = sum(file.stat().st_size for file in weights.glob("*.safetensors"))
                load_generator(name, device="cpu")
            except OnesdaugError as error:
                row["problem"] = str(error)
        found.append(row)
    return found


def _weights() -> list[dict[str, Any]]:
    """Hub repositories in the local cache; nothing is fetched and no network is asked."""
    from onesdaug.common.hub import GIGABYTES, download
    from onesdaug.common.options import IP_REPO

    needed: dict[str, list[str]] = {}
    if importlib.util.find_spec("torch"):
        from onesdaug.generators.sd import files, ip_adapter

        needed = {files.REPO: files.PATTERNS, IP_REPO: ip_adapter.patterns_of()}
    home = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface")) / "hub")
    found = []
    for repo, size in GIGABYTES.items():
        folder = home.expanduser() / f"models--{repo.replace('/', '--')}" / "snapshots"
        there = folder.is_dir() and any(folder.iterdir())
        found.append({"id": repo, "found": there, "gigabytes": size, "how": download(repo, needed.get(repo))})
    return found


def _data(root: Path | None) -> dict[str, Any]:
    from onesdaug.data.registry import BENCHMARKS, ENVIRONMENT, SPLITS, Found, check, data_root

    base = data_root(root)
    benchmarks = []
    for b in BENCHMARKS.values():
        splits = []
        for split in SPLITS:
            missing = Found(split, problems=("no data root",))
            here = check(b.name, split, base) if base is not None and base.is_dir() else missing
            want = b.splits[split]
            splits.append({**asdict(here), "expected_classes": want.classes, "expected_images": want.images})
        benchmarks.append({"name": b.name, "title": b.title, "how": b.how, "note": b.note, "splits": splits})
    exists = base is not None and base.is_dir()
    root_name = str(base) if base else None
    return {"root": root_name, "exists": exists, "environment": ENVIRONMENT, "benchmarks": benchmarks}


def render(report: dict[str, Any]) -> list[str]:
    """The report for people: found things first, then each missing thing with the way to it."""
    m = report["machine"]
    lines = [f"python {m['python']} on {m['system']}, {m['cores']} cores"]
    lines.append("devices: " + (", ".join(m["devices"]) or "CPU only"))
    lines += ["", "packages"]
    ways = _ways()
    lines += [f"  {name:34}{version or 'missing: ' + ways[name]}" for name, version in report["packages"].items()]
    lines += ["", "generators that come with a package"]
    for g in report["generators"]:
        ok = f"ok, {g['bytes'] / 1e6:.1f} MB"
        lines.append(f"  {g['name']:34}{g['problem'] or ok if g['found'] else 'missing: ' + g['how']}")
    lines += ["", "weights in the hub cache"]
    for w in report["weights"]:
        missing = f"missing, {w['gigabytes']} GB: {w['how']}"
        lines.append(f"  {w['id']:46}{'found' if w['found'] else missing}")
    data = report["data"]
    lines += ["", f"data in {data['root']}" if data["exists"] else _no_root(data)]
    for b in data["benchmarks"]:
        lines.append(f"  {b['name']}: {b['title']}")
        for s in b["splits"]:
            lines.append("    " + _split_line(s))
        if any(s["problems"] for s in b["splits"]):
            lines.append(f"    to get it: {b['how']}")
            lines.append("    put it at: " + f"{b['name']}/SPLIT.zip, SPLIT/class/file or SPLIT.csv + images/")
        if b["note"]:
            lines.append(f"    note: {b['note']}")
    return lines


def _no_root(data: dict[str, Any]) -> str:
    if data["root"]:
        return f"data: {data['root']} is not a folder"
    return f"data: no root given; set {data['environment']} or pass --root ROOT"


def _split_line(s: dict[str, Any]) -> str:
    if not s["images"]:
        want = f" (expected {s['expected_classes']} classes, {s['expected_images']:,} images)"
        return f"{s['split']:6}missing" + (want if s["expected_images"] else "")
    state = "; ".join(s["problems"]) or ("known copy" if s["known"] else "counts right, another encoding of the files")
    return f"{s['split']:6}{s['classes']} classes, {s['images']:,} images, {s['fingerprint']}: {state}"
