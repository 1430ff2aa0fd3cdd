"""Any model, wrapped: modules, callables, PIL functions, predict_proba; what is kept, and clear errors."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from onesdaug import TestTimeEnsemble
from onesdaug.data.pixels import to_pil, to_tensor
from onesdaug.ensemble.traditional import CropFlip
from onesdaug.ensemble.wrap import EnsembleDetails
from onesdaug.errors import ConfigError


def images(n: int = 4) -> torch.Tensor:
    pixels = torch.randint(0, 256, (n, 3, 8, 8), generator=torch.Generator().manual_seed(3))
    return pixels.float() / 255


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    generator = torch.Generator().manual_seed(0)
    for p in net.parameters():
        nn.init.normal_(p, std=0.2, generator=generator)
    return net.to(dtype).eval()


def mean_colour(x: torch.Tensor) -> torch.Tensor:
    return x.mean((2, 3))


def darker(batch: torch.Tensor, k: int, seeds: Sequence[str]) -> torch.Tensor:
    """View i is the image divided by 2 + i, so that every mean can be done by hand."""
    return torch.stack([batch / (2 + i) for i in range(k)], dim=1)


def test_by_hand_half_original_half_views() -> None:
    x = images()
    got = TestTimeEnsemble(mean_colour, darker, k=2, original_weight=0.5, combine="embedding")(x)
    torch.testing.assert_close(got, mean_colour(x) * (0.5 + 0.25 / 2 + 0.25 / 3))
    got = TestTimeEnsemble(mean_colour, darker, k=1, original_weight=0.8)(x)
    torch.testing.assert_close(got, mean_colour(x) * (0.8 + 0.2 / 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_no_views_is_the_plain_model(dtype: torch.dtype) -> None:
    net, x = network(dtype), images()
    for combine in ("embedding", "logits"):
        assert torch.equal(TestTimeEnsemble(net, CropFlip(), k=0, combine=combine)(x), net(x.to(dtype)))


@pytest.mark.parametrize("combine", ["embedding", "logits", "probs", "vote"])
@pytest.mark.parametrize("chunk", [1, 5, 12, 100])
def test_chunks_change_nothing(combine: str, chunk: int) -> None:
    net, x = network(), images()
    whole = TestTimeEnsemble(net, CropFlip(), combine=combine)(x)
    torch.testing.assert_close(TestTimeEnsemble(net, CropFlip(), combine=combine, chunk=chunk)(x), whole)


def test_all_views_go_through_in_one_forward() -> None:
    sizes: list[int] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return mean_colour(x)

    TestTimeEnsemble(model, CropFlip(), k=3)(images(4))
    TestTimeEnsemble(model, CropFlip(), k=3, chunk=10)(images(4))
    assert sizes == [16, 10, 6]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtype_is_the_models(dtype: torch.dtype) -> None:
    details = TestTimeEnsemble(network(dtype), CropFlip(), combine="probs")(images(), return_details=True)
    assert details.output.dtype == details.per_view.dtype == dtype
    assert details.weights.dtype == torch.promote_types(dtype, torch.float32)
    # a bound method computes in its module's dtype too
    assert TestTimeEnsemble(network(dtype).forward, CropFlip())(images()).dtype == dtype


def test_it_is_a_module_around_the_model() -> None:
    net = network()
    ensemble = TestTimeEnsemble(net, CropFlip())
    assert set(ensemble.state_dict()) == {f"model.{name}" for name in net.state_dict()}
    assert not ensemble.training
    ensemble.to(torch.float64).train()
    assert net[0].weight.dtype == torch.float64 and net.training
    with pytest.warns(UserWarning, match="training mode"):
        ensemble(images())
    assert "combine=embedding" in repr(ensemble)


def test_no_gradients_and_no_global_random_numbers() -> None:
    ensemble, before = TestTimeEnsemble(network(), CropFlip(), combine="probs"), torch.random.get_rng_state()
    outside = ensemble(images())
    assert not outside.requires_grad and not outside.is_inference()
    with torch.no_grad():
        assert torch.equal(ensemble(images()), outside)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_batch_does_not_matter() -> None:
    ensemble, x = TestTimeEnsemble(network(), CropFlip(), combine="logits", k=3), images(4)
    torch.testing.assert_close(torch.cat([ensemble(x[i : i + 1]) for i in (2, 0)]), ensemble(x)[[2, 0]])
    other = TestTimeEnsemble(network(), CropFlip(), combine="logits", k=3, seed=1)(x)
    assert not torch.allclose(other, ensemble(x))


def test_details() -> None:
    x = images(2)
    model = TestTimeEnsemble(mean_colour, darker, k=3, select="similarity", keep=0.5)
    details = model(x, return_details=True)
    assert isinstance(details, EnsembleDetails)
    torch.testing.assert_close(details.per_view[:, 2], mean_colour(x) / 3)
    assert details.kept.shape == (2, 3) and details.kept.sum(1).tolist() == [2, 2]
    torch.testing.assert_close(details.weights.sum(1), torch.ones(2))
    assert details.weights[:, 0].tolist() == [0.5, 0.5]
    assert isinstance(details.views, torch.Tensor) and details.views.shape == (2, 3, 3, 8, 8)
    torch.testing.assert_close(details.output, (details.per_view * details.weights[..., None]).sum(1))
    assert torch.equal(details.output, model(x))


def test_vote_gives_one_vote_each_unless_told() -> None:
    # the original votes 0, both views vote 1
    def contrary(batch: torch.Tensor, k: int, seeds: Sequence[str]) -> torch.Tensor:
        return 1 - batch[:, None].expand(-1, k, -1, -1, -1)

    x = torch.zeros(1, 3, 8, 8)
    x[:, 0] = 1
    ensemble = TestTimeEnsemble(mean_colour, contrary, k=2, combine="vote")
    torch.testing.assert_close(ensemble(x), torch.tensor([[1 / 3, 2 / 3, 0.0]]))
    with pytest.warns(UserWarning, match="original always decides"):
        weighted = TestTimeEnsemble(mean_colour, contrary, k=2, combine="vote", original_weight=0.5)
    assert weighted(x).argmax().item() == 0


def test_pil_callable_gets_pil_images_of_any_size() -> None:
    seen: list[Image.Image] = []

    def model(pictures: list[Image.Image]) -> list[np.ndarray]:
        seen.extend(pictures)
        return [np.asarray(p, dtype=np.float64).mean((0, 1)) for p in pictures]

    pictures = [Image.new("RGB", (9, 7), (10, 20, 30)), Image.new("L", (5, 6), 50)]
    ensemble = TestTimeEnsemble(model, CropFlip(), k=2)
    torch.testing.assert_close(ensemble(pictures), torch.tensor([[10.0, 20, 30], [50, 50, 50]]).double())
    assert [p.size for p in seen] == [(9, 7)] * 3 + [(5, 6)] * 3 and {p.mode for p in seen} == {"RGB"}
    assert ensemble(pictures[0]).shape == (1, 3)
    # the same model fed tensors, when told what it takes
    told = TestTimeEnsemble(model, CropFlip(), k=2, input="pil")
    x = images(1)
    torch.testing.assert_close(told(x), told(to_pil(x)))


def test_module_fed_pil_images() -> None:
    net, small = network(), to_pil(images(2))
    torch.testing.assert_close(TestTimeEnsemble(net, CropFlip(), k=0)(small), net(images(2)).detach())
    mixed = [small[0], small[1].resize((20, 16))]

    def preprocess(image: Image.Image) -> torch.Tensor:
        return to_tensor(image.resize((8, 8))) * 2 - 1

    got = TestTimeEnsemble(net, CropFlip(), k=0, preprocess=preprocess)(mixed)
    torch.testing.assert_close(got, net(torch.stack([preprocess(m) for m in mixed])).detach())
    details = TestTimeEnsemble(net, CropFlip(), preprocess=preprocess)(mixed, return_details=True)
    assert [[v.size for v in row] for row in details.views] == [[(8, 8)] * 2, [(20, 16)] * 2]
    with pytest.raises(ConfigError, match="different shapes"):
        TestTimeEnsemble(net, CropFlip())(mixed)


def test_preprocess_normalises_originals_and_views() -> None:
    net, x = network(), images()
    got = TestTimeEnsemble(net, CropFlip(), preprocess=lambda b: (b - 0.5) / 0.25)(x)
    want = TestTimeEnsemble(lambda b: net((b - 0.5) / 0.25), CropFlip())(x)
    torch.testing.assert_close(got, want)


def test_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = images(12)
    labels = np.arange(12) % 3
    flat = x.permute(0, 2, 3, 1).flatten(1).numpy()
    classifier = linear_model.LogisticRegression().fit(flat, labels)
    plain = torch.from_numpy(classifier.predict_proba(flat))
    torch.testing.assert_close(TestTimeEnsemble(classifier, CropFlip(), k=0)(x), plain)
    for fed in (x, to_pil(x)):
        p = TestTimeEnsemble(classifier, CropFlip(), k=3, select="confidence")(fed)
        torch.testing.assert_close(p.sum(1), torch.ones(12, dtype=p.dtype))
        assert not torch.allclose(p, plain.to(p.dtype))
    # features of one's own choosing
    colours = linear_model.LogisticRegression().fit(mean_colour(x).numpy(), labels)
    p = TestTimeEnsemble(colours, CropFlip(), k=2, combine="vote", preprocess=mean_colour)(x)
    assert p.shape == (12, 3)


def test_numpy_callable_gets_nhwc() -> None:
    shapes: list[tuple[int, ...]] = []

    def model(x: np.ndarray) -> np.ndarray:
        shapes.append(x.shape)
        return x.mean((1, 2))

    x = images(2)
    got = TestTimeEnsemble(model, darker, k=1, input="numpy")(x)
    assert shapes == [(4, 8, 8, 3)]
    torch.testing.assert_close(got, mean_colour(x) * 0.75)


@pytest.mark.parametrize(
    "fields",
    [
        {"logits": lambda f: f},
        {"logits": lambda f: f, "pooler_output": lambda f: -f},
        {"pooler_output": lambda f: f[:, :, None, None], "last_hidden_state": lambda f: -f},
        {"image_embeds": lambda f: f, "last_hidden_state": lambda f: -f},
        {"pooler_output": lambda f: None, "last_hidden_state": lambda f: torch.stack([f, -f], dim=1)},
    ],
)
def test_model_outputs_are_unpacked(fields: dict[str, Any]) -> None:
    x = images(2)

    def model(batch: torch.Tensor) -> OrderedDict[str, Any]:
        return OrderedDict((name, make(mean_colour(batch))) for name, make in fields.items())

    torch.testing.assert_close(TestTimeEnsemble(model, darker, k=1)(x), mean_colour(x) * 0.75)


def test_output_picks() -> None:
    x = images(2)
    model = TestTimeEnsemble(lambda b: (b, mean_colour(b)), darker, k=1, output=lambda out: out[1])
    torch.testing.assert_close(model(x), mean_colour(x) * 0.75)


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (lambda b: b, r"Tensor of shape \(8, 3, 8, 8\)"),
        (lambda b: b.mean((1, 2, 3)), r"Tensor of shape \(8,\)"),
        (lambda b: (mean_colour(b), mean_colour(b)), "tuple"),
        (lambda b: mean_colour(b)[:1], r"shape \(1, 3\)"),
        (lambda b: {"scores": 1}, "dict.None"),
        (lambda b: None, "NoneType"),
    ],
)
def test_outputs_that_are_no_vectors(returned: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"one vector per image, \(8, C\), but gave .*{named}.*output="):
        TestTimeEnsemble(returned, CropFlip(), k=1)(images(4))


@pytest.mark.parametrize(
    ("fed", "message"),
    [
        (images() * 255, r"from 0 to 255; .*preprocess="),
        (images() * 4 - 2, r"in \[0, 1\], but go from -2 to 2"),
        (images() * float("nan"), "nan"),
        ((images() * 255).byte(), r"uint8; .*/ 255"),
        (images()[0], r"tensor, got shape \(3, 8, 8\)"),
        (images()[:, :1], r"tensor, got shape \(4, 1, 8, 8\)"),
        (images()[:0], r"a tensor \(0, 3, 8, 8\)"),
        ([], "list"),
        (images().numpy(), "ndarray"),
    ],
)
def test_what_cannot_be_fed(fed: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TestTimeEnsemble(mean_colour, CropFlip())(fed)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"combine": "median"}, "combine='median' is not known; choose from embedding, logits, probs, vote"),
        ({"select": "best"}, "select='best'"),
        ({"select": "confidence"}, "needs class scores.*use select='similarity'"),
        ({"original_weight": 1.5}, "original_weight=1.5"),
        ({"keep": 0.0}, "keep=0.0"),
        ({"k": -1}, "k=-1"),
        ({"chunk": 0}, "chunk=0"),
        ({"input": "jpeg"}, "input='jpeg'"),
        ({"model": 3}, "neither callable"),
    ],
)
def test_settings_that_cannot_work(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TestTimeEnsemble(**{"model": mean_colour, "views": CropFlip(), **setting})


def test_plain_geometry_and_the_augmenter_give_the_same_views() -> None:
    from onesdaug import Augmenter, ShapeTweak

    x = images(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        details = TestTimeEnsemble(network(), ShapeTweak(), k=2)(x, return_details=True)
    aug = Augmenter.from_pretrained("shape")
    torch.testing.assert_close(details.views, aug.tensors(x, k=2))
    fed_pil = TestTimeEnsemble(network(), aug, k=2)(to_pil(x), return_details=True)
    assert [len(row) for row in fed_pil.views] == [2, 2]
    torch.testing.assert_close(fed_pil.output, details.output, atol=0.02, rtol=0)


def test_views_from_a_folder(tmp_path: Path) -> None:
    from onesdaug import Augmenter
    from onesdaug.jobs.job import run_job
    from onesdaug.jobs.plan import list_inputs
    from onesdaug.jobs.survey import JobSettings

    aug, out, originals = Augmenter.from_pretrained("shape"), tmp_path / "views", to_pil(images(2))
    for n, original in enumerate(originals):
        original.save(tmp_path / f"{n}.png")
    run_job(aug, list_inputs([tmp_path / "0.png", tmp_path / "1.png"], out), JobSettings(out, k=2))

    fresh = TestTimeEnsemble(network(), aug, k=2)(originals)
    torch.testing.assert_close(TestTimeEnsemble(network(), str(out), k=2)(originals), fresh)
    torch.testing.assert_close(TestTimeEnsemble(network(), out, k=2)(images(2)), fresh)
