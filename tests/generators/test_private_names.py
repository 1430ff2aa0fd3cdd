"""Names inside diffusers and transformers that we rely on without a promise of theirs: this fails when one moves."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diffusers")

SD = "src/onesdaug/generators/sd"
# class → its attributes, and the file of ours that takes them for granted
UNET = {
    "UNet2DConditionModel": ("_load_ip_adapter_weights attn_processors set_attn_processor time_proj time_embedding "
                             "conv_in down_blocks mid_block up_blocks conv_norm_out conv_out", f"{SD}/ip_adapter.py"),
    "CrossAttnDownBlock2D": ("resnets attentions downsamplers", f"{SD}/fast/unet.py"),
    "DownBlock2D": ("resnets downsamplers", f"{SD}/fast/unet.py"),
    "UNetMidBlock2DCrossAttn": ("resnets attentions", f"{SD}/fast/unet.py"),
    "CrossAttnUpBlock2D": ("resnets attentions upsamplers", f"{SD}/fast/unet.py"),
    "UpBlock2D": ("resnets upsamplers", f"{SD}/fast/unet.py"),
    "ResnetBlock2D": ("time_emb_proj skip_time_act", f"{SD}/fast/unet.py"),
    "BasicTransformerBlock": ("attn1 attn2 ff norm_type only_cross_attention pos_embed", f"{SD}/fast/unet.py"),
    "Attention": ("to_q to_k to_v to_out heads processor", f"{SD}/attention.py"),
    "FeedForward": ("net", f"{SD}/fast/layers.py"),
    "GEGLU": ("proj", f"{SD}/fast/geglu.py"),
}  # fmt: skip
CLIP = {
    "CLIPAttention": ("out_proj", f"{SD}/fast/layers.py"),
    "CLIPMLP": ("fc1 fc2", f"{SD}/fast/layers.py"),
}


@pytest.fixture(scope="module")
def parts() -> Any:
    from onesdaug.bench.random_sd import random_parts

    return random_parts("sd15-tiny", torch.device("cpu"), torch.float32)


def missing(package: str, network: torch.nn.Module, names: dict[str, tuple[str, str]]) -> list[str]:
    found = {type(module).__name__: module for module in network.modules()}
    advice = "adapt it there, then move the bound in pyproject.toml"
    return [
        f"{package} {version(package)}: no {kind}{f'.{name}' if kind in found else ''}, which {file} needs; {advice}"
        for kind, (attributes, file) in names.items()
        for name in attributes.split()
        if not hasattr(found.get(kind), name)
    ]


def test_what_we_take_from_diffusers_and_transformers_is_where_it_was(parts: Any) -> None:
    lines = missing("diffusers", parts.unet, UNET) + missing("transformers", parts.vision, CLIP)
    assert not lines, "\n".join(lines)
    takes = inspect.signature(parts.unet._load_ip_adapter_weights).parameters
    assert {"state_dicts", "low_cpu_mem_usage"} <= set(takes), f"its arguments are now {list(takes)}"


def test_the_bounds_hold_what_is_installed() -> None:
    """A version beyond them may work; only once this file has run with it may they be moved."""
    from packaging.requirements import Requirement

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    bounds = {r.name: r.specifier for r in map(Requirement, project["optional-dependencies"]["sd"])}
    for name in ("diffusers", "transformers"):
        assert any(part.operator == "<" for part in bounds[name]), f"{name} has no upper bound"
        assert version(name) in bounds[name], f"{name} {version(name)} is outside {bounds[name]}"
