"""A file is whole or not there, whatever happens while it is written, and nothing else is left."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onesdaug.common import files
from onesdaug.common.files import (
    HIDDEN,
    LOCK,
    check_plain_file,
    locked,
    sha256_of,
    whole_file,
    whole_folder,
    write_text,
)
from onesdaug.errors import ConfigError, DataError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    with whole_file(path) as temporary:
        temporary.write_text("first")
        assert not path.exists() and temporary.parent == path.parent
        assert temporary.name.startswith(HIDDEN) and str(os.getpid()) in temporary.name
    assert path.read_text() == "first" and names(path.parent) == ["result.json"]
    assert write_text(path, "größer") == path and path.read_text(encoding="utf-8") == "größer"


@pytest.mark.parametrize("how", [OSError, KeyboardInterrupt])
def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path: Path, how: type[BaseException]) -> None:
    path = write_text(tmp_path / "result.json", "old")
    with pytest.raises(how), whole_file(path) as temporary:
        temporary.write_text("half")
        raise how
    assert path.read_text() == "old" and names(tmp_path) == ["result.json"]


def test_names_as_long_as_the_system_allows_and_links(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "long")
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    write_text(link, "through")
    assert link.is_symlink() and real.read_text() == "through"


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes by name")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "told")
    assert os.read(reader, 10) == b"told" and pipe.is_fifo()
    os.close(reader)


@pytest.mark.skipif(sys.platform == "win32", reason="nothing to lock with")
def test_who_waits_for_a_folder_that_goes_holds_the_one_that_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, waits = tmp_path / "parts", threading.Event()
    monkeypatch.setattr(files.log, "info", lambda _: waits.set())

    def second() -> list[str]:
        with locked(out, wait=True), pytest.raises(ConfigError, match="another onesdaug job"), locked(out):
            pass
        return names(out)

    with ThreadPoolExecutor(1) as pool:
        with locked(out, wait=True):
            (out / "part").touch()
            run = pool.submit(second)
            assert waits.wait(30)
            shutil.rmtree(out)
        assert run.result(30) == [LOCK]


@pytest.mark.skipif(sys.platform == "win32", reason="nothing to lock with")
@pytest.mark.parametrize("wait", [False, True])
def test_a_file_system_without_locks_goes_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: bool) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with locked(tmp_path / "out", wait):
        assert names(tmp_path / "out") == [LOCK]


def test_a_folder_replaces_another_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for content in ("old", "new"):
        with whole_folder(path) as temporary:
            (temporary / content).write_text(content)
    assert names(path) == ["new"] and names(tmp_path) == ["model"]
    with pytest.raises(KeyboardInterrupt), whole_folder(path) as temporary:
        (temporary / "half").write_text("")
        raise KeyboardInterrupt
    assert names(path) == ["new"] and names(tmp_path) == ["model"]


def test_a_pipe_is_told_before_it_is_opened(tmp_path: Path) -> None:
    pipe, folder, link = tmp_path / "pipe", tmp_path / "folder", tmp_path / "link"
    os.mkfifo(pipe)
    folder.mkdir()
    link.symlink_to(pipe)
    for there in (pipe, folder, link):
        with pytest.raises(DataError, match=f"{there.name} cannot be read or written: it is a"):
            check_plain_file(there)
        assert sha256_of(there) == ""
    (tmp_path / "file").write_text("a")
    for fine in (tmp_path / "file", tmp_path / "none", tmp_path / ("x" * 5000), tmp_path / "a\0b"):
        check_plain_file(fine)
