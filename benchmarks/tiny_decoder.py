"""Distil a pocket generator's decoder into a tiny one, on miniImageNet's base classes.

    OMP_NUM_THREADS=1 nice python benchmarks/tiny_decoder.py --data ../shared/data --minutes 20

The real decoder draws crops of base-class images once, a third of them from latents with some noise, as a
denoiser leaves them; the tiny one learns these pictures by absolute error, of the pixels and of their differences to
the neighbours, until the minutes are over. Writes artifacts/pocket-tiny-decoder, which is for pocket-imagenet; its
card says how near it comes on validation-class images.

    onesdaug augment photo.jpg -o views --model pocket-imagenet --decoder artifacts/pocket-tiny-decoder
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from onesdaug.common.provenance import commit, describe_machine  # noqa: E402
from onesdaug.data.registry import load_split  # noqa: E402
from onesdaug.encoders.checkpoint import save_checkpoint  # noqa: E402
from onesdaug.generators.pocket.cards import DECODER  # noqa: E402
from onesdaug.generators.pocket.generator import Pocket  # noqa: E402
from onesdaug.generators.pocket.networks import Autoencoder, TinyDecoder  # noqa: E402
from onesdaug.training.augment import DeviceAugment  # noqa: E402

SIDES = (96, 96, 64)  # a tiny decoder has to serve smaller squares too: crops of one group each
NETWORK = {"channels": 4, "width": 48, "depth": 3}
BATCH, RATE, GRADIENT = 16, 2e-3, 0.5
NOISE = 0.3  # the most that is added to latents of about unit variance
Pair = tuple[Tensor, Tensor]  # latents, pictures


@torch.no_grad()
def draw(autoencoder: Autoencoder, x: Tensor, noisy: bool = False) -> Pair:
    """Latents of images (or some way off them) and what the real decoder makes of them, in [-1, 1]."""
    z = autoencoder.posterior(x)[0]
    if noisy:
        z = z + torch.rand(len(z), 1, 1, 1) * NOISE * torch.randn_like(z)
    return z, autoencoder.decoder(z)


def lessons(autoencoder: Autoencoder, images: Tensor, seconds: float) -> list[Pair]:
    """Latents and pictures of as many crops as the seconds allow, a group per side."""
    began = time.monotonic()
    groups: list[list[Pair]] = [[] for _ in SIDES]
    for number, rows in enumerate(torch.randperm(len(images)).split(BATCH)):
        if number >= len(SIDES) and time.monotonic() - began > seconds:
            break
        place = number % len(SIDES)
        x = DeviceAugment(SIDES[place], crop_scale=(0.4, 1.0), jitter=0.15)(images[rows])[0]
        groups[place].append(draw(autoencoder, x, noisy=number // len(SIDES) % 3 == 2))
    return [(torch.cat([z for z, _ in group]), torch.cat([picture for _, picture in group])) for group in groups]


def distance(made: Tensor, wanted: Tensor) -> Tensor:
    """Absolute error of the pixels, and of the steps to the right and down: edges are what a small network blurs."""
    error = made - wanted
    return error.abs().mean() + GRADIENT * (error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean())


def train(tiny: TinyDecoder, groups: list[Pair], seconds: float) -> int:
    """Adam with a rate that falls to nothing when the seconds are over; returns the steps."""
    optimizer = torch.optim.Adam(tiny.parameters(), lr=RATE, betas=(0.9, 0.99))
    began, step, sofar = time.monotonic(), 0, 0.0
    while (spent := (time.monotonic() - began) / seconds) < 1:
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 50) * (1 + math.cos(math.pi * spent)) / 2
        z, pictures = groups[step % len(groups)]
        rows = torch.randint(len(z), (BATCH,))
        loss = distance(tiny(z[rows]), pictures[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step, sofar = step + 1, sofar + loss.item()
        if step % 200 == 0:
            print(f"step {step}, {spent:.0%} of the time, loss {sofar / 200:.4f}", flush=True)
            sofar = 0.0
    return step


@torch.no_grad()
def likeness(autoencoder: Autoencoder, tiny: TinyDecoder, images: Tensor, side: int) -> dict[str, float]:
    """Mean PSNR in dB, over whole pictures in [0, 1]."""
    found: dict[str, list[Tensor]] = {}
    for part in images.split(BATCH):
        x = F.interpolate(part.permute(0, 3, 1, 2).float() / 255, (side, side), mode="bicubic", antialias=True)
        x = x.clamp(0, 1)
        for kind, noisy in (("", False), (", noisy latents", True)):
            z, real = draw(autoencoder, x, noisy)
            real, small = ((made / 2 + 0.5).clamp(0, 1) for made in (real, tiny(z)))
            pairs = {"tiny against real": (small, real), "real against image": (real, x)}
            for name, (a, b) in (pairs | {"tiny against image": (small, x)}).items():
                found.setdefault(name + kind, []).append(-10 * (a - b).square().mean((1, 2, 3)).log10())
    return {name: round(float(torch.cat(parts).mean()), 2) for name, parts in found.items()}


def operations(network: torch.nn.Module, side: int) -> int:
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, NETWORK["channels"], side // 4, side // 4))
    return int(counter.get_total_flops())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds miniimagenet/")
    parser.add_argument("--model", default="pocket-imagenet", help="whose decoder: a name or folder")
    parser.add_argument("--minutes", type=float, default=20.0, help="in all; a third of them at most for the lessons")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "artifacts" / "pocket-tiny-decoder")
    options = parser.parse_args()
    torch.manual_seed(0)
    pocket = Pocket.from_pretrained(options.model, device="cpu", dtype="float32")
    base = load_split("miniimagenet", "train", options.data).sample(150)  # of each class
    groups = lessons(pocket.autoencoder, torch.from_numpy(base.images), options.minutes * 20)
    crops = {"crops": sum(len(z) for z, _ in groups), "sides": sorted(set(SIDES)), "noise": NOISE}
    print(crops, flush=True)
    tiny = TinyDecoder(**NETWORK)
    steps = train(tiny, groups, options.minutes * 40)
    val = load_split("miniimagenet", "val", options.data).sample(20)
    psnr = {f"{s} px": likeness(pocket.autoencoder, tiny, torch.from_numpy(val.images), s) for s in (96, 80, 64, 48)}
    counted = {"real": operations(pocket.autoencoder.decoder, 96), "tiny": operations(tiny, 96)}
    card = {
        "kind": DECODER,
        "network": NETWORK,
        "latents": pocket.latents,
        "data": {"name": "miniimagenet", "split": "train", "fingerprint": base.fingerprint, **crops},
        "training": {"steps": steps, "batch": BATCH, "rate": RATE, "gradient": GRADIENT, "minutes": options.minutes},
        "psnr": {"images": f"{len(val)} of the validation classes", **psnr},
        "operations": counted,
        "commit": commit(),
        "machine": describe_machine(pocket.device),
    }
    save_checkpoint(options.output, {f"decoder.{k}": v for k, v in tiny.state_dict().items()}, card, half=True)
    print(f"{options.output}: {steps} steps, {counted['tiny'] / counted['real']:.3f} of the operations, PSNR {psnr}")


if __name__ == "__main__":
    main()
