"""A tiny random LLaVA in transformers' own format, with its real processor classes, and questions to put to it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import make_image

WORDS = [
    "<unk>",
    "<s>",
    "</s>",
    "<pad>",
    "<image>",
    "▁USER",
    "▁ASSISTANT",
    "▁Is",
    "▁there",
    "▁a",
    "▁cat",
    "▁dog",
    "▁snowboard",
    "▁in",
    "▁the",
    "▁image",
    "▁Please",
    "▁answer",
    "▁this",
    "▁question",
    "▁with",
    "▁one",
    "▁word",
    "▁Yes",
    "▁No",
    "▁yes",
    "▁no",
    "Yes",
    "No",
    "▁maybe",
    "▁It",
    "▁not",
    ":",
    "?",
    ".",
    ",",
]
SIDE = 28
TEMPLATE = (
    "{% for m in messages %}<s>USER: {% for c in m.content %}{% if c.type == 'image' %}<image>\n"
    "{% else %}{{ c.text }}{% endif %}{% endfor %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


def save_llava(folder: Path, template: str | None = None) -> Path:
    """LlavaForConditionalGeneration with CLIP and Llama of two layers each, saved as the hub's models are."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
    )
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(r"[:?.,]"), "isolated")]
    )
    tokens.decoder = decoders.Metaspace()
    tokens.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        additional_special_tokens=["<image>"],
    )
    pictures = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    LlavaProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template,
    ).save_pretrained(folder)
    torch.manual_seed(3)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**shape, image_size=SIDE, patch_size=14, projection_dim=32),
        text_config=LlamaConfig(
            **shape, vocab_size=len(WORDS), num_key_value_heads=4, bos_token_id=1, eos_token_id=2, pad_token_id=3
        ),
        image_token_id=WORDS.index("<image>"),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )
    model = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.mul_(6)  # at the usual 0.02 the image would hardly matter
            if name.endswith("lm_head.weight"):
                weight.mul_(0.8)
                for word in ("▁Yes", "▁No"):  # mostly a yes or a no, now and then something else
                    weight[WORDS.index(word)] *= 5
    model.save_pretrained(folder)
    return folder


def save_questions(
    folder: Path, images: int = 4, per_image: int = 3, name: str = "questions.json"
) -> tuple[Path, Path]:
    """A folder of pictures and a file of questions about them; gives both."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    things, rows = ("cat", "dog", "snowboard"), []
    for number in range(images):
        file = f"p{number}.png"
        make_image(number, (40, 30)).save(pictures / file)
        for place in range(per_image):
            rows.append(
                {
                    "question_id": len(rows) + 1,
                    "image": file,
                    "text": f"Is there a {things[place % 3]} in the image?",
                    "label": "yes" if (number + place) % 2 else "no",
                }
            )
    file_of_questions = folder / name
    file_of_questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return pictures, file_of_questions
