"""Which Ray cluster works, with how many workers; `ray` itself is imported only here and only when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import Field, model_validator

from onesdaug.common.options import Checked
from onesdaug.common.progress import log
from onesdaug.errors import ConfigError, how_to_install

LOCAL = "local"
_OBJECT_STORE = 512 << 20  # bytes on a machine of one's own; views pass through it on their way to the disk


class RayOptions(Checked):
    """A cluster and what each worker takes of it."""

    ray: str | None = Field(
        None,
        description="Spread the work over a Ray cluster: its address (ray://host:10001, host:6379, auto), or `local` "
        "for workers on this machine, which --ray alone means too",
    )
    ray_workers: int | None = Field(
        None, ge=1, description="With --ray: so many at once; else one per GPU, or per CPUs"
    )
    ray_cpus: float | None = Field(
        None,
        gt=0,
        description="With --ray: CPU cores of one worker, and its threads; else one beside a GPU, or as many threads "
        "as the command has without --ray, so that views are the same to the last bit",
    )

    @model_validator(mode="after")
    def _for_ray(self) -> RayOptions:
        if self.ray is None and (self.ray_workers is not None or self.ray_cpus is not None):
            raise ValueError("--ray-workers and --ray-cpus are for --ray: without it one process does the work")
        return self


def load_ray() -> Any:
    """The package, or how to get it."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what matters of its errors is told by us
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a worker without a GPU leaves its variables
    try:
        import ray
    except ImportError:
        raise ConfigError(f"Ray is not installed: {how_to_install('ray')}, or pip install 'onesdaug[ray]'") from None
    return ray


@contextmanager
def connected(options: RayOptions, spill: bool = True) -> Iterator[Any]:
    """Ray, connected; a cluster that was started here ends with the block, one that was there stays.

    Without `spill` nothing of a cluster started here goes to a disk when memory is short.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if options.ray in (None, LOCAL):
        settings |= {"address": LOCAL, "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
        settings |= {"_system_config": {"automatic_object_spilling_enabled": spill}}
    else:
        settings |= {"address": options.ray}
    try:
        ray.init(**settings)
    except Exception as error:  # Ray raises ConnectionError, ValueError, RuntimeError and its own
        raise ConfigError(f"no Ray cluster at {options.ray}: {error}. Start one with `ray start --head`") from error
    nodes = [node for node in ray.nodes() if node["Alive"]]
    resources = ray.cluster_resources()
    log.info(
        f"Ray {ray.__version__}: {len(nodes)} node{'s' * (len(nodes) != 1)}, {resources.get('CPU', 0):g} CPUs, "
        f"{resources.get('GPU', 0):g} GPUs"
    )
    try:
        yield ray
    finally:
        ray.shutdown()


def share(ray: Any, options: RayOptions, device: str) -> tuple[int, dict[str, float]]:
    """How many workers, and the resources of each: a GPU where there are any, unless the device is to be a CPU."""
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if device not in ("cpu", "mps") else 0
    if device.startswith("cuda") and not gpus:
        raise ConfigError(f"--device {device}: the Ray cluster has no GPU")
    cpus = options.ray_cpus or (1 if gpus else _threads(ray))
    fits = int(resources.get("CPU", 0) // cpus)
    if not fits:
        raise ConfigError(f"--ray-cpus {cpus:g}: the Ray cluster has {resources.get('CPU', 0):g} CPUs in all")
    count = options.ray_workers or (min(gpus, fits) if gpus else fits)
    return count, {"num_cpus": cpus, "num_gpus": 1.0 if gpus else 0.0}


def _threads(ray: Any) -> int:
    """As many as the command has by itself: sums over other numbers of threads are rounded otherwise."""
    import torch

    wanted = torch.get_num_threads()
    most = int(max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))
    if most < wanted:
        log.info(
            f"workers have {max(most, 1)} threads, the command without --ray {wanted} here: views may differ in their "
            f"last bits (OMP_NUM_THREADS={max(most, 1)} there makes them equal)"
        )
    return max(min(most, wanted), 1)


def settle_in(folder: str) -> None:
    """A worker stands where the command was given, so that relative paths mean the same, if the folder is there."""
    if os.path.isdir(folder):  # noqa: PTH112
        os.chdir(folder)
