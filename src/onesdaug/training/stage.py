"""What can be trained: a stage is its settings, its network, the loss of a step and the scores that choose weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from onesdaug.training.settings import StageSettings


class Stage(ABC):
    """One training: the data on the device, a network, and how a step is made."""

    config: StageSettings
    model: nn.Module
    device: torch.device
    steps_per_epoch: int
    validations = 20  # at most so many in a run whose length a time budget decides
    score_start = False  # what training starts from is a candidate too: if all gets worse, it comes back unchanged

    @property
    @abstractmethod
    def steps(self) -> int:
        """The length of the whole training."""

    @abstractmethod
    def set_epochs(self, epochs: int, eval_every: int) -> None:
        """Take over the length that a time budget allows."""

    @abstractmethod
    def loss(self, step: int) -> Tensor:
        """Of one step, to be made smaller."""

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """A new one for the network; its groups' rates are scaled over the training."""

    def train_step(self, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss(step)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    def train_mode(self) -> None:
        """Called before the first step and after every validation."""
        self.model.train()

    def scores(self, model: nn.Module) -> dict[str, float]:
        """Numbers to watch; the weights with the highest "score" are kept, without one the last."""
        return {}


def mix(seed: int, *parts: int) -> int:
    """A seed for one place in training (splitmix64 steps), so that neighbouring places share nothing."""
    state = seed & (2**64 - 1)
    for part in parts:
        state = (state + 0x9E3779B97F4A7C15 * (part + 1)) & (2**64 - 1)
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        state ^= state >> 31
    return state >> 1


@contextmanager
def own_randomness(seed: int | None = None) -> Iterator[None]:
    """Random numbers inside do not move the caller's; with a seed they are the same every time."""
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def mixed_precision(device: torch.device) -> torch.autocast:
    """bf16 where the hardware has it; plain float32 on a CPU, where it would only be slower."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
