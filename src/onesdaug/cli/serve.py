"""`onesdaug serve`: views and few-shot answers over HTTP."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from onesdaug.cli.options import From, WithRay, examples, options, spelling
from onesdaug.scale.serve.settings import TOKEN, Limits, Networks, Serving
from onesdaug.scale.start import LOCAL, RayOptions

app = typer.Typer(add_completion=False)
CLUSTER = From(RayOptions, panel="More machines", only=("ray",))


@app.command(
    cls=WithRay,
    context_settings=spelling(),
    epilog=examples(
        "serve --model pocket --encoder efficientnet-lite0",
        "serve --model sd15 --host 0.0.0.0 --replicas 8 --ray auto",
    ),
)
@options
def serve(
    *,
    networks: Annotated[Networks, From(Networks, panel="Networks")],
    serving: Annotated[Serving, From(Serving, panel="Service")],
    limits: Annotated[Limits, From(Limits, panel="Limits")],
    cluster: Annotated[RayOptions, CLUSTER],
) -> None:
    """Serve views and few-shot answers over HTTP: /v1/views, /v1/tasks, /healthz, /metrics, /docs.

    Where the environment variable ONESDAUG_TOKEN is set, requests must carry it as bearer token. Ctrl-C or SIGTERM
    stops the service when the requests in work are answered.
    """
    from onesdaug.common.progress import log
    from onesdaug.scale.serve.deploy import serve_until_stopped
    from onesdaug.scale.start import load_ray

    load_ray()
    token = os.environ.get(TOKEN) or None
    if token is None and serving.host not in ("127.0.0.1", "localhost", "::1"):
        log.warning(f"whoever reaches {serving.host}:{serving.port} may use it: set {TOKEN} to ask for a token")
    cluster = cluster if cluster.ray is not None else RayOptions(ray=LOCAL)
    serve_until_stopped(serving, networks, limits, token, cluster)
