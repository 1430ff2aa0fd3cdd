"""Names of plug-ins: ours, registered ones, other packages', your own files; what is said when one is wrong."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from onesdaug.common import registry
from onesdaug.common.registry import BACKBONES, GENERATORS, HEADS, SOLVERS, STUDIES, VIEWS, VLMS, Registry, load_object
from onesdaug.errors import ConfigError, WeightsMissing


@pytest.fixture
def things() -> Registry:
    made = Registry(
        "thing", "onesdaug.things", {"path": "pathlib:Path", "four": 4}, elsewhere={"far": "pip install far"}
    )
    made.__dict__["_installed"] = {}
    return made


def install(things: Registry, *points: tuple[str, str]) -> None:
    found: dict[str, list[EntryPoint]] = {}
    for name, value in points:
        found.setdefault(name, []).append(EntryPoint(name, value, things.group))
    things.__dict__["_installed"] = found


def test_a_name_is_ours_registered_or_a_packages(things: Registry) -> None:
    install(things, ("other", "collections:OrderedDict"))

    @things.register("mine")
    def mine() -> None: ...

    assert things.names() == ("path", "four", "mine", "other") == tuple(things)
    assert things.get("path") is Path and things.get("four") == 4 and things.get("mine") is mine
    assert things.get("other").__name__ == "OrderedDict"
    assert things.get("json:dumps")({}) == "{}"


def test_an_unknown_name_is_answered_with_what_is_known(things: Registry) -> None:
    with pytest.raises(ConfigError, match=r"no thing 'paht': did you mean 'path'\?; known are path, four, or your"):
        things.get("paht")
    with pytest.raises(ConfigError, match="no thing 'zzz'; known are path, four"):
        things.check("zzz")
    with pytest.raises(
        WeightsMissing, match="package of its own that is not installed; get it with\n  pip install far"
    ):
        things.get("far")


def test_a_broken_plug_in_is_named_and_harms_no_other(things: Registry) -> None:
    install(things, ("broken", "no_such_module:thing"))
    assert "broken" in things.names() and things.get("path") is Path
    with pytest.raises(ConfigError, match=r"thing 'broken' of the package \? \(no_such_module:thing\) cannot"):
        things.get("broken")


def test_a_name_taken_twice_names_both(things: Registry) -> None:
    install(things, ("path", "json:dumps"), ("two", "json:dumps"), ("two", "json:loads"))
    with pytest.raises(ConfigError, match=r"'path' is registered twice: by pathlib:Path and by .*\(json:dumps\)"):
        things.get("path")
    with pytest.raises(ConfigError, match=r"'two' is registered twice: by .*\(json:dumps\) and by .*\(json:loads\)"):
        things.get("two")
    with pytest.raises(ConfigError, match=r"'four' is registered twice: by builtins:int and by tests\.common"):
        things.register("four")(test_a_name_taken_twice_names_both)


def test_a_notebooks_cell_may_run_again(things: Registry) -> None:
    for value in (1, 2):

        def again(value: int = value) -> int:
            return value

        again.__qualname__ = "again"
        things.register("again")(again)
    assert things.get("again")() == 2


def test_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Mine:\n    x: int = 3\n    class Inner: pass\n"
    )
    assert load_object(f"{file}:Mine")().x == 3
    assert load_object(f"{file}:Mine") is load_object(f"{file}:Mine")
    assert load_object(f"{file}:Mine.Inner").__name__ == "Inner"
    monkeypatch.chdir(tmp_path)
    assert load_object("mine:Mine")().x == 3  # the folder one stands in counts
    (tmp_path / "bad.py").write_text("1 / 0\n")
    for spec, words in (
        (f"{file}:Other", "has no attribute 'Other'"),
        ("bad.py:x", "head 'bad.py:x' cannot be loaded: ZeroDivisionError: division by zero"),
        ("nowhere.py:x", "FileNotFoundError"),
        ("no_such_module:x", "ModuleNotFoundError"),
        ("json:", "write package.module:object"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_object(spec, "head")


@pytest.mark.parametrize("kind", [GENERATORS, SOLVERS, HEADS, BACKBONES, VIEWS, VLMS, STUDIES], ids=lambda k: k.kind)
def test_everything_of_ours_is_there(kind: Registry) -> None:
    for name in kind:
        assert kind.get(name) is not None


def test_names_are_listed_without_loading_anything() -> None:
    heavy = ["torch", "numpy", "PIL", "diffusers", "transformers", "scipy"]
    code = (
        "import sys\nfrom onesdaug.common import registry as r\n"
        "for kind in vars(r).values():\n    if isinstance(kind, r.Registry): kind.names()\n"
        f"print([m for m in {[*heavy, 'pydantic']} if m in sys.modules])\n"
        "from onesdaug.augment.presets import PRESETS\nPRESETS.names()\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_entry_points_are_looked_for_once() -> None:
    assert registry._entry_points() is registry._entry_points()
