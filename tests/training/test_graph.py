"""Networks whose training steps are recorded: the same losses, gradients and random numbers as launched one by one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from onesdaug.encoders.convnet import ConvNet
from onesdaug.encoders.res12 import Res12
from onesdaug.encoders.transformer import DropPath, SwinTiny, ViTSmall
from onesdaug.training.graph import recorded

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), DropPath(0.5), nn.Flatten(), nn.Linear(288, 5)
    )


def test_a_cpu_has_nothing_to_record() -> None:
    made = network()
    assert recorded(made, torch.rand(4, 3, 8, 8)) is made


def test_only_networks_whose_steps_are_alike_are_recorded() -> None:
    assert ViTSmall.steady and SwinTiny.steady
    assert not Res12.steady and not ConvNet.steady  # DropBlock comes in slowly


def steps(made: nn.Module, batches: list[Tensor], record: bool) -> list[Tensor]:
    """Losses, then the last gradients."""
    call = recorded(made, batches[0]) if record else made
    losses = []
    for number, batch in enumerate(batches):
        made.zero_grad(set_to_none=True)
        torch.manual_seed(number)
        with torch.autocast("cuda", torch.bfloat16):
            loss = call(batch).float().square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter -= 0.1 * parameter.grad
        losses.append(loss.detach())
    return [*losses, *(buffer.float() for buffer in made.buffers()), *(p.grad for p in made.parameters())]


@needs_cuda
def test_recorded_steps_are_those_launched_one_by_one() -> None:
    plain = network().cuda()
    other = copy.deepcopy(plain)
    batches = [torch.rand(4, 3, 8, 8, device="cuda") for _ in range(3)]
    expected, found = steps(plain, batches, False), steps(other, batches, True)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(expected, found, strict=True))


@needs_cuda
def test_what_cannot_be_recorded_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting(nn.Module):
        """Asks the device for a number, which waits for it."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * (2.0 if float(x.sum()) > 0 else 1.0)

    made = Waiting().cuda()
    call = recorded(made, torch.rand(2, 3, device="cuda"))
    assert call is made and call(torch.ones(2, 3, device="cuda")).shape == (2, 3)
