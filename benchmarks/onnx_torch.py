"""An ONNX graph run by torch, where there is a GPU and no onnxruntime: the operators that YOLOv8 has, and no others.

    python benchmarks/onnx_torch.py convert yolov8m.onnx FOLDER           needs `pip install onnx`; weights as float16
    python benchmarks/onnx_torch.py check yolov8m.onnx FOLDER PHOTOS      against onnxruntime: the largest differences

    python benchmarks/onnx_torch.py speed FOLDER                          on a GPU: seconds, and what TF32 changes

The folder holds graph.json (nodes and constants) and weights.safetensors. It computes in float32, or as precisely.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

Attributes = dict[str, Any]


def convert(source: Path, folder: Path) -> None:
    """Weights (all that has more than 64 numbers) in half precision, everything else as JSON."""
    import onnx
    from onnx.numpy_helper import to_array

    graph = onnx.load(str(source)).graph
    tensors, constants, nodes = {}, {}, []
    arrays = {one.name: to_array(one) for one in graph.initializer}
    for node in graph.node:
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            arrays[node.output[0]] = to_array(given["value"])
            continue
        plain = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        nodes.append([node.op_type, list(node.input), list(node.output), plain])
    for name, array in arrays.items():
        if array.size > 64 and array.dtype == np.float32:
            tensors[name] = torch.from_numpy(array.copy()).half()
        else:
            constants[name] = {"type": str(array.dtype), "shape": array.shape, "values": array.reshape(-1).tolist()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "weights.safetensors")
    described = {"nodes": nodes, "constants": constants, "input": graph.input[0].name, "output": graph.output[0].name}
    (folder / "graph.json").write_text(json.dumps(described))


def conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, **a: Any) -> Tensor:
    if a["pads"][:2] != a["pads"][2:]:
        raise ValueError(f"only the same padding on both sides is known here, not {a['pads']}")
    return F.conv2d(x, weight, bias, a["strides"], tuple(a["pads"][:2]), a["dilations"], a["group"])


def conv_in_parts(x: Tensor, weight: Tensor, bias: Tensor | None = None, **a: Any) -> Tensor:
    """The same to float32's precision on tensor cores, which keep 11 bits of every factor (TF32).

    The weights have no more, for they were stored in half precision; what they are multiplied with is the sum of two
    numbers that do not. A GPU's plain float32 units would take several times as long.
    """
    first = leading_bits(x)
    return conv(first, weight, bias, **a).add_(conv(x - first, weight, **a))


def leading_bits(x: Tensor) -> Tensor:
    """What TF32 keeps of float32."""
    return (x.view(torch.int32) & -(1 << 13)).view(torch.float32)


def max_pool(x: Tensor, **a: Any) -> Tensor:
    return F.max_pool2d(x, a["kernel_shape"], a["strides"], tuple(a["pads"][:2]), ceil_mode=bool(a["ceil_mode"]))


def resize(x: Tensor, _: Tensor | None, scales: Tensor, **a: Any) -> Tensor:
    if (a["mode"], a["nearest_mode"], a["coordinate_transformation_mode"]) != ("nearest", "floor", "asymmetric"):
        raise ValueError(f"only resizing to the nearest pixel is known here, not {a}")
    return F.interpolate(x, scale_factor=scales[2:].tolist(), mode="nearest")


def reshape(x: Tensor, shape: Tensor, **_: Any) -> Tensor:
    """The graph was written for one picture: a leading 1 stands for all there are."""
    first, *others = shape.tolist()
    return x.reshape(len(x) if first == 1 else first, *others)


def cut(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor, *_: Tensor) -> Tensor:
    for start, end, axis in zip(
        starts.flatten().tolist(), ends.flatten().tolist(), axes.flatten().tolist(), strict=True
    ):
        x = x.narrow(axis, start, min(end, x.shape[axis]) - start)
    return x


OPERATORS: dict[str, Callable[..., Any]] = {
    "Conv": conv,
    "MaxPool": max_pool,
    "Resize": resize,
    "Reshape": reshape,
    "Slice": cut,
    "Sigmoid": torch.sigmoid,
    "Mul": torch.mul,
    "Add": torch.add,
    "Sub": torch.sub,
    # of numbers of the shape, whole; else of values
    "Div": lambda x, y: x // y if not x.is_floating_point() else x / y,
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Split": lambda x, sizes, axis: torch.split(x, sizes.tolist(), axis),
    "Transpose": lambda x, perm: x.permute(*perm),
    "Softmax": lambda x, axis: x.softmax(axis),
    "Shape": lambda x: torch.tensor(x.shape),
    "Gather": lambda x, places, axis: x.index_select(axis, places.reshape(-1)).reshape(places.shape),
}


class Graph:
    """What a folder of `convert` holds, on a device: pictures (B, 3, H, W) in, the graph's output.

    `parts`: convolutions in two TF32 parts; by default on GPUs.
    """

    def __init__(self, folder: Path, device: torch.device | str = "cpu", parts: bool | None = None) -> None:
        described = json.loads((folder / "graph.json").read_text())
        self.nodes, self.input, self.output = described["nodes"], described["input"], described["output"]
        self.device = torch.device(device)
        self.parts = self.device.type == "cuda" if parts is None else parts
        self.operators = OPERATORS | ({"Conv": conv_in_parts} if self.parts else {})
        self.known: dict[str, Tensor | None] = {"": None}
        for name, value in load_file(folder / "weights.safetensors").items():
            self.known[name] = value.float().to(self.device)
        for name, constant in described["constants"].items():
            array = np.array(constant["values"], dtype=constant["type"]).reshape(constant["shape"])
            # whole numbers are shapes and places, which the host needs
            self.known[name] = torch.from_numpy(array).to(self.device if array.dtype == np.float32 else "cpu")
        if unknown := sorted({node[0] for node in self.nodes} - OPERATORS.keys()):
            raise ValueError(f"operators that are not known here: {', '.join(unknown)}")
        ends: dict[str, int] = {}
        for place, (_, inputs, _, _) in enumerate(self.nodes):
            ends.update(dict.fromkeys(inputs, place))
        self.last = [[name for name, end in ends.items() if end == place] for place in range(len(self.nodes))]

    @torch.inference_mode()
    def __call__(self, pictures: Tensor) -> Tensor:
        before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, self.parts
        try:
            return self._run(pictures)
        finally:  # whoever draws views beside it computes as before
            torch.backends.cudnn.allow_tf32 = before

    def _run(self, pictures: Tensor) -> Tensor:
        values: dict[str, Any] = {self.input: pictures.to(self.device)}
        for (kind, inputs, outputs, attributes), last in zip(self.nodes, self.last, strict=True):
            given = [values[name] if name in values else self.known[name] for name in inputs]
            made = self.operators[kind](*given, **attributes)
            values.update(zip(outputs, made if kind == "Split" else (made,), strict=True))
            for name in last:
                values.pop(name, None)
        result: Tensor = values[self.output]
        return result


def check(source: Path, folder: Path, photographs: Path, count: int = 4) -> dict[str, float]:
    """Largest differences to onnxruntime on a few photographs: of the scores, and of boxes in pixels."""
    import onnxruntime
    from PIL import Image

    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    graph = Graph(folder)
    pictures = [Image.open(path).convert("RGB").resize((640, 640)) for path in sorted(photographs.iterdir())[:count]]
    batch = np.stack([np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) / 255 for picture in pictures])
    mine = graph(torch.from_numpy(batch)).numpy()
    theirs = np.concatenate([session.run(None, {session.get_inputs()[0].name: row[None]})[0] for row in batch])
    apart = np.abs(mine - theirs)
    best = np.abs(mine[:, 4:].max(-1) - theirs[:, 4:].max(-1)).max()
    return {
        "scores": float(apart[:, 4:].max()),
        "best scores": float(best),
        "boxes, pixels": float(apart[:, :4].max()),
    }


def speed(folder: Path, device: str = "cuda") -> dict[str, float]:
    """Milliseconds a picture by the number of pictures at once, in plain float32 and in two parts; how they differ."""
    told, outputs = {}, []
    for parts in (False, True):
        graph = Graph(folder, device, parts)
        for count in (1, 4, 32):
            batch = torch.rand(count, 3, 640, 640, generator=torch.Generator().manual_seed(0)).to(graph.device)
            graph(batch).cpu()  # the first is slow
            began = time.perf_counter()
            outputs.append(graph(batch).cpu())
            milliseconds = 1e3 * (time.perf_counter() - began) / count
            told[f"{'two parts' if parts else 'float32'}, {count} at once"] = round(milliseconds, 2)
    told["largest difference of a score"] = float((outputs[2] - outputs[5])[:, 4:].abs().max())
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["convert", "check", "speed"])
    parser.add_argument("paths", nargs="+", type=Path)
    args = parser.parse_args()
    if args.action == "convert":
        convert(*args.paths)
    else:
        print((check if args.action == "check" else speed)(*args.paths))
