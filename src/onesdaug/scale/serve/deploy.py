"""The service on Ray Serve: one front that speaks HTTP, and replicas of the networks that draw for it in batches."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from onesdaug.common.progress import log
from onesdaug.errors import OnesdaugError
from onesdaug.scale.serve.engine import Answer, Ask, Engine
from onesdaug.scale.serve.settings import Limits, Networks, Serving
from onesdaug.scale.start import LOCAL, RayOptions, connected, settle_in, share

NAME = "onesdaug"
_TRIES = 3


class Replica:
    """One copy of the networks."""

    def __init__(self, networks: Networks, folder: str, batch: tuple[int, float]) -> None:
        settle_in(folder)
        self.engine = Engine(networks)
        self.batched = cast(Any, self.together)  # as Serve wraps it: called with one image, it waits for others
        self.batched.set_max_batch_size(batch[0])
        self.batched.set_batch_wait_timeout_s(batch[1])

    async def about(self) -> dict[str, str]:
        return self.engine.about()

    async def __call__(self, ask: Ask) -> Answer:
        found: Answer = await self.batched(ask)
        return found

    async def together(self, asks: list[Ask]) -> list[Answer]:
        """The images of several requests at once."""
        return await asyncio.to_thread(self.engine.answer, asks)  # health checks are answered meanwhile


class Front:
    """Speaks HTTP; asks a replica again where one died."""

    def __init__(self, replicas: Any, limits: Limits, head: str, token: str | None) -> None:
        self.replicas, self.settings = replicas, (limits, head, token)

    async def __serve_build_asgi_app__(self) -> Any:
        from onesdaug.scale.serve.api import Service, make_app

        limits, head, token = self.settings
        about = await self.replicas.about.remote()
        self.service = Service(self.ask, limits, head, token, about)
        return make_app(self.service)

    async def ask(self, ask: Ask) -> Answer:
        from ray.exceptions import RayError, RayTaskError

        for left in reversed(range(_TRIES)):
            try:
                found: Answer = await self.replicas.remote(ask)
                return found
            except RayTaskError as error:
                return Answer(problem=(500, f"the networks failed ({type(error.cause).__name__})"))
            except RayError as error:  # it died with the request: another replica draws the same views
                if not left or time.time() > ask.until:
                    return Answer(problem=(503, f"the networks are not to be reached ({type(error).__name__})"))
        raise AssertionError

    async def drain(self, seconds: float) -> int:
        return await self.service.drain(seconds)


def application(ray: Any, serving: Serving, networks: Networks, limits: Limits, token: str | None) -> Any:
    """What Serve is to run."""
    from pathlib import Path

    from ray import serve

    _, resources = share(ray, RayOptions(ray=LOCAL, ray_cpus=serving.replica_cpus), networks.device)
    batched = type("Replica", (Replica,), {"together": serve.batch(max_batch_size=1)(Replica.together)})
    replicas = serve.deployment(
        batched,
        name="networks",
        num_replicas=serving.replicas,
        max_ongoing_requests=2 * serving.max_batch,  # one batch is drawn, the next is gathered
        ray_actor_options=resources,
        graceful_shutdown_timeout_s=serving.drain,
        health_check_period_s=2,
    ).bind(networks, str(Path.cwd()), (serving.max_batch, serving.batch_wait))
    front = serve.deployment(
        serve.ingress()(Front),
        name="front",
        max_ongoing_requests=10_000,  # the limit is ours, and answered with Retry-After
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=serving.drain,
    )
    return front.bind(replicas, limits, networks.head, token)


@contextmanager
def running(
    serving: Serving, networks: Networks, limits: Limits, token: str | None, options: RayOptions
) -> Iterator[Any]:
    """The service, up; when the block ends it takes no more requests, finishes those in work, and goes."""
    with connected(options, spill=False) as ray:
        from ray import serve
        from ray.serve.schema import LoggingConfig

        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        quiet = LoggingConfig(enable_access_log=False, log_level="ERROR")  # nothing of a request is written down
        serve.start(http_options={"host": serving.host, "port": serving.port}, logging_config=quiet)
        try:
            app = application(ray, serving, networks, limits, token)
            handle = serve.run(app, name=NAME, route_prefix="/", logging_config=quiet)
            yield handle
            if left := handle.drain.remote(serving.drain).result():
                log.warning(f"{left} images were still in work after {serving.drain:g} s")
        except RuntimeError as error:
            raise OnesdaugError(f"the service did not start: {error}") from error
        finally:
            serve.shutdown()


def serve_until_stopped(
    serving: Serving, networks: Networks, limits: Limits, token: str | None, options: RayOptions
) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = threading.Event()
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    with running(serving, networks, limits, token, options):
        before = [signal.signal(one, lambda *_: stop.set()) for one in signals]
        try:
            log.info(f"serving {networks.model} on http://{serving.host}:{serving.port} (docs at /docs)")
            while not stop.wait(0.5):
                pass
            log.info("stopping: requests in work are finished")
        finally:
            for one, handler in zip(signals, before, strict=True):
                signal.signal(one, handler)
