"""The denoiser of a generator of photographs: pieces of its training, and the piece that teaches it to guide itself.

A guided step takes two rows, with the image and without. The last piece draws that step with one: the network is told
the scale, and learns from itself, as it was before, what both rows together would have said.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from onesdaug.generators.pocket.networks import telling
from onesdaug.generators.pocket.photo_table import PhotoTable
from onesdaug.generators.pocket.recipe import PhotoDenoiserConfig, PolishConfig
from onesdaug.generators.pocket.train_denoiser import ConditionedDenoiser, decayed_matrices
from onesdaug.generators.pocket.train_stage import PocketStage
from onesdaug.generators.schedule import Schedule
from onesdaug.training.stage import mixed_precision, own_randomness

CLIP = 1.0  # length of a gradient: a rare bad batch must not undo minutes
Look = Callable[[ConditionedDenoiser, int], dict[str, float]]
Critic = Callable[[Tensor, Tensor], Tensor]


class PhotoDenoiserStage(PocketStage):
    """The loss of one step: ||v − v_theta(z_t, t, c)||²; `scores` is the same on the photographs held out.

    `look` is called with the averaged network and the step at every validation: to draw with it, and give more scores.
    In a polish, `critic` says how far the x0 that v implies looks from the real one.
    """

    config: PhotoDenoiserConfig
    model: ConditionedDenoiser
    validations = 2  # what looks on meanwhile takes seconds each time

    def __init__(
        self, config: PhotoDenoiserConfig, model: ConditionedDenoiser, table: PhotoTable, device: torch.device,
        look: Look | None = None, critic: Critic | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, device)
        self.table, self.look, self.critic, self.step = table, look, critic, 0
        # a generator may have drawn with it meanwhile, and set it to be left alone
        self.model = model.to(device, memory_format=torch.channels_last).requires_grad_(True)  # type: ignore[call-overload]
        self.network: Any = self.model
        self.teacher = copy.deepcopy(self.model).eval().requires_grad_(False) if config.guidance > 1 else None
        self.taught: Any = self.teacher
        abar = torch.from_numpy(Schedule.scaled_linear().abar).to(device, torch.float32)
        self.signal, self.noise = abar.sqrt(), (1 - abar).sqrt()

    def loss(self, step: int) -> Tensor:
        self.step = step
        c, small = self.config, self.table.small if self.config.small_batch else None
        rows = self.table.pick(c.batch, c.shares)
        loss = self._error(self.network, self.table, rows, None if small else self.critic)
        if small:
            loss = loss + self._error(self.network, small, small.pick(c.small_batch, c.shares), self.critic)
        return loss

    def _error(self, network: Any, table: PhotoTable, rows: Tensor, critic: Critic | None = None) -> Tensor:
        c, n = self.config, len(rows)
        view = torch.randint(table.views, (n,), device=self.device)
        z0, sides = table.latents[rows, view].float(), table.sides[rows, view]
        coin = torch.rand(n, device=self.device)
        dropped = coin < c.dropped
        same = ~dropped & (coin < c.dropped + (1 - c.dropped) * c.same_class) & (table.labels[rows] >= 0)
        source = torch.where(same, table.another(rows), rows)
        whole, local = table.whole[source, view].float(), table.local[source, view].float()
        # timesteps spread evenly over the batch: less chance in a step
        even = (torch.arange(n, device=self.device) + torch.rand(1, device=self.device)) / n
        even = even[torch.randperm(n, device=self.device)]
        if c.late:
            even = torch.where(same, even.sqrt(), even)
        t = (even * len(self.signal)).long().clamp(max=len(self.signal) - 1)
        signal, noise = (root[t][:, None, None, None] for root in (self.signal, self.noise))
        eps = torch.randn_like(z0)
        z = (signal * z0 + noise * eps).contiguous(memory_format=torch.channels_last)
        v = signal * eps - noise * z0
        scale = torch.ones(n, device=self.device)
        if self.teacher is not None:
            # every scale is as likely as its double
            scale = torch.exp(torch.rand(n, device=self.device) * torch.log(scale * c.guidance))
            v = self._guided(z, t, (whole, local, same), sides, scale, dropped)
        with mixed_precision(self.device):
            made = network(z, t, whole, local, same, dropped, telling(sides, scale)).float()
        loss: Tensor = ((made - v).square().mean((1, 2, 3)) / scale).mean()
        if isinstance(c, PolishConfig) and critic is not None:
            # of all kinds, and more of those that were asked for a class: what one looks like is hardest to learn
            few = (torch.rand(n, device=self.device) - 0.25 * same).argsort()[: c.perceptual_rows]
            loss = loss + c.perceptual * critic((signal * z - noise * made)[few], z0[few])
        return loss

    @torch.no_grad()
    def _guided(
        self, z: Tensor, t: Tensor, condition: tuple[Tensor, Tensor, Tensor], sides: Tensor, scale: Tensor,
        dropped: Tensor,
    ) -> Tensor:  # fmt: skip
        """What two rows of the network as it was say together."""
        told = telling(sides, torch.ones_like(sides))
        with mixed_precision(self.device):
            without, within = (
                self.taught(z, t, *condition, mask, told).float() for mask in (torch.ones_like(dropped), dropped)
            )
        guided: Tensor = without + scale[:, None, None, None] * (within - without)
        return guided

    def scores(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, ConditionedDenoiser)
        with torch.no_grad(), own_randomness(0):
            few = self.table.held[: self.config.batch]
            found = {"held": float(torch.stack([self._error(model, self.table, few) for _ in range(4)]).mean())}
        if self.look is not None and self.step >= self.steps_per_epoch - 1:  # not while steps are counted
            found.update(self.look(model, self.step + 1))
        return found

    def train_step(self, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss(step)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        optimizer.step()
        return loss

    def facts(self) -> dict[str, Any]:
        return {"data": self.table.facts()}

    def optimizer(self) -> torch.optim.Optimizer:
        return decayed_matrices(self.model, self.config.lr, self.config.weight_decay, self.device)

    def compile(self) -> None:
        self.network = torch.compile(self.model, dynamic=False)
        if self.teacher is not None:
            self.taught = torch.compile(self.teacher, dynamic=False)
