"""What a service can be told. Light, for the command line's help is made of it."""

from __future__ import annotations

from pydantic import Field

from onesdaug.common.options import Checked, Device, ModelName

TOKEN = "ONESDAUG_TOKEN"  # environment variable; where it is set, requests must carry it


class Limits(Checked):
    """What a request may ask for, and how many may wait."""

    max_body: int = Field(16 << 20, ge=1, description="Bytes of a request")
    max_pixels: int = Field(16_000_000, ge=1, description="Of one image")
    max_k: int = Field(8, ge=0, description="Views of one image")
    max_images: int = Field(100, ge=1, description="Images of a task's support set")
    max_tasks: int = Field(1000, ge=0, description="Tasks at once; the next is refused until one is deleted")
    queue: int = Field(256, ge=1, description="Images waiting or in work; requests beyond get 503 and Retry-After")
    deadline: float = Field(60, gt=0, description="Seconds a request may take; a header X-Timeout may ask for less")


class Serving(Checked):
    """Where the service listens and what answers."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for all")
    port: int = Field(8000, ge=0, le=65535, description="Port")
    replicas: int = Field(1, ge=1, description="Copies of the networks, each with a GPU where there are any")
    replica_cpus: float = Field(1, gt=0, description="CPU cores of each")
    max_batch: int = Field(16, ge=1, description="Images of different requests that are drawn together")
    batch_wait: float = Field(0.01, ge=0, description="Seconds that an image waits for others")
    drain: float = Field(30, ge=0, description="Seconds that requests in work get when the service is stopped")


class Networks(Checked):
    """What draws the views, and what looks at them to classify."""

    model: ModelName = "pocket"
    preset: str | None = Field(None, description="Settings by name (else the model's own for looking at)")
    encoder: str | None = Field(None, description="Network that looks, for /v1/tasks; without it there are none")
    head: str = Field("protonet", description="Head that classifies, for /v1/tasks")
    device: Device = "auto"
