"""A frozen model on this machine, through transformers: LLaVA or any AutoModelForImageTextToText.

The original and the views of a question are one batch. With one new token, as the paper has it, a single pass over
it answers in every decoding, and VCD costs one more pass over the noised images.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from onesdaug.common.devices import is_out_of_memory, pick_device, pick_dtype
from onesdaug.common.hub import name_of
from onesdaug.errors import ConfigError
from onesdaug.vlm.checkpoint import content, load, locate
from onesdaug.vlm.model import Asking, Contrast, Mode, Replies, Reply, stream, word_of
from onesdaug.vlm.prompts import build_prompt, check_style
from onesdaug.vlm.vcd import Draw, VCDLogitsProcessor, contrastive_logits, noise_image

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger("onesdaug")
Inputs = dict[str, Tensor]
Processor = Callable[[Tensor, Tensor], Tensor]


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

        check_style(prompt)
        self.model, self.processor, self.asking, self.contrast = model, processor, asking, contrast
        self.prompt, self.batch_size = prompt, batch_size
        self.modes = modes(asking, contrast)
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
        prompt: str = "template",
        batch_size: int | None = None,
        device: str = "auto",
        dtype: str = "bfloat16",
    ) -> LocalModel:
        """From a folder or the hub's local cache. On GPUs `device="auto"` spreads it with accelerate."""
        folder, at = locate(source), pick_device(device)
        processor, model = load(
            folder, source, pick_dtype(dtype, at), at, spread=device == "auto" and at.type == "cuda"
        )
        return cls(model, processor, asking, contrast, prompt=prompt, batch_size=batch_size)

    @torch.inference_mode()
    def ask(self, images: Sequence[Image.Image], question: str, key: str) -> Replies:
        """Every picture in every mode; out of memory halves the batch and goes on."""
        text = build_prompt(self.processor, self.prompt, question + self.asking.suffix)
        replies: Replies = {mode.name: [] for mode in self.modes}
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
            if torch.cuda.is_available():  # outside the except block, which would keep its frames alive
                torch.cuda.empty_cache()
        return replies

    def _batch(
        self, images: Sequence[Image.Image], numbers: range, text: str, key: str, first: Tensor | None
    ) -> tuple[Replies, Tensor]:
        """The pictures with these numbers; also gives the original's own logits, which `repeat` draws from again."""
        inputs = self._inputs([images[k] for k in numbers], text)
        clean = self._logits(inputs)
        first = clean[:1] if first is None else first
        margins: dict[str, list[float | None]] = {"plain": self._margins(clean), "repeat": [None] * len(numbers)}
        distorted: Distorted | None = None
        if self.contrast is not None:
            distorted = Distorted(self._logits, self._noised(inputs, numbers, key, self.contrast.noise_step))
            contrast = contrastive_logits(clean, distorted(inputs["input_ids"]), self.contrast.alpha)
            margins["vcd"] = self._margins(contrast)
        replies: Replies = {}
        for mode in self.modes:
            given, scores = inputs, clean
            if mode.method == "repeat":
                scores = first.expand(len(numbers), -1)
                if self.asking.max_new_tokens > 1:
                    given = self._inputs([images[0]] * len(numbers), text)
            processors: list[Processor] = []
            if mode.method == "vcd" and distorted is not None and self.contrast is not None:
                processors.append(VCDLogitsProcessor(distorted, self.contrast.alpha, self.contrast.beta))
            if mode.decoding == "sample":
                # the same draw for every method: what differs between them is then the method
                streams = [stream(self.asking.seed, key, k, "answer") for k in numbers]
                processors.append(Draw(streams, self.asking.temperature))
            texts = self._decode(given, scores, processors)
            pairs = zip(texts, margins[mode.method], strict=True)
            replies[mode.name] = [Reply(said.strip(), margin) for said, margin in pairs]
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
        noise = torch.stack(
            [
                torch.from_numpy(stream(self.asking.seed, key, k, "noise").standard_normal(shares.shape[1], "float32"))
                for k in numbers
            ]
        )
        return {**inputs, "pixel_values": noise_image(pixels, noise.to(pixels.device).view_as(pixels), step)}

    def _margins(self, logits: Tensor) -> list[float | None]:
        """log Σ exp over the tokens for yes, minus the same for no: the log odds of the two words."""
        if not all(map(len, self._sides)):
            return [None] * len(logits)
        host = logits.cpu().double()
        yes, no = (host[:, side].logsumexp(-1) for side in self._sides)
        return [round(value, 6) if math.isfinite(value) else None for value in (yes - no).tolist()]


class Distorted:
    """The logits that follow some tokens when the model sees the noised images; the first ones are computed once.

    Later ones are computed anew from the whole text: slower than a cache of keys and values, but right for any model.
    """

    def __init__(self, logits: Callable[[Inputs], Tensor], inputs: Inputs) -> None:
        self._logits, self._inputs = logits, inputs
        self._first = logits(inputs)

    def __call__(self, input_ids: Tensor) -> Tensor:
        start = self._inputs["input_ids"]
        new = input_ids[:, start.shape[1] :]
        if new.shape[1] == 0:
            return self._first
        longer = dict(self._inputs)
        for name, value in self._inputs.items():
            if value.ndim == 2 and value.shape == start.shape:  # masks and token types grow along with the text
                tail = new if name == "input_ids" else torch.full_like(new, name == "attention_mask")
                longer[name] = torch.cat([value, tail.to(value)], dim=1)
        return self._logits(longer)


def modes(asking: Asking, contrast: Contrast | None) -> tuple[Mode, ...]:
    """plain, vcd where asked for, and, where answers are drawn, repeat: its votes differ by the draw alone."""
    made = [Mode("plain", decoding) for decoding in asking.decodings]
    if contrast is not None:
        made += [Mode("vcd", decoding) for decoding in asking.decodings]
    if "sample" in asking.decodings:
        made.append(Mode("repeat", "sample"))
    return tuple(made)


def describe_local(
    source: str, asking: Asking, contrast: Contrast | None, prompt: str = "template", dtype: str = "bfloat16"
) -> dict[str, Any]:
    """What decides a local model's answers; reads its files' content, loads nothing."""
    check_style(prompt)
    return {
        "kind": "local",
        "name": name_of(source),
        "weights": content(locate(source)),
        "dtype": dtype,
        "prompt": prompt,
        **asking.describe(),
        "vcd": None if contrast is None else asdict(contrast),
    }
