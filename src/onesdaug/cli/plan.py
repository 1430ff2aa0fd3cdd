"""`onesdaug plan`: what a large job or a service will take, from a measured profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onesdaug.cli.options import From, examples, options, spelling
from onesdaug.errors import ConfigError
from onesdaug.scale.plan import Demand, Profile, Work, told

app = typer.Typer(add_completion=False)


@app.command(
    context_settings=spelling(),
    epilog=examples(
        "plan --images 1e9 --k 3 --profile bench.json --days 7",
        "plan --profile bench.json --rate 40 --k 3 --p99 2",
    ),
)
@options
def plan(
    profile: Annotated[Path, typer.Option(help="What `onesdaug bench -o FILE` measured on one device.")],
    *,
    work: Annotated[Work, From(Work, panel="A batch job")],
    demand: Annotated[Demand, From(Demand, panel="A service")],
) -> None:
    """Say what a large job or a service will take: device hours, nodes, days, storage; replicas, p50 and p99."""
    from onesdaug.cli.screen import say

    if not work.images and not demand.rate:
        raise ConfigError("nothing to plan: give --images for a batch job, --rate for a service, or both")
    for line in told(Profile.read(profile), work, demand):
        say(line)
