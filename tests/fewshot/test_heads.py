"""Every head against numbers worked out without it, and the properties all heads share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from onesdaug.errors import ConfigError
from onesdaug.fewshot.heads import FEAT, HEADS, Head, MetaBaseline, ProtoNet, build_head

DIM = 6


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make(name: str) -> Head:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return build_head(name, DIM).eval()


def test_protonet_by_hand() -> None:
    # class means (1, 0) and (0, 2); the query (1, 1) is 1 away (squared) from the first, 2 from the second
    support = torch.tensor([[[[0.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]]])
    query = torch.tensor([[[1.0, 1.0]]])
    assert torch.allclose(ProtoNet()(support, query), torch.tensor([[[-1.0, -2.0]]]))
    assert torch.allclose(ProtoNet(temperature=4)(support, query), torch.tensor([[[-0.25, -0.5]]]))
    half = 0.5**0.5
    assert torch.allclose(ProtoNet("cosine")(support, query), torch.tensor([[[half, half]]]))
    assert torch.allclose(ProtoNet("cosine", 0.5)(support, query), torch.tensor([[[2 * half, 2 * half]]]))


def test_baselines_by_hand() -> None:
    support = torch.tensor([[[[3.0, 0.0]], [[0.0, 5.0]]]])
    query = torch.tensor([[[3.0, 4.0]]])
    assert torch.allclose(make("classifier-baseline")(support, query), torch.tensor([[[0.6, 0.8]]]))
    head = MetaBaseline()
    assert torch.allclose(head(support, query), torch.tensor([[[6.0, 8.0]]]))
    head(support, query).sum().backward()
    assert head.scale.grad is not None
    assert head.scale.grad.item() == pytest.approx(1.4)


def set_attention(head: FEAT, x: np.ndarray) -> np.ndarray:
    """LayerNorm(x + fc(softmax(QKᵀ/√d)V)) for x (B, n, d), with einsum and no torch."""
    w = {name: value.detach().double().numpy() for name, value in head.attention.state_dict().items()}
    q, k, v = (np.einsum("bnd,ed->bne", x, w[f"{name}.weight"]) for name in ("query", "key", "value"))
    scores = np.exp(np.einsum("bid,bjd->bij", q, k) / np.sqrt(x.shape[-1]))
    mixed = np.einsum("bij,bjd->bid", scores / scores.sum(-1, keepdims=True), v)
    y = x + np.einsum("bnd,ed->bne", mixed, w["fc.weight"]) + w["fc.bias"]
    normal = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return normal * w["norm.weight"] + w["norm.bias"]


def squared(q: np.ndarray, c: np.ndarray) -> np.ndarray:
    return ((q[:, :, None] - c[:, None]) ** 2).sum(-1)


def feat(metric: str = "euclidean") -> FEAT:
    head = build_head("feat", DIM, metric=metric, temperature=16, temperature2=8).eval()
    assert isinstance(head, FEAT)
    for i, parameter in enumerate(head.parameters()):
        parameter.data = rand(*parameter.shape, seed=i)
    return head


def test_feat_against_numpy() -> None:
    support, query = rand(3, 5, 2, DIM), rand(3, 10, DIM, seed=7)
    s, q = support.double().numpy(), query.double().numpy()
    adapted = set_attention(feat(), s.mean(2))
    np.testing.assert_allclose(feat()(support, query).detach(), -squared(q, adapted) / 16, atol=1e-4)
    unit = adapted / np.linalg.norm(adapted, axis=-1, keepdims=True)
    expected = np.einsum("eqd,end->eqn", q, unit) / 16
    np.testing.assert_allclose(feat("cosine")(support, query).detach(), expected, atol=1e-5)


def test_feat_contrastive_term_against_numpy() -> None:
    """Centres are the mean of the adapted instances of a class, instances stay as they are."""
    support, query = rand(2, 5, 1, DIM), rand(2, 15, DIM, seed=7)
    head = feat()
    logits, aux, labels = head.forward_train(support, query)
    assert torch.equal(logits, head(support, query))
    instances = np.concatenate([support.double().numpy(), query.double().numpy().reshape(2, 5, 3, DIM)], axis=2)
    centres = set_attention(head, instances.reshape(10, 4, DIM)).reshape(2, 5, 4, DIM).mean(2)
    np.testing.assert_allclose(aux.detach(), -squared(instances.reshape(2, 20, DIM), centres) / 8, atol=1e-4)
    assert torch.equal(labels, torch.arange(5).repeat_interleave(4).expand(2, -1))


def test_feat_has_the_papers_parts() -> None:
    head = build_head("feat", 640)
    assert isinstance(head, FEAT)
    assert sum(p.numel() for p in head.parameters()) == 4 * 640**2 + 640 + 2 * 640
    assert (head.attention.attention_dropout.p, head.attention.dropout.p, head.temperature) == (0.1, 0.5, 64.0)


@pytest.mark.parametrize("name", HEADS)
def test_heads_are_batched_and_inductive(name: str) -> None:
    head, support, query = make(name), rand(4, 5, 3, DIM), rand(4, 15, DIM, seed=5)
    logits = head(support, query)
    assert logits.shape == (4, 15, 5)
    one_by_one = torch.cat([head(s[None], q[None]) for s, q in zip(support, query, strict=True)])
    assert torch.allclose(logits, one_by_one, atol=1e-5)
    others = query.clone()
    others[:, 1:] = rand(4, 14, DIM, seed=6) * 100  # the rest of the queries must not matter to the first
    assert torch.allclose(head(support, others)[:, 0], logits[:, 0], atol=1e-5)
    order = torch.tensor([2, 0, 4, 1, 3])  # nor must the order of the classes
    assert torch.allclose(head(support[:, order], query), logits[..., order], atol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("name", HEADS)
def test_predict_is_the_argmax_of_the_logits(name: str, metric: str) -> None:
    head = make(name) if "baseline" in name else build_head(name, DIM, metric=metric).eval()
    support, query = rand(50, 5, 2, DIM), rand(50, 15, DIM, seed=5)
    assert torch.equal(head.predict(support, query), head(support, query).argmax(-1))


@pytest.mark.parametrize("name", HEADS)
def test_training_pass(name: str) -> None:
    logits, aux, labels = make(name).forward_train(rand(2, 5, 1, DIM), rand(2, 15, DIM))
    assert logits.shape == (2, 15, 5)
    assert (aux is None) == (labels is None) == (name != "feat")


def test_distances_keep_their_digits_under_autocast() -> None:
    """||q||² - 2q·p + ||p||² cancels; in bfloat16 a distance of 1 between vectors of norm 100 would be noise."""
    support = torch.full((1, 2, 1, 4), 50.0)
    support[0, 1, 0, 0] += 2
    query = torch.full((1, 1, 4), 50.0)
    query[0, 0, 0] += 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.allclose(ProtoNet()(support, query), torch.tensor([[[-1.0, -1.0]]]))


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="there is no head 'nope'"):
        build_head("nope", 4)
    with pytest.raises(ConfigError, match="metric"):
        build_head("protonet", 4, metric="manhattan")
    with pytest.raises(ConfigError, match="temperature"):
        build_head("feat", 4, temperature=0)
    with pytest.raises(ConfigError, match="does not take"):
        build_head("classifier-baseline", 4, metric="cosine")


def test_a_head_that_is_not_finished_says_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match="head Head lacks forward"):
        build_head("onesdaug.fewshot.heads:Head", 8)
