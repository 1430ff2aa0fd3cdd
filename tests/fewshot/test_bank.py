"""The feature bank on disk, and the weighted mean it hands out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from onesdaug.ensemble.combine import mean
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
