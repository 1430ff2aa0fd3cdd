"""The text around a question, for local models; endpoints have a template of their own."""

from __future__ import annotations

from typing import Any

from onesdaug.errors import ConfigError

STYLES = ("template", "llava", "vcd")
# The Vicuna preamble LLaVA-1.5 was trained with and VCD's scripts send; the hub's template leaves it out
_PREAMBLE = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. "
)


def check_style(style: str) -> None:
    if style not in STYLES:
        raise ConfigError(f"prompt must be one of {', '.join(STYLES)}, not {style!r}")


def build_prompt(processor: Any, style: str, text: str) -> str:
    """template: the model's own, or LLaVA's where it has none; llava: LLaVA-1.5's; vcd: the same with its preamble."""
    if style == "template" and getattr(processor, "chat_template", None):
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}
        prompt = str(processor.apply_chat_template([turn], add_generation_prompt=True))
        # the tokenizer adds the first token itself; written out in the template too, it would stand there twice
        return prompt.removeprefix(getattr(processor.tokenizer, "bos_token", None) or "")
    image = getattr(processor, "image_token", "<image>")
    return f"{_PREAMBLE if style == 'vcd' else ''}USER: {image}\n{text} ASSISTANT:"
