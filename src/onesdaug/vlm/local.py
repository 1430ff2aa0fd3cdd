"""A frozen model on this machine, through transformers: LLaVA or any AutoModelForImageTextToText. Never downloaded.

The original and the views of a question are one batch. With one new token, as the paper has it, a single pass over
it answers in every decoding, and VCD costs one more pass over the noised images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from onesdaug.common.devices import is_out_of_memory, pick_device, pick_dtype
from onesdaug.common.hub import find, fingerprint, how_to_get, loading, name_of
from onesdaug.common.progress import log
from onesdaug.errors import ConfigError, WeightsMissing, how_to_install
from onesdaug.vlm.model import Replies, Reply, stream, word_of
from onesdaug.vlm.settings import Asking, Contrast
from onesdaug.vlm.vcd import (
    Inputs,
    NoisedLogits,
    SampleLogitsProcessor,
    VCDLogitsProcessor,
    contrastive_logits,
    noise_image,
)

if TYPE_CHECKING:
    from PIL import Image


Processor = Callable[[Tensor, Tensor], Tensor]
PROMPTS = ("template", "llava", "vcd")
# The Vicuna preamble LLaVA-1.5 was trained with and VCD's scripts send; the hub's template leaves it out
_PREAMBLE = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. "
)


class LocalModel:
    """Asks a transformers model; `batch_size` bounds the pictures per pass (else all of a question)."""

    def __init__(
        self,
        model: Any,
        processor: Any,
        asking: Asking,
        contrast: Contrast | None = None,
        *,
        prompt: str = "template",
        batch_size: int | None = None,
    ) -> None:
        from transformers import GenerationConfig

        _check_prompt(prompt)
        self.model, self.processor, self.asking, self.contrast = model, processor, asking, contrast
        self.prompt, self.batch_size = prompt, batch_size
        methods = ("plain",) if contrast is None else ("plain", "vcd")
        self.modes = tuple(f"{method}/{decoding}" for method in methods for decoding in asking.decodings)
        if "sample" in asking.decodings:
            self.modes += ("repeat/sample",)  # its votes differ by the draw alone
        self.tokenizer = getattr(processor, "tokenizer", processor)
        self.tokenizer.padding_side = "left"  # the next token follows the last column of every row
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        own = model.generation_config
        # only the special tokens are kept: penalties and samplers of the model's own would be another decoding
        model.generation_config = GenerationConfig(
            do_sample=False,
            bos_token_id=own.bos_token_id,
            eos_token_id=own.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        words = {index: word_of(token) for token, index in self.tokenizer.get_vocab().items()}
        self._sides = [torch.tensor([i for i, said in words.items() if said == word]) for word in ("yes", "no")]
        if not all(map(len, self._sides)):
            log.warning("this model's tokenizer has no single token for yes and no: there will be no margins")

    @classmethod
    def from_pretrained(
        cls,
        source: str,
        asking: Asking,
        contrast: Contrast | None = None,
        *,
        device: str = "auto",
        dtype: str = "bfloat16",
        **options: Any,
    ) -> LocalModel:
        """From a folder or the hub's local cache. On GPUs `device="auto"` spreads it with accelerate."""
        folder, at = _locate(source), pick_device(device)
        from transformers import AutoModelForImageTextToText, AutoProcessor

        spread = {"device_map": "auto"} if device == "auto" and at.type == "cuda" else {}
        with loading(source, how_to_get(source), kind="an image-text-to-text model"):
            processor = AutoProcessor.from_pretrained(folder)
            model = AutoModelForImageTextToText.from_pretrained(folder, torch_dtype=pick_dtype(dtype, at), **spread)
            model = (model if spread else model.to(at)).eval().requires_grad_(False)
        return cls(model, processor, asking, contrast, **options)

    @torch.inference_mode()
    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        """Every picture in every mode; out of memory halves the batch and goes on."""
        text = build_prompt(self.processor, self.prompt, question + self.asking.suffix)
        replies: Replies = {mode: [] for mode in self.modes}
        first: Tensor | None = None
        start = 0
        while start < len(images):
            size = min(self.batch_size or len(images), len(images) - start)
            try:
                part, first = self._batch(images, range(start, start + size), text, key, first)
            except RuntimeError as error:
                if not is_out_of_memory(error) or size == 1:
                    raise
                self.batch_size = size // 2
                log.warning("out of memory with %d pictures at once: going on with %d", size, self.batch_size)
            else:
                for name, rows in part.items():
                    replies[name] += rows
                start += size
                continue
            torch.cuda.empty_cache()  # outside the except block, which would keep its frames alive
        return replies

    def _batch(
        self, images: Sequence[Image.Image], numbers: range, text: str, key: str, first: Tensor | None
    ) -> tuple[Replies, Tensor]:
        """The pictures with these numbers; also gives the original's own logits, which `repeat` draws from again."""
        inputs = self._inputs([images[k] for k in numbers], text)
        clean = self._logits(inputs)
        first = clean[:1] if first is None else first
        margins: dict[str, list[float | None]] = {"plain": self._margins(clean), "repeat": [None] * len(numbers)}
        vcd: list[Processor] = []
        if self.contrast is not None:
            alpha, beta = self.contrast.alpha, self.contrast.beta
            noised = NoisedLogits(self._logits, self._noised(inputs, numbers, key, self.contrast.noise_step))
            margins["vcd"] = self._margins(contrastive_logits(clean, noised(inputs["input_ids"]), alpha))
            vcd = [VCDLogitsProcessor(noised, alpha, beta)]
        replies: Replies = {}
        for mode in self.modes:
            method, decoding = mode.split("/")
            given, scores = inputs, clean
            if method == "repeat":
                scores = first.expand(len(numbers), -1)
                if self.asking.max_new_tokens > 1:
                    given = self._inputs([images[0]] * len(numbers), text)
            processors = list(vcd) if method == "vcd" else []
            if decoding == "sample":
                # the same draw for every method: what differs between them is then the method
                streams = [stream(self.asking.seed, key, k, "answer") for k in numbers]
                processors.append(SampleLogitsProcessor(streams, self.asking.temperature))
            texts = self._decode(given, scores, processors)
            replies[mode] = [Reply(said.strip(), at) for said, at in zip(texts, margins[method], strict=True)]
        return replies, first

    def _inputs(self, images: Sequence[Image.Image], text: str) -> Inputs:
        rows = self.processor(images=list(images), text=[text] * len(images), padding=True, return_tensors="pt")
        made: Inputs = dict(rows.to(self.model.device))
        if self.contrast is not None and not isinstance(made.get("pixel_values"), Tensor):
            raise ConfigError("VCD noises `pixel_values`, and this model's processor gives none; use --no-vcd")
        return made

    def _logits(self, inputs: Inputs) -> Tensor:
        """(B, V) in float32: the logits of the first new token."""
        out = self._generate(inputs, max_new_tokens=1, return_dict_in_generate=True, output_logits=True)
        logits = torch.as_tensor(out.logits[0]).float()
        if logits.isnan().any():  # argmax would make a word of it
            raise RuntimeError("the model gave logits that are not numbers; try --dtype float32")
        return logits

    def _decode(self, inputs: Inputs, scores: Tensor, processors: list[Processor]) -> list[str]:
        """The texts; with one new token the logits that are there already decide."""
        if self.asking.max_new_tokens == 1:
            for processor in processors:
                scores = processor(inputs["input_ids"], scores)
            tokens = scores.argmax(-1, keepdim=True)
        else:
            out = self._generate(inputs, max_new_tokens=self.asking.max_new_tokens, logits_processor=processors)
            tokens = out[:, inputs["input_ids"].shape[1] :]
        return list(self.tokenizer.batch_decode(tokens, skip_special_tokens=True))

    def _generate(self, inputs: Inputs, **options: Any) -> Any:
        dtype = self.model.dtype
        cast = {name: x.to(dtype) if torch.is_floating_point(x) else x for name, x in inputs.items()}
        return self.model.generate(**cast, do_sample=False, **options)

    def _noised(self, inputs: Inputs, numbers: range, key: str, step: int) -> Inputs:
        """The same inputs with every picture's pixels noised by its own stream."""
        pixels = inputs["pixel_values"].float()
        # LLaVA has one row per picture, others one per patch; pictures of a question are of one size, so rows divide
        shares = pixels.reshape(len(numbers), -1)
        streams = [stream(self.asking.seed, key, k, "noise") for k in numbers]
        noise = torch.stack([torch.from_numpy(s.standard_normal(shares.shape[1], "float32")) for s in streams])
        return {**inputs, "pixel_values": noise_image(pixels, noise.to(pixels.device).view_as(pixels), step)}

    def _margins(self, logits: Tensor) -> list[float | None]:
        """log Σ exp over the tokens for yes, minus the same for no: the log odds of the two words."""
        if not all(map(len, self._sides)):
            return [None] * len(logits)
        host = logits.cpu().double()
        yes, no = (host[:, side].logsumexp(-1) for side in self._sides)
        return [round(value, 6) if math.isfinite(value) else None for value in (yes - no).tolist()]


