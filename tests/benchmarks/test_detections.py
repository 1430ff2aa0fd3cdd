"""A graph like YOLOv8's run by torch, and the detector that the study of POPE's photographs asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file

from benchmarks import onnx_torch
from benchmarks.onnx_torch import Graph
from onesdaug.common.registry import load_object
from onesdaug.studies.kinds.pope.margins import Asker, Photographs
from onesdaug.vlm.model import find_model
from onesdaug.vlm.settings import Asking

CONV = {"dilations": [1, 1], "group": 1, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
POOL = {"ceil_mode": 0, "kernel_shape": [5, 5], "pads": [2, 2, 2, 2], "strides": [1, 1]}
NEAREST = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", "nearest_mode": "floor"}


def write(folder: Path, nodes: list[list[Any]], constants: dict[str, Any], weights: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    listed = {
        name: {"type": str(array.dtype), "shape": array.shape, "values": array.reshape(-1).tolist()}
        for name, array in ((name, np.array(value)) for name, value in constants.items())
    }
    described = {"nodes": nodes, "constants": listed, "input": "images", "output": "out"}
    (folder / "graph.json").write_text(json.dumps(described))
    save_file(weights, folder / "weights.safetensors")
    return folder


def test_every_operator_does_what_onnx_says(tmp_path: Path) -> None:
    nodes = [
        ["Conv", ["images", "w", "b"], ["c"], CONV],
        ["Sigmoid", ["c"], ["s"], {}],
        ["Mul", ["c", "s"], ["m"], {}],
        ["Split", ["m", "halves"], ["m1", "m2"], {"axis": 1}],
        ["MaxPool", ["m2"], ["p"], POOL],
        ["Add", ["m1", "p"], ["a"], {}],
        ["Resize", ["a", "", "scales"], ["r"], NEAREST],
        ["Concat", ["r", "r"], ["k"], {"axis": 1}],
        ["Reshape", ["k", "flat"], ["f"], {"allowzero": 0}],
        ["Reshape", ["f", "four"], ["g"], {"allowzero": 0}],
        ["Transpose", ["g"], ["t"], {"perm": [0, 2, 1, 3]}],
        ["Softmax", ["t"], ["q"], {"axis": 1}],
        ["Shape", ["q"], ["shape"], {}],
        ["Gather", ["shape", "one"], ["width"], {"axis": 0}],
        ["Div", ["width", "two"], ["half"], {}],
        ["Slice", ["q", "zero", "half", "one"], ["first"], {}],
        ["Slice", ["q", "half", "width", "one"], ["second"], {}],
        ["Sub", ["first", "second"], ["d"], {}],
        ["Div", ["d", "eight"], ["out"], {}],
    ]
    whole = {"halves": [2, 2], "flat": [1, 4, -1], "four": [1, 2, 2, -1], "zero": [0], "one": [1], "two": [2]}
    constants: dict[str, Any] = {name: np.array(value, np.int64) for name, value in whole.items()}
    constants |= {"scales": np.array([1, 1, 2, 2], np.float32), "eight": np.float32(8)}
    torch.manual_seed(0)
    weights = {"w": torch.randn(4, 3, 3, 3).half(), "b": torch.randn(4).half()}
    x = torch.rand(3, 3, 16, 16)  # the graph was written for one picture
    got = Graph(write(tmp_path / "graph", nodes, constants, weights))(x)
    c = F.conv2d(x, weights["w"].float(), weights["b"].float(), 2, 1)
    m1, m2 = F.silu(c).split(2, 1)
    r = (m1 + F.max_pool2d(m2, 5, 1, 2)).repeat_interleave(2, 2).repeat_interleave(2, 3)
    q = torch.cat([r, r], 1).reshape(3, 2, 2, -1).transpose(1, 2).softmax(1)
    assert got.dtype == torch.float32
    assert torch.allclose(got, (q[:, :1] - q[:, 1:]) / 8, atol=1e-6)


def test_two_parts_on_tensor_cores_are_as_precise_as_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor cores read the leading bits of both factors; the weights have no others."""
    torch.manual_seed(0)
    weights = {"w": torch.randn(8, 64, 3, 3).half(), "b": torch.randn(8).half()}
    folder = write(tmp_path / "graph", [["Conv", ["images", "w", "b"], ["out"], CONV]], {}, weights)
    x = torch.randn(2, 64, 16, 16)
    assert torch.equal(onnx_torch.leading_bits(x) + (x - onnx_torch.leading_bits(x)), x)
    exact = F.conv2d(x.double(), weights["w"].double(), weights["b"].double(), 2, 1)
    plain, real = Graph(folder, parts=False)(x), F.conv2d

    def cores(x: torch.Tensor, weight: torch.Tensor, *others: Any) -> torch.Tensor:
        assert torch.backends.cudnn.allow_tf32
        return real(onnx_torch.leading_bits(x), onnx_torch.leading_bits(weight), *others)

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(F, "conv2d", cores)
    parts = Graph(folder, parts=True)(x)
    assert not torch.backends.cudnn.allow_tf32  # what is drawn beside it is not touched
    alone = real(onnx_torch.leading_bits(x), weights["w"].float(), weights["b"].float(), 2, 1)
    plain_off, parts_off, alone_off = (float((found - exact).abs().max()) for found in (plain, parts, alone))
    assert parts_off < 3 * plain_off < 3e-4 and alone_off > 1e-2


