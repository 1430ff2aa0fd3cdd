"""`onesdaug fewshot embed` and `evaluate` from a folder of images to a table and a JSON file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from onesdaug.cli.fewshot import app
from onesdaug.errors import ConfigError, DataError

runner = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes, told apart by colour; twelve images each."""
    root, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for c in range(6):
        (root / f"class{c}").mkdir()
        colour = rng.integers(0, 200, 3)
        for i in range(12):
            pixels = np.clip(colour + rng.integers(-60, 60, (24, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class{c}" / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def bank(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("banks") / "bank.safetensors"
    arguments = ["embed", str(folder), "--encoder", "convnet", "--views", "crop-flip", "--k", "2", "-o", str(path)]
    result = runner.invoke(app, [*arguments, "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "72 images of 6 classes, 2 views each, d = 64" in result.output
    return path


def evaluate(*arguments: str) -> str:
    result = runner.invoke(app, ["evaluate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_table_and_json(bank: Path, tmp_path: Path) -> None:
    text = evaluate(str(bank), "--query", "5", "--episodes", "40", "-o", str(tmp_path / "r.json"))
    assert "5-way 1-shot, 40 episodes" in text
    assert "5-way 5-shot, 40 episodes" in text
    assert "±" in text
    record = json.loads((tmp_path / "r.json").read_text())
    rows = record["cells"]
    kinds = ("baseline", "traditional")
    assert [(r["shot"], r["kind"]) for r in rows] == [(shot, kind) for shot in (1, 5) for kind in kinds]
    assert (rows[1]["support"], rows[1]["query"], rows[1]["original_weight"]) == (2, 2, 0.5)
    assert set(rows[1]["gain"]) == {"difference", "ci95", "p_value", "relative_gain", "n", "seeds"}
    assert rows[0]["accuracy"]["mean"] > 0.3
    assert record["details"]["bank"]["views"]["source"] == "crop-flip"
    assert record["details"]["head"]["name"] == "protonet"
    assert all(record["made"][name] for name in ("command", "commit", "seconds"))


def test_curve_and_separate_views(bank: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    common = [str(bank), "--shot", "1", "--query", "5", "--episodes", "20", "-o", str(out)]
    evaluate(*common, "--curve", "--metric", "cosine")
    uses = json.loads(out.read_text())["cells"]
    assert [(u["support"], u["query"]) for u in uses] == [(0, 0), (1, 1), (2, 2)]
    evaluate(*common, "--support-views", "2", "--query-views", "0", "--original-weight", "0.8")
    cell = json.loads(out.read_text())["cells"][1]
    assert (cell["support"], cell["query"], cell["original_weight"]) == (2, 0, 0.8)


def test_same_seed_same_numbers(bank: Path, tmp_path: Path) -> None:
    def numbers(seed: int, name: str) -> list[float]:
        evaluate(str(bank), "--query", "5", "--seed", str(seed), "-o", str(tmp_path / name))
        return [r["accuracy"]["mean"] for r in json.loads((tmp_path / name).read_text())["cells"]]

    assert numbers(1, "a.json") == numbers(1, "b.json") != numbers(2, "c.json")


def test_oracle_and_baseline_bank(folder: Path, bank: Path, tmp_path: Path) -> None:
    oracle = tmp_path / "oracle.safetensors"
    arguments = ["embed", str(folder), "--encoder", "convnet", "--views", "oracle", "-k", "1", "-o", str(oracle)]
    assert runner.invoke(app, [*arguments, "--device", "cpu"], catch_exceptions=False).exit_code == 0
    text = evaluate(str(oracle), "--baseline", str(bank), "--shot", "1", "--query", "5", "--episodes", "30")
    assert "oracle views" in text
    assert "bank.safetensors" in text


def test_mistakes_are_explained(folder: Path, bank: Path, tmp_path: Path) -> None:
    def error(*arguments: str) -> BaseException:
        found = runner.invoke(app, list(arguments)).exception
        assert found is not None
        return found

    embed = ["embed", str(folder), "--encoder", "convnet", "-o", str(tmp_path / "x.safetensors")]
    for arguments, kind, text in (
        ((*embed, "--views", "shape"), ConfigError, "--k of at least 1"),
        ((*embed, "--dtype", "int8"), ConfigError, "float16 or float32"),
        (("evaluate", str(bank), "--head", "feat"), ConfigError, "--checkpoint"),
        (("evaluate", str(bank), "--head", "feat", "--checkpoint", str(tmp_path)), ConfigError, "not both"),
        (("evaluate", str(bank), "--head", "nope"), ConfigError, "there is no head 'nope'"),
        (("evaluate", str(bank), "--curve", "--query-views", "1"), ConfigError, "--curve"),
        (("evaluate", str(bank)), DataError, "need 16 images in every class"),
        (("evaluate", str(tmp_path / "none")), DataError, "no feature bank"),
    ):
        found = error(*arguments)
        assert isinstance(found, kind)
        assert text in str(found)


def test_a_random_part_of_each_class(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.safetensors"
    arguments = ["embed", str(folder), "--encoder", "convnet", "-o", str(out), "--device", "cpu", "--per-class"]
    result = runner.invoke(app, [*arguments, "5"], catch_exceptions=False)
    assert "30 images of 6 classes" in result.output
    with pytest.raises(DataError, match="13 images of each class asked for, one class has 12"):
        runner.invoke(app, [*arguments, "13"], catch_exceptions=False)


def test_splits_are_not_embedded_as_classes(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "test").symlink_to(folder)
    arguments = ["embed", str(tmp_path / "own"), "--encoder", "convnet", "-o", str(tmp_path / "b"), "--device", "cpu"]
    with pytest.raises(DataError, match=r"holds splits \(test\), not classes: choose one with --split"):
        runner.invoke(app, arguments, catch_exceptions=False)
    result = runner.invoke(app, [*arguments, "--split", "test"], catch_exceptions=False)
    assert "72 images of 6 classes" in result.output
