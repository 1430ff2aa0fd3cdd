"""VCD by its published formula, and sampling by a stream of one's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onesdaug.errors import ConfigError
from onesdaug.vlm.model import stream
from onesdaug.vlm.settings import Contrast
from onesdaug.vlm.vcd import SampleLogitsProcessor as Sampler
from onesdaug.vlm.vcd import VCDLogitsProcessor, abar, contrastive_logits, noise_image


@pytest.mark.parametrize(("step", "signal", "noise"), [(500, 0.863, 0.505), (999, 0.285, 0.959)])
def test_the_sigmoid_schedule(step: int, signal: float, noise: float) -> None:
    assert np.sqrt(abar()[step]) == pytest.approx(signal, abs=5e-4)
    assert np.sqrt(1 - abar()[step]) == pytest.approx(noise, abs=5e-4)
    assert len(abar()) == 1000
    betas = 1 - abar()[1:] / abar()[:-1]
    assert betas[0] == pytest.approx(1e-5 + 4.99e-3 / (1 + np.exp(6)), rel=0.02)
    assert betas[-1] == pytest.approx(1e-5 + 4.99e-3 / (1 + np.exp(-6)), rel=1e-6)
    mixed = noise_image(torch.full((2, 3), 2.0), torch.full((2, 3), -1.0), step)
    assert torch.allclose(mixed, torch.full((2, 3), 2 * signal - noise), atol=2e-3)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.1), (0.5, 0.2), (0.0, 0.5), (2.0, 1.0), (1.0, 0.0)])
def test_contrastive_logits_are_the_published_formula(alpha: float, beta: float) -> None:
    """Token by token, with the probabilities the mask is about: keep t iff p(t) ≥ beta·max p."""
    generator = torch.Generator().manual_seed(0)
    clean, noised = 4 * torch.randn(2, 7, 50, generator=generator)
    made = contrastive_logits(clean, noised, alpha, beta)
    masked = 0
    for row in range(7):
        weight = np.exp(clean[row].numpy().astype(float))
        for token in range(50):
            if weight[token] < beta * weight.max() * (1 - 1e-6):
                assert made[row, token] == -np.inf
                masked += 1
            else:
                expected = (1 + alpha) * float(clean[row, token]) - alpha * float(noised[row, token])
                assert float(made[row, token]) == pytest.approx(expected, abs=1e-4)
    assert (masked > 0) == (beta > 0)
    if beta == 1.0:
        assert masked == 7 * 49  # only the likeliest is left
    processor = VCDLogitsProcessor(lambda ids: noised, alpha, beta)
    assert torch.equal(processor(torch.zeros(7, 1, dtype=torch.long), clean), made)


def test_settings_out_of_range() -> None:
    for wrong in ({"alpha": -1}, {"beta": 1.5}, {"noise_step": 1000}, {"alpha": float("nan")}):
        with pytest.raises(ConfigError, match="alpha is not negative"):
            Contrast(**wrong)


def test_draws_follow_the_distribution_and_never_a_masked_token() -> None:
    probabilities = torch.tensor([0.0, 0.5, 0.2, 0.0, 0.3])
    scores = probabilities.log().expand(4000, -1)
    tokens = Sampler([stream(0, i) for i in range(4000)])(torch.empty(0), scores).argmax(-1)
    share = torch.bincount(tokens, minlength=5) / 4000
    assert share[0] == share[3] == 0
    assert torch.allclose(share, probabilities, atol=0.035)  # four standard errors
    sharp = Sampler([stream(0, i) for i in range(4000)], temperature=0.02)(torch.empty(0), scores).argmax(-1)
    assert (sharp == 1).all()


def test_a_draw_hangs_on_its_own_stream_alone() -> None:
    scores = torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    together = Sampler([stream(7, "q", k) for k in range(6)])(torch.empty(0), scores).argmax(-1)
    alone = [int(Sampler([stream(7, "q", k)])(torch.empty(0), scores[k : k + 1]).argmax()) for k in range(6)]
    assert together.tolist() == alone
    state = torch.get_rng_state()
    Sampler([stream(7, "q", 0)])(torch.empty(0), scores[:1])
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is left alone
    assert stream(7, "q", 1).random() != stream(7, "q1").random()  # names do not run together