def test_speed_is_told_for_both_ways(tmp_path: Path) -> None:
    one = {**CONV, "kernel_shape": [1, 1], "pads": [0, 0, 0, 0], "strides": [80, 80]}
    weights = {"w": torch.randn(84, 3, 1, 1).half()}
    told = onnx_torch.speed(write(tmp_path / "graph", [["Conv", ["images", "w"], ["out"], one]], {}, weights), "cpu")
    ways = [f"{way}, {count} at once" for way in ("float32", "two parts") for count in (1, 4, 32)]
    assert list(told) == [*ways, "largest difference of a score"]
    assert min(told[way] for way in ways) >= 0 and told["largest difference of a score"] < 1e-5


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not known here: Erf"):
        Graph(write(tmp_path / "graph", [["Erf", ["images"], ["out"], {}]], {}, {}))


def test_the_detector_looks_at_each_picture_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """84 numbers for each place: the brighter a picture, the surer of a dog."""
    weight = torch.zeros(84, 3, 1, 1)
    weight[4 + 16] = 1 / 3  # stored in 16 bits: not quite
    constants = {"flat": np.array([1, 84, -1], np.int64)}
    one = {**CONV, "kernel_shape": [1, 1], "pads": [0, 0, 0, 0], "strides": [80, 80]}
    nodes = [["Conv", ["images", "w"], ["c"], one], ["Reshape", ["c", "flat"], ["out"], {}]]
    monkeypatch.setenv("DETECTOR", str(write(tmp_path / "graph", nodes, constants, {"w": weight.half()})))
    file = Path(__file__).parents[2] / "benchmarks" / "detections.py"
    copy = tmp_path / "benchmarks" / "detections.py"  # a module of its own: what it is asked with is read once
    copy.parent.mkdir()
    copy.write_text(file.read_text().replace("Path(__file__).resolve().parent", f"Path({str(file.parent)!r})"))
    ask = load_object(f"{copy}:ask")
    dark, bright = (Image.new("RGB", (32, 24), (value,) * 3) for value in (51, 204))
    texts = ["Is there a dog in the image?", "Is there a dog in the image?", "Is there a cat in the image?"]
    said = ask([dark, bright, bright], texts)
    assert said[:2] == pytest.approx([np.log(0.2 / 0.8), np.log(0.8 / 0.2)], abs=5e-3) and said[2] < -10
    looked = load_object(f"{copy}:_seen")
    assert len(looked) == 2 and len(ask.fingerprint) == 16
    ask([dark.copy()], texts[:1])
    assert len(looked) == 2
    # of two sizes, more than are looked at together, and each about several objects: in the order they were given
    many = [Image.new("RGB", (32, 24) if i % 3 else (24, 32), (i,) * 3) for i in range(1, 80)]
    twice = ask([image for image in many for _ in range(2)], texts[1:] * len(many))
    assert twice[::2] == pytest.approx([np.log(i / (255 - i)) for i in range(1, 80)], abs=1e-2)
    assert max(twice[1::2]) < -10 and len(looked) == 81
    monkeypatch.delenv("DETECTOR")
    with pytest.raises(Exception, match="set DETECTOR to yolov8m"):
        load_object(f"{file}:ask")


def test_what_the_detector_said_on_earlier_machines_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file may become faster; the name of the file of answers is that of the first run."""
    (tmp_path / "x.onnx").write_bytes(b"")
    monkeypatch.setenv("DETECTOR", str(tmp_path / "x.onnx"))
    monkeypatch.chdir(Path(__file__).parents[2])
    about, load = find_model("benchmarks/detections.py:ask", Asking(seed=1234, suffix=""))
    about |= {"fingerprint": "91b4bf338a2cc170", "code": load().function.code}  # type: ignore[attr-defined]
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    asker = Asker(load(), about, Photographs(tmp_path), {}, tmp_path, 1234)
    assert asker._file(None, 1, ("", 0.0)).stem == "0895fbc125c27768"
    assert asker._file(None, 1, ("blur", 1.0)).stem == "a61c5a2ad0543143"


def test_pictures_are_enlarged_as_pillow_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.onnx").write_bytes(b"")
    monkeypatch.setenv("DETECTOR", str(tmp_path / "x.onnx"))
    enlarged = load_object(f"{Path(__file__).parents[2] / 'benchmarks' / 'detections.py'}:_enlarged")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 80, 3)).astype(np.uint8))
    both = enlarged(torch.from_numpy(np.stack([np.array(image)[::-1], np.array(image)])))
    got = both[1].permute(1, 2, 0).numpy() * 255
    assert np.abs(got - np.asarray(image.resize((640, 640)), dtype=float)).max() <= 2.01
