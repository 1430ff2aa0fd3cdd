"""A real LlavaForConditionalGeneration with its real processor: margins, batches, VCD, decodings, missing weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from onesdaug.errors import ConfigError, WeightsMissing
from onesdaug.vlm.local import LocalModel, build_prompt, describe_local
from onesdaug.vlm.model import Replies, listed_margin
from onesdaug.vlm.settings import SUFFIX, Asking, Contrast
from onesdaug.vlm.vcd import NoisedLogits, VCDLogitsProcessor, contrastive_logits
from tests.conftest import make_image
from tests.vlm.tiny import TEMPLATE, WORDS, save_llava

QUESTION = "Is there a cat in the image?"
PICTURES = [make_image(seed, (40, 30)) for seed in range(5)]


def load(folder: Path, asking: Asking | None = None, contrast: Contrast | None = None, **how: Any) -> LocalModel:
    how = {"device": "cpu", "dtype": "float32", **how}
    return LocalModel.from_pretrained(str(folder), asking or Asking(), contrast, **how)


@pytest.fixture(scope="module")
def model(tiny_llava: Path) -> LocalModel:
    return load(tiny_llava, contrast=Contrast())


def close(one: Replies, other: Replies) -> None:
    """Equal texts, and margins equal up to rounding."""
    assert one.keys() == other.keys()
    for name in one:
        assert [r.text for r in one[name]] == [r.text for r in other[name]], name
        for a, b in zip(one[name], other[name], strict=True):
            assert a.margin == pytest.approx(b.margin, abs=1e-4)


@torch.inference_mode()
def forward(model: LocalModel, image: Image.Image, text: str) -> torch.Tensor:
    """The logits after the last token, by the model's own forward pass on one picture: no batch, no padding."""
    rows = model.processor(images=image, text=text, return_tensors="pt")
    return model.model(**rows).logits[0, -1].float()


def test_margins_and_greedy_words_are_those_of_the_first_new_token(model: LocalModel) -> None:
    replies = model.ask(PICTURES, QUESTION, "1")
    yes, no = ([i for i, word in enumerate(WORDS) if word.strip("▁").lower() == said] for said in ("yes", "no"))
    assert (len(yes), len(no)) == (3, 3)
    words = set()
    for image, reply in zip(PICTURES, replies["plain/greedy"], strict=True):
        logits = forward(model, image, f"USER: <image>\n{QUESTION}{SUFFIX} ASSISTANT:")
        assert reply.margin == pytest.approx(float(logits[yes].logsumexp(0) - logits[no].logsumexp(0)), abs=1e-4)
        assert reply.text == WORDS[int(logits.argmax())].strip("▁")
        words.add(reply.text)
    assert len(words) > 1  # the image matters


def test_every_mode_answers_for_every_picture(model: LocalModel) -> None:
    replies = model.ask(PICTURES, QUESTION, "1")
    assert list(replies) == ["plain/greedy", "plain/sample", "vcd/greedy", "vcd/sample", "repeat/sample"]
    assert all(len(rows) == 5 and all(r.error is None for r in rows) for rows in replies.values())
    assert replies["repeat/sample"][0].text == replies["plain/sample"][0].text
    assert all(r.margin is None for r in replies["repeat/sample"])
    again = model.ask(PICTURES, QUESTION, "1")
    assert again == replies  # the streams hang on the question's key, not on what was asked before
    draws = {tuple(r.text for r in model.ask(PICTURES, QUESTION, str(key))["plain/sample"]) for key in range(6)}
    assert len(draws) > 1


def test_a_batch_answers_like_its_pictures_alone(tiny_llava: Path, model: LocalModel) -> None:
    whole = model.ask(PICTURES, QUESTION, "7")
    close(whole, load(tiny_llava, contrast=Contrast(), batch_size=2).ask(PICTURES, QUESTION, "7"))
    close(whole, load(tiny_llava, contrast=Contrast(), batch_size=1).ask(PICTURES, QUESTION, "7"))


