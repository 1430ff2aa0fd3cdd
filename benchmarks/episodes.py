"""10,000 episodes from stored features: onesdaug against easyfsl's per-episode loop, in one run, on the same features.

    pip install --no-deps --target /tmp/easyfsl easyfsl==1.5.0
    python benchmarks/episodes.py --easyfsl /tmp/easyfsl

The peer is easyfsl itself: its FeaturesDataset, TaskSampler, collate function, PrototypicalNetworks and `evaluate`,
unchanged, with the better of one and two threads. It imports torchvision, pandas and matplotlib at the top of files
this path never uses; where they are not installed, empty stand-ins take their place. Both sides sample their episodes
inside the measured time. Measure on a quiet machine: the result names the load it started under.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

from onesdaug.fewshot.bank import BankInfo, FeatureBank
from onesdaug.fewshot.evaluate import Task, ViewUse, accuracies, features_for
from onesdaug.fewshot.heads import ProtoNet
from onesdaug.statistics import mean_ci

CLASSES, PER_CLASS, DIM = 20, 600, 640  # the miniImageNet test split in Res12 features
RESULT = Path(__file__).parent / "results" / "episodes.json"


def make_bank(path: Path) -> None:
    """Gaussian classes whose separation gives an accuracy like a real backbone's."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, 1, DIM, generator=generator) * 0.35
    features = (centres + torch.randn(CLASSES, PER_CLASS, DIM, generator=generator)).flatten(0, 1)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    names = tuple(f"class{c}" for c in range(CLASSES))
    ids = tuple(f"class{c}/{i}" for c in range(CLASSES) for i in range(PER_CLASS))
    info = BankInfo(names, ids, "gaussian", "none", {"source": "none", "k": 0}, 0, "benchmark")
    FeatureBank(features.half().unsqueeze(1), labels, info).save(path)


def ours(path: Path, task: Task) -> float:
    """Open the bank, sample, check for leaks, score: all of what `onesdaug fewshot evaluate` does for one row."""
    bank = FeatureBank.load(path)
    episodes = task.sample(bank.labels)
    return mean_ci(accuracies(ProtoNet(), features_for(bank, episodes, ViewUse()), episodes)).mean


def import_easyfsl(folder: str | None) -> Any:
    """easyfsl's parts; stand-ins for what it imports and this path does not use."""
    if folder:
        sys.path.append(folder)
    missing = [name for name in ("torchvision", "pandas", "matplotlib") if find_spec(name) is None]
    for name in missing:
        below = ("", ".transforms", ".models", ".models.resnet", ".datasets") if name == "torchvision" else ("",)
        sys.modules.update({name + part: MagicMock() for part in below})
    # its sampler passes data_source=None, an argument torch has dropped since
    torch.utils.data.Sampler.__init__ = lambda self, data_source=None: None  # type: ignore[method-assign,assignment]
    import easyfsl
    from easyfsl.datasets import FeaturesDataset
    from easyfsl.methods import PrototypicalNetworks
    from easyfsl.samplers import TaskSampler
    from easyfsl.utils import evaluate

    parts = argparse.Namespace(FeaturesDataset=FeaturesDataset, TaskSampler=TaskSampler, evaluate=evaluate)
    parts.PrototypicalNetworks, parts.version, parts.stand_ins = PrototypicalNetworks, easyfsl.__version__, missing
    return parts


def theirs(easyfsl: Any, dataset: Any, task: Task) -> float:
    sampler = easyfsl.TaskSampler(dataset, task.way, task.shot, task.query, task.episodes)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=sampler.episodic_collate_fn)
    return float(easyfsl.evaluate(easyfsl.PrototypicalNetworks(), loader, device="cpu", use_tqdm=False))


class Timer:
    """Wall and CPU seconds of each run; the latter say what a busy machine hides."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.accuracy = 0.0

    def run(self, work: Callable[[], float]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.accuracy = work()
        self.wall.append(round(time.perf_counter() - wall, 4))
        self.cpu.append(round(time.process_time() - cpu, 4))

    def record(self) -> dict[str, Any]:
        return {"seconds": self.wall, "cpu_seconds": self.cpu, "accuracy": self.accuracy}


def same_answers(easyfsl: Any, path: Path) -> bool:
    """On the same 200 episodes, both give the same accuracy in every one of them."""
    bank = FeatureBank.load(path)
    table, episodes = bank.combined(0), Task(episodes=200).sample(bank.labels)
    mine = accuracies(ProtoNet(), features_for(bank, episodes, ViewUse()), episodes)
    model, support_labels = easyfsl.PrototypicalNetworks(), torch.arange(5)
    for i in range(len(episodes)):
        model.process_support_set(table[episodes.support[i].flatten()], support_labels)
        answer = model(table[episodes.query[i].flatten()]).argmax(1)
        if abs((answer == episodes.targets).double().mean().item() - mine[i]) > 1e-9:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--easyfsl", help="folder easyfsl was installed to with --target")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args()
    torch.set_num_threads(2)
    load = round(os.getloadavg()[0], 2)  # of others, before we start
    task = Task(5, 1, 15, args.episodes, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank.safetensors"
        make_bank(path)
        mine, peers = Timer(), {1: Timer(), 2: Timer()}
        mine.run(lambda: ours(path, task))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # before the peer is even imported
        easyfsl = import_easyfsl(args.easyfsl)
        bank = FeatureBank.load(path)
        names = list(bank.info.class_names)
        dataset = easyfsl.FeaturesDataset(bank.labels.tolist(), bank.combined(0), names)
        for _ in range(args.repeats):  # in turns, so that a busy moment hits both
            for threads, timer in peers.items():  # its operations are small: one thread may well be faster
                torch.set_num_threads(threads)
                timer.run(lambda: theirs(easyfsl, dataset, task))
            mine.run(lambda: ours(path, task))  # with the two threads the loop ended with
        threads, peer = min(peers.items(), key=lambda item: statistics.median(item[1].wall))
        agree = same_answers(easyfsl, path)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, cwd=Path(__file__).parent
    ).stdout.strip()
    record = {
        "what": f"{args.episodes} 5-way 1-shot episodes, 15 queries a class, {CLASSES}×{PER_CLASS} images, d = {DIM}",
        "command": " ".join(["python", *sys.argv]),
        "commit": commit,
        "device": f"CPU {platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "load_average": load,
        "onesdaug": {**mine.record(), "peak_memory_mb": round(memory)},
        "easyfsl": {**peer.record(), "threads": threads, "version": easyfsl.version, "stand_ins": easyfsl.stand_ins},
        "speedup": round(statistics.median(peer.wall) / statistics.median(mine.wall), 1),
        "same_accuracy_on_same_episodes": agree,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
