"""Finding weights: local folders and the hub's cache first, never a silent download; and naming what was found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from onesdaug.errors import ConfigError, OnesdaugError, WeightsMissing

_WINDOWS, _WINDOW = 16, 1 << 18  # what of a weight file is hashed: so many windows of so many bytes, evenly spread
_NAMES = ("diffusion_pytorch_model", "model", "pytorch_model")  # diffusers' and transformers' weight files


def find(source: str | Path, patterns: Sequence[str], what: str) -> Path:
    """The folder that holds `source`: a local folder, or a hub id whose files are already in the local cache."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if not is_hub_id(source):
        raise WeightsMissing(
            f"{what}: there is no folder {source}. Give sd15, a folder in diffusers format or a hub id "
            "(or shape, for geometry alone)"
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise needs_extra(what) from error
    try:
        return Path(snapshot_download(str(source), allow_patterns=list(patterns), local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise WeightsMissing(
            f"{what}: the weights of {source} are not on this machine. {how_to_get(source, patterns)}"
        ) from error


def is_hub_id(source: str | Path) -> bool:
    return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(source)) is not None and not Path(source).expanduser().exists()


def how_to_get(source: str | Path, patterns: Sequence[str]) -> str:
    """The command that gets exactly what is needed, where the hub can give it."""
    if not is_hub_id(source):
        return "Complete the folder, or give a hub id instead."
    call = f"get('{source}', allow_patterns={list(patterns)!r})"
    return (
        f'Get them once with\n  python -c "from huggingface_hub import snapshot_download as get; {call}"\n'
        "or pass a local folder instead of the hub id."
    )


def needs_extra(what: str) -> ConfigError:
    """The error for a missing optional dependency."""
    return ConfigError(f"{what} needs diffusers and transformers: pip install 'onesdaug[sd]'")


@contextmanager
def loading(what: str, advice: str) -> Iterator[None]:
    """Load quietly; whatever the libraries throw at broken or mismatched files becomes one readable error."""
    from diffusers.utils import logging as diffusers_log
    from transformers.utils import logging as transformers_log

    levels = [(log, log.get_verbosity()) for log in (diffusers_log, transformers_log)]
    bars = transformers_log.is_progress_bar_enabled()
    for log, _ in levels:
        log.set_verbosity_error()
    transformers_log.disable_progress_bar()
    try:
        yield
    except (OnesdaugError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # OSError, RuntimeError, KeyError, SafetensorError, UnpicklingError, …
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise WeightsMissing(
            f"{what} cannot be loaded: files are damaged or do not fit. {advice}\n({reason})"
        ) from error
    finally:
        for log, level in levels:
            log.set_verbosity(level)
        if bars:
            transformers_log.enable_progress_bar()


def component(folder: Path) -> tuple[list[Path], str | None]:
    """The weight files that loading this folder really reads, and the variant to ask for; no files: none usable.

    Full precision before fp16, .safetensors before .bin; other variants (non_ema and such) are never read.
    """
    names = "|".join(_NAMES)
    for variant in ("", ".fp16"):
        for suffix in ("safetensors", "bin"):
            # shards are called model-00001-of-00002 (a variant's name stands before or after that)
            shard = r"(-\d{5}-of-\d{5})?"
            wanted = re.compile(rf"({names}){re.escape(variant)}{shard}{re.escape(variant)}\.{suffix}|"
                                rf"({names}){shard}{re.escape(variant)}\.{suffix}")  # fmt: skip
            files = sorted(f for f in folder.glob(f"*.{suffix}") if wanted.fullmatch(f.name))
            if files:
                return files, variant.lstrip(".") or None
    return [], None


def load_state(file: Path) -> dict[str, Any]:
    """Tensors of a .safetensors or .bin file. Pickles are opened with weights_only: no code in them ever runs."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    return dict(torch.load(file, map_location="cpu", weights_only=True))


def fingerprint(files: Iterable[Path]) -> str:
    """Name of a set of model files, by content.

    The hub's cache already names large files by their SHA-256. Elsewhere hashing gigabytes at every start would cost
    seconds: name, size and sixteen windows spread over the file stand for it.
    """
    state = hashlib.blake2b(digest_size=8)
    for file in sorted(files, key=lambda f: (f.parent.name, f.name)):
        state.update(f"{file.parent.name}/{file.name}:".encode())
        blob = file.resolve().name
        if re.fullmatch(r"[0-9a-f]{64}", blob):
            state.update(blob.encode())
            continue
        size = file.stat().st_size
        state.update(f"{size}:".encode())
        with file.open("rb") as handle:
            for i in range(_WINDOWS):
                handle.seek(max(0, size - _WINDOW) * i // (_WINDOWS - 1))
                state.update(handle.read(_WINDOW))
    return state.hexdigest()
