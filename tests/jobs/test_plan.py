"""Listing and naming: stable order, nothing hidden, no two inputs on one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug.errors import ConfigError
from onesdaug.jobs.plan import list_inputs


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def prefixes(*inputs: Path, out: Path, **options: object) -> list[str]:
    return [item.prefix for item in list_inputs(inputs, out, **options).items]  # type: ignore[arg-type]


def test_natural_order_hidden_files_and_endings(tmp_path: Path) -> None:
    touch(tmp_path, "img10.png", "img2.PNG", "img1.jpeg", ".hidden.png", "notes.txt", "png", ".d/x.png", "s/y.gif")
    out = tmp_path.parent / "out"
    assert prefixes(tmp_path, out=out) == ["img1", "img2", "img10"]
    assert prefixes(tmp_path, out=out, recursive=True) == ["img1", "img2", "img10", "s/y"]
    assert prefixes(tmp_path, out=out, extensions=[".JPEG,txt"]) == ["img1", "notes"]


def test_a_file_given_twice_counts_once_and_any_ending_is_taken(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.weird")
    out = tmp_path / "o"
    assert prefixes(tmp_path / "b.weird", tmp_path, tmp_path / "a.png", out=out) == ["b", "a"]


def test_colliding_stems_spell_out_their_endings(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "a.png", "b.png", "a_jpg.bmp")
    assert prefixes(tmp_path, out=tmp_path / "o") == ["a_jpg", "a_png", "a_jpg_bmp", "b"]


def test_names_that_still_collide_are_an_error_before_any_work(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.png", "y/a.png")
    with pytest.raises(ConfigError) as caught:
        list_inputs([tmp_path / "x", tmp_path / "y"], tmp_path / "out")
    assert str(tmp_path / "x/a.png") in str(caught.value)
    assert str(tmp_path / "y/a.png") in str(caught.value)


def test_output_inside_input_is_left_out_and_said(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "out/a_view1.png", "old/.onesdaug-lock", "old/b_view1.png")
    for recursive, expected in ((True, ["out", "old"]), (False, ["out"])):
        listing = list_inputs([tmp_path], tmp_path / "out", recursive=recursive)
        assert [item.prefix for item in listing.items] == ["a"]
        assert sorted(Path(source).name for source, _ in listing.notes) == sorted(expected)


def test_input_below_the_output_folder_works(tmp_path: Path) -> None:
    touch(tmp_path, "photos/a.png")
    assert prefixes(tmp_path / "photos", out=tmp_path) == ["a"]


def test_output_equal_to_input_says_what_to_do(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    with pytest.raises(ConfigError, match="-o"):
        list_inputs([tmp_path], tmp_path / ".")
    with pytest.raises(ConfigError, match="is a file"):
        list_inputs([tmp_path], tmp_path / "a.png")


def test_empty_and_missing(tmp_path: Path) -> None:
    ((source, reason),) = list_inputs([tmp_path], tmp_path / "out").problems
    assert source == str(tmp_path)
    assert "--recursive" in reason
    with pytest.raises(ConfigError, match="no such file"):
        list_inputs([tmp_path / "typo"], tmp_path / "out")


def test_very_long_names_still_fit(tmp_path: Path) -> None:
    touch(tmp_path, "é" * 120 + ".png", "é" * 119 + "a.png")
    listing = list_inputs([tmp_path], tmp_path / "out")
    names = {item.view(100) for item in listing.items}
    assert len(names) == 2
    assert all(len(name.encode()) <= 255 for name in names)
