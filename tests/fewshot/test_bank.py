"""The feature bank on disk, and the weighted mean it hands out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from onesdaug.cli.fewshot import app
from onesdaug.ensemble.combine import mean, view_weights
from onesdaug.ensemble.select import kept_views
from onesdaug.errors import ConfigError, DataError
from onesdaug.fewshot.bank import BankInfo, FeatureBank, to_dtype


def make_bank(
    features: torch.Tensor, labels: torch.Tensor, source: str = "shape", k: int | None = None
) -> FeatureBank:
    n = len(features)
    views = {"source": source, "k": features.shape[1] - 1 if k is None else k, "config": {"noise_level": 0.7}}
    names = tuple(f"c{c}" for c in range(int(labels.max()) + 1))
    return FeatureBank(
        features, labels, BankInfo(names, tuple(f"c/{i}" for i in range(n)), "data", "encoder", views, 3, "abc")
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_round_trip(tmp_path: Path, dtype: torch.dtype) -> None:
    bank = make_bank(torch.randn(6, 3, 4).to(dtype), torch.arange(6) % 2)
    bank.save(tmp_path / "deep" / "bank.safetensors")
    found = FeatureBank.load(tmp_path / "deep" / "bank.safetensors")
    assert torch.equal(found.features, bank.features)
    assert found.features.dtype == dtype
    assert torch.equal(found.labels, bank.labels)
    assert found.info == bank.info
    assert (found.k, found.dim, found.oracle) == (2, 4, False)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["bank.safetensors"]


def test_loading_maps_the_file_into_memory(tmp_path: Path) -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs /proc to look at memory maps")
    make_bank(torch.zeros(1000, 2, 64), torch.zeros(1000, dtype=torch.int64)).save(tmp_path / "bank.safetensors")
    bank = FeatureBank.load(tmp_path / "bank.safetensors")
    assert str(tmp_path / "bank.safetensors") in maps.read_text()
    assert bank.features.shape == (1000, 2, 64)


def test_combined_is_the_papers_mean() -> None:
    bank = make_bank(torch.tensor([[[1.0], [3.0], [5.0]]]), torch.tensor([0]))
    assert bank.combined(0).item() == 1.0
    assert bank.combined(1).item() == 0.5 * 1 + 0.5 * 3
    assert bank.combined(2).item() == 0.5 * 1 + 0.25 * (3 + 5)
    assert bank.combined(2, original_weight=0.0).item() == 4.0
    assert bank.combined(2, original_weight=1.0).item() == 1.0


def test_combined_is_what_the_ensemble_computes() -> None:
    bank = make_bank(torch.randn(5, 4, 8), torch.zeros(5, dtype=torch.int64))
    weights = torch.tensor([0.4, 0.2, 0.2, 0.2]).expand(5, -1)
    assert torch.allclose(bank.combined(3, 0.4), mean(bank.features, weights), atol=1e-6)


def test_lengths_and_selection_are_the_ensembles() -> None:
    bank = make_bank(
        torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(0)), torch.zeros(5, dtype=torch.int64)
    )
    unit = bank.features / bank.features.norm(dim=-1, keepdim=True)
    weights = torch.tensor([0.4, 0.2, 0.2, 0.2]).expand(5, -1)
    torch.testing.assert_close(bank.combined(3, 0.4, normalise=True), mean(unit, weights))
    torch.testing.assert_close(bank.combined(0, normalise=True), unit[:, 0])
    kept = kept_views(unit, "similarity", 0.5)
    assert (kept.sum(1) == 2).all()
    found = bank.combined(3, 0.4, normalise=True, select="similarity", keep=0.5)
    torch.testing.assert_close(found, mean(unit, view_weights(kept, 0.4)))
    assert not torch.allclose(found, bank.combined(3, 0.4, normalise=True))


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    bank = make_bank(torch.zeros(2, 2, 3), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ConfigError, match="holds 1 per image"):
        bank.combined(2)
    with pytest.raises(ConfigError, match="original_weight"):
        bank.combined(1, 1.5)
    with pytest.raises(DataError, match="onesdaug fewshot embed"):
        FeatureBank.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    for name in ("text", "other"):
        with pytest.raises(DataError, match="not a feature bank"):
            FeatureBank.load(tmp_path / f"{name}.safetensors")
    with pytest.raises(DataError, match="float32"):
        to_dtype(torch.tensor([1e6]), torch.float16)
    with pytest.raises(DataError, match="not finite"):
        to_dtype(torch.tensor([float("nan")]), torch.float32)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_features_that_are_no_numbers_are_refused(tmp_path: Path, value: float, dtype: torch.dtype) -> None:
    features = torch.full((6, 3, 4), 6e4).to(dtype)  # whose sum float16 could not hold
    path = tmp_path / "bank.safetensors"
    make_bank(features, torch.arange(6) % 2).save(path)
    FeatureBank.load(path)
    features[4, 2, 1] = value
    make_bank(features, torch.arange(6) % 2).save(path)
    with pytest.raises(DataError, match=r"bank\.safetensors holds .* NaN or infinite: row 4 \(c/4\), view 2"):
        FeatureBank.load(path)
    result = CliRunner().invoke(app, ["evaluate", str(path), "--way", "2", "--query", "1"])
    assert isinstance(result.exception, DataError) and result.stdout == ""
    with pytest.raises(DataError, match="not finite for c/4"):
        to_dtype(features, dtype, [f"c/{i}" for i in range(6)])


INFO = {
    "class_names": ["a", "b"], "ids": ["0", "1", "2"], "data": "d", "encoder": "e",
    "views": {"source": "shape", "k": 1}, "seed": 0, "commit": "c", "schema": 1,
}  # fmt: skip
WRONG: dict[str, list[Any]] = {
    **{name: [None, 3, {}, "x", [1], [None]] for name in ("class_names", "ids")},
    **{name: [None, 3, [], {}] for name in ("data", "encoder", "commit")},
    "views": [None, [], "x", {}, {"k": 1}, {"source": 3, "k": 1}, {"source": "s", "k": -1}, {"source": "s", "k": "1"},
              {"source": "s", "k": 10**30}, {"source": "s", "k": True}, {"source": "s", "k": 2}],
    "seed": [None, "x", []],
    "schema": [None, "x", 2, 10**40],
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_metadata_in_wrong_shapes_is_one_line(tmp_path: Path, field: str, value: object) -> None:
    path, tensors = tmp_path / "bank.safetensors", {"features": torch.zeros(3, 2, 4), "labels": torch.arange(3)}
    save_file(tensors, path, metadata={"onesdaug": json.dumps(INFO)})
    FeatureBank.load(path)
    for changed in ({**INFO, field: value}, {name: INFO[name] for name in INFO if name != field}):
        save_file(tensors, path, metadata={"onesdaug": json.dumps(changed)})
        if changed.get("schema", 1) == 1 and field == "schema":
            continue  # a bank without one is of this format
        with pytest.raises(DataError, match=r"bank\.safetensors (is not a feature bank|has bank format)"):
            FeatureBank.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 50_000])
def test_metadata_that_is_none(tmp_path: Path, text: str) -> None:
    path, tensors = tmp_path / "bank.safetensors", {"features": torch.zeros(3, 2, 4), "labels": torch.arange(3)}
    save_file(tensors, path, metadata={"onesdaug": text})
    with pytest.raises(DataError, match="is not a feature bank"):
        FeatureBank.load(path)


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (torch.zeros(3, 4), torch.arange(3)),
        (torch.zeros(2, 2, 4), torch.arange(3)),
        (torch.zeros(3, 3, 4), torch.arange(3)),
        (torch.zeros(()), torch.arange(3)),
        (torch.zeros(3, 2, 4), torch.zeros(3)),
        (torch.zeros(3, 2, 4), torch.arange(3) - 1),
        (torch.zeros(3, 2, 4, dtype=torch.int64), torch.arange(3)),
    ],
)
def test_tensors_in_wrong_shapes(tmp_path: Path, features: torch.Tensor, labels: torch.Tensor) -> None:
    path = tmp_path / "bank.safetensors"
    save_file({"features": features, "labels": labels}, path, metadata={"onesdaug": json.dumps(INFO)})
    with pytest.raises(DataError, match="is not a feature bank"):
        FeatureBank.load(path)
