"""What users install has the weights in it, and what they can build from."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "onesdaug": ROOT,
    "onesdaug_pocket_imagenet": ROOT / "packages" / "pocket-imagenet",
    "onesdaug_pocket_photo": ROOT / "packages" / "pocket-photo",
}
WEIGHTS = {"onesdaug": "weights/pocket", "onesdaug_pocket_imagenet": "weights", "onesdaug_pocket_photo": "weights"}


def expected(package: str) -> dict[str, int]:
    """Files that make the package work, by their path in it, and their sizes."""
    home = PACKAGES[package] / "src" / package
    if not (home / WEIGHTS[package] / "card.json").is_file():
        pytest.skip(f"the weights of {package} are not released yet")
    files = [file for file in (home / WEIGHTS[package]).iterdir() if file.suffix in (".json", ".safetensors")]
    assert len(files) > 2
    if package == "onesdaug":
        files += [
            home / "report" / "templates" / "page.html",
            home / "report" / "style.css",
            home / "ui" / "page.css",
            home / "weights" / "protonet-convnet" / "card.json",
            home / "weights" / "protonet-convnet" / "model.safetensors",
            home / "studies" / "main.toml",
            home / "studies" / "demo.toml",
            home / "py.typed",
            home / "cli" / "generator.py",
        ]
    return {file.relative_to(home).as_posix(): file.stat().st_size for file in files}


def build(package: str, target: str, out: Path) -> Path:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    done = subprocess.run(command, cwd=PACKAGES[package], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = out.iterdir()
    return made


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_the_weights(package: str, tmp_path: Path) -> None:
    files = expected(package)
    with zipfile.ZipFile(build(package, "wheel", tmp_path)) as wheel:
        sizes = {item.filename: item.file_size for item in wheel.infolist()}
    for file, size in files.items():
        assert sizes.get(f"{package}/{file}") == size, file
    assert not [name for name in sizes if "__pycache__" in name or name.startswith("tests")]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_sdist_holds_the_weights(package: str, tmp_path: Path) -> None:
    files = expected(package)
    with tarfile.open(build(package, "sdist", tmp_path)) as sdist:
        sizes = {item.name.split("/", 1)[-1]: item.size for item in sdist.getmembers()}
    for file, size in files.items():
        assert sizes.get(f"src/{package}/{file}") == size, file
    assert "pyproject.toml" in sizes and "README.md" in sizes


@pytest.mark.parametrize("package", PACKAGES)
def test_the_build_rules_take_the_weights(package: str) -> None:
    """The same without hatchling: whole packages are taken, nothing is excluded, git ignores no weights."""
    project = tomllib.loads((PACKAGES[package] / "pyproject.toml").read_text())
    assert project["project"]["license"] == "Apache-2.0"
    targets = project["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == [f"src/{package}"]
    assert "/src" in targets.get("sdist", {}).get("include", ["/src"])
    assert not any("exclude" in rules or "only-include" in rules for rules in targets.values())
    ignored = (ROOT / ".gitignore").read_text()  # hatch leaves out what git ignores
    assert not any(word in ignored for word in ("weights", "safetensors", "*.json", "*.html", "packages"))


def test_make_installs_the_packages_whose_weights_are_there() -> None:
    done = subprocess.run(["make", "-n", "VENV=/none", "/none/.installed"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, home in list(PACKAGES.items())[1:]:
        there = (home / "src" / name / "weights" / "card.json").is_file()
        assert (f"-e {home.relative_to(ROOT)}" in done.stdout) == there


def test_what_the_tests_need_is_in_the_dev_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    dev = " ".join(extras["dev"])
    assert all(name in dev for name in ("hatchling", "scikit-image", "pytest", "onesdaug[sd,vlm,report,ray,ui,docs]"))
    assert [name.partition(">")[0] for name in extras["report"]] == ["matplotlib", "jinja2"]


def test_the_version_stands_in_one_place(tmp_path: Path) -> None:
    from onesdaug import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/onesdaug/__init__.py"
    assert build("onesdaug", "sdist", tmp_path).name == f"onesdaug-{__version__}.tar.gz"
