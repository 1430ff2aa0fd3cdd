"""What the page can be told. Light, for the command line's help is made of it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from onesdaug.common.options import Checked, Device, ModelName


class UiSettings(Checked):
    """Which networks the page uses, where it is, and what one visitor may ask for."""

    model: ModelName = "pocket"
    encoder: str = Field(
        "protonet-convnet", description="Network that looks: the built-in one, a checkpoint, or any that `tune` takes"
    )
    results: Path = Field(Path("results"), description="Folder whose studies the tab Results shows")
    device: Device = "auto"
    port: int = Field(7860, ge=0, le=65535, description="Port on 127.0.0.1; the next free one where it is taken")
    browser: bool = Field(True, description="Open the page in the browser")
    max_k: int = Field(8, ge=1, le=64, description="Views of one image, at most")
    max_megabytes: int = Field(20, ge=1, description="Of one file")
    max_megapixels: float = Field(24, gt=0, description="Of one image")
    max_images: int = Field(24, ge=2, description="Images of one few-shot task, supports and queries together")
