"""The Triton kernels go through Triton's real compiler, for a Hopper GPU that need not be here.

Their numbers are held against the layers they stand for in tests/augment/test_cuda.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from onesdaug.generators.sd.fast import geglu, one_pass

pytest.importorskip("triton", reason="torch for a CPU comes without Triton; pip install triton")


def compiled(kernel: Any, kinds: dict[str, str], sizes: dict[str, int], options: dict[str, int]) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(kernel, signature={**kinds, **dict.fromkeys(sizes, "constexpr")}, constexprs=sizes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize(("width", "keys"), [(40, 81), (80, 93), (128, 81)])
def test_cross_attention(width: int, keys: int) -> None:
    from onesdaug.generators.sd.fast.one_pass_kernel import kernel

    sizes = {"TEXT": 77, "KEYS": keys, "WIDTH": width, **one_pass.blocks(77, keys, width),
             "QUERIES": one_pass._QUERIES, "BLOCKS": one_pass._BLOCKS}  # fmt: skip
    kinds = {"q": "*bf16", "kv": "*bf16", "scale": "*fp32", "out": "*bf16", "places": "i32", "log2_scale": "fp32"}
    made = compiled(
        kernel,
        {**kinds, **dict.fromkeys(("heads", "kv_row", "kv_key"), "i32")},
        sizes,
        {"num_warps": 4, "num_stages": 2},
    )
    assert "wgmma" in made.asm["ptx"]  # on Hopper's own matrix units


def test_gated_layer() -> None:
    from onesdaug.generators.sd.fast.geglu_kernel import kernel

    rows, columns, depth = geglu._ROWS, geglu._COLUMNS, geglu._DEPTH
    kinds = {"x": f"tensordesc<bf16[{rows},{depth}]>", "weight": f"tensordesc<bf16[{columns},{depth}]>",
             "bias": "*bf16", "out": f"tensordesc<bf16[{rows},{columns}]>", "N": "i32", "K": "i32"}  # fmt: skip
    made = compiled(kernel, kinds, {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth}, geglu._OPTIONS)
    assert "wgmma" in made.asm["ptx"]
    assert made.metadata.shared <= 227 * 1024 // 2  # two programs at once on one multiprocessor
