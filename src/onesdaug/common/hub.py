"""Other people's weights: in a folder or in the Hugging Face hub's local cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onesdaug.errors import ConfigError, OnesdaugError, WeightsMissing, how_to_install

_WINDOWS, _WINDOW = 16, 1 << 18  # what of a weight file is hashed: so many windows of so many bytes, evenly spread
# repositories that are known here, and the gigabytes of those of their files that are needed
GIGABYTES = {
    "stable-diffusion-v1-5/stable-diffusion-v1-5": 4.3,
    "h94/IP-Adapter": 2.6,
    "WinKawaks/vit-small-patch16-224": 0.1,
    "microsoft/swin-tiny-patch4-window7-224": 0.1,
    "llava-hf/llava-1.5-7b-hf": 14.1,
}


def is_hub_id(source: str | Path) -> bool:
    return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(source)) is not None and not Path(source).expanduser().exists()


def find(
    source: str | Path, what: str, accepted: str, patterns: Sequence[str] | None = None, download: bool = False
) -> Path:
    """The folder that holds `source`: a local folder, or a hub id whose files are already in the local cache.

    Only with `download` they are fetched: gigabytes should not come behind anybody's back.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if not is_hub_id(source):
        raise WeightsMissing(f"{what}: there is no folder {source}. Give {accepted}")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise needs_extra(what) from error
    try:
        return Path(snapshot_download(str(source), allow_patterns=patterns, local_files_only=not download))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        advice = how_to_get(source, None if download else patterns)
        raise WeightsMissing(f"{what}: the weights of {source} are not on this machine. {advice}") from error


def how_to_get(source: str | Path, patterns: Sequence[str] | None = None) -> str:
    """The command that gets exactly what is needed, where the hub can give it."""
    if not is_hub_id(source):
        return "Complete the folder, or give a hub id instead."
    size = f" ({GIGABYTES[str(source)]} GB)" if str(source) in GIGABYTES else ""
    command = download(source, patterns)
    if patterns is None:
        return f"With a network, get them once{size} with `{command}`; or pass a local folder instead."
    return f"Get them once{size} with\n  {command}\nor pass a local folder instead of the hub id."


def download(source: str | Path, patterns: Sequence[str] | None = None) -> str:
    """The command alone. With patterns it is Python: how `hf` takes several of them depends on its version."""
    if patterns is None:
        return f"hf download {source}"
    call = f"get('{source}', allow_patterns={list(patterns)!r})"
    return f'python -c "from huggingface_hub import snapshot_download as get; {call}"'


def name_of(source: str | Path) -> str:
    """A hub id as it is, a folder by its last name: where it lies on this machine does not matter."""
    folder = Path(source).expanduser()
    return folder.resolve().name if folder.is_dir() else str(source)


def needs_extra(what: str) -> ConfigError:
    """The error for a missing optional dependency."""
    return ConfigError(f"{what} needs diffusers and transformers: {how_to_install('sd')}")


@contextmanager
def loading(what: str, advice: str, kind: str = "") -> Iterator[None]:
    """Load quietly; whatever the libraries throw at broken or mismatched files becomes one readable error."""
    from transformers.utils import logging as transformers_log

    from onesdaug.common.devices import is_out_of_memory

    logs = [transformers_log]
    try:
        from diffusers.utils import logging as diffusers_log

        logs.append(diffusers_log)
    except ImportError:
        pass
    levels, bars = [(log, log.get_verbosity()) for log in logs], transformers_log.is_progress_bar_enabled()
    for log in logs:
        log.set_verbosity_error()
    transformers_log.disable_progress_bar()
    try:
        yield
    except OnesdaugError:
        raise
    except Exception as error:  # OSError, RuntimeError, KeyError, SafetensorError, UnpicklingError, …
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_out_of_memory(error)):
            raise OnesdaugError(f"{what} does not fit into this machine's memory ({reason})") from error
        raise WeightsMissing(
            f"{what} cannot be loaded{kind and f' as {kind}'}: files are damaged or do not fit. {advice}\n({reason})"
        ) from error
    finally:
        for log, level in levels:
            log.set_verbosity(level)
        if bars:
            transformers_log.enable_progress_bar()


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
