"""Which device and precision are chosen, and that a device that is not there is said at once."""

from __future__ import annotations

import pytest
import torch

from onesdaug.common.devices import pick_device, pick_dtype
from onesdaug.errors import ConfigError


def test_device_and_dtype_choices() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_dtype("auto", torch.device("cpu")) == torch.float32
    assert pick_dtype("bf16", torch.device("cpu")) == torch.bfloat16
    with pytest.raises(ConfigError, match="float8"):
        pick_dtype("float8", torch.device("cpu"))
    with pytest.raises(ConfigError, match="'gpu' is not known"):
        pick_device("gpu")
    with pytest.raises(ConfigError, match="cuda:99 is not on this machine"):
        pick_device("cuda:99")
