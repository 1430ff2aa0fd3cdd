"""Views only where they pay: the original answers alone where it is sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from onesdaug import TestTimeEnsemble
from onesdaug.augment.source import ViewSource
from onesdaug.data.pixels import to_pil
from onesdaug.errors import ConfigError


@dataclass
class Counting(ViewSource):
    seen: list[int] = field(default_factory=list)

    def tensors(self, batch: Tensor, k: int, seeds: Sequence[int | str] | None = None) -> Tensor:
        self.seen.append(len(batch))
        return (1 - batch)[:, None].expand(-1, k, -1, -1, -1)


class Brightness(nn.Module):
    """Two classes by brightness: the further from grey, the surer."""

    def forward(self, x: Tensor) -> Tensor:
        far = 8 * (x.mean((1, 2, 3)) - 0.5)
        return torch.stack([-far, far], dim=1)


BATCH = torch.stack([torch.full((3, 4, 4), value) for value in (0.05, 0.48, 0.95, 0.52)])


@pytest.mark.parametrize("combine", ["logits", "probs"])
@pytest.mark.parametrize("pictures", [False, True])
def test_views_are_made_for_the_unsure_alone(combine: str, pictures: bool) -> None:
    fed = to_pil(BATCH) if pictures else BATCH
    some, every = Counting(), Counting()
    model = Brightness().eval()
    sure = TestTimeEnsemble(model, some, k=2, combine=combine, when="unsure", threshold=0.5)
    full = TestTimeEnsemble(model, every, k=2, combine=combine)
    found, whole = sure(fed, return_details=True), full(fed, return_details=True)
    assert sum(some.seen) == 2 and sum(every.seen) == 4
    assert found.kept.any(1).tolist() == [False, True, False, True]
    torch.testing.assert_close(found.output[[1, 3]], whole.output[[1, 3]])
    alone = TestTimeEnsemble(model, every, k=0, combine=combine)(fed)
    torch.testing.assert_close(found.output[[0, 2]], alone[[0, 2]])
    assert found.weights.sum(1).tolist() == [1.0] * 4 and [len(v) for v in found.views] == (
        [0, 2, 0, 2] if pictures else [2] * 4
    )


def test_the_ends_of_the_threshold() -> None:
    none, all_of_them = Counting(), Counting()
    model = Brightness().eval()
    TestTimeEnsemble(model, none, k=2, combine="probs", when="unsure", threshold=0.0)(BATCH)
    TestTimeEnsemble(model, all_of_them, k=2, combine="probs", when="unsure", threshold=1.0)(BATCH)
    assert none.seen == [] and all_of_them.seen == [4]


def test_features_have_no_margin() -> None:
    with pytest.raises(ConfigError, match=r"when='unsure'\) needs class scores"):
        TestTimeEnsemble(Brightness(), Counting(), when="unsure")
    with pytest.raises(ConfigError, match="when='often' is not known"):
        TestTimeEnsemble(Brightness(), Counting(), combine="probs", when="often")
