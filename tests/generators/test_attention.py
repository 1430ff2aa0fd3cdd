"""Image tokens in cross-attention: against the equation, against diffusers, and per row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onesdaug.generators.sd.attention import ImageAttention, PlainAttention, concatenated, decoupled

HEADS, WIDTH, TOKENS = 4, 32, 7


def tensors(seed: int, batch: int = 3, image_tokens: int = 4) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(seed)

    def draw(n: int) -> torch.Tensor:
        return torch.randn(batch, HEADS, n, 8, generator=random)

    return draw(9), draw(TOKENS), draw(TOKENS), draw(image_tokens), draw(image_tokens)


def softmax_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """softmax(Q Kᵀ / √d) V, spelled out."""
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhqk,bhkd->bhqd", weights.softmax(-1), v)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.lists(st.floats(0.05, 3.0), min_size=3, max_size=3))
def test_concat_equals_the_papers_equation(seed: int, scales: list[float]) -> None:
    q, kt, vt, ki, vi = tensors(seed)
    lam = torch.tensor(scales)
    rows = lam[:, None, None, None]
    plain = softmax_attention(q, torch.cat([kt, rows * ki], 2), torch.cat([vt, rows * vi], 2))
    assert torch.allclose(concatenated(q, (kt, vt), (ki, vi), lam), plain, atol=2e-6)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.lists(st.floats(0.0, 3.0), min_size=3, max_size=3))
def test_decoupled_equals_two_softmaxes(seed: int, scales: list[float]) -> None:
    q, kt, vt, ki, vi = tensors(seed)
    lam = torch.tensor(scales)
    plain = softmax_attention(q, kt, vt) + lam[:, None, None, None] * softmax_attention(q, ki, vi)
    assert torch.allclose(decoupled(q, (kt, vt), (ki, vi), lam), plain, atol=2e-6)


@pytest.mark.parametrize("join", [decoupled, concatenated])
def test_scale_zero_is_no_image_branch(join) -> None:
    q, kt, vt, ki, vi = tensors(0)
    out = join(q, (kt, vt), (ki, vi), torch.tensor([0.0, 0.8, 0.0]))
    text_only = softmax_attention(q, kt, vt)
    assert torch.allclose(out[[0, 2]], text_only[[0, 2]], atol=1e-6)
    assert not torch.allclose(out[1], text_only[1], atol=1e-2)


@pytest.fixture
def layer():
    from diffusers.models.attention_processor import Attention

    torch.manual_seed(0)
    return Attention(query_dim=WIDTH, cross_attention_dim=WIDTH, heads=HEADS, dim_head=8).eval()


def test_decoupled_equals_diffusers_processor(layer) -> None:
    from diffusers.models.attention_processor import IPAdapterAttnProcessor2_0

    theirs = IPAdapterAttnProcessor2_0(hidden_size=WIDTH, cross_attention_dim=WIDTH, num_tokens=(4,), scale=0.8)
    ours = ImageAttention(TOKENS, theirs.to_k_ip[0], theirs.to_v_ip[0])
    hidden, words, image = torch.randn(2, 9, WIDTH), torch.randn(2, TOKENS, WIDTH), torch.randn(2, 4, WIDTH)
    expected = theirs(layer, hidden, encoder_hidden_states=(words, [image[:, None]]))
    if expected.shape != hidden.shape:  # some versions keep the axis of several images per adapter
        expected = expected.reshape(hidden.shape)
    got = ours(layer, hidden, torch.cat([words, image], 1), image_scale=torch.full((2,), 0.8))
    assert torch.allclose(got, expected, atol=1e-6)


def test_plain_equals_diffusers_processor(layer) -> None:
    from diffusers.models.attention_processor import AttnProcessor2_0

    hidden, words = torch.randn(2, 9, WIDTH), torch.randn(2, TOKENS, WIDTH)
    assert torch.allclose(PlainAttention()(layer, hidden, words), AttnProcessor2_0()(layer, hidden, words), atol=1e-6)


def test_changing_the_scale_recompiles_nothing() -> None:
    """`image_scale` is data, not a constant: one graph serves every value."""
    counts = {"graphs": 0}

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]):
        counts["graphs"] += 1
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(decoupled, backend=backend, fullgraph=True)
    q, kt, vt, ki, vi = tensors(1)
    for scale in (0.8, 0.3, 1.7):
        lam = torch.full((3,), scale)
        assert torch.allclose(compiled(q, (kt, vt), (ki, vi), lam), decoupled(q, (kt, vt), (ki, vi), lam), atol=1e-6)
    assert counts["graphs"] == 1
