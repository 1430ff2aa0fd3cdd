"""`onesdaug generator train`: the pocket recipe from base-class images to a folder of weights, stage by stage.

    encoder ─► autoencoder ─► denoiser ─► polish ─► NAME/model-*.safetensors + card.json

Every finished stage lies in NAME.state and is not run again; a stage that was cut off goes on where it was. A
generator with another condition encoder starts from a finished one (`init`): it takes over autoencoder and denoiser.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from onesdaug.common.files import whole_file, write_text
from onesdaug.data.dataset import Dataset
from onesdaug.encoders.checkpoint import part, save_checkpoint
from onesdaug.errors import ConfigError, DataError
from onesdaug.generators.pocket.condition import SlimRes12, build_condition, feature_size
from onesdaug.generators.pocket.generator import KIND, load_weights
from onesdaug.generators.pocket.networks import Autoencoder, Denoiser, Tokens
from onesdaug.generators.pocket.recipe import STAGES, Recipe, StageConfig
from onesdaug.generators.pocket.train_autoencoder import AutoencoderStage
from onesdaug.generators.pocket.train_condition import ConditionStage
from onesdaug.generators.pocket.train_denoiser import Both, DenoiserStage, Table
from onesdaug.training.budget import Stage, fit_to_budget
from onesdaug.training.loop import Log, Loop, mix, say


class Configured(Stage, Protocol):
    config: Any


@contextmanager
def seeded(place: str) -> Iterator[None]:
    """Randomness of one place of the run, whatever ran before: what a resumed run makes anew is what was there."""
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(mix(0, ("networks", "table", *STAGES).index(place)))
        yield


class Training:
    """One run: the recipe, the data, and where finished stages lie."""

    def __init__(
        self,
        recipe: Recipe,
        train: Dataset,
        init: str | None,
        out: Path,
        device: torch.device,
        log: Log,
        deadline: float | None,
    ) -> None:
        self.recipe, self.device, self.log, self.deadline = recipe, device, log, deadline
        self.state = out.with_name(f"{out.name}.state")
        # a stage that was finished for another recipe or other images must not become part of this generator
        mine = json.dumps({"recipe": recipe.to_dict(), "data": train.fingerprint, "init": init}, sort_keys=True)
        run = self.state / "run.json"
        if run.is_file() and run.read_text() != mine:
            raise ConfigError(
                f"{self.state} belongs to a run with another recipe, data or --init; delete it or name another folder"
            )
        write_text(run, mine)
        self.stages: dict[str, dict[str, Any]] = {}
        if device.type == "cuda":
            torch.backends.cudnn.benchmark = True
            torch.set_float32_matmul_precision("high")

    def stage(self, name: str, module: nn.Module, build: Callable[[], Configured], config: StageConfig) -> None:
        """Run a stage, or load what an earlier call finished; `module` holds the averaged weights afterwards."""
        done, card = self.state / f"{name}.pt", self.state / f"{name}.json"
        if done.is_file() and card.is_file():
            module.load_state_dict(torch.load(done, map_location="cpu", weights_only=True))
            module.to(self.device)
            self.stages[name] = json.loads(card.read_text())
            self.log(f"{name}: done already")
            return
        with seeded(name):
            self._run(name, module, build, config)

    def _run(self, name: str, module: nn.Module, build: Callable[[], Configured], config: StageConfig) -> None:
        done, card = self.state / f"{name}.pt", self.state / f"{name}.json"
        stage = build()
        plan = self.state / f"{name}.plan.json"
        if config.seconds is not None:
            epochs, _ = fit_to_budget(stage, config.seconds, plan, self.log, evals=1)
            config = replace(config, steps=epochs * stage.steps_per_epoch)
            stage.config = config
        self.log(f"{name}: {config.steps} steps of {config.batch}")
        loop = Loop(
            stage.model.train(), stage.optimizer(), config, stage.steps_per_epoch, config.steps,
            self.state / f"{name}.loop.pt", 90.0, self.log,
        )  # fmt: skip
        began, first = time.monotonic(), loop.progress.step
        loop.run(stage.loss, stage.scores, self.deadline)
        rate = (loop.progress.step - first) * config.batch / max(1e-9, time.monotonic() - began)
        stage.model.load_state_dict(loop.average.state_dict())
        stage.model.eval()
        if isinstance(stage, AutoencoderStage):
            stage.set_scale(stage.model)
        self.stages[name] = {
            "steps": config.steps, "batch": config.batch, "seconds": round(loop.progress.seconds, 1),
            "images_per_second": round(rate), "history": loop.progress.history[-1:],
        }  # fmt: skip
        with whole_file(done) as temporary:
            torch.save({k: v.cpu() for k, v in module.state_dict().items()}, temporary)
        write_text(card, json.dumps(self.stages[name]) + "\n")
        (self.state / f"{name}.loop.pt").unlink(missing_ok=True)


def train(
    recipe: Recipe,
    data: Dataset,
    out: Path,
    *,
    init: Path | None = None,
    data_name: str = "",
    mode: str = "class",
    device: torch.device | str = "cpu",
    deadline: float | None = None,
    facts: dict[str, Any] | None = None,
    log: Log = say,
) -> dict[str, Any]:
    """Train all stages and write the generator's folder; returns its card. Raises OutOfTime at the deadline."""
    if data.n_classes < 2:
        raise DataError(f"the recipe needs images of at least two classes, got {data.n_classes}")
    if (recipe.condition != "slim-res12") != (init is not None):
        raise ConfigError("a condition encoder from outside needs --init, a finished generator; slim-res12 needs none")
    device = torch.device(device)
    config = recipe.network
    size = feature_size(recipe.condition, recipe.widths)
    if (config.global_dim, config.local_dim) != (size, size):
        raise ConfigError(f"{recipe.condition} gives features of {size}, the network expects {config.global_dim}")
    with seeded("networks"):
        eye, autoencoder = SlimRes12(recipe.widths), Autoencoder(config)
        both = Both(Denoiser(config), Tokens(config))
    eye.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as its own stage leaves it
    start = None if init is None else start_from(init, recipe, eye, autoencoder, both)
    run = Training(recipe, data, start, out, device, log, deadline)
    if init is None:
        run.stage("encoder", eye, lambda: ConditionStage(run.recipe.encoder, eye, data, device), recipe.encoder)
        run.stage(
            "autoencoder", autoencoder,
            lambda: AutoencoderStage(recipe.autoencoder, autoencoder, eye, config.size, data, device),
            recipe.autoencoder,
        )  # fmt: skip
        condition: nn.Module = eye
    else:
        condition = build_condition(recipe.condition)
    for module in (eye, autoencoder, condition):
        module.to(device).eval().requires_grad_(False)
    tables: list[Table] = []

    def table() -> Table:
        if not tables:
            c = recipe.denoiser
            began = time.monotonic()
            with seeded("table"):
                tables.append(
                    Table(data, autoencoder, condition, config.size, c.target_views, c.condition_views, device)
                )
            log(f"latents {tuple(tables[0].latents.shape)}, features {tuple(tables[0].local.shape)} "
                f"in {time.monotonic() - began:.1f} s")  # fmt: skip
        return tables[0]

    def denoiser() -> DenoiserStage:
        table().set_statistics(both.to(device).tokens)
        return DenoiserStage(recipe.denoiser, both, table(), autoencoder, eye, device)

    run.stage("denoiser", both, denoiser, recipe.denoiser)
    run.stage(
        "polish", both, lambda: DenoiserStage(recipe.polish, both, table(), autoencoder, eye, device), recipe.polish
    )
    parts: dict[str, nn.Module] = {"autoencoder": autoencoder, "denoiser": both.denoiser, "tokens": both.tokens}
    if init is None:
        parts["condition"] = eye
    card = {
        "kind": KIND,
        "mode": mode,
        "network": config.to_dict(),
        "condition": {"name": recipe.condition, "widths": list(recipe.widths)},
        "data": {"name": data_name, "classes": list(data.class_names), "images": len(data),
                 "fingerprint": data.fingerprint},
        "init": start,
        "recipe": recipe.to_dict(),
        "stages": run.stages,
        "seconds": round(sum(stage["seconds"] for stage in run.stages.values()), 1),
        **(facts or {}),
    }  # fmt: skip
    return save_generator(out, parts, card)


