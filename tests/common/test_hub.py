"""Where weights are looked for, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from onesdaug.common.hub import find, how_to_get, is_hub_id, loading, name_of
from onesdaug.errors import OnesdaugError, WeightsMissing


def test_a_folder_is_taken_as_it_is_and_anything_else_is_explained(tmp_path: Path) -> None:
    assert find(tmp_path, "model", "a folder") == tmp_path
    assert name_of(tmp_path) == tmp_path.name and name_of("some/model") == "some/model"
    with pytest.raises(WeightsMissing, match=r"model: there is no folder /gone/for/good\. Give a folder or a hub id"):
        find("/gone/for/good", "model", "a folder or a hub id")


@pytest.mark.parametrize("patterns", [None, ["unet/*.json"]])
def test_a_missing_hub_id_carries_the_command(patterns: list[str] | None) -> None:
    pytest.importorskip("huggingface_hub")
    assert is_hub_id("nobody/nothing-here") and not is_hub_id("./nobody/nothing")
    command = "hf download nobody/nothing-here" if patterns is None else "unet/*.json"
    with pytest.raises(WeightsMissing) as caught:
        find("nobody/nothing-here", "model", "a folder", patterns)
    assert command in str(caught.value) and command in how_to_get("nobody/nothing-here", patterns)


def test_what_a_library_throws_becomes_one_error_for_people() -> None:
    pytest.importorskip("transformers")
    told = r"it cannot be loaded as a model: .*Mend it\.\n\(KeyError: 'unet'\)"
    with pytest.raises(WeightsMissing, match=told), loading("it", "Mend it.", kind="a model"):
        raise KeyError("unet")
    with pytest.raises(OnesdaugError, match="does not fit into this machine's memory"), loading("it", ""):
        raise RuntimeError("CUDA out of memory")
