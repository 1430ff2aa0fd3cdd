"""The cross-attention kernel goes through Triton's real compiler, for a Hopper GPU that need not be here.

Its numbers are held against the two attentions it stands for in tests/augment/test_cuda.py.
"""

from __future__ import annotations

import pytest

from onesdaug.generators.one_pass import _BLOCKS, _QUERIES, _power_of_two

pytest.importorskip("triton", reason="torch for a CPU comes without Triton; pip install triton")


@pytest.mark.parametrize(("width", "keys"), [(40, 81), (80, 93), (128, 81)])
def test_it_compiles(width: int, keys: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from onesdaug.generators.one_pass_kernel import kernel

    sizes = {"TEXT": 77, "KEYS": keys, "WIDTH": width, "W": _power_of_two(width), "K": _power_of_two(keys),
             "QUERIES": _QUERIES, "BLOCKS": _BLOCKS}  # fmt: skip
    kinds = {"q": "*bf16", "kv": "*bf16", "scale": "*fp32", "out": "*bf16", "places": "i32", "log2_scale": "fp32"}
    signature = {**kinds, "heads": "i32", **dict.fromkeys(sizes, "constexpr")}
    source = ASTSource(kernel, signature=signature, constexprs=sizes)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})
    assert "wgmma" in made.asm["ptx"]  # on Hopper's own matrix units