def save_generator(out: Path, parts: dict[str, nn.Module], card: dict[str, Any]) -> dict[str, Any]:
    tensors = {f"{name}.{key}": value for name, module in parts.items() for key, value in module.state_dict().items()}
    return save_checkpoint(out, tensors, card, half=True)


def start_from(init: Path, recipe: Recipe, eye: SlimRes12, autoencoder: Autoencoder, both: Both) -> str:
    """Take over a finished generator; the projections of another encoder's features have other sizes and stay new.

    Returns the fingerprint of its weights.
    """
    tensors, card = load_weights(init)
    encoder = {"name": "slim-res12", "widths": list(recipe.widths)}
    sizes = {k: v for k, v in recipe.network.to_dict().items() if k not in ("global_dim", "local_dim")}
    if card["condition"] != encoder or any(card["network"][k] != v for k, v in sizes.items()):
        raise ConfigError(f"--init {init} is a generator of other sizes or without a slim Res12 of its own")
    eye.load_state_dict(part(tensors, "condition"))
    autoencoder.load_state_dict(part(tensors, "autoencoder"))
    both.denoiser.load_state_dict(part(tensors, "denoiser"))
    mine = both.tokens.state_dict()
    fitting = {k: v for k, v in part(tensors, "tokens").items() if v.shape == mine[k].shape}
    both.tokens.load_state_dict({**mine, **fitting})
    return str(card["weights"])
