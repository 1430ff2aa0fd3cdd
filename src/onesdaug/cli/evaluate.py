"""`onesdaug fewshot evaluate`: a table of accuracies from a bank of features."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from onesdaug.cli.options import From, examples, options, spelling
from onesdaug.cli.screen import results as results_screen
from onesdaug.common.files import write_text
from onesdaug.common.registry import HEADS
from onesdaug.errors import ConfigError
from onesdaug.fewshot.use import ViewUse

if TYPE_CHECKING:
    from onesdaug.fewshot.bank import FeatureBank
    from onesdaug.fewshot.evaluate import Task
    from onesdaug.fewshot.heads import Head

app = typer.Typer(add_completion=False)
Shots = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Scorer:
    """Which head answers."""

    head: Annotated[str | None, f"Untrained (else protonet): {HEADS.choices()}"] = None
    checkpoint: Annotated[Path | None, "A checkpoint folder: take the head (FEAT, …) trained there"] = None
    metric: Annotated[str | None, "euclidean or cosine (else the head's own)"] = None

    def load(self, dim: int) -> tuple[Head, dict[str, Any]]:
        """The head, and how to name it in results."""
        from onesdaug.fewshot.heads import build_head, load_head

        settings = {} if self.metric is None else {"metric": self.metric}
        if self.checkpoint is None:
            if self.head == "feat":
                raise ConfigError(
                    "feat has trained weights: give the --checkpoint that `onesdaug fewshot train` wrote"
                )
            name = self.head or "protonet"
            return build_head(name, dim, **settings), {"name": name, "settings": settings}
        if self.head is not None:
            raise ConfigError(f"{self.checkpoint} brings its own head: give --checkpoint or --head, not both")
        trained = load_head(self.checkpoint, **settings)
        if trained is None:
            raise ConfigError(f"{self.checkpoint} is a pretrained backbone without a head; choose one with --head")
        kind = type(trained).__name__
        return trained, {"name": kind, "settings": settings, "checkpoint": str(self.checkpoint)}


@dataclass(frozen=True)
class Episodes:
    """What is asked of the features."""

    shot: Annotated[tuple[Shots, ...], Field(description="Support images per class; may be repeated")] = (1, 5)
    way: Annotated[int, Field(ge=2, description="Classes per episode")] = 5
    query: Annotated[int, Field(ge=1, description="Queries per class")] = 15
    episodes: Annotated[
        int | None, Field(ge=1, description="Number of episodes (else 15,000 queries, 200 episodes of 75)")
    ] = None
    seed: Annotated[int, Field(ge=0, description="Decides the episodes")] = 0


_USE = {"support": "support-views", "query": "query-views"}
USE = From(ViewUse, _USE, panel="How views are used", without=("auto",), partial=True)


@app.command(
    context_settings=spelling(),
    epilog=examples(
        "fewshot evaluate cub.safetensors --checkpoint runs/cub --curve",
        "fewshot evaluate photos.safetensors --head protonet --way 5 --shot 1 --explain",
    ),
)
@options
def evaluate(
    bank: Annotated[Path, typer.Argument(metavar="BANK", help="What `onesdaug fewshot embed` wrote.")],
    *,
    baseline: Annotated[
        Path | None, typer.Option(help="Compare with this bank and all its views (else: with no views at all).")
    ] = None,
    scorer: Annotated[Scorer, From(Scorer)],
    asked: Annotated[Episodes, From(Episodes)],
    curve: Annotated[bool, typer.Option("--curve", help="One row for each number of views, 1 to K.")] = False,
    k: Annotated[
        str | None,
        typer.Option(
            "--k", "-k", help="Views on both sides; auto: queries one by one, until one more changes nothing."
        ),
    ] = None,
    use: Annotated[dict[str, Any], USE],
    preset: Annotated[
        Path | None, typer.Option(metavar="TUNED.json", help="Use the views as `onesdaug tune` chose, shot by shot.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Then say why the views (the last row's) helped or hurt, in sentences.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also write .json (for `onesdaug report`), .csv or .tex."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Also draw the gains; with --curve accuracy over the views."),
    ] = None,
) -> None:
    """Accuracy on N-way K-shot episodes, with 95 % intervals, and the paired gain over the baseline."""
    from onesdaug.common.own import calling
    from onesdaug.fewshot.bank import FeatureBank
    from onesdaug.fewshot.evaluate import Task
    from onesdaug.fewshot.evaluate import evaluate as score
    from onesdaug.report.terminal import print_parts
    from onesdaug.studies.kind import shown_by
    from onesdaug.studies.kinds.evaluation import as_text, to_result

    _check_endings({output: (".json", ".csv", ".tex"), plot: (".svg",)})
    started = time.perf_counter()
    features = FeatureBank.load(bank)
    other = None if baseline is None else FeatureBank.load(baseline)
    head, described = scorer.load(features.dim)
    tasks = [Task(asked.way, n, asked.query, asked.episodes, asked.seed) for n in asked.shot]
    use |= _numbers(k, features, use, curve)
    uses = [_uses(features, task, use, curve, preset) for task in tasks]
    with calling(f"head {described['name']}", head):
        scored = (score(features, head, [task], mine, other) for task, mine in zip(tasks, uses, strict=True))
        results = [row for rows in scored for row in rows]
    banks = {bank: features} | ({} if baseline is None or other is None else {baseline: other})
    found = to_result(results, banks, described, time.perf_counter() - started)
    print_parts(shown_by(found), results_screen())
    for path in filter(None, (output, plot)):
        write_text(path, as_text(found, path.suffix))
    if explain:
        for task, mine in zip(tasks, uses, strict=True):
            _explain(features, head, task, mine[-1] if mine else None, other, baseline.name if baseline else "")


def _numbers(k: str | None, bank: FeatureBank, given: dict[str, Any], curve: bool) -> dict[str, Any]:
    """What --k says of a use."""
    if k is None:
        return {}
    if curve or "support" in given or "query" in given:
        raise ConfigError("--k says how many views there are: leave out --curve and --support/query-views")
    if k == "auto":
        return {"auto": True}
    if not k.isdigit() or int(k) > bank.k:
        raise ConfigError(f"--k takes auto or a number up to {bank.k}, the views of this bank; not {k!r}")
    return {"support": int(k), "query": int(k)}


def _uses(bank: FeatureBank, task: Task, given: dict[str, Any], curve: bool, tuned: Path | None) -> list[ViewUse]:
    """What was asked for, else all views; of a tuned file the use that was chosen for this number of shots."""
    if tuned is not None:
        auto = given == {"auto": True}
        if (given and not auto) or curve:
            raise ConfigError(f"{tuned} says how views are used: leave out --curve and the settings of their use")
        from onesdaug.augment.tuned import Tuned

        chosen = Tuned.read(tuned).checked(bank.info.encoder, bank.info.views).uses.get(f"{task.shot}-shot")
        return [] if chosen is None else [ViewUse(chosen.k, chosen.k, **chosen.model_dump(exclude={"k"}), auto=auto)]
    if not curve:
        return [ViewUse(**({"support": bank.k, "query": bank.k} | given))]
    if "support" in given or "query" in given:
        raise ConfigError("--curve uses the same number of views on both sides: leave out --support/query-views")
    return [ViewUse(n, n, **given) for n in range(1, bank.k + 1)]


def _explain(
    bank: FeatureBank,
    head: Head,
    task: Task,
    use: ViewUse | None,
    baseline: FeatureBank | None,
    name: str,
) -> None:
    """One paragraph, against the baseline that was given, or the originals of the same bank."""
    from onesdaug.analysis.explain import explain, nothing_to_explain

    why_not = nothing_to_explain(bank, use, baseline)
    if use is None or why_not is not None:
        typer.echo(why_not)
        return
    typer.echo("\n" + "\n".join(explain(bank, head, task, use, baseline, name).lines()))


def _check_endings(wanted: dict[Path | None, tuple[str, ...]]) -> None:
    """Said before anything is computed."""
    for path, endings in wanted.items():
        if path is not None and path.suffix not in endings:
            raise ConfigError(f"{path} must end in {', '.join(endings)}: that says what is written")
