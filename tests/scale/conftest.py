"""A cluster of two nodes on this machine, for all tests that need one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

QUICK = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each; a dead one is noticed within seconds."""
    pytest.importorskip("ray")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    import ray
    from ray.cluster_utils import Cluster

    store = 100 << 20
    head = {"num_cpus": 1, "object_store_memory": store, "include_dashboard": False, "_system_config": QUICK}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.second = made.add_node(num_cpus=1, object_store_memory=store)  # type: ignore[attr-defined]
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()
