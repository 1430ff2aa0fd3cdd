"""The tab Tune: `onesdaug tune` on a folder of this machine, watched while it goes on."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from onesdaug.common.devices import pick_device
from onesdaug.common.files import write_text
from onesdaug.common.progress import Progress, watched
from onesdaug.data.registry import load_data
from onesdaug.encoders.load import load_encoder
from onesdaug.errors import ConfigError
from onesdaug.fewshot.heads import build_head, trained_head
from onesdaug.report.result import StudyResult
from onesdaug.studies import page
from onesdaug.studies.kinds.tune import cost_plot
from onesdaug.tune.run import Wanted, list_of, trial_facts, tune
from onesdaug.tune.search import Trial
from onesdaug.ui import html
from onesdaug.ui.networks import Networks
from onesdaug.ui.work import Work


@dataclass(frozen=True)
class Wish:
    """What is to be tuned, as the page asks for it."""

    folder: str
    encoder: str
    sources: str = "pocket,shape,crop-flip"
    shots: str = "1,5"
    k: int = 3
    minutes: float = 3
    candidates: int = 4

    @property
    def command(self) -> str:
        """The same from a terminal."""
        words = ["onesdaug", "tune", self.folder or "photos", "--encoder", self.encoder, "--sources", self.sources]
        words += ["--shots", self.shots, "--k", str(self.k), "--budget", f"{self.minutes:g}"]
        return shlex.join([*words, "--candidates", str(self.candidates), "-o", "tuned.json"])

    def snippet(self, task: str) -> str:
        """How what was found is used."""
        return "\n".join(
            [
                "from onesdaug import TestTimeEnsemble",
                "from onesdaug.encoders.load import load_encoder",
                "",
                f"encoder = load_encoder({self.encoder!r})",
                f'model = TestTimeEnsemble.from_tuned(encoder, "tuned.json", {task!r})',
                "features = model(images)  # a (B, 3, H, W) tensor in [0, 1]",
            ]
        )


@dataclass(frozen=True)
class Seen:
    """How far it is: what was tried, and at the end the answer with its files."""

    trials: tuple[dict[str, Any], ...] = ()
    result: StudyResult | None = None
    files: tuple[Path, ...] = ()

    @property
    def task(self) -> str:
        """One that was tuned for, the first where views help."""
        uses = {} if self.result is None else self.result.details["tuned"]["uses"]
        return next((name for name, use in uses.items() if use is not None), next(iter(uses), "1-shot"))


def tuned(networks: Networks, wish: Wish, folder: Path, work: Work[Seen]) -> Seen:
    """Tune as the command does. Features stay in `folder` as long as the page runs: the same wish goes on there."""
    if not wish.folder.strip():
        raise ConfigError("Give a folder on this machine that holds a folder of images for each class.")
    if wish.minutes <= 0:
        raise ConfigError(f"the time must be more than 0 minutes, not {wish.minutes:g}")
    shots = list_of(wish.shots)
    if not shots or not all(shot.isdigit() and int(shot) for shot in shots):
        raise ConfigError(f"shots are numbers by commas, such as 1,5; not {wish.shots!r}")
    began, whole = time.monotonic(), 60 * wish.minutes

    def progress(loop: Progress) -> None:
        """The time is what ends it, so the bar shows the time."""
        share = min(0.97, (time.monotonic() - began) / whole)
        doing = loop.doing or loop.what
        work.tell(share, f"{doing[:1].upper()}{doing[1:]}, {time.monotonic() - began:.0f} of about {whole:.0f} s")

    work.tell(None, "Loading the images and the networks")
    device = pick_device(networks.settings.device)
    encoder = load_encoder(wish.encoder, device)
    head = trained_head(wish.encoder) or build_head("protonet", encoder.dim)
    wanted = Wanted(
        list_of(wish.sources), tuple(map(int, shots)), k=wish.k, candidates=wish.candidates, minutes=wish.minutes
    )
    data, out = load_data(wish.folder.strip(), None, None, "val"), Path(mkdtemp(dir=folder))
    trials: tuple[dict[str, Any], ...] = ()

    def watch(found: Sequence[Trial]) -> None:
        nonlocal trials
        trials = tuple(
            {**trial_facts(trial), "uses": [{"gain": trial.gain}]} for trial in found if trial.gain is not None
        )
        work.show(Seen(trials))

    with networks.tunings.turn(work.waiting), watched(progress):
        result = tune(
            data, encoder, head, wanted, folder / "tune", device, Path(wish.folder).name, out / "views.webp", watch
        )
    write_text(out / "tuned.json", result.model_dump_json(indent=1) + "\n")
    write_text(out / "tuned.html", page.render([result], out))
    return Seen(trials, result, (out / "tuned.json", out / "tuned.html"))


def shown_answer(found: Seen) -> str:
    """The sentences that say what to do."""
    if found.result is None:
        return ""
    lines = "".join(html.message(line, "answer") for line in found.result.details["answer"])
    notes = "".join(f'<p class="quiet">{escape(note)}</p>' for note in found.result.notes)
    return lines + notes


def shown_trials(found: Seen) -> str:
    """Gain against cost: of what was tried so far, then of each task."""
    if found.result is not None:
        return "".join(
            html.plot(f"{task['name']}: gain against cost", cost_plot(task)) for task in found.result.details["tasks"]
        )
    if not found.trials:
        return ""
    so_far = {"name": "so far", "finalists": found.trials}
    ranked = sorted(found.trials, key=lambda one: -one["uses"][0]["gain"])
    rows = [(one["label"], _numbers(one)) for one in ranked]
    body = cost_plot(so_far) + html.table(["views", "points", "s per image", "images of each class"], rows)
    return html.plot("Gain against cost, so far", body, "Gains so far are not nested: rather too high.")


def _numbers(trial: dict[str, Any]) -> list[str]:
    seconds = trial["seconds_per_image"]
    return [f"{100 * trial['uses'][0]['gain']:+.1f}", f"{seconds:.2g}" if seconds else "", str(trial["per_class"])]
