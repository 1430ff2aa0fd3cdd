"""Finding weights: local folders and the hub's cache first, never a silent download; and naming what was found."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from onesdaug.errors import ConfigError, WeightsMissing

WEIGHT_SUFFIXES = (".safetensors", ".bin")
_EDGE = 1 << 20  # bytes hashed at each end of a weight file


def find(source: str | Path, patterns: Sequence[str], what: str) -> Path:
    """The folder that holds `source`: a local folder, or a hub id whose files are already in the local cache."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    command = (
        'python -c "from huggingface_hub import snapshot_download as get; '
        f"get('{source}', allow_patterns={list(patterns)!r})\""
    )
    looks_like_path = str(source).count("/") != 1 or str(source).startswith((".", "/", "~"))
    if looks_like_path:
        raise WeightsMissing(f"{what}: there is no folder {source}. Give a folder in diffusers format or a hub id.")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise needs_extra(what) from error
    try:
        return Path(snapshot_download(str(source), allow_patterns=list(patterns), local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise WeightsMissing(
            f"{what}: the weights of {source} are not on this machine. Get them once with\n  {command}\n"
            "or pass a local folder instead of the hub id."
        ) from error


def needs_extra(what: str) -> ConfigError:
    """The error for a missing optional dependency."""
    return ConfigError(f"{what} needs diffusers and transformers: pip install 'onesdaug[sd]'")


@contextmanager
def quiet() -> Iterator[None]:
    """Loading without the libraries' own progress bars and notices; their settings are restored afterwards."""
    from diffusers.utils import logging as diffusers_log
    from transformers.utils import logging as transformers_log

    levels = [(log, log.get_verbosity()) for log in (diffusers_log, transformers_log)]
    bars = transformers_log.is_progress_bar_enabled()
    for log, _ in levels:
        log.set_verbosity_error()
    transformers_log.disable_progress_bar()
    try:
        yield
    finally:
        for log, level in levels:
            log.set_verbosity(level)
        if bars:
            transformers_log.enable_progress_bar()


def variant(folder: Path) -> str | None:
    """'fp16' where a component folder holds only half-precision files, else None."""
    names = [f.name for f in folder.iterdir() if f.suffix in WEIGHT_SUFFIXES]
    return "fp16" if names and all(".fp16." in name for name in names) else None


def load_state(file: Path) -> dict[str, Any]:
    """Tensors of a .safetensors or .bin file. Pickles are opened with weights_only: no code in them ever runs."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    return dict(torch.load(file, map_location="cpu", weights_only=True))


def fingerprint(files: Iterable[Path]) -> str:
    """Name of a set of weight files: names, sizes and the first and last MiB of each.

    Hashing gigabytes whole would cost seconds at every start; no two trained models agree in all of this.
    """
    state = hashlib.blake2b(digest_size=8)
    for file in sorted(files, key=lambda f: (f.parent.name, f.name)):
        size = file.stat().st_size
        state.update(f"{file.parent.name}/{file.name}:{size}:".encode())
        with file.open("rb") as handle:
            state.update(handle.read(_EDGE))
            handle.seek(max(0, size - _EDGE))
            state.update(handle.read(_EDGE))
    return state.hexdigest()


def weight_files(folder: Path) -> list[Path]:
    """The weight files directly in a component's folder."""
    return [f for f in folder.iterdir() if f.suffix in WEIGHT_SUFFIXES]


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """`auto`: CUDA, then Apple's MPS, then the CPU."""
    if str(device) != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


_DTYPES = {
    **dict.fromkeys(("float32", "fp32"), torch.float32),
    **dict.fromkeys(("float16", "fp16", "half"), torch.float16),
    **dict.fromkeys(("bfloat16", "bf16"), torch.bfloat16),
}


def pick_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """`auto`: bfloat16 where the GPU has it, else float16 there; float32 on a CPU."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype in _DTYPES:
        return _DTYPES[dtype]
    if dtype != "auto":
        raise ConfigError(f"dtype {dtype!r} is not known; use auto, {', '.join(_DTYPES)}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.float32