def test_rows_of_different_length_are_padded_on_the_left(model: LocalModel) -> None:
    texts = [build_prompt(model.processor, "llava", text) for text in (QUESTION + SUFFIX, "Is there a dog ?")]
    rows = model.processor(images=PICTURES[:2], text=texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        together = model._logits(dict(rows))
    for place in range(2):
        assert torch.allclose(together[place], forward(model, PICTURES[place], texts[place]), atol=1e-4)


def test_out_of_memory_halves_the_batch_and_goes_on(tiny_llava: Path, model: LocalModel) -> None:
    small = load(tiny_llava, contrast=Contrast())
    real, sizes = small._logits, []

    def tight(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        sizes.append(len(inputs["input_ids"]))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(inputs)

    small._logits = tight  # type: ignore[method-assign]
    close(small.ask(PICTURES, QUESTION, "3"), model.ask(PICTURES, QUESTION, "3"))
    assert (sizes[0], max(sizes[1:]), small.batch_size) == (5, 2, 2)


def test_vcd_contrasts_with_the_noised_image(model: LocalModel) -> None:
    assert model.contrast is not None
    text = build_prompt(model.processor, "llava", QUESTION + SUFFIX)
    replies = model.ask(PICTURES[:2], QUESTION, "9")
    inputs = model._inputs(PICTURES[:2], text)
    noised = model._noised(inputs, range(2), "9", 500)
    ratio = (noised["pixel_values"] - 0.863 * inputs["pixel_values"]).std() / 0.5052
    assert float(ratio) == pytest.approx(1.0, abs=0.05)
    with torch.inference_mode():
        clean, other = model._logits(inputs), model._logits(noised)
    made = contrastive_logits(clean, other, 1.0, 0.1)
    assert [r.text for r in replies["vcd/greedy"]] == [WORDS[i].strip("▁") for i in made.argmax(-1)]
    unmasked = contrastive_logits(clean, other, 1.0)
    assert [r.margin for r in replies["vcd/greedy"]] == pytest.approx(model._margins(unmasked), abs=1e-4)
    off = LocalModel(model.model, model.processor, Asking(), Contrast(alpha=0.0, beta=0.0))
    same = off.ask(PICTURES[:2], QUESTION, "9")
    assert [r.text for r in same["vcd/greedy"]] == [r.text for r in same["plain/greedy"]]


def test_longer_answers_go_through_generate_with_the_same_processors(model: LocalModel) -> None:
    """VCD over three tokens, against a loop that runs the whole text anew at every step."""
    long = LocalModel(model.model, model.processor, Asking(max_new_tokens=3), Contrast())
    replies = long.ask(PICTURES[:3], QUESTION, "2")
    short = model.ask(PICTURES[:3], QUESTION, "2")
    for name, rows in replies.items():  # a longer answer begins with the short one
        for whole, first in zip(rows, short[name], strict=True):
            assert whole.text is not None and first.text is not None
            assert whole.text.startswith(first.text)
            assert whole.margin == pytest.approx(first.margin, abs=1e-4)
    text = build_prompt(long.processor, "llava", QUESTION + SUFFIX)
    with torch.inference_mode():
        inputs = long._inputs(PICTURES[:3], text)
        distorted = NoisedLogits(long._logits, long._noised(inputs, range(3), "2", 500))
        processor = VCDLogitsProcessor(distorted, 1.0, 0.1)
        ids = inputs["input_ids"]
        for _ in range(3):
            tail = torch.ones_like(ids[:, inputs["input_ids"].shape[1] :])
            mask = torch.cat([inputs["attention_mask"], tail], 1)
            scores = long._logits({**inputs, "input_ids": ids, "attention_mask": mask})
            ids = torch.cat([ids, processor(ids, scores).argmax(-1, keepdim=True)], dim=1)
    texts = long.tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    eos = (ids[:, inputs["input_ids"].shape[1] :] == long.tokenizer.eos_token_id).any(1)
    for made, expected, ended in zip(replies["vcd/greedy"], texts, eos, strict=True):
        assert ended or made.text == expected.strip()


def test_logits_that_are_not_numbers_are_no_answer(tiny_llava: Path) -> None:
    model = load(tiny_llava)
    with torch.no_grad():
        model.model.get_output_embeddings().weight[5] = float("nan")
    with pytest.raises(RuntimeError, match="not numbers"):
        model.ask(PICTURES[:1], QUESTION, "1")


def test_the_models_own_penalties_are_not_part_of_greedy(tiny_llava: Path, model: LocalModel, tmp_path: Path) -> None:
    other = shutil.copytree(tiny_llava, tmp_path / "other")
    file = other / "generation_config.json"
    settings = {**json.loads(file.read_text()), "repetition_penalty": 9.0, "do_sample": True, "temperature": 0.1}
    file.write_text(json.dumps(settings))
    close(load(other, contrast=Contrast()).ask(PICTURES, QUESTION, "1"), model.ask(PICTURES, QUESTION, "1"))


def test_bfloat16_is_the_default(tiny_llava: Path) -> None:
    model = LocalModel.from_pretrained(str(tiny_llava), Asking(("greedy",)), device="cpu")
    assert model.model.dtype == torch.bfloat16
    assert type(model.model).__name__ == "LlavaForConditionalGeneration"
    assert type(model.processor).__name__ == "LlavaProcessor"
    replies = model.ask(PICTURES, QUESTION, "1")
    assert list(replies) == ["plain/greedy"]
    assert all(isinstance(r.margin, float) for r in replies["plain/greedy"])


def test_prompts(model: LocalModel, tmp_path: Path) -> None:
    plain = "USER: <image>\nWhat? ASSISTANT:"
    assert build_prompt(model.processor, "template", "What?") == plain  # no template of its own
    assert build_prompt(model.processor, "llava", "What?") == plain
    vcd = build_prompt(model.processor, "vcd", "What?")
    assert vcd.startswith("A chat between a curious user") and vcd.endswith(" " + plain)
    templated = load(save_llava(tmp_path, TEMPLATE))
    assert templated.processor.chat_template
    prompt = build_prompt(templated.processor, "template", QUESTION + SUFFIX)
    assert prompt == f"USER: <image>\n{QUESTION}{SUFFIX} ASSISTANT:"  # the template's own <s> would be a second one
    ids = templated._inputs(PICTURES[:1], prompt)["input_ids"][0].tolist()
    assert ids.count(1) == 1
    with pytest.raises(ConfigError, match="prompt must be one of"):
        load(tmp_path, prompt="chatty")


def test_what_decides_the_answers_is_described_without_loading(tiny_llava: Path, tmp_path: Path) -> None:
    about = describe_local(str(tiny_llava), Asking(), Contrast())
    assert about["vcd"] == {"alpha": 1.0, "beta": 0.1, "noise_step": 500}
    assert (about["max_new_tokens"], about["seed"], about["dtype"]) == (1, 1234, "bfloat16")
    copy = shutil.copytree(tiny_llava, tmp_path / "copy")
    before = describe_local(str(copy), Asking(), None)["weights"]
    assert describe_local(str(copy), Asking(), None)["weights"] == before
    for name in ("model.safetensors", "tokenizer.json"):
        data = bytearray((copy / name).read_bytes())
        data[-1] ^= 1
        (copy / name).write_bytes(data)
        now = describe_local(str(copy), Asking(), None)["weights"]
        assert now != before
        before = now


def test_missing_weights_say_how_to_get_them(tmp_path: Path, tiny_llava: Path) -> None:
    with pytest.raises(WeightsMissing, match=r"hf download llava-hf/llava-1\.5-7b-hf"):
        describe_local("llava-hf/llava-1.5-7b-hf", Asking(), None)
    with pytest.raises(WeightsMissing, match="there is no folder"):
        describe_local("/gone/for/good", Asking(), None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsMissing, match=r"no config\.json and no weights"):
        load(tmp_path / "empty")
    broken = shutil.copytree(tiny_llava, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(WeightsMissing, match="cannot be loaded as an image-text-to-text model"):
        load(broken)


def test_settings_that_cannot_work() -> None:
    for wrong in ({"decodings": ()}, {"decodings": ("beam",)}, {"decodings": ("greedy", "greedy")}):
        with pytest.raises(ConfigError, match="decoding"):
            Asking(**wrong)  # type: ignore[arg-type]
    for wrong in ({"max_new_tokens": 0}, {"temperature": 0.0}):
        with pytest.raises(ConfigError, match="at least one new token"):
            Asking(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listed", "margin"),
    [
        ([("Yes", -0.1), (" No", -2.5)], 2.4),
        ([("Yes", -1.0), ("yes", -1.0), ("No", -0.5)], -1.0 + 0.6931 + 0.5),
        ([("Yes", -0.1), ("It", -3.0), ("The", -4.0)], 3.9),  # no is at most as likely as the last one listed
        ([("ĠNo", -0.2), ("Sure", -5.0)], -4.8),
        ([("Sure", -0.2)], None),
        ([], None),
    ],
)
def test_margins_from_listed_log_probabilities(listed: Sequence[tuple[str, float]], margin: float | None) -> None:
    assert listed_margin(listed) == (None if margin is None else pytest.approx(margin, abs=1e-3))