def build_prompt(processor: Any, style: str, text: str) -> str:
    """template: the model's own, or LLaVA's where it has none; llava: LLaVA-1.5's; vcd: the same with its preamble."""
    if style == "template" and getattr(processor, "chat_template", None):
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}
        prompt = str(processor.apply_chat_template([turn], add_generation_prompt=True))
        # the tokenizer adds the first token itself; written out in the template too, it would stand there twice
        return prompt.removeprefix(getattr(processor.tokenizer, "bos_token", None) or "")
    image = getattr(processor, "image_token", "<image>")
    return f"{_PREAMBLE if style == 'vcd' else ''}USER: {image}\n{text} ASSISTANT:"


def _check_prompt(style: str) -> None:
    if style not in PROMPTS:
        raise ConfigError(f"prompt must be one of {', '.join(PROMPTS)}, not {style!r}")


def describe_local(
    source: str, asking: Asking, contrast: Contrast | None, prompt: str = "template", dtype: str = "bfloat16"
) -> dict[str, Any]:
    """What decides a local model's answers; reads its files' content, loads nothing."""
    _check_prompt(prompt)
    folder = _locate(source)
    files = [file for pattern in ("*.json", "*.jinja", "*.model") for file in folder.glob(pattern)]
    return {
        "kind": "local",
        "name": name_of(source),
        "weights": fingerprint([*_weights(folder), *files]),
        "dtype": dtype,
        "prompt": prompt,
        **asdict(asking),
        "vcd": None if contrast is None else asdict(contrast),
    }


def _locate(source: str) -> Path:
    """The folder of a model: given as one, or a hub id whose files are in the local cache."""
    if find_spec("transformers") is None:
        raise ConfigError(f"a local vision-language model needs transformers: {how_to_install('vlm')}")
    folder = find(source, "vision-language model", "a folder in transformers format or a hub id")
    parts = {"config.json": (folder / "config.json").is_file(), "weights": bool(_weights(folder))}
    if absent := [name for name, there in parts.items() if not there]:
        raise WeightsMissing(
            f"{source} is not a whole model in transformers format: no {' and no '.join(absent)} in {folder}. "
            f"{how_to_get(source)}"
        )
    return folder


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
