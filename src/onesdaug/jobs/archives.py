"""Pictures that are no files of this machine's: members of zip files, of WebDataset and Parquet shards, of a store.

Where a path is taken, so is any URI that pyarrow knows (s3://, gs://, hdfs://, file://). A `Part` is all that a worker
on another machine needs to read one picture.
"""

from __future__ import annotations

import io
import tarfile
import threading
import zipfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import IO, Any

from onesdaug.common.files import is_uri
from onesdaug.data.sources import MAX_BYTES, STORED, is_image
from onesdaug.errors import ConfigError, DataError, ImageError, how_to_install

ENDINGS = (".zip", ".tar", ".parquet")
_NAMES = ("__key__", "key", "id", "name", "path", "filename", "file_name")  # columns that call a picture by its name
_open = threading.local()  # the archive that each thread read last: the next picture mostly lies there too


@dataclass(frozen=True)
class Part:
    """One picture: a member or a row of an archive, or with no name the whole file."""

    where: str  # path or URI of the file
    name: str = ""
    start: int = 0  # of a member of a tar: its first byte; of a Parquet file: its row
    size: int = 0

    @property
    def source(self) -> str:
        return f"{self.where}:{self.name}" if self.name else self.where

    def read(self) -> bytes:
        """The bytes of the image file; errors name it."""
        try:
            with _reading(self.where) as file:
                return _READERS.get(_ending(self.where), _read_file)(self, file)
        except (ImageError, ConfigError):
            raise
        except Exception as error:  # zipfile, tarfile and pyarrow raise anything on broken data
            raise ImageError(f"{self.source} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def is_archive(path: object) -> bool:
    return str(path).lower().endswith(ENDINGS)


def store_of(path: str) -> tuple[Any, str]:
    """pyarrow's filesystem of a path or URI, and the path in it."""
    try:
        from pyarrow import fs
    except ImportError:
        raise ConfigError(f"{path} needs pyarrow: {how_to_install('ray')}") from None
    try:
        store, place = fs.FileSystem.from_uri(path if is_uri(path) else str(Path(path).absolute()))
    except Exception as error:
        raise ConfigError(f"{path} cannot be reached: {error}") from error
    return store, str(place)


def parts_of(
    given: str, endings: Sequence[str], recursive: bool, problems: list[tuple[str, str]]
) -> Iterator[tuple[Part, str]]:
    """All pictures of an archive, a folder of archives, or a URI, and the place of each in the output."""
    before = len(problems)
    count = 0
    for where, place in _files(given, endings, recursive):
        try:
            parts = _LISTERS[_ending(where)](where, endings) if is_archive(where) else [(Part(where), place)]
        except ConfigError:
            raise
        except Exception as error:
            problems.append((where, f"cannot be read: {getattr(error, 'strerror', None) or error}"))
            continue
        count += len(parts)
        yield from parts
    if not count and len(problems) == before:
        problems.append((given, f"no {'/'.join(endings)} images in it"))


def _files(given: str, endings: Sequence[str], recursive: bool) -> list[tuple[str, str]]:
    """Archives and images at a path or URI, in the order of their names, each with its path below what was given."""
    if not is_uri(given):
        folder = Path(given)
        files = sorted(file for file in folder.iterdir() if is_archive(file)) if folder.is_dir() else [folder]
        return [(str(file), file.name) for file in files]
    from pyarrow import fs

    store, base = store_of(given)
    if store.get_file_info(base).type == fs.FileType.NotFound:
        raise ConfigError(f"no such file or folder: {given}")
    if store.get_file_info(base).type == fs.FileType.File:
        return [(given, PurePosixPath(base).name)]
    below = sorted(
        info.path.removeprefix(base).lstrip("/")
        for info in store.get_file_info(fs.FileSelector(base, recursive=recursive))
        if info.type == fs.FileType.File and (is_archive(info.path) or is_image(info.path, endings))
    )
    return [(f"{given.rstrip('/')}/{name}", name) for name in below]


@contextmanager
def _reading(where: str) -> Iterator[IO[bytes]]:
    """The file, open; it stays so until this thread reads another."""
    if getattr(_open, "where", None) != where:
        if (old := getattr(_open, "file", None)) is not None:
            old.close()
        _open.where = None
        store, path = store_of(where) if is_uri(where) else (None, where)
        _open.file = Path(path).open("rb") if store is None else store.open_input_file(path)  # noqa: SIM115
        _open.where = where
    yield _open.file


def _ending(where: str) -> str:
    return PurePosixPath(where).suffix.lower()


def _shard(where: str) -> str:
    """Members of shards are often called alike (000000.jpg): the shard's name goes before theirs."""
    return PurePosixPath(where).stem


def _list_zip(where: str, endings: Sequence[str]) -> list[tuple[Part, str]]:
    with _reading(where) as file, zipfile.ZipFile(file) as archive:
        infos = [i for i in archive.infolist() if not i.is_dir() and is_image(i.filename, endings)]
    return [(Part(where, info.filename), _inside(where, info.filename)) for info in infos]


def _list_tar(where: str, endings: Sequence[str]) -> list[tuple[Part, str]]:
    with _reading(where) as file:
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            found = [m for m in archive if m.isreg() and is_image(m.name, endings)]
    return [(Part(where, m.name, m.offset_data, m.size), f"{_shard(where)}/{_inside(where, m.name)}") for m in found]


def _list_parquet(where: str, endings: Sequence[str]) -> list[tuple[Part, str]]:
    with _reading(where) as file:
        table = _parquet(file)
        names = _row_names(table, _image_column(table, where))
    return [(Part(where, name, row), f"{_shard(where)}/{_inside(where, name)}") for row, name in enumerate(names)]


def _inside(where: str, name: str) -> str:
    """The member's path, which must not lead out of the output folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"{name!r} in {where} leads out of the archive")
    return name


def _read_file(part: Part, file: IO[bytes]) -> bytes:
    file.seek(0, io.SEEK_END)
    size = file.tell()
    file.seek(0)
    return file.read(_bounded(part, size))


def _read_zip(part: Part, file: IO[bytes]) -> bytes:
    archive = getattr(_open, "archive", None)
    if archive is None or archive.fp is not file:
        archive = _open.archive = zipfile.ZipFile(file)
    info = archive.getinfo(part.name)
    if info.compress_type not in STORED or info.flag_bits & 1:
        raise ImageError(f"{part.source} is encrypted, or compressed in another way than `deflate`")
    with archive.open(info) as member:
        return bytes(member.read(_bounded(part, info.file_size)))


def _read_tar(part: Part, file: IO[bytes]) -> bytes:
    file.seek(part.start)
    return file.read(_bounded(part, part.size))


def _read_parquet(part: Part, file: IO[bytes]) -> bytes:
    firsts = _first_rows(part.where)
    group = bisect_right(firsts, part.start) - 1
    value = _row_group(part.where, group)[part.start - firsts[group]].as_py()
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise ImageError(f"{part.source} holds no picture")
    _bounded(part, len(data))
    return data


def _bounded(part: Part, size: int) -> int:
    if size > MAX_BYTES:
        raise ImageError(f"{part.source} has {size:,} bytes; an image has at most {MAX_BYTES:,}")
    return size


def _parquet(file: IO[bytes]) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(f"Parquet files need pyarrow: {how_to_install('ray')}") from None
    return parquet.ParquetFile(file)


def _image_column(table: Any, where: str) -> str:
    """`image`, or the only column that holds bytes, or a struct with such a field (as Hugging Face writes them)."""
    import pyarrow as pa

    def holds_bytes(kind: Any) -> bool:
        if pa.types.is_struct(kind):
            return bool(kind.get_field_index("bytes") >= 0)
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    found = [field.name for field in table.schema_arrow if holds_bytes(field.type)]
    if "image" in found:
        return "image"
    if len(found) != 1:
        raise DataError(
            f"{where} needs a column `image` with the bytes of image files; of bytes are {found or 'none'}"
        )
    return str(found[0])


def _row_names(table: Any, image: str) -> list[str]:
    """What the rows are called, by a column of names that are all different, else by their numbers."""
    for name in (*_NAMES, f"{image}.path"):
        if not _has(table, name):
            continue
        values = table.read(columns=[name]).column(0).to_pylist()
        found = [value.get("path") if isinstance(value, dict) else value for value in values]
        names = [one for one in found if isinstance(one, str) and one]
        if names and len(set(names)) == len(found):
            return names
    return [f"{row:08d}" for row in range(table.metadata.num_rows)]


def _has(table: Any, name: str) -> bool:
    column, _, field = name.partition(".")
    if column not in table.schema_arrow.names:
        return False
    kind = table.schema_arrow.field(column).type
    return not field or getattr(kind, "get_field_index", lambda _: -1)(field) >= 0


@lru_cache(maxsize=64)
def _first_rows(where: str) -> tuple[int, ...]:
    """Of each row group, and one past the last."""
    with _reading(where) as file:
        metadata = _parquet(file).metadata
    return tuple(accumulate((metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)), initial=0))


@lru_cache(maxsize=2)
def _row_group(where: str, group: int) -> Any:
    """The pictures of a row group: the next ones asked for mostly lie there too."""
    with _reading(where) as file:
        table = _parquet(file)
        return table.read_row_group(group, columns=[_image_column(table, where)]).column(0)


_LISTERS = {".zip": _list_zip, ".tar": _list_tar, ".parquet": _list_parquet}
_READERS = {".zip": _read_zip, ".tar": _read_tar, ".parquet": _read_parquet}
