"""Finding a vision-language model on this machine, and naming its content; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onesdaug.common.devices import is_out_of_memory
from onesdaug.errors import ConfigError, OnesdaugError, WeightsMissing
from onesdaug.generators.weights import fingerprint, is_hub_id

_EXTRA = "a local vision-language model needs transformers: pip install 'onesdaug[sd]'"


def locate(source: str) -> Path:
    """The folder of a model: given as one, or a hub id whose files are in the local cache."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return _complete(folder, source)
    if not is_hub_id(source):
        raise WeightsMissing(f"there is no folder {source}; --model takes a folder in transformers format or a hub id")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise ConfigError(_EXTRA) from error
    try:
        return _complete(Path(snapshot_download(source, local_files_only=True)), source)
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        if isinstance(error, WeightsMissing):
            raise
        raise WeightsMissing(f"the weights of {source} are not on this machine. {_advice(source)}") from error


def name_of(source: str) -> str:
    """A hub id as it is, a folder by its last name: where it lies on this machine does not matter."""
    folder = Path(source).expanduser()
    return folder.resolve().name if folder.is_dir() else source


def content(folder: Path) -> str:
    """Name of everything in a model's folder that decides its answers."""
    return fingerprint([*_weights(folder), *folder.glob("*.json"), *folder.glob("*.jinja"), *folder.glob("*.model")])


def load(folder: Path, source: str, dtype: Any, device: Any, spread: bool) -> tuple[Any, Any]:
    """Processor and frozen model; `spread` lets accelerate place it over the devices there are."""
    try:
        from transformers import AutoModelForImageTextToText, AutoProcessor
    except ImportError as error:
        raise ConfigError(_EXTRA) from error
    with _quietly(source):
        processor = AutoProcessor.from_pretrained(folder)
        place = {"device_map": "auto"} if spread else {}
        model = AutoModelForImageTextToText.from_pretrained(folder, torch_dtype=dtype, **place)
        model = model if spread else model.to(device)
    return processor, model.eval().requires_grad_(False)


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))


def _complete(folder: Path, source: str) -> Path:
    parts = {"config.json": (folder / "config.json").is_file(), "weights": bool(_weights(folder))}
    if absent := [name for name, there in parts.items() if not there]:
        raise WeightsMissing(
            f"{source} is not a whole model in transformers format: no {' and no '.join(absent)} in {folder}. "
            f"{_advice(source)}"
        )
    return folder


def _advice(source: str) -> str:
    if not is_hub_id(source):
        return "Complete the folder, or give a hub id instead"
    return f"With a network, get them once with `hf download {source}`; or pass a local folder as --model"


@contextmanager
def _quietly(source: str) -> Iterator[None]:
    """Load without the library's chatter; whatever it throws at broken files becomes one readable error."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OnesdaugError, MemoryError):
        raise
    except Exception as error:  # OSError, ValueError, KeyError, SafetensorError, …
        reason = " ".join(str(error).split())[:300]
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise OnesdaugError(f"{source} does not fit into this machine's memory: {reason}") from error
        raise WeightsMissing(
            f"{source} cannot be loaded as an image-text-to-text model ({type(error).__name__}: {reason}). "
            f"{_advice(source)}"
        ) from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
